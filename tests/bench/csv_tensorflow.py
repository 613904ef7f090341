#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Criteo-like CSV to a trainer, 40 columns: stagerd compared with tf.data, TextLineDataset().batch().map(decode_csv),
strings hashed and unchanged.

    csv_tensorflow.py BUILD [SECONDS]    with a Python that has TensorFlow

tf.data runs with its fastest batch size and num_parallel_calls, found by trials.
"""
from peer import (N_BUCKETS, N_CORES, STRINGS, TITLES, Bench, Iteration, hash_strings, hashed_and_not, report,
                  staged, tensorflow)

tf = tensorflow()

FILE_ROWS = 24 * 4096
SETTINGS = [(batch_rows, n_calls) for batch_rows in (512, 2048, 8192) for n_calls in (tf.data.AUTOTUNE, N_CORES)]


def defaults():
    return [0] + [0.0] * 13 + [""] * len(STRINGS)


def pipeline(path, hashed):
    nodes = [{"name": "columns", "op": "decode_csv", "input": ["record"], "record_defaults": defaults()}]
    features = {title: f"columns:{i}" for i, title in enumerate(TITLES)}
    if hashed:
        hash_strings(features, nodes)
    return {"dataset": [{"files": {"pattern": [path]}}, {"text_line": {}}, {"repeat": {}},
                        {"batch": {"batch_size": 4096}}],
            "graph": nodes, "staged": staged(features, "4MiB")}


def theirs(path, hashed, batch_rows, n_calls):
    def decode(lines):
        columns = dict(zip(TITLES, tf.io.decode_csv(lines, [[d] for d in defaults()])))
        for title in STRINGS if hashed else []:
            columns[title] = tf.strings.to_hash_bucket_fast(columns[title], N_BUCKETS)
        return columns

    dataset = tf.data.TextLineDataset(path).repeat().batch(batch_rows)
    return Iteration(dataset.map(decode, n_calls).prefetch(tf.data.AUTOTUNE), batch_rows)


def main():
    with Bench(__doc__, 20.0) as bench:
        path = bench.rows("csv", FILE_ROWS, "rows.csv")
        report("csv_tensorflow", hashed_and_not(bench, SETTINGS, lambda hashed: pipeline(path, hashed),
                                              lambda *setting: theirs(path, *setting)))


if __name__ == "__main__":
    main()
