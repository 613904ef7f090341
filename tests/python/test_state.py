#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""States of streams: taken, loaded by other clients, and refused."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import case
import stager

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, "../../../shared/data/criteo/criteo_sample.txt")
MAKE_ROWS = os.path.join(HERE, "../data/make_criteo.py")
N_ROWS = 200


def sums(batches):
    """A digest of the bytes of each batch."""
    return [hashlib.sha1(b"\n".join(batch["record"].tolist())).hexdigest() for batch in batches]


def records(batches):
    return [record for batch in batches for record in batch["record"].tolist()]


def values(batches):
    return [batch["value"].tolist() for batch in batches]


def some(stream, n, of=sums):
    """The first n batches, one in hand at a time."""
    got = []
    for _ in range(n):
        got += of([stream.next()])
    return got


class Case(case.Case):
    PARSE = {"graph": [{"name": "n", "op": "string_to_number", "input": ["record"]}]}

    def rows(self):
        """Criteo's rows in three files."""
        if os.path.exists(SAMPLE):
            with open(SAMPLE, "rb") as file:
                lines = file.read().splitlines(keepends=True)[1:N_ROWS + 1]
        else:
            path = self.file("made.csv", "")
            subprocess.run([sys.executable, MAKE_ROWS, "--rows", str(N_ROWS), "--seed", "1", "--out", path], check=True)
            with open(path, "rb") as file:
                lines = file.read().splitlines(keepends=True)[1:]
        self.assertEqual(len(lines), N_ROWS)
        folder = os.path.join(self.daemon.folder, self._testMethodName)
        os.makedirs(folder, exist_ok=True)
        for i, part in enumerate((lines[:70], lines[70:140], lines[140:])):
            with open(os.path.join(folder, f"{i}.csv"), "wb") as file:
                file.write(b"".join(part))
        return folder

    def criteo(self, folder, batch_size=16, seed=7, name=None, steps=(), **staged):
        return stager.apply(json.dumps({
            "name": name or self._testMethodName[:60],
            "dataset": [{"files": {"pattern": f"{folder}/*.csv", "seed": 3}}, "text_line",
                        {"shuffle": {"buffer_size": 64, "seed": seed}}, *steps, {"batch": {"batch_size": batch_size}}],
            "staged": staged}), replace=True)

    def items(self, stream):
        """What each batch has, and the line of each error."""
        while True:
            try:
                yield stream.next()["n"].tolist()
            except stager.InvalidArgumentError as error:
                yield error.line
            except stager.OutOfRangeError:
                return


