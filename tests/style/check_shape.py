#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shape of the tree: no cycle of folders and none of files by the symbols of their objects and by what
they include; no folder of too many files, or without a short README.md; one type for each struct tag.

    check_shape.py ROOT BUILD NM

Symbols come from NM over the objects of BUILD. A file that lists descriptors (TABLES) may refer to all of
them; nothing includes it.
"""
import collections
import json
import os
import re
import subprocess
import sys

import house

MAX_FILES = 40
MAX_README = 15

# Tables: a line for each descriptor, and the search by name. Each descriptor's file uses helpers that search the table:
# only this cycle is intended. At most two tables close a cycle of files.
TABLES = {
    "ops/table.c": "all ops",
    "daemon/dataset/table.c": "all transformations",
    "daemon/storage/table.c": "all schemes",
}

# A tag that is declared in one header and defined by each implementation behind it.
OPAQUE = {
    "stg_stream": "core/device.h: what a device puts behind it",
    "stg_device_event": "core/device.h: what a device puts behind it",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
TAG = re.compile(r"^\s*(?:typedef |static |const )*(struct|union|enum) ((?:stg|stager)_\w+)\s*\{", re.M)
BLOCK = re.compile(r"^#ifndef STAGER_STATUS_DEFINED\n.*?^#endif$", re.M | re.S)  # one text in two headers


def components(graph):
    """The strongly connected parts of {node: nodes} that have more than one node, by Tarjan."""
    number, low, stack, found = {}, {}, [], []

    def visit(root):
        work = [(root, iter(sorted(graph.get(root, ()))))]
        number[root] = low[root] = len(number)
        stack.append(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    if len(part) > 1:
                        found.append(sorted(part))

    for start in sorted(graph):
        if start not in number:
            visit(start)
    return sorted(found)


def built(root, build):
    """{object: source} of objects built from sources of the repository, tests apart."""
    commands = json.loads(subprocess.run(["ninja", "-C", build, "-t", "compdb"], check=True, capture_output=True,
                                         text=True).stdout)
    objects = {}
    for entry in commands:
        source = os.path.relpath(os.path.join(build, entry["file"]), root)
        path = os.path.abspath(os.path.join(build, entry["output"]))
        if source.endswith(".c") and not source.startswith(("..", "tests/", "build")) and \
                not entry["output"].startswith("tests/") and os.path.isfile(path):
            objects[path] = source
    return objects


def symbols(objects, nm="nm"):
    """{source: (defined, used)}. nm finds no symbols in objects for link time optimisation."""
    out = subprocess.run([nm, "-A", "-P", *sorted(objects)], capture_output=True, text=True).stdout if objects else ""
    found = collections.defaultdict(lambda: (set(), set()))
    for line in out.split("\n"):
        match = re.match(r"(.+?): (\S+) (\w)", line)
        if match is not None and match.group(1) in objects:
            defined, used = found[objects[match.group(1)]]
            if match.group(3) in "TDBRVWCS":
                defined.add(match.group(2))
            elif match.group(3) == "U":
                used.add(match.group(2))
    return found


def file_graph(found):
    """{source: sources whose symbols it uses}. A name defined in two libraries belongs to the library of its user."""
    places = collections.defaultdict(list)
    for source, (defined, _) in found.items():
        for name in defined:
            places[name].append(source)
    graph = {}
    for source, (defined, used) in found.items():
        graph[source] = set()
        for name in used - defined:
            near = sorted(places.get(name, ()), key=lambda other: -len(os.path.commonprefix([source, other])))
            graph[source].update(near[:1])
    return graph


def include_graph(root, names):
    return {name: {header for header in INCLUDE.findall(house.read(root, name))
                   if os.path.isfile(os.path.join(root, header))} for name in names}


def folder_graph(*graphs):
    folders = {}
    for graph in graphs:
        for source, others in graph.items():
            here = os.path.dirname(source)
            if source not in TABLES:
                folders.setdefault(here, set()).update(os.path.dirname(other) for other in others)
    return {here: there - {here} for here, there in folders.items()}


def cycles(uses, includes):
    found = [f"{part[0]}:1: a cycle of {len(part)} files, by their symbols: {', '.join(part)}" for part in
             components({source: set() if source in TABLES else others for source, others in uses.items()})]
    found += [f"{part[0]}:1: a cycle of folders: {', '.join(part)}"
              for part in components(folder_graph(uses, includes))]
    closing = [table for table in TABLES if any(table in part for part in components(uses))]
    if len(closing) > 2:
        found.append(f"{closing[2]}:1: more than two tables close a cycle of files: {', '.join(closing)}")
    found += [f"{name}:1: includes a table, {table}" for name, headers in includes.items()
              for table in headers & set(TABLES)]
    return found


def sizes(names):
    n = collections.Counter(os.path.dirname(name) for name in names)
    return [f"{folder}:1: has {n[folder]} source files, more than {MAX_FILES}" for folder in sorted(n)
            if n[folder] > MAX_FILES]


def readmes(root, names):
    """Each folder of sources has a README.md, or the folder above it does; it is short."""
    found = []
    for folder in sorted({os.path.dirname(name) for name in names if not name.startswith("tests/")}):
        above = [folder] + [os.path.dirname(folder)] * ("/" in folder)
        path = next((f"{place}/README.md" for place in above
                     if os.path.isfile(os.path.join(root, place, "README.md"))), None)
        if path is None:
            found.append(f"{folder}:1: has no README.md")
        elif path.startswith(folder) and house.read(root, path).count("\n") > MAX_README and \
                not path.startswith("client/python/"):  # the page of the package
            found.append(f"{path}:1: has more than {MAX_README} lines")
    return found


def tags(root, names):
    """Only those with a prefix: the others belong to one file."""
    places = collections.defaultdict(set)
    for name in names:
        text = house.read(root, name)
        for _, tag in TAG.findall(BLOCK.sub("", text) if name != "core/status.h" else text):
            places[tag].add(name)
    return [f"{sorted(where)[0]}:1: {tag} is another type in {', '.join(sorted(where)[1:])}"
            for tag, where in sorted(places.items()) if len(where) > 1 and tag not in OPAQUE]


def problems(root, found=None):
    names = house.tracked(root, ".c", ".h", ".cu", ".cuh")
    own = [name for name in names if not name.startswith("tests/")]
    return cycles(file_graph(found or {}), include_graph(root, own)) + sizes(names) + readmes(root, own) + tags(root, own)


if __name__ == "__main__":
    sys.exit(house.report(
        problems(sys.argv[1], symbols(built(*map(os.path.abspath, sys.argv[1:3])), sys.argv[3])),
        "move what both sides need into a file below both; give a folder's second subject a folder of its own; give the "
        "second type another tag"))
