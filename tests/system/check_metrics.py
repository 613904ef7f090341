#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl metrics while trainers train: what is counted, counters that never fall, also over the end of a run and
another generation, and the table of docs/metrics.md.

    check_metrics.py SOURCE BUILD TRAINER
"""
import os
import re
import shutil
import subprocess
import sys

from daemon import Daemon, SLOW, check, write
from metrics_text import Metrics, check_grows

PIPELINE = """name: %s
dataset:
- range: {start: 0, stop: %d}
- batch: {batch_size: 10}
graph:
- {name: x, op: cast, input: [value], dtype: float32}
staged: {features: {x: x}, num_clients: 2, delivery: %s, capacity: 4, reconnect_grace_millis: 0}
"""
LABELS = {"pipeline", "state", "delivery", "code", "storage", "node", "process", "rank", "le", "uid", "job", "version"}
UNITS = {"seconds", "bytes"}


class Trainer:
    def __init__(self, daemon, program, pipeline, *client_id_and_job):
        self.process = subprocess.Popen([program, pipeline, *client_id_and_job], env=daemon.env(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def says(self, text):
        line = self.process.stdout.readline().strip()
        check(line == text, f"the trainer says {line!r}, not {text!r}")

    def ask(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()

    def leave(self):
        self.process.stdin.close()
        check(self.process.wait(60 * SLOW) == 0, "the trainer failed")


def scrape(daemon):
    return Metrics(daemon.ctl("metrics").decode())


def start(daemon, program, pipeline):
    """Both clients: ranks 0 and 1."""
    trainers = []
    for name in "ab":
        trainers.append(Trainer(daemon, program, pipeline, name))
        trainers[-1].says("open")
    return trainers


def take(trainers, n):
    for trainer in trainers:
        trainer.ask(n)
    for trainer in trainers:
        trainer.says(f"taken {n}")


def leave(daemon, trainers, pipeline):
    """Until the run has ended."""
    for trainer in trainers:
        trainer.leave()
    while scrape(daemon).get("stager_pipeline_state", pipeline=pipeline, state="idle") == 0:
        pass


def apply(daemon, name, delivery, rows=100000, *options):
    path = os.path.join(daemon.folder, name + ".yaml")
    write(path, PIPELINE % (name, rows, delivery))
    daemon.ctl("apply", path, *options)


def check_counts(daemon, program):
    apply(daemon, "wide", "broadcast")
    before = scrape(daemon)
    check(before.get("stager_delivered_batches_total", pipeline="wide") == 0, "delivered before the start")
    trainers = start(daemon, program, "wide")
    take(trainers, 7)
    after = scrape(daemon)
    check_grows(before, after)
    check(after.get("stager_pipeline_state", pipeline="wide", state="running") == 1, "state")
    check(after.get("stager_pipeline_info", pipeline="wide", delivery="broadcast", uid=str(os.getuid())) == 1, "info")
    check(after.sum("stager_pipeline_state", pipeline="wide") == 1, "one state")
    n = after.get("stager_delivered_batches_total", pipeline="wide")
    check(n >= 14, f"delivered {n}")
    check(after.get("stager_delivered_rows_total", pipeline="wide") == 10 * n, "delivered rows")
    check(after.get("stager_delivered_bytes_total", pipeline="wide") > 40 * n, "delivered bytes")
    for rank in "01":
        count = after.get("stager_client_wait_seconds_count", pipeline="wide", rank=rank)
        check(7 <= count <= n, f"waits of rank {rank}: {count}")
        check(after.get("stager_client_attached", pipeline="wide", rank=rank) == 1, "attached")
        check(after.get("stager_client_acknowledged_batches_total", pipeline="wide", rank=rank) >= 6, "acknowledged")
    check(after.sum("stager_client_wait_seconds_count", pipeline="wide") == n, "each delivery has one wait")
    check(after.get("stager_client_attaches_total", pipeline="wide") == 2, "attaches")
    check(0 < after.get("stager_arena_used_bytes", pipeline="wide") <= after.get("stager_arena_bytes", pipeline="wide")
          <= after.get("stager_memory_used_bytes") <= after.get("stager_memory_budget_bytes"), "memory")
    check(after.get("stager_connections") >= 3 and after.get("stager_process_threads") > 1, "process")
    return trainers, after


def check_runs(daemon, program, trainers, before):
    """The run ends, another one begins, and so does another generation."""
    leave(daemon, trainers, "wide")
    idle = scrape(daemon)
    check_grows(before, idle)
    check(idle.get("stager_delivered_batches_total", pipeline="wide") >= 14, "counted after the end")
    check(idle.get("stager_client_attached", pipeline="wide", rank="0") == 0, "no client is attached")
    check(idle.get("stager_arena_bytes", pipeline="wide") == 0, "memory without a run")
    trainers = start(daemon, program, "wide")
    take(trainers, 5)
    again = scrape(daemon)
    check_grows(idle, again)
    check(again.get("stager_delivered_batches_total", pipeline="wide")
          >= idle.get("stager_delivered_batches_total", pipeline="wide") + 10, "the second run")
    apply(daemon, "wide", "split", 50000, "--replace")
    replaced = scrape(daemon)
    check_grows(again, replaced)
    check(replaced.get("stager_pipeline_generation", pipeline="wide") == 2, "generation")
    for trainer in trainers:
        trainer.process.stdin.close()
        trainer.process.wait(60 * SLOW)
    trainers = start(daemon, program, "wide")
    take(trainers, 3)
    check_grows(replaced, scrape(daemon))
    leave(daemon, trainers, "wide")
    check_grows(replaced, scrape(daemon))


def check_while_they_train(daemon, program):
    """A trainer takes to the end, again and again, each time in another run."""
    apply(daemon, "ranks", "round_robin", 4000)
    last = scrape(daemon)
    for _ in range(4):
        trainers = start(daemon, program, "ranks")
        for trainer in trainers:
            trainer.ask(1000)
        for _ in range(10):
            now = scrape(daemon)
            check_grows(last, now)
            last = now
        for trainer in trainers:
            trainer.says("end")
        leave(daemon, trainers, "ranks")
    now = scrape(daemon)
    check_grows(last, now)
    check(now.get("stager_delivered_batches_total", pipeline="ranks") == 4 * 400, "four passes")
    check(now.sum("stager_client_acknowledged_batches_total", pipeline="ranks") == 4 * 400, "acknowledged")
    check(now.get("stager_client_attaches_total", pipeline="ranks") == 8, "attaches")


def check_jobs(daemon, program):
    """The user and the job of two clients, one of which names no job, while they are attached."""
    apply(daemon, "jobs", "split")
    trainers = [Trainer(daemon, program, "jobs", "a", 'sweep "7"')]
    trainers[0].says("open")
    trainers.append(Trainer(daemon, program, "jobs", "b"))
    trainers[1].says("open")
    now, uid = scrape(daemon), str(os.getuid())
    for rank, job in enumerate((r'sweep \"7\"', "")):
        check(now.get("stager_client_info", pipeline="jobs", rank=str(rank), uid=uid, job=job) == 1, f"rank {rank}")
    check(now.sum("stager_client_info", pipeline="jobs") == 2, "two clients")
    for trainer in trainers:
        trainer.leave()
    while scrape(daemon).sum("stager_client_info", pipeline="jobs") > 0:
        pass
    refused = subprocess.run([program, "jobs", "c", "x" * 64], env=daemon.env(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(refused.returncode == 1 and "job has 64 bytes; the maximum is 63" in refused.stderr, refused.stderr)


def check_errors(daemon):
    before = scrape(daemon)
    missing = daemon.run("client/stagerctl/stagerctl", "status", "no_such")
    check(missing.returncode == 1, "status of no pipeline")
    after = scrape(daemon)
    found = (after.get("stager_request_errors_total", code="NOT_FOUND")
             - before.get("stager_request_errors_total", code="NOT_FOUND"))
    check(found == 1, f"errors: {found}")
    daemon.ctl("cat", "ranks", "--limit", "3")
    check(scrape(daemon).get("stager_made_batches_total", pipeline="ranks")
          == after.get("stager_made_batches_total", pipeline="ranks"), "`cat` counts")
    usage = daemon.run("client/stagerctl/stagerctl", "metrics", "--json")
    check(usage.returncode == 2 and b"one format" in usage.stderr, "--json")


def check_names(metrics):
    for name, kind in metrics.families.items():
        check(name.startswith("stager_"), name)
        check((kind == "counter") == name.endswith("_total"), f"{name} is a {kind}")
        check(metrics.helps[name].endswith("."), f"{name}: {metrics.helps[name]}")
        check(not re.search(r"_(millis|ns|ms|kib|mib|percent)(_|$)", name), f"{name}: a base unit")
    for name, labels in metrics.labels().items():
        check(labels <= LABELS, f"{name}: {labels}")


def table_rows(source):
    with open(os.path.join(source, "docs/metrics.md"), encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 5 and cells[0].startswith("`stager_"):
                yield cells


def check_table(source, metrics):
    """Each family has a row with its type, unit and labels, and each row a family."""
    labels, seen = metrics.labels(), set()
    for name, kind, unit, keys, _ in table_rows(source):
        name = name.strip("`")
        check(name not in seen, f"two rows of {name}")
        seen.add(name)
        check(metrics.families.get(name) == kind, f"{name}: {kind} in the table, {metrics.families.get(name)} here")
        shown = set(re.findall(r"`(\w+)`", keys))
        if name in labels:
            check(labels[name] - {"le"} == shown, f"{name}: {shown} in the table, {labels[name]} here")
        found = [part for part in name.split("_") if part in UNITS]
        check([unit] == found if found else unit not in UNITS, f"{name}: unit {unit}")
    check(seen == set(metrics.families), f"rows and families differ: {seen ^ set(metrics.families)}")


def check_promtool(text):
    promtool = shutil.which("promtool")
    if promtool is None:
        print("promtool is missing (Debian: prometheus): its check is skipped")
        return
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60 * SLOW)
    check(result.returncode == 0, f"promtool: {result.stdout.decode()}{result.stderr.decode()}")


def main(source, build, program):
    with Daemon(build) as daemon:
        trainers, metrics = check_counts(daemon, program)
        check_names(metrics)
        check_table(source, metrics)
        check_runs(daemon, program, trainers, metrics)
        check_while_they_train(daemon, program)
        check_jobs(daemon, program)
        check_errors(daemon)
        check_promtool(daemon.ctl("metrics"))
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
