#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TFRecords of Criteo-like tf.train.Examples to dense columns in a trainer's hands: stagerd compared with tf.data,
TFRecordDataset().batch().map(parse_example), strings hashed and unchanged.

    records_tensorflow.py BUILD [SECONDS]    with a Python that has TensorFlow

tf.data runs with its fastest batch size and num_parallel_calls, found by trials.
"""
from peer import (N_BUCKETS, N_CORES, STRINGS, TITLES, Bench, Iteration, hash_strings, hashed_and_not, report,
                  staged, tensorflow)

tf = tensorflow()

FILE_ROWS = 16 * 4096
SETTINGS = [(batch_rows, n_calls) for batch_rows in (512, 2048, 8192) for n_calls in (tf.data.AUTOTUNE, N_CORES)]


def pipeline(path, hashed):
    spec = {title: {"dtype": "string", "default_value": ""} if title in STRINGS else
                   {"dtype": "int64", "default_value": 0} for title in TITLES}
    nodes = [{"name": "parsed", "op": "parse_example", "input": ["record"], "features": spec}]
    features = {title: f"parsed:{title}" for title in TITLES}
    if hashed:
        hash_strings(features, nodes)
    return {"dataset": [{"files": {"pattern": [path]}}, {"tfrecord": {}}, {"repeat": {}},
                        {"batch": {"batch_size": 4096}}],
            "graph": nodes, "staged": staged(features, "4MiB")}


def theirs(path, hashed, batch_rows, n_calls):
    spec = {title: tf.io.FixedLenFeature([], tf.string, "") if title in STRINGS else
                   tf.io.FixedLenFeature([], tf.int64, 0) for title in TITLES}

    def parse(records):
        columns = tf.io.parse_example(records, spec)
        for title in STRINGS if hashed else []:
            columns[title] = tf.strings.to_hash_bucket_fast(columns[title], N_BUCKETS)
        return columns

    dataset = tf.data.TFRecordDataset(path).repeat().batch(batch_rows)
    return Iteration(dataset.map(parse, n_calls).prefetch(tf.data.AUTOTUNE), batch_rows)


def main():
    with Bench(__doc__, 20.0) as bench:
        path = bench.rows("example", FILE_ROWS, "rows.tfrecord")
        report("records_tensorflow", hashed_and_not(bench, SETTINGS, lambda hashed: pipeline(path, hashed),
                                              lambda *setting: theirs(path, *setting)))


if __name__ == "__main__":
    main()
