#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of tests/fuzz/README.md has each mode of a fuzz target, and no other."""
import os
import re

import house

DOCUMENT = "tests/fuzz/README.md"
PROGRAM = re.compile(r"^tests/fuzz/fuzz_(\w+)\.c$")
MODES = re.compile(r"stg_fuzz_modes\[\] = \{\n(.*?)^\};", re.M | re.S)
ROW = re.compile(r"^\|.*\|(.*)\|$", re.M)


def modes(root):
    """PROGRAM/MODE, each with its file."""
    found = {}
    for name in house.tracked(root, ".c"):
        table = MODES.search(house.read(root, name)) if PROGRAM.match(name) else None
        for mode in re.findall(r'\{"(\w+)"', table.group(1)) if table else []:
            found[f"{PROGRAM.match(name).group(1)}/{mode}"] = name
    return found


def problems(root):
    if not os.path.isfile(os.path.join(root, DOCUMENT)):
        return []
    has = modes(root)
    rows = " ".join(ROW.findall(house.read(root, DOCUMENT)))
    says = set(re.findall(r"`(\w+/\w+)`", rows))
    return [f"{has[mode]}:1: {mode} is not in the table of {DOCUMENT}" for mode in sorted(has) if mode not in says] + \
           [f"{DOCUMENT}:1: {mode} is no mode" for mode in sorted(says) if mode not in has]


if __name__ == "__main__":
    house.main(problems, "give the untrusted input of the mode a row, or add the mode to the row of its input")
