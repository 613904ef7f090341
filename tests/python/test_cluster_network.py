#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that are network namespaces, on a network that delays, loses and parts: each batch comes once, and is the batch of a
run without trouble. Three hosts, each a stagerd with two trainers, and a worker host (`stagerd --worker`).

A seed draws which hosts, workers and links fail, and when; the time that this takes depends on the machine.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import case
import cluster_job
import stager
from daemon import SLOW, Daemon
from network import Network, missing

N, PORT = 1200, 9465
KILLS = int(os.environ.get("STG_CLUSTER_KILLS", "3"))
SEED = int(os.environ.get("STG_CLUSTER_SEED", "0")) or random.randrange(1, 1 << 30)
DELAY_MS, LOSS = 1, 0.01
# A batch takes 5 ms: the stage needs the worker.
GRAPH = [{"name": "late", "op": "sleep", "input": ["value"], "sleep_microseconds": 5000},
         {"name": "half", "op": "cast", "input": ["late"], "dtype": "float32"}]


def missing_here():
    """A reason to skip these tests; None: there is none."""
    has_worker = os.path.exists(os.path.join(case.BUILD, "daemon", "worker", "stager-worker"))
    return missing() or (None if has_worker else "stager-worker is not built")


def pipeline(steps, stop=N, **staged):
    staged = {"features": {"value": "value", "half": "half"}, "num_threads": 1, **staged}
    return {"name": cluster_job.NAME, "graph": GRAPH, "staged": staged,
            "dataset": [{"range": {"stop": stop}}, {"shuffle": {"global": True, "seed": 7}}, *steps,
                        {"batch": {"batch_size": cluster_job.BATCH}}]}


class Worker:
    """stagerd --worker on a host of the network."""

    def __init__(self, host, folder, served):
        self.host, self.url = host, f"http://{host.address}:{PORT}"
        self.token, self.log = os.path.join(folder, "token"), os.path.join(folder, "worker.log")
        with open(self.token, "w", encoding="ascii") as file:
            file.write("a-token-of-this-test\n")
        path = os.path.join(folder, "served.yaml")
        with open(path, "w", encoding="ascii") as file:
            json.dump(served, file)
        self.command = [*host.prefix, os.path.join(case.BUILD, "daemon", "stagerd"), "--worker", "--listen",
                        f"{host.address}:{PORT}", "--token-file", self.token, path]
        self.process = None

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_ready(self):
        def ask():
            try:
                with urllib.request.urlopen(self.url + "/readyz", timeout=20 * SLOW):
                    return True
            except (OSError, urllib.error.HTTPError):
                return False
        return self.host.inside(ask)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def remote(self, **options):
        return {"remote": {"workers": [self.url], "token_file": self.token, "mode": "on", **options}}


class TestNetwork(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED} (STG_CLUSTER_SEED)", flush=True)
        self.random = random.Random(SEED)
        self.folder = tempfile.mkdtemp(prefix="stg-network-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.network = Network(SEED, DELAY_MS, LOSS)
        self.addCleanup(self.network.close)

    def start_worker(self, served):
        worker = Worker(self.network.host(), self.folder, served)
        worker.start()
        self.addCleanup(worker.kill)
        case.wait_until(worker.is_ready, 60)
        return worker

    def n_made(self, daemon):
        """How many batches of the run the worker made."""
        return int(stager.status(cluster_job.NAME, runtime_dir=daemon.runtime_dir)["remote"].split()[0])

    # ---- three hosts ----

    def trouble(self, worker):
        """Before a step, mostly nothing; or a host is parted from the others, all are joined, or the worker is killed or
        starts again."""
        what, is_dead = self.random.randrange(12), worker.process.poll() is not None
        if what == 0:
            self.network.part(self.random.choice(self.network.hosts))
        elif what == 1:
            self.network.join()
        elif what in (2, 3) and is_dead:
            worker.start()
        elif what == 2:
            worker.kill()

    def test_an_epoch_is_trained_once_while_hosts_the_worker_and_links_fail(self):
        shared = os.path.join(self.folder, "compare")
        os.mkdir(shared)
        steps, hosts = [{"shard": {"num_shards": "auto"}}], []
        worker = self.start_worker(pipeline(steps))
        text = json.dumps(pipeline(steps, delivery="round_robin", num_clients="auto", **worker.remote()))
        for _ in range(3):
            hosts.append(cluster_job.Host(text, self.network.host().prefix,
                                          cluster={"compare_dir": shared, "compare_timeout_millis": 60000 * SLOW}))
            self.addCleanup(hosts[-1].close)
        job = cluster_job.Job(self, hosts, self.random, KILLS, lambda: self.trouble(worker))
        job.run()
        job.check(cluster_job.order_of(hosts[0]))

    # ---- one host and the worker ----

    def read(self, daemon, begun=lambda n: None):
        """The values of the batches, and how long each took."""
        got, times = [], []
        with stager.open(cluster_job.NAME, runtime_dir=daemon.runtime_dir) as stream:
            last = time.monotonic()
            for batch in stream:
                times.append(time.monotonic() - last)
                got.append((batch["value"].tolist(), batch["half"].tolist()))
                begun(len(got))
                last = time.monotonic()
        return got, times

    def test_batches_are_those_without_a_worker_while_the_link_loses_parts_and_the_worker_is_killed(self):
        plain = pipeline([], stop=4 * N)
        worker, host = self.start_worker(plain), self.network.host()
        daemon = Daemon(case.BUILD, memory_budget="256MiB")
        daemon.prefix = host.prefix
        self.addCleanup(daemon.close)
        daemon.start()
        stager.apply(json.dumps(plain), runtime_dir=daemon.runtime_dir)
        local, _ = self.read(daemon)
        n, n_made = len(local), []
        events = {n // 5: lambda: self.network.part(host), 2 * n // 5: self.network.join,
                  3 * n // 5: worker.kill, 4 * n // 5: worker.start}

        def begun(count):
            if count in events:
                n_made.append(self.n_made(daemon))
                events[count]()
        stager.apply(json.dumps(pipeline([], stop=4 * N, **worker.remote())), replace=True, runtime_dir=daemon.runtime_dir)
        got, times = self.read(daemon, begun)
        self.assertEqual(got, local)
        self.assertGreater(n_made[0], 0)
        before, at = max(times[:n // 5]), 3 * n // 5
        print(f"longest wait for a batch: {before * 1000:.0f} ms before trouble, {max(times[n // 5:2 * n // 5]) * 1000:.0f} ms "
              f"while parted, {max(times[at:4 * n // 5]) * 1000:.0f} ms while the worker is dead", flush=True)


def main():
    reason = missing_here()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    case.main()


if __name__ == "__main__":
    main()
