#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""User functions in worker processes: their inputs and outputs, and the batch of a function that raises, dies, hangs or
returns a wrong value."""
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import numpy as np

import case
import stager
from case import BUILD, PACKAGE, Program, wait_until

FUNCTIONS = """
import ctypes, os, signal, sys, time
import numpy as np

def double(batch):
    return {"value": batch["value"] * 2}

def same(batch):
    return batch

def array(batch):
    return batch["value"] + 1

def two(batch):
    return batch["value"].astype(np.float32), np.array([str(v).encode() * (v % 3) for v in batch["value"]], object)

def text(batch):
    return {"line": np.array([line.upper() for line in batch["record"]], dtype=object)}

def ragged(batch):
    splits = np.concatenate([[0], np.cumsum(batch["value"] % 3)]).astype(np.int64)
    return {"ids": (np.arange(splits[-1], dtype=np.int64), splits)}

def back_to_front(batch):
    ids = batch["ids"]
    return {"ids": (ids.values[::-1], ids.row_splits)}

def bad_splits(batch):
    return {"ids": (np.arange(5), np.array([0, 4, 2, 5, 5][:len(batch["value"]) + 1], dtype=np.int64))}

def raises(batch):
    if 4 in batch["value"]:
        raise ValueError("four is bad")
    return batch

def raises_exit(batch):
    if 4 in batch["value"]:
        sys.exit("enough")
    return batch

class Shy(Exception):
    def __str__(self):
        raise self

def raises_other(batch):
    if 4 in batch["value"]:
        raise RuntimeError("\\0 \\ud800 " + 5000 * "x")
    return batch

def big_endian(batch):
    return {"value": batch["value"].astype(">i8")}

def objects(batch):
    return {"value": np.array([object()] * len(batch["value"]))}

def yields(batch):
    yield batch

def raises_shy(batch):
    if 4 in batch["value"]:
        raise Shy
    return batch

def raises_stager(batch):
    import stager
    raise stager.DataLossError("lost")

def exits(batch):
    if 4 in batch["value"]:
        os._exit(3)
    return batch

def exits_always(batch):
    os._exit(3)

