#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerd ends and is started again while trainers train: they go on, and get every item once.

Each trainer is a process that reports its batches. The test ends stagerd at random points by SIGKILL and SIGTERM, starts it
again, and compares the items with those of a run that was not disturbed. The short form ends it four times for each delivery;
STG_RESTART_KILLS=100 does so more often, and STG_RESTART_SEED=n draws other points. Each delivery prints a line of figures.
"""
import collections
import json
import os
import random
import selectors
import signal
import subprocess
import sys
import threading
import time

import case
import stager

N_KILLS = int(os.environ.get("STG_RESTART_KILLS", "4"))
SEED = int(os.environ.get("STG_RESTART_SEED", "1"))
REACH = 30              # stagerd ends within so many events of its start
N_ITEMS, BATCH_SIZE = 60, 2     # of a pass
WAIT_S = 60 * case.SLOW

TRAINER = """
import json, os, sys, time
import stager
name, options, n_passes, how = json.loads(sys.argv[1])
def say(*words):
    os.write(1, (json.dumps([time.monotonic(), *words]) + "\\n").encode())
with stager.open(name, **options) as stream:
    say("open")
    sys.stdin.readline()
    n = 0
    for number in range(n_passes):
        for batch in stream:
            n += 1
            say("batch", batch.info.pass_, batch["value"].tolist())
            if how.get("commits") and n % how["commits"] == 0:
                stream.commit(stream.state_dict(), f"{n}")
                say("commit", f"{n}")
            time.sleep(how.get("pace", 0.002))
        say("end", number)
        time.sleep(how.get("rest", 0))
    info = stream.info
