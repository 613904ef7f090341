#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A shuffle of a million lines: the time to the first batch and the growth of memory until then, stagerd compared with
tf.data.

    shuffle_tensorflow.py BUILD [SECONDS]    with a Python that has TensorFlow

Each fill is a separate process. SECONDS below 5: one fill for each side, otherwise the best of three, in turns.
"""
import json
import os
import subprocess
import sys
import time

from peer import Bench, report, tensorflow

N_READS, FILE_ROWS = 4, 262144
BUFFER_ROWS, BATCH_ROWS = 1000000, 4096


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def fill_theirs(path):
    """In a separate process: prints the figures."""
    tf = tensorflow()
    list(tf.data.Dataset.range(10).shuffle(10).batch(10))  # the cost of the first dataset of a process
    memory = resident_bytes()
    cpu, began = time.process_time(), time.perf_counter()
    iterator = iter(tf.data.TextLineDataset([path] * N_READS).shuffle(BUFFER_ROWS).batch(BATCH_ROWS))
    next(iterator)
    print(json.dumps({"first_s": time.perf_counter() - began, "first_cpu_s": time.process_time() - cpu,
                      "first_bytes": resident_bytes() - memory}))


def theirs(path):
    run = subprocess.run([sys.executable, __file__, "--fill", path], text=True, stdout=subprocess.PIPE)
    if run.returncode != 0:
        print(run.stdout, end="")
        sys.exit(run.returncode)
    return json.loads(run.stdout.splitlines()[-1])


def pipeline(path):
    return {"dataset": [{"files": {"pattern": [path] * N_READS}}, {"text_line": {}},
                        {"shuffle": {"buffer_size": BUFFER_ROWS}}, {"batch": {"batch_size": BATCH_ROWS}}],
            "staged": {"capacity": 1, "max_batch_bytes": "4MiB", "memory_budget": "1GiB"}}


def main():
    with Bench(__doc__, 10.0) as bench:
        path = bench.rows("csv", FILE_ROWS, "rows.csv")
        sides = ([], [])
        for _ in range(3 if bench.seconds >= 5 else 1):
            sides[0].append(bench.drain(pipeline(path), 0))
            sides[1].append(theirs(path))
        line_bytes = os.path.getsize(path) / FILE_ROWS
    ours, peer = ({key: min(got[key] for got in side) for key in ("first_s", "first_cpu_s", "first_bytes")}
                  for side in sides)
    for name, side in (("stagerd", ours), ("tf.data", peer)):
        print(f"{name}: {side['first_s']:.3f} s, {side['first_cpu_s']:.3f} of CPU, "
              f"{side['first_bytes'] / BUFFER_ROWS:.0f} bytes a line of {line_bytes:.0f}")
    report("shuffle_tensorflow", {
        "fill_ratio": round(peer["first_s"] / ours["first_s"], 2),
        "fill_cpu_ratio": round(peer["first_cpu_s"] / ours["first_cpu_s"], 2),
        "memory_ratio": round(peer["first_bytes"] / ours["first_bytes"], 2),
        "fill_s": round(ours["first_s"], 3), "baseline_fill_s": round(peer["first_s"], 3),
        "bytes_per_record": round(ours["first_bytes"] / BUFFER_ROWS, 1),
        "baseline_bytes_per_record": round(peer["first_bytes"] / BUFFER_ROWS, 1),
        "line_bytes": round(line_bytes, 1)})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fill"]:
        fill_theirs(sys.argv[2])
    else:
        main()
