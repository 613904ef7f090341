#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every link of a document to a file of the repository resolves; README.md is short."""
import os
import re

import house

MAX_LINES, MAX_WORDS = 150, 1800
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


def problems(root):
    found = []
    for name in house.tracked(root, ".md"):
        for number, line in enumerate(house.read(root, name).split("\n"), 1):
            for target, _ in LINK.findall(line):
                path = os.path.join(root, os.path.dirname(name), target)
                if "://" not in target and not os.path.exists(path):
                    found.append(f"{name}:{number}: {target} is not there")
        text = house.read(root, name)
        lines, words = text.count("\n"), len(text.split())
        if name == "README.md" and (lines > MAX_LINES or words > MAX_WORDS):
            found.append(f"{name}:{lines}: {lines} lines and {words} words; at most {MAX_LINES} and {MAX_WORDS}")
    return found


if __name__ == "__main__":
    house.main(problems, "name the file by its path from the document; what README.md has no room for belongs into docs/")
