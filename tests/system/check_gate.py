#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl at the gate: watch, token, --gate; a runtime_dir that is too long for it; and a
compromised gate that sends arbitrary frames to stagerd.

    check_gate.py BUILD FAKE_GATE NAMED_TRAINER
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from daemon import SLOW, Daemon

ROWS = "name: {}\ndataset: [{{range: {{stop: {}}}}}, {{batch: {{batch_size: 4}}}}]\n"


def pipeline(daemon, name, stop=64):
    path = os.path.join(daemon.folder, name + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(ROWS.format(name, stop))
    return path


def until(what, seconds=10):
    """Waits until what() is true."""
    end = time.monotonic() + seconds * SLOW
    while not what():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def watch_tells_what_happens(build):
    with Daemon(build) as daemon:
        program = os.path.join(build, "client/stagerctl/stagerctl")
        daemon.ctl("apply", pipeline(daemon, "old"))
        watch = subprocess.Popen([program, "watch", "--json", "--count", "3", "--seconds", str(30 * SLOW)],
                                 env=daemon.env(), stdout=subprocess.PIPE, text=True)
        first = json.loads(watch.stdout.readline())
        assert first["event"] == "watching", first
        now = json.loads(watch.stdout.readline())
        assert (now["event"], now["pipeline"]) == ("now", "old"), now
        daemon.ctl("apply", pipeline(daemon, "fresh"))
        daemon.ctl("cat", "fresh", "--limit", "1")  # a private run is not reported
        daemon.ctl("delete", "fresh")
        daemon.ctl("apply", "--replace", pipeline(daemon, "old", 99))
        lines = [json.loads(line) for line in watch.stdout]
        assert watch.wait(10 * SLOW) == 0
        got = [(line["event"], line["pipeline"], line["generation"]) for line in lines]
        assert got == [("applied", "fresh", 1), ("deleted", "fresh", 1), ("applied", "old", 2)], got
        numbers = [line["sequence"] for line in lines]
        assert numbers == list(range(numbers[0], numbers[0] + 3)), numbers
        result = daemon.run("client/stagerctl/stagerctl", "watch", "old", "--seconds", "1")
        assert result.returncode == 0 and b"watching" in result.stdout, result


def watch_reports_clients_that_may_reconnect_and_how_each_left(build, trainer):
    with Daemon(build) as daemon:
        daemon.ctl("apply", pipeline(daemon, "rows"))
        watch = subprocess.Popen([os.path.join(build, "client/stagerctl/stagerctl"), "watch", "--json",
                                  "--seconds", str(60 * SLOW)],
                                 env=daemon.env(), stdout=subprocess.PIPE, text=True)
        events = (json.loads(line) for line in watch.stdout)
        assert next(events)["event"] == "watching"
        for name, end, away in (("alice", lambda process: process.kill(), "alice (died)"),
                                ("bob", lambda process: process.stdin.close(),
                                 "bob (left), alice (died)")):
            process = subprocess.Popen([trainer, "rows", name], env=daemon.env(), text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdout.readline() == "open\n"
            end(process)
            process.wait(10 * SLOW)
            event = next(line for line in events if line["event"] == "detached")
            assert event["away"] == away, event
        watch.terminate()
        watch.wait(10 * SLOW)


def requests_go_through_the_gate(build):
    with Daemon(build) as daemon:
        token = json.loads(daemon.ctl("token", "--json"))
        assert token["seconds"] == 3600 and len(token["token"]) == 64, token
        gate = daemon.gate(os.path.join(daemon.folder, "token"))
        text = pipeline(daemon, "rows")
        daemon.ctl(*gate, "check", text)
        daemon.ctl(*gate, "apply", text, "--if-generation", "0")
        assert json.loads(daemon.ctl(*gate, "list", "--json")) == json.loads(daemon.ctl("list", "--json"))
        assert json.loads(daemon.ctl(*gate, "schema", text, "--json")) == json.loads(daemon.ctl("schema", text, "--json"))
        assert b"rows" in daemon.ctl(*gate, "status")
        for arguments, code in ((["apply", text, "--if-generation", "7"], b"ABORTED"),
                                (["--gate", "tcp://1.2.3.4:5", "list"], b"INVALID_ARGUMENT"),
                                (["--gate", "ipc:///" + "x" * 110, "list"], b"at most 107 bytes"),
                                (["--gate", "ipc:///nonexistent", "list"], b"is stagerd running"),
                                (["--token-file", "/nonexistent", "list"], b"NOT_FOUND"),
                                (["--token-file", text, "list"], b"hexadecimal digits")):
            result = daemon.run("client/stagerctl/stagerctl", *gate, *arguments)
            assert result.returncode == 1 and code in result.stderr, (arguments, result)
        result = daemon.run("client/stagerctl/stagerctl", *gate[:2], "list")
        assert result.returncode == 1 and b"STAGER_TOKEN=$(stagerctl token)" in result.stderr, result
        daemon.ctl(*gate, "delete", "rows", "--if-generation", "1")


def a_path_that_is_too_long_is_reported(build):
    """attach.sock fits into a path of 107 bytes, gate/events.sock does not."""
    daemon = Daemon(build)
    try:
        long = os.path.join(daemon.folder, "x" * (93 - len(daemon.folder)))
        os.makedirs(long)
        with open(daemon.config, encoding="utf-8") as file:
            text = file.read().replace(daemon.runtime_dir, long)
        with open(daemon.config, "w", encoding="utf-8") as file:
            file.write(text)
        daemon.runtime_dir = long
        daemon.start()
        result = daemon.run("client/stagerctl/stagerctl", "token")
        assert result.returncode == 1, result
        for text in (result.stderr.decode(), daemon.log()):
            assert "too long" in text and "gate: {enable: false}" in text, text
        daemon.ctl("list")
    finally:
        daemon.close()


def a_compromised_gate_disturbs_no_client(build, fake):
    copy = tempfile.mkdtemp(prefix="stg-fake-")
    try:
        os.makedirs(os.path.join(copy, "daemon/gate"))
        os.symlink(os.path.abspath(os.path.join(build, "client")), os.path.join(copy, "client"))
        shutil.copy2(os.path.join(build, "daemon/stagerd"), os.path.join(copy, "daemon"))
        shutil.copy2(fake, os.path.join(copy, "daemon/gate/stager-gate"))
        with Daemon(copy) as daemon:
            daemon.ctl("apply", pipeline(daemon, "rows"))

            def enough():
                assert len(daemon.cat("rows")) == 16
                return daemon.log().count("stager-gate (pid") >= 24

            until(enough, 60)
            assert daemon.wait_for_log("frame")
            assert [entry["name"] for entry in json.loads(daemon.ctl("list", "--json"))["pipelines"]] == ["rows"]
            assert daemon.stop() == 0, daemon.log()
            assert "ERROR: AddressSanitizer" not in daemon.log() and "runtime error" not in daemon.log()
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def main():
    build, fake, trainer = sys.argv[1:4]
    watch_tells_what_happens(build)
    print("ok   watch reports what happens")
    watch_reports_clients_that_may_reconnect_and_how_each_left(build, trainer)
    print("ok   watch reports clients that may reconnect, and how each left")
    requests_go_through_the_gate(build)
    print("ok   requests go through the gate")
    a_path_that_is_too_long_is_reported(build)
    print("ok   a path that is too long is reported")
    a_compromised_gate_disturbs_no_client(build, fake)
    print("ok   a compromised gate disturbs no client")
    print("5 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    sys.exit(main())
