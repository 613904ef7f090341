#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `meson test` and ends with the one line "N passed, N failed, N skipped".

    summary.py BUILD [ARGUMENT OF meson test]...
    summary.py --again BUILD
    summary.py --add FILE [FILE]...

A C test executable counts its own cases and prints such a line last: its cases are counted. Any
other test counts as one. The output of what failed is shown. Exit status 1 when anything failed,
or when no test ran. --again, as root, runs the tests that the last run skipped because they need it.
--add sums the last lines of logs that this script, or another that ends alike, wrote. Environment:
STG_TEST_SLOW multiplies the limits of time of meson and of the tests.
"""
import json
import os
import re
import signal
import subprocess
import sys

LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
GOOD = ("OK", "EXPECTEDFAIL")
NEEDS_ROOT = re.compile(r"skipped:? .*\broot\b")
SKIPPED = re.compile(r"^(?:skip +(\w+)$|(test_\w+) \([^\n]*\)(?:\n[^\n(]*)? \.\.\. skipped )", re.M)


def last_count(text):
    """The last line of that shape in a text, as [passed, failed, skipped], or None."""
    for line in reversed(text.split("\n")):
        match = LINE.match(line.strip())
        if match:
            return [int(n) for n in match.groups()]
    return None


def count(entry):
    """[passed, failed, skipped] of one entry of meson's testlog.json."""
    own = last_count(entry.get("stdout") or "")
    if own is not None:
        # A test that says "0 failed" and then dies (a sanitizer at exit, say) has failed.
        if entry["result"] not in GOOD + ("SKIP",) and own[1] == 0:
            own[1] = 1
        return own
    if entry["result"] in GOOD:
        return [1, 0, 0]
    return [0, 0, 1] if entry["result"] == "SKIP" else [0, 1, 0]


def show_failed(entry):
    print(f"\n==== {entry['name']}: {entry['result']} ====")
    for stream in ("stdout", "stderr"):
        text = (entry.get(stream) or "").rstrip("\n")
        if text:
            print(text)


def show_skipped(entry):
    reasons = re.findall(r"skipped: (.*)", (entry.get("stdout") or "") +
                         (entry.get("stderr") or ""))
    for reason in dict.fromkeys(reasons):
        print(f"  skipped in {entry['name']}: {reason}")


def run_meson(build, arguments):
    """The entries of one run of `meson test`; [] if it did not get that far."""
    log = os.path.join(build, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.remove(log)
    # A command in the background of a script ignores SIGINT, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Many tests wait more than they compute.
    os.environ.setdefault("MESON_TESTTHREADS", str((os.cpu_count() or 1) + 1))
    slow = ["--timeout-multiplier", os.environ.get("STG_TEST_SLOW") or "1"]
    status = subprocess.run(["meson", "test", "-C", build, *slow, *arguments]).returncode
    if not os.path.exists(log):
        return [], status
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()], status


def skipped_for_root(build):
    """{name, as meson takes it: the tests to run}, of what the last run skipped because it needs root; [] is all."""
    with open(os.path.join(build, "meson-logs", "testlog.json"), encoding="utf-8") as file:
        entries = [json.loads(line) for line in file if line.strip()]
    found = {}
    for entry in entries:
        text = (entry.get("stdout") or "") + (entry.get("stderr") or "")
        if count(entry)[2] > 0 and NEEDS_ROOT.search(text):
            found[entry["name"].split(" / ")[-1]] = [c or python for c, python in SKIPPED.findall(text)]
    return found


def run_again(build):
    """The entries of those; each program runs by itself, as the names of tests belong to one."""
    entries, status = [], 0
    for name, tests in skipped_for_root(build).items():
        chosen = [f"--test-args={' '.join(tests)}"] if tests else []
        got, code = run_meson(build, ["--no-rebuild", name, *chosen])
        entries += got
        status = status or code
    return entries, status


def tell(total):
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] > 0 or sum(total) == 0 else 0


def add_logs(names):
    total = [0, 0, 0]
    for name in names:
        with open(name, encoding="utf-8", errors="replace") as file:
            got = last_count(file.read())
        if got is None:
            print(f"{name}: does not end with a summary line")
            got = [0, 1, 0]
        total = [a + b for a, b in zip(total, got)]
    return tell(total)


def main(argv):
    if len(argv) < 2 or argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    if argv[1] == "--add":
        return add_logs(argv[2:])
    if argv[1] == "--again":
        entries, status = run_again(argv[2])
    else:
        entries, status = run_meson(argv[1], argv[2:])
    total = [0, 0, 0]
    for entry in entries:
        got = count(entry)
        total = [a + b for a, b in zip(total, got)]
        if got[1] > 0:
            show_failed(entry)
        if got[2] > 0:
            show_skipped(entry)
    if status != 0 and total[1] == 0:
        print(f"meson test ended with {status}")
        total[1] += 1
    return tell(total)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main(sys.argv))
