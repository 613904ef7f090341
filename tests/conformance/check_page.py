#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each row of docs/from-deeprec-and-tfdata.md and docs/exactly-once.md names a test, or a benchmark and a key that it
prints. Each of them is a test of meson's, too: the suites run it.

    check_page.py ROOT BUILD

The last cell of a row is `PROGRAM TEST`, `PROGRAM` or `BENCHMARK KEY`; programs have meson's names.
"""
import json
import os
import re
import sys

ROW = re.compile(r"^\| (?!-).* \| (?P<shown>[^|]*) \|$")
SHOWN = re.compile(r"`([a-z_0-9]+)(?: (\w+))?`")
PAGES = {"docs/from-deeprec-and-tfdata.md": 100, "docs/exactly-once.md": 30}     # with the least number of rows
HEAD = "shown by"


def rows(path):
    """(line, program, test or None) of each row."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            row = ROW.match(line)
            if row is None or row["shown"] == HEAD:
                continue
            shown = SHOWN.fullmatch(row["shown"])
            assert shown, f"{path}:{number}: the last cell names no test: {row['shown']}"
            yield number, shown.group(1), shown.group(2)


def programs(build):
    """{name: the bytes of its script, else of its executable}."""
    with open(os.path.join(build, "meson-info/intro-tests.json"), encoding="utf-8") as file:
        tests = json.load(file)
    found = {}
    for test in tests:
        command = test["cmd"]
        path = next((word for word in command if word.endswith(".py")), command[0])
        with open(path, "rb") as file:
            found[test["name"]] = file.read()
    return found


def has(program, name, test):
    """A script defines its test by name; an executable holds the names of its tests, and of the keys that it prints, as strings."""
    word = re.escape(test.encode())
    if name.startswith("bench_"):
        return re.search(rb"\b" + word + rb"\b", program) is not None
    return re.search(rb"def " + word + rb"\(|" + word + rb"\0", program) is not None


def main(root, build):
    known = programs(build)
    n_good = n_bad = n_left_out = 0
    for page, least in PAGES.items():
        found = list(rows(os.path.join(root, page)))
        assert len(found) >= least, f"{page}: {len(found)} rows: not found?"
        for line, name, test in found:
            if name not in known and name.startswith("python_") and "python" in known:
                n_left_out += 1     # a build without Python
            elif name not in known or test is not None and not has(known[name], name, test):
                n_bad += 1
                print(f"FAIL {page}:{line}: there is no test {name} {test or ''}")
            else:
                n_good += 1
    print(f"{n_good} passed, {n_bad} failed, {n_left_out} skipped")
    return 1 if n_bad else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
