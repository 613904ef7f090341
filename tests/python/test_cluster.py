#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`shard: auto`: three "hosts", each a stagerd with two trainers, divide one epoch (docs/cluster.md)."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import case
import stage_workers
import stager
from daemon import SLOW, Daemon

BATCH = 4
SEED = int(os.environ.get("STG_CLUSTER_SEED", "1"))
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_", "OMPI_", "JOB_", "TORCHELASTIC_")


class Host:
    """A stagerd, and the streams of its trainers."""

    def __init__(self, number, **settings):
        self.number = number
        self.daemon = Daemon(case.BUILD, memory_budget="256MiB", **settings)
        self.daemon.start()
        self.streams = []
        self.begun = set()

    def apply(self, name, n, **options):
        dataset = stager.range(n).shuffle(64, seed=7).shard("auto", **options.pop("shard", {}))
        for step in options.pop("steps", ()):
            dataset = step(dataset)
        pipeline = dataset.batch(BATCH).staged(name=name, **{"delivery": "round_robin", "num_clients": "auto", **options})
        return stager.apply(pipeline, runtime_dir=self.daemon.runtime_dir)

    def open_one(self, name, n_hosts, local_rank, local_size=2, **options):
        return stager.open(name, runtime_dir=self.daemon.runtime_dir, timeout=60, dp_rank=self.number * local_size + local_rank,
                           dp_size=n_hosts * local_size, local_rank=local_rank, local_size=local_size, **options)

    def open(self, name, n_hosts, local_size=2, **options):
        for local_rank in range(local_size):
            self.streams.append(self.open_one(name, n_hosts, local_rank, local_size, **options))

    def step(self):
        """The rows of one batch of each trainer."""
        self.begun.update(self.streams)
        return [list(map(int, stream.next()["value"])) for stream in self.streams]

    def rest(self):
        """The rows of each trainer up to the end of its pass."""
        def drain(stream):
            iterator = iter(stream.next, None) if stream in self.begun else stream
            rows = []
            try:
                for batch in iterator:
                    rows += map(int, batch["value"])
            except stager.OutOfRangeError:
                pass
            return rows
        with ThreadPoolExecutor(len(self.streams)) as pool:
            return list(pool.map(drain, self.streams))

    def leave(self):
        while self.streams:
            self.streams.pop().close()


class HostCase(unittest.TestCase):
    """Three hosts, which the tests of a class share."""

    @classmethod
    def setUpClass(cls):
        cls.hosts = [Host(number) for number in range(3)]
        for host in cls.hosts:
            cls.addClassCleanup(host.daemon.close)


