#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl trace with a real daemon and real trainers.

    check_traces.py BUILD
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "../../examples")
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(EXAMPLES, "models"))
from daemon import SLOW, Daemon  # noqa: E402
from make_clicks import rows  # noqa: E402
from trace_format import check  # noqa: E402

CTL = "client/stagerctl/stagerctl"


def apply(daemon, n_clients=2, name="dlrm", rows_a_batch=1000, **more):
    steps = "  - shuffle: {buffer_size: 512, seed: 3}\n"
    data = os.path.join(daemon.folder, "clicks.csv")
    with open(data, "w", encoding="utf-8") as file:
        file.writelines(row + "\n" for row in rows(2000))
    with open(os.path.join(EXAMPLES, "models/dlrm.yaml.in"), encoding="utf-8") as file:
        text = file.read().replace("@DATA@", data).replace("name: dlrm\n", f"name: {name}\nsmart_stage: on\n")
    text = text.replace("  - batch: {batch_size: 32}", steps + f"  - repeat: {{}}\n  - batch: {{batch_size: {rows_a_batch}}}")
    options = "".join(f"  {key}: {value}\n" for key, value in {"num_clients": n_clients, **more}.items())
    text = text.replace("  capacity: 4\n", "  capacity: 4\n" + options)
    path = os.path.join(daemon.folder, name + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    daemon.ctl("apply", "--replace", path)


class Trainers:
    """Trainers that take batches and run the graph on them until the test ends them."""

    def __init__(self, daemon, n, name="dlrm"):
        self.all = [subprocess.Popen([os.path.join(daemon.build, "examples/score"), name], env=daemon.env(),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    for _ in range(n)]
        self.drains = [subprocess.Popen(["cat"], stdin=p.stdout, stdout=subprocess.DEVNULL) for p in self.all]
        for process in self.all:
            process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.all + self.drains:
            process.kill()
            process.wait()
        for process in self.all:
            process.stderr.close()


def start(daemon, *args, **more):
    return subprocess.Popen([os.path.join(daemon.build, CTL), "trace", *args], env=daemon.env(), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def status(daemon, name="dlrm"):
    return json.loads(daemon.ctl("status", name, "--json"))


def wait_until(what, condition):
    for _ in range(2000 * SLOW):
        if condition():
            return
        try:
            subprocess.run(["sleep", "0.01"], check=True)
        except subprocess.CalledProcessError:
            pass
    raise AssertionError(f"{what} never happens")


def wait_for_batches(daemon, name="dlrm"):
    before = status(daemon, name)["acknowledged"]
    wait_until("a batch", lambda: status(daemon, name)["acknowledged"] > before + 20)


def wait_for_trace(daemon, n):
    wait_until("the trace", lambda: len(re.findall("traced for", daemon.log())) >= n)


def spans(events, category=None, name=None):
    return [e for e in events if e["ph"] in "Xi" and category in (None, e["cat"]) and name in (None, e["name"])]


# ---- contents ------------------------------------------------------------------------------

def a_trace_of_two_trainers_shows_what_they_and_the_daemon_do(daemon):
    apply(daemon)
    path = os.path.join(daemon.folder, "trace.json")
    with Trainers(daemon, 2) as trainers:
        wait_for_batches(daemon)
        reply = json.loads(daemon.ctl("trace", "dlrm", "--seconds", "1", "-o", path, "--json"))
    with open(path, encoding="utf-8") as file:
        events, about = check(file.read())
    assert reply["spans"] == about["spans"] > 0 and reply["clients"] == 2 and reply["file"] == path, reply
    assert about["pipeline"] == reply["pipeline"] == "dlrm" and reply["lost"] == about["lost"], about
    assert 1.0 <= (about["end_ns"] - about["begin_ns"]) / 1e9 < 1.5 * SLOW, about
    pids = {process.pid for process in trainers.all}
    clients = [e for e in events if e["pid"] in pids]
    assert {e["pid"] for e in clients} == pids
    ops = {e["name"] for e in spans(events, "op") if e["pid"] not in pids}
    assert {"columns (decode_csv)", "fields (stack)", "ids (add)"} <= ops, ops
    own = {e["name"] for e in spans(clients, "op")}
    assert {"embeddings (embedding_lookup)", "scores (sigmoid)"} <= own and not own & ops, own
    steps = {re.sub(r"^step (\w+) .*", r"\1", e["name"]) for e in spans(events, "step")}
    assert steps == {"files", "text_line", "shuffle", "batch"}, steps
    reads = spans(events, "read")
    assert reads and all(e["name"].endswith("clicks.csv") for e in reads), reads
    assert sum(e["args"]["bytes"] for e in reads) > 0
    for name in ("publish", "assign", "release"):
        assert spans(events, "batch", name), name
    for name in ("stager_next", "stager_run"):
        assert {e["pid"] for e in spans(clients, "client", name)} == pids, name
    assert {e["args"]["client"] for e in spans(events, "batch", "assign")} == {
        e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] in pids}
    check_batches(events, clients)


def check_batches(events, clients):
    """One thread published each taken batch once, and an arrow leads from there to the trainer that took it."""
    published = {e["args"]["batch"]: e for e in spans(events, "batch", "publish")}
    assert len(published) == len(spans(events, "batch", "publish"))
    taken = [e for e in spans(clients, "client", "stager_next") if e["args"].get("batch") in published]
    arrows = [e for e in events if e["ph"] == "f"]
    assert len(arrows) == len(taken) > 20, (len(arrows), len(taken))
    assert {e["ts"] for e in events if e["ph"] == "s"} <= {e["ts"] for e in published.values()}
    run = {e["args"]["batch"] for e in spans(clients, "client", "stager_run")}
    assert run & set(published)


def a_waiting_runner_is_visible_in_the_trace(daemon):
    """A trainer that takes nothing: the runners wait for room from before the trace until after it."""
    apply(daemon, n_clients=1, name="stuck", num_threads=2)
    with Trainers(daemon, 1, "stuck") as trainers:
        wait_for_batches(daemon, "stuck")
        trainers.all[0].send_signal(signal.SIGSTOP)
        wait_until("a full buffer", lambda: status(daemon, "stuck")["buffered"] == 4)
        events, about = check(daemon.ctl("trace", "stuck", "--seconds", "1", "-o", "-"))
        trainers.all[0].send_signal(signal.SIGCONT)
    waits = {}
    for e in spans(events, "wait"):
        waits[e["tid"]] = waits.get(e["tid"], 0) + e["dur"]
    window = (about["end_ns"] - about["begin_ns"]) / 1000
    assert len(waits) == 2 and min(waits.values()) > 0.9 * window, (waits, window)
    assert spans(events, "wait", "wait for room") and not spans(events, "op"), events


def a_trainer_that_waits_for_a_batch_is_seen_to_wait(daemon):
    """round_robin begins when all clients are attached: one trainer of two waits for ever."""
    apply(daemon, name="alone", delivery="round_robin")
    with Trainers(daemon, 1, "alone") as trainers:
        wait_until("a client", lambda: [c["state"] for c in status(daemon, "alone")["clients"]] == ["attached"])
        wait_until("its wait", lambda: status(daemon, "alone")["clients"][0]["wait_ns"] > 0)
        events, about = check(daemon.ctl("trace", "alone", "--seconds", "1", "-o", "-"))
    waits = [e for e in spans(events, "client", "stager_next") if e["pid"] == trainers.all[0].pid]
    window = (about["end_ns"] - about["begin_ns"]) / 1000
    assert len(waits) == 1 and waits[0]["dur"] > 0.9 * window and waits[0]["args"] == {}, (waits, window)


def a_trace_of_an_idle_pipeline_is_empty_and_good(daemon):
    apply(daemon, name="idle")
    events, about = check(daemon.ctl("trace", "idle", "--seconds", "1", "-o", "-"))
    assert about["spans"] == about["lost"] == about["overwritten"] == 0, about
    assert [e["args"]["name"] for e in events] == ["stagerd"], events


def a_pipeline_that_begins_meanwhile_is_traced(daemon):
    apply(daemon, name="late")
    n = len(re.findall("traced for", daemon.log()))
    trace = start(daemon, "late", "--seconds", "3", "-o", "-")
    wait_for_trace(daemon, n + 1)
    with Trainers(daemon, 2, "late"):
        out, _ = trace.communicate(timeout=60 * SLOW)
    events, _ = check(out)
    assert spans(events, "op") and spans(events, "client", "stager_run"), events


def text_tells_where_the_time_went(daemon):
    apply(daemon, name="text")
    with Trainers(daemon, 2, "text"):
        wait_for_batches(daemon, "text")
        out = daemon.ctl("trace", "text", "--seconds", "1", "--text").decode()
    assert re.search(r"^\d+ spans in 1\.\d\d s, of \d+ threads of stagerd and 2 clients", out), out
    assert re.search(r"^stagerd \d+, thread text/0", out, re.M), out
    assert len(re.findall(r"^score \d+, client score-\d+$", out, re.M)) == 2, out
    assert re.search(r"^  SELF % +SELF ms +TOTAL ms +COUNT +WHAT +LONGEST ms +NAME$", out, re.M), out
    assert re.search(r"^  [\d. ]+ op +[\d.]+ +columns \(decode_csv\)$", out, re.M), out
    for line in re.findall(r"^  +([\d.]+) +([\d.]+) +([\d.]+) +(\d+) ", out, re.M):
        assert float(line[0]) <= 101 and float(line[1]) <= float(line[2]) + 0.1 and int(line[3]) > 0, line


# ---- failures ------------------------------------------------------------------------------

def what_cannot_be_traced_says_why(daemon):
    apply(daemon, name="one")
    run = daemon.run(CTL, "trace", "onne", "--seconds", "1", "-o", "-")
    assert (run.returncode, run.stdout) == (1, b"")
    assert b"NOT_FOUND: no pipeline onne here: did you mean one?" in run.stderr, run.stderr
    for args, why in ((["--seconds", "601"], b"the maximum of --seconds is 600"), (["-o", "-", "--text"], b"-o -"),
                      (["--json", "--text"], b"--json")):
        run = daemon.run(CTL, "trace", "one", *args)
        assert run.returncode == 2 and why in run.stderr, (args, run)
    began = time.monotonic()
    run = daemon.run(CTL, "trace", "one", "--seconds", "600", "-o", os.path.join(daemon.folder, "none/such"))
    assert run.returncode == 1 and b"NOT_FOUND: cannot write " in run.stderr, run.stderr
    assert time.monotonic() - began < 60  # before it was created
    wait_until("the end of the trace", lambda: daemon.run(
        CTL, "trace", "one", "--seconds", "1", "-o", "-").returncode == 0)
    run = daemon.run(CTL, "trace", "one", "--seconds", "1", "-o", "/dev/full")
    assert run.returncode == 1 and b"RESOURCE_EXHAUSTED: cannot write /dev/full: No space left" in run.stderr, run.stderr


def one_trace_of_a_pipeline_at_a_time(daemon):
    apply(daemon, name="twice")
    n = len(re.findall("traced for", daemon.log()))
    first = start(daemon, "twice", "--seconds", "60", "-o", "-")
    wait_for_trace(daemon, n + 1)
    run = daemon.run(CTL, "trace", "twice", "-o", "-")
    assert run.returncode == 1 and re.search(
        rb"RESOURCE_EXHAUSTED: pipeline twice is being traced, for \d+ ms more", run.stderr), run.stderr
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60 * SLOW)
    assert first.returncode == 0, err
    _, about = check(out)
    assert (about["end_ns"] - about["begin_ns"]) < 50e9, about
    wait_until("the end of the first", lambda: daemon.run(CTL, "trace", "twice", "--seconds", "1", "-o", "-").returncode == 0)


def a_tracer_that_is_killed_leaves_nothing_behind(daemon):
    apply(daemon, name="killed")
    with Trainers(daemon, 2, "killed"):
        wait_for_batches(daemon, "killed")
        for _ in range(3):
            n = len(re.findall("traced for", daemon.log()))
            asker = start(daemon, "killed", "--seconds", "60", "-o", "-")
            wait_for_trace(daemon, n + 1)
            asker.kill()
            asker.communicate()
            wait_for_batches(daemon, "killed")
        wait_until("another trace", lambda: daemon.run(CTL, "trace", "killed", "--seconds", "1", "-o", "-").returncode == 0)
    with open(f"/proc/{daemon.process.pid}/maps", encoding="utf-8") as file:
        wait_until("its memory", lambda: "stager-trace" not in file.read())


def a_pipeline_that_is_deleted_or_replaced_ends_the_trace(daemon):
    for how in ("delete", "replace"):
        apply(daemon, name="gone")
        n = len(re.findall("traced for", daemon.log()))
        trace = start(daemon, "gone", "--seconds", "600", "-o", "-")
        wait_for_trace(daemon, n + 1)
        if how == "delete":
            daemon.ctl("delete", "gone")
        else:
            apply(daemon, name="gone", timeout_millis=1234)
        out, errors = trace.communicate(timeout=60 * SLOW)
        assert trace.returncode == 0 and "pipeline gone was replaced or deleted" in errors, errors
        check(out.encode())


def a_daemon_that_stops_ends_the_trace(daemon):
    apply(daemon, name="stopped")
    for stop in (signal.SIGTERM, signal.SIGKILL):
        with Trainers(daemon, 2, "stopped"):
            wait_for_batches(daemon, "stopped")
            n = len(re.findall("traced for", daemon.log()))
            trace = start(daemon, "stopped", "--seconds", "60", "-o", "-")
            wait_for_trace(daemon, n + 1)
            wait_for_batches(daemon, "stopped")
            daemon.process.send_signal(stop)
            out, err = trace.communicate(timeout=60 * SLOW)
            daemon.process.wait(60 * SLOW)
        events, _ = check(out)
        assert trace.returncode == 0 and spans(events, "op"), (trace.returncode, err)
        assert ("stagerd stopped" if stop == signal.SIGTERM else "stagerd closed the connection") in err, err
        daemon.start()


TESTS = [a_trace_of_two_trainers_shows_what_they_and_the_daemon_do, a_waiting_runner_is_visible_in_the_trace,
         a_trainer_that_waits_for_a_batch_is_seen_to_wait, a_trace_of_an_idle_pipeline_is_empty_and_good,
         a_pipeline_that_begins_meanwhile_is_traced,
         text_tells_where_the_time_went, what_cannot_be_traced_says_why, one_trace_of_a_pipeline_at_a_time,
         a_tracer_that_is_killed_leaves_nothing_behind, a_pipeline_that_is_deleted_or_replaced_ends_the_trace,
         a_daemon_that_stops_ends_the_trace]

if __name__ == "__main__":
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    with Daemon(sys.argv[1]) as running:
        for test in TESTS:
            if only in test.__name__:
                test(running)
                print(f"ok {test.__name__}", flush=True)