def kills(batch):
    if 4 in batch["value"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch

def kills_without_a_name(batch):
    if 4 in batch["value"]:
        os.kill(os.getpid(), 40)
    return batch

def segfaults(batch):
    if 4 in batch["value"]:
        ctypes.string_at(8)
    return batch

def hangs(batch):
    if 4 in batch["value"]:
        time.sleep(1000)
    return batch

def hangs_with_the_gil(batch):
    if 4 in batch["value"]:
        ctypes.PyDLL(None).sleep(1000)
    return batch

def stops(batch):
    if 4 in batch["value"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    return batch

def dtype(batch):
    return {"value": batch["value"].astype(np.int32)}

def shape(batch):
    return {"value": batch["value"].reshape(-1, 1)}

def name(batch):
    return {"valu": batch["value"]}

def large(batch):
    return {"value": np.zeros(1 << 20, dtype=np.int64)}

def writes(batch):
    batch["value"][0] = 1

def slow(batch):
    time.sleep(0.2)
    return batch

def four_at_once(batch):
    # Returns once the calls of this batch and of its three neighbours are all in flight.
    index = int(batch["value"][0]) // len(batch["value"])
    folder, limit = os.environ["CALLS"], time.monotonic() + float(os.environ["CALLS_SECONDS"])
    open(os.path.join(folder, str(index)), "w").close()
    four = {str(i) for i in range(index // 4 * 4, index // 4 * 4 + 4)}
    while not four <= set(os.listdir(folder)):
        if time.monotonic() > limit:
            raise TimeoutError("calls of four batches were not in flight at once: " + str(os.listdir(folder)))
        time.sleep(0.001)
    return batch

def pid(batch):
    return {"value": np.full_like(batch["value"], os.getpid())}

def prints(batch):
    print("x" * 100000)
    return batch

def one_by_one(batch):
    with open(os.environ["CALLS"], "a") as file:
        file.write("%d\\n" % batch["value"][0])
    return batch

def once_dead(batch):
    mark = os.environ["CALLS"]
    if 4 in batch["value"] and not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(1)
    return batch

def waits(batch):
    # Until the file CALLS is there.
    open(os.environ["CALLS"] + ".called", "w").close()
    while not os.path.exists(os.environ["CALLS"]):
        time.sleep(0.001)
    return batch

def draws(batch, context):
    return {"value": batch["value"] + context.rng.integers(0, 1 << 40, batch["value"].shape)}

def where(batch, *, context):
    place = [context.seed, context.pass_, context.epoch, context.index]
    return {"value": batch["value"], "place": np.array([place] * len(batch["value"]))}

state = np.random.default_rng(1)

def draws_of_its_own(batch):
    return {"value": batch["value"] + state.integers(0, 1 << 40, batch["value"].shape)}

def twice_as_many(batch):
    return {"value": np.repeat(batch["value"], 2)}

class Nested:
    @staticmethod
    def double(batch):
        return {"value": batch["value"] * 2}
"""


class WorkerCase(case.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.modules = os.path.join(cls.daemon.folder, "modules")
        os.makedirs(cls.modules, exist_ok=True)
        with open(os.path.join(cls.modules, "user_functions.py"), "w", encoding="utf-8") as file:
            file.write(FUNCTIONS)
        with open(os.path.join(cls.modules, "user_broken.py"), "w", encoding="utf-8") as file:
            file.write("import no_such_module_anywhere\n")
        sys.path.insert(0, cls.modules)
        cls.addClassCleanup(sys.path.remove, cls.modules)

    def calling(self, function, signature=None, stop=10, batch_size=2, steps=(), source=None, staged=(),
                **arguments):
        dataset = stager.range(stop) if source is None else source
        dataset = dataset.batch(batch_size)
        if ":" not in function:
            function = f"user_functions:{function}"
        name = self._testMethodName[:64]
        self.name = name
        pipeline = dataset.py_function(function, signature, **arguments).staged(name=name, **dict(staged))
        return stager.apply(pipeline, replace=True)

    def taken(self, stream):
        """Batches as lists, error items as exceptions, to the end."""
        items = []
        passes = iter(stream)
        while True:
            try:
                batch = next(passes)
                items.append(batch["value"].tolist())
                batch.release()
            except StopIteration:
                return items
            except stager.Error as error:
                items.append(error)

    def status(self):
        return stager.status(self.name)

    def drained(self, dataset, passes=1, n_workers=1, **staged):
        """The tensors `value` of each pass, as lists; the pipeline begins with pass 0."""
        name = self._testMethodName[:64]
        self.name = name
        try:
            stager.delete(name)
        except stager.NotFoundError:
            pass
        stager.apply(dataset.staged(name=name, **staged))
        with stager.open(name, workers=n_workers) as stream:
            return [self.taken(stream) for _ in range(passes)]

    def calls_are_counted(self):
        """For four_at_once: a call in flight is a file in a folder."""
        folder = tempfile.mkdtemp(dir=self.daemon.folder)
        calls = {"CALLS": folder, "CALLS_SECONDS": str(20 * case.SLOW)}
        patched = mock.patch.dict(os.environ, calls)
        patched.start()
        self.addCleanup(patched.stop)

    def one_is_lost(self, function, text, **arguments):
        """The batch of 4 and 5 is an error item, every other batch arrives, and a new worker registers."""
        with stager.open(self.calling(function, **arguments), workers=1) as stream:
            items = self.taken(stream)
            self.assertEqual(items[:2] + items[3:], [[0, 1], [2, 3], [6, 7], [8, 9]])
            self.assertIsInstance(items[2], stager.AbortedError)
            self.assertIn("batch 2 of epoch 0", items[2].text)
            self.assertIn(f"user_functions:{function}", items[2].text)
            self.assertIn(text, items[2].text)
            status = self.status()
            self.assertEqual((status["workers_lost"], status["worker_calls"], status["errors"]), (1, 5, 1))
            wait_until(lambda: self.status()["workers"] == 1)


class Contexts(WorkerCase):
    PLACE = {"value": ("int64", [None]), "place": ("int64", [None, 4])}

    def places(self, dataset, **staged):
        name = self._testMethodName[:64]
        stager.apply(dataset.staged(name=name, **staged), replace=True)
        with stager.open(name, workers=1) as stream:
            return [[tuple(row) for row in batch["place"].tolist()] for _ in range(2) for batch in stream]

    def test_a_context_says_seed_pass_epoch_and_index(self):
        last = stager.range(4).batch(2).repeat(2).py_function("user_functions:where", self.PLACE, seed=5)
        wanted = [[(5, p, epoch, index)] * 2 for p in range(2) for epoch in range(2) for index in range(2)]
        self.assertEqual(self.places(last), wanted)
        self.assertEqual(self.places(last.prefetch(2)), wanted)  # called for the dataset
        before = stager.range(4).batch(2).py_function("user_functions:where", self.PLACE, seed=5).repeat(2)
        self.assertEqual(self.places(before), wanted)

    def test_what_is_drawn_by_the_context_is_the_same_again(self):
        def drawn(n_threads, **arguments):
            dataset = stager.range(40).batch(2).py_function("user_functions:draws", **arguments)
            return self.drained(dataset, passes=2, n_workers=n_threads, num_threads=n_threads, capacity=4)
        first = drawn(1)
        self.assertEqual(drawn(3), first)
        self.assertNotEqual(first[0], first[1])
        self.assertNotEqual(drawn(1, seed=1)[0], first[0])
        self.assertEqual(drawn(1, pure=True), first)
        # By the definition: PCG64 of (seed, pass, epoch, index).
        rng = np.random.Generator(np.random.PCG64([0, 1, 0, 3]))
        self.assertEqual(first[1][3], (np.array([6, 7]) + rng.integers(0, 1 << 40, 2)).tolist())

    def test_a_function_that_is_declared_pure_and_draws_by_itself_is_an_error(self):
        with stager.open(self.calling("draws_of_its_own", pure=True), workers=1) as stream:
            with self.assertRaisesRegex(stager.InvalidArgumentError, "declared pure, and gave another value"):
                stream.next()

    def test_a_pure_function_that_gives_strings_and_nothing_passes(self):
        name = self.calling("two", {"number": (np.float32, (None,)), "word": ("string", [-1])}, pure=True)
        with stager.open(name, workers=1) as stream:
            self.assertEqual([b["word"].tolist() for b in stream][1], [b"22", b""])


class Behind(WorkerCase):
    """Steps behind a py_function."""

    def function(self, name="double", n=20, **arguments):
        return stager.range(n).batch(2).py_function(f"user_functions:{name}", **arguments)

    def test_rebatch(self):
        want = (2 * np.arange(20)).reshape(4, 5).tolist()
        self.assertEqual(self.drained(self.function().rebatch(5), num_threads=3, n_workers=3), [want])

    def test_workers_of_a_stream_that_follows_call_the_function_of_each_version(self):
        name = self._testMethodName[:64]
        def make(function, capacity):
            return stager.apply(self.function(function, n=1000, pure=True).staged(name=name, capacity=capacity), replace=True)
        with stager.open(make("double", 2), workers=1, follow=True) as stream:
            n = 0  # batches of what `double` makes
            for generation, (function, capacity) in enumerate((("double", 2), ("double", 3), ("pid", 2)), 1):
                if generation > 1:
                    make(function, capacity)
                while True:
                    with stream.next(timeout=60) as batch:
                        found = batch["value"].tolist()
                        if batch.info.generation < 3:
                            self.assertEqual(found, [4 * n, 4 * n + 2])
                        n += 1
                        if batch.info.generation == generation:
                            break
            self.assertNotIn(os.getpid(), found)
            self.assertEqual(found[0], found[1])

    def fourth(self, name):
        """The state after three batches, and the batch that follows."""
        with stager.open(name, workers=1) as stream:
            for _ in range(3):
                stream.next().release()
            return stream.state_dict(), stream.next()["value"].tolist()

    def test_a_state_that_needs_calls_is_reached(self):
        """What lies before it is produced: by workers, which are there before the stream is."""
        name = stager.apply(self.function(n=40, pure=True).unbatch().batch(2).staged(name=self._testMethodName))
        state, fourth = self.fourth(name)
        with stager.open(name, workers=1, state=state) as stream:
            self.assertEqual(stream.next()["value"].tolist(), fourth)
            stream.load_state_dict(state)
            self.assertEqual(stream.next()["value"].tolist(), fourth)
            stream.commit(state, "three")
        with stager.open(name, workers=1, resume="tag:three") as stream:
            self.assertEqual(stream.next()["value"].tolist(), fourth)

    def test_ctrl_c_ends_an_open_at_a_state_that_is_not_reached_yet(self):
        """And what stagerd produced for it: another stream begins at the state."""
        path = os.environ["CALLS"] = os.path.join(self.daemon.folder, "gate")
        self.addCleanup(os.environ.pop, "CALLS")
        with open(path, "w", encoding="ascii"):
            pass
        name = stager.apply(self.function("waits", n=40, pure=True).unbatch().batch(2).staged(name=self._testMethodName[:60]))
        state, fourth = self.fourth(name)
        for call in ("stager.open(name, workers=1, state=state)", "stager.open(name, workers=1).load_state_dict(state)"):
            os.unlink(path)
            os.unlink(path + ".called")
            program = Program(self.daemon, f"""
import sys
sys.path.insert(0, {self.modules!r})
import stager
name, state = {name!r}, {state!r}
{call}
""")
            wait_until(lambda: os.path.exists(path + ".called"))
            program.interrupt()
            status, _, errors = program.end()
            self.assertEqual(status, -signal.SIGINT, errors)
            self.assertIn("KeyboardInterrupt", errors)
            with open(path, "w", encoding="ascii"):
                pass
            with stager.open(name, workers=1, state=state) as stream:
                self.assertEqual(stream.next()["value"].tolist(), fourth)

    def test_shuffle_of_its_elements(self):
        got, again = self.drained(self.function().unbatch().shuffle(20, seed=3).batch(5), passes=2)
        self.assertEqual(sorted(sum(got, [])), list(range(0, 40, 2)))
        self.assertNotEqual(got, again)

    def test_filter_and_a_map_with_threads(self):
        def number(value):
            return stager.ops.constant(value=value, dtype="int64")
        dataset = self.function().unbatch().filter(lambda e: e["value"] < number(8)).map(
            lambda e: {"value": e["value"] + number(1)}, num_parallel_calls=2).batch(3)
        self.assertEqual(self.drained(dataset), [[[1, 3, 5], [7]]])

    def test_take_and_repeat(self):
        self.assertEqual(self.drained(self.function().take(2).repeat(2)), [2 * [[0, 2], [4, 6]]])

    def test_cache_keeps_what_it_gave(self):
        got, = self.drained(self.function("draws").cache().repeat(2))
        self.assertEqual(got[:10], got[10:])

    def test_more_elements_than_there_were(self):
        got = self.drained(self.function("twice_as_many", n=4).unbatch().batch(3))
        self.assertEqual(got, [[[0, 0, 1], [1, 2, 2], [3, 3]]])

    def test_a_function_in_a_branch(self):
        branch = stager.range(4).batch(2).py_function("user_functions:double")
        dataset = stager.range(4).batch(2).concatenate(branch)
        self.assertEqual(self.drained(dataset), [[[0, 1], [2, 3], [0, 2], [4, 6]]])

    def test_an_error_is_an_element(self):
        got, = self.drained(self.function("raises", n=10).prefetch(2))
        self.assertEqual(got[:2] + got[3:], [[0, 1], [2, 3], [6, 7], [8, 9]])
        self.assertIn("element 2 of epoch 0: user_functions:raises: ValueError: four is bad", got[2].text)
        self.assertEqual(self.drained(self.function("raises", n=10).ignore_errors()),
                         [[[0, 1], [2, 3], [6, 7], [8, 9]]])

    def test_an_error_names_the_file(self):
        path = self.file("lines", "a\nb\n")
        dataset = stager.files(path).text_line().batch(2).py_function(
            "user_functions:raises_stager", {"value": ("string", [None])}).rebatch(1)
        (error,), = self.drained(dataset)
        self.assertIsInstance(error, stager.DataLossError)
        self.assertIn(f"{path}: line 1 (offset 0) and 1 row after it: user_functions:raises_stager", error.text)

    def test_a_worker_that_dies_costs_its_element(self):
        got, = self.drained(self.function("kills", n=10).rebatch(2))
        self.assertEqual(got[:2] + got[3:], [[0, 1], [2, 3], [6, 7], [8, 9]])
        self.assertIsInstance(got[2], stager.AbortedError)

    def test_as_many_work_as_there_are_threads(self):
        self.calls_are_counted()
        got = self.drained(self.function("four_at_once", n=32).rebatch(4), num_threads=4, n_workers=4)
        self.assertEqual(got, [np.arange(32).reshape(8, 4).tolist()])

    def test_a_pass_may_end_before_what_was_begun(self):
        self.assertEqual(self.drained(self.function("same").take(1), passes=3), 3 * [[[0, 1]]])

    def test_a_pipeline_that_is_deleted_ends_a_call(self):
        stager.apply(self.function("hangs", timeout_millis=600000).rebatch(1).staged(name="deleted_function"))
        with stager.open("deleted_function", workers=1) as stream:
            stream.next()
            wait_until(lambda: stager.status("deleted_function")["worker_calls"] >= 3)
            began = time.monotonic()
            stager.delete("deleted_function")
            self.assertLess(time.monotonic() - began, 10 * case.SLOW)

    def test_a_pipeline_has_one_function(self):
        with self.assertRaisesRegex(stager.InvalidArgumentError, "a pipeline has one such step"):
            stager.check(self.function().rebatch(5).py_function("user_functions:double"))


class Values(WorkerCase):
    def test_a_function_gets_whole_batches_and_gives_what_is_staged(self):
        with stager.open(self.calling("double"), workers=1) as stream:
            self.assertEqual(self.taken(stream), [[0, 2], [4, 6], [8, 10], [12, 14], [16, 18]])
            self.assertEqual(self.taken(stream)[0], [0, 2])  # a second pass
            status = self.status()
            self.assertEqual((status["py_function"], status["workers"], status["worker_calls"],
                              status["workers_lost"]), ("user_functions:double", 1, 10, 0))

    def test_a_function_may_be_of_a_class_and_give_an_array(self):
        with stager.open(self.calling("user_functions:Nested.double"), workers=1) as stream:
            self.assertEqual(self.taken(stream)[1], [4, 6])
        with stager.open(self.calling("array"), workers=1) as stream:
            self.assertEqual(self.taken(stream)[1], [3, 4])

    def test_numbers_and_strings_of_another_signature_in_a_tuple(self):
        name = self.calling("two", {"number": (np.float32, (None,)), "word": ("string", [-1])})
        with stager.open(name, workers=1) as stream:
            batches = [(b["number"].dtype, b["number"].tolist(), b["word"].tolist()) for b in stream]
        self.assertEqual(batches[1:3], [(np.float32, [2, 3], [b"22", b""]), (np.float32, [4, 5], [b"4", b"55"])])

    def test_strings_come_as_bytes(self):
        path = self.file("lines", "one\n\nthr\u00e9e\n")
        name = self.calling("text", {"line": ("string", [None])}, batch_size=3,
                            source=stager.files(path).text_line())
        with stager.open(name, workers=1) as stream:
            self.assertEqual([batch["line"].tolist() for batch in stream],
                             [[b"ONE", b"", "thr\u00e9e".encode().upper()]])

    def test_ragged_goes_in_and_out_as_values_and_row_splits(self):
        signature = {"ids/values": ("int64", [None]), "ids/row_splits": ("int64", [None])}
        with stager.open(self.calling("ragged", signature, batch_size=4), workers=1) as stream:
            batch = next(iter(stream))
            self.assertEqual(batch["ids"].values.tolist(), [0, 1, 2])
            self.assertEqual(batch["ids"].row_splits.tolist(), [0, 0, 1, 3, 3])

    def test_ragged_of_the_pipeline_comes_as_values_and_row_splits(self):
        name = self._testMethodName[:64]
        path = self.file("bytes", "ab\n\nc\n")
        dataset = stager.files(path).text_line().map(
            lambda e: {"ids": stager.ops.decode_raw(e["record"], out_type="uint8")}, num_parallel_calls=1)
        stager.apply(dataset.ragged_batch(3).py_function("user_functions:back_to_front").staged(name=name))
        with stager.open(name, workers=1) as stream:
            batch = next(iter(stream))
            self.assertEqual(bytes(batch["ids"].values), b"cba")
            self.assertEqual(batch["ids"].row_splits.tolist(), [0, 2, 2, 3])

    def test_row_splits_that_fall_are_an_error_item(self):
        signature = {"ids/values": ("int64", [None]), "ids/row_splits": ("int64", [None])}
        with stager.open(self.calling("bad_splits", signature, batch_size=4), workers=1) as stream:
            with self.assertRaisesRegex(stager.InvalidArgumentError, "row_splits decrease"):
                stream.next()

    def test_what_it_gives_goes_through_the_graph(self):
        name = self._testMethodName[:64]
        pipeline = stager.range(10).batch(2).py_function("user_functions:two", {
            "number": (np.float32, (None,)), "word": (object, (None,))}).map(
                lambda e: {"length": stager.ops.string_length(e["word"]), "number": e["number"]}).staged(name=name)
        stager.apply(pipeline)
        with stager.open(name, workers=1) as stream:
            items = [(b["length"].tolist(), b["number"].tolist()) for b in stream]
        self.assertEqual(items, [([0, 1], [0, 1]), ([2, 0], [2, 3]), ([1, 2], [4, 5]), ([0, 1], [6, 7]),
                                 ([2, 0], [8, 9])])

    def test_numbers_may_come_in_another_order_of_bytes(self):
        with stager.open(self.calling("big_endian"), workers=1) as stream:
            self.assertEqual(self.taken(stream)[1], [2, 3])

    def test_order_is_kept_and_as_many_work_as_there_are_threads(self):
        self.calls_are_counted()
        name = self.calling("four_at_once", stop=16, staged={"num_threads": 4})
        with stager.open(name) as stream:  # as many workers as threads
            self.assertEqual(self.taken(stream), [[i, i + 1] for i in range(0, 16, 2)])

    def test_a_worker_may_print(self):
        program = Program(self.daemon, f"""
import sys
sys.path.insert(0, {self.modules!r})
import stager
with stager.open({self.calling("prints")!r}, workers=1) as stream:
    print(sum(1 for batch in stream), flush=True)
""")
        status, out, errors = program.end()
        self.assertEqual((status, out), (0, "5\n"))
        self.assertEqual(errors.count("x"), 500000)

    def test_a_standard_error_that_is_full_stops_no_workers(self):
        program = Program(self.daemon, f"""
import fcntl, os, sys
sys.path.insert(0, {self.modules!r})
end, full = os.pipe()
fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
os.write(full, 4096 * b"x")
os.dup2(full, 2)
import stager
try:
    with stager.open({self.calling("kills")!r}, workers=1) as stream:
        for _ in range(5):
            try:
                print(stream.next(timeout={20 * case.SLOW})["value"].tolist(), flush=True)
            except stager.AbortedError:
                print("lost", flush=True)
except stager.Error as error:  # its traceback would wait for room for ever
    print(error, flush=True)
""")
        status, out, _ = program.end()
        self.assertEqual((status, out.split("\n")), (0, ["[0, 1]", "[2, 3]", "lost", "[6, 7]", "[8, 9]", ""]))

    def test_batches_grow_and_shrink(self):
        name = self._testMethodName[:64]
        stager.apply(stager.range(100000).batch(1000).rebatch([1, 5000, 10, 40000]).py_function("user_functions:double")
                     .staged(name=name, max_batch_bytes=1 << 20))
        with stager.open(name, workers=1) as stream:
            values = np.concatenate([batch["value"].copy() for batch in stream])
        np.testing.assert_array_equal(values, 2 * np.arange(100000))

    def test_a_pipeline_is_the_same_text_again(self):
        pipeline = stager.range(10).batch(2).py_function(
            "m:f", {"x": (np.float32, (None, 3))}, timeout_millis=5, retries=1).staged(name="p")
        step = pipeline.document()["dataset"][-1]
        self.assertEqual(step, {"py_function": {"function": "m:f", "output_types": {"x": "float32"},
                                                "output_shapes": {"x": [None, 3]}, "timeout_millis": 5,
                                                "retries": 1}})
        reply = stager.check(pipeline)
        self.assertEqual(reply["boundary"][0]["shape"], [None, 3])
        self.assertTrue([line for line in reply["advice"] if "m:f runs in worker processes" in line])


class Errors(WorkerCase):
    def test_an_exception_is_an_error_item_that_says_where(self):
        with stager.open(self.calling("raises"), workers=1) as stream:
            items = self.taken(stream)
        self.assertEqual(items[:2] + items[3:], [[0, 1], [2, 3], [6, 7], [8, 9]])
        self.assertIsInstance(items[2], stager.InvalidArgumentError)
        self.assertIn("batch 2 of epoch 0: user_functions:raises: ValueError: four is bad (", items[2].text)
        line = FUNCTIONS.splitlines().index('        raise ValueError("four is bad")') + 1
        self.assertIn(f"user_functions.py:{line}, in raises)", items[2].text)
        self.assertEqual(self.status()["workers_lost"], 0)

    def test_an_exit_is_an_exception_as_any(self):
        for function, text in (("raises_exit", "SystemExit: enough ("), ("raises_shy", "raises_shy: Shy ("),
                               ("raises_other", "RuntimeError: ? ? xxx")):
            with stager.open(self.calling(function), workers=1) as stream:
                items = self.taken(stream)
                self.assertEqual(items[:2] + items[3:], [[0, 1], [2, 3], [6, 7], [8, 9]])
                self.assertIsInstance(items[2], stager.UnknownError)
                self.assertIn(text, items[2].text)
                self.assertEqual(self.status()["workers_lost"], 0)

    def test_an_exception_names_the_rows_of_a_file(self):
        path = self.file("numbers", "1\n2\n3\n")
        name = self.calling("raises_stager", batch_size=2, source=stager.files(path).text_line())
        with stager.open(name, workers=1) as stream:
            with self.assertRaisesRegex(stager.DataLossError, "line 1 .*and 1 row after it: .*lost"):
                stream.next()
            with self.assertRaisesRegex(stager.DataLossError, "line 3 .*lost"):
                stream.next()

    def test_a_worker_that_exits_costs_its_batch(self):
        self.one_is_lost("exits", "ended with exit status 3 (its standard error may have the reason)")

    def test_a_worker_that_is_killed_costs_its_batch(self):
        self.one_is_lost("kills", "was killed by signal 9 (SIGKILL)")

    def test_a_worker_that_is_killed_by_a_signal_without_a_name_costs_its_batch(self):
        self.one_is_lost("kills_without_a_name", "was killed by signal 40")

    def test_a_worker_that_segfaults_costs_its_batch(self):
        self.one_is_lost("segfaults", "was killed by signal 11 (SIGSEGV)")

    def test_a_worker_that_hangs_costs_its_batch(self):
        self.one_is_lost("hangs", "was still working after timeout_millis 300", timeout_millis=300)

    def test_a_worker_that_hangs_with_the_gil_costs_its_batch(self):
        self.one_is_lost("hangs_with_the_gil", "was still working after timeout_millis 300",
                         timeout_millis=300)

    def test_a_worker_that_is_stopped_costs_its_batch(self):
        self.one_is_lost("stops", "was still working after timeout_millis 300", timeout_millis=300)

    def test_a_deadline_names_the_worker_that_is_busy_or_that_none_is_there(self):
        def expect(stream, pattern):
            def is_said():
                try:
                    stream.next(timeout=0.2)
                except stager.DeadlineExceededError as error:
                    return re.search(pattern, str(error))
                return False
            case.wait_until(is_said)

        with stager.open(self.calling("hangs"), workers=0) as stream:
            expect(stream, r"no batch of pipeline \w+ within 200 ms: py_function user_functions:hangs: no worker is "
                           r"ready; start one with `stager worker")
        with stager.open(self.calling("hangs"), workers=1) as stream:
            expect(stream, r"py_function user_functions:hangs: a worker, pid \d+, has been at work for \d+\.\d s "
                           r"\(1 of 1 workers are\)")

    def test_a_worker_that_never_lasts_is_started_ever_more_slowly(self):
        with stager.open(self.calling("exits_always"), workers=1) as stream:
            began = time.monotonic()
            items = self.taken(stream)
            self.assertEqual([type(item) for item in items], [stager.AbortedError] * 5)
            self.assertGreater(time.monotonic() - began, 0.1 + 0.2 + 0.4 + 0.8)
            self.assertEqual(self.status()["workers_lost"], 5)

    def test_a_batch_is_called_again_where_the_step_says_so(self):
        os.environ["CALLS"] = os.path.join(self.daemon.folder, "once")
        with stager.open(self.calling("once_dead", retries=1), workers=1) as stream:
            self.assertEqual(self.taken(stream), [[i, i + 1] for i in range(0, 10, 2)])
            self.assertEqual(self.status()["workers_lost"], 1)

    def test_each_batch_is_called_once(self):
        os.environ["CALLS"] = path = os.path.join(self.daemon.folder, "calls")
        with stager.open(self.calling("one_by_one", stop=200, staged={"num_threads": 3})) as stream:
            self.assertEqual(len(self.taken(stream)), 100)
        with open(path, encoding="ascii") as file:
            self.assertEqual(sorted(map(int, file)), list(range(0, 200, 2)))

    def wrong(self, function, text, **arguments):
        with stager.open(self.calling(function, **arguments), workers=1) as stream:
            with self.assertRaises(stager.InvalidArgumentError) as caught:
                stream.next()
            self.assertIn(text, caught.exception.text)
            self.assertEqual(self.status()["workers_lost"], 0)

    def test_another_dtype_is_an_error_item(self):
        self.wrong("dtype", "value is int32 [2], but was declared as int64 [?]")
        self.wrong("objects", "value is object [2], but was declared as int64 [?]")
        self.wrong("yields", "value is generator, but was declared as int64 [?]")

    def test_another_shape_is_an_error_item(self):
        self.wrong("shape", "value is int64 [2, 1], but was declared as int64 [?]")

    def test_another_name_is_an_error_item(self):
        self.wrong("name", "it gave ['valu'], and ['value'] was declared")

    def test_a_batch_is_read_only(self):
        self.wrong("writes", "read-only")

    def test_too_much_is_an_error_item(self):
        with stager.open(self.calling("large", max_output_bytes=1 << 20), workers=1) as stream:
            with self.assertRaisesRegex(stager.ResourceExhaustedError, "max_output_bytes"):
                stream.next()

    def test_what_is_wrong_is_said_when_it_is_applied(self):
        batches = stager.range(10).batch(2)
        for dataset, text in (
                (batches.py_function("no_function"), "module:name"),
                (batches.py_function("m:f", {"x": ("float33", [1])}), "is not a dtype"),
                (batches.py_function("m:f", output_types={"x": "int64"}), "output_shapes has no entry for x"),
                (batches.py_function("m:f", output_shapes={"x": [1]}), "which is not an output")):
            with self.assertRaisesRegex(stager.InvalidArgumentError, text):
                stager.check(dataset.staged())
        with self.assertRaisesRegex(stager.InvalidArgumentError, "module:name"):
            batches.py_function(lambda batch: batch)


class Reap(unittest.TestCase):
    def test_a_worker_that_dies_before_its_supervisor_looked_was_ready(self):
        def hear():
            child.is_ready = True

        child = mock.Mock(is_ready=False, error=None, kill_at=None, began=time.monotonic())
        child.process.poll.return_value = -signal.SIGKILL
        child.hear.side_effect = hear
        child.how.return_value = "was killed by signal 9 (SIGKILL)"
        supervisor = stager._workers.Supervisor("p", 1, None)
        supervisor._children = [child]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            supervisor._reap()
        self.assertEqual((out.getvalue(), supervisor._children), ("ready\n", []))


class Life(WorkerCase):
    def test_a_failed_import_is_reported_by_open(self):
        with self.assertRaises(stager.NotFoundError) as caught:
            stager.open(self.calling("user_broken:f"), workers=1)
        self.assertIn("importing user_broken failed: ModuleNotFoundError", caught.exception.text)
        self.assertIn(self.modules, caught.exception.text)
        with self.assertRaisesRegex(stager.NotFoundError, "has no function nothing"):
            stager.open(self.calling("nothing"))
        self.assertEqual(stager.status(self.name)["workers"], 0)

    def test_an_import_that_ends_the_worker_is_reported_by_open(self):
        for module, lines, text in (
                ("user_exits", "import sys\nsys.exit(0)\n", "importing user_exits failed: SystemExit: 0"),
                ("user_dies", "import os\nos.kill(os.getpid(), 9)\n",
                 "was killed by signal 9 (SIGKILL) before it was ready")):
            with open(os.path.join(self.modules, f"{module}.py"), "w", encoding="utf-8") as file:
                file.write(lines)
            with self.assertRaises(stager.Error) as caught:
                stager.open(self.calling(f"{module}:f"), workers=2)
            self.assertIn(text, caught.exception.text)

    def test_without_a_worker_the_error_says_how_to_start_one(self):
        name = self.calling("same", staged={"start_timeout_millis": 200})
        with stager.open(name, workers=0) as stream:
            with self.assertRaisesRegex(stager.FailedPreconditionError, f"stager worker {name}"):
                stream.next()

    def worker(self, *arguments):
        """A `stager worker` of another user."""
        process = subprocess.Popen([sys.executable, "-m", "stager", "worker", *arguments],
                                   cwd=self.modules, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                                   env={**self.daemon.env(), "PYTHONPATH": PACKAGE}, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        return process

    def test_a_worker_may_come_late_and_stay_for_the_next_one(self):
        name = self.calling("same")
        with stager.open(name, workers=0) as stream:
            with self.assertRaises(stager.DeadlineExceededError):
                stream.next(timeout=0.2)
            process = self.worker(name, "-n", "1")
            self.assertEqual(len(self.taken(stream)), 5)
        with stager.open(name) as stream:  # one is enough
            self.assertEqual(len(self.taken(stream)), 5)
        self.assertEqual(self.status()["worker_calls"], 10)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20 * case.SLOW), 130)
        wait_until(lambda: self.status()["workers"] == 0)

    def test_a_worker_of_nothing_says_so(self):
        process = self.worker("no-such-pipeline")
        self.assertEqual(process.wait(20 * case.SLOW), 1)
        self.assertIn("no pipeline no-such-pipeline", process.stderr.read())
        process = self.worker(self.numbers())
        self.assertEqual(process.wait(20 * case.SLOW), 1)
        self.assertIn("no step py_function", process.stderr.read())

    def test_workers_go_with_their_client_however_it_ends(self):
        name = self.calling("pid", stop=100000, staged={"num_threads": 2})
        program = Program(self.daemon, f"""
import sys
sys.path.insert(0, {self.modules!r})
import stager
stream = stager.open({name!r})
print(stream.next()["value"][0], flush=True)
sys.stdin.readline()
""")
        pid = int(program.line())
        os.kill(pid, 0)
        program.process.kill()
        program.end()
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
        wait_until(lambda: self.status()["workers"] == 0)

    def test_workers_of_one_client_serve_another_and_are_replaced_when_it_goes(self):
        name = self.calling("pid", stop=20, staged={"num_clients": 2, "capacity": 1})
        first = stager.open(name)
        wait_until(lambda: self.status()["workers"] == 1)
        with stager.open(name) as second:
            first.close()
            wait_until(lambda: self.status()["workers"] == 1)
            while True:
                try:
                    second.next()
                except stager.OutOfRangeError:
                    break

    def test_ranks_that_open_at_once_all_get_their_batches(self):
        name = self.calling("double", stop=24, staged={"num_clients": 3, "delivery": "round_robin"})
        programs = [Program(self.daemon, f"""
import sys
sys.path.insert(0, {self.modules!r})
import stager
with stager.open({name!r}) as stream:
    print(sum(int(batch["value"].sum()) for batch in stream), flush=True)
""") for _ in range(3)]
        ends = [program.end(60) for program in programs]
        self.assertEqual([status for status, _, _ in ends], [0, 0, 0], ends)
        self.assertEqual(sum(int(out) for _, out, _ in ends), 2 * sum(range(24)))

    def worker_processes(self):
        """The workers of the pipeline, of any user, ready or not."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:  # it has ended
                continue
            if b"--control" in words and self.name.encode() in words:
                found.append(int(pid))
        return found

    def test_concurrent_opens_start_as_many_workers_as_there_are_threads(self):
        name = self.calling("pid", stop=100000, staged={"num_clients": 3, "num_threads": 2})
        programs = [Program(self.daemon, f"""
import sys
sys.path.insert(0, {self.modules!r})
import stager
with stager.open({name!r}) as stream:
    print(stream.next()["value"][0], flush=True)
    sys.stdin.readline()
""") for _ in range(3)]
        for program in programs:
            self.assertGreater(int(program.line()), 0)
        wait_until(lambda: self.status()["workers"] == 2 == len(self.worker_processes()))
        for program in programs:
            program.say()
        for program in programs:
            self.assertEqual(program.end()[0], 0)

    def test_explain_and_a_trace_tell_how_long_it_takes(self):
        name = self.calling("slow", stop=100000, staged={"num_threads": 2})
        with stager.open(name, workers=2) as stream:
            trace = subprocess.Popen(
                [os.path.join(BUILD, "client/stagerctl/stagerctl"), "trace", name, "--seconds", "2", "-o", "-"],
                env=self.daemon.env(), stdout=subprocess.PIPE)
            self.addCleanup(trace.wait)
            self.addCleanup(trace.kill)
            end = time.monotonic() + 3
            while time.monotonic() < end:
                stream.next().release()
            explained = stager.explain(name)
            self.assertEqual(explained["bottleneck"], "py_function", explained["why"])
            spans = [event for event in json.loads(trace.communicate()[0])["traceEvents"]
                     if event["name"].startswith("step py_function (line ")]
        self.assertGreater(len(spans), 5)
        self.assertGreater(max(span["dur"] for span in spans), 100e3)  # microseconds
        self.assertEqual(spans[0]["args"]["records"], 2)

    def test_the_pipeline_may_be_replaced_and_deleted(self):
        name = self.calling("double")
        process = self.worker(name, "-n", "1")
        wait_until(lambda: self.status()["workers"] == 1)
        self.calling("array")
        wait_until(lambda: self.status()["workers"] == 1)
        with stager.open(name, workers=0) as stream:
            self.assertEqual(self.taken(stream)[0], [1, 2])
        stager.delete(name)
        self.calling("double")
        with stager.open(name, workers=0) as stream:
            self.assertEqual(self.taken(stream)[0], [0, 2])
        self.assertIsNone(process.poll())

    def test_a_client_may_leave_in_the_middle_of_a_call(self):
        name = self.calling("slow", stop=1000)
        process = self.worker(name, "-n", "1")
        for _ in range(3):
            with stager.open(name, workers=0) as stream:
                stream.next()
        wait_until(lambda: stager.status(name)["state"] == "idle")
        self.assertEqual(self.status()["workers_lost"], 0)
        self.assertIsNone(process.poll())

    def test_many_batches_leave_nothing_behind(self):
        name = self.calling("double", stop=40000)
        pid = self.daemon.process.pid

        def held():
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                pages = int(file.read().split()[1])
            return len(os.listdir(f"/proc/{pid}/fd")), pages

        def one_pass():
            with stager.open(name, workers=1) as stream:
                n = sum(1 for batch in stream)
            self.assertEqual(n, 20000)
            wait_until(lambda: stager.status(name)["state"] == "idle" and self.status()["workers"] == 0)
        one_pass()
        before = held()
        one_pass()
        one_pass()
        wait_until(lambda: held()[0] <= before[0])  # connections close after the last reply
        self.assertLess(held()[1] - before[1], 1024)  # 4 MiB

    @unittest.skipUnless(os.getuid() == 0, "only root can change the user")
    def test_a_worker_of_another_user_is_refused(self):
        name = self.calling("same")
        os.chmod(self.daemon.folder, 0o755)
        os.chmod(self.daemon.runtime_dir, 0o755)
        os.chmod(os.path.join(self.daemon.runtime_dir, "attach.sock"), 0o777)
        code = f"""
import os, sys
sys.path.insert(0, {PACKAGE!r})
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from stager import _core
try:
    _core.Worker({name!r}, {self.daemon.runtime_dir!r})
except Exception as error:
    print(type(error).__name__, error)
"""
        out = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {PACKAGE!r})\n"
                              "import stager\n" + code], env=self.daemon.env(), capture_output=True, text=True,
                             check=False)
        self.assertIn("PermissionDeniedError", out.stdout, out.stderr)
        self.assertIn("belongs to uid 0", out.stdout)
        self.assertEqual(self.status()["workers"], 0)


class Stop(WorkerCase):
    def test_the_daemon_stops_while_a_worker_computes(self):
        name = self.calling("hangs", stop=1000)
        with stager.open(name, workers=1) as stream:
            self.assertEqual(stream.next()["value"].tolist(), [0, 1])
            stream.next().release()
            wait_until(lambda: self.status()["in_hand"] == 1)
            self.assertEqual(self.daemon.stop(), 0)  # the call takes 1000 s
            with self.assertRaises(stager.UnavailableError):
                while True:
                    stream.next()


if __name__ == "__main__":
    case.main()
