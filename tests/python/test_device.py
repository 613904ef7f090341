#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches that are copied to a device before the loop requests them."""
import gc
import sys
import weakref
from unittest import mock

import case
import stager
from stager._ahead import Ahead, Hook, hook_of


class Source:
    """A fake stream: yields 0, 1, … of the ready items, and raises errors."""

    def __init__(self, *items):
        self.items, self.n_taken, self.n_ready = list(items), 0, len(items)
        self.info = {"errors": 0, "finished": False}

    def next(self, timeout=None):
        if self.n_taken == self.n_ready:
            assert timeout == 0, "it would wait"
            raise stager.DeadlineExceededError("nothing is ready")
        self.n_taken += 1
        item = self.items[self.n_taken - 1]
        if isinstance(item, Exception):
            self.info["errors"] += 1
            raise item
        return item

    def _mark(self):
        return {"batches": self.n_taken}


class Recorder(Hook):
    def __init__(self):
        self.put_items = []

    def put(self, batch):
        self.put_items.append(batch)
        return -batch

    def take(self, value):
        return value * 10


class TheQueue(case.Case):
    def test_depth_batches_are_put_behind_the_one_that_is_taken(self):
        hook, source = Recorder(), Source(1, 2, 3, 4)
        ahead = Ahead(hook, depth=2)
        self.assertEqual((ahead.next(source), hook.put_items), (-10, [1, 2, 3]))
        self.assertEqual((ahead.next(source), hook.put_items), (-20, [1, 2, 3, 4]))
        self.assertEqual((ahead.next(source), ahead.next(source)), (-30, -40))

    def test_what_is_not_ready_is_not_waited_for(self):
        hook, source = Recorder(), Source(1, 2, 3)
        source.n_ready = 1
        ahead = Ahead(hook, depth=2)
        self.assertEqual((ahead.next(source), hook.put_items), (-10, [1]))
        source.n_ready = 3
        self.assertEqual((ahead.next(source), hook.put_items), (-20, [1, 2, 3]))

    def test_an_error_comes_in_its_place_and_nothing_is_taken_behind_it(self):
        source = Source(1, stager.DataLossError("bad"), 3)
        ahead = Ahead(Recorder(), depth=5)
        self.assertEqual((ahead.next(source), source.n_taken), (-10, 2))
        with self.assertRaisesRegex(stager.DataLossError, "bad"):
            ahead.next(source)
        self.assertEqual(ahead.next(source), -30)

    def test_an_error_item_with_the_code_of_a_timeout_is_none(self):
        ahead = Ahead(Recorder(), depth=2)
        source = Source(1, stager.DeadlineExceededError("the batch took too long"), 3)
        self.assertEqual((ahead.next(source), source.n_taken), (-10, 2))
        with self.assertRaisesRegex(stager.DeadlineExceededError, "took too long"):
            ahead.next(source)
        self.assertEqual(ahead.next(source), -30)

    def test_an_error_of_the_hook_comes_in_the_place_of_its_batch(self):
        def hook(batch):
            return 1 // batch
        ahead, source = Ahead(hook_of(hook), depth=2), Source(1, 0, 1)
        self.assertEqual(ahead.next(source), 1)
        with self.assertRaises(ZeroDivisionError):
            ahead.next(source)
        self.assertEqual(ahead.next(source), 1)

    def test_the_state_is_of_what_was_taken_from_it(self):
        source = Source(1, 2, 3)
        ahead = Ahead(Recorder(), depth=1)
        ahead.next(source)
        self.assertEqual((ahead.mark, source.n_taken), ({"batches": 1}, 2))
        ahead.next(source), ahead.next(source)
        self.assertIsNone(ahead.mark)

    def test_a_depth_below_0_is_refused(self):
        with self.assertRaisesRegex(stager.InvalidArgumentError, "depth=-1"):
            Ahead(Recorder(), depth=-1)


class Streams(case.Case):
    def test_a_loop_gets_what_a_function_makes_of_each_batch(self):
        stream = stager.open(self.numbers(stop=5), device=lambda batch: batch["value"].tolist(), depth=3)
        for _ in range(2):
            self.assertEqual(list(stream), [[0, 1], [2, 3], [4]])
        self.assertEqual(stream.held, [])

    def test_a_client_that_keeps_its_batches_gets_as_many_as_it_may_hold(self):
        stream = stager.open(self.numbers(stop=20, capacity=8), device=lambda batch: batch, depth=8)
        self.assertEqual([batch["value"].tolist()[0] for batch in stream], list(range(0, 20, 2)))

    def test_a_state_leaves_out_what_is_ahead(self):
        def opened():
            return stager.open(name, private_run=True, device=lambda batch: batch["value"].tolist())
        name = self.numbers(stop=12, capacity=8)
        batches = iter(stream := opened())
        next(batches), next(batches)
        state = stream.state_dict()
        self.assertEqual((state["pass"], state["position"]), (0, 4))
        rest = list(batches)
        self.assertEqual((stream.state_dict()["pass"], stream.state_dict()["position"]), (1, 0))
        again = opened()
        again.load_state_dict(state)
        self.assertEqual(list(again), rest)
        self.assertEqual(rest[0], [4, 5])

    def test_a_loop_that_was_left_begins_anew_also_near_the_end(self):
        stream = stager.open(self.numbers(stop=6, capacity=4), device=lambda batch: batch["value"].tolist())
        for n_taken in (1, 2):
            batches = iter(stream)
            self.assertEqual([next(batches) for _ in range(n_taken)], [[0, 1], [2, 3]][:n_taken])
        self.assertEqual(list(stream), [[0, 1], [2, 3], [4, 5]])

    def test_close_gives_back_what_is_ahead(self):
        stream = stager.open(self.numbers(stop=20, capacity=8), device=lambda batch: batch, max_in_flight=4)
        first = next(iter(stream))
        stream.close()
        self.assertEqual(first["value"].tolist(), [0, 1])
        self.assertEqual(stream.held, [first.number])

    def test_a_stream_with_a_device_goes_without_the_garbage_collector(self):
        stream = stager.open(self.numbers(), device=lambda batch: None)
        next(iter(stream))
        gone = weakref.ref(stream._ahead)
        gc.disable()
        try:
            del stream
            self.assertIsNone(gone())
        finally:
            gc.enable()

    def test_a_name_of_a_device_needs_torch(self):
        with mock.patch.dict(sys.modules, {"torch": None, "stager.torch": None}):
            with self.assertRaisesRegex(stager.InvalidArgumentError, "torch is not installed"):
                stager.open(self.numbers(), device="cuda:0")


if __name__ == "__main__":
    case.main()