class Resume(Case):
    def test_a_state_resumes_at_every_batch_of_two_passes(self):
        name = self.criteo(self.rows())
        with stager.open(name, private_run=True) as stream:
            every = [sums_of for _ in range(2) for sums_of in self.one_pass(stream)]
        self.assertEqual(len(every), 26)
        for k in range(len(every) + 1):
            with stager.open(name, private_run=True) as stream:
                self.walk(stream, k)
                state = stream.state_dict()
            with stager.open(name, state=state) as stream:
                rest = self.walk(stream, len(every) - k)
            self.assertEqual(rest, every[k:], f"after {k} batches")

    @staticmethod
    def one_pass(stream):
        got = []
        for batch in stream:
            got += sums([batch])
        return got

    @staticmethod
    def walk(stream, n):
        """n batches, over the ends of passes."""
        got, loop = [], iter(stream)
        while len(got) < n:
            batch = next(loop, None)
            if batch is None:
                loop = iter(stream)
            else:
                got += sums([batch])
                del batch
        return got

    def test_a_trainer_that_is_killed_anywhere_goes_on_at_its_checkpoint(self):
        name = self.criteo(self.rows())
        with stager.open(name, private_run=True) as stream:
            every = self.one_pass(stream)
        got, state = [], "null"
        code = ("import json, sys, stager, hashlib\n"
                "state = json.loads(sys.argv[2])\n"
                "with stager.open(sys.argv[1], state=state) as stream:\n"
                "    for batch in stream:\n"
                "        print(hashlib.sha1(b'\\n'.join(batch['record'].tolist())).hexdigest())\n"
                "        print(json.dumps(stream.state_dict()), flush=True)\n"
                "        sys.stdin.readline()\n")
        n_kills = 0
        while len(got) < len(every):
            process = subprocess.Popen([sys.executable, "-c", code, name, state], env=self.daemon.env(), text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(2 + n_kills % 3):
                line = process.stdout.readline().strip()
                if not line:
                    break
                got.append(line)
                state = process.stdout.readline().strip()
                process.stdin.write("\n")
                process.stdin.flush()
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()
            n_kills += 1
        self.assertGreater(n_kills, 3)
        self.assertEqual(got, every)

    def test_another_batch_size_goes_on_at_the_right_row(self):
        folder = self.rows()
        name = self.criteo(folder, batch_size=16)
        with stager.open(name, private_run=True) as stream:
            every = some(stream, 13, records)
        self.assertEqual(len(every), N_ROWS)
        for k, batch_size in ((1, 10), (3, 7), (5, 64), (12, 1)):
            with stager.open(name, private_run=True) as stream:
                some(stream, k)
                state = stream.state_dict()
            other = self.criteo(folder, batch_size=batch_size, name=f"other-{batch_size}", num_threads=2, capacity=3)
            with stager.open(other, state=state) as stream:
                rest = []
                for batch in stream:
                    rest += records([batch])
            self.assertEqual(rest, every[16 * k:])

    def test_slices_resume_between_two_of_them_and_with_another_size(self):
        name = self.criteo(self.rows(), batch_size=16)
        with stager.open(name, private_run=True) as stream:
            every = some(stream, 13, records)
        for k, batch_size in ((1, 4), (2, 8), (3, 4), (7, 4), (7, 2), (5, None), (3, 1)):
            with stager.open(name, private_run=True, batch_size=4) as stream:
                some(stream, k)
                state = stream.state_dict()
            with stager.open(name, private_run=True, state=state, batch_size=batch_size) as stream:
                self.assertEqual(stream.state_dict()["pass"], 0)
                rest = []
                for batch in stream:
                    rest += records([batch])
            self.assertEqual(rest, every[4 * k:], f"{k} slices, then {batch_size}")

    def test_epoch_twenty_is_reached_without_the_ones_before(self):
        name = self.criteo(self.rows())
        with stager.open(name) as stream:
            for _ in range(20):
                self.one_pass(stream)
            iter(stream)
            some(stream, 5)
            state = stream.state_dict()
            rest = some(stream, 8)
        self.assertEqual(state["pass"], 20)
        stager.delete(name)
        name = self.criteo(os.path.join(self.daemon.folder, self._testMethodName))
        with stager.open(name, state=state) as stream:
            self.assertEqual(some(stream, 8), rest)
            self.assertLess(stager.status(name)["made"], 13)
            self.assertEqual(stream.state_dict()["pass"], 20)

    def test_a_stream_goes_to_any_pass_before_or_behind_also_in_the_middle_of_a_loop(self):
        name = self.criteo(self.rows())
        with stager.open(name) as stream:
            first = self.one_pass(stream)
            begin_second = stream.state_dict()
            iter(stream)
            second = some(stream, 4)
            in_second = stream.state_dict()
            second += some(stream, 9)
            stream.load_state_dict(in_second)
            self.assertEqual(some(stream, 9), second[4:])
            stream.load_state_dict(begin_second)
            self.assertEqual(self.one_pass(stream), second)
            self.assertNotEqual(first, second)
            stream.load_state_dict(in_second)
            stream.load_state_dict(in_second)
            self.assertEqual(stream.state_dict(), in_second)
            self.assertEqual(some(stream, 1), second[4:5])

    def test_the_graph_draws_the_same_random_numbers_after_a_state(self):
        name = self.apply(dataset=[{"range": {"stop": 60}}, {"batch": {"batch_size": 4}}, {"repeat": {"count": 2}}],
                          graph=[{"name": "row", "op": "reshape", "input": ["value"], "shape": [1, 4, 1]},
                                 {"name": "image", "op": "cast", "input": ["row"], "dtype": "uint8"},
                                 {"name": "noise", "op": "random_flip", "input": ["image"], "seed": 5}],
                          staged={"features": {"noise": "noise", "value": "value"}})
        with stager.open(name, private_run=True) as stream:
            every = []
            for batch in stream:
                every.append((batch["noise"].tolist(), batch["value"].tolist()))
        self.assertNotEqual([noise for noise, _ in every[:15]], [noise for noise, _ in every[15:]])
        for k in (1, 14, 15, 16, 29):
            with stager.open(name, private_run=True) as stream:
                some(stream, k, values)
                state = stream.state_dict()
            with stager.open(name, private_run=True, state=state) as stream:
                rest = []
                for batch in stream:
                    rest.append((batch["noise"].tolist(), batch["value"].tolist()))
            self.assertEqual(rest, every[k:])

    def resumes_after_each(self, name, every):
        with stager.open(name, private_run=True) as stream:
            self.assertEqual(list(self.items(stream)), every)
        for k in range(len(every) + 1):
            with stager.open(name, private_run=True) as stream:
                reader = self.items(stream)
                for _ in range(k):
                    next(reader)
                state = stream.state_dict()
            with stager.open(name, private_run=True, state=state) as stream:
                self.assertEqual(list(self.items(stream)), every[k:], f"after {k} items")

    def test_error_items_are_delivered_once(self):
        path = self.file("rows", "1\n2\nx\n4\ny\n6\n")
        name = self.apply(dataset=[{"files": {"pattern": path}}, "text_line", {"batch": {"batch_size": 1}}],
                          staged={"features": {"n": "n"}}, **self.PARSE)
        self.resumes_after_each(name, [[1.0], [2.0], 3, [4.0], 5, [6.0]])

    def test_an_error_item_that_passes_half_a_batch_is_delivered_once(self):
        path = self.file("rows", "1\nx\n3\n4\ny\n6\n")
        name = self.apply(dataset=[{"files": {"pattern": path}}, "text_line",
                                   {"map": {**self.PARSE, "output": {"n": "n"}}}, {"batch": {"batch_size": 2}}])
        self.resumes_after_each(name, [2, [1.0, 3.0], 5, [4.0, 6.0]])

    def test_a_part_of_a_batch_that_an_error_passed_needs_slices_of_that_size(self):
        path = self.file("rows", "1\nx\n3\n4\n5\n6\n7\n8\n9\n")
        name = self.apply(dataset=[{"files": {"pattern": path}}, "text_line",
                                   {"map": {**self.PARSE, "output": {"n": "n"}}}, {"batch": {"batch_size": 4}}])
        with stager.open(name, batch_size=1) as stream:
            reader = self.items(stream)
            self.assertEqual([next(reader) for _ in range(3)], [2, [1.0], [3.0]])
            state = stream.state_dict()
        with stager.open(name, batch_size=2, state=state) as stream:
            self.assertEqual(list(self.items(stream)), [[4.0, 5.0], [6.0, 7.0], [8.0, 9.0]])
        with self.assertRaisesRegex(stager.FailedPreconditionError, "2 rows after the start .* batch_size that divides"):
            stager.open(name, state=state)

    def test_ignored_items_are_counted(self):
        path = self.file("rows", "1\n2\nx\n4\ny\n6\n")
        name = self.apply(dataset=[{"files": {"pattern": path}}, "text_line", {"batch": {"batch_size": 1}}],
                          graph=[{"name": "n", "op": "string_to_number", "input": ["record"]}],
                          staged={"features": {"n": "n"}, "ignored_exception_types": ["INVALID_ARGUMENT"]})
        every = [[1.0], [2.0], [4.0], [6.0]]
        for k in range(5):
            with stager.open(name, private_run=True) as stream:
                for _ in range(k):
                    stream.next().release()
                state = stream.state_dict()
            with stager.open(name, private_run=True, state=state) as stream:
                self.assertEqual([batch["n"].tolist() for batch in stream], every[k:])

    def test_a_state_is_of_what_the_loop_has_and_not_of_what_is_ahead(self):
        name = self.numbers(stop=24, capacity=8)
        with stager.open(name, private_run=True, device=lambda batch: batch["value"].tolist()) as stream:
            loop = iter(stream)
            got = [next(loop), next(loop)]
            state = stream.state_dict()
            later = [next(loop) for _ in range(3)]
        self.assertEqual((got, state["position"]), ([[0, 1], [2, 3]], 4))
        with stager.open(name, private_run=True, state=state) as stream:
            self.assertEqual(values(stream.next() for _ in range(1)), later[:1])

    def test_a_state_is_a_small_value_and_takes_no_time(self):
        name = self.criteo(self.rows(), steps=[{"map": {
            "graph": [{"name": "r", "op": "identity", "input": ["record"]}], "output": {"record": "r"}}}] * 8)
        with stager.open(name, private_run=True) as stream:
            some(stream, 3)
            state = stream.state_dict()
            text = json.dumps(state)
            some(stream, 3)
            self.assertEqual(json.dumps(state), text)
            self.assertLessEqual(len(text), 1024)
            begin = time.process_time()  # of a busy machine, other programs' time does not count
            for _ in range(1000):
                stream.state_dict()
            self.assertLess((time.process_time() - begin) / 1000, 0.001 * case.SLOW)
            self.assertEqual(stream.get_state(), stream.state_dict())
            stream.set_state(state)
            self.assertEqual(stream.state_dict(), state)


class Refused(Case):
    def state(self, name, n=3):
        with stager.open(name, private_run=True) as stream:
            some(stream, n)
            return stream.state_dict()

    def refuses(self, name, state, kind, text, **options):
        for _ in range(2):
            with self.assertRaisesRegex(kind, text):
                stager.open(name, state=state, **options)
        with stager.open(name) as stream:   # the pipeline is as it was
            some(stream, 1)

    def test_another_pipeline_is_named_part_by_part(self):
        folder = self.rows()
        state = self.state(self.criteo(folder))
        precondition = stager.FailedPreconditionError
        self.refuses(self.criteo(folder, seed=8), state, precondition, r"the seed of step shuffle \(number 3\) is 8, in the state 7")
        self.refuses(self.criteo(folder, steps=[{"take": {"count": 100}}]), state, precondition, "part 4 is take, in the state batch")
        other = stager.apply(json.dumps({
            "name": self._testMethodName[:60], "dataset": [
                {"files": {"pattern": f"{folder}/*.csv", "seed": 3}}, "text_line", {"shuffle": {"buffer_size": 32, "seed": 7}},
                {"batch": {"batch_size": 16}}]}), replace=True)
        self.refuses(other, state, precondition, r"step shuffle \(number 3\) has other attributes")
        other = stager.apply(json.dumps({
            "name": self._testMethodName[:60], "dataset": [
                {"files": {"pattern": f"{folder}/*.csv", "seed": 3}}, "text_line", {"shuffle": {"buffer_size": 64, "seed": 7}},
                {"batch": {"batch_size": 16}}],
            "staged": {"features": {"record": "record", "again": "record"}}}), replace=True)
        self.refuses(other, state, precondition, "the features before the boundary differ")

    def test_other_files_are_named(self):
        folder = self.rows()
        name = self.criteo(folder)
        state = self.state(name)
        with stager.open(name, private_run=True) as stream:
            for batch in stream:
                del batch
            at_start = stream.state_dict()
        with open(f"{folder}/3.csv", "w", encoding="ascii") as file:
            file.write("new\n")
        precondition = stager.FailedPreconditionError
        self.refuses(name, state, precondition, "3.csv: the file was added since")
        os.unlink(f"{folder}/3.csv")
        with open(f"{folder}/1.csv", "ab") as file:
            file.write(b"one more row\n")
        self.refuses(name, state, precondition, r"1.csv: the file has (\d+) bytes, and had (\d+) when")
        with stager.open(name, state=at_start) as stream:   # the files of a pass are those at its start
            some(stream, 1)
        os.unlink(f"{folder}/1.csv")
        self.refuses(name, state, precondition, r"2 files of \d+ bytes now, 3 of \d+ then \(files were removed\)")

    def test_files_may_move_together(self):
        folder = self.rows()
        name = self.criteo(folder)
        with stager.open(name, private_run=True) as stream:
            some(stream, 3)
            state = stream.state_dict()
            rest = some(stream, 5)
        os.rename(folder, f"{folder}-moved")
        with stager.open(self.criteo(f"{folder}-moved", name="moved"), state=state) as stream:
            self.assertEqual(some(stream, 5), rest)

    def test_a_damaged_state_is_refused_by_the_call_and_changes_nothing(self):
        name = self.criteo(self.rows())
        state = self.state(name)
        text = json.dumps({key: value for key, value in state.items() if key != "epoch"})
        with stager.open(name) as stream:
            before = some(stream, 2)
            for bad, why in (({**state, "position": state["position"] + 16}, "edited"), ({**state, "new": 1}, "unknown"),
                             ({**state, "stager_state": 2}, "has version 2, and this release reads version 1"),
                             ({"version": 1, "pipeline": name, "batches": 3}, "not a state"), (text[:-5], "truncated"),
                             (text[:40], "truncated|missing"), ({}, "not a state"), ("", "not a state")):
                with self.assertRaisesRegex(stager.InvalidArgumentError, why):
                    stream.load_state_dict(bad)
            self.assertEqual(len(before), 2)
            some(stream, 1)
        with self.assertRaisesRegex(stager.InvalidArgumentError, "edited"):
            stager.open(name, state={**state, "position": 0})

    def test_a_position_beyond_the_pass_is_refused(self):
        folder = self.rows()
        name = self.apply(dataset=[{"files": {"pattern": f"{folder}/*.csv", "seed": 3}}, "text_line",
                                   {"batch": {"batch_size": 10}}])
        state = self.state(name, 19)
        for i in range(3):      # the same sizes, and fewer lines
            path = f"{folder}/{i}.csv"
            size = os.path.getsize(path)
            with open(path, "wb") as file:
                file.write(b"x" * (size - 1) + b"\n")
        self.refuses(name, state, stager.OutOfRangeError, "190 elements of the pass, which has 3")

    def test_batches_that_depend_on_timing_have_no_state_unless_approximate(self):
        rows = stager.range(100).batch(2)
        name = stager.apply(stager.staged(rows, name="drops"))
        with stager.open(name) as stream:
            some(stream, 2, values)
            with self.assertRaisesRegex(stager.FailedPreconditionError, "on_timeout: drop"):
                stream.state_dict()
        with stager.open(name, resume="approximate") as stream:
            some(stream, 2, values)
            state = stream.state_dict()
        with self.assertRaisesRegex(stager.FailedPreconditionError, 'resume="approximate"'):
            stager.open(name, state=state)
        with stager.open(name, state=state, resume="approximate") as stream:
            stream.next()
        with self.assertRaisesRegex(stager.InvalidArgumentError, '"exact", "approximate", "current" and "tag:NAME"'):
            stager.open(name, resume="never")
        self.assertEqual(stager.check(rows.staged())["reproducible"], "yes")
        self.assertIn("on_timeout: drop", stager.check(stager.staged(rows))["reproducible"])
        self.assertIn("deterministic: false", stager.check(rows.staged(deterministic=False))["reproducible"])

    def test_split_among_several_has_no_state(self):
        name = self.numbers(stop=40, num_clients=2)
        state = self.state_of_numbers()
        with stager.open(name) as stream:
            stream.next()
            with self.assertRaisesRegex(stager.FailedPreconditionError, "delivery: split gives a batch to the client that is free"):
                stream.state_dict()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "delivery: split"):
            stager.open(name, state=state)

    def state_of_numbers(self):
        name = self.apply(name="numbers-alone", dataset=[{"range": {"stop": 40}}, {"batch": {"batch_size": 2}}])
        with stager.open(name) as stream:
            stream.next()
            return stream.state_dict()


