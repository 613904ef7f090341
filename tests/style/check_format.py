#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-format has nothing to change in any *.c, *.h. Skipped if clang-format is missing or its version differs from
Debian 12's, which formats the tree: each version has another layout."""
import os
import re
import shutil
import subprocess
import sys

import house

VERSION = "14"


def problems(root):
    names = house.tracked(root, ".c", ".h")
    if not names:
        return []
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", *names], cwd=root,
                            capture_output=True, text=True)
    if result.returncode == 0:
        return []
    lines = [line for line in result.stderr.split("\n") if re.match(r"\S+:\d+:\d+: ", line)]
    return lines or [result.stderr]


if __name__ == "__main__":
    if shutil.which("clang-format") is None:
        print("skipped: no clang-format (apt-get install clang-format)")
        sys.exit(house.SKIPPED)
    found = re.search(r"version (\d+)", subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout)
    if found is not None and found.group(1) != VERSION:
        print(f"skipped: clang-format {found.group(1)}, and the tree is formatted with {VERSION}")
        sys.exit(house.SKIPPED)
    os.environ.pop("CLANG_FORMAT_STYLE", None)
    house.main(problems, "clang-format -i FILE")
