#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts of a job are killed at random (`shard: auto`): each element is trained exactly once with respect to the checkpoints.

Three hosts, each a stagerd with two trainers, which go step by step as those of an all-reduce. The trainers of a host are killed by
SIGKILL, mostly with its stagerd. The job then begins again at its last checkpoint, on the hosts that are left or on all three.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

import case
import stager
from daemon import SLOW, Daemon

BATCH, N, STEPS_PER_CHECKPOINT = 4, 3000, 5
KILLS = int(os.environ.get("STG_CLUSTER_KILLS", "6"))
SEED = int(os.environ.get("STG_CLUSTER_SEED", "0")) or random.randrange(1, 1 << 30)
NAME = "train"


def train():
    """A trainer: a line of stdin is a step, whose rows and state go to stdout."""
    options = json.loads(sys.stdin.readline())
    with stager.open(NAME, timeout=60 * SLOW, **options) as stream:
        batches = iter(stream)
        for _ in sys.stdin:
            batch = next(batches, None)
            rows = None if batch is None else list(map(int, batch["value"]))
            print(json.dumps({"rows": rows, "state": None if rows is None else stream.state_dict()}), flush=True)


class Host:
    def __init__(self, shared):
        self.trainers = []
        self.daemon = Daemon(case.BUILD, memory_budget="256MiB",
                             cluster={"compare_dir": shared, "compare_timeout_millis": 60000 * SLOW})
        self.daemon.start()
        dataset = stager.range(N).shuffle(64, seed=7).shard("auto").batch(BATCH)
        stager.apply(dataset.staged(name=NAME, delivery="round_robin", num_clients="auto"), runtime_dir=self.daemon.runtime_dir)

    def begin(self, number, n_hosts, state):
        for local_rank in range(2):
            trainer = subprocess.Popen([sys.executable, __file__, case.BUILD, "--train"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True, env=self.daemon.env())
            self.trainers.append(trainer)
            options = {"dp_rank": 2 * number + local_rank, "dp_size": 2 * n_hosts, "local_rank": local_rank, "local_size": 2,
                       "state": state}
            trainer.stdin.write(json.dumps(options) + "\n")
            trainer.stdin.flush()

    def end_trainers(self):
        for trainer in self.trainers:
            trainer.kill()
            trainer.wait()
            trainer.stdin.close()
            trainer.stdout.close()
        self.trainers = []

    def kill(self, what):
        if what == "host":
            self.daemon.process.kill()
            self.daemon.process.wait()
        for trainer in self.trainers:
            trainer.kill()

    def is_dead(self):
        return self.daemon.process.poll() is not None

    def close(self):
        self.end_trainers()
        self.daemon.close()


class TestKills(unittest.TestCase):
    def setUp(self):
        self.shared = tempfile.mkdtemp(prefix="stg-cluster-")
        self.addCleanup(shutil.rmtree, self.shared)
        self.hosts = []
        for _ in range(3):
            self.hosts.append(Host(self.shared))
            self.addCleanup(self.hosts[-1].close)
        self.random = random.Random(SEED)

    def order(self):
        """The state of the start of the pass, and its rows. Without a state a stagerd that ran before begins another pass."""
        with stager.open(NAME, runtime_dir=self.hosts[0].daemon.runtime_dir, private_run=True) as stream:
            return stream.state_dict(), [int(row) for batch in stream for row in batch["value"]]

    def step(self, hosts):
        """The rows and the state of a step; None: a trainer ended. Rows None: the pass is over."""
        trainers = [trainer for host in hosts for trainer in host.trainers]
        try:
            for trainer in trainers:
                trainer.stdin.write("\n")
                trainer.stdin.flush()
        except BrokenPipeError:
            return None
        lines = [trainer.stdout.readline() for trainer in trainers]
        if "" in lines:
            return None
        answers = [json.loads(line) for line in lines]
        if any(answer["rows"] is None for answer in answers):
            self.assertEqual({answer["rows"] is None for answer in answers}, {True}, "hosts have equally many batches")
            return None, None
        for answer in answers:
            self.assertEqual(answer["state"], answers[0]["state"])
        return [row for answer in answers for row in answer["rows"]], answers[0]["state"]

    def attempt(self, hosts, state, kill_at):
        """Trains up to the kill, or the end of the pass. Returns the rows up to the last checkpoint, its state, and whether
        the pass is over."""
        for number, host in enumerate(hosts):
            host.begin(number, len(hosts), state)
        kept, rows, n = [], [], 0
        while True:
            if n == kill_at:
                self.random.choice(hosts).kill(self.random.choice(("host", "host", "trainers")))
            # The other hosts may wait for that one, before their first batch.
            answer = None if n == kill_at else self.step(hosts)
            if answer is None or answer[0] is None:
                break
            n += 1
            rows += answer[0]
            if n % STEPS_PER_CHECKPOINT == 0:
                kept, state = kept + rows, answer[1]
                rows = []
        for host in hosts:
            host.end_trainers()
        if answer is None:
            self.assertEqual(n, kill_at, "a trainer ended that was not killed")
            return kept, state, False
        return kept + rows, state, True

    def test_an_epoch_is_trained_once_while_hosts_are_killed(self):
        print(f"seed {SEED} (STG_CLUSTER_SEED)", flush=True)
        (state, order), trained, is_over, n_killed = self.order(), [], False, 0
        hosts = list(self.hosts)
        while not is_over:
            kill_at = self.random.randrange(0, 16) if n_killed < KILLS else -1
            rows, state, is_over = self.attempt(hosts, state, kill_at)
            trained += rows
            n_killed += not is_over
            if self.random.random() < 0.5 or all(host.is_dead() for host in self.hosts):
                for host in filter(Host.is_dead, self.hosts):
                    host.daemon.start()
            hosts = [host for host in self.hosts if not host.is_dead()]
            self.random.shuffle(hosts)  # a host may get another number
        print(f"{n_killed} kills, {len(trained)} of {len(order)} elements trained, {len(trained) - len(set(trained))} twice")
        # What is left is less than a round of batches.
        self.assertLess(len(order) - len(trained), 6 * BATCH)
        self.assertEqual(len(trained), len(set(trained)))
        self.assertEqual(sorted(trained), sorted(order[:len(trained)]))


if __name__ == "__main__":
    if "--train" in sys.argv:
        train()
    else:
        case.main()
