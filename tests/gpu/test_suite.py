#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run with rows that hang and crash, and with a faulty MPS daemon; on any machine.

    test_suite.py           ends with "N passed, N failed, N skipped"
"""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import re
import stat
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import mps  # noqa: E402
import row  # noqa: E402

# Prints its state, and that it runs. "quit" ends it; it records the requests that it receives.
CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
    echo $$ >"$CUDA_MPS_PIPE_DIRECTORY/pid"
    %s
fi
read command
[ -e "$CUDA_MPS_PIPE_DIRECTORY/ready" ] || exit 1
echo "$command" >>"$CUDA_MPS_PIPE_DIRECTORY/asked"
[ "$command" != quit ] || rm "$CUDA_MPS_PIPE_DIRECTORY/ready"
"""
OBEYS = 'touch "$CUDA_MPS_PIPE_DIRECTORY/ready"; while [ -e "$CUDA_MPS_PIPE_DIRECTORY/ready" ]; do sleep 0.05; done; exit 0'
STAYS = 'touch "$CUDA_MPS_PIPE_DIRECTORY/ready"; sleep 1000 & echo $! >"$CUDA_MPS_PIPE_DIRECTORY/server"; wait'
ENDS = 'echo "no GPU takes part"; exit 3'
IS_MUTE = "exec sleep 1000"
PATIENCE_S = (0.5, 2, 8, 30)


