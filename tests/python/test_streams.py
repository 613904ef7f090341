#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams: passes, errors, position, ranks, feeding, computing."""
import concurrent.futures
import contextlib
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import warnings
from unittest import mock

import numpy as np

import case
import stager
from stager import ops


def values(batches):
    return [batch["value"].tolist() for batch in batches]


class Passes(case.Case):
    def test_each_for_takes_a_pass(self):
        stream = stager.open(self.numbers(stop=5))
        for number in range(3):
            batches = [(batch["value"].tolist(), batch.info.pass_) for batch in stream]
            self.assertEqual(batches, [([0, 1], number), ([2, 3], number), ([4], number)])

    def test_the_end_is_said_once_and_stays(self):
        stream = stager.open(self.numbers(stop=2))
        batches = iter(stream)
        self.assertEqual(next(batches)["value"].tolist(), [0, 1])
        for _ in range(3):
            with self.assertRaises(StopIteration):
                next(batches)
        with self.assertRaisesRegex(stager.OutOfRangeError, r"end of pass 0 of pipeline .*: call iter\(stream\) for the next pass"):
            stream.next()

    def test_for_in_the_middle_of_a_pass_begins_anew(self):
        stream = stager.open(self.numbers(stop=6))
        self.assertEqual(next(iter(stream))["value"].tolist(), [0, 1])
        self.assertEqual(values(stream), [[0, 1], [2, 3], [4, 5]])

    def test_of_two_loops_over_a_stream_the_first_fails_naming_the_second(self):
        stream = stager.open(self.numbers(stop=6))
        outer = iter(stream)
        next(outer)
        self.assertEqual(values(stream), [[0, 1], [2, 3], [4, 5]])
        with self.assertRaisesRegex(stager.FailedPreconditionError, "another loop over this stream"):
            next(outer)

    def test_an_unreferenced_stream_closes_and_its_batches_stay(self):
        name = self.numbers(stop=4)
        for _ in range(2):
            for batch in stager.open(name):     # the last batch stays in `batch`
                pass
        for batch in stager.open(name):
            break
        values_kept = batch["value"]
        with stager.open(name) as stream:
            self.assertEqual(values(stream), [[0, 1], [2, 3]])
        self.assertEqual(values_kept.tolist(), [0, 1])

    def test_a_closed_stream_is_not_opened_again_by_a_loop(self):
        name = self.numbers(stop=8)
        stream = stager.open(name)
        held = [stream.next(), stream.next()]
        stream.close()
        for use in (stream.next, lambda: list(stream)):
            with self.assertRaisesRegex(stager.FailedPreconditionError, "closed") as caught:
                use()
            self.assertNotIsInstance(caught.exception, stager.MaxInFlightError)
        self.assertEqual([batch["value"].tolist() for batch in held], [[0, 1], [2, 3]])
        with stager.open(name):
            pass

    def test_a_named_client_or_one_of_a_broadcast_may_not_begin_anew(self):
        name = self.numbers(delivery="broadcast", num_clients=2)
        first, second = stager.open(name), stager.open(name)
        next(iter(first)), next(iter(second))
        with self.assertRaisesRegex(stager.FailedPreconditionError, "its delivery is broadcast"):
            iter(first)
        named = stager.open(self.apply(name="named", dataset=[{"range": {"stop": 4}}, {"batch": {
            "batch_size": 1}}]), client_id="ada")
        next(iter(named))
        with self.assertRaisesRegex(stager.FailedPreconditionError, "continues where it was"):
            iter(named)

    def test_a_stream_is_a_context_and_close_may_be_called_twice(self):
        with stager.open(self.numbers()) as stream:
            next(iter(stream))
        self.assertTrue(stream.closed)
        stream.close()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "closed"):
            stream.next()

    def test_len_is_what_was_said_or_unknown(self):
        name = self.numbers(stop=10, batch_size=2)
        self.assertEqual(len(stager.open(name, length=5)), 5)
        with self.assertRaisesRegex(TypeError, "length="):
            len(stager.open(name, private_run=True))
        self.assertEqual(len(values(stager.open(name, private_run=True))), 5)

    def test_a_private_run_disturbs_no_other_run(self):
        name = self.numbers(stop=4)
        stream = stager.open(name)
        first = next(iter(stream))
        self.assertEqual(len(values(stager.open(name, private_run=True))), 2)
        self.assertEqual(stager.status(name)["num_clients"], 1)
        del first

    def test_a_stream_has_the_fields_and_fetches_that_it_asked_for(self):
        name = self.apply(
            name="part", dataset=[{"range": {"stop": 3}}, {"batch": {"batch_size": 1}}],
            graph=[{"name": "text", "op": "as_string", "input": ["value"]},
                   {"name": "twice", "op": "add", "input": ["staged:n/a", "staged:n/a"]},
                   {"name": "w", "op": "variable", "shape": [1], "dtype": "int64", "initializer": "ones"},
                   {"name": "sum", "op": "add", "input": ["twice", "w"]}],
            staged={"features": {"n": {"a": "value", "b": "value"}, "text": "text"}},
            targets=["sum"], smart_stage="on")
        stream = stager.open(name, fields=["n/a"])
        self.assertEqual([n for n, _, _ in stream.schema], ["n/a"])
        self.assertEqual(stream.structure, {"n": {"a": "n/a"}})
        for number, batch in enumerate(stream):
            self.assertEqual(batch.tree["n"]["a"].tolist(), [number])
            self.assertEqual(list(batch.keys()), ["n"])
            self.assertEqual(stream.run(batch)[0].tolist(), [2 * number + 1])
            with self.assertRaisesRegex(stager.FailedPreconditionError, "add it to the `fields`"):
                batch.tensor("text")
        stream.close()
        with stager.open(name, fields=(), fetches="sum") as stream:
            batch = stream.next()
            self.assertEqual((list(batch.keys()), stream.run(batch)[0].tolist()), ([], [1]))
        with self.assertRaisesRegex(stager.NotFoundError, "did you mean"):
            stager.open(name, fields=["txt"])

    def test_run_takes_values_for_placeholders(self):
        value = stager.range(4).batch(2).get_next()["value"]
        pipeline = stager.staged({"n": value}, name="fed")
        rate = ops.placeholder(dtype="int64", shape=[], name="rate")
        word = ops.placeholder(dtype="string", shape=[-1], name="word")
        stream = stager.open(stager.apply(pipeline.targets(ops.multiply(pipeline["n"], rate, name="scaled"),
                                                           ops.string_length(word, name="length"))))
        batch = stream.next()
        feeds = {"rate": np.int64(3), "word": ["a", "four"]}
        self.assertEqual([result.tolist() for result in stream.run(batch, feeds=feeds)], [[0, 3], [1, 4]])
        self.assertEqual(stream.run(batch, "scaled", {"rate": np.int64(5)})[0].tolist(), [0, 5])
        self.assertEqual(stream.run(None, ["length"], {"word": ["xy"]})[0].tolist(), [2])
        self.assertEqual(stream.run(batch, "scaled", {"rate": np.int64(5), "staged:n": np.array([7, 8])})[0].tolist(),
                         [35, 40])
        with self.assertRaisesRegex(stager.FailedPreconditionError, "rate"):
            stream.run(batch, "scaled")
        with self.assertRaisesRegex(stager.InvalidArgumentError, "rate"):
            stream.run(batch, "scaled", {"rate": 0.5})
        with self.assertRaisesRegex(stager.FailedPreconditionError, "staged:n"):
            stream.run(None, "scaled", feeds)
        with self.assertRaisesRegex(TypeError, "or None with feeds"):
            stream.run(None, "length")

    def test_slices_are_batches(self):
        stream = stager.open(self.numbers(stop=8, batch_size=4, drop_remainder=True), batch_size=2)
        got = [(batch["value"].tolist(), batch.info.slice, batch.info.n_slices) for batch in stream]
        self.assertEqual(got, [([0, 1], 0, 2), ([2, 3], 1, 2), ([4, 5], 0, 2), ([6, 7], 1, 2)])

    def test_schema_and_structure_are_known_before_the_first_batch(self):
        stream = stager.open(self.numbers(batch_size=4, stop=8, drop_remainder=True))
        self.assertEqual(stream.structure, {"value": "value"})
        self.assertEqual(stream.schema, [("value", "int64", (4,))])


