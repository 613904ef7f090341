#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that come and go (docs/cluster.md): stagerds on loopback whose membership a real etcd has.

Three hosts, each a stagerd with two trainers, which go step by step as those of an all-reduce. Hosts are killed by SIGKILL and
join again; etcd is paused for longer than the lease, and killed. Each element is trained once with respect to the commits.
As root likewise on a network that delays, loses and parts, with a worker that makes batches for all hosts.
"""
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import case
import stager
from daemon import SLOW, Daemon
from network import Network
from test_cluster_network import Worker, missing_here, pipeline

BATCH, N, STEPS_PER_CHECKPOINT = 4, 1200, 4
KILLS = int(os.environ.get("STG_CLUSTER_KILLS", "3"))
SEED = int(os.environ.get("STG_CLUSTER_SEED", "0")) or random.randrange(1, 1 << 30)
LEASE = 1 + SLOW
STEADY_MILLIS = 500 + 200 * SLOW
NAME = "train"
SLOW_ARENA = os.environ.get("STG_SLOW_ARENA", "")   # tests/system/slow_arena.c
SHARD = [{"shard": {"num_shards": "auto"}}]


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Etcd:
    """host: of a network; else it listens on loopback. more: further options."""

    def __init__(self, host=None, more=()):
        self.host, self.more, self.folder = host, more, tempfile.mkdtemp(prefix="stg-etcd-")
        self.url = f"http://{host.address}:2379" if host else f"http://127.0.0.1:{free_port()}"
        self.peer = f"http://{host.address}:2380" if host else f"http://127.0.0.1:{free_port()}"
        self.process = None

    def is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return json.load(answer).get("health") == "true"
        except OSError:
            return False

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [*(self.host.prefix if self.host else ()), "etcd", "--data-dir", os.path.join(self.folder, "data"), "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
                 "--initial-cluster", f"default={self.peer}", "--unsafe-no-fsync", *self.more], stdout=log, stderr=log)
        deadline = time.monotonic() + 60 * SLOW
        while not (self.host.inside(self.is_healthy) if self.host else self.is_healthy()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("etcd did not start: " + open(os.path.join(self.folder, "log"), encoding="utf-8").read()[-2000:])
            time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def call(self, *arguments, check=True, stdin=subprocess.DEVNULL):
        return subprocess.run(["etcdctl", "--endpoints", self.url, *arguments], env={**os.environ, "ETCDCTL_API": "3"}, check=check,
                              stdin=stdin, capture_output=True, text=True).stdout

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.resume()
            self.kill()
        shutil.rmtree(self.folder)


def train():
    """A trainer: opens at the tag of the first line of stdin; then a line is a step, or a commit. Answers go to stdout."""
    options = json.loads(sys.stdin.readline())
    shows_hosts, shows_waits = options.pop("shows_hosts", False), options.pop("shows_waits", False)

    def say(**answer):
        print(json.dumps(answer), flush=True)

    try:
        with stager.open(NAME, timeout=120 * SLOW, **options) as stream:
            say(opened=True, **({"info": {key: stream.info[key] for key in ("hosts", "host", "hosts_generation")}} if shows_hosts else {}))
            batches = iter(stream)
            for line in sys.stdin:
                tag = line.strip()
                if tag:
                    try:
                        stream.commit(stream.state_dict(), tag)
                        say(committed=tag)
                    except stager.ResourceExhaustedError as error:  # the stream goes on
                        say(error=type(error).__name__, text=str(error))
                else:
                    began = time.monotonic()
                    batch = next(batches, None)
                    waited = {"wait_ms": 1000 * (time.monotonic() - began)} if shows_waits else {}
                    say(**waited, rows=None if batch is None else list(map(int, batch["value"])))
    except stager.Error as error:
        say(error=type(error).__name__, text=str(error))


class Trainer:
    def __init__(self, daemon, options):
        self.process = subprocess.Popen([sys.executable, __file__, case.BUILD, "--train"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=daemon.env())
        self.answers = queue.Queue()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.ask(json.dumps(options))

    def read(self):
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put({"error": "ended", "text": ""})

    def ask(self, line=""):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self, timeout=90):
        return self.answers.get(timeout=timeout * SLOW)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()


class Host:
    """prefix: of the command of its stagerd, such as that of a host of a network. staged: of another pipeline than that of a shuffle."""

    def __init__(self, etcd, n_trainers=2, n=N, seed=7, prefix=(), staged=None, **settings):
        self.trainers, self.n_trainers = [], n_trainers
        spec = {"endpoints": [etcd.url], "lease_seconds": LEASE, "steady_millis": STEADY_MILLIS,
                "rejoin_seconds": int(30 * SLOW), **settings}
        self.daemon = Daemon(case.BUILD, memory_budget="256MiB", cluster={"etcd": spec})
        self.daemon.prefix = list(prefix)
        self.daemon.start()
        delivery = {"delivery": "round_robin", "num_clients": "auto"}
        dataset = stager.range(n).shuffle(64, seed=seed).shard("auto").batch(BATCH)
        stager.apply(dataset.staged(name=NAME, **delivery) if staged is None else json.dumps(pipeline(SHARD, **delivery, **staged)),
                     runtime_dir=self.daemon.runtime_dir)

    def open(self, resume, **options):
        for trainer in self.trainers:
            trainer.close()
        self.trainers = [Trainer(self.daemon, {"resume": resume, "local_rank": rank, "local_size": self.n_trainers, **options})
                         for rank in range(self.n_trainers)]

    def is_dead(self):
        return self.daemon.process.poll() is not None

    def kill(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        for trainer in self.trainers:
            trainer.process.kill()

    def close(self):
        for trainer in self.trainers:
            trainer.close()
        self.daemon.close()

    def commits(self, **options):
        return [commit["tag"] for commit in stager.commits(NAME, runtime_dir=self.daemon.runtime_dir, **options)]


class Case(unittest.TestCase):
    maxDiff = None

    def start(self, etcd):
        self.etcd = etcd
        self.addCleanup(self.etcd.close)
        self.etcd.start()
        self.random = random.Random(SEED)

    def host(self, **options):
        host = Host(self.etcd, **options)
        self.addCleanup(host.close)
        return host

    def answers(self, hosts):
        return [trainer.answer() for host in hosts for trainer in host.trainers]

    def open(self, hosts, resume="start", **options):
        for host in hosts:
            host.open(resume, **options)
        answers = self.answers(hosts)
        self.assertEqual(answers, [{"opened": True}] * len(answers))

    def step(self, hosts):
        """The rows of a step of all trainers; None: the pass is over."""
        for host in hosts:
            for trainer in host.trainers:
                trainer.ask()
        answers = self.answers(hosts)
        for answer in answers:
            self.assertIn("rows", answer)
        if any(answer["rows"] is None for answer in answers):
            self.assertEqual({answer["rows"] is None for answer in answers}, {True}, "hosts have equally many batches")
            return None
        return [row for answer in answers for row in answer["rows"]]

    def commit(self, trainer, tag):
        trainer.ask(tag)
        return trainer.answer()

    def ends(self, trainer, text):
        """The next step of the trainer, or the one after it, is ABORTED with that text."""
        while True:
            trainer.ask()
            answer = trainer.answer()
            if "error" in answer:
                self.assertEqual(answer["error"], "AbortedError", answer)
                self.assertIn(text, answer["text"])
                self.assertIn("open the stream again at the last commit", answer["text"])
                return
            self.assertIn("rows", answer)

    # ---- faults at random ----

    def try_step(self, hosts):
        """As step; False: the generation is over, or a trainer was killed."""
        for host in hosts:
            for trainer in host.trainers:
                trainer.ask()
        answers = self.answers(hosts)
        for answer in answers:
            if "error" in answer:
                self.assertIn(answer["error"], ("AbortedError", "UnavailableError", "ended"), answer)
        if any("error" in answer for answer in answers):
            return False
        if any(answer["rows"] is None for answer in answers):
            self.assertEqual({answer["rows"] is None for answer in answers}, {True}, "hosts have equally many batches")
            return None
        return [row for answer in answers for row in answer["rows"]]

    def before_step(self):
        """Further faults, which cost time alone."""

    def disturb(self, hosts):
        """Kills a host, or takes etcd away for longer than the lease."""
        what = self.random.choice(("kill", "kill", "pause", "restart"))
        if what == "kill" and len(hosts) > 1:
            self.random.choice(hosts).kill()
        elif what == "pause":
            self.etcd.pause()
            time.sleep(1.5 * LEASE)
            self.etcd.resume()
        else:
            self.etcd.kill()
            self.etcd.start()

    def end_all(self, hosts):
        """A host is gone: the trainers of the others get ABORTED."""
        for trainer in (trainer for host in hosts if not host.is_dead() for trainer in host.trainers):
            self.ends(trainer, "generation")

    def attempt(self, hosts, resume, disturb_at):
        """Trains from the commit on. Faults that end no generation are followed by another one. Returns the rows up to the last
        commit, its tag, and whether the pass is over."""
        for host in hosts:
            host.open(resume)
        answers = self.answers(hosts)
        if any(answer != {"opened": True} for answer in answers):
            self.assertEqual({answer.get("error", "AbortedError") for answer in answers}, {"AbortedError"}, answers)
            return [], resume, False
        kept, rows, n = [], [], 0
        while True:
            if n == disturb_at:
                self.disturb(hosts)
                self.n_faults += 1
                if any(host.is_dead() for host in hosts):
                    self.end_all(hosts)
                    return kept, resume, False
                disturb_at = n + self.random.randrange(1, 12) if self.n_faults < KILLS else -1
            self.before_step()
            step = self.try_step(hosts)
            if not step:
                return (kept + rows, resume, True) if step is None else (kept, resume, False)
            n += 1
            rows += step
            if n % STEPS_PER_CHECKPOINT == 0:
                self.n_tags += 1
                answer = self.commit(self.random.choice(self.random.choice(hosts).trainers), f"c{self.n_tags}")
                if "error" in answer:
                    self.assertIn(answer["error"], ("AbortedError", "UnavailableError"), answer)
                    return kept, resume, False
                kept, rows, resume = kept + rows, [], f"tag:c{self.n_tags}"

    def train(self, every):
        """An epoch, on all hosts that live."""
        print(f"seed {SEED} (STG_CLUSTER_SEED)", flush=True)
        self.n_tags, self.n_faults, trained, resume, is_over = 0, 0, [], "start", False
        while not is_over:
            hosts = [host for host in every if not host.is_dead()]
            self.random.shuffle(hosts)
            disturb_at = self.random.randrange(0, 12) if self.n_faults < KILLS else -1
            rows, resume, is_over = self.attempt(hosts, resume, disturb_at)
            trained += rows
            for host in every:
                if host.is_dead() and self.random.random() < 0.5:
                    host.daemon.start()
        print(f"{self.n_faults} faults, {len(trained)} of {N} elements trained, {len(trained) - len(set(trained))} twice")
        self.assertEqual(len(trained), len(set(trained)))
        self.assertLess(N - len(trained), 6 * BATCH)


class TestEtcd(Case):
    def setUp(self):
        self.start(Etcd())

    # ---- the main path ----

    def test_a_host_is_killed_and_the_other_one_goes_on_at_the_last_commit(self):
        a, b = self.host(), self.host()
        self.open([a, b])
        rows = [row for _ in range(3) for row in self.step([a, b])]
        self.assertEqual(self.commit(a.trainers[0], "step-3"), {"committed": "step-3"})
        self.step([a, b])
        b.kill()
        for trainer in a.trainers:
            self.ends(trainer, "left: generation 2 of the hosts begins")
        self.assertEqual(a.commits(), ["step-3"])
        self.open([a], "tag:step-3")
        while True:
            step = self.step([a])
            if step is None:
                break
            rows += step
        self.assertEqual(len(rows), len(set(rows)))
        self.assertLess(N - len(rows), 2 * BATCH)

    def test_a_host_that_joins_sees_the_commits_and_the_others_begin_again_with_it(self):
        a, b = self.host(), self.host()
        self.open([a])
        rows = [row for _ in range(3) for row in self.step([a])]
        self.assertEqual(self.commit(a.trainers[1], "step-3"), {"committed": "step-3"})
        self.assertEqual(b.commits(), ["step-3"])
        b.open("current")
        for trainer in a.trainers:
            self.ends(trainer, "joined: generation 2 of the hosts begins")
        a.open("tag:step-3")
        self.assertEqual(self.answers([a, b]), [{"opened": True}] * 4)
        while True:
            step = self.step([a, b])
            if step is None:
                break
            rows += step
        self.assertEqual(len(rows), len(set(rows)))
        self.assertLess(N - len(rows), 4 * BATCH)

    def test_a_stream_names_its_host_and_the_generation(self):
        a, b = self.host(), self.host()
        for hosts, generation in (([a, b], 1), ([b], 2)):
            if a not in hosts:
                a.daemon.stop()
            for host in hosts:
                host.open("start", shows_hosts=True)
            shown = [answer["info"] for answer in self.answers(hosts)]
            self.assertEqual([info["host"] for info in shown[::2]], [info["host"] for info in shown[1::2]])
            self.assertEqual({info["host"] for info in shown}, set(range(len(hosts))))
            self.assertEqual({(info["hosts"], info["hosts_generation"]) for info in shown}, {(len(hosts), generation)})

    def test_a_host_that_ends_leaves_before_its_lease_does(self):
        a, b = self.host(lease_seconds=3600), self.host(lease_seconds=3600)
        self.open([a, b])
        b.daemon.stop()
        for trainer in a.trainers:
            self.ends(trainer, "left: generation 2 of the hosts begins")

    def test_trainers_that_begin_again_alone_end_the_generation(self):
        a, b = self.host(), self.host()
        self.open([a, b])
        self.step([a, b])
        b.open("start")
        for trainer in a.trainers:
            self.ends(trainer, "began again: generation 2 of the hosts begins")
        a.open("start")
        self.assertEqual(self.answers([a, b]), [{"opened": True}] * 4)

    @unittest.skipUnless(SLOW_ARENA, "STG_SLOW_ARENA does not name the library")
    def test_an_open_that_has_waited_long_for_the_hosts_has_time_for_its_memory(self):
        hold = os.path.join(self.etcd.folder, "hold")
        open(hold, "wb").close()
        a = self.host(steady_millis=27000,      # more than an open waits for memory
                      prefix=["env", f"LD_PRELOAD={SLOW_ARENA}", f"STG_HOLD={hold}"])
        a.open("start")
        case.wait_until(lambda: "generation 1 of the hosts" in a.daemon.log(), 90)
        self.assertEqual(self.ctl(a, "status", NAME)[0], 0)     # the loop turns: the open waits for memory
        os.unlink(hold)
        self.assertEqual(self.answers([a]), [{"opened": True}] * 2)

    def test_a_host_without_clients_leaves(self):
        a, b = self.host(), self.host()
        self.open([a, b])
        for trainer in b.trainers:
            trainer.close()
        for trainer in a.trainers:
            self.ends(trainer, "left: generation 2 of the hosts begins")

    def test_jobs_of_other_names_do_not_meet(self):
        a, b = self.host(), self.host()
        self.open([a], job="one")
        self.open([b], job="two")
        self.assertEqual(sorted(self.step([a])), sorted(self.step([b])))
        self.assertEqual(self.commit(a.trainers[0], "step-1"), {"committed": "step-1"})
        self.assertEqual((b.commits(job="one"), b.commits(job="two")), (["step-1"], []))

    # ---- fencing ----

    def test_a_host_that_was_lost_commits_nothing_more(self):
        a, b = self.host(), self.host()
        self.open([a, b])
        self.step([a, b])
        b.daemon.process.send_signal(signal.SIGSTOP)
        self.addCleanup(b.daemon.process.send_signal, signal.SIGCONT)
        for trainer in a.trainers:
            self.ends(trainer, "left: generation 2 of the hosts begins")
        self.open([a])
        self.step([a])
        self.assertEqual(self.commit(a.trainers[0], "step-1"), {"committed": "step-1"})
        b.trainers[0].ask("stale")
        b.daemon.process.send_signal(signal.SIGCONT)
        answer = b.trainers[0].answer()
        self.assertEqual(answer.get("error"), "AbortedError", answer)
        self.assertEqual(a.commits(), ["step-1"])

    def test_a_commit_is_made_once_and_a_tag_names_one_state(self):
        a, b = self.host(), self.host()
        self.open([a, b])
        self.step([a, b])
        trainers = a.trainers + b.trainers
        for trainer in trainers:
            trainer.ask("step-1")
        self.assertEqual([trainer.answer() for trainer in trainers], [{"committed": "step-1"}] * 4)
        self.assertEqual(a.commits(), ["step-1"])
        self.step([a, b])
        answer = self.commit(b.trainers[0], "step-1")
        self.assertEqual(answer.get("error"), "AlreadyExistsError", answer)
        self.assertIn("use a new tag for each checkpoint", answer["text"])

    # ---- etcd away ----

    def test_the_run_goes_on_while_etcd_is_away_and_commits_wait_for_it(self):
        a, b = (self.host(steady_millis=6000 * SLOW) for _ in range(2))
        self.open([a, b])
        for away, back in ((self.etcd.pause, self.etcd.resume), (self.etcd.kill, self.etcd.start)):
            rows = self.step([a, b])
            away()
            time.sleep(1.5 * LEASE)  # longer than the lease
            rows += self.step([a, b])
            self.assertEqual(len(set(rows)), 8 * BATCH)
            self.assertTrue(a.daemon.wait_for_log("the run goes on"))
            case.wait_until(lambda: stager.status(NAME, runtime_dir=a.daemon.runtime_dir)["commit_problem"])
            back()
            self.assertTrue(a.daemon.wait_for_log("cluster.etcd answers again"))
            self.step([a, b])
            self.assertEqual(self.commit(a.trainers[0], f"after-{back.__name__}"), {"committed": f"after-{back.__name__}"})
        self.assertNotIn("generation 2", a.daemon.log() + b.daemon.log())
        self.etcd.kill()
        answer = self.commit(b.trainers[0], "away")
        self.assertEqual(answer.get("error"), "UnavailableError", answer)

    # ---- what is refused ----

    def refused(self, hosts, error, *texts):
        for answer in self.answers(hosts):
            self.assertEqual(answer.get("error"), error, answer)
            for text in texts:
                self.assertIn(text, answer["text"])

    def ctl(self, host, *words):
        """(exit status, output, errors) of stagerctl."""
        done = subprocess.run([os.path.join(case.BUILD, "client/stagerctl/stagerctl"), *words], env=host.daemon.env(), capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_stagerctl_lists_the_commits_of_a_job(self):
        a, b = self.host(), self.host()
        self.open([a], job="first")
        self.step([a])
        self.assertEqual(self.commit(a.trainers[1], "step-1"), {"committed": "step-1"})
        status, out, errors = self.ctl(b, "commits", NAME, "--job", "first")
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(out.splitlines()[0].split(), ["TAG", "ATTEMPT", "PASS", "POSITION", "TIME", "CLIENT"])
        self.assertEqual(out.splitlines()[1].split()[:4], ["step-1", "1", "0", str(2 * BATCH)])
        status, out, _ = self.ctl(b, "commits", NAME, "--job", "first", "--json")
        reply = json.loads(out)
        self.assertEqual((status, reply["commits"], reply["n_left_out"]), (0, stager.commits(NAME, job="first", runtime_dir=b.daemon.runtime_dir), 0))
        self.assertEqual(self.ctl(b, "commits", NAME, "--job", "other")[:2], (0, f"No commits of {NAME} in job other.\n"))
        self.assertEqual(self.ctl(b, "commits", NAME)[:2], (0, f"No commits of {NAME}.\n"))
        status, _, errors = self.ctl(b, "commits", NAME, "--job", "first" + 60 * "x")
        self.assertEqual(status, 1)
        self.assertIn("job has more than 63 bytes", errors)

    def audit(self, host, items, *words):
        """(exit status, object) of stagerctl audit --json, once all that host delivered is acknowledged: `items` of the proof are."""
        status, out, errors = self.ctl(host, "audit", NAME, "--job", "run", "--json", *words)
        self.assertEqual(errors, "")
        proof, = json.loads(out)["proofs"]
        self.assertEqual((proof["items"], proof["acknowledged"] + proof["unacknowledged"]), (items, items), proof)
        return status, json.loads(out)

    def test_the_audit_of_each_host_proves_its_share_of_a_job(self):
        a, b = self.host(), self.host()
        self.open([a], job="run")
        for _ in range(3):
            self.step([a])
        self.assertEqual(self.commit(a.trainers[0], "step-3"), {"committed": "step-3"})
        for _ in range(2):
            self.step([a])
        b.open("current", job="run")
        for trainer in a.trainers:
            self.ends(trainer, "joined: generation 2 of the hosts begins")
        a.open("tag:step-3", job="run")
        self.assertEqual(self.answers([a, b]), [{"opened": True}] * 4)
        for _ in range(4):
            self.step([a, b])
        self.assertEqual(self.commit(b.trainers[0], "step-7"), {"committed": "step-7"})

        # Host a: 3 rounds of 2 items before the join, and 4 behind it, by the commit of the other host.
        status, audit = self.audit(a, 14)
        self.assertEqual((status, audit["job"], audit["proofs"][0]["from_start"], audit["proofs"][0]["exactly_once"]), (0, "run", True, True))
        first, second = audit["attempts"]
        self.assertEqual(([first[key] for key in ("generation", "host", "hosts", "base")], first["begins"]["from_generation"]), ([1, 0, 1, 0], 0))
        self.assertEqual([second[key] for key in ("generation", "hosts", "base")], [2, 2, 6 * BATCH])
        self.assertEqual([second["begins"][key] for key in ("item", "from_attempt", "from_generation", "tag")], [0, first["attempt"], 1, "step-3"])
        self.assertEqual([[commit["tag"] for commit in attempt["commits"]] for attempt in (first, second)], [["step-3"], ["step-7"]])
        self.assertEqual(audit, {"schema_version": 1, **stager.audit(NAME, job="run", runtime_dir=a.daemon.runtime_dir)})
        status, out, _ = self.ctl(a, "audit", NAME, "--job", "run")
        self.assertEqual(status, 0)
        self.assertIn("Exactly once up to pass 0, item 8, by attempts 1, 2.", out)
        self.assertIn("1: host 0 of 1", out)
        self.assertIn("the items of this host alone", out)

        # Host b has nothing of the first generation.
        status, audit = self.audit(b, 8)
        self.assertEqual((status, audit["proofs"][0]["from_start"]), (0, False))
        self.assertEqual({second["host"], audit["attempts"][0]["host"]}, {0, 1})
        self.assertIn("It begins at commit step-3 of generation 1, of which this audit has nothing.", self.ctl(b, "audit", NAME, "--job", "run")[1])

        # A file keeps the commits.
        path = os.path.join(a.daemon.runtime_dir, "a.audit")
        self.assertEqual(self.ctl(a, "audit", NAME, "--job", "run", "-o", path)[0], 0)
        self.assertIn("Exactly once up to pass 0, item 8, by attempts 1, 2.", self.ctl(a, "audit", path, "--job", "run")[1])

        # Other jobs, and none.
        for words, text in ((("--job", "other"), 'has no attempt of job "other" whose hosts etcd has; one of its jobs is "run"'),
                            ((), 'all attempts of train are of jobs whose commits etcd has: name one, such as --job "run"')):
            status, _, errors = self.ctl(a, "audit", NAME, *words)
            self.assertEqual(status, 1)
            self.assertIn(text, errors)
        self.assertEqual(self.ctl(a, "audit", NAME, path, "--job", "run")[0], 2)

    def test_hosts_that_begin_at_different_commits_are_named(self):
        a, b = self.host(), self.host()
        self.open([a])
        self.step([a])
        self.assertEqual(self.commit(a.trainers[0], "step-1"), {"committed": "step-1"})
        for trainer in a.trainers:
            trainer.close()
        a.open("tag:step-1")
        b.open("start")
        self.refused([a, b], "FailedPreconditionError", "begins at", "tag:step-1", "pass 0, position 0",
                     "begin at the same commit or state on all hosts")

    def test_hosts_with_different_pipelines_are_named(self):
        a, b = self.host(), self.host(seed=8)
        a.open("start")
        b.open("start")
        self.refused([a, b], "FailedPreconditionError", "have different pipelines")

    def test_an_open_without_a_place_is_refused_once_there_is_a_commit(self):
        a = self.host()
        self.open([a])
        self.step([a])
        self.assertEqual(self.commit(a.trainers[0], "step-1"), {"committed": "step-1"})
        a.open("exact")
        self.refused([a], "FailedPreconditionError", "has commits, the last one with tag step-1")
        a.open("tag:none")
        self.refused([a], "NotFoundError", "has no commit with tag none; the last ones: step-1")

    @unittest.skipUnless(shutil.which("etcdctl"), "etcdctl is not installed (etcd-client)")
    def test_a_wrong_password_is_named_and_an_open_waits_for_the_right_one(self):
        self.etcd.call("user", "add", "root:right")
        self.etcd.call("user", "grant-role", "root", "root")
        self.etcd.call("auth", "enable")
        path = os.path.join(self.etcd.folder, "password")
        with open(path, "w", encoding="ascii") as file:
            file.write("wrong\n")
        os.chmod(path, 0o600)
        a = self.host(user="root", password_file=path)
        a.open("start")
        self.assertTrue(a.daemon.wait_for_log("user root cannot log in"), a.daemon.log())
        self.assertNotIn("wrong", a.daemon.log())
        with open(path, "w", encoding="ascii") as file:
            file.write("right\n")
        self.assertEqual(self.answers([a]), [{"opened": True}] * 2)

    # ---- the example ----

    def start_example(self, host, files, folder):
        """The ranks of a host; their output goes to files in the folder of its stagerd."""
        ranks = []
        for rank in range(2):
            path = os.path.join(host.daemon.folder, f"rank-{rank}")
            env = {**host.daemon.env(), "LOCAL_RANK": str(rank), "LOCAL_SIZE": "2", "HOST": "127.0.0.1", "EVERY": "10", "STEP_SECONDS": "0.02"}
            with open(path, "w", encoding="ascii") as file:
                ranks.append(subprocess.Popen([sys.executable, os.path.join(case.HERE, "../../examples/cluster/elastic.py"), files, folder],
                                              stdout=file, stderr=file, env=env))
            self.addCleanup(ranks[-1].wait)
            self.addCleanup(ranks[-1].kill)
        return ranks

    def test_the_example_goes_on_when_a_host_is_lost(self):
        n = 4800    # no step of either number of hosts is incomplete
        a, b = self.host(), self.host()
        folder = os.path.join(a.daemon.folder, "run-7")
        files = os.path.join(a.daemon.folder, "numbers.txt")
        with open(files, "w", encoding="ascii") as file:
            file.writelines(f"{number}\n" for number in range(n))
        of_a, of_b = self.start_example(a, files, folder), self.start_example(b, files, folder)

        def has_commit():
            try:
                return stager.commits("elastic", job="run-7", runtime_dir=a.daemon.runtime_dir)
            except stager.NotFoundError:    # a rank applies the pipeline
                return False
        case.wait_until(has_commit, 60)
        b.kill()
        for trainer in of_b:
            trainer.kill()
        self.assertEqual([trainer.wait(120 * SLOW) for trainer in of_a], [0, 0], self.read(a, "rank-0"))
        out = self.read(a, "rank-0") + self.read(a, "rank-1")
        self.assertIn("of 2, generation 1, from step 0", out)
        self.assertRegex(out, r"rank 0 of host 0 of 1, generation \d+, from step [1-9]\d*0\n")
        self.assertIn("goes on at the last commit: ", out)
        self.assertIn(f" {n} rows, total {n * (n - 1) // 2}, mean ", out)

    @staticmethod
    def read(host, name):
        with open(os.path.join(host.daemon.folder, name), encoding="utf-8") as file:
            return file.read()

    # ---- faults at random ----

    def test_an_epoch_is_trained_once_while_hosts_and_etcd_are_killed(self):
        self.train([self.host() for _ in range(3)])


@unittest.skipIf(missing_here(), missing_here())
class TestNetwork(Case):
    """The hosts, etcd and a worker are network namespaces."""

    def setUp(self):
        self.network = Network(SEED, delay_ms=1, loss=0.01)
        self.addCleanup(self.network.close)
        self.start(Etcd(self.network.host()))

    def disturb(self, hosts):
        """Likewise; or a host is parted from etcd for longer than the lease."""
        if self.random.random() < 0.6:
            super().disturb(hosts)
            return
        self.network.part(self.random.choice(self.namespaces), self.etcd.host)
        time.sleep(1.5 * LEASE)
        self.network.join()

    def before_step(self):
        for host in self.every:
            if not host.is_dead():
                shown = stager.status(NAME, runtime_dir=host.daemon.runtime_dir).get("remote") or "0"
                self.n_made = max(self.n_made, int(shown.split()[0]))
        what = self.random.randrange(12)
        if what == 0 and self.worker.process.poll() is None:
            self.worker.kill()
        elif what < 3 and self.worker.process.poll() is not None:
            self.worker.start()

    def test_an_epoch_is_trained_once_while_hosts_etcd_and_the_worker_are_killed_and_parted(self):
        folder = tempfile.mkdtemp(prefix="stg-network-")
        self.addCleanup(shutil.rmtree, folder)
        self.worker = Worker(self.network.host(), folder, pipeline(SHARD))
        self.worker.start()
        self.addCleanup(self.worker.kill)
        case.wait_until(self.worker.is_ready, 60)
        self.namespaces = [self.network.host() for _ in range(3)]
        self.every, self.n_made = [self.host(prefix=host.prefix, staged=self.worker.remote()) for host in self.namespaces], 0
        self.train(self.every)
        print(f"the worker made up to {self.n_made} batches of a run")
        self.assertGreater(self.n_made, 0)


if __name__ == "__main__":
    if "--train" in sys.argv:
        train()
    elif not shutil.which("etcd"):
        print("skipped: etcd is not installed (etcd-server)")
        sys.exit(77)
    else:
        case.main()