def is_alive(pid):
    """Not gone, and not a zombie that another process must reap."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def check_gone(*pids):
    end = time.monotonic() + 10
    while any(map(is_alive, pids)):
        assert time.monotonic() < end, f"one of {pids} lives"
        time.sleep(0.01)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def pids_in(folder, *names):
    """The process ids in files that scripts write, or [] until all are written."""
    try:
        texts = [read(os.path.join(folder, name)) for name in names]
    except FileNotFoundError:
        return []
    return [int(text) for text in texts] if all(text.endswith("\n") for text in texts) else []


class Folder(tempfile.TemporaryDirectory):
    def hang(self, script, *names):
        """Runs a row that hangs; returns the result and the process ids in those files. A slow machine needs a longer
        deadline to write them."""
        for seconds in PATIENCE_S:
            found = self.row(script, seconds)
            pids = pids_in(self.name, *names)
            if pids:
                return found, pids
        raise AssertionError(f"{names}: not written in {seconds} s")

    def row(self, script, seconds=30):
        return row.run("x", ["sh", "-c", script], dict(os.environ), self.name, os.path.join(self.name, "log"), seconds)

    def control(self, what):
        """An nvidia-cuda-mps-control with that behaviour, first on PATH."""
        path = os.path.join(self.name, mps.PROGRAM)
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONTROL % what)
        os.chmod(path, stat.S_IRWXU)
        os.environ["PATH"] = self.name + os.pathsep + os.environ["PATH"]


# ---- rows -----------------------------------------------------------------------------------

def a_row_that_hangs_is_ended_with_what_it_began(folder):
    found, pids = folder.hang("echo before; sleep 1000 & echo $! >child; wait", "child")
    assert found["state"] == "failed" and "deadline" in found["why"] and "before" in found["text"], found
    check_gone(*pids)


def what_a_row_has_begun_in_a_group_of_its_own_is_ended_too(folder):
    script = "bash -c 'set -m; sleep 1000 & echo $! >child; echo $$ >self; wait'"
    check_gone(*folder.hang(script, "child", "self")[1])


def a_row_that_crashes_says_by_which_signal(folder):
    found = folder.row("echo before; kill -SEGV $$")
    assert (found["state"], found["why"]) == ("failed", "ended by signal SIGSEGV") and "before" in found["text"], found


def a_row_that_is_skipped_says_why(folder):
    found = folder.row("echo 'skipped: no card'; echo '0 passed, 0 failed, 3 skipped'; exit 77")
    assert (found["state"], found["text"], found["skipped"]) == ("skipped", "skipped: no card", 3), found


def a_row_without_its_program_is_a_failed_row(folder):
    found = row.run("x", ["/no/such/program"], {}, folder.name, os.path.join(folder.name, "log"), 5)
    assert found["state"] == "failed" and "/no/such/program" in found["text"], found


def the_log_has_what_each_said(folder):
    folder.row("echo first")
    folder.row("echo second; exit 1")
    text = read(os.path.join(folder.name, "log"))
    assert text.index("first\n") < text.index("second\n"), text


def program():
    loader = importlib.machinery.SourceFileLoader("gpu_run", os.path.join(HERE, "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_run", loader))
    loader.exec_module(module)
    return module


def what_a_row_throws_is_its_own_and_all_is_written_after_each(folder):
    run, seen = program(), []

    def look(suite, name):
        seen.append([one["state"] for one in json.loads(read(os.path.join(folder.name, "gpu.json")))["rows"]])
        return {"name": name, "state": "passed"}

    def throw(suite, name):
        raise ValueError("of a row")
    run.ROWS = {"first": look, "second": throw, "third": look, "fourth": look}
    run.say = lambda text: None
    args = argparse.Namespace(only=["first", "second", "third", "fourth"], without=["fourth"], rehearse=True)
    found = {"date": "today", "rehearsal": True, "card": None, "rows": []}
    run.run_rows(argparse.Namespace(args=args), found, folder.name)
    assert seen == [[], ["passed", "failed"]], seen
    assert found["rows"][1]["text"] == "ValueError: of a row" and len(found["rows"]) == 3, found
    assert "A rehearsal without a GPU" in read(os.path.join(folder.name, "gpu.md"))


def figures_are_reported_of_a_card_alone(folder):
    run = program()
    trainers = [{"n": n, "own_bytes_per_s": 2e9 / n, "shared_bytes_per_s": 2e9, "own_mib": 500 * n, "shared_mib": -1} for n in (1, 2)]
    rows = [{"name": "figures", "state": "passed", "figures": {"bytes_per_s": 5e9, "kernels_bytes_per_s": {"cast": 7e11}}},
            {"name": "figures of large batches", "state": "passed", "figures": {
                "batch_bytes": 64 << 20, "bytes_per_s": 54e9, "locked_bytes_per_s": 56e9, "ratio": 0.964, "batches_ms": 1.24,
                "work_ms": 1.25, "both_ms": 1.26, "overlap_ratio": 0.992}},
            {"name": "figures of a shared copy", "state": "passed", "figures": {"trainers": trainers}},
            {"name": "figures of a shared copy under MPS", "state": "passed", "figures": {"trainers": trainers[:1]}}]
    card = {"name": "card", "runtime": 13000}
    text = run.table({"date": "today", "rehearsal": False, "card": card, "driver": "1", "rows": rows})
    for line in ("| batches of 4 MiB onto the device | 5.0 GB/s |", "| kernel cast | 700 GB/s |", "| 2 trainers | 1.0, 1000 MiB | 2.0, ? |",
                 "| batches of 4 MiB under MPS,", "| copies from pageable memory | not run |",
                 "| batches of 64 MiB that are ready | |", "| over such copies | 0.964 |",
                 "| a step: batches, work, both | 1.24, 1.25, 1.26 ms |", "| the longer over both | 0.992 |"):
        assert line in text, text
    assert "5.0" not in run.table({"date": "today", "rehearsal": True, "card": None, "driver": "", "rows": rows})


def rows_without_time_left_are_reported(folder):
    run = program()
    args = argparse.Namespace(build=folder.name, rehearse=False)
    suite = run.Suite(args, {}, os.path.join(folder.name, "log"), row.Clock(0))
    assert suite.kernels("kernels")["state"] == "not run"


def kernels_are_checked_where_the_tool_knows_the_device(folder):
    run = program()
    run.toolkit.cudaroot = lambda: folder.name
    args = argparse.Namespace(build=folder.name, rehearse=False)
    suite = run.Suite(args, {"PATH": folder.name}, os.path.join(folder.name, "log"), row.Clock(60))
    assert suite.checked("x") == {"name": "x", "state": "skipped", "text": "no compute-sanitizer"}
    for code, said, state in ((0, "ERROR SUMMARY: 0 errors", "passed"), (1, "ERROR SUMMARY: 2 errors", "failed"),
                              (1, "Error: Device not supported", "skipped")):
        path = os.path.join(folder.name, run.SANITIZER)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho '========= {said}'\nexit {code}\n")
        os.chmod(path, stat.S_IRWXU)
        found = suite.checked("x")
        assert found["state"] == state, found


def what_rows_run_is_what_is_built(folder):
    import toolkit
    made = [f"tests/gpu/{name}" for name in re.findall(r"'((?:test|bench)_gpu\w*)'", read(os.path.join(HERE, "meson.build")))]
    named = re.findall(r'at\("((?:tests|client/stagerctl|daemon)/[^"{]+/[^"{]+)"\)', read(os.path.join(HERE, "run")))
    assert len(made) > 1 and len(named) > 3
    missing = {name for name in made + named if not any(name in target for target in toolkit.TARGETS)}
    assert not missing, missing


# ---- MPS ------------------------------------------------------------------------------------

def a_control_daemon_is_started_and_stops_on_request(folder):
    folder.control(OBEYS)
    with mps.Mps() as server:
        assert server.unavailable == "", server.unavailable
        pid = int(read(os.path.join(server.folder, "pid")))
        assert is_alive(pid) and set(server.env.values()) == {server.folder}
    assert not is_alive(pid) and not os.path.exists(server.folder)


def one_that_does_not_start_says_why(folder):
    folder.control(ENDS)
    with mps.Mps() as server:
        assert "ended with 3: no GPU takes part" in server.unavailable, server.unavailable


def one_that_does_not_answer_is_ended(folder):
    folder.control(IS_MUTE)
    for mps.START_S in PATIENCE_S:
        with mps.Mps() as server:
            assert "does not answer" in server.unavailable, server.unavailable
            pids = pids_in(server.folder, "pid")
        if pids:
            break
    assert pids and not is_alive(*pids)


def one_that_does_not_quit_is_ended_with_its_server(folder):
    folder.control(STAYS)
    mps.QUIT_S = 0.3
    with mps.Mps() as server:
        assert server.unavailable == "", server.unavailable
        while not pids_in(server.folder, "pid", "server"):
            time.sleep(0.01)
        pids = pids_in(server.folder, "pid", "server")
    check_gone(*pids)


def without_one_it_says_so(folder):
    os.environ["PATH"], mps.ELSEWHERE = folder.name, folder.name
    with mps.Mps() as server:
        assert server.unavailable == "no nvidia-cuda-mps-control"


TESTS = [a_row_that_hangs_is_ended_with_what_it_began, what_a_row_has_begun_in_a_group_of_its_own_is_ended_too,
         a_row_that_crashes_says_by_which_signal, a_row_that_is_skipped_says_why, a_row_without_its_program_is_a_failed_row,
         the_log_has_what_each_said, what_a_row_throws_is_its_own_and_all_is_written_after_each,
         rows_without_time_left_are_reported, figures_are_reported_of_a_card_alone,
         kernels_are_checked_where_the_tool_knows_the_device, what_rows_run_is_what_is_built,
         a_control_daemon_is_started_and_stops_on_request, one_that_does_not_start_says_why,
         one_that_does_not_answer_is_ended, one_that_does_not_quit_is_ended_with_its_server, without_one_it_says_so]


def main():
    n_failed, path, patience = 0, os.environ["PATH"], (mps.START_S, mps.QUIT_S)
    for test in TESTS:
        os.environ["PATH"] = path
        mps.START_S, mps.QUIT_S = patience
        folder = Folder()
        try:
            test(folder)
            print(f"ok   {test.__name__}")
        except AssertionError as error:
            n_failed += 1
            print(f"FAIL {test.__name__}: {error}")
        folder.cleanup()
    print(f"{len(TESTS) - n_failed} passed, {n_failed} failed, 0 skipped")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
