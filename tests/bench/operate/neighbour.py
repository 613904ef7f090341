#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a user at full quota costs another one: batches of ann, alone and beside bob.

    neighbour.py SOURCE BUILD [--rounds N] [--seconds S]

bob has all of its runners busy. A trainer of ann takes a batch, then computes nothing until its step of fixed length
ends: ann needs less than half of a core. Each round measures ann alone and beside bob, with weights and without, in
turns. Prints the medians of the ratios, as JSON. Needs root, to become the users.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SOURCE = sys.argv[1]
sys.path.insert(0, os.path.join(SOURCE, "tests/system"))
import check_sharing as sharing  # noqa: E402  pylint: disable=wrong-import-position
from daemon import write  # noqa: E402  pylint: disable=wrong-import-position

RUNNERS = 8
STEP_S = 0.02
PIPELINE = """name: %s
dataset:
- range: {stop: 1000000000}
- batch: {batch_size: %d}
graph:
- {name: wide, op: cast, input: [value], dtype: float32}
%s
staged: {features: {x: n%d}, capacity: 4, num_threads: %d, num_clients: 1}
"""


def apply(daemon, uid, name, rows, depth, threads):
    nodes = "\n".join(f"- {{name: n{i + 1}, op: sigmoid, input: [{f'n{i}' if i else 'wide'}]}}" for i in range(depth))
    path = os.path.join(daemon.folder, name)
    write(path, PIPELINE % (name, rows, nodes, depth, threads))
    sharing.must(daemon, uid, "apply", path)


class Trainer:
    def __init__(self, daemon, build, name):
        self.process = subprocess.Popen([os.path.join(build, "tests/system/taking_trainer"), name, "t"], env=daemon.env(),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.process.stdout.readline()

    def give(self, n):
        self.process.stdin.write(f"{n}\n")

    def steps(self, seconds):
        """Returns the batches of that time."""
        end, n = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            began = time.monotonic()
            self.give(1)
            self.process.stdout.readline()
            n += 1
            time.sleep(max(0, STEP_S - (time.monotonic() - began)))
        return n

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def measure(build, weight, rounds, seconds):
    ann = {"user": str(sharing.ANN), **weight}
    bob = {"user": str(sharing.BOB), "runners": RUNNERS, "memory": "256MiB", **weight}
    daemon = sharing.start(build, quotas=[ann, bob], memory_budget="1GiB")
    ratios, needs = [], []
    try:
        apply(daemon, sharing.ANN, "a", 65536, 40, 1)
        apply(daemon, sharing.BOB, "b", 65536, 40, RUNNERS)
        trainer = Trainer(daemon, build, "a")
        trainer.steps(2)
        for _ in range(rounds):
            alone = trainer.steps(seconds)
            other = Trainer(daemon, build, "b")
            other.give(1000000000)
            trainer.steps(3)
            ratios.append(trainer.steps(seconds) / alone)
            needs.append(alone / seconds * STEP_S)
            other.close()
            trainer.steps(1)
        trainer.close()
    finally:
        daemon.close()
    assert min(needs) > 0.8, f"ann alone makes {min(needs)} of its steps in time: the machine is too busy"
    return ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root, to become two users")
        sys.exit(77)
    build = os.path.abspath(options.build)
    both = {key: measure(build, weight, options.rounds, options.seconds)
            for key, weight in (("with_weights", {"weight": 1}), ("without_weights", {}))}
    figures = {key: round(statistics.median(ratios), 3) for key, ratios in both.items()}
    print(json.dumps({**figures, "all": {key: [round(r, 3) for r in ratios] for key, ratios in both.items()}}))


main()
