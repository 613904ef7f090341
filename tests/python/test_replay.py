#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams with replay_batches, and what `stagerctl explain --ideal` shows of them."""
import json
import os
import subprocess

import numpy as np

import case
import stager

SLEEP_US = 5000


def values(stream):
    return [batch["value"].tolist() for batch in stream]


class Replays(case.Case):
    def ctl(self, *arguments, status=0):
        done = subprocess.run([os.path.join(case.BUILD, "client/stagerctl/stagerctl"), *arguments], env=self.daemon.env(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60 * case.SLOW)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def ideal(self, name):
        return json.loads(self.ctl("explain", name, "--ideal", "--json"))["replays"]

    def test_the_first_batches_come_again_in_turn_and_it_ends(self):
        name = self.numbers(stop=200)
        with stager.open(name, replay_batches=10, replay_held=3) as stream:
            self.assertTrue(stream.is_replay)
            got = values(stream)
            run = [[2 * i, 2 * i + 1] for i in range(10)]
            self.assertEqual(got, run + [run[i % 3] for i in range(10)])
            info = stream.info
            self.assertEqual((info["replayed"], info["batches"], info["finished"]), (10, 20, True))
            self.assertGreater(info["run_step_ns"], 0)
            self.assertGreater(info["replay_step_ns"], 0)
            self.assertEqual(values(stream), [])
            with self.assertRaisesRegex(stager.OutOfRangeError, "the replay of pipeline .* is over: 10 batches were replayed"):
                stream.next()
        self.assertFalse(stager.open(name).is_replay)

    def test_a_pass_that_is_shorter_is_replayed_from_its_end_on(self):
        name = self.numbers(stop=12, batch_size=2)
        with stager.open(name, replay_batches=16) as stream:
            got = values(stream)
        run = [[2 * i, 2 * i + 1] for i in range(6)]
        self.assertEqual(got, run + [run[i % 4] for i in range(16)])

    def test_a_pass_that_is_too_short_is_an_error(self):
        with stager.open(self.numbers(stop=4), replay_batches=16) as stream:
            with self.assertRaisesRegex(stager.FailedPreconditionError, "has only 2 batches.*replay fewer, or repeat"):
                values(stream)

    def test_slices_come_again_in_their_order(self):
        name = self.numbers(stop=200, batch_size=6)
        with stager.open(name, replay_batches=8, replay_held=2, batch_size=3) as stream:
            got = values(stream)
        run = [[3 * i + k for k in range(3)] for i in range(8)]
        self.assertEqual(got, run + [run[i % 4] for i in range(8)])

    def test_what_a_trainer_writes_is_not_in_the_next_round(self):
        name = self.numbers(stop=200)
        with stager.open(name, replay_batches=8, replay_held=1, writable=True) as stream:
            got = []
            for batch in stream:
                got.append(batch["value"].tolist())
                array = np.asarray(batch["value"])
                array[:] = -1
                del array, batch
        self.assertEqual(got[8:], [[0, 1]] * 8)

    def test_a_graph_computes_the_same(self):
        more = {"name": "more", "op": "add", "input": ["staged:value", "staged:value"]}
        name = self.apply(dataset=[{"range": {"stop": 100}}, {"batch": {"batch_size": 2}}], graph=[more],
                          staged={"features": {"value": "value"}}, targets=["more"])
        with stager.open(name, replay_batches=8, replay_held=2) as stream:
            got = [np.asarray(stream.run(batch)[0]).tolist() for batch in stream]
        run = [[4 * i, 4 * i + 2] for i in range(8)]
        self.assertEqual(got, run + [run[i % 2] for i in range(8)])

    def test_it_has_no_place_and_says_so(self):
        name = self.numbers(stop=200)
        with stager.open(name) as other:
            other.next().release()
            state = other.state_dict()
        for key, value in (("state", state), ("resume", "start"), ("follow", True)):
            with self.assertRaisesRegex(stager.InvalidArgumentError, f"{key} excludes replay_batches"):
                stager.open(name, replay_batches=8, **{key: value})
        with self.assertRaisesRegex(stager.InvalidArgumentError, "replay_batches is 7; the minimum is 8"):
            stager.open(name, replay_batches=7)
        with self.assertRaisesRegex(stager.InvalidArgumentError, "replay_held are 258 together; the maximum is 256"):
            stager.open(name, replay_batches=8, replay_held=256)
        with stager.open(name, replay_batches=8) as stream:
            for _ in range(12):  # in the run, and in the replay
                stream.next().release()
                with self.assertRaisesRegex(stager.FailedPreconditionError, "has no state: its batches are not for training"):
                    stream.state_dict()
                with self.assertRaisesRegex(stager.FailedPreconditionError, "commits nothing"):
                    stream.commit(state, "tag")
                with self.assertRaisesRegex(stager.FailedPreconditionError, "takes no feed"):
                    stream.feed("rate", np.float32(1))

    def test_batches_in_hand_are_bounded_and_stay_after_close(self):
        stream = stager.open(self.numbers(stop=200), replay_batches=40, replay_held=2)
        for _ in range(40):
            stream.next().release()
        held = []
        with self.assertRaisesRegex(stager.Error, "would block forever: 4 batches are in hand"):
            while True:
                held.append(stream.next())
        self.assertEqual(len(held), 4)
        stream.close()
        self.assertEqual([batch["value"].tolist() for batch in held], [[0, 1], [2, 3]] * 2)

    def test_held_batches_count_on_the_memory_of_the_pipeline(self):
        name = self.apply(dataset=[{"range": {"stop": 100000}}, {"repeat": {}}, {"batch": {"batch_size": 65536}}],
                          staged={"memory_budget": "8MiB"})
        stager.open(name, private_run=True).close()
        with self.assertRaisesRegex(stager.ResourceExhaustedError, "memory"):
            stager.open(name, replay_batches=8, replay_held=64)

    def test_other_runs_are_not_disturbed(self):
        name = self.numbers(stop=200)
        with stager.open(name) as trainer:
            first = trainer.next()
            with stager.open(name, replay_batches=8) as stream:
                self.assertEqual(len(values(stream)), 16)
            self.assertEqual(trainer.next()["value"].tolist(), [2, 3])
            self.assertEqual(stager.status(name)["num_clients"], 1)
            del first

    def test_nothing_times_out_while_it_replays(self):
        """A run of on_timeout: drop would drop batches all the time, and compute new ones."""
        name = self.numbers(stop=1000000, on_timeout="drop", timeout_millis=1, capacity=2)
        with stager.open(name, replay_batches=8) as stream:
            for _ in range(9):
                stream.next().release()
            made = stream.info["dropped_batches"]
            with stager.open(name, private_run=True) as other:  # takes longer than the timeout
                for _ in range(200):
                    other.next().release()
            self.assertEqual((made, stream.info["dropped_batches"]), (0, 0))

    def test_explain_shows_both_halves(self):
        name = self.apply(dataset=[{"range": {"stop": 100000}}, {"batch": {"batch_size": 1}}],
                          graph=[{"name": "late", "op": "sleep", "input": ["value"], "sleep_microseconds": SLEEP_US}],
                          staged={"features": {"value": "late"}, "num_threads": 1, "capacity": 1})
        self.assertIn("none replayed batches", self.ctl("explain", name, "--ideal", status=1))
        with stager.open(name, client_id="slow", replay_batches=40) as stream:
            for batch in stream:
                del batch
            info = stream.info
        case.wait_until(lambda: self.ctl("explain", name, "--ideal") and self.ideal(name))
        (replay,) = self.ideal(name)
        self.assertEqual((replay["client_id"], replay["pid"], replay["held"]), ("slow", os.getpid(), 4))
        self.assertEqual((replay["run_batches"], replay["replay_batches"]), (30, 30))
        self.assertEqual(replay["run_ns"] // 30, info["run_step_ns"])
        self.assertEqual(replay["replay_ns"] // 30, info["replay_step_ns"])
        self.assertGreaterEqual(replay["run_ns"], 30 * SLEEP_US * 1000)  # the graph takes that long
        self.assertLessEqual(replay["run_wait_ns"], replay["run_ns"])
        speedup = replay["run_ns"] / replay["replay_ns"] - 1
        self.assertAlmostEqual(replay["speedup"], speedup, delta=0.001 * (1 + abs(speedup)))
        text = self.ctl("explain", name, "--ideal")
        self.assertRegex(text, r"measured by trainers that replayed batches")
        self.assertRegex(text, r"\n  TRAINER +BATCHES/S +REPLAYED +WAIT +PERFECT LOADER +MEASURED\n  slow ")
        self.assertIn("client slow", self.daemon.log())
        self.assertIn("replays the first batches of a private run, which is no training", self.daemon.log())
        stager.apply(json.dumps({"name": name, "dataset": [{"range": {"stop": 100}}, {"batch": {"batch_size": 1}}]}), replace=True)
        self.assertIn("none replayed batches", self.ctl("explain", name, "--ideal", status=1))


if __name__ == "__main__":
    case.main()
