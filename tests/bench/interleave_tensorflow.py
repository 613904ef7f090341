#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of 16 files in batches of 4096 to a trainer, interleaved 1, 4 and 16 files at a time, in runs of one line:
stagerd compared with tf.data's interleave.

    interleave_tensorflow.py BUILD [SECONDS]    with a Python that has TensorFlow

tf.data runs with its fastest num_parallel_calls, found by trials.
"""
from peer import N_CORES, Bench, Iteration, compared, fastest, report, tensorflow, turns

tf = tensorflow()

N_FILES, FILE_ROWS, BATCH_ROWS = 16, 8192, 4096
CYCLES = (1, 4, 16)


def pipeline(paths, cycle_length):
    return {"dataset": [{"files": {"pattern": paths, "shuffle": False}},
                        {"interleave": {"cycle_length": cycle_length, "block_length": 1, "reader": {"text_line": {}}}},
                        {"repeat": {}}, {"batch": {"batch_size": BATCH_ROWS}}],
            "staged": {"capacity": 4, "num_threads": N_CORES, "max_batch_bytes": "4MiB"}}


def theirs(paths, cycle_length, n_calls):
    dataset = tf.data.Dataset.from_tensor_slices(paths)
    dataset = dataset.interleave(tf.data.TextLineDataset, cycle_length, 1, n_calls).repeat().batch(BATCH_ROWS)
    return Iteration(dataset.prefetch(tf.data.AUTOTUNE), BATCH_ROWS)


def main():
    figures = {}
    with Bench(__doc__, 12.0) as bench:
        paths = [bench.rows("csv", FILE_ROWS, f"{i:02}.csv") for i in range(N_FILES)]
        for cycle in CYCLES:
            settings = (None, tf.data.AUTOTUNE, min(N_CORES, cycle))
            _, iteration = fastest(settings, lambda n_calls: theirs(paths, cycle, n_calls), bench.seconds / 30)
            definition = pipeline(paths, cycle)
            best = turns(lambda seconds: bench.drain(definition, seconds), iteration.measure, bench.seconds / 6)
            figures.update(compared(f"cycle_{cycle}_", *best))
    report("interleave_tensorflow", figures)


if __name__ == "__main__":
    main()
