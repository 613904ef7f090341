#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every link of a document to a file of ours leads somewhere."""
import os
import re

import house

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


def problems(root):
    found = []
    for name in house.tracked(root, ".md"):
        for number, line in enumerate(house.read(root, name).split("\n"), 1):
            for target, _ in LINK.findall(line):
                path = os.path.join(root, os.path.dirname(name), target)
                if "://" not in target and not os.path.exists(path):
                    found.append(f"{name}:{number}: {target} is not there")
    return found


if __name__ == "__main__":
    house.main(problems, "name the file by its path from the document")
