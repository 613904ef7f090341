#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every prototype in client/stager.h stands under a comment for the caller. Prototypes that follow one another without
an empty line share one."""
import re

import house

PUBLIC = "client/stager.h"


def prototypes(text):
    """(line, name, has a comment) of each prototype at the top level."""
    lines = text.split("\n")
    depth = 0
    comment = False  # a comment stands directly above, in this paragraph
    inside = False
    start = None
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if inside or stripped.startswith("/*"):
            inside = "*/" not in stripped
            comment = True
            continue
        if stripped == "":
            comment = False
            continue
        if stripped.startswith("#") or stripped.startswith('extern "C"'):
            continue
        if start is None:
            start = number
        depth += stripped.count("{") - stripped.count("}")
        if not stripped.split("/*")[0].rstrip().endswith((";", "}")) or depth > 0:
            continue
        whole = " ".join(lines[start - 1:number])
        match = re.search(r"\b(stager_\w+)\s*\(", whole)
        if match and "{" not in whole:
            yield start, match.group(1), comment
        start = None


def problems(root):
    found = []
    n = 0
    for line, name, commented in prototypes(house.read(root, PUBLIC)):
        n += 1
        if not commented:
            found.append(f"{PUBLIC}:{line}: {name} has no comment")
    return found if n > 0 else [f"{PUBLIC}:1: no prototype found"]


if __name__ == "__main__":
    house.main(problems, "say above the prototype what it does, the owner of each object, which thread may call "
               "it, and what each error means to do next")
