#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of functions in docs/architecture.md against the code: each function is in its file, neighbours
call one another, and no chain comes back to a folder that it left.

A table has the columns file, function, called as, what. A row's function calls the next one or, throughout
the table, is called by it; by its name, or by the text in the column "called as".
"""
import collections
import os
import re

import house

DOCUMENT = "docs/architecture.md"
ROW = re.compile(r"^\| `([^`]+)` \| `(\w+)` \| (?:`([^`]+)`)? ?\|")
DEFINITION = re.compile(r"^[a-z][\w \t*]*[ *](\w+)\((?:[^;{}()]|\([^()]*\))*\)\n\{\n(.*?)^\}", re.M | re.S)


def tables(text):
    """Lists of (line, file, function, called as)."""
    found = [[]]
    for number, line in enumerate(text.split("\n"), 1):
        match = ROW.match(line)
        if match:
            found[-1].append((number, *match.groups()))
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def functions(root, name):
    """{name: bodies} of one file."""
    found = collections.defaultdict(list)
    for function, body in DEFINITION.findall(house.read(root, name)) if os.path.isfile(os.path.join(root, name)) else []:
        found[function].append(body)
    return found


def calls(bodies, row):
    text = row[3] if row[3] is not None else row[2]
    pattern = re.compile((r"\b" if text[0].isalnum() else "") + re.escape(text) + r"\b")
    return any(pattern.search(body) for body in bodies)


def problems(root):
    tree, found = {}, []
    for table in tables(house.read(root, DOCUMENT)):
        there, known = [], True
        for number, name, function, _ in table:
            bodies = tree.setdefault(name, functions(root, name)).get(function, [])
            folder = os.path.dirname(name)
            known = known and bool(bodies)
            if not bodies:
                found.append(f"{DOCUMENT}:{number}: {name} has no function {function}")
            if folder in there[:-1]:
                found.append(f"{DOCUMENT}:{number}: the chain comes back to {folder}")
            if there[-1:] != [folder]:
                there.append(folder)
        pairs = list(zip(table, table[1:])) if known else []
        down = [row for before, row in pairs if not calls(tree[before[1]][before[2]], row)]
        up = [before for before, row in pairs
              if not calls(tree[row[1]][row[2]], (*before[:3], row[3]))]
        if down and up:
            found += [f"{DOCUMENT}:{row[0]}: {row[2]} is not called from the row before it" for row in down]
    return found


if __name__ == "__main__":
    house.main(problems, "follow the chain in the code, and write what you find")
