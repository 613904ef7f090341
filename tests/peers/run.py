#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every peer_*.py of this folder, and for a second each the comparisons of speed in ../bench (NAME_PEER.py), of
which only counts that they run: as many scripts at once as there are CPUs. Ends with "N passed, N failed, N skipped".

    run.py BUILD

Run it with the Python of an environment that has the peers (`./quickstart peers` makes one).
"""
import concurrent.futures
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../bench")]
import summary  # noqa: E402
import table  # noqa: E402

SKIPPED = 77
DRAW_S = "4"  # time of a script for each random test; more if it runs alone
# Without oneDNN TensorFlow gives the same results on every CPU. With it some CPUs compute products of float16, and
# softmax of infinities, differently.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


def run_one(path, arguments):
    """Returns the output of one script, and its [passed, failed, skipped]."""
    result = subprocess.run([sys.executable, path, *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", env=dict(os.environ, **ENVIRONMENT))
    outcome = {0: "OK", SKIPPED: "SKIP"}.get(result.returncode, "FAIL")
    return result.stdout, summary.count({"name": path, "result": outcome, "stdout": result.stdout})


def scripts(build):
    """Each script with its arguments; None: it has none that fit."""
    for path in sorted(glob.glob(os.path.join(HERE, "peer_*.py"))):
        yield path, [build] + [DRAW_S] * ("BUILD [SECONDS]" in table.docstring(path))
    for path in sorted(glob.glob(os.path.join(HERE, "../bench/*_*.py"))):
        yield path, table.script_arguments(path, build, 1)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    total = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [(path, pool.submit(run_one, path, arguments) if arguments is not None else None)
                for path, arguments in scripts(sys.argv[1])]
        for path, run in runs:
            output, found = run.result() if run is not None else ("", [0, 0, 1])
            print(f"\n==== {os.path.basename(path)} ====\n{output}".rstrip("\n"))
            total = [a + b for a, b in zip(total, found)]
    print()
    return summary.tell(total)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main())
