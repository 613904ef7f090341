#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records like those of bench_example through tf.io.parse_example, on one core, compared with bench_example.

    example_tensorflow.py BUILD [SECONDS]    with a Python that has TensorFlow

Both are reported in rows per second of CPU, the best of several rounds, strings kept as strings and hashed. The
last line is one JSON object; `ratio` is stager's rate over TensorFlow's, hashed.
"""
import json
import os
import random
import subprocess
import sys
import time

from peer import tensorflow

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../peers"))
from example_wire import bytes_list, entry, example, int_list  # noqa: E402

tf = tensorflow()

BATCH_ROWS = 4096
# As in tests/bench/criteo.c: the rate of missing values, in percent.
NUMBERS = [45, 0, 17, 17, 3, 26, 5, 0, 5, 45, 5, 79, 17]
STRINGS = [0, 0, 4, 4, 0, 16, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 41, 41, 4, 80, 0, 4, 41, 41]


def record(rng):
    parts = [entry(b"label", int_list([rng.randrange(2)]))]
    parts += [entry(b"I%d" % (i + 1), int_list([rng.randrange(10**rng.randrange(1, 4))]))
              for i, missing in enumerate(NUMBERS) if rng.randrange(100) >= missing]
    parts += [entry(b"C%d" % (i + 1), bytes_list([b"%08x" % rng.randrange(2**32)]))
              for i, missing in enumerate(STRINGS) if rng.randrange(100) >= missing]
    return example(*parts)


def theirs(records, seconds, hashed):
    spec = {"label": tf.io.FixedLenFeature([], tf.int64)}
    spec.update({f"I{i + 1}": tf.io.FixedLenFeature([], tf.int64, 0) for i in range(len(NUMBERS))})
    spec.update({f"C{i + 1}": tf.io.FixedLenFeature([], tf.string, "") for i in range(len(STRINGS))})

    @tf.function
    def parse(batch):
        got = tf.io.parse_example(batch, spec)
        if hashed:
            got = {k: tf.strings.to_hash_bucket_fast(v, 1000000) if k[0] == "C" else v for k, v in got.items()}
        return got

    parse(records)
    best, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.process_time()
        for _ in range(8):
            parse(records)
        best = max(best, 8 * BATCH_ROWS / (time.process_time() - began))
    return best


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rng = random.Random(1)
    records = tf.constant([record(rng) for _ in range(BATCH_ROWS)])
    bench = [os.path.join(sys.argv[1], "tests/bench/bench_example"), "--json", "--seconds", str(seconds)]
    ours = json.loads(subprocess.run(bench, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    hashed, strings = theirs(records, seconds, True), theirs(records, seconds, False)
    print(f"hashed      {ours['rows_per_s'] / 1e6:.3f} million rows/s, TensorFlow {hashed / 1e6:.3f}")
    print(f"as strings  {ours['strings_rows_per_s'] / 1e6:.3f} million rows/s, TensorFlow {strings / 1e6:.3f}")
    print(json.dumps({"bench": "example_tensorflow", "rows_per_s": ours["rows_per_s"], "baseline_rows_per_s": round(hashed),
                      "ratio": round(ours["rows_per_s"] / hashed, 2),
                      "strings_ratio": round(ours["strings_rows_per_s"] / strings, 2)}))


if __name__ == "__main__":
    main()
