#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison of loaders (tests/bench/peers/run) works: every case has rows of stager, and of PyTorch's DataLoader
if it is installed, with equal results. The script writes its JSON, table and plot.

    peer_loaders.py BUILD
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = os.path.join(HERE, "../bench/peers/run")
CASES = ["ready", "transport_256k", "transport_4m", "csv", "tfrecord", "jpeg", "share", "first", "border"]


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def rows(found, contestant):
    """{case: its rows}, after a check that none failed."""
    got = {case["name"]: [row for row in case["rows"] if row["contestant"] == contestant] for case in found["cases"]}
    failed = [(name, row["failure"]) for name, of_case in got.items() for row in of_case if "failure" in row]
    assert not failed, failed
    missing = [name for name in CASES if not got.get(name)]
    assert not missing, f"no row of {contestant} in {missing}"
    return got


def every_case_of_stager_gives_rows(found, folder):
    rows(found, "stager")


def every_case_of_dataloader_gives_rows(found, folder):
    if importlib.util.find_spec("torch"):
        rows(found, "PyTorch DataLoader")
    else:
        assert [c for c in found["contestants"] if c["module"] == "contestants.torch_loader"][0]["missing"]


def both_give_the_same(found, folder):
    hashes = importlib.util.find_spec("farmhash") is not None
    for case in found["cases"]:
        for row in case["rows"]:
            if hashes or case["name"] not in ("csv", "tfrecord", "border"):
                assert row.get("same", True), (case["name"], row["contestant"], row["digest"])


def a_table_and_a_plot_are_made(found, folder):
    text = read(folder, "README.md")
    for case in found["cases"]:
        assert f"## {case['about']}\n" in text, case["about"]
    assert xml.fromstring(read(folder, "results.svg")).tag == "{http://www.w3.org/2000/svg}svg"


TESTS = [every_case_of_stager_gives_rows, every_case_of_dataloader_gives_rows, both_give_the_same, a_table_and_a_plot_are_made]


def main():
    n_failed = 0
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([sys.executable, RUN, "--build", sys.argv[1], "--python", sys.executable, "--smoke", "--out", folder],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if run.returncode != 0:
            print(run.stdout)
            print(f"FAIL run --smoke ends with {run.returncode}\n0 passed, 1 failed, 0 skipped")
            return 1
        found = json.loads(read(folder, "results.json"))
        for test in TESTS:
            try:
                test(found, folder)
                print(f"ok   {test.__name__}")
            except AssertionError as error:
                print(f"FAIL {test.__name__}: {error}")
                n_failed += 1
    print(f"{len(TESTS) - n_failed} passed, {n_failed} failed, 0 skipped")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
