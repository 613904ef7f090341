#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stagerctl cat NAME --json` over rows of Criteo gives the values of Python's csv module.

    cat_equals_csv.py BUILD [FILE]...

It uses generated rows, and those of each existing FILE. Values are compared as the 32 bits
of a float, as integers, and as strings.
"""
import csv
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile

from daemon import Daemon

HERE = os.path.dirname(os.path.abspath(__file__))
NUMBERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
COLUMNS = ["label"] + NUMBERS + CATEGORIES
BATCH = 64


def pipeline(name, path):
    """The pipeline as JSON, which is YAML."""
    return json.dumps({
        "name": name,
        "dataset": [{"files": {"pattern": [path], "shuffle": False}},
                    {"text_line": {"skip_header_lines": 1}},
                    {"batch": {"batch_size": BATCH}}],
        "graph": [{"name": "columns", "op": "decode_csv", "input": ["record"],
                   "record_defaults": [0] + [0.0] * len(NUMBERS) + [""] * len(CATEGORIES)}],
        "staged": {"features": {column: f"columns:{i}" for i, column in enumerate(COLUMNS)}},
    })


def float32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def expected(path):
    """{column: values} read by Python's csv module, empty fields replaced by defaults."""
    with open(path, newline="", encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    columns = {"label": [int(row["label"] or 0) for row in rows]}
    for name in NUMBERS:
        columns[name] = [float32(float(row[name] or 0.0)) for row in rows]
    for name in CATEGORIES:
        columns[name] = [row[name] for row in rows]
    return columns, len(rows)


def joined(batches):
    """{tensor: values of all batches}; also checks numbers and dtypes."""
    columns = {}
    for number, batch in enumerate(batches):
        assert batch["batch"] == number, f"batch {batch['batch']} comes as number {number}"
        assert set(batch["tensors"]) == set(COLUMNS), sorted(batch["tensors"])
        for name, tensor in batch["tensors"].items():
            dtype = ("int32" if name == "label" else "float32" if name in NUMBERS else "string")
            assert tensor["dtype"] == dtype, f"{name} is {tensor['dtype']}, not {dtype}"
            assert tensor["shape"] == [len(tensor["values"])], f"{name}: {tensor['shape']}"
            columns.setdefault(name, []).extend(tensor["values"])
    return columns


def compare(daemon, name, path):
    text = os.path.join(daemon.folder, name + ".yaml")
    with open(text, "w", encoding="utf-8") as file:
        file.write(pipeline(name, path))
    daemon.ctl("apply", text)
    want, n_rows = expected(path)
    got = joined(daemon.cat(name))
    for column in COLUMNS:
        values = got.get(column, [])
        if column in NUMBERS:
            values = [float32(value) for value in values]
        for i, (a, b) in enumerate(itertools.zip_longest(values, want[column])):
            assert a == b, f"{path}: row {i}, {column}: stagerctl {a!r}, csv {b!r}"
    print(f"ok   {n_rows} rows of {path}")


def main():
    build, given = sys.argv[1], sys.argv[2:]
    failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="stg-cat-") as folder, Daemon(build) as daemon:
        generated = os.path.join(folder, "generated.csv")
        subprocess.run([sys.executable, os.path.join(HERE, "../data/make_criteo.py"),
                        "--rows", "1000", "--seed", "3", "--out", generated], check=True)
        for i, path in enumerate([generated] + given):
            if not os.path.exists(path):
                print(f"skipped: no {path}")
                skipped += 1
                continue
            try:
                compare(daemon, f"criteo-{i}", os.path.abspath(path))
            except Exception as error:  # noqa: BLE001: reports all files
                print(f"FAIL {path}: {error}")
                failed += 1
    print(f"{1 + len(given) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
