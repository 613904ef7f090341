#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every peer_*.py of this folder, and for a second each the comparisons of speed in ../bench (NAME_PEER.py), of
which only counts that they run. Ends with "N passed, N failed, N skipped".

    run.py BUILD

Run it with the Python of an environment that has the peers (`./quickstart peers` makes one).
"""
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../bench")]
import summary  # noqa: E402
import table  # noqa: E402

SKIPPED = 77
DRAW_S = "8"  # time of a script for each random test; more if it runs alone
# Without oneDNN TensorFlow gives the same results on every CPU. With it some CPUs compute products of float16, and
# softmax of infinities, differently.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


def run_one(path, *arguments):
    """[passed, failed, skipped] of one script; prints its output."""
    name = os.path.basename(path)
    print(f"\n==== {name} ====")
    result = subprocess.run([sys.executable, path, *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", env=dict(os.environ, **ENVIRONMENT))
    print(result.stdout.rstrip("\n"))
    outcome = {0: "OK", SKIPPED: "SKIP"}.get(result.returncode, "FAIL")
    return summary.count({"name": name, "result": outcome, "stdout": result.stdout})


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    total = [0, 0, 0]
    for path in sorted(glob.glob(os.path.join(HERE, "peer_*.py"))):
        draws = "BUILD [SECONDS]" in table.docstring(path)
        total = [a + b for a, b in zip(total, run_one(path, sys.argv[1], *[DRAW_S] * draws))]
    for path in sorted(glob.glob(os.path.join(HERE, "../bench/*_*.py"))):
        arguments = table.script_arguments(path, sys.argv[1], 1)
        found = run_one(path, *arguments) if arguments is not None else [0, 0, 1]
        total = [a + b for a, b in zip(total, found)]
    print()
    return summary.tell(total)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main())