class Deliveries(Case):
    def numbers_of(self, name, n, delivery, num_clients, **staged):
        return stager.apply(json.dumps({
            "name": name, "dataset": [{"range": {"stop": n}}, {"shuffle": {"buffer_size": 16, "seed": 3}},
                                      {"batch": {"batch_size": 2}}],
            "staged": {"delivery": delivery, "num_clients": num_clients, **staged}}), replace=True)

    def steps(self, ranks, n):
        return [values([rank.next()])[0] for _ in range(n) for rank in ranks]

    def ranks(self, name, n, **options):
        return [stager.open(name, rank=rank, world_size=n, **options) for rank in range(n)] if n > 1 \
            else [stager.open(name, **options)]

    def test_the_ranks_of_a_step_have_one_state_that_restores_any_number_of_them(self):
        every = self.steps([stager.open(self.numbers_of("alone", 48, "split", 1))], 24)
        for before, after in ((2, 1), (1, 2), (2, 4), (2, 2), (4, 2)):
            name = self.numbers_of(f"b{before}-{after}", 48, "round_robin", before)
            ranks = self.ranks(name, before)
            n = 8 // before
            self.assertEqual(self.steps(ranks, n), every[:8])
            states = [rank.state_dict() for rank in ranks]
            self.assertEqual(states, [states[0]] * before)
            for rank in ranks:
                rank.close()
            name = self.numbers_of(f"a{before}-{after}", 48, "round_robin", after)
            ranks = self.ranks(name, after, state=states[-1])
            self.assertEqual(self.steps(ranks, 8 // after), every[8:16])
            for rank in ranks:
                rank.close()

    def test_a_restart_of_all_ranks_needs_no_delete(self):
        name = self.numbers_of("again", 48, "round_robin", 2)
        ranks = self.ranks(name, 2)
        first = self.steps(ranks, 3)
        state = ranks[0].state_dict()
        second = self.steps(ranks, 3)
        for rank in ranks:
            rank.close()        # in the middle: their places are reserved
        ranks = self.ranks(name, 2)
        for rank in ranks:
            rank.load_state_dict(state)
        self.assertEqual(self.steps(ranks, 3), second)
        for rank in ranks:      # in the middle of a run too
            rank.load_state_dict(state)
        self.assertEqual(self.steps(ranks, 3), second)
        self.assertNotEqual(first, second)
        for rank in ranks:
            rank.close()

    def test_ranks_with_other_states_or_none_are_refused_by_name(self):
        name = self.numbers_of("members", 48, "round_robin", 2)
        ranks = self.ranks(name, 2)
        self.steps(ranks, 2)
        early = ranks[0].state_dict()
        self.steps(ranks, 2)
        late = ranks[0].state_dict()
        for rank in ranks:
            rank.close()
        first = stager.open(name, rank=0, world_size=2, state=late)
        with self.assertRaisesRegex(stager.FailedPreconditionError, "must load the state of one step; loaded: rank-0"):
            stager.open(name, rank=1, world_size=2, state=early)
        with stager.open(name, rank=1, world_size=2) as second:
            with self.assertRaisesRegex(stager.FailedPreconditionError, "load the same state in every client"):
                second.next(timeout=20)
        second = stager.open(name, rank=1, world_size=2, state=late)
        self.steps([first, second], 2)
        first.close()
        second.close()

    def test_an_error_item_inside_a_round_is_told_once_to_each_rank(self):
        lines = [str(i) for i in range(16)]
        lines[5] = "x"
        path = self.file("rows", "\n".join(lines) + "\n")
        name = self.apply(dataset=[{"files": {"pattern": path}}, "text_line", {"batch": {"batch_size": 1}}],
                          graph=[{"name": "n", "op": "string_to_number", "input": ["record"]}],
                          staged={"features": {"n": "n"}, "delivery": "round_robin", "num_clients": 2})

        def step(ranks):
            got = []
            for rank in ranks:
                try:
                    got.append(rank.next()["n"].tolist()[0])
                except stager.InvalidArgumentError as error:
                    got.append(-error.line)
            return got
        ranks = self.ranks(name, 2)
        every, states = [], []
        for _ in range(8):
            every.append(step(ranks))
            states.append([rank.state_dict() for rank in ranks])
        self.assertEqual(every[:5], [[0, 1], [2, 3], [-6, -6], [4, 6], [7, 8]])
        for rank in ranks:
            rank.close()
        for k, state in enumerate(states):
            self.assertEqual(state[0], state[1])
            ranks = self.ranks(name, 2, state=state[0])
            self.assertEqual([step(ranks) for _ in range(7 - k)], every[k + 1:])
            for rank in ranks:
                rank.close()

    def test_broadcast_gives_each_client_what_follows_its_state_and_rewinds_no_other(self):
        name = self.numbers_of("both", 200, "broadcast", 2, capacity=8)
        every = self.steps([stager.open(name, private_run=True)], 40)
        first, second = stager.open(name), stager.open(name)
        self.assertEqual(self.steps([first], 4), every[:4])
        self.assertEqual(self.steps([second], 2), every[:2])
        early, late = second.state_dict(), first.state_dict()
        self.assertNotEqual(early, late)
        first.close()
        second.close()
        second, first = stager.open(name, state=early), stager.open(name, state=late)
        self.assertEqual(self.steps([first], 3), every[4:7])
        self.assertEqual(self.steps([second], 6), every[2:8])
        self.assertEqual(self.steps([second], 4), every[8:12])
        state = second.state_dict()
        second.close()
        second = stager.open(name, state=state)     # the buffer has what follows, for the first one
        self.assertEqual(self.steps([second], 1), every[12:13])
        second.close()
        self.assertEqual(self.steps([first], 4), every[7:11])
        with self.assertRaisesRegex(stager.ResourceExhaustedError, "not in the buffer any more, and other clients would be rewound"):
            stager.open(name, state=early)
        self.assertEqual(self.steps([first], 2), every[11:13])
        first.close()

    def test_broadcast_gives_an_error_item_to_a_client_whose_state_is_before_it(self):
        path = self.file("rows", "1\n2\n3\nx\n5\n6\n")
        name = self.apply(dataset=[{"files": {"pattern": path}}, "text_line",
                                   {"map": {**self.PARSE, "output": {"n": "n"}}}, {"batch": {"batch_size": 2}}],
                          staged={"delivery": "broadcast", "num_clients": 2, "capacity": 8})
        every = [[1.0, 2.0], 4, [3.0, 5.0], [6.0]]
        with stager.open(name, private_run=True) as stream:
            reader, states = self.items(stream), []
            for _ in range(3):
                states.append(stream.state_dict())
                next(reader)
        for k, state in enumerate(states):
            with stager.open(name, state=states[0]) as first, stager.open(name, state=state) as second:
                self.assertEqual(list(self.items(second)), every[k:], f"after {k} items")
                self.assertEqual(list(self.items(first)), every)


if __name__ == "__main__":
    case.main()
