#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program of the first design document (examples/seed_staged.c) prints what a real
TensorFlow computes for the same lines; and so does the golden file that other tests compare with.

    peer_seed_staged.py BUILD
    peer_seed_staged.py --write        writes seed_staged.golden anew
"""
import os
import subprocess
import sys

import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))
sys.path.insert(0, os.path.join(HERE, "../../examples"))
from daemon import Daemon  # noqa: E402
from make_lines import lines  # noqa: E402

GOLDEN = os.path.join(HERE, "seed_staged.golden")
EXAMPLE = os.path.join(HERE, "../../examples/seed_staged.yaml.in")
N_STEPS = 5


def as_text(array):
    values = array.tolist()
    decode = lambda v: v.decode() if isinstance(v, bytes) else v  # noqa: E731
    return repr([[decode(v) for v in row] if isinstance(row, list) else decode(row)
                 for row in values])


def by_tensorflow():
    """The document's code, line by line; tf.staged and the queues only change when it runs."""
    printed = []
    with tf.Graph().as_default():
        v = tf.compat.v1.placeholder(tf.string, [2])
        var = tf.compat.v1.get_variable("var", shape=[100, 3],
                                        initializer=tf.compat.v1.ones_initializer())
        v0, v1 = tf.io.decode_csv(v, record_defaults=[[""], [""]], field_delim=",")
        xx = [v0, v1]
        bucket = tf.compat.v1.string_to_hash_bucket(xx[0], num_buckets=10)
        xx[0] = tf.nn.embedding_lookup(var, bucket)
        xx[1] = tf.concat([xx[1], ["xxx"]], axis=0)
        target = tf.concat([tf.as_string(xx[0]), [xx[1], xx[1]]], 0)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            text = lines(2 * N_STEPS)
            for i in range(N_STEPS):
                values = session.run([bucket, target], {v: text[2 * i:2 * i + 2]})
                printed += [as_text(value) for value in values]
    return printed


def by_stager(build):
    """The output of the example: the targets."""
    with Daemon(build) as daemon:
        data = os.path.join(daemon.folder, "1.txt")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines(2 * N_STEPS))
        with open(EXAMPLE, encoding="utf-8") as file:
            text = file.read().replace("@DATA@", data)
        pipeline = os.path.join(daemon.folder, "seed_staged.yaml")
        with open(pipeline, "w", encoding="utf-8") as file:
            file.write(text)
        daemon.ctl("apply", pipeline, "--replace")
        result = daemon.run("examples/seed_staged")
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout.decode().splitlines()


def main():
    want = by_tensorflow()
    if sys.argv[1] == "--write":
        with open(GOLDEN, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in want)
        return 0
    with open(GOLDEN, encoding="utf-8") as file:
        golden = file.read().splitlines()
    outcomes = [("the golden file is TensorFlow's", golden == want)]
    got = by_stager(sys.argv[1])
    for i in range(N_STEPS):
        outcomes.append((f"step {i}", len(got) == N_STEPS and got[i] == want[2 * i + 1]))
    for name, good in outcomes:
        print(("ok   " if good else "FAIL ") + name)
    n_failed = sum(not good for _, good in outcomes)
    print(f"{len(outcomes) - n_failed} passed, {n_failed} failed, 0 skipped")
    return 1 if n_failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main())
