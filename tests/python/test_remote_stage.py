#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stage workers: whatever they answer, a trainer gets the batches of a run without them, bit for bit."""
import json
import os
import random
import subprocess
import unittest

import numpy as np

import case
import stage_workers
import stager

SEED = int(os.environ.get("STG_REMOTE_SEED", "1"))
BAD = ["hang", "busy", "unknown", "element", "cut", "close", "flip", "noise", "forged", "other"]


def steps(stop=100, size=7, count=6):
    """Partial last batches: before repeat, so that each epoch has one."""
    return [{"range": {"stop": stop}}, {"shuffle": {"global": True, "seed": 3}},
            {"batch": {"batch_size": size}}, {"repeat": {"count": count}}]


GRAPH = [{"name": "half", "op": "cast", "input": ["value"], "dtype": "float32"},
         {"name": "text", "op": "as_string", "input": ["value"]}]
# The stage takes 2 ms for a batch: most are those of workers, however slow these are.
LATE = [{"name": "late", "op": "sleep", "input": ["value"], "sleep_microseconds": 2000},
        {"name": "half", "op": "cast", "input": ["late"], "dtype": "float32"}, GRAPH[1]]
FEATURES = {"value": "value", "half": "half", "text": "text"}


def content(batch):
    tensors = []
    for name in sorted(FEATURES):
        value = batch[name]
        tensors.append((name, value.tolist() if name == "text" else np.array(value)))
    return (batch.info.epoch, batch.info.index, batch.info.n_rows, tensors)


