#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Functions over 80 lines are listed, functions over 120 refused."""
import re
import sys

import house

LISTED, REFUSED = 80, 120


def functions(text):
    """(line, name, lines) of each function of a formatted C file: '{' and '}' stand alone in
    column 0."""
    lines = text.split("\n")
    start = None
    for i, line in enumerate(lines):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            head = start - 1
            while head > 0 and re.match(r"^[\s)]", lines[head]):
                head -= 1
            match = re.search(r"(\w+)\(", lines[head])
            yield head + 1, match.group(1) if match else "?", i - head + 1
            start = None


def survey(root):
    """(lines to list, problems)."""
    listed, found = [], []
    for name in house.tracked(root, ".c", ".h", ".cu"):
        text = house.read(root, name)
        for line, function, length in functions(text):
            finding = f"{name}:{line}: {function} has {length} lines"
            if length > REFUSED:
                found.append(finding)
            elif length > LISTED:
                listed.append(finding)
    return listed, found


def problems(root):
    return survey(root)[1]


if __name__ == "__main__":
    over, bad = survey(sys.argv[1])
    print(f"{len(over)} functions of {LISTED + 1} to {REFUSED} lines")
    for entry in over:
        print("   ", entry)
    sys.exit(house.report(bad, "give the parts of the function names that say what they do"))
