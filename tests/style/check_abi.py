#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The binary interface of libstager is the one that client/stager.abi describes (docs/compatibility.md).

    check_abi.py ROOT           compares with abidiff; skipped without abigail-tools
    check_abi.py ROOT --write   writes client/stager.abi from client/stager.h

The description is that of a library made from the header alone, with one variable for each function and each
enumeration: a caller relies only on their types, in any build. check_exports.py compares names with the real library.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import check_exports
import house

HEADER, DESCRIPTION = "client/stager.h", "client/stager.abi"


def why_not():
    """The reason why this machine cannot compare, or None."""
    if struct.calcsize("P") != 8:
        return "the description is of 64-bit machines"
    missing = [tool for tool in ("abidw", "abidiff") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} of Debian's abigail-tools missing" if missing else None


def compile_header(root, folder):
    """A shared library with one variable for each function type of the header."""
    text = house.read(root, HEADER)
    enums = re.findall(r"^enum (\w+) \{", text, re.M)
    with open(os.path.join(folder, "abi.c"), "w", encoding="utf-8") as file:
        file.write(f'#include "{HEADER}"\n')
        file.writelines(f"enum {name} abi_{name};\n" for name in enums)
        file.writelines(f"__typeof__({name}) *abi_{name} = {name};\n"
                        for name in sorted(check_exports.declared(text)))
    subprocess.run([*os.environ.get("CC", "cc").split(), "-g", "-O0", "-fPIC", "-shared", "-I",
                    os.path.abspath(root), "abi.c", "-o", "libabi.so"], cwd=folder, check=True)
    return os.path.join(folder, "libabi.so")


def describe(root, path):
    with tempfile.TemporaryDirectory(prefix="stg-abi-") as folder:
        subprocess.run(["abidw", "--no-architecture", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs",
                        "--no-elf-needed", "--type-id-style", "hash", "--out-file", path,
                        compile_header(root, folder)], check=True)


def problems(root):
    with tempfile.TemporaryDirectory(prefix="stg-abi-") as folder:
        now = os.path.join(folder, "now.abi")
        describe(root, now)
        done = subprocess.run(["abidiff", os.path.join(root, DESCRIPTION), now], capture_output=True, text=True)
    if done.returncode == 0:
        return []
    lines = [line for line in (done.stdout + done.stderr).split("\n") if line.strip()]
    return [f"{DESCRIPTION}:1: {HEADER} has another binary interface:", *lines]


if __name__ == "__main__":
    if why_not() is not None:
        print(f"skipped: {why_not()}")
        sys.exit(house.SKIPPED)
    if sys.argv[2:] == ["--write"]:
        sys.exit(describe(sys.argv[1], os.path.join(sys.argv[1], DESCRIPTION)))
    house.main(problems, "what released programs rely on stays as it is: give a struct with struct_size one more field "
               "at its end, or add a call. Then tests/style/check_abi.py . --write, and a line in the changelog")
