#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of client/docs/c-api.md compile, without a warning.

    test_docs.py SOURCE_ROOT COMPILER...
"""
import os
import re
import subprocess
import sys

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-unused-function"]


def main(root, compiler):
    page = os.path.join(root, "client/docs/c-api.md")
    with open(page, encoding="utf-8") as file:
        blocks = re.findall(r"^```c\n(.*?)^```$", file.read(), re.S | re.M)
    assert len(blocks) >= 4, f"{page}: only {len(blocks)} examples"
    for number, block in enumerate(blocks, 1):
        result = subprocess.run(
            [*compiler, *WARNINGS, "-x", "c", "-fsyntax-only", "-I", os.path.join(root, "client"), "-"],
            input=block, capture_output=True, text=True)
        if result.returncode != 0:
            print(f"example {number} of {page}:\n{result.stderr}")
            return 1
    print(f"{len(blocks)} examples compile")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
