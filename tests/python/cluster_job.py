# SPDX-License-Identifier: Apache-2.0
"""A job of tests (`shard: auto`): hosts, each a stagerd with two trainers, which go step by step as those of an all-reduce,
and begin again at the last checkpoint when a trainer has ended."""
import json
import subprocess
import sys

import case
import stager
from daemon import SLOW, Daemon

BATCH, STEPS_PER_CHECKPOINT = 4, 5
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
    """prefix: of each command, such as that of a host of a network."""

    def __init__(self, pipeline, prefix=(), **settings):
        self.trainers, self.prefix = [], list(prefix)
        self.daemon = Daemon(case.BUILD, memory_budget="256MiB", **settings)
        self.daemon.prefix = self.prefix
        self.daemon.start()
        stager.apply(pipeline, runtime_dir=self.daemon.runtime_dir)

    def begin(self, number, n_hosts, state):
        for local_rank in range(2):
            trainer = subprocess.Popen([*self.prefix, sys.executable, __file__, case.BUILD], stdin=subprocess.PIPE,
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


class Job:
    """Trains a pass once with respect to the checkpoints, while n_kills hosts are killed. random draws hosts and steps;
    before: called before each step."""

    def __init__(self, test, hosts, random, n_kills, before=lambda: None):
        self.test, self.all, self.random, self.n_kills, self.before = test, hosts, random, n_kills, before
        self.trained, self.state = [], None  # up to the last checkpoint
        self.n_killed = 0

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
            self.test.assertEqual({answer["rows"] is None for answer in answers}, {True}, "hosts have equally many batches")
            return None, None
        for answer in answers:
            self.test.assertEqual(answer["state"], answers[0]["state"])
        return [row for answer in answers for row in answer["rows"]], answers[0]["state"]

    def attempt(self, hosts, kill_at):
        """Trains up to the kill, or the end of the pass. Returns whether the pass is over."""
        for number, host in enumerate(hosts):
            host.begin(number, len(hosts), self.state)
        rows, n = [], 0
        while True:
            self.before()
            if n == kill_at:
                self.random.choice(hosts).kill(self.random.choice(("host", "host", "trainers")))
            # The other hosts may wait for that one, before their first batch.
            answer = None if n == kill_at else self.step(hosts)
            if answer is None or answer[0] is None:
                break
            n += 1
            rows += answer[0]
            if n % STEPS_PER_CHECKPOINT == 0:
                self.trained, self.state, rows = self.trained + rows, answer[1], []
        for host in hosts:
            host.end_trainers()
        if answer is None:
            self.test.assertEqual(n, kill_at, "a trainer ended that was not killed")
            return False
        self.trained += rows
        return True

    def run(self):
        hosts, is_over = list(self.all), False
        while not is_over:
            is_over = self.attempt(hosts, self.random.randrange(0, 16) if self.n_killed < self.n_kills else -1)
            self.n_killed += not is_over
            if self.random.random() < 0.5 or all(host.is_dead() for host in self.all):
                for host in filter(Host.is_dead, self.all):
                    host.daemon.start()
            hosts = [host for host in self.all if not host.is_dead()]
            self.random.shuffle(hosts)  # a host may get another number

    def check(self, order):
        """order: the rows of the pass. What is left is less than a round of batches."""
        n = len(self.trained)
        print(f"{self.n_killed} kills, {n} of {len(order)} elements trained, {n - len(set(self.trained))} twice", flush=True)
        self.test.assertLess(len(order) - n, 2 * len(self.all) * BATCH)
        self.test.assertEqual(n, len(set(self.trained)))
        self.test.assertEqual(sorted(self.trained), sorted(order[:n]))


def order_of(host):
    """The rows of the pass, in their order."""
    with stager.open(NAME, runtime_dir=host.daemon.runtime_dir, private_run=True) as stream:
        return [int(row) for batch in stream for row in batch["value"]]


if __name__ == "__main__":
    train()
