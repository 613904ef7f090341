#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""States of streams: taken, loaded by other clients, and refused."""
import hashlib
import itertools
import json
import os
import random
import select
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

    def test_a_filter_goes_on_at_its_marks_after_the_daemon_was_killed(self):
        graph = [{"name": "three", "op": "constant", "value": 3, "dtype": "int64"},
                 {"name": "rest", "op": "floormod", "input": ["value", "three"]},
                 {"name": "two", "op": "constant", "value": 2, "dtype": "int64"},
                 {"name": "is", "op": "less", "input": ["rest", "two"]}]
        def apply(batch_size):
            return stager.apply(json.dumps({"name": self._testMethodName[:64], "dataset": [
                {"range": {"stop": 300000}}, {"filter": {"graph": graph, "predicate": "is"}},
                {"shuffle": {"buffer_size": 100, "seed": 3}}, {"batch": {"batch_size": batch_size}}]}), replace=True)

        name = apply(200)
        with stager.open(name, private_run=True) as stream:
            every = some(stream, 650, values)
        with stager.open(name) as stream:
            self.assertEqual(some(stream, 600, values), every[:600])
            state = stream.state_dict()
            self.daemon.process.kill()
        self.daemon.process.wait()
        folder = os.path.join(self.daemon.folder, "state", "index")
        marks, = os.listdir(folder)     # both runs share those of the filter
        self.assertGreater(os.path.getsize(os.path.join(folder, marks)), 64 + 8 * 48)
        self.daemon.start()
        for batch_size in (200, 400):   # the steps behind the filter make no difference
            with stager.open(apply(batch_size), state=state) as stream:
                self.assertEqual(sum(some(stream, 10000 // batch_size, values), []), sum(every[600:], []))
        self.assertEqual(os.listdir(folder), [marks])

    def resumes_in_the_second_pass(self, name, lose):
        with stager.open(name, private_run=True) as stream:
            for batch in stream:
                del batch
            iter(stream)
            some(stream, 3, values)
            state = stream.state_dict()
            rest = some(stream, 5, values)
        lose()
        with stager.open(name, state=state) as stream:
            self.assertEqual(some(stream, 5, values), rest)

    def test_a_cache_that_was_lost_is_filled_with_the_keys_of_the_first_pass(self):
        folder = os.path.join(self.daemon.folder, self._testMethodName)
        os.makedirs(folder)
        frozen = [{"range": {"stop": 100}}, {"shuffle": {"buffer_size": 100, "seed": 3}}]
        name = self.apply(dataset=[*frozen, {"cache": {"filename": f"{folder}/c"}}, {"batch": {"batch_size": 10}}])

        def lose():
            for entry in os.listdir(folder):
                os.unlink(f"{folder}/{entry}")
        self.resumes_in_the_second_pass(name, lose)

        def restart():
            self.daemon.process.kill()
            self.daemon.process.wait()
            self.daemon.start()
        name = stager.apply(json.dumps({"name": "in_a_container", "container": "shared", "dataset": [
            *frozen, "cache", {"batch": {"batch_size": 10}}]}))
        self.resumes_in_the_second_pass(name, restart)

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
        precondition = stager.FailedPreconditionError
        text = "1a.csv: the file was added since the state was taken: a file that is added during a pass must come behind"
        for between, text in (("1a", text), ("1b", r"5 files of \d+ bytes now, 3 of \d+ then \(files were added\): a file")):
            with open(f"{folder}/{between}.csv", "w", encoding="ascii") as file:
                file.write("new\n")
            self.refuses(name, state, precondition, text)
        os.unlink(f"{folder}/1a.csv")
        os.unlink(f"{folder}/1b.csv")
        with open(f"{folder}/1.csv", "ab") as file:
            file.write(b"one more row\n")
        self.refuses(name, state, precondition, r"1.csv: the file has (\d+) bytes, and had (\d+) when")
        with stager.open(name, state=at_start) as stream:   # the files of a pass are those at its start
            some(stream, 1)
        os.unlink(f"{folder}/1.csv")
        self.refuses(name, state, precondition, r"2 files of \d+ bytes now, 3 of \d+ then \(files were removed\)")

    def test_files_that_are_added_behind_the_others_begin_with_the_next_pass(self):
        folder = self.rows()
        name = self.criteo(folder)
        with stager.open(name, private_run=True) as stream:
            batches = iter(stream)
            got = records(itertools.islice(batches, 3))
            state = stream.state_dict()
            unbroken = got + records(batches)
        for i in (3, 4):
            with open(f"{folder}/{i}.csv", "w", encoding="ascii") as file:
                file.write("".join(f"new {i} {row}\n" for row in range(70)))
        with stager.open(name, state=state) as stream:
            got += records(itertools.islice(stream, 4))
            again = stream.state_dict()
        with stager.open(name, state=again) as stream:      # a state of a pass that left files out
            got += records(stream)
            self.assertEqual(got, unbroken)
            second = records(stream)
        self.assertEqual(len(second), N_ROWS + 2 * 70)

    def test_another_vocabulary_of_a_step_is_named(self):
        lines = self.file("lines", "".join(f"w{i % 7}\n" for i in range(100)))
        words = [self.file(f"words{i}", "".join(f"w{i}\n" for i in range(7))) for i in range(2)]

        def look_up(i):
            return {"map": {"graph": [{"name": "words", "op": "vocabulary", "file": words[i]},
                                      {"name": "id", "op": "lookup", "input": ["words", "record"]}],
                            "output": {"id": "id", "record": "record"}}}
        one = self.apply(dataset=[{"files": {"pattern": lines}}, "text_line", look_up(0), {"batch": {"batch_size": 5}}])
        state = self.state(one)
        both = stager.apply(json.dumps({"name": "both_vocabularies", "dataset": [
            {"files": {"pattern": lines}}, "text_line", look_up(0), {"map": {"output": {"record": "record"}}}, look_up(1),
            {"batch": {"batch_size": 5}}]}))
        of_both = self.state(both)
        with open(words[0], "rb+") as file:     # the same size
            file.write(b"w1\nw0\n")
        text = "words0: the vocabulary has another content than when the state was taken: restore"
        self.refuses(one, state, stager.FailedPreconditionError, text)
        with open(words[1], "rb+") as file:     # the same change, so that sums of both would cancel out
            file.write(b"w1\nw0\n")
        self.refuses(both, of_both, stager.FailedPreconditionError,
                     r"words1 \(or another of the 2 vocabularies of steps\): the vocabulary has another content")
        with open(words[0], "rb+") as file:
            file.write(b"w0\nw1\n")
        with stager.open(one, state=state) as stream:
            self.assertEqual(stream.next()["id"].tolist(), [i % 7 for i in range(15, 20)])

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
        with self.assertRaisesRegex(stager.InvalidArgumentError, '"exact", "approximate", "start", "current" and "tag:NAME"'):
            stager.open(name, resume="never")
        self.assertEqual(stager.check(rows.staged())["reproducible"], "yes")
        self.assertIn("on_timeout: drop", stager.check(stager.staged(rows))["reproducible"])
        self.assertIn("deterministic: false", stager.check(rows.staged(deterministic=False))["reproducible"])


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

    def test_num_clients_auto_is_the_world_size_of_the_first_client(self):
        every = self.steps([stager.open(self.numbers_of("one", 48, "split", 1))], 24)
        name = self.numbers_of("auto", 48, "round_robin", "auto")
        state, taken = None, 0
        for n in (2, 1, 4, 2):
            ranks = self.ranks(name, n, state=state)
            self.assertEqual(self.steps(ranks, 4 // n), every[taken:taken + 4])
            self.assertEqual(stager.status(name)["num_clients"], n)
            state, taken = ranks[-1].state_dict(), taken + 4
            if n == 4:
                with self.assertRaisesRegex(stager.InvalidArgumentError, "world_size 2: pipeline auto has num_clients 4"):
                    stager.open(name, client_id="other", rank=0, world_size=2)
            for rank in ranks:
                rank.close()
        self.assertEqual(stager.status(name)["generation"], 1)

    def test_num_clients_auto_of_each_delivery(self):
        for delivery in ("split", "broadcast"):
            name = self.numbers_of(f"auto-{delivery}", 48, delivery, "auto", reconnect_grace_millis=0)
            first = stager.open(name, client_id="a", rank=0, world_size=2)
            second = stager.open(name, client_id="b", rank=1, world_size=2)
            with self.assertRaisesRegex(stager.ResourceExhaustedError, "num_clients 2"):
                stager.open(name, client_id="c", rank=0, world_size=2)
            first.close()
            second.close()
            with stager.open(name) as alone:
                self.assertEqual(stager.status(name)["num_clients"], 1)
                self.assertEqual(sum(batch.info.n_rows for batch in alone), 48)
        with self.assertRaisesRegex(stager.InvalidArgumentError, "at most 1024 clients"):
            stager.open(name, rank=0, world_size=1025)

    def test_num_clients_auto_has_no_buffer_before_its_first_client(self):
        with self.assertRaisesRegex(stager.InvalidArgumentError, "keep_warm: true needs it before"):
            self.numbers_of("warm", 48, "split", "auto", keep_warm=True)
        with self.assertRaisesRegex(stager.FailedPreconditionError, "num_clients: auto asks"):
            stager.apply(json.dumps({"name": "warm", "dataset": [{"range": {"stop": 8}}],
                                     "staged": {"num_clients": "auto"}}), warm=True)

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
        with stager.open(name, state=early) as second:  # not in the buffer any more: a run of its own
            self.assertEqual(self.steps([second], 6), every[2:8])
            self.assertEqual(self.steps([first], 2), every[11:13])
        self.assertEqual(self.steps([first], 2), every[13:15])
        first.close()

    def test_broadcast_a_client_at_an_earlier_state_has_a_run_of_its_own(self):
        """It delays no other client, has commits and states as before, and ends with the pipeline."""
        name = self.numbers_of("apart", 200, "broadcast", 2, capacity=4)
        every = self.steps([stager.open(name, private_run=True)], 60)
        first, second = stager.open(name, client_id="a", resume="start"), stager.open(name, client_id="b", resume="start")

        def there():
            return {(c["client_id"], c["state"]) for c in stager.status(name)["clients"] if c["state"] in ("attached", "apart", "away")}
        self.assertEqual(self.steps([first], 4), every[:4])
        self.assertEqual(self.steps([second], 1), every[:1])
        early = second.state_dict()
        second.commit(early, "one")
        self.assertEqual(self.steps([second], 3), every[1:4])
        second.close()
        second = stager.open(name, client_id="b", resume="tag:one")
        self.assertEqual(second.state_dict(), early)
        self.assertEqual(self.steps([second], 2), every[1:3])
        self.assertEqual(self.steps([first], 20), every[4:24])     # b, which was away, has no place there now
        self.assertEqual(there(), {("a", "attached"), ("b", "apart")})
        with self.assertRaisesRegex(stager.AlreadyExistsError, "client b is attached to pipeline .* in a run of its own: b "):
            stager.open(name, client_id="b", state=early)
        second.commit(second.state_dict(), "three")
        self.assertEqual(self.steps([second], 9), every[3:12])
        second.close()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "the last one with tag three"):
            stager.open(name, client_id="b")
        second = stager.open(name, client_id="b", resume="current")
        self.assertEqual(self.steps([second], 24), every[3:27])
        state = second.state_dict()
        second.close()
        second = stager.open(name, client_id="b", state=state)      # where the others are
        self.assertEqual(self.steps([first, second], 1), [every[24], every[27]])
        self.assertEqual(there(), {("a", "attached"), ("b", "attached")})
        second.close()
        second = stager.open(name, client_id="b", state=early)
        with self.assertRaisesRegex(stager.FailedPreconditionError, "clients are attached: .*b "):
            self.apply(name=name, dataset=[{"range": {"stop": 7}}], staged={})
        stager.delete(name)
        for stream in first, second:
            with self.assertRaisesRegex(stager.AbortedError, "the pipeline was deleted"):
                self.steps([stream], 60)
            stream.close()

    def test_broadcast_a_run_of_its_own_has_the_memory_of_the_budget_or_is_refused(self):
        """The others go on."""
        name = self.apply(name="apart-budget", dataset=[{"range": {"stop": 100}}, {"batch": {"batch_size": 2}}],
                          staged={"delivery": "broadcast", "num_clients": 2, "capacity": 2, "memory_budget": "640MiB"})
        first, second = stager.open(name), stager.open(name)
        state = first.state_dict()
        every = [stream.next()["value"].tolist() for _ in range(8) for stream in (first, second)][::2]
        second.close()
        with self.assertRaisesRegex(stager.ResourceExhaustedError,
                                    "the state is before the batches of the other clients, and a run of its own cannot be made: .*memory_budget"):
            stager.open(name, state=state)
        self.assertEqual(first.next()["value"].tolist(), [every[-1][0] + 2, every[-1][1] + 2])
        first.close()

    def test_broadcast_a_run_that_has_not_begun_waits_for_the_earliest_state(self):
        """A client that waits for another gets no error because that one comes later, at an earlier state."""
        name = self.numbers_of("unbegun", 60, "broadcast", 2, capacity=8)
        with stager.open(name, private_run=True) as alone:
            early = alone.state_dict()
            every = self.steps([alone], 6)
            late = alone.state_dict()
        with stager.open(name, client_id="b", state=late):
            with self.assertRaisesRegex(stager.ResourceExhaustedError, "other clients would be rewound: b .*earliest state first"):
                stager.open(name, client_id="a", state=early)
        with stager.open(name, client_id="a", state=early) as first, stager.open(name, client_id="b", state=late) as second:
            self.assertEqual(self.steps([first], 7)[:6], every)
            self.assertEqual(len(self.steps([second], 1)), 1)

    def test_broadcast_clients_that_died_at_the_end_of_a_pass_open_again_at_their_state(self):
        """The run that began at that state has ended the pass meanwhile."""
        name = self.numbers_of("at-the-end", 12, "broadcast", 2, capacity=8)
        with stager.open(name, private_run=True) as alone:
            self.steps([alone], 6)
            state = alone.state_dict()
        for client in [stager.open(name, client_id=client_id, state=state) for client_id in "ab"]:
            case.wait_until(lambda: stager.status(name)["pass"] == 1)
            client.close()      # it has not taken the end
        with stager.open(name, client_id="a", state=state) as first, stager.open(name, client_id="b", state=state) as second:
            self.assertEqual([values(first), values(second)], [[], []])
            self.assertEqual([stream.state_dict()["pass"] for stream in (first, second)], [1, 1])

    def test_a_rank_that_waits_for_another_with_its_state_goes_on(self):
        name = self.numbers_of("waits", 60, "round_robin", 2)
        ranks = self.ranks(name, 2)
        self.steps(ranks, 3)
        state = ranks[0].state_dict()
        every = self.steps(ranks, 2)
        for rank in ranks:
            rank.close()
        with stager.open(name, rank=0, world_size=2, state=state) as first:
            with self.assertRaises(stager.DeadlineExceededError):
                first.next(timeout=0.01)    # it has asked
            with stager.open(name, rank=1, world_size=2, state=state) as second:
                self.assertEqual(self.steps([first, second], 2), every)

    def test_broadcast_a_state_of_a_later_pass_waits_for_it(self):
        name = self.numbers_of("later", 12, "broadcast", 2, capacity=8)
        with stager.open(name, private_run=True) as alone:
            early = alone.state_dict()
            every = values(alone)
            loop = iter(alone)
            second_pass = values([next(loop)])
            late = alone.state_dict()
            second_pass += values(loop)
        with stager.open(name, client_id="a", state=early) as first, stager.open(name, client_id="b", state=late) as second:
            with self.assertRaises(stager.DeadlineExceededError):
                second.next(timeout=0.01)
            self.assertEqual(values(first), every)
            again = iter(first)
            self.assertEqual(self.steps([second], 1), second_pass[1:2])
            self.assertEqual(second.state_dict()["pass"], 1)
            self.assertEqual(values(again), second_pass)
            self.assertEqual(self.steps([second], 4), second_pass[2:])
        self.assertNotEqual(every, second_pass)

    def test_broadcast_a_state_replaces_what_a_named_client_held(self):
        for max_in_flight in (1, 2):     # with 2, a batch lies in the ring when it leaves
            name = self.numbers_of(f"held-{max_in_flight}", 60, "broadcast", 2, capacity=8)
            every = self.steps([stager.open(name, private_run=True)], 8)
            with stager.open(name, client_id="a") as first:
                second = stager.open(name, client_id="b", max_in_flight=max_in_flight)
                self.steps([first, second], 3)
                early = second.state_dict()
                held = second.next()
                state = second.state_dict()         # after the batch in hand
                second.close()
                with stager.open(name, client_id="b", state=state) as second:
                    self.assertEqual(self.steps([second], 3), every[4:7])
                with stager.open(name, client_id="b", state=early) as second:   # a run of its own
                    self.assertEqual(self.steps([second], 2), every[3:5])
                del held

    def test_broadcast_a_client_that_dies_before_its_first_batch_misses_none(self):
        name = self.numbers_of("unasked", 60, "broadcast", 2, capacity=8)
        every = self.steps([stager.open(name, private_run=True)], 6)
        with stager.open(name, private_run=True) as alone:
            self.steps([alone], 2)
            state = alone.state_dict()
        first, second = (stager.open(name, client_id=client_id, state=state) for client_id in ("a", "b"))
        second.close()          # with batches in its ring
        with stager.open(name, client_id="b", state=state) as second:
            self.assertEqual(self.steps([second], 3), every[2:5])
            self.assertEqual(self.steps([first], 3), every[2:5])
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


class Consumer:
    """A trainer of a split in a child process. After each batch it sends a checkpoint: its rows and its state."""

    def __init__(self, name, seed, state=None, **options):
        self.rows, self.state, self.has_ended, self.why, self.n = [], None, False, None, 0
        self.rest = b""
        self.out, into = os.pipe()
        self.asks, self.go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.out)
                os.close(self.go)
                self.train(into, name, random.Random(seed), state, options)
                status = 0
            except BaseException as error:
                self.send(into, why=f"{type(error).__name__}: {error}")
            finally:
                os._exit(status)
        os.close(into)
        os.close(self.asks)

    def begin(self):
        """It takes its first batch."""
        os.write(self.go, b"x")

    @staticmethod
    def send(into, **what):
        line = json.dumps(what).encode() + b"\n"
        while line:
            line = line[os.write(into, line):]

    def train(self, into, name, draw, state, options):
        speed = draw.choice((0, 0.001, 0.004))
        with stager.open(name, state=state, **options) as stream:
            self.send(into, rows=[], state=stream.state_dict())
            os.read(self.asks, 1)
            while True:
                try:
                    rows = [row.hex() for row in stream.next()["record"].tolist()]
                except stager.OutOfRangeError:
                    break
                except stager.InvalidArgumentError as error:
                    rows = [f"error {error.line}"]
                self.send(into, rows=rows, state=stream.state_dict())
                time.sleep(draw.random() * speed)    # what it computes
            self.send(into, end=True)

    def read(self):
        """Takes in what has come. Returns false at the end."""
        data = os.read(self.out, 1 << 16)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()     # without its end: not a checkpoint yet
        for line in lines:
            what = json.loads(line)
            self.rows += what.get("rows", [])
            self.n += "rows" in what
            self.state = what.get("state", self.state)
            self.has_ended = self.has_ended or "end" in what
            self.why = what.get("why", self.why)
        return bool(data)

    def end(self):
        while self.read():
            pass
        os.close(self.out)
        os.close(self.go)
        os.waitpid(self.pid, 0)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


class Split(Case):
    """Several trainers share the batches."""

    def shared(self, folder, num_clients, name, **options):
        return self.criteo(folder, batch_size=options.pop("batch_size", 2), name=name, num_clients=num_clients, **options)

    def whole_pass(self, name):
        with stager.open(name, private_run=True) as stream:
            return sorted(row.hex() for row in records(stream))

    def run_all(self, name, n, seed, state, n_checkpoints):
        """n trainers from the state on. They begin once all are open. All are killed after that many checkpoints in
        total; None: after the pass."""
        consumers = [Consumer(name, seed * 100 + k, state) for k in range(n)]
        left = {consumer.out: consumer for consumer in consumers}
        for consumer in consumers:
            while consumer.n == 0 and consumer.read():
                pass
        for consumer in consumers:
            consumer.begin()
        while left and (n_checkpoints is None or sum(c.n for c in consumers) < n_checkpoints + n):
            for out in select.select(list(left), [], [])[0]:
                if not left[out].read():
                    del left[out]
        if n_checkpoints is not None:
            for consumer in consumers:
                consumer.kill()
        for consumer in consumers:
            consumer.end()
            self.assertIsNone(consumer.why)
        return consumers

    def test_trainers_killed_at_random_continue_in_any_number_exactly(self):
        folder = self.rows()
        name = self.shared(folder, 3, "split-3")
        every = self.whole_pass(name)
        self.assertEqual(len(every), N_ROWS)
        draw = random.Random(1)
        n_seeds = 40 if case.SLOW == 1 else 6
        for seed in range(n_seeds):
            n_rows, state, n_merged = [], None, 0
            for n in (3, draw.choice((1, 2, 4)), draw.choice((1, 2, 4)), draw.choice((1, 2, 4))):
                name = self.shared(folder, n, f"split-{n}")
                is_last = n_merged == 3
                consumers = self.run_all(name, n, seed * 10 + n_merged, state, None if is_last else draw.randrange(40))
                n_rows += [row for consumer in consumers for row in consumer.rows]
                if not is_last:
                    states = [consumer.state for consumer in consumers]
                    draw.shuffle(states)
                    state = stager.merge_states(states)
                n_merged += 1
            self.assertEqual(sorted(n_rows), every, f"seed {seed}")

    def test_error_items_and_ignored_items_are_taken_once(self):
        lines = [f"{i}" for i in range(60)]
        for i in (3, 4, 17, 31, 59):
            lines[i] = f"x{i}"
        path = self.file("rows", "\n".join(lines) + "\n")
        graph = [{"name": "n", "op": "string_to_number", "input": ["record"]}]
        for ignored in ([], ["INVALID_ARGUMENT"]):
            staged = {"features": {"n": "n", "record": "record"}, "ignored_exception_types": ignored}
            names = {n: self.apply(name=f"errors-{n}-{len(ignored)}", graph=graph,
                                   dataset=[{"files": {"pattern": path}}, "text_line", {"batch": {"batch_size": 1}}],
                                   staged={**staged, "num_clients": n}) for n in (2, 3)}
            good = [line.encode().hex() for line in lines if line[0] != "x"]
            bad = [] if ignored else [f"error {i + 1}" for i, line in enumerate(lines) if line[0] == "x"]
            for seed in range(6):
                first = self.run_all(names[3], 3, seed, None, 8 + 5 * seed)
                state = stager.merge_states(c.state for c in first)
                second = self.run_all(names[2], 2, seed + 50, state, None)
                self.assertEqual(sorted(row for c in first + second for row in c.rows), sorted(good + bad))

    def three(self, name, n=6):
        """States of three trainers that took batches in turn."""
        streams = [stager.open(name, client_id=f"trainer-{k}") for k in range(3)]
        for k in range(n):
            streams[k % 3].next().release()
        return streams, [stream.state_dict() for stream in streams]

    def test_states_in_turn_are_small_and_one_step_has_one_digest(self):
        name = self.shared(self.rows(), 3, self._testMethodName[:60], batch_size=1)
        streams, states = self.three(name, 150)
        for stream, state in zip(streams, states):
            self.assertLessEqual(len(json.dumps(state)), 1024)
            self.assertEqual((state["consumers"], state["client"]), (3, stream.client_id))
        merged = stager.merge_states(states)
        self.assertEqual(stager.merge_states(reversed(states)), merged)
        self.assertLessEqual(len(json.dumps(merged)), 1024)
        self.assertEqual(stager.merge_states([merged]), merged)
        for stream in streams:
            stream.close()

    def test_a_missing_state_and_states_of_other_runs_are_refused_by_name(self):
        name = self.shared(self.rows(), 3, self._testMethodName[:60])
        streams, states = self.three(name)
        precondition = stager.FailedPreconditionError
        with self.assertRaisesRegex(precondition, r"consumer 2 of 3 is missing: .* consumer 1 \(client trainer-0\), consumer 3 \(client trainer-2\)"):
            stager.merge_states([states[0], states[2]])
        streams[0].next().release()
        with self.assertRaisesRegex(precondition, r"consumer 1 \(client trainer-0\) is there with two states"):
            stager.merge_states([*states, streams[0].state_dict()])
        for stream in streams:
            stream.close()
        other, others = self.three(self.shared(self.rows(), 3, "another"))
        with self.assertRaisesRegex(precondition, "have different runs"):
            stager.merge_states([states[0], *others[1:]])
        for stream in other:
            stream.close()
        with self.assertRaisesRegex(precondition, r"consumer 1 of 3 \(client trainer-0\): merge it"):
            stager.open(name, state=states[0])
        with self.assertRaisesRegex(stager.InvalidArgumentError, "no states are given"):
            stager.merge_states([])
        with self.assertRaisesRegex(stager.InvalidArgumentError, "state 2: .*edited"):
            stager.merge_states([states[0], {**states[1], "taken": "b"}])

    def test_a_merged_state_loads_only_where_it_is_exact(self):
        folder = self.rows()
        name = self.shared(folder, 3, self._testMethodName[:60])
        streams = [stager.open(name) for _ in range(3)]
        for k in (0, 1, 0, 1, 0):
            streams[k].next().release()     # the third one holds up the others
        merged = stager.merge_states([stream.state_dict() for stream in streams])
        for stream in streams:
            stream.close()
        precondition = stager.FailedPreconditionError
        with self.assertRaisesRegex(precondition, "load it with delivery: split, or in a private run"):
            stager.open(self.shared(folder, 2, "rounds", delivery="round_robin"), state=merged)
        with self.assertRaisesRegex(precondition, "batches of 2 rows, .* now batch_size is 3"):
            stager.open(self.shared(folder, 2, "larger", batch_size=3), state=merged)
        with stager.open(name, private_run=True, state=merged) as stream:
            stream.next().release()
            again = stream.state_dict()
            self.assertEqual(self.rest(stream), N_ROWS - 12)
        with stager.open(name, private_run=True, state=again) as stream:
            self.assertEqual(self.rest(stream), N_ROWS - 12)

    def test_other_states_do_not_join_a_run_and_send_no_client_back(self):
        folder = self.rows()
        name = self.shared(folder, 3, self._testMethodName[:60])
        streams, states = self.three(name)
        early = stager.merge_states(states)
        streams[1].next().release()
        late = stager.merge_states([stream.state_dict() for stream in streams])
        precondition = stager.FailedPreconditionError
        streams[2].close()
        with self.assertRaisesRegex(precondition, "has begun, and its clients would not go back to the state: .* trainer-1"):
            stager.open(name, state=early)
        for stream in streams:
            stream.close()
        with stager.open(name, client_id="first", state=late) as first:
            with self.assertRaisesRegex(precondition, "must load the state of one step; loaded: first"):
                stager.open(name, state=early)
            first.next().release()
            with self.assertRaisesRegex(precondition, "must load the state of one step; loaded: first"):
                stager.open(name, state=early)
            with stager.open(name, state=late) as second:
                second.next().release()
            self.assertEqual(self.rest(first), N_ROWS - 2 * 9)

    def take(self, streams, n):
        """n batches, from whichever of the streams has one."""
        while n > 0:
            stream = streams[n % len(streams)]
            try:
                stream.next(timeout=0.05).release()
                n -= 1
            except stager.DeadlineExceededError:
                streams = streams[1:] + streams[:1]

    def in_order_after(self, streams, n):
        """n batches or more, until they are the first ones of the pass. Returns how many, and the merged state."""
        self.take(streams, n)
        while True:
            merged = stager.merge_states([stream.state_dict() for stream in streams])
            if merged["taken"] == f".0+{n}":
                return n, merged
            self.take(streams, 1)
            n += 1

    def rest(self, stream):
        """The rows that are left of the pass, for the only trainer."""
        got = []
        while True:
            try:
                got += records([stream.next()])
            except stager.OutOfRangeError:
                return len(got)

    def test_a_state_follows_the_passes(self):
        name = self.shared(self.rows(), 2, self._testMethodName[:60], batch_size=50)
        first, second = stager.open(name), stager.open(name)
        self.assertEqual([s.state_dict()["pass"] for s in (first, second)], [0, 0])
        self.take([first, second], 3)
        stale = [first.state_dict(), second.state_dict()]
        self.take([first, second], 1)
        at_end = [first.state_dict(), second.state_dict()]
        for stream in (first, second):
            with self.assertRaises(stager.OutOfRangeError):
                stream.next(timeout=20)
        self.assertEqual([first.state_dict(), second.state_dict()], at_end)
        iter(first)
        self.take([first], 1)
        in_second = first.state_dict()
        self.assertEqual((in_second["pass"], in_second["taken"]), (1, ".0+1"))
        merged = stager.merge_states([in_second, at_end[1]])
        self.assertEqual(merged["pass"], 1)
        if stale[1] != at_end[1]:
            with self.assertRaisesRegex(stager.FailedPreconditionError, "different passes"):
                stager.merge_states([in_second, stale[1]])
        first.close()
        second.close()
        with stager.open(name, state=merged) as stream:
            self.assertEqual(self.rest(stream), N_ROWS - 50)
        with stager.open(name, state=stager.merge_states(at_end)) as stream:
            self.assertEqual((self.rest(stream), len(records(stream))), (0, N_ROWS))

    def test_a_client_that_left_is_not_missing_after_its_pass(self):
        name = self.shared(self.rows(), 3, self._testMethodName[:60], batch_size=50)
        first, second, third = (stager.open(name, max_in_flight=1) for _ in range(3))  # so that each gets one of four
        third.next(timeout=20).release()
        last = third.state_dict()
        third.close()
        self.take([first, second], 3)
        states = [first.state_dict(), second.state_dict()]
        with self.assertRaisesRegex(stager.FailedPreconditionError, "consumer 3 of 3 is missing"):
            stager.merge_states(states)
        with stager.open(name, private_run=True, state=stager.merge_states([last, *states])) as stream:
            self.assertEqual(self.rest(stream), 0)
        for stream in (first, second):
            with self.assertRaises(stager.OutOfRangeError):
                stream.next(timeout=20)
        iter(first)
        iter(second)
        case.wait_until(lambda: first.state_dict()["pass"] == 1 and second.state_dict()["pass"] == 1)
        merged = stager.merge_states([second.state_dict(), first.state_dict()])
        self.take([second], 1)
        later = stager.merge_states([second.state_dict(), first.state_dict()])
        first.close()
        second.close()
        for state, n_rows in ((merged, N_ROWS), (later, N_ROWS - 50)):
            with stager.open(name, private_run=True, state=state) as stream:
                self.assertEqual((state["pass"], self.rest(stream)), (1, n_rows))

    def test_the_last_state_of_a_dead_trainer_merges(self):
        """What it took after that state is in no checkpoint, and is delivered again, once."""
        name = self.shared(self.rows(), 3, self._testMethodName[:60], batch_size=10)
        first, second, third = (stager.open(name, max_in_flight=1) for _ in range(3))
        saved = records([third.next(timeout=20)])
        last = third.state_dict()
        lost = records([third.next(timeout=20)])
        third.next(timeout=20).release()    # acknowledges that one
        third.close()
        rest = records([first.next(timeout=20), second.next(timeout=20)])
        for n_more in range(2):
            states = [first.state_dict(), second.state_dict()]
            with self.assertRaisesRegex(stager.FailedPreconditionError, "consumer 3 of 3 is missing.*If its client has "
                                        "left, give the last state that it took: .* is delivered again"):
                stager.merge_states(states)
            merged = stager.merge_states([*states, last])
            rest += records([first.next(timeout=20)]) if n_more == 0 else []
        first.close()
        second.close()
        with stager.open(name, private_run=True, state=merged) as stream:
            again = records(stream)
        self.assertEqual(sorted(row.hex() for row in saved + rest + again), self.whole_pass(name))
        self.assertLessEqual(set(lost), set(again))

    def test_slices_of_a_staged_batch_are_taken_together(self):
        name = self.shared(self.rows(), 2, self._testMethodName[:60], batch_size=8)
        with stager.open(name, batch_size=4) as first, stager.open(name, batch_size=8) as second:
            first.next().release()
            with self.assertRaisesRegex(stager.FailedPreconditionError, "take the state after its last slice"):
                first.state_dict()
            first.next().release()
            second.next().release()
            state = stager.merge_states([first.state_dict(), second.state_dict()])
        with stager.open(name, private_run=True, state=state) as stream:
            self.assertEqual(len(records(stream)), N_ROWS - 16)

    def test_trainers_that_are_open_load_a_merged_state_before_their_first_batch(self):
        name = self.shared(self.rows(), 3, self._testMethodName[:60])
        streams, states = self.three(name, 9)
        for stream in streams:
            stream.close()
        merged = stager.merge_states(states)
        streams = [stager.open(name) for _ in range(3)]
        for stream in streams:
            stream.load_state_dict(merged)
        self.take(streams, 5)
        merged = stager.merge_states([stream.state_dict() for stream in streams])
        for stream in streams:
            stream.close()
        with stager.open(name, state=merged) as stream:
            self.assertEqual(self.rest(stream), N_ROWS - 2 * 14)

    def test_a_client_without_a_state_has_that_of_the_run_that_it_joins(self):
        name = self.shared(self.rows(), 3, self._testMethodName[:60])
        streams = [stager.open(name) for _ in range(3)]
        for k in (0, 1, 0, 1, 0):
            streams[k].next().release()     # the third one holds a batch up
        merged = stager.merge_states([stream.state_dict() for stream in streams])
        for stream in streams:
            stream.close()
        first, second = stager.open(name, state=merged), stager.open(name)
        states = [stream.state_dict() for stream in (second, first)]
        self.assertEqual(stager.merge_states(states)["taken"], merged["taken"])
        self.assertEqual(states[0]["taken"], states[1]["taken"])
        self.take([second], 2)
        last = first.state_dict()
        first.close()
        again = stager.merge_states([last, second.state_dict()])
        second.close()
        with stager.open(name, state=again) as stream:
            self.assertEqual(self.rest(stream), N_ROWS - 2 * 7)

    def test_a_name_of_a_client_that_json_escapes_changes_no_state(self):
        name = self.shared(self.rows(), 2, self._testMethodName[:60])
        with stager.open(name, client_id='rank "0" \u00e9\\') as first, stager.open(name) as second:
            first.next().release()
            states = [json.loads(json.dumps(stream.state_dict())) for stream in (first, second)]
        self.assertEqual(states[0]["client"], "rank ?0? ???")
        with stager.open(name, state=stager.merge_states(states)) as stream:
            self.assertEqual(self.rest(stream), N_ROWS - 2)

    def test_a_merged_state_in_order_loads_everywhere(self):
        folder = self.rows()
        name = self.shared(folder, 2, self._testMethodName[:60])
        streams = [stager.open(name) for _ in range(2)]
        n, merged = self.in_order_after(streams, 10)
        for stream in streams:
            stream.close()
        larger = self.shared(folder, 2, "in-order-larger", batch_size=5)
        with stager.open(larger, state=merged) as first, stager.open(larger) as second:
            self.take([first, second], 6)
            again = stager.merge_states([first.state_dict(), second.state_dict()])
        with stager.open(self.shared(folder, 1, "in-order-alone", batch_size=5), state=again) as stream:
            self.assertEqual(self.rest(stream), N_ROWS - n * 2 - 6 * 5)

    def test_a_restart_at_the_same_state_again_loses_no_item(self):
        name = self.shared(self.rows(), 3, self._testMethodName[:60])
        streams, states = self.three(name)
        merged = stager.merge_states(states)
        for stream in streams:
            stream.close()
        for stream in [stager.open(name, client_id=f"t{k}", state=merged) for k in range(3)]:
            stream.close()      # before a batch: they are away
        first = stager.open(name, client_id="t0", state=merged)
        taken = some(first, 2)
        second = stager.open(name, client_id="t1", state=merged)    # the first one has begun, and nothing is lost
        self.assertEqual(stager.merge_states([first.state_dict(), second.state_dict()])["consumers"], 2)
        first.close()           # it acknowledged batches
        with stager.open(name, client_id="t0", state=merged) as first:
            self.assertEqual(some(first, 2), taken)
            with self.assertRaises(stager.AbortedError):
                self.rest(second)   # first what lies in its ring
        second.close()

    def test_a_client_that_took_nothing_is_no_consumer(self):
        name = self.shared(self.rows(), 3, self._testMethodName[:60])
        with stager.open(name) as first, stager.open(name) as second:
            first.next().release()
            stager.open(name).close()
            case.wait_until(lambda: first.state_dict()["consumers"] == 2)
            self.assertEqual(stager.merge_states([first.state_dict(), second.state_dict()])["consumers"], 2)
            second.close()
            case.wait_until(lambda: first.state_dict()["consumers"] == 1)
            lost, last = stager.open(name), stager.open(name)
            lost.close()    # number 2 of 3
            case.wait_until(lambda: sum(c["state"] == "attached" for c in stager.status(name)["clients"]) == 2)
            last.close()
            case.wait_until(lambda: first.state_dict()["consumers"] == 1)

    def test_a_client_that_starts_again_has_the_number_of_one_that_took_nothing(self):
        """A trainer that crashes before its first batch does not end the states of a pass."""
        name = self.shared(self.rows(), 3, self._testMethodName[:60])
        with stager.open(name) as first:
            lost = stager.open(name)
            with stager.open(name) as third:
                first.next().release()
                third.next().release()
                lost.close()
                with stager.open(name) as again:
                    again.next().release()
                    states = [stream.state_dict() for stream in (third, again, first)]
            self.assertEqual([state["consumer"] for state in states], [3, 2, 1])
            self.assertEqual(stager.merge_states(states)["consumers"], 3)


if __name__ == "__main__":
    case.main()