say("done", info["reconnects"], info["reconnect_ns"], info["batches"])
"""


class Trainer:
    """A process; its reports, and the longest time between two of its batches."""

    def __init__(self, daemon, name, n_passes, how=None, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, json.dumps([name, options, n_passes, how or {}])], env=daemon.env(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest, self.events, self.at = b"", [], None
        self.batches, self.gaps = [], []
        self.has_opened, self.is_over = False, False

    def read(self):
        """Takes in what it has reported; returns the number of events."""
        data = self.process.stdout.read() or b""
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            at, *words = json.loads(line)
            self.events.append(words)
            self.has_opened = True
            if words[0] == "batch":
                self.batches.append((words[1], tuple(words[2])))
                self.gaps.append((at, at - self.at if self.at is not None else 0.0))
                self.at = at
        self.is_over = not data and self.process.poll() is not None
        return len(lines)

    def go(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def gap_between(self, begin, end):
        """The longest time between two batches of which the second came in that time."""
        return max((gap for at, gap in self.gaps if begin < at <= end), default=0.0)

    def end(self):
        err = self.process.stderr.read().decode()
        for file in (self.process.stdin, self.process.stdout, self.process.stderr):
            file.close()
        return self.process.wait(), err


class Restart(case.Case):
    settings = {"memory_budget": "1GiB", "log_level": "info"}

    def setUp(self):
        self.draw = random.Random(f"{SEED} {self._testMethodName}")
        self.trainers, self.ends, self.starts = [], [], []
        self.addCleanup(self.kill_trainers)
        if self.daemon.process.poll() is not None:
            self.daemon.start()

    def kill_trainers(self):
        for trainer in self.trainers:
            if trainer.process.poll() is None:
                trainer.process.kill()
            if not trainer.process.stdout.closed:
                trainer.end()

    def make(self, name=None, **staged):
        """Shuffled numbers."""
        return stager.apply(json.dumps({
            "name": name or self._testMethodName[:60],
            "dataset": [{"range": {"stop": N_ITEMS * BATCH_SIZE}}, {"shuffle": {"buffer_size": 32, "seed": 7}},
                        {"batch": {"batch_size": BATCH_SIZE}}],
            "staged": staged}))

    def train(self, name, n_passes, how=None, **options):
        trainer = Trainer(self.daemon, name, n_passes, how, **options)
        self.trainers.append(trainer)
        return trainer

    def pump(self, until):
        """Reads reports until the condition holds; returns the number of events."""
        n, end = 0, time.monotonic() + WAIT_S
        with selectors.DefaultSelector() as selector:
            for trainer in self.trainers:
                if not trainer.is_over:
                    selector.register(trainer.process.stdout, selectors.EVENT_READ, trainer)
            while not until(n):
                if time.monotonic() > end:
                    raise case.Failed(f"no progress:\n{self.tails()}\n{self.daemon.log()[-3000:]}")
                for key, _ in selector.select(0.05):
                    n += key.data.read()
                    if key.data.is_over:
                        selector.unregister(key.fileobj)
                if not selector.get_map():
                    break
        return n

    def tails(self):
        return "\n".join(f"trainer {i}: {trainer.events[-3:]}" for i, trainer in enumerate(self.trainers))

    def begin(self):
        self.pump(lambda _: all(trainer.has_opened or trainer.is_over for trainer in self.trainers))
        for trainer in self.trainers:
            trainer.go()

    def end_stagerd(self, how):
        self.ends.append(time.monotonic())
        if how == signal.SIGTERM:
            self.assertEqual(self.daemon.stop(), 0)
        else:
            self.daemon.process.kill()
            self.daemon.process.wait()

    def start_stagerd(self):
        self.daemon.start()
        self.starts.append(time.monotonic())

    def restart(self, how=None):
        self.end_stagerd(how or self.draw.choice((signal.SIGKILL, signal.SIGTERM)))
        self.start_stagerd()

    def run_through(self, n_kills):
        """Ends and starts stagerd while the trainers train, then waits for their end."""
        self.begin()
        for _ in range(n_kills):
            n = self.draw.randrange(REACH)
            self.pump(lambda count, n=n: count >= n)
            if all(trainer.is_over for trainer in self.trainers):
                self.fail("the trainers ended before stagerd did: make the passes longer")
            self.restart()
        self.finish()

    def finish(self):
        self.pump(lambda _: all(trainer.is_over for trainer in self.trainers))
        for trainer in self.trainers:
            status, err = trainer.end()
            self.assertEqual(status, 0, err + self.tails())
            self.assertEqual(trainer.events[-1][0], "done")

    def undisturbed(self, n_passes, **staged):
        """The batches of a run that nothing disturbs, in order, of one client."""
        name = self.make(f"{self._testMethodName[:50]}-whole")
        batches = []
        with stager.open(name) as stream:
            for _ in range(n_passes):
                batches += [(batch.info.pass_, tuple(batch["value"].tolist())) for batch in stream]
        return batches

    def report(self, what, lost, duplicated):
        spans = zip(self.ends, [*self.ends[1:], float("inf")])
        gaps = sorted(max((trainer.gap_between(*span) for trainer in self.trainers), default=0.0) for span in spans)
        away = sorted(start - end for end, start in zip(self.ends, self.starts))
        print(f"{what}: stagerd ended {len(self.ends)} times, {lost} items lost, {duplicated} duplicated; longest gap of a "
              f"trainer {gaps[len(gaps) // 2]:.3f} s (most {gaps[-1]:.3f}), stagerd away {away[len(away) // 2]:.3f} s (most "
              f"{away[-1]:.3f})", flush=True)

    def compare(self, what, want):
        """Of a delivery in which each item goes to one trainer."""
        got = collections.Counter(batch for trainer in self.trainers for batch in trainer.batches)
        want = collections.Counter(want)
        lost, duplicated = sum((want - got).values()), sum((got - want).values())
        self.report(what, lost, duplicated)
        self.assertEqual((lost, duplicated), (0, 0))

    N_PASSES = 2 + N_KILLS

    # ---- deliveries ----

    def test_split_of_one(self):
        name = self.make()
        self.train(name, self.N_PASSES)
        self.run_through(N_KILLS)
        want = self.undisturbed(self.N_PASSES)
        self.compare("split, 1 client", want)
        self.assertEqual(self.trainers[0].batches, want)

    def check_split_of_three(self, what, **options):
        name = self.make(num_clients=3)
        n_passes = 3 * self.N_PASSES
        for i in range(3):
            self.train(name, n_passes, **{key: value.format(i) for key, value in options.items()})
        self.run_through(N_KILLS)
        self.compare(what, self.undisturbed(n_passes))

    def test_split_of_three_without_names(self):
        self.check_split_of_three("split, 3 clients")

    def test_split_of_three_with_names(self):
        self.check_split_of_three("split, 3 clients with names", client_id="trainer-{}")

    def check_round_robin(self, n_ranks, num_clients):
        name = self.make(delivery="round_robin", num_clients=num_clients)
        n_passes = n_ranks * self.N_PASSES
        for rank in range(n_ranks):
            self.train(name, n_passes, rank=rank, world_size=n_ranks)
        self.run_through(N_KILLS)
        want = self.undisturbed(n_passes)
        self.compare(f"round_robin, {n_ranks} ranks", want)
        for rank, trainer in enumerate(self.trainers):
            self.assertEqual(trainer.batches, want[rank::n_ranks])

    def test_round_robin_of_two(self):
        self.check_round_robin(2, 2)

    def test_round_robin_of_three(self):
        self.check_round_robin(3, "auto")

    def test_broadcast(self):
        name = self.make(delivery="broadcast", num_clients=2, capacity=4)
        for i in range(2):
            self.train(name, self.N_PASSES, client_id="ab"[i])
        self.run_through(N_KILLS)
        want = self.undisturbed(self.N_PASSES)
        self.compare("broadcast, 2 clients", want * 2)
        for trainer in self.trainers:
            self.assertEqual(trainer.batches, want)

    # ---- points ----

    def test_stagerd_ends_before_the_first_batch(self):
        name = self.make(delivery="round_robin", num_clients=2)
        for rank in range(2):
            self.train(name, 1, rank=rank, world_size=2)
        self.pump(lambda _: all(trainer.has_opened for trainer in self.trainers))
        self.restart(signal.SIGKILL)
        for trainer in self.trainers:
            trainer.go()
        self.finish()
        self.compare("round_robin, before the first batch", self.undisturbed(1))

    def test_stagerd_ends_at_the_end_of_a_pass(self):
        for how in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(how=how):
                self.trainers, self.ends, self.starts = [], [], []
                name = self.make(f"{self._testMethodName[:50]}-{int(how)}", num_clients=2)
                for _ in range(2):
                    self.train(name, 2, {"rest": 0.3})
                self.begin()
                self.pump(lambda _: any(["end", 0] in trainer.events for trainer in self.trainers))
                self.restart(how)
                self.finish()
                self.compare("split, at the end of a pass", self.undisturbed(2))

    def test_stagerd_ends_again_while_trainers_reconnect(self):
        name = self.make(num_clients=2)
        for _ in range(2):
            self.train(name, 3)
        self.begin()
        self.pump(lambda n: n > 20)
        for _ in range(4):
            self.restart(signal.SIGKILL)
        self.finish()
        self.compare("split, 4 ends in a row", self.undisturbed(3))

    # ---- trainers that end too ----

    def test_a_trainer_of_a_split_dies_with_stagerd(self):
        name = self.make(num_clients=2)
        for _ in range(2):
            self.train(name, 1)
        self.begin()
        self.pump(lambda n: n > 20)
        dead = self.trainers[1]
        self.daemon.process.kill()
        dead.process.kill()
        self.daemon.process.wait()
        dead.process.wait()
        dead.read()
        dead.end()
        self.start_stagerd()
        survivor, self.trainers = self.trainers[0], self.trainers[:1]
        self.finish()
        got, want = collections.Counter(survivor.batches), collections.Counter(self.undisturbed(1))
        self.assertEqual(want - (got + collections.Counter(dead.batches)), collections.Counter())    # none is lost
        self.assertLessEqual(max(got.values()), 1)
        twice = got & collections.Counter(dead.batches)
        self.assertLessEqual(sum(twice.values()), len(dead.batches))

    def test_a_rank_that_dies_with_stagerd_ends_the_run_by_name(self):
        name = self.make(delivery="round_robin", num_clients=2, reconnect_grace_millis=2000)
        for rank in range(2):
            self.train(name, 1, rank=rank, world_size=2)
        self.begin()
        self.pump(lambda n: n > 10)
        self.daemon.process.kill()
        self.trainers[1].process.kill()
        self.daemon.process.wait()
        self.trainers[1].process.wait()
        self.start_stagerd()
        self.pump(lambda _: all(trainer.is_over for trainer in self.trainers))
        status, err = self.trainers[0].end()
        self.assertNotEqual(status, 0)
        self.assertIn("AbortedError", err)
        self.assertIn("rank-1", err)

    def test_a_client_of_a_broadcast_dies_with_stagerd_and_the_other_goes_on(self):
        name = self.make(delivery="broadcast", num_clients=2, capacity=4)
        for i in range(2):
            self.train(name, 2, client_id="ab"[i])
        self.begin()
        self.pump(lambda n: n > 20)
        self.daemon.process.kill()
        self.trainers[1].process.kill()
        self.daemon.process.wait()
        self.trainers[1].process.wait()
        self.trainers[1].end()
        self.start_stagerd()
        self.trainers = self.trainers[:1]
        self.finish()
        self.assertEqual(self.trainers[0].batches, self.undisturbed(2))

    # ---- commits ----

    def test_commits_go_on(self):
        name = self.make()
        self.train(name, self.N_PASSES, {"commits": 3}, resume="start")
        self.run_through(N_KILLS)
        want = self.undisturbed(self.N_PASSES)
        self.assertEqual(self.trainers[0].batches, want)
        tags = [words[1] for words in self.trainers[0].events if words[0] == "commit"]
        self.assertEqual([commit["tag"] for commit in stager.commits(name)], tags[-16:])
        self.assertEqual(len({commit["attempt"] for commit in stager.commits(name)}), 1)
        with stager.open(name, resume=f"tag:{tags[-2]}") as stream:
            batch = stream.next()
            self.assertEqual((batch.info.pass_, tuple(batch["value"].tolist())), want[int(tags[-2])])
        for proof in stager.audit(name)["proofs"]:     # of a killed stagerd the last lines are not on disk
            self.assertEqual((proof["missing"]["items"], proof["twice"]["items"]), (0, 0), proof)

    # ---- one process ----

    def values_of(self, stream, n):
        return [tuple(stream.next(timeout=WAIT_S)["value"].tolist()) for _ in range(n)]

    def test_streams_of_one_process_go_on(self):
        names = [self.make(f"{self._testMethodName}-{i}") for i in range(3)]
        want = [values for _, values in self.undisturbed(1)]
        streams = [stager.open(name) for name in names]
        got = [self.values_of(stream, 3) for stream in streams]
        for how in (signal.SIGKILL, signal.SIGTERM):
            self.restart(how)
            for values, stream in zip(got, streams):
                values += self.values_of(stream, 4)
        for values, stream in zip(got, streams):
            self.assertEqual(values, want[:11])
            self.assertEqual(stream.info["reconnects"], 2)
            self.assertGreater(stream.info["reconnect_ns"], 0)
            self.assertFalse(stream.info["finished"])
            stream.close()

    def test_the_workers_of_a_py_function_come_back(self):
        modules = os.path.join(self.daemon.folder, "modules")
        os.makedirs(modules, exist_ok=True)
        with open(os.path.join(modules, "restart_functions.py"), "w", encoding="ascii") as file:
            file.write("def double(batch):\n    return {'value': batch['value'] * 2}\n")
        sys.path.insert(0, modules)
        self.addCleanup(sys.path.remove, modules)
        name = stager.apply(stager.range(1000).batch(2).py_function("restart_functions:double", pure=True)
                            .staged(name=self._testMethodName))
        waits = []
        with stager.open(name, workers=2) as stream:
            got = self.values_of(stream, 10)
            for how in (signal.SIGKILL, signal.SIGTERM):
                self.restart(how)
                begin = time.monotonic()
                while stream.info["reconnects"] < len(self.ends):
                    got += self.values_of(stream, 1)
                waits.append(time.monotonic() - begin)
                got += self.values_of(stream, 9)
        print(f"py_function: the next batch came {waits[0]:.3f} s and {waits[1]:.3f} s after the start of stagerd", flush=True)
        self.assertEqual(got, [(4 * i, 4 * i + 2) for i in range(len(got))])

    def test_batches_in_hand_stay_readable_and_views_of_released_ones_too(self):
        name = self.make()
        want = [values for _, values in self.undisturbed(1)]
        with stager.open(name, max_in_flight=4) as stream:
            held = [stream.next() for _ in range(3)]
            views = [batch["value"] for batch in held]
            self.restart(signal.SIGKILL)
            n = len(held)
            while stream.info["reconnects"] == 0:   # what lay in the ring comes first
                with stream.next(timeout=WAIT_S) as batch:
                    self.assertEqual(tuple(batch["value"].tolist()), want[n])
                n += 1
            self.assertEqual([tuple(view.tolist()) for view in views], want[:3])
            self.assertEqual(stream.info["held"], 3)
            held[0].release()
            self.assertEqual(len(views[0].tolist()), BATCH_SIZE)
            del held, views

    def test_a_wait_for_stagerd_has_a_deadline_and_a_reason(self):
        name = self.make()
        with stager.open(name) as stream:
            stream.next().release()
            self.end_stagerd(signal.SIGKILL)
            with self.assertRaisesRegex(stager.DeadlineExceededError, "stagerd has ended .* daemon_reconnect_millis left"):
                while True:     # first what is in the ring
                    stream.next(timeout=0.2).release()
            self.assertFalse(stream.info["finished"])
            self.start_stagerd()
            stream.next(timeout=WAIT_S).release()
            self.assertEqual(stream.info["reconnects"], 1)

    def test_a_wait_for_stagerd_ends_by_ctrl_c(self):
        name = self.make()
        program = case.Program(self.daemon, f"import stager\nstream = stager.open({name!r})\nprint('open', flush=True)\n"
                                            "input()\nwhile True: stream.next().release()\n")
        self.assertEqual(program.line(), "open")
        self.end_stagerd(signal.SIGKILL)
        program.say()
        time.sleep(0.3)     # until it waits
        program.interrupt()
        _, _, err = program.end()
        self.assertIn("KeyboardInterrupt", err)
        self.start_stagerd()

    def test_a_stream_waits_no_longer_than_it_was_told(self):
        name = self.make()
        for millis, text in ((0, "closed the connection"), (150, "did not come back within 150 ms")):
            with stager.open(name, daemon_reconnect_millis=millis) as stream:
                stream.next().release()
                self.end_stagerd(signal.SIGKILL)
                with self.assertRaisesRegex(stager.UnavailableError, text):
                    while True:
                        stream.next(timeout=WAIT_S).release()
                self.assertTrue(stream.info["finished"])
            self.start_stagerd()

    def test_batches_that_depend_on_timing_are_not_made_anew(self):
        name = self.make(deterministic=False)
        with stager.open(name) as stream:
            stream.next().release()
            self.restart(signal.SIGKILL)
            with self.assertRaisesRegex(stager.UnavailableError, "not the same in every run"):
                while True:
                    stream.next(timeout=WAIT_S).release()

    def test_a_pipeline_that_was_deleted_meanwhile_ends_the_stream(self):
        name = self.make()
        with stager.open(name) as stream:
            stream.next().release()
            self.end_stagerd(signal.SIGKILL)
            state = os.path.join(self.daemon.folder, "state")
            for folder, _, files in os.walk(state):
                for file in files:
                    if file.startswith(name):
                        os.unlink(os.path.join(folder, file))
            self.start_stagerd()
            with self.assertRaises((stager.NotFoundError, stager.AbortedError)):
                while True:
                    stream.next(timeout=WAIT_S).release()

    def test_files_that_are_added_meanwhile_begin_with_the_next_pass(self):
        def write(i):
            return self.file(f"{i}.txt", "".join(f"{i} {line}\n" for line in range(20)))
        pattern = write(0).replace("-0.txt", "-*.txt")
        name = stager.apply(json.dumps({"name": self._testMethodName[:60], "dataset": [
            {"files": {"pattern": pattern}}, "text_line", {"shuffle": {"buffer_size": 8}}, {"batch": {"batch_size": 2}}]}))
        with stager.open(name) as stream:
            batches = iter(stream)
            got = next(batches)["record"].tolist()
            self.end_stagerd(signal.SIGKILL)
            write(1)
            self.start_stagerd()
            got += [line for batch in batches for line in batch["record"].tolist()]
            self.assertEqual(sorted(got), sorted(b"0 %d" % line for line in range(20)))
            self.assertEqual(sum(len(batch["record"]) for batch in stream), 40)

    def test_another_thread_closes_a_stream_that_waits_for_stagerd(self):
        name = self.make()
        stream = stager.open(name)
        self.end_stagerd(signal.SIGKILL)
        closing = threading.Timer(0.3, stream.close)
        closing.start()
        with self.assertRaises(stager.CancelledError):
            while True:
                stream.next().release()
        closing.join()
        self.start_stagerd()


if __name__ == "__main__":
    case.main()
