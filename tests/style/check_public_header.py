#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""client/stager.h is the only installed header, so it repeats the status codes and dtypes of
core/status.h. The two blocks must be one text."""
import re

import house

BLOCK = re.compile(r"^#ifndef STAGER_STATUS_DEFINED\n.*?^#endif$", re.M | re.S)
FILES = ("core/status.h", "client/stager.h")


def problems(root):
    blocks = []
    for name in FILES:
        match = BLOCK.search(house.read(root, name))
        if match is None:
            return [f"{name}:1: no block #ifndef STAGER_STATUS_DEFINED … #endif"]
        blocks.append(match.group(0).split("\n"))
    for a, b in zip(*blocks):
        if a != b:
            return [f"{FILES[1]}:1: says '{b}' where {FILES[0]} says '{a}'"]
    if len(blocks[0]) != len(blocks[1]):
        return [f"{FILES[1]}:1: the block has {len(blocks[1])} lines, in {FILES[0]} "
                f"{len(blocks[0])}"]
    return []


if __name__ == "__main__":
    house.main(problems, "copy the block from core/status.h to client/stager.h, word for word")