class TestCluster(HostCase):
    def setUp(self):
        cleared = {name: "" for name in os.environ if name.startswith(LAUNCHERS)}
        patch = mock.patch.dict(os.environ, cleared)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(lambda: [host.leave() for host in self.hosts])
        self.name = self.id().rsplit(".", 1)[1][:64]

    def apply(self, n, **options):
        for host in self.hosts:
            host.apply(self.name, n, **options)

    def open(self, hosts, **options):
        for host in hosts:
            host.open(self.name, len(hosts), **options)

    def test_an_epoch_is_divided_exactly_once(self):
        n = 3 * 2 * BATCH * 20 + 2
        self.apply(n)
        self.open(self.hosts)
        rows = [host.rest() for host in self.hosts]
        self.assertEqual({len(part) for host in rows for part in host}, {BATCH * 20})
        seen = sorted(row for host in rows for part in host for row in part)
        self.assertEqual(len(seen), n - 2)
        self.assertEqual(len(set(seen)), n - 2)
        for host in self.hosts:
            status = stager.status(self.name, runtime_dir=host.daemon.runtime_dir)
            self.assertEqual(status["remainder_elements"], 2)

    def test_the_next_epoch_has_another_order(self):
        n = 3 * 2 * BATCH * 4
        self.apply(n)
        self.open(self.hosts)
        first = [host.rest() for host in self.hosts]
        second = [host.rest() for host in self.hosts]
        for rows in first, second:
            self.assertEqual(sorted(row for host in rows for part in host for row in part), list(range(n)))
        self.assertNotEqual(first, second)

    def test_pad_gives_each_host_a_row_of_the_last_round(self):
        n = 3 * 2 * BATCH * 5 - 1
        self.apply(n, shard={"remainder": "pad"})
        self.open(self.hosts)
        rows = [host.rest() for host in self.hosts]
        self.assertEqual({len(part) for host in rows for part in host}, {BATCH * 5})
        seen = [row for host in rows for part in host for row in part]
        self.assertEqual(set(seen), set(range(n)))
        self.assertEqual(len(seen), n + 1)

    def resume(self, after, before, **options):
        """A job on hosts `after` goes on at the state of each host of a job on hosts `before`."""
        steps, each = 10, 2 * BATCH
        n = len(before) * each * steps + len(after) * each * 12
        for taken in range(len(before)):
            self.name = f"{self._testMethodName[:50]}_{taken}"
            self.apply(n, **options)
            self.open(before)
            rows = [row for _ in range(steps) for host in before for part in host.step() for row in part]
            states = [stream.state_dict() for host in before for stream in host.streams]
            for state in states:
                self.assertEqual(state, states[0])
            for host in self.hosts:
                host.leave()
            self.open(after, state=states[2 * taken])
            self.assertEqual(after[0].streams[0].state_dict()["hosts"], len(after))
            rows += [row for host in after for part in host.rest() for row in part]
            self.assertEqual(sorted(rows), list(range(n)))
            for host in self.hosts:
                host.leave()

    def test_a_state_of_any_of_three_hosts_goes_on_on_two(self):
        self.resume(self.hosts[:2], self.hosts)

    def test_a_state_of_any_of_two_hosts_goes_on_on_three(self):
        self.resume(self.hosts, self.hosts[:2])

    def test_a_state_goes_on_twice_divided_otherwise(self):
        n, each = 0, 2 * BATCH
        counts = [(3, 5), (2, 7), (1, 3), (3, 4)]
        n = sum(hosts * steps * each for hosts, steps in counts)
        self.apply(n)
        rows, state = [], None
        for n_hosts, steps in counts:
            self.open(self.hosts[:n_hosts], **({} if state is None else {"state": state}))
            rows += [row for _ in range(steps) for host in self.hosts[:n_hosts] for part in host.step() for row in part]
            state = self.hosts[0].streams[0].state_dict()
            for host in self.hosts:
                host.leave()
        self.assertEqual(sorted(rows), list(range(n)))

    def test_trainers_go_on_after_a_restart_of_stagerd(self):
        """Also in a run that began in the middle of a pass, of another number of hosts."""
        n = 2 * BATCH * (3 * 4 + 2 * 9)
        self.apply(n)
        self.open(self.hosts)
        rows = [row for _ in range(4) for host in self.hosts for part in host.step() for row in part]
        state = self.hosts[2].streams[1].state_dict()
        for host in self.hosts:
            host.leave()
        hosts = self.hosts[:2]
        self.open(hosts, state=state)
        rows += [row for _ in range(3) for host in hosts for part in host.step() for row in part]
        hosts[1].daemon.stop()
        hosts[1].daemon.start()
        rows += [row for host in hosts for part in host.rest() for row in part]
        self.assertEqual(sorted(rows), list(range(n)))

    def test_split_takes_each_row_once_too(self):
        n = 3 * 2 * BATCH * 10
        self.apply(n, delivery="split")
        self.open(self.hosts)
        rows = [host.rest() for host in self.hosts]
        self.assertEqual(sorted(row for host in rows for part in host for row in part), list(range(n)))

    def test_batches_are_divided_as_rows_are(self):
        n = 3 * 2 * BATCH * 6 + BATCH
        for host in self.hosts:
            dataset = stager.range(n).batch(BATCH).shard("auto").prefetch(2)
            stager.apply(dataset.staged(name=self.name, delivery="round_robin", num_clients=2),
                         runtime_dir=host.daemon.runtime_dir)
        self.open(self.hosts)
        rows = [row for host in self.hosts for part in host.step() for row in part]
        state = self.hosts[1].streams[0].state_dict()
        for host in self.hosts:
            host.leave()
        self.open(self.hosts[:1], state=state)
        rows += [row for part in self.hosts[0].rest() for row in part]
        self.assertEqual(sorted(rows), list(range(n - BATCH)))

    def test_the_cache_of_a_host_is_not_that_of_another(self):
        """A stagerd that is another host in the next job, and has the file of the first one still."""
        host = self.hosts[0]
        path = os.path.join(host.daemon.folder, "cache")
        dataset = stager.range(40).shard("auto").cache(path).batch(BATCH)
        stager.apply(dataset.staged(name=self.name, num_clients=1), runtime_dir=host.daemon.runtime_dir)
        for rank, n_hosts in ((0, 2), (1, 2), (1, 4), (0, 2)):
            with stager.open(self.name, runtime_dir=host.daemon.runtime_dir, timeout=60, dp_rank=rank, dp_size=n_hosts,
                             local_rank=0, local_size=1) as stream:
                rows = [int(row) for batch in stream for row in batch["value"]]
            self.assertEqual(rows, list(range(rank, 40, n_hosts)))

    # ---- where a job begins without a state ----

    def assert_once(self, parts, n):
        self.assertEqual(sorted(row for part in parts for row in part), list(range(n)))

    def test_a_job_divides_one_pass_though_a_stagerd_was_started_anew(self):
        n = 3 * 2 * BATCH * 4
        self.apply(n)
        for _ in range(2):
            self.open(self.hosts)
            self.assert_once([part for host in self.hosts for part in host.rest()], n)
            for host in self.hosts:
                host.leave()
            self.hosts[1].daemon.stop()
            self.hosts[1].daemon.start()

    def test_trainers_that_were_killed_in_the_middle_begin_anew_on_each_host(self):
        """Under their names, within reconnect_grace_millis. One stagerd was killed with its trainers."""
        n = 3 * 2 * BATCH * 4
        self.apply(n)
        code = f"""
import sys, stager
stream = stager.open({self.name!r}, timeout=60, dp_rank=int(sys.stdin.readline()), dp_size=6, local_rank=int(sys.stdin.readline()), local_size=2)
for _ in range(2):
    stream.next()
    print("step", flush=True)
sys.stdin.readline()
"""
        trainers = [case.Program(host.daemon, code) for host in self.hosts for _ in range(2)]
        for rank, trainer in enumerate(trainers):
            trainer.say(f"{rank}\n{rank % 2}")
        for trainer in trainers:
            self.assertEqual([trainer.line(), trainer.line()], ["step", "step"])
        self.hosts[1].daemon.process.kill()
        self.hosts[1].daemon.process.wait()
        for trainer in trainers:
            trainer.process.kill()
            trainer.end()
        self.hosts[1].daemon.start()
        self.open(self.hosts)
        self.assert_once([part for host in self.hosts for part in host.rest()], n)

    def test_a_job_begins_while_a_stream_of_the_last_one_is_open(self):
        """That stream has batches that it has not taken: it gets them and its end, and opens anew then."""
        n = 3 * 2 * BATCH * 2
        self.apply(n)
        self.open(self.hosts)
        first, last = self.hosts[0].streams
        rows = self.hosts[1].rest() + self.hosts[2].rest()
        rows.append([int(row) for batch in first for row in batch["value"]])
        first.close()
        for host in self.hosts[1:]:
            host.leave()
        second = self.hosts[0].open_one(self.name, 3, 0)
        rows.append([int(row) for batch in last for row in batch["value"]])
        self.assert_once(rows, n)
        with self.assertRaises(stager.AbortedError) as caught:
            next(iter(last))
        self.assertIn("another job has begun", str(caught.exception))
        last.close()
        self.hosts[0].streams = [second]
        self.hosts[0].streams.append(self.hosts[0].open_one(self.name, 3, 1))
        for host in self.hosts[1:]:
            host.open(self.name, 3)
        self.assert_once([part for host in self.hosts for part in host.rest()], n)

    def test_a_rank_that_opens_again_joins_those_that_wait_for_it_in_the_next_pass(self):
        n = 3 * 2 * BATCH * 2
        self.apply(n)
        self.open(self.hosts)
        first = [part for host in self.hosts for part in host.rest()]
        self.assert_once(first, n)
        for host in self.hosts:
            for stream in host.streams:
                if stream is not self.hosts[0].streams[0]:
                    stream._rewind()
        self.hosts[0].streams.pop(0).close()
        self.hosts[0].streams.insert(0, self.hosts[0].open_one(self.name, 3, 0))
        for host in self.hosts:
            host.begun.update(host.streams)
        second = [part for host in self.hosts for part in host.rest()]
        self.assert_once(second, n)
        self.assertNotEqual(first, second)

    def test_a_rank_of_a_split_that_comes_late_does_not_begin_the_pass_again(self):
        n = 3 * 2 * BATCH * 2
        self.apply(n, delivery="split")
        for host in self.hosts:
            host.streams.append(host.open_one(self.name, 3, 0))
        rows = [part for host in self.hosts for part in host.rest()]
        late = self.hosts[0].open_one(self.name, 3, 1)
        self.hosts[0].streams.append(late)
        self.assertEqual(list(late), [])
        self.assert_once(rows, n)

    # ---- what is refused ----

    def one(self, **named):
        return stager.open(self.name, runtime_dir=self.hosts[0].daemon.runtime_dir, timeout=60, **named)

    def refused(self, error, text, **named):
        with self.assertRaises(error) as caught:
            self.one(**named).close()
        self.assertIn(text, str(caught.exception))

    def test_ranks_that_contradict_one_another_are_refused(self):
        self.hosts[0].apply(self.name, 100)
        for text, *ranks in (("dp_rank 4 of dp_size 4", 4, 4, 0, 2), ("local_rank 2 of local_size 2", 0, 4, 2, 2),
                             ("not a multiple of local_size 2", 0, 5, 0, 2), ("must follow one another", 1, 4, 0, 2)):
            named = dict(zip(("dp_rank", "dp_size", "local_rank", "local_size"), ranks))
            self.refused(stager.InvalidArgumentError, text, **named)
        self.refused(stager.InvalidArgumentError, "dp_size missing", dp_rank=1)
        self.refused(stager.FailedPreconditionError, "(shard: auto)")

    def test_two_clients_of_one_rank_and_of_two_jobs_are_refused(self):
        self.hosts[0].apply(self.name, 100)
        first = self.one(dp_rank=0, dp_size=4, local_rank=0, local_size=2)
        self.addCleanup(first.close)
        self.refused(stager.AlreadyExistsError, "rank 0 of pipeline", dp_rank=0, dp_size=4, local_rank=0, local_size=2,
                     client_id="another")
        self.refused(stager.FailedPreconditionError, "is on host 0 of 4, and the other clients", dp_rank=1, dp_size=8,
                     local_rank=1, local_size=2)
        self.refused(stager.FailedPreconditionError, "is on host 1 of 2, and the other clients", dp_rank=3, dp_size=4,
                     local_rank=1, local_size=2)

    def test_num_clients_must_be_the_ranks_of_the_host(self):
        self.hosts[0].apply(self.name, 100, num_clients=3)
        self.refused(stager.InvalidArgumentError, "local_size is 2, and num_clients 3", dp_rank=0, dp_size=4,
                     local_rank=0, local_size=2)

    def test_a_step_behind_it_may_not_count_by_the_data(self):
        def some(dataset):
            return dataset.filter(lambda element: element["value"] > 3)
        host = self.hosts[0]
        with self.assertRaises(stager.InvalidArgumentError) as caught:
            host.apply(self.name, 100, steps=[some])
        self.assertIn("step filter", str(caught.exception))
        self.assertIn("different numbers of batches", str(caught.exception))
        host.apply(self.name, 100, steps=[some, lambda dataset: dataset.repeat()])

    def test_a_state_behind_a_shuffle_of_the_share_needs_as_many_hosts(self):
        self.apply(480, steps=[lambda dataset: dataset.shuffle(10)])
        self.open(self.hosts)
        for host in self.hosts:
            host.step()
        state = self.hosts[0].streams[0].state_dict()
        for host in self.hosts:
            host.leave()
        self.refused(stager.FailedPreconditionError, "step shuffle", state=state, dp_rank=0, dp_size=2)
        self.open(self.hosts, state=state)
        self.assertEqual(len({row for host in self.hosts for part in host.rest() for row in part}), 480 - 24)

    # ---- launchers ----

    def ranks_of(self, **variables):
        with mock.patch.dict(os.environ, variables):
            return tuple(stager._ranks.from_environment())

    def test_launchers_name_the_ranks(self):
        torchrun = dict(zip(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("5", "8", "1", "4")))
        slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1",
                 "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
        ompi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        self.assertEqual(self.ranks_of(), (0, 0, 0, 0))
        self.assertEqual(self.ranks_of(**torchrun), (5, 8, 1, 4))
        self.assertEqual(self.ranks_of(**slurm), (3, 6, 1, 2))
        self.assertEqual(self.ranks_of(**ompi), (1, 2, 0, 1))
        self.assertEqual(self.ranks_of(**torchrun, **slurm), (5, 8, 1, 4))  # torchrun inside of srun
        self.assertEqual(self.ranks_of(**slurm, RANK="3", WORLD_SIZE="6"), (3, 6, 1, 2))
        for text, variables in (
                ("RANK (4) and SLURM_PROCID (3)", {**slurm, "RANK": "4"}),
                ("LOCAL_RANK, LOCAL_WORLD_SIZE not", {"RANK": "0", "WORLD_SIZE": "4"}),
                ("SLURM_STEP_TASKS_PER_NODE is '2(x2),1'", {**slurm, "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}),
                ("LOCAL_RANK is 'one'", {**torchrun, "LOCAL_RANK": "one"})):
            with self.assertRaises(stager.InvalidArgumentError) as caught:
                self.ranks_of(**variables)
            self.assertIn(text, str(caught.exception))

    def test_the_run_of_a_launcher_is_the_job(self):
        for want, variables in ((None, {}), (None, {"TORCHELASTIC_RUN_ID": "none"}),
                                ("r7", {"TORCHELASTIC_RUN_ID": "r7", "SLURM_JOB_ID": "12"}), ("12", {"SLURM_JOB_ID": "12"})):
            with mock.patch.dict(os.environ, {"TORCHELASTIC_RUN_ID": "", **variables}):
                self.assertEqual(stager._ranks.job(), want)

    def test_variables_are_the_ranks_of_an_open_and_a_contradiction_is_its_error(self):
        n = 2 * BATCH * 10
        self.hosts[0].apply(self.name, n, num_clients=1)
        variables = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
        with mock.patch.dict(os.environ, variables):
            self.refused(stager.InvalidArgumentError, "SLURM_STEP_TASKS_PER_NODE not")
            os.environ["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)"
            with self.one() as stream:
                self.assertEqual(len([row for batch in stream for row in batch["value"]]), n // 2)


    def test_the_example_counts_each_line_once(self):
        lines = os.path.join(self.hosts[0].daemon.folder, "lines.txt")
        with open(lines, "w", encoding="ascii") as file:
            file.writelines(f"{number}\n" for number in range(3000))
        train = os.path.join(case.HERE, "../../examples/cluster/train.py")
        trainers = []
        for rank in range(6):
            env = {**self.hosts[rank // 2].daemon.env(), "RANK": str(rank), "WORLD_SIZE": "6",
                   "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
            trainers.append(subprocess.Popen([sys.executable, train, lines], env=env, stdout=subprocess.PIPE, text=True))
        rows = [trainer.communicate(timeout=60 * SLOW)[0] for trainer in trainers]
        self.assertEqual([trainer.returncode for trainer in trainers], [0] * 6)
        self.assertEqual(sum(int(text.split()[2]) for text in rows), 3000)


class TestWeights(HostCase):
    """Hosts that take different numbers of elements of a round (docs/dataset.md, "weights")."""

    def setUp(self):
        self.addCleanup(lambda: [host.leave() for host in self.hosts])
        self.name = self.id().rsplit(".", 1)[1][:64]

    def apply(self, n, weights, hosts=None, **options):
        for host in hosts or self.hosts:
            host.apply(self.name, n, **{"shard": {"weights": weights}, "delivery": "split", "num_clients": 1, **options})

    def open(self, hosts=None, **options):
        for host in hosts or self.hosts:
            host.open(self.name, len(hosts or self.hosts), local_size=1, **options)

    def shares(self, weights, pads=False):
        """The rows of each host, dealt one by one along the order of a run without ranks."""
        with stager.open(self.name, runtime_dir=self.hosts[0].daemon.runtime_dir, private_run=True) as stream:
            order = [int(row) for batch in stream for row in batch["value"]]
        slots = [number for number, weight in enumerate(weights) for _ in range(weight)]
        whole = len(order) // len(slots) * len(slots)
        order = order + [order[whole]] * (whole + len(slots) - len(order)) if pads else order[:whole]
        return [[row for at, row in enumerate(order) if slots[at % len(slots)] == number] for number in range(len(weights))]

    def test_each_row_is_taken_once_by_the_host_of_its_place(self):
        weights, n = [2, 1, 3], 6 * 50 + 5
        self.apply(n, weights)
        self.open()
        rows = [host.rest()[0] for host in self.hosts]
        self.assertEqual([len(part) for part in rows], [100, 50, 150])
        self.assertEqual(rows, self.shares(weights))
        self.assertEqual(len({row for part in rows for row in part}), n - 5)
        for host in self.hosts:
            self.assertEqual(stager.status(self.name, runtime_dir=host.daemon.runtime_dir)["remainder_elements"], 5)

    def test_weights_of_one_are_no_weights(self):
        self.apply(301, [1, 1, 1])
        self.open()
        rows = [host.rest() for host in self.hosts]
        self.name = "without_weights"
        for host in self.hosts:
            host.leave()
            host.apply(self.name, 301, delivery="split", num_clients=1)
        self.open()
        self.assertEqual([host.rest() for host in self.hosts], rows)

    def test_pad_gives_a_host_the_first_row_for_each_that_is_missing(self):
        weights, n = [1, 3, 2], 6 * 9 + 3
        self.apply(n, weights, shard={"weights": weights, "remainder": "pad"})
        self.open()
        rows = [host.rest()[0] for host in self.hosts]
        self.assertEqual(rows, self.shares(weights, pads=True))
        self.assertEqual({row for part in rows for row in part}, set(range(n)))

    def test_each_host_goes_on_at_its_own_state_in_the_middle_of_a_round(self):
        weights = [3, 2, 1]
        self.apply(6 * 60, weights)
        shares = self.shares(weights)
        self.open()
        rows = [[row for _ in range(steps) for row in host.step()[0]] for host, steps in zip(self.hosts, (13, 9, 5))]
        self.assertEqual([len(part) % weight for part, weight in zip(rows, weights)], [1, 0, 0])
        states = [host.streams[0].state_dict() for host in self.hosts]
        self.assertEqual([(state["hosts"], state["weight"], state["base"]) for state in states], [(3, 3, 0), (3, 2, 0), (3, 1, 0)])
        for host, state, part, share in zip(self.hosts, states, rows, shares):
            host.leave()
            host.daemon.stop()
            host.daemon.start()
            host.streams.append(host.open_one(self.name, 3, 0, 1, state=state))
            self.assertEqual(part + host.rest()[0], share)
        self.hosts[2].leave()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "state is of a host of weight 3 of 3 hosts, and this is a host of weight 1"):
            self.hosts[2].open_one(self.name, 3, 0, 1, state=states[0])
        self.name = "other_weights"
        self.apply(6 * 60, [3, 1, 1], self.hosts[2:])
        with self.assertRaisesRegex(stager.FailedPreconditionError, "the state is of another pipeline: .*shard"):
            self.hosts[2].open_one(self.name, 3, 0, 1, state=states[2])

    def test_hosts_may_have_different_numbers_of_clients(self):
        weights, n, hosts = [2, 1], 3 * BATCH * 20, self.hosts[:2]
        for host, n_clients in zip(hosts, weights):
            self.apply(n, weights, [host], num_clients=n_clients)
            for _ in range(n_clients):
                host.streams.append(host.open_one(self.name, 2, 0, 1, client_id=f"client-{len(host.streams)}"))
        rows = [sorted(row for part in host.rest() for row in part) for host in hosts]
        self.assertEqual(rows, [sorted(share) for share in self.shares(weights)])

    def test_hosts_may_have_different_numbers_of_batches_behind_a_filter(self):
        weights, hosts = [3, 1], self.hosts[:2]
        self.apply(400, weights, hosts, steps=[lambda dataset: dataset.filter(lambda element: element["value"] > 99)])
        self.open(hosts)
        self.assertEqual(sorted(row for host in hosts for row in host.rest()[0]), list(range(100, 400)))

    def test_what_does_not_fit_is_refused(self):
        def refuse(error, text, weights, **options):
            with self.assertRaisesRegex(error, text):
                self.apply(60, weights, self.hosts[:1], **options)

        invalid = stager.InvalidArgumentError
        for delivery in "round_robin", "broadcast":
            refuse(invalid, r"step shard \(.*\): with weights hosts get different numbers of batches.*set delivery of staged to split",
                   [2, 1], delivery=delivery)
        refuse(invalid, r"weights\[1\]: found 0; expected an integer from 1 to 1024", [2, 0])
        refuse(invalid, r"weights\[0\]: found 1025", [1025])
        refuse(invalid, "weights has 4097 values; it must have one for each of 1 to 4096 hosts", [1] * 4097)
        with self.assertRaisesRegex(invalid, "weights are those of hosts: write num_shards: auto"):
            stager.apply(stager.range(9).shard(3, 1, weights=[1]).batch(2).staged(name=self.name),
                         runtime_dir=self.hosts[0].daemon.runtime_dir)
        self.apply(60, [2, 1, 1], self.hosts[:2])
        with self.assertRaisesRegex(stager.FailedPreconditionError, r"step shard \(.*\): weights has 3 values, and the job has 2 hosts"):
            self.open(self.hosts[:2])
        self.name = "of_three_clients"
        self.apply(60, [2, 1, 1], self.hosts[:1], num_clients=3)
        with self.assertRaisesRegex(invalid, "local_size is 2, and num_clients 3"):
            self.hosts[0].open(self.name, 3)

    def test_hosts_that_etcd_finds_have_no_weights(self):
        host = Host(0, cluster={"etcd": {"endpoints": ["http://127.0.0.1:1"]}})
        self.addCleanup(host.daemon.close)
        self.apply(60, [2, 1], [host])
        with self.assertRaisesRegex(stager.FailedPreconditionError, "weights are those of a fixed number of hosts.*open with dp_rank and dp_size"):
            stager.open(self.name, runtime_dir=host.daemon.runtime_dir, local_rank=0, local_size=1)
        host.streams.append(host.open_one(self.name, 2, 0, 1))
        self.assertEqual(len(host.rest()[0]), 40)
        host.leave()


class TestWorkers(unittest.TestCase):
    """Three hosts with two trainers each, for which two stage workers make batches (docs/cluster.md, "Workers of several hosts")."""

    N, SIZE = 1501, 7
    # The stage takes 2 ms for a batch: many are those of workers, however slow these are.
    GRAPH = [{"name": "value", "op": "string_to_number", "input": ["record"], "out_type": "int64"},
             {"name": "late", "op": "sleep", "input": ["value"], "sleep_microseconds": 2000},
             {"name": "half", "op": "cast", "input": ["late"], "dtype": "float32"}]

    @classmethod
    def setUpClass(cls):
        cls.hosts = [Host(number) for number in range(3)]
        for host in cls.hosts:
            cls.addClassCleanup(host.daemon.close)
        cls.shared = tempfile.mkdtemp(prefix="stg-hosts-")
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.lines = cls.file("lines", "".join(f"{number}\n" for number in range(cls.N)))
        cls.token = cls.file("token", "a-token-of-this-test\n")

    @classmethod
    def file(cls, name, text):
        path = os.path.join(cls.shared, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def setUp(self):
        stage_workers.need(self)
        self.name = self.id().rsplit(".", 1)[1][:64]
        self.random = random.Random(SEED)
        self.workers = []
        self.addCleanup(lambda: [host.leave() for host in self.hosts])

    def define(self, before=(), behind=(), staged=(), **shard):
        """The pipeline of all hosts, without workers; and two workers that serve it."""
        dataset = [{"files": {"pattern": [self.lines]}}, {"text_line": {}}, {"shuffle": {"global": True, "seed": 3}}, *before,
                   {"shard": {"num_shards": "auto", **shard}}, *behind, {"batch": {"batch_size": self.SIZE}}]
        self.pipeline = {"name": self.name, "dataset": dataset, "graph": self.GRAPH}
        self.staged = {"delivery": "round_robin", "num_clients": 2, "features": {"value": "value", "half": "half"},
                       "num_threads": 1, **dict(staged)}
        path = self.file(self.name + ".yaml", json.dumps({**self.pipeline, "staged": self.staged}))
        for number in range(2):
            self.workers.append(stage_workers.Stagerd(path, self.token, os.path.join(self.shared, f"{self.name}-{number}.log")))
            self.addCleanup(self.workers[-1].close)
        for worker in self.workers:
            worker.wait()

    def apply(self, *workers, **remote):
        """A new version of the pipeline: its first pass is that of the one before."""
        more = {"remote": {"workers": [worker.url for worker in workers], "token_file": self.token, "mode": "on",
                           "max_requests": 2, **remote}} if workers else {}
        for host in self.hosts:
            stager.apply(json.dumps({**self.pipeline, "staged": {**self.staged, **more}}), replace=True,
                         runtime_dir=host.daemon.runtime_dir)

    def take(self, hosts, n_steps=None, after=lambda n: None):
        """What each trainer of the hosts gets, in n_steps or up to the end: where, and all bytes. Then how much of it workers
        made."""
        streams = [stream for host in hosts for stream in host.streams]
        got = [[] for _ in streams]

        def step(stream, ret):
            try:
                batch = stream.next()
            except stager.OutOfRangeError:
                return False
            ret.append((batch.info.epoch, batch.info.index, batch.info.n_rows, batch["value"].tolist(),
                        batch["half"].tobytes()))
            return True

        with ThreadPoolExecutor(len(streams)) as pool:
            while n_steps is None or len(got[0]) < n_steps:
                more = list(pool.map(step, streams, got))
                if not any(more):
                    break
                self.assertEqual(set(more), {True}, "hosts have equally many batches")
                after(len(got[0]))
        made = [stager.status(self.name, runtime_dir=host.daemon.runtime_dir).get("remote") for host in hosts]
        return got, sum(int(text.split()[0]) for text in made if text)

    def run_all(self, *workers, hosts=None, state=None, after=lambda n: None, **remote):
        self.apply(*workers, **remote)
        hosts = hosts or self.hosts
        for host in hosts:
            host.open(self.name, len(hosts), **({} if state is None else {"state": state}))
        ret = self.take(hosts, after=after)
        for host in hosts:
            host.leave()
        return ret

    def check(self, epochs=1, n_left_out=0, **how):
        """A pass with workers is that of one without, and has each element once an epoch. Left out are the elements of a round
        that is not complete, and of a batch that has none for the other trainer."""
        want, _ = self.run_all()
        times = Counter(value for part in want for batch in part for value in batch[3])
        self.assertEqual(self.N * epochs - sum(times.values()), n_left_out)
        if n_left_out >= 0:
            self.assertLessEqual(max(times.values()), epochs)
        else:
            self.assertEqual(len(times), self.N)
        got, n_made = self.run_all(*self.workers, **how)
        self.assertEqual(got, want)
        return n_made

    def test_batches_of_workers_are_those_of_the_hosts(self):
        self.define()
        self.assertGreater(self.check(n_left_out=1), 0)
        for host in self.hosts:
            status = stager.status(self.name, runtime_dir=host.daemon.runtime_dir)
            self.assertEqual(status["remainder_elements"], 1)

    def test_the_last_round_may_be_padded(self):
        self.define(remainder="pad")
        self.assertGreater(self.check(n_left_out=-2), 0)

    def test_rounds_cross_epochs_and_a_map_works_ahead(self):
        number = {"map": {"graph": [{"name": "same", "op": "identity", "input": ["record"]}], "output": {"record": "same"},
                          "num_parallel_calls": 2}}
        self.define(before=[{"repeat": {"count": 2}}, number], behind=[number])
        self.assertGreater(self.check(epochs=2, n_left_out=20), 0)

    def test_hosts_of_different_weights_get_batches_of_workers_too(self):
        self.define(before=[{"repeat": {"count": 2}}], weights=[2, 1, 3], staged={"delivery": "split", "num_clients": 1})
        got = []
        for workers in (), self.workers:
            self.apply(*workers)
            for host in self.hosts:
                host.open(self.name, 3, local_size=1)
            got.append([self.take([host]) for host in self.hosts])
            for host in self.hosts:
                host.leave()
        (want, _), (same, made) = (zip(*run) for run in got)
        self.assertEqual(same, want)
        self.assertGreater(min(made), 0)
        rows = [[value for batch in part for value in batch[3]] for part, in want]
        self.assertEqual([len(part) for part in rows], [2 * 500, 500, 3 * 500])
        self.assertEqual(sum(Counter(row for part in rows for row in part).values()), 2 * self.N - 2)

    def test_auto_is_as_exact(self):
        self.define()
        self.check(n_left_out=1, mode="auto")

    def test_each_element_comes_once_while_workers_are_killed(self):
        self.define(before=[{"repeat": {"count": 2}}])

        def after(n):
            if n % 20 == 5:
                self.random.choice(self.workers).kill_and_start()

        self.assertGreater(self.check(epochs=2, n_left_out=20, after=after), 0)

    def test_states_of_three_hosts_go_on_on_two(self):
        self.define()
        n_steps = 11
        self.apply()
        for host in self.hosts:
            host.open(self.name, 3)
        first, _ = self.take(self.hosts, n_steps)
        states = [host.streams[0].state_dict() for host in self.hosts]
        for host in self.hosts:
            host.leave()
        two = self.hosts[:2]
        want, _ = self.run_all(hosts=two, state=states[0])
        values = [value for part in first + want for batch in part for value in batch[3]]
        self.assertEqual(len(set(values)), len(values))
        self.assertEqual(self.N - len(values), 3)
        # With workers on both sides.
        self.apply(*self.workers)
        for host in self.hosts:
            host.open(self.name, 3)
        again, n_made = self.take(self.hosts, n_steps)
        self.assertEqual(again, first)
        self.assertGreater(n_made, 0)
        state = self.hosts[2].streams[1].state_dict()
        self.assertEqual(state["base"], states[0]["base"])
        for host in self.hosts:
            host.leave()
        got, n_made = self.run_all(*self.workers, hosts=two, state=state)
        self.assertEqual(got, want)
        self.assertGreater(n_made, 0)

    def test_trainers_go_on_after_a_restart_of_stagerd(self):
        self.define()
        want, _ = self.run_all()
        self.apply(*self.workers)
        for host in self.hosts:
            host.open(self.name, 3)
        got, _ = self.take(self.hosts, 9)
        self.hosts[1].daemon.stop()
        self.hosts[1].daemon.start()
        rest, _ = self.take(self.hosts)
        self.assertEqual([a + b for a, b in zip(got, rest)], want)


class TestCompare(unittest.TestCase):
    """Hosts that compare what they divide (docs/cluster.md, "Comparing hosts")."""

    def setUp(self):
        self.shared = tempfile.mkdtemp(prefix="stg-compare-")
        self.addCleanup(shutil.rmtree, self.shared)
        self.name = self.id().rsplit(".", 1)[1][:64]
        self.hosts = []

    def start(self, n, millis=60000 * SLOW):
        for number in range(n):
            host = Host(number, cluster={"compare_dir": self.shared, "compare_timeout_millis": int(millis)})
            self.addCleanup(host.daemon.close)
            self.hosts.append(host)

    def apply(self, sizes, seeds=(1, 1, 1), weights=(None, None, None)):
        """Each host has files of so many lines below a folder of its own."""
        for host, counts, seed, each in zip(self.hosts, sizes, seeds, weights):
            folder = os.path.join(host.daemon.folder, "data")
            os.makedirs(folder, exist_ok=True)
            for letter, count in counts.items():
                with open(os.path.join(folder, letter), "w", encoding="ascii") as file:
                    file.writelines(f"{number:05}\n" for number in range(count))
            dataset = stager.files(os.path.join(folder, "*")).text_line().shuffle(8, seed=seed).shard("auto", weights=each)
            stager.apply(dataset.batch(BATCH).staged(name=self.name, num_clients=1), runtime_dir=host.daemon.runtime_dir)

    def run_all(self, numbers=None, n_hosts=None, **options):
        """The rows, or the error, of each host."""
        def one(host, number):
            try:
                with stager.open(self.name, runtime_dir=host.daemon.runtime_dir, timeout=120 * SLOW, dp_rank=number,
                                 dp_size=n_hosts or len(self.hosts), **options) as stream:
                    return [row for batch in stream for row in next(iter(batch.values()))]
            except stager.Error as error:
                return error
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            return list(pool.map(one, self.hosts, numbers or range(len(self.hosts))))

    def assert_refused(self, results, *texts):
        for result in results:
            self.assertIsInstance(result, stager.FailedPreconditionError)
            for text in texts:
                self.assertIn(text, str(result))

    def test_hosts_with_the_same_files_in_folders_of_their_own_begin_and_again(self):
        self.start(3)
        self.apply([{"a": 24, "b": 24}] * 3)
        for _ in range(2):  # the notes of the first run are there in the second one
            results = self.run_all()
            self.assertEqual([len(result) for result in results], [16] * 3)

    def test_a_file_of_another_size_is_named_on_all_hosts(self):
        self.start(3)
        self.apply([{"a": 24, "b": 24}, {"a": 24, "b": 24}, {"a": 24, "b": 25}])
        self.assert_refused(self.run_all(), "/b (file 2) has 144 and 150 bytes", "host 0", "host 2")
        self.apply([{}, {}, {"b": 24}])  # the notes of the run that failed do no harm
        self.assertEqual([len(result) for result in self.run_all()], [16] * 3)

    def test_a_file_that_one_host_lacks_is_named_on_all_hosts(self):
        self.start(2)
        self.apply([{"a": 24, "b": 24}, {"a": 24}])
        self.assert_refused(self.run_all(), "file 2", "is missing on one of them (2 and 1 files)")

    def test_a_step_that_differs_is_named_on_all_hosts(self):
        self.start(2)
        self.apply([{"a": 24}] * 2, seeds=[1, 2])
        self.assert_refused(self.run_all(), "step shuffle (number 3)")

    def test_weights_that_differ_are_named_on_all_hosts(self):
        self.start(2)
        self.apply([{"a": 24}] * 2, weights=[[2, 1], [1, 2]])
        self.assert_refused(self.run_all(), "step shard (number 4)")
        self.name = "same_weights"
        self.apply([{}] * 2, weights=[[2, 1], [2, 1]])
        self.assertEqual([len(result) for result in self.run_all()], [16, 8])

    def test_two_hosts_of_one_number_are_named(self):
        self.start(2)
        self.apply([{"a": 24}] * 2)
        self.assert_refused(self.run_all(numbers=[1, 1], n_hosts=2), "are both number 1 of 2")

    def test_a_host_that_does_not_come_is_named(self):
        self.start(1, millis=200)
        self.apply([{"a": 24}])
        result, = self.run_all(n_hosts=2)
        self.assertIsInstance(result, stager.DeadlineExceededError)
        self.assertIn("host 1 of 2 has not begun its run within 200 ms", str(result))

    def test_a_folder_that_is_gone_is_named(self):
        self.start(1)
        self.apply([{"a": 24}])
        os.rmdir(self.shared)
        self.addCleanup(os.mkdir, self.shared)
        result, = self.run_all(n_hosts=2)
        self.assertIsInstance(result, stager.UnavailableError)
        self.assertIn("hosts cannot be compared", str(result))


if __name__ == "__main__":
    case.main()
