#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark some times and writes their figures as a table: the median of each, and
the least and the most.

    table.py BUILD [--runs N] [--seconds S] [--only NAME …] > tests/bench/README.md

Run it on a machine that does nothing else. A benchmark is a program bench_NAME in
BUILD/tests/bench; what it measures is the text of its --help, its figures are the numbers in the
JSON object that --json prints as the last line.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys

TIMEOUT_S = 900


def programs(build, only):
    folder = os.path.join(build, "tests", "bench")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith("bench_") and os.path.isfile(path) and os.access(path, os.X_OK) \
                and (not only or name[len("bench_"):] in only):
            yield name, path


def about(path):
    text = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S)
    lines = (text.stdout + text.stderr).splitlines()
    return " ".join(line.strip() for line in lines if not line.startswith("usage:"))


def figures(path, seconds):
    """The numbers of one run, {key: value}; those in lists of points are left out."""
    command = [path, "--json"] + (["--seconds", str(seconds)] if seconds else [])
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    found = json.loads(run.stdout.splitlines()[-1])
    return {key: value for key, value in found.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)}


def shown(value):
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"


def row(key, values):
    middle = statistics.median(values)
    spread = "" if min(values) == max(values) else f"{shown(min(values))} to {shown(max(values))}"
    return f"| `{key}` | {shown(middle)} | {spread} |"


def machine():
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    print("# Measured\n")
    print(f"{datetime.date.today()}, {machine()}. The median of {options.runs} runs, and the least "
          "and the most.\n\n"
          "Made by `tests/bench/table.py build > tests/bench/README.md` on a machine that does "
          "nothing else. A ratio is taken\nwithin one run; `_ns` are latencies, `_per_s` rates. The "
          "[README](../../README.md) says what they are held against.")
    for name, path in programs(options.build, options.only):
        print(f"{name} …", file=sys.stderr)
        runs = [figures(path, options.seconds) for _ in range(options.runs)]
        print(f"\n## {name}\n\n{about(path)}\n\n| figure | median | spread |\n|---|---|---|")
        for key in runs[0]:
            print(row(key, [run[key] for run in runs if key in run]))


if __name__ == "__main__":
    main()