def same(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return a[:3] == b[:3] and all(
        name == other and (x == y if isinstance(x, list) else x.dtype == y.dtype and np.array_equal(x, y))
        for (name, x), (other, y) in zip(a[3], b[3]))


class Remote(case.Case):
    def setUp(self):
        self.name = self._testMethodName[:64]
        self.workers = []

    def tearDown(self):
        for worker in self.workers:
            worker.close()

    def pipeline(self, workers=None, dataset=None, graph=None, staged=None, **remote):
        more = {"remote": {"workers": [each if isinstance(each, str) else each.url for each in workers], "mode": "on",
                           **remote}} if workers else {}
        self.apply(dataset=dataset or steps(), graph=GRAPH if graph is None else graph,
                   staged={"features": FEATURES, "num_threads": 1, **(staged or {}), **more}, name=self.name, replace=True)

    def apply(self, replace=False, **pipeline):
        return stager.apply(json.dumps({"name": self.name, **pipeline}), replace=replace)

    def read(self, begun=None, state=None):
        """The contents of the batches, and the codes of error items."""
        with stager.open(self.name, state=state) as stream:
            got = []
            while True:
                try:
                    got.append(content(stream.next()))
                except stager.OutOfRangeError:
                    return got
                except stager.InvalidArgumentError as error:
                    got.append(str(error))
                if begun is not None:
                    begun(len(got))

    def record(self, **how):
        """The batches of a run without workers, and as a worker serves them."""
        self.pipeline(**how)
        local = self.read()
        served = {}
        for item, each in enumerate(local):
            if isinstance(each, str):
                continue
            epoch, index, rows, tensors = each
            values = dict(tensors)
            served[0, item] = stage_workers.encode((0, epoch, index), rows, [(name, 0, values[name]) for name in self.order])
        return local, served

    order = ["value", "half", "text"]

    def serve(self, served, **options):
        worker = stage_workers.Worker(served, **options)
        self.workers.append(worker)
        return worker

    def check(self, local, got):
        self.assertEqual(len(got), len(local))
        for at, (a, b) in enumerate(zip(local, got)):
            self.assertTrue(same(a, b), f"batch {at}: {a} is not {b}")

    def status(self):
        return stager.status(self.name)


class Equal(Remote):
    def compare(self, n_least=1, **how):
        local, served = self.record(**how)
        worker = self.serve(served)
        self.pipeline([worker], **how)
        self.check(local, self.read())
        self.assertGreaterEqual(len(worker.asked), n_least)
        return local, worker

    def test_batches_of_workers_are_those_of_the_stage(self):
        self.compare()

    def test_batches_cross_epochs_behind_repeat(self):
        self.compare(dataset=[{"range": {"stop": 50}}, {"shuffle": {"global": True, "seed": 5}}, {"repeat": {"count": 9}},
                              {"batch": {"batch_size": 8}}])

    def test_many_requests_and_runners(self):
        local, worker = self.compare(staged={"num_threads": 3, "capacity": 4})
        self.assertEqual(sorted(set(worker.asked)), sorted(worker.asked), "no batch is asked for twice")

    def test_auto_asks_where_the_buffer_is_not_full(self):
        local, served = self.record()
        worker = self.serve(served)
        self.pipeline([worker], mode="auto")
        self.check(local, self.read())

    def test_off_asks_for_nothing(self):
        local, served = self.record()
        worker = self.serve(served)
        self.pipeline([worker], mode="off")
        self.check(local, self.read())
        self.assertEqual(worker.asked, [])

    def test_a_run_goes_on_at_a_state(self):
        local, served = self.record()
        worker = self.serve(served)
        self.pipeline([worker])
        with stager.open(self.name) as stream:
            for _ in range(20):
                stream.next()
            state = stream.state_dict()
        self.check(local[20:], self.read(state=state))

    def test_every_client_of_a_round_gets_its_batches(self):
        local, served = self.record()
        self.pipeline([self.serve(served)], staged={"delivery": "broadcast", "num_clients": 1})
        self.check(local, self.read())


class Trouble(Remote):
    def run_with(self, *workers, begun=None, **remote):
        self.pipeline(list(workers), graph=LATE, **remote)
        self.check(self.local, self.read(begun))

    def setUp(self):
        super().setUp()
        self.local, self.served = self.record(graph=LATE)

    def test_a_worker_ends_in_the_middle(self):
        first, second = self.serve(self.served), self.serve(self.served)

        def begun(n):
            if n == 10:
                first.close()
                self.workers.remove(first)

        self.run_with(first, second, begun=begun)

    def test_no_worker_is_left(self):
        worker = self.serve(self.served)

        def begun(n):
            if n == 10:
                worker.close()
                self.workers.remove(worker)

        self.run_with(worker, begun=begun)

    def test_no_worker_was_there(self):
        self.run_with("http://127.0.0.1:9")

    def test_a_second_worker_is_asked_where_the_first_hangs(self):
        slow = self.serve(self.served, behave=lambda item: "hang" if item % 16 == 3 else "good")
        self.run_with(slow, self.serve(self.served))

    def test_one_that_sent_garbage_is_not_asked_again(self):
        bad, good = self.serve(self.served, behave=lambda item: "flip"), self.serve(self.served)
        self.run_with(bad, good, max_requests=1)
        self.assertEqual(len(bad.asked), 1)
        self.assertIn("it is not asked again in this run", self.daemon.log())

    def test_the_token_is_sent_and_a_wrong_one_costs_nothing(self):
        token = self.file("token", "secret-1\n")
        worker = self.serve(self.served, token="secret-1")
        self.run_with(worker, token_file=token)
        self.assertGreater(len(worker.asked), 0)
        worker.token = "another"
        self.run_with(worker, token_file=token, max_requests=3)  # another version: its first pass
        self.assertIn("it answered 401", self.daemon.log())
        self.assertNotIn("secret-1", self.daemon.log())

    def test_a_token_that_cannot_be_read_costs_nothing(self):
        worker = self.serve(self.served)
        self.run_with(worker, token_file="/nowhere/token")
        self.assertEqual(worker.asked, [])

    def test_a_worker_with_a_full_queue_gets_fewer_requests_and_is_not_away(self):
        worker = self.serve(self.served, most=2)
        shown = []

        def begun(n):
            if n == len(self.local):
                shown.append(self.status()["remote"])

        self.run_with(worker, begun=begun, max_requests=6)
        self.assertGreater(worker.n_refused, 0)
        self.assertIn(" 0 failed", shown[0])
        self.assertGreater(len(worker.asked), len(self.local) // 3)

    def test_the_text_of_an_answer_is_one_printable_line(self):
        worker = self.serve(self.served, behave=lambda item: "shouting")
        shown = []
        self.run_with(worker, begun=lambda n: shown.append(self.status()["remote"]), max_requests=1)
        said = [text for text in shown if "it answered 500" in text]
        self.assertTrue(said, shown)
        for text in said:
            self.assertIn("it answered 500:  [2Jno  disk   left", text)
            self.assertTrue(text.isprintable() and "forged" not in text, text)

    def test_bytes_are_bounded(self):
        worker = self.serve(self.served)
        self.run_with(worker, max_bytes_per_s=1, max_requests=1)
        self.assertEqual(len(worker.asked), 1)

    def test_the_own_zone_comes_first(self):
        far, near = self.serve(self.served, zone="b"), self.serve(self.served, zone="a")
        self.run_with(far, near, zone="a", max_requests=1)
        self.assertGreater(len(near.asked), len(far.asked))

    def test_any_sequence_of_answers_gives_the_same_batches(self):
        for seed in range(SEED, SEED + int(os.environ.get("STG_REMOTE_RUNS", "8"))):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                kinds = rng.sample([kind for kind in BAD if kind != "hang"], rng.randrange(1, 5)) + ["good"] * rng.randrange(1, 6)
                # A worker that sent garbage is out: each has an item from which on it misbehaves.
                workers = [self.serve(self.served, behave=behave)
                           for behave in [Drawn(seed * 10 + k, kinds, rng.randrange(60)) for k in range(4)]]
                self.run_with(*workers, max_requests=rng.randrange(1, 9))


class Drawn:
    """Behaves well up to an item, then as a seed draws for each request."""

    def __init__(self, seed, kinds, first):
        self.rng, self.kinds, self.first = random.Random(seed), kinds, first

    def __call__(self, item):
        return "good" if item < self.first else self.rng.choice(self.kinds)


class Quota(Remote):
    settings = {"quotas": [{"user": os.getuid(), "remote_bytes_per_second": 1}]}

    def test_batches_of_workers_count_on_the_quota_of_the_applier(self):
        local, served = self.record(graph=LATE)
        worker = self.serve(served)
        self.pipeline([worker], graph=LATE, max_requests=1)
        self.check(local, self.read())
        self.assertEqual(len(worker.asked), 1, "no worker is asked before the quota allows it")


class Errors(Remote):
    def test_an_error_in_the_data_shifts_items_for_workers_too(self):
        lines = [str(n) for n in range(200)]
        text = self.file("lines", "\n".join(lines[:33] + ["x"] + lines[34:]) + "\n")
        clean = self.file("clean", "\n".join(lines) + "\n")

        def dataset(path):
            return [{"files": {"pattern": [path]}}, {"text_line": {}},
                    {"map": {"graph": [{"name": "n", "op": "string_to_number", "input": ["record"], "out_type": "int64"}],
                             "output": {"value": "n"}}},
                    {"batch": {"batch_size": 7}}, {"repeat": {"count": 2}}]

        _, served = self.record(dataset=dataset(clean))
        self.pipeline(dataset=dataset(text))
        local = self.read()
        self.assertEqual(sum(isinstance(each, str) for each in local), 2)
        worker = self.serve(served, behave=lambda item: "element" if item == 4 else "good")
        self.pipeline([worker], dataset=dataset(text))
        self.check(local, self.read())

    def test_a_pipeline_without_numbers_is_refused_with_the_step(self):
        for step, what in (({"shuffle": {"buffer_size": 8}}, "shuffle"), ({"prefetch": {"buffer_size": 2}}, "prefetch"),
                           ({"cache": {}}, "cache")):
            with self.assertRaisesRegex(stager.InvalidArgumentError, f"staged.remote needs steps .*step {what}"):
                self.pipeline(["http://127.0.0.1:9"], dataset=[{"range": {"stop": 9}}, step, {"batch": {"batch_size": 2}}])
        with self.assertRaisesRegex(stager.InvalidArgumentError, "deterministic: false"):
            self.pipeline(["http://127.0.0.1:9"], staged={"deterministic": False})
        for url in ("ftp://host", "http://user@host", "host:80", "http://host:x", "http://"):
            with self.assertRaisesRegex(stager.InvalidArgumentError, "not the URL of a worker"):
                self.pipeline([url])


class Endless:
    """Of a pipeline that repeats its epoch for ever: the batches, and as a worker serves them."""

    def __init__(self, epoch, order):
        self.epoch, self.order = epoch, order

    def __getitem__(self, item):
        number, index = divmod(item, len(self.epoch))
        return (number, *self.epoch[index][1:])

    def get(self, item):
        epoch, index, rows, tensors = self[item[1]]
        values = dict(tensors)
        return stage_workers.encode((item[0], epoch, index), rows, [(name, 0, values[name]) for name in self.order])


class Changing(Remote):
    """Which workers there are changes while a run goes on."""

    def begin(self, **remote):
        """Opens an endless run; the workers are those of `remote`."""
        dataset = [{"range": {"stop": 100}}, {"batch": {"batch_size": 7}}]
        self.pipeline(dataset=dataset)
        self.batches = Endless(self.read(), self.order)
        self.apply(dataset=[*dataset, {"repeat": {}}], graph=GRAPH, name=self.name, replace=True,
                   staged={"features": FEATURES, "num_threads": 1, "remote": {"mode": "on", **remote}})
        self.stream = stager.open(self.name)
        self.addCleanup(self.stream.close)
        self.n_read = 0

    def read_until(self, done):
        def step():
            got = content(self.stream.next())
            self.assertTrue(same(self.batches[self.n_read], got), f"batch {self.n_read}: {got}")
            self.n_read += 1
            return done()
        case.wait_until(step, 60)

    def read_until_asked(self, worker):
        before = len(worker.asked)
        self.read_until(lambda: len(worker.asked) > before + 8)

    def read_until_left(self, worker):
        """Until the worker is not asked any more."""
        counts = [-1] * 64
        self.read_until(lambda: counts.append(len(worker.asked)) or counts[-1] == counts[-64] and
                        "1 of 1 workers" in self.status()["remote"])


class Listed(Changing):
    def test_a_file_that_changes_names_the_workers(self):
        path = self.file("workers", "")
        self.begin(workers_file=path)
        first, second = self.serve(self.batches), self.serve(self.batches)
        self.read_until(lambda: self.n_read > 20)
        self.write(path, f"# workers\n\n{first.url}\nno-url\n")
        self.read_until_asked(first)
        self.assertTrue(self.daemon.wait_for_log('"no-url" is not the URL of a worker'))
        self.write(path, f"{first.url}\n{second.url}\n")
        self.read_until_asked(second)
        self.read_until_asked(first)
        self.write(path, f"{second.url}\n")
        self.read_until_left(first)
        self.read_until_asked(second)

    def test_a_file_that_is_not_there_costs_nothing(self):
        path = os.path.join(self.daemon.folder, "later")
        self.begin(workers_file=path)
        worker = self.serve(self.batches)
        self.read_until(lambda: "later: " in self.daemon.log())
        self.write(path, worker.url)
        self.read_until_asked(worker)

    def test_any_number_of_workers_come_and_go(self):
        """More than have room at once: the places of those that are gone are used again."""
        path = self.file("workers", "")
        self.begin(workers_file=path)
        first, second = self.serve(self.batches), self.serve(self.batches)
        for n in (30, 31, 32):  # nothing listens there
            gone = "".join(f"http://127.9.{n}.{host}:1\n" for host in range(n))
            self.write(path, f"{gone}{first.url}\n")
            self.read_until(lambda: f"{self.name}: stage workers: {n + 1}, before" in self.daemon.log())
        self.write(path, f"{first.url}\n{second.url}\n")
        self.read_until_asked(second)

    @staticmethod
    def write(path, text):
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(text)
        os.replace(f"{path}.new", path)


class Named(Changing):
    """A name, such as that of a headless Service of Kubernetes, has the addresses of its workers."""

    @classmethod
    def setUpClass(cls):
        inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
        if subprocess.run([*inside, "/etc/hosts", "true"], check=False, capture_output=True).returncode != 0:
            raise unittest.SkipTest("unshare cannot make a mount namespace")
        cls.daemon = case.Daemon(case.BUILD, **cls.settings)
        cls.addClassCleanup(cls.daemon.close)
        cls.hosts = os.path.join(cls.daemon.folder, "hosts")
        cls.write("127.0.0.1")
        cls.daemon.prefix = [*inside, cls.hosts]
        cls.daemon.start()
        os.environ["STAGER_RUNTIME_DIR"] = cls.daemon.runtime_dir

    @classmethod
    def write(cls, *addresses):
        """In place: it is mounted. A reader of half of it reads it again."""
        with open(cls.hosts, "w", encoding="ascii") as file:
            file.write("".join(f"{address} stage-workers.test\n" for address in addresses))

    def test_all_addresses_are_asked_and_those_that_come_later(self):
        port = stage_workers.free_port()
        self.begin(workers=[f"http://stage-workers.test:{port}"])
        first, second = (self.serve(self.batches, address=(f"127.0.0.{n}", port)) for n in (1, 2))
        self.read_until_asked(first)
        self.write("127.0.0.1", "127.0.0.2")
        self.read_until_asked(second)
        self.read_until_asked(first)
        self.write("127.0.0.2")
        self.read_until_left(first)
        self.read_until_asked(second)


class WithStagerd(Remote):
    """Both halves: two workers over the same pipeline."""

    def begin(self):
        stage_workers.need(self)
        values = "\n".join(str(n * 7919 % 100003) for n in range(3000))
        how = {"dataset": [{"files": {"pattern": [self.file("lines", values + "\n")]}}, {"text_line": {}},
                           {"shuffle": {"global": True, "seed": 3}}, {"batch": {"batch_size": 7}}, {"repeat": {"count": 2}}],
               "graph": [{"name": "value", "op": "string_to_number", "input": ["record"], "out_type": "int64"},
                         {"name": "half", "op": "cast", "input": ["value"], "dtype": "float32"},
                         {"name": "text", "op": "as_string", "input": ["value"]}]}
        self.pipeline(**how)
        token = self.file("token", "a-token-of-this-test\n")
        text = self.file("pipeline.yaml", json.dumps({"name": "served", **how, "staged": {"features": FEATURES}}))
        for number in range(2):
            self.workers.append(stage_workers.Stagerd(text, token, self.file(f"worker-{number}.log", "")))
        for worker in self.workers:
            worker.wait()
        return self.read(), {"token_file": token, "max_requests": 3, **how}

    def n_made(self):
        """How many batches of the run the workers made."""
        return int(self.status()["remote"].split()[0])

    def test_batches_of_workers_are_those_of_the_stage(self):
        local, how = self.begin()
        n_made = []

        def begun(n):
            if n == len(local):
                n_made.append(self.n_made())

        self.pipeline(self.workers, **how)
        self.check(local, self.read(begun))
        self.assertGreater(n_made[0], 0)

    def test_explain_says_what_workers_saved(self):
        local, how = self.begin()
        kept = []

        def begun(n):
            if n == len(local) - 1:
                kept.append(json.loads(self.daemon.ctl("explain", self.name, "--json")))
                kept.append(self.daemon.ctl("explain", self.name).decode())

        self.pipeline(**how)
        self.read(begun)
        self.assertIsNone(kept[0]["remote"])
        self.assertNotIn("workers made", kept[1])
        self.pipeline(self.workers, **how)
        self.check(local, self.read(begun))
        remote = kept[2]["remote"]
        self.assertGreater(remote["n_remote_items"], 0)
        self.assertLessEqual(remote["n_remote_items"] + remote["n_local_items"], len(local))
        for key in ("bytes", "answer_ns", "remote_cpu_ns", "alone_ns"):
            self.assertGreater(remote[key], 0, key)
        self.assertRegex(remote["text"], r"workers made \d+ % of the batches")
        self.assertRegex(kept[3], r"workers +workers made .*\n +\d+ of \d+ batches, .* a second; an answer takes ")
        self.assertRegex(kept[3], r"CPU time of a batch: \S+ \S+ in workers, ")

    def test_each_batch_comes_once_while_workers_are_killed(self):
        local, how = self.begin()
        rng, n_made = random.Random(SEED), []

        def begun(n):
            if n % 100 == 30:
                n_made.append(self.n_made())
                worker = rng.choice(self.workers)
                worker.close()
                worker.start()

        self.pipeline(self.workers, **how)
        self.check(local, self.read(begun))
        self.assertGreater(n_made[-1], 0)


if __name__ == "__main__":
    case.main()