class Errors(case.Case):
    def test_every_status_has_its_exception(self):
        names = {1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED",
                 5: "NOT_FOUND", 6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED",
                 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED",
                 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE",
                 15: "DATA_LOSS", 16: "UNAUTHENTICATED"}
        from stager._errors import error_of
        for code, name in names.items():
            error = error_of(code, "why")
            self.assertEqual((error.code, error.status, str(error)), (code, name, "why"))
            words = "".join(word.capitalize() for word in name.split("_")) + "Error"
            self.assertIs(type(error), getattr(stager, words))

    def test_max_in_flight_names_the_batches(self):
        stream = stager.open(self.numbers(stop=20), max_in_flight=3)
        batches = [stream.next() for _ in range(3)]
        with self.assertRaisesRegex(stager.MaxInFlightError, "3 of 3 batches are in hand") as caught:
            stream.next()
        self.assertEqual(caught.exception.held, [0, 1, 2])
        self.assertIsInstance(caught.exception, stager.FailedPreconditionError)
        view = batches[1]["value"]
        del batches[1]
        with self.assertRaises(stager.MaxInFlightError):
            stream.next()
        del view
        self.assertEqual(stream.next().number, 3)

    def test_a_timeout_is_a_timeout_error_and_the_stream_goes_on(self):
        name = self.nothing()
        stream = stager.open(name, timeout=0.05)
        begin = time.monotonic()
        with self.assertRaises(TimeoutError):
            stream.next()
        self.assertGreaterEqual(time.monotonic() - begin, 0.05)
        self.assertGreaterEqual(stream.info["wait_ns"], 50_000_000)
        self.assertEqual(stream.info["sleeps"], 1)
        with self.assertRaisesRegex(stager.DeadlineExceededError, "within 0 ms"):
            stream.next(timeout=0)
        with stager.open(name):
            self.assertEqual(stream.next(timeout=None)["value"].tolist(), [0, 1])

    def test_a_stream_that_a_clock_has_detached_says_so_and_does_not_wait(self):
        stream = stager.open(self.nothing(start_timeout_millis=50))
        for _ in range(2):
            with self.assertRaisesRegex(stager.DeadlineExceededError, "1 of num_clients 2 did not attach"):
                stream.next(timeout=60)
        self.assertTrue(stream.info["finished"])

    def test_only_the_function_staged_drops_by_default_and_all_counters_say_so(self):
        rows = stager.range(1000).batch(2)
        for pipeline, drops in ((stager.staged(rows, timeout_millis=20, name="dropping"), True),
                                (rows.staged(timeout_millis=20, name="waiting"), False),
                                (stager.staged(rows, timeout_millis=20, on_timeout="wait", name="asked"), False)):
            name = stager.apply(pipeline)
            with stager.open(name, max_in_flight=1) as stream:
                with stream.next():
                    counter = "dropped" if drops else "timeouts"
                    case.wait_until(lambda name=name, counter=counter: stager.status(name)[counter] >= 3)
                    status, info = stager.status(name), stream.info
                self.assertEqual(status["on_timeout"], "drop" if drops else "wait")
                self.assertEqual(status["dropped_rows"], 2 * status["dropped"])
                self.assertEqual(info["dropped_rows"], 2 * info["dropped_batches"])
                self.assertEqual(info["dropped_batches"] >= 3, drops)
                self.assertEqual(status["dropped"] >= 3, drops)
            self.daemon.wait_for_log(f"pipeline {name}: item")
            if not drops:
                case.wait_until(lambda name=name: self.daemon.log().count(f"pipeline {name}: item") >= 3)
            logged = self.daemon.log().count(f"pipeline {name}: item")
            self.assertEqual(logged, 1) if drops else self.assertGreaterEqual(logged, 3)
        with stager.open("dropping") as late:
            dropped = late.info["dropped_batches"]     # without the batches before it was opened, at least 3
            self.assertLessEqual(dropped, stager.status("dropping")["dropped"] - 3)

    def test_a_loop_is_warned_once_of_what_was_dropped(self):
        name = stager.apply(stager.staged(stager.range(1000).batch(2), timeout_millis=20, name="warned"))
        with warnings.catch_warnings(record=True) as caught, stager.open(name, max_in_flight=1) as stream:
            warnings.simplefilter("always")
            for n in range(2):
                with stream.next():
                    case.wait_until(lambda n=n: stream.info["dropped_batches"] >= 3 * (n + 1))
            line = sys._getframe().f_lineno + 1
            stream.next()
            stream.next()
        self.assertEqual([(w.category, w.filename) for w in caught], [(RuntimeWarning, __file__)])
        self.assertRegex(str(caught[0].message), r"pipeline warned has dropped \d+ batches \(\d+ rows\).*"
                         r'staged\(on_timeout="wait"\) drops none')
        self.assertEqual(caught[0].lineno, line - 3)

    def test_a_warning_that_is_an_error_loses_no_batch(self):
        name = stager.apply(stager.staged(stager.range(1000).batch(2), timeout_millis=20, name="strict"))
        with warnings.catch_warnings(), stager.open(name, max_in_flight=1) as stream:
            warnings.simplefilter("error")
            n_taken, n_warned = 0, 0
            while n_warned == 0:
                try:
                    with stream.next():
                        n_taken += 1
                        case.wait_until(lambda: stream.info["dropped_batches"] >= 1)
                except RuntimeWarning:
                    n_warned += 1
            with stream.next():
                self.assertEqual(stream.info["batches"], n_taken + 1)

    def test_an_error_item_with_the_code_of_a_timeout_is_raised(self):
        stream = stager.open(self.apply(
            dataset=[{"range": {"stop": 3}}, {"batch": {"batch_size": 1}}],
            graph=[{"name": "odd", "op": "constant", "value": 1, "dtype": "int64"},
                   {"name": "good", "op": "not_equal", "input": ["value", "odd"]},
                   {"name": "n", "op": "assert", "input": ["good", "value"], "code": "DEADLINE_EXCEEDED",
                    "message": "too late"}],
            staged={"features": {"n": "n"}}))
        batches = iter(stream)
        self.assertEqual(next(batches)["n"].tolist(), [0])
        with self.assertRaisesRegex(stager.DeadlineExceededError, "too late"):
            next(batches)
        self.assertEqual(next(batches)["n"].tolist(), [2])

    def test_a_bad_row_says_its_file_and_record_and_the_stream_goes_on(self):
        path = self.file("rows.csv", "1\ntwo\n3\n")
        stream = stager.open(self.apply(
            dataset=[{"files": {"pattern": [path]}}, {"text_line": {}}, {"batch": {"batch_size": 1}}],
            graph=[{"name": "c", "op": "decode_csv", "input": ["record"], "record_defaults": [0]}],
            staged={"features": {"n": "c:0"}}))
        batches = iter(stream)
        self.assertEqual(next(batches)["n"].tolist(), [1])
        with self.assertRaises(stager.InvalidArgumentError) as caught:
            next(batches)
        error = caught.exception
        self.assertEqual((error.file, error.line, error.offset), (path, 2, 2), error.text)
        self.assertEqual(next(batches)["n"].tolist(), [3])
        self.assertEqual(stream.info["errors"], 1)
        record = stager.DataLossError(f"{path}: record 7 (offset 12): the checksum is wrong")
        self.assertEqual((record.file, record.record, record.offset), (path, 7, 12))
        with self.assertRaises(StopIteration):
            next(batches)

    def test_a_line_of_titles_is_taken_for_one(self):
        lines = {"titles": ("label,amount,word\n1,2.5,a\n", True), "bad": ("1,two,a\n2,3,b\n", False), "empty": (",amount,word\n", False)}
        for name, (text, has_hint) in lines.items():
            path = self.file(name, text)
            columns = {"name": "c", "op": "decode_csv", "input": ["record"], "record_defaults": [0, 0.0, ""]}
            self.apply(name=name, dataset=[{"files": {"pattern": [path]}}, "text_line", {"batch": {"batch_size": 2}}], graph=[columns],
                       staged={"features": {"a": "c:1"}, "max_batch_bytes": 4096})
            with self.assertRaises(stager.InvalidArgumentError) as caught:
                stager.open(name).next()
            self.assertEqual("text_line: {skip_header_lines: 1}" in caught.exception.text, has_hint, caught.exception.text)

    def test_an_element_that_is_no_batch_says_its_file_too(self):
        path = self.file("page.jpg", "<html>")
        stream = stager.open(stager.apply(stager.files(path).read_file().map(
            lambda r: {"image": stager.ops.decode_image(r["bytes"])}), name="element"))
        with self.assertRaisesRegex(stager.InvalidArgumentError, "are not a JPEG or PNG") as caught:
            stream.next()
        self.assertEqual(caught.exception.file, path, caught.exception.text)

    def test_arguments_are_checked_by_name(self):
        name = self.numbers()
        for options, text in (({"max_in_flight": 0}, "max_in_flight=0: 1 to 256"), ({"max_in_flight": 1 << 40}, "max_in_flight="),
                              ({"batch_size": -1}, "batch_size=-1: 1 or more"), ({"depth": -1}, "depth=-1"),
                              ({"workers": -1}, "workers=-1"), ({"length": -1}, "length=-1"),
                              ({"inter_op_threads_num": 0}, "inter_op_threads_num=0: 1 to 64"),
                              ({"intra_op_threads_num": 65}, "intra_op_threads_num=65"), ({"timeout": -1}, "timeout=-1")):
            with self.subTest(options), self.assertRaisesRegex(stager.InvalidArgumentError, text):
                stager.open(name, **options)
        for options in ({"max_in_flight": "2"}, {"batch_size": 4.0}, {"timeout": "2"}):
            with self.subTest(options), self.assertRaisesRegex(TypeError, next(iter(options)) + "="):
                stager.open(name, **options)
        with self.assertRaisesRegex(TypeError, r"stager.open\(stager.apply\(pipeline\)\)"):
            stager.open(stager.range(3))
        with stager.open(name) as stream:
            with self.assertRaisesRegex(TypeError, "run takes a batch"):
                stream.run(None)
            with self.assertRaisesRegex(stager.InvalidArgumentError, "epoch=-1"):
                stream.set_epoch(-1)
            for state in (None, {}, {"version": 1, "pipeline": name}):
                with self.assertRaisesRegex(stager.InvalidArgumentError, "not a state of a stream"):
                    stream.load_state_dict(state)

    def test_the_error_for_a_second_stream_of_a_process_names_the_first(self):
        name = self.numbers()
        with stager.open(name), self.assertRaisesRegex(
                stager.ResourceExhaustedError, f"Pid {os.getpid()} is this process: close its other stream"):
            stager.open(name)

    def test_streams_and_batches_are_not_for_other_processes(self):
        stream = stager.open(self.numbers())
        with self.assertRaisesRegex(TypeError, "open pipeline .* in the other process"):
            pickle.dumps(stream)
        with self.assertRaisesRegex(TypeError, "pass copies"):
            pickle.dumps(stream.next())

    def test_an_error_of_no_row_says_the_first_row_of_its_batch(self):
        path = os.path.join(self.daemon.folder, "words.csv")
        with open(path, "w", encoding="ascii") as file:
            file.write("1|2\n3|4\n5|x\n6|7\n")
        stream = stager.open(self.apply(
            dataset=[{"files": {"pattern": path}}, "text_line", {"batch": {"batch_size": 2}}],
            graph=[{"name": "words", "op": "string_split", "input": ["record"], "sep": "|"},
                   {"name": "numbers", "op": "string_to_number", "input": ["words"]}],
            staged={"features": {"x": "numbers"}}))
        self.assertEqual(stream.next()["x"].tolist(), [1, 2, 3, 4])
        with self.assertRaisesRegex(stager.InvalidArgumentError,
                                    'words.csv: line 3 .* and 1 row after it: node numbers .*element 1, "x"'):
            stream.next()

    def test_a_pass_without_a_batch_is_logged(self):
        name = self.numbers(stop=3, batch_size=4, drop_remainder=True)
        with stager.open(name) as stream:
            self.assertEqual((values(stream), values(stream)), ([], []))
        self.daemon.wait_for_log(f"pipeline {name}: pass 0 ended without a batch")
        self.assertEqual(self.daemon.log().count(f"pipeline {name}: pass 0 ended without a batch"), 1)
        self.assertNotIn("pass 1 ended without", self.daemon.log())

    def test_opening_says_what_is_wrong(self):
        name = self.numbers()
        with self.assertRaisesRegex(stager.NotFoundError, "test_opening"):
            stager.open(name + "x")
        with self.assertRaises(stager.UnavailableError):
            stager.open(name, runtime_dir="/nonexistent")
        with stager.open(name, client_id="ada"):
            with self.assertRaisesRegex(stager.AlreadyExistsError, str(os.getpid())):
                stager.open(name, client_id="ada")
            with self.assertRaisesRegex(stager.ResourceExhaustedError, "ada"):
                stager.open(name)
        with self.assertRaises(stager.InvalidArgumentError):
            stager.open(name, max_in_flight=1000)
        with self.assertRaises(stager.InvalidArgumentError):
            stager.open(name, timeout=-1)

    def test_a_deleted_pipeline_aborts_its_streams(self):
        name = self.numbers(stop=1000, capacity=1)
        stream = stager.open(name)
        next(iter(stream))
        stager.delete(name)
        with self.assertRaisesRegex(stager.AbortedError, "deleted"):
            for batch in iter(stream.next, None):
                del batch
        self.assertTrue(stream.info["finished"])


