#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an operator sees: rates, tables that fit a terminal.

    check_operator.py BUILD TAKING_TRAINER [PART OF A TEST'S NAME]...
"""
import contextlib
import json
import os
import subprocess
import sys
import time

from daemon import SLOW, Daemon

CTL = "client/stagerctl/stagerctl"
LIMIT_S = 60 * SLOW


def stagerctl(daemon, *arguments, status=0, **env):
    """The standard output of stagerctl; of a failure, standard error."""
    result = subprocess.run([os.path.join(daemon.build, CTL), *arguments], env={**daemon.env(), **env}, timeout=LIMIT_S,
                            capture_output=True, check=False)
    assert result.returncode == status, (arguments, result, daemon.log())
    return (result.stderr if status else result.stdout).decode()


def reply(daemon, *arguments):
    return json.loads(stagerctl(daemon, *arguments, "--json"))


def apply(daemon, text):
    path = os.path.join(daemon.folder, "pipeline.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    stagerctl(daemon, "apply", path)


@contextlib.contextmanager
def reading_trainer(daemon, name):
    """A trainer that takes and releases batches until it is killed."""
    process = subprocess.Popen([TRAINER, name, "reader"], env=daemon.env(), stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL)
    try:
        process.stdin.write(b"1000000000\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


STEADY = ("name: steady\ndataset: [{range: {stop: 1000000}}, {repeat: {}}, {batch: {batch_size: 8}}]\n"
          "staged: {capacity: 2}\n")


def status_shows_rates_while_a_trainer_reads(daemon):
    apply(daemon, STEADY)
    assert reply(daemon, "status", "steady")["rows_per_second"] is None
    with reading_trainer(daemon, "steady"):
        end = time.monotonic() + LIMIT_S
        status = {"rows_per_second": None}
        while not status["rows_per_second"]:
            assert time.monotonic() < end, status
            status = reply(daemon, "status", "steady")
        assert status["rows_per_second"] > 0 and 0 <= status["wait_share"] <= 1, status
        assert abs(status["rows_per_second"] / status["batches_per_second"] - 8) < 1, status
        line = [line for line in stagerctl(daemon, "status").splitlines() if line.startswith("steady ")][0]
        assert line.split()[1] == "running" and " %  " in line and "1 of 1" in line, line
        assert "\n  lately " in stagerctl(daemon, "status", "steady")
    end = time.monotonic() + LIMIT_S
    while reply(daemon, "status", "steady")["rows_per_second"] is not None:
        assert time.monotonic() < end
    stagerctl(daemon, "delete", "steady")


def tables_fit_the_terminal(daemon):
    """COLUMNS stands for the width of a terminal. Without either, lines have no limit."""
    name = "a-name-of-sixty-four-letters-" + "x" * 35
    apply(daemon, f"name: {name}\ndataset: [{{range: {{stop: 4}}}}, {{batch: {{batch_size: 2}}}}]\n")
    for width in (60, 80, 100):
        for command in ("list",), ("status",), ("status", name), ("versions", name), ("explain", name):
            out = stagerctl(daemon, *command, COLUMNS=str(width))
            rows = [row for row in out.splitlines() if not row.startswith(("stagerd ", name + ":"))]
            assert rows and max(map(len, rows)) <= width, (width, command, out)
    assert name in stagerctl(daemon, "list") and name in stagerctl(daemon, "status")
    assert max(map(len, stagerctl(daemon, "list").splitlines())) > 100
    stagerctl(daemon, "delete", name)


TESTS = [status_shows_rates_while_a_trainer_reads, tables_fit_the_terminal]

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    TRAINER = sys.argv[2]
    with Daemon(sys.argv[1]) as one:
        for test in TESTS:
            if any(part in test.__name__ for part in sys.argv[3:] or [""]):
                test(one)
                print("ok  ", test.__name__, flush=True)
        assert one.stop() == 0, one.log()
