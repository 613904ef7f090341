#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each source file names its licence in the first three lines; no "to do" remains; only the monotonic clock decides
(I10), and the other one is for people."""
import re

import house

SOURCES = (".c", ".h", ".cu", ".py", ".sh", ".proto", ".build", ".syms", ".service", ".socket")
ALSO = ("quickstart", ".ci/run")
SPDX = "SPDX-License-Identifier: Apache-2.0"
LEFT = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
WALL_CLOCK = re.compile(r"\bCLOCK_REALTIME\b")
WALL_CLOCK_IN = ("core/log.c", "client/stagerctl/view.c", "client/stagerctl/watch.c", "daemon/journal/journal.c",
                 "daemon/operations/operations.c", "daemon/pipeline/versions.c", "tests/")
UNNAMED = re.compile(r"\b(who|whom|told)\b", re.I)
MAX_UNNAMED = 40
TEXT = SOURCES + (".md", ".yaml", ".yml", ".txt", ".in", ".conf", ".options")


def problems(root):
    found, unnamed = [], []
    for name in house.tracked(root, *TEXT, *ALSO):
        lines = house.read(root, name).split("\n")
        if name.endswith(SOURCES + ALSO) and not any(SPDX in line for line in lines[:3]):
            found.append(f"{name}:1: no line with {SPDX}")
        for number, line in enumerate(lines, 1):
            match = LEFT.search(line)
            if match:
                found.append(f"{name}:{number}: {match.group(1)}")
            if name.endswith((".c", ".h")) and WALL_CLOCK.search(line) and not name.startswith(WALL_CLOCK_IN):
                found.append(f"{name}:{number}: CLOCK_REALTIME")
            unnamed += [f"{name}:{number}: {word}" for word in UNNAMED.findall(line)]
    if len(unnamed) > MAX_UNNAMED:
        found += [f"{line}: one of {len(unnamed)}, at most {MAX_UNNAMED}" for line in unnamed]
    return found


if __name__ == "__main__":
    house.main(problems, "put the SPDX line first (after #!); do what is left to do, or open an "
               "issue for it; use core/clock.h; name the component (the client, the runner)")
