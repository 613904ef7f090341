#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stagerctl cat NAME --json` over rows of Criteo gives what TensorFlow computes:
tf.io.decode_csv for the columns, tf.strings.to_hash_bucket_fast and to_hash_bucket for the ids.

    peer_cat.py BUILD
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))
from cat_equals_csv import CATEGORIES, COLUMNS, NUMBERS  # noqa: E402
from daemon import Daemon  # noqa: E402

SAMPLE = os.path.join(HERE, "../../../shared/data/criteo/criteo_sample.txt")
BUCKETS = 1000003
DEFAULTS = [0] + [0.0] * len(NUMBERS) + [""] * len(CATEGORIES)
HASHES = {"fast": "string_to_hash_bucket_fast", "old": "string_to_hash_bucket"}


def pipeline(name, path):
    nodes = [{"name": "columns", "op": "decode_csv", "input": ["record"],
              "record_defaults": DEFAULTS}]
    features = {column: f"columns:{i}" for i, column in enumerate(COLUMNS)}
    for kind, op in HASHES.items():
        for i, column in enumerate(CATEGORIES):
            node = f"{kind}_{column}"
            nodes.append({"name": node, "op": op, "num_buckets": BUCKETS,
                          "input": [f"columns:{1 + len(NUMBERS) + i}"]})
            features[node] = node
    return json.dumps({
        "name": name,
        "dataset": [{"files": {"pattern": [path], "shuffle": False}},
                    {"text_line": {"skip_header_lines": 1}},
                    {"batch": {"batch_size": 50}}],
        "graph": nodes, "staged": {"features": features}})


def by_tensorflow(path):
    """{feature: array} of the whole file."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[1:]
    lines = [line.removesuffix(b"\r") for line in lines if line]
    want = dict(zip(COLUMNS, tf.io.decode_csv(lines, [[d] for d in DEFAULTS])))
    for column in CATEGORIES:
        want[f"fast_{column}"] = tf.strings.to_hash_bucket_fast(want[column], BUCKETS)
        want[f"old_{column}"] = tf.strings.to_hash_bucket(want[column], BUCKETS)
    return {name: tensor.numpy() for name, tensor in want.items()}


def by_stager(daemon, name, path):
    text = os.path.join(daemon.folder, name + ".yaml")
    with open(text, "w", encoding="utf-8") as file:
        file.write(pipeline(name, path))
    daemon.ctl("apply", text, "--replace")
    got = {}
    for batch in daemon.cat(name):
        for feature, tensor in batch["tensors"].items():
            got.setdefault(feature, []).extend(tensor["values"])
    return got


def as_array(values, like):
    if like.dtype == object:
        return np.array([value.encode() for value in values], dtype=object)
    return np.array(values, dtype=like.dtype)


def compare(daemon, name, path):
    """Returns the number of features that differ; prints each."""
    got, want = by_stager(daemon, name, path), by_tensorflow(path)
    assert set(got) == set(want), sorted(set(got) ^ set(want))
    n_different = 0
    for feature, values in want.items():
        ours = as_array(got[feature], values)
        if len(ours) == len(values) and np.array_equal(ours, values):
            continue
        n_different += 1
        rows = np.nonzero(ours != values)[0] if len(ours) == len(values) else []
        where = (f"row {rows[0]}: stager {ours[rows[0]]!r}, TensorFlow {values[rows[0]]!r}"
                 if len(rows) else f"{len(ours)} rows, TensorFlow {len(values)}")
        print(f"FAIL {path}: {feature}: {where}")
    if n_different == 0:
        print(f"ok   {len(want['label'])} rows, {len(want)} features of {path}")
    return n_different


def main():
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="stg-peer-") as folder, Daemon(sys.argv[1]) as daemon:
        generated = os.path.join(folder, "generated.csv")
        subprocess.run([sys.executable, os.path.join(HERE, "../data/make_criteo.py"),
                        "--rows", "2000", "--seed", "5", "--out", generated], check=True)
        for i, path in enumerate((generated, os.path.abspath(SAMPLE))):
            if not os.path.exists(path):
                print(f"skipped: no {path}")
                skipped += 1
            elif compare(daemon, f"peer-{i}", path) == 0:
                passed += 1
            else:
                failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
