#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of a folder call each other in one direction, by the symbols of their objects. With link time
optimisation the objects have no symbols yet.

    check_cycles.py BUILD NM
"""
import json
import os
import subprocess
import sys

import check_layers
import house

# Folders with a cycle. A new name is a mistake; a folder that loses its cycle leaves the list.
CYCLIC = {"client/python", "core", "daemon/pipeline", "daemon/server", "ops/exec",
          "ops/graph", "ops/kernels/image", "ops/partition", "proto"}


def symbols(listing):
    """The symbols that an object defines, and those that it refers to, from `nm -P`."""
    words = [line.split() for line in listing.split("\n")]
    words = [word for word in words if len(word) > 1]
    return {word[0] for word in words if word[1] in "TDBRVW"}, {word[0] for word in words if word[1] == "U"}


def calls(objects):
    """objects: {source: symbols()}. Sources of the same folder that a source refers to."""
    owners = {name: source for source, (defined, _) in objects.items() for name in defined}
    return {source: {owners[name] for name in used if name in owners and owners[name] != source and
                     os.path.dirname(owners[name]) == os.path.dirname(source)}
            for source, (_, used) in objects.items()}


def cycles(objects, cyclic):
    graph, found, seen = calls(objects), [], set()
    for folder in sorted({os.path.dirname(source) for source in objects}):
        ring = check_layers.circle({source: to for source, to in graph.items()
                                    if os.path.dirname(source) == folder})
        if ring:
            seen.add(folder)
        if ring and folder not in cyclic:
            found.append(f"{ring[0]}:1: a cycle of files: {' -> '.join(ring)}")
    return found + [f"{folder}:1: has no cycle any more: check_cycles.py lists it" for folder in sorted(cyclic - seen)]


def problems(build, nm):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    sources = {}
    for entry in entries:
        path = os.path.join(build, entry["output"])
        source = os.path.relpath(os.path.join(build, entry["file"]), os.path.join(build, ".."))
        if source.startswith(("tests", "build")) or not source.endswith(".c") or not os.path.exists(path):
            continue
        sources[path] = source
    listing = subprocess.run([nm, "-P", "-A", *sources], check=False, capture_output=True, text=True).stdout
    lines = {source: [] for source in sources.values()}
    for path, _, line in (line.partition(": ") for line in listing.split("\n")):
        if path in sources:
            lines[sources[path]].append(line)
    objects = {source: symbols("\n".join(line)) for source, line in lines.items()}
    is_built = any(defined for defined, _ in objects.values())
    return cycles(objects, CYCLIC & {os.path.dirname(source) for source in objects}) if is_built else []


if __name__ == "__main__":
    sys.exit(house.report(problems(*sys.argv[1:3]), "move what both files need into a third one, below them"))
