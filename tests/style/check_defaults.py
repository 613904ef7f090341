#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The defaults that docs/pipeline.md gives for keys of `staged` are those of proto/pipeline.proto."""
import re

import house

DOCUMENT, SCHEMA = "docs/pipeline.md", "proto/pipeline.proto"
MESSAGE = re.compile(r"^message Staged \{\n(.*?)^\}", re.M | re.S)
FIELD = re.compile(r"^  \w+ \w+ (\w+) = \d+(?: \[default = (\w+)\])?;", re.M)
SECTION = re.compile(r"^## `staged`.*?\n(.*?)(?=^## )", re.M | re.S)
ROW = re.compile(r"^\| `(\w+)` \| `([\w.]+)` \|", re.M)


def problems(root):
    schema = dict(FIELD.findall(MESSAGE.search(house.read(root, SCHEMA)).group(1)))
    rows = SECTION.search(house.read(root, DOCUMENT)).group(1)
    found = [f"{DOCUMENT}:1: {key}: the default is {schema[key]}, not {default}"
             for key, default in ROW.findall(rows) if schema.get(key, default) not in (default, "")]
    documented = set(re.findall(r"^\| `(\w+)` \|", rows, re.M))
    return found + [f"{DOCUMENT}:1: the table of `staged` lacks {key}" for key in schema if key not in documented]


if __name__ == "__main__":
    house.main(problems, "change schema, document and tests together; CHANGELOG.md names a changed default")
