#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each row of docs/from-deeprec-and-tfdata.md and docs/exactly-once.md names a test that passes, or a benchmark that
prints the named key.

    check_page.py ROOT BUILD [PART OF A PROGRAM'S NAME]

The last cell of a row is `PROGRAM TEST`, `PROGRAM` or `BENCHMARK KEY`; programs have meson's names. Each program runs once,
with all of its tests that rows name.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

ROW = re.compile(r"^\| (?!-).* \| (?P<shown>[^|]*) \|$")
SHOWN = re.compile(r"`([a-z_0-9]+)(?: (\w+))?`")
PAGES = {"docs/from-deeprec-and-tfdata.md": 100, "docs/exactly-once.md": 30}     # with the least number of rows
HEAD = "shown by"
LINE = re.compile(r"^(ok|skip|FAIL) +(\w+)$", re.M)                     # of tests/check.c and of scripts
UNITTEST = re.compile(r"^(test_\w+) \(", re.M)
SLOW = int(os.environ.get("STG_TEST_SLOW", "1"))


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
    """{name: its test as meson names it}."""
    with open(os.path.join(build, "meson-info/intro-tests.json"), encoding="utf-8") as file:
        return {test["name"]: test for test in json.load(file)}


def run(program, arguments):
    """The exit status and the output."""
    result = subprocess.run(program["cmd"] + arguments, env={**os.environ, **program["env"]}, cwd=program["workdir"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=program["timeout"] * SLOW)
    return result.returncode, result.stdout


def has_key(value, key):
    if isinstance(value, dict):
        return key in value or any(has_key(part, key) for part in value.values())
    return isinstance(value, list) and any(has_key(part, key) for part in value)


def judge_bench(output, keys):
    printed = json.loads(output.rstrip("\n").rpartition("\n")[2])
    return {key: "ok" if has_key(printed, key) else "FAIL" for key in keys}


def judge_tests(status, output, tests):
    """{test: ok, skip or FAIL}; a program without named tests is one."""
    if None in tests:
        return {None: "ok" if status == 0 else "skip" if status == 77 else "FAIL"}
    found = {name: result for result, name in LINE.findall(output)}
    for test in UNITTEST.findall(output):
        found[test] = "ok" if status == 0 else "FAIL"
    for test in re.findall(r"^(test_\w+) \(.*?\.\.\. skipped", output, re.M | re.S):
        found[test] = "skip"
    if status == 77 and not found:
        return dict.fromkeys(tests, "skip")
    return {test: found.get(test, "FAIL") for test in tests}


def try_program(name, program, tests):
    """{test: ok, skip or FAIL}, and the output."""
    is_bench = name.startswith("bench_")
    status, output = run(program, ["--seconds", "0.1"] if is_bench else [test for test in tests if test is not None])
    if is_bench and status == 0:
        return judge_bench(output, tests), output
    return judge_tests(status, output, tests), output


def main(root, build, part=""):
    named, known = {}, programs(build)
    places = {}
    for page, least in PAGES.items():
        found = list(rows(os.path.join(root, page)))
        assert len(found) >= least, f"{page}: {len(found)} rows: not found?"
        for line, name, test in found:
            if part in name:
                named.setdefault(name, {})[test] = None
                places.setdefault((name, test), f"{page}:{line}")
    counts = {"ok": 0, "skip": 0, "FAIL": 0}

    def tell(result, name, test, output=""):
        counts[result] += 1
        print(f"{result:4} {name}{f' {test}' if test else ''} ({places[name, test]})", flush=True)
        if result == "FAIL":
            print(output, flush=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tried = {}
        for name, tests in sorted(named.items(), key=lambda entry: not entry[0].startswith("bench_")):     # the longest first
            if name in known:
                tried[pool.submit(try_program, name, known[name], list(tests))] = name
                continue
            for test in tests:      # a build without Python has no such programs
                is_left_out = name.startswith("python_") and "python" in known
                tell("skip" if is_left_out else "FAIL", name, test, f"meson has no test {name}")
        for future in concurrent.futures.as_completed(tried):
            results, output = future.result()
            for test, result in results.items():
                tell(result, tried[future], test, output)
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
