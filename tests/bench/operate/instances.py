#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a stagerd for each user costs, over one that two users share: CPU time of stagerd for a batch, memory (PSS), and the time
from `apply` to the first batch.

    instances.py SOURCE BUILD [--rounds N] [--images FOLDER]

ann and bob each take batches of a pipeline of their own over the same files: CSV, TFRecord and, with --images, JPEG; from one stagerd
for both, and from a stagerd for each, which runs as its user and under the system call filter of its unit. Prints the medians of
the ratios of rounds, as JSON. Needs root, to become the users.
"""
import argparse
import ctypes
import errno
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# seccomp.h
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


def calls_of(group):
    """The system calls of a group of systemd."""
    lines = subprocess.run(["systemd-analyze", "syscall-filter", group], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    names = [line.strip() for line in lines[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for name in names for call in (calls_of(name) if name.startswith("@") else [name])}


def filtered(unit, *command):
    """Executes the command under SystemCallFilter of the unit, which allows one group."""
    with open(unit, encoding="utf-8") as file:
        (group,) = re.findall(r"^SystemCallFilter=(@\S+)$", file.read(), re.M)
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(REFUSE))
    for name in calls_of(group):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        assert number < 0 or seccomp.seccomp_rule_add(rules, ALLOW, number, 0) == 0, name  # < 0: of another architecture
    assert seccomp.seccomp_load(rules) == 0
    os.execv(command[0], command)


if sys.argv[1] == "--filtered":
    filtered(*sys.argv[2:])
SOURCE = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, "tests/system"))
import check_sharing as sharing  # noqa: E402  pylint: disable=wrong-import-position
from daemon import Daemon, write  # noqa: E402  pylint: disable=wrong-import-position

USERS = (sharing.ANN, sharing.BOB)
STRINGS = [f"C{i}" for i in range(1, 27)]
NUMBERS = [f"I{i}" for i in range(1, 14)]
FILE_ROWS = 24 * 4096
BATCHES = {"csv": 12, "example": 12, "jpeg": 6}  # that each user takes in a slice
SLICES = 24  # of each kind in a round


def hashes(inputs):
    return [{"name": f"h{name}", "op": "string_to_hash_bucket_fast", "input": [value], "num_buckets": 1000000}
            for name, value in inputs.items()]


def csv(path):
    graph = [{"name": "c", "op": "decode_csv", "input": ["record"], "record_defaults": [0] + [0.0] * 13 + [""] * 26}]
    return {"dataset": [{"files": {"pattern": [path]}}, {"text_line": {}}, {"repeat": {}}, {"batch": {"batch_size": 4096}}],
            "graph": graph + hashes({name: f"c:{14 + i}" for i, name in enumerate(STRINGS)}),
            "staged": {"features": {"label": "c:0", **{name: f"h{name}" for name in STRINGS}}}}


def example(path):
    features = {"label": {"dtype": "int64"}, **{name: {"dtype": "int64", "default_value": 0} for name in NUMBERS},
                **{name: {"dtype": "string", "default_value": ""} for name in STRINGS}}
    return {"dataset": [{"files": {"pattern": [path]}}, {"tfrecord": {}}, {"repeat": {}}, {"batch": {"batch_size": 4096}}],
            "graph": [{"name": "p", "op": "parse_example", "input": ["record"], "features": features}]
            + hashes({name: f"p:{name}" for name in STRINGS}),
            "staged": {"features": {"label": "p:label", **{name: f"h{name}" for name in STRINGS}}}}


def jpeg(folder):
    graph = [{"name": "a", "op": "random_resized_crop", "input": ["bytes"], "size": [224, 224], "seed": 1},
             {"name": "b", "op": "random_flip", "input": ["a"], "seed": 2},
             {"name": "c", "op": "normalize_image", "input": ["b"], "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}]
    return {"dataset": [{"files": {"pattern": [f"{folder}/*.jpg"]}}, {"read_file": {}}, {"repeat": {}},
                        {"map": {"graph": graph, "output": {"image": "c"}}}, {"batch": {"batch_size": 50}}],
            "staged": {"features": {"image": "image"}}}


def cpu_s(pid):
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def pss_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def start(build, uid):
    """A stagerd of that user; 0: one for all."""
    daemon = Daemon(build, memory_budget="1GiB")
    os.chmod(daemon.folder, 0o755)
    if uid:
        for folder, folders, _ in os.walk(daemon.folder):
            for name in folders:
                os.chown(os.path.join(folder, name), uid, uid)
        daemon.prefix = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", sys.executable,
                         os.path.abspath(__file__), "--filtered", os.path.join(SOURCE, "systemd/stagerd-user.service.in")]
        daemon.build = daemon.folder + "/copies"
        for name in ("daemon/stagerd", "client/stagerctl/stagerctl", "client/libstager.so.0", "tests/system/taking_trainer"):
            os.makedirs(os.path.dirname(os.path.join(daemon.build, name)), exist_ok=True)
            shutil.copy(os.path.join(build, name), os.path.join(daemon.build, name))
    daemon.start()
    if not uid:
        os.chmod(os.path.join(daemon.runtime_dir, "attach.sock"), 0o666)
    return daemon


def as_user(daemon, build, uid, program, *arguments, **options):
    copy = daemon.copy_of(program) if daemon.build == build else os.path.join(daemon.build, program)
    return subprocess.Popen([copy, *arguments], env=daemon.env(), user=uid, group=uid, extra_groups=[], cwd="/",
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, **options)


class Trainer:
    """Applies, opens and takes the first batch; seconds: of all that."""

    def __init__(self, daemon, build, uid, definition):
        began = time.monotonic()
        name = f"of-{uid}"
        path = os.path.join(daemon.folder, f"{name}.json")
        write(path, json.dumps({"name": name, **definition}))
        apply = as_user(daemon, build, uid, "client/stagerctl/stagerctl", "apply", path)
        apply.communicate()
        assert apply.returncode == 0, daemon.log()
        self.process = as_user(daemon, build, uid, "tests/system/taking_trainer", name, "t")
        self.read()
        self.ask(1)
        self.read()
        self.seconds = time.monotonic() - began

    def ask(self, n):
        self.process.stdin.write(f"{n}\n")

    def read(self):
        line = self.process.stdout.readline()
        assert line.startswith(("open", "taken")), line

    def close(self):
        self.process.communicate()


class Setup:
    """Daemons with a trainer of each user."""

    def __init__(self, build, is_shared, definition):
        self.daemons, self.trainers, self.cpu_s = [], [], 0.0
        try:
            self.daemons = [start(build, 0)] if is_shared else [start(build, uid) for uid in USERS]
            for i, uid in enumerate(USERS):
                self.trainers.append(Trainer(self.daemons[i % len(self.daemons)], build, uid, definition))
        except BaseException:
            self.close()
            raise

    def used_s(self):
        return sum(cpu_s(daemon.process.pid) for daemon in self.daemons)

    def take(self, n):
        """Takes n batches for each user, and adds the CPU time of that."""
        before = self.used_s()
        for trainer in self.trainers:
            trainer.ask(n)
        for trainer in self.trainers:
            trainer.read()
        self.cpu_s += self.used_s() - before

    def close(self):
        for trainer in self.trainers:
            trainer.close()
        for daemon in self.daemons:
            daemon.close()


def start_alone(build, is_shared, definition, n):
    """(PSS of all stagerds, seconds to the first batch)"""
    setup = Setup(build, is_shared, definition)
    setup.take(n)
    memory = sum(pss_bytes(daemon.process.pid) for daemon in setup.daemons)
    setup.close()
    return memory, statistics.mean(trainer.seconds for trainer in setup.trainers)


def compare(build, definition, n, rounds):
    """CPU time in slices that alternate, so that other load meets both; the rest with one kind of daemon at a time."""
    shared, own, ratios = Setup(build, True, definition), Setup(build, False, definition), []
    for _ in range(rounds):
        shared.cpu_s = own.cpu_s = 0.0
        for i in range(SLICES):
            for setup in (shared, own) if i % 2 == 0 else (own, shared):
                setup.take(n)
        ratios.append(own.cpu_s / shared.cpu_s)
    shared.close()
    own.close()
    alone = [[start_alone(build, is_shared, definition, n) for is_shared in (False, True)] for _ in range(rounds)]
    return {"cpu_ratio": round(statistics.median(ratios), 3), "cpu_ratios": [round(ratio, 3) for ratio in ratios],
            "more_pss_bytes": round(statistics.median(a[0] - b[0] for a, b in alone)),
            "shared_pss_bytes": round(statistics.median(b[0] for _, b in alone)),
            "first_ratio": round(statistics.median(a[1] / b[1] for a, b in alone), 3)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root, to become two users")
        sys.exit(77)
    build = os.path.abspath(options.build)
    with tempfile.TemporaryDirectory(prefix="stg-instances-") as folder:
        os.chmod(folder, 0o755)
        cases = {}
        for kind, make in (("csv", csv), ("example", example)):
            path = os.path.join(folder, f"rows.{kind}")
            subprocess.run([os.path.join(build, "tests/bench/criteo_write"), kind, str(FILE_ROWS), path], check=True)
            os.chmod(path, 0o644)
            cases[kind] = make(path)
        if options.images:
            cases["jpeg"] = jpeg(shutil.copytree(options.images, os.path.join(folder, "images")))
        print(json.dumps({kind: compare(build, case, BATCHES[kind], options.rounds) for kind, case in cases.items()}))


main()