class Waits(case.Case):
    def test_a_wait_is_visible_in_the_status(self):
        name = self.nothing()
        stream = stager.open(name)
        with self.assertRaises(TimeoutError):
            stream.next(timeout=1.2)  # longer than the interval of libstager's check
        thread = threading.Thread(target=lambda: stream.next())
        thread.start()
        case.wait_until(lambda: stager.status(name)["clients"][0]["wait_ns"] > 1_100_000_000)
        with stager.open(name):
            thread.join()


class Jobs(case.Case):
    def test_the_job_of_a_stream_is_in_metrics(self):
        def clients():
            return re.findall(r"^stager_client_info\{(.*)\} 1$", self.daemon.ctl("metrics").decode(), re.M)
        name = self.numbers()
        with stager.open(name, job="sweep-7"):
            self.assertEqual(clients(), [f'pipeline="{name}",rank="0",uid="{os.getuid()}",job="sweep-7"'])
        with self.assertRaisesRegex(stager.InvalidArgumentError, "job has 64 bytes; the maximum is 63"):
            stager.open(name, job="x" * 64)


class Ranks(case.Case):
    def test_ranks_come_from_the_environment_or_are_given(self):
        name = self.numbers(stop=8, delivery="round_robin", num_clients=2)
        with mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="2"):
            first, second = stager.open(name, rank=0), stager.open(name)
        self.assertEqual((first.rank, second.rank, second.world_size), (0, 1, 2))
        self.assertEqual((first.client_id, second.client_id), ("rank-0", "rank-1"))
        got = {}
        threads = [threading.Thread(target=lambda s=s: got.update({s.rank: values(s)}))
                   for s in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, {0: [[0, 1], [4, 5]], 1: [[2, 3], [6, 7]]})

    def test_a_pipeline_for_one_client_belongs_to_the_rank_that_opens_it(self):
        name = self.numbers(stop=4)
        with mock.patch.dict(os.environ, RANK="0", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2"):
            with stager.open(name) as stream:
                self.assertEqual((stream.client_id, stream.rank, stream.world_size), (None, 0, 4))
                next(iter(stream))
                # in the middle of a pass, as a single trainer may
                self.assertEqual(values(stream), [[0, 1], [2, 3]])
                code = "import stager, sys\ntry: stager.open(sys.argv[1])\nexcept stager.ResourceExhaustedError as e: print(e)"
                said = subprocess.run([sys.executable, "-c", code, name], env={**self.daemon.env(), "RANK": "1",
                                      "WORLD_SIZE": "4"}, stdout=subprocess.PIPE, text=True, check=True).stdout
                self.assertIn("A pipeline for all 4 ranks needs num_clients=4; one for a single rank, such as validation",
                              said)
            with self.assertRaisesRegex(stager.FailedPreconditionError, "num_clients 1, and world_size is 4"):
                stager.open(name, rank=0, world_size=4)

    def test_the_ranks_of_this_machine_are_its_clients(self):
        name = self.numbers(num_clients=2)
        with mock.patch.dict(os.environ, RANK="3", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2"):
            with stager.open(name) as stream:
                self.assertEqual(stream.client_id, "rank-3")
        with mock.patch.dict(os.environ, RANK="3", WORLD_SIZE="8", LOCAL_WORLD_SIZE="4"):
            with self.assertRaisesRegex(stager.FailedPreconditionError, "give it num_clients=4.*open it with world_size=1"):
                stager.open(name)
            with stager.open(name, world_size=1) as stream:
                self.assertIsNone(stream.client_id)

    def test_another_world_size_is_refused(self):
        name = self.numbers(num_clients=2)
        with self.assertRaisesRegex(stager.FailedPreconditionError,
                                    "num_clients 2, and world_size is 4"):
            stager.open(name, rank=0, world_size=4)
        with self.assertRaisesRegex(stager.InvalidArgumentError, "rank 2 of world_size 2"):
            stager.open(name, rank=2, world_size=2)


class Graph(case.Case):
    settings = {"memory_budget": "1GiB", "thread_pools": [{"global_name": "StageThreadPool_1_of_criteo"}],
                "gpu": {"use_multi_stream": True, "stage_multi_stream": True, "multi_stream_num": 3}}

    def test_a_stream_id_without_effect_is_reported(self):
        rows = stager.range(4).batch(2)
        for staged, text in (({}, ""), ({"stage_subgraph_stream_id": 2}, "has no effect for trainers that open"),
                             ({"stage_subgraph_stream_id": 2, "gpu": "cuda:0"}, "2 has no effect: with gpu"),
                             ({"stage_subgraph_stream_id": 2, "gpu": "cuda:0", "compute_device": True}, "has no effect for")):
            advice = [line for line in stager.check(rows.staged(**staged))["advice"] if "stream_id" in line]
            self.assertEqual(len(advice), 1 if text else 0, advice)
            self.assertIn(text, "".join(advice))

    def test_feed_sets_what_the_next_batches_are_made_with(self):
        name = self.apply(
            dataset=[{"range": {"stop": 1000}}, {"batch": {"batch_size": 2}}],
            graph=[{"name": "rate", "op": "placeholder", "dtype": "float32", "shape": []},
                   {"name": "f", "op": "cast", "input": ["value"], "dtype": "float32"},
                   {"name": "scaled", "op": "multiply", "input": ["f", "rate"]}],
            staged={"features": {"x": "scaled"}, "feed_dict": {"rate": {"value": 1, "client": True}}})
        stream = stager.open(name)
        self.assertEqual(stream.next()["x"].tolist(), [0, 1])
        for rate in (np.float32(0.5), np.array(0.25, ">f4")):  # not in this machine's byte order
            version = stream.feed("rate", rate)
            for batch in stream_of(stream):
                if batch.info.feed_version >= version:
                    first = 2 * batch.number
                    self.assertEqual(batch["x"].tolist(), [first * float(rate), (first + 1) * float(rate)])
                    break
        with self.assertRaisesRegex(stager.NotFoundError, "speed"):
            stream.feed("speed", np.float32(1))
        with self.assertRaises(stager.InvalidArgumentError):
            stream.feed("rate", "fast")
        with self.assertRaisesRegex(stager.InvalidArgumentError, "complex64"):
            stream.feed("rate", np.complex64(1))

    def test_a_component_is_fed_without_features(self):
        for staged in ({}, {"transfer_dtypes": {"value": "int32"}}):
            name = self.numbers(stop=4, drop_remainder=True, feed_dict={"value": {"value": 7, "client": True}}, **staged)
            stream = stager.open(name)
            self.assertEqual(stream.next()["value"].tolist(), [7, 7])
            stream.close()
            stager.delete(name)

    def test_missing_files_are_ignored_with_their_code(self):
        paths = [self.file(f"{number}", f"{number}\n") for number in range(3)]
        rows = stager.files([*paths, self.daemon.folder + "/none"], shuffle=False).text_line().batch(1)
        name = stager.apply(rows, name="whole")
        with self.assertRaisesRegex(stager.NotFoundError, "/none"):
            stager.open(name).next()
        name = stager.apply(rows.staged(ignored_exception_types=[stager.NotFoundError]), name="holes")
        os.unlink(paths[1])
        with stager.open(name) as stream:
            self.assertEqual([batch["record"].tolist() for batch in stream], [[b"0"], [b"2"]])

    def test_the_status_has_the_whole_name_of_a_pool(self):
        name = self.numbers(use_stage_subgraph_thread_pool=True)
        with stager.open(name) as stream:
            stream.next()
            self.assertEqual(stager.status(name)["thread_pool"], "StageThreadPool_1_of_criteo")
        name = stager.apply(stager.range(4).batch(2), name="own_threads")
        with stager.open(name) as stream:
            stream.next()
            self.assertEqual(stager.status(name)["thread_pool"], "")

    def test_run_computes_behind_the_boundary(self):
        name = self.apply(
            dataset=[{"range": {"stop": 6}}, {"batch": {"batch_size": 3}}],
            graph=[{"name": "table", "op": "variable", "shape": [10, 2], "initializer": "ones"},
                   {"name": "rows", "op": "embedding_lookup", "input": ["table", "staged:value"]},
                   {"name": "words", "op": "as_string", "input": ["staged:value"]}],
            staged={"features": {"value": "value"}}, targets=["rows", "words"])
        stream = stager.open(name)
        batch = stream.next()
        self.assertEqual(stream.targets, ("rows", "words"))
        rows, words = stream.run(batch)
        self.assertEqual(rows.tolist(), [[1.0, 1.0]] * 3)
        self.assertEqual(words.tolist(), [b"0", b"1", b"2"])
        (again,) = stream.run(batch, ["staged:value"])
        del batch
        gc.collect()
        self.assertEqual((again.tolist(), stream.held), ([0, 1, 2], []))
        with self.assertRaisesRegex(stager.NotFoundError, "nothing"):
            stream.run(stream.next(), ["nothing"])


def stream_of(stream):
    while True:
        yield stream.next()



class Following(case.Case):
    def make(self, start, **staged):
        return stager.apply(stager.range(start, 1 << 20).batch(2).staged(name=self._testMethodName, **staged), replace=True)

    def test_a_stream_that_follows_goes_on_with_the_next_version(self):
        with stager.open(self.make(0, capacity=2), follow=True, max_in_flight=3) as stream:
            held, got = stream.next(), [stream.next()["value"].tolist()]
            for number, capacity in enumerate((3, 4, 5)):
                self.make(0, capacity=capacity)
                while stream.info["followed"] == number:
                    with stream.next(timeout=60) as batch:
                        got.append(batch["value"].tolist())
                        generation = batch.info.generation
                self.assertEqual((generation, stream.info["generation"]), (number + 2, number + 2))
            self.assertEqual(got, [[2 * i, 2 * i + 1] for i in range(1, len(got) + 1)])
            self.assertEqual((held["value"].tolist(), held.info.generation), ([0, 1], 1))
            state = stream.state_dict()
        with stager.open(self._testMethodName, state=state) as stream:
            self.assertEqual(stream.next()["value"].tolist(), [2 * len(got) + 2, 2 * len(got) + 3])

    def test_other_content_begins_at_its_start_with_its_features(self):
        name = self.make(0)
        with stager.open(name, follow=True) as stream:
            batches = iter(stream)
            next(batches).release()
            stager.apply(stager.range(500, 600).batch(2)
                         .map(lambda e: {"value": e["value"], "twice": ops.add(e["value"], e["value"])})
                         .staged(name=name), replace=True)
            batch = next(batches)
            while batch.info.generation == 1:
                batch = next(batches)
            self.assertEqual((batch["value"].tolist(), batch["twice"].tolist()), ([500, 501], [1000, 1002]))
            self.assertEqual(sorted(name for name, _, _ in stream.schema), ["twice", "value"])
            batch.release()
            stager.apply(stager.range(700, 800).batch(2).map(lambda e: {"other": e["value"]}).staged(name=name), replace=True)
            with self.assertRaisesRegex(stager.FailedPreconditionError,
                                        'replaced by generation 3, and the stream cannot follow: .* lacks feature "'):
                while True:
                    stream.next(timeout=60).release()

    def test_a_replacement_between_two_passes_is_followed_by_the_next_loop(self):
        for n_clients in (1, 2):
            name = f"passes-{n_clients}"
            def make(capacity, start=0):
                staged = stager.range(start, start + 8).batch(2).staged(
                    name=name, capacity=capacity, num_clients=n_clients, delivery="broadcast")
                return stager.apply(staged, replace=True)
            make(2)
            with contextlib.ExitStack() as stack:
                streams = [stack.enter_context(stager.open(name, client_id=f"{i}", follow=True)) for i in range(n_clients)]
                def read():
                    with concurrent.futures.ThreadPoolExecutor(n_clients) as pool:
                        return list(pool.map(lambda stream: [batch["value"].tolist() for batch in stream], streams))
                want = [[0, 1], [2, 3], [4, 5], [6, 7]]
                self.assertEqual(read(), [want] * n_clients)
                make(3)
                self.assertEqual(read(), [want] * n_clients)
                self.assertEqual([stream.info["generation"] for stream in streams], [2] * n_clients)
                make(3, 100)
                self.assertEqual(read(), [[[v + 100 for v in pair] for pair in want]] * n_clients)

    def until(self, stream, generation):
        """Batches up to the first one of that generation."""
        found = 0
        while found < generation:
            with stream.next(timeout=60) as batch:
                found = batch.info.generation
                yield batch

    def test_the_part_of_the_graph_behind_the_boundary_is_that_of_the_batch(self):
        def make(capacity, *terms):
            return stager.apply(json.dumps({
                "name": "model", "dataset": [{"range": {"stop": 1000}}, {"batch": {"batch_size": 2}}],
                "graph": [{"name": "w", "op": "variable", "shape": [1], "dtype": "int64", "initializer": "ones"},
                          {"name": "sum", "op": "add", "input": terms}],
                "staged": {"features": {"value": "value"}, "capacity": capacity}, "targets": ["sum"],
                "smart_stage": "on"}), replace=True)
        value, n = "staged:value", 0
        with stager.open(make(2, value, "w"), fetches="sum", follow=True) as stream:
            for generation, (capacity, other) in enumerate(((2, "w"), (3, "w"), (2, value)), 1):
                if generation > 1:
                    make(capacity, value, other)
                for batch in self.until(stream, generation):
                    other = [n, n + 1] if batch.info.generation == 3 else [1, 1]
                    self.assertEqual(stream.run(batch)[0].tolist(), [n + other[0], n + 1 + other[1]])
                    n += 2

    def test_states_of_before_and_after_a_move_load_into_both_versions(self):
        name = self.make(0, capacity=2)
        with stager.open(name, follow=True) as stream:
            stream.next().release()
            before = stream.state_dict()
            self.make(0, capacity=3)
            moved = [batch["value"].tolist() for batch in self.until(stream, 2)][-1]
            after = stream.state_dict()
        for generation in (2, 3):
            with stager.open(name, state=before, private_run=True) as stream:
                self.assertEqual(stream.next()["value"].tolist(), [2, 3])
            with stager.open(name, state=after, private_run=True) as stream:
                self.assertEqual(stream.next()["value"].tolist(), [moved[1] + 1, moved[1] + 2])
            stager.rollback(name)

    def test_a_private_run_stays_at_its_version(self):
        with stager.open(self.make(0), follow=True, private_run=True) as stream:
            self.make(100)
            for i in range(20):
                with stream.next(timeout=60) as batch:
                    self.assertEqual((batch["value"].tolist(), batch.info.generation), ([2 * i, 2 * i + 1], 1))

    def test_ranks_of_auto_keep_their_number(self):
        name = self.make(0, num_clients="auto", delivery="round_robin", capacity=2)
        n, got = 2, {}
        def train(rank):
            with stager.open(name, follow=True, client_id=f"rank-{rank}", rank=rank, world_size=n) as stream:
                while stream.info["generation"] < 4:
                    with stream.next(timeout=60) as batch:
                        got[rank].append(int(batch["value"][0]))
                        if rank == 0 and len(got[0]) % 10 == 0 and len(got[0]) < 40:
                            self.make(0, num_clients="auto", delivery="round_robin", capacity=3 + len(got[0]) // 10)
        got.update({rank: [] for rank in range(n)})
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            list(pool.map(train, range(n)))
        for rank in range(n):
            self.assertEqual(got[rank], [2 * (n * i + rank) for i in range(len(got[rank]))])

    def test_a_stream_that_does_not_follow_is_aborted(self):
        with stager.open(self.make(0)) as stream:
            self.make(1)
            with self.assertRaisesRegex(stager.AbortedError, "replaced by generation 2"):
                while True:
                    stream.next(timeout=60).release()


if __name__ == "__main__":
    case.main()
