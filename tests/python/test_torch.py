#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches in PyTorch. Skipped without torch."""
import contextlib
import unittest
from unittest import mock

import case

torch = case.need("torch")
import stager  # noqa: E402
import stager.torch  # noqa: E402


class Torch(case.Case):
    def lines(self, features):
        path = self.file("lines", "1 2\n3\n4 5 6\n7\n")
        return stager.apply(stager.files(path, shuffle=False).text_line().batch(2)
                            .map(features).staged(name=self._testMethodName))

    def test_a_tensor_lies_where_the_batch_does_and_keeps_it(self):
        stream = stager.torch.open(self.numbers(stop=8, batch_size=4))
        batch = stream.next()
        tensor = stager.torch.tree(batch)["value"]
        self.assertEqual(tensor.data_ptr(), batch["value"].__array_interface__["data"][0])
        self.assertEqual(tensor.dtype, torch.int64)
        del batch
        self.assertEqual((tensor.tolist(), stream.held), ([0, 1, 2, 3], [0]))
        tensor += 1
        self.assertEqual(tensor.tolist(), [1, 2, 3, 4])
        del tensor
        self.assertEqual(stream.held, [])

    def test_a_stream_that_is_read_only_gives_copies_or_a_named_error(self):
        stream = stager.open(self.numbers(stop=8, batch_size=4))
        batch = stream.next()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "writable=True"):
            stager.torch.tree(batch)
        tensor = stager.torch.tree(batch, copy=True)["value"]
        batch.release()
        self.assertEqual(tensor.tolist(), [0, 1, 2, 3])

    def test_every_dtype(self):
        names = ["float32", "float64", "int32", "uint8", "int16", "int8", "int64", "bool", "float16",
                 "bfloat16"]
        name = stager.apply(stager.range(3).batch(3).map(
            lambda r: {name: stager.ops.cast(r["value"], dtype=name) for name in names}), name="dtypes")
        tensors = stager.torch.tree(stager.torch.open(name).next())
        for dtype in names:
            wanted = torch.arange(3).to(getattr(torch, dtype))
            self.assertEqual(tensors[dtype].dtype, wanted.dtype)
            self.assertTrue(torch.equal(tensors[dtype], wanted), dtype)

    def test_what_ragged_batch_yields_is_jagged(self):
        path = self.file("rows", "1 2\n3\n")
        def ids(r):
            return {"ids": stager.ops.string_to_number(stager.ops.string_split(r["record"]).values)}
        rows = stager.files(path).text_line().map(ids, num_parallel_calls=1).ragged_batch(2)
        with stager.torch.open(stager.apply(rows, name="jagged")) as stream:
            value = stager.torch.tree(stream.next())["ids"]
        self.assertEqual((value.is_nested, value.layout), (True, torch.jagged))
        self.assertEqual([row.tolist() for row in value.unbind()], [[1, 2], [3]])

    def test_ragged_is_jagged_and_sparse_is_coo(self):
        def features(r):
            words = stager.ops.string_split(r["record"])
            parts = stager.ops.string_split(r["record"], result_type="sparse")
            number = stager.ops.string_to_number
            return {"r": stager.Ragged(number(words[0], out_type="int64"), words[1]),
                    "s": stager.Sparse(number(parts[0], out_type="int64"), parts[1], parts[2]),
                    "w": stager.Ragged(words[0], words[1])}
        batch = stager.torch.open(self.lines(features)).next()
        got = stager.torch.tree(batch)
        self.assertEqual(got["r"].layout, torch.jagged)
        self.assertEqual([row.tolist() for row in got["r"].unbind()], [[1, 2], [3]])
        self.assertEqual(got["s"].to_dense().tolist(), [[1, 2], [3, 0]])
        self.assertEqual(got["w"].values.tolist(), [b"1", b"2", b"3"])
        keys, values, lengths = stager.torch.keyed_jagged(batch, ["r", "r"])
        self.assertEqual((keys, values.tolist(), lengths.tolist()),
                         (["r", "r"], [1, 2, 3, 1, 2, 3], [2, 1, 2, 1]))

    def test_a_data_loader_takes_it_without_workers(self):
        dataset = stager.torch.IterableDataset(self.numbers(stop=6), length=3)
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=0)
        self.assertEqual(len(loader), 3)
        for _ in range(2):
            self.assertEqual([batch["value"].tolist() for batch in loader], [[0, 1], [2, 3], [4, 5]])
        dataset.close()

    def test_a_data_loader_that_would_make_batches_of_batches_is_refused(self):
        dataset = stager.torch.IterableDataset(self.numbers(stop=6))
        for arguments in ({}, {"batch_size": 8}, {"batch_size": 8, "collate_fn": list}):
            with self.assertRaisesRegex(stager.FailedPreconditionError, "batch_size=None"):
                next(iter(torch.utils.data.DataLoader(dataset, **arguments)))

        class Shard(torch.utils.data.IterableDataset):  # what accelerate puts around it
            def __iter__(self):
                for value in dataset:
                    yield value
        with self.assertRaisesRegex(stager.FailedPreconditionError, "batch_size=None"):
            next(iter(torch.utils.data.DataLoader(Shard())))
        self.assertEqual(next(iter(torch.utils.data.DataLoader(Shard(), batch_size=None)))["value"].tolist(), [0, 1])
        dataset.close()

    def test_its_length_opens_nothing(self):
        self.assertEqual(len(stager.torch.IterableDataset("no such pipeline", length=3)), 3)
        with self.assertRaisesRegex(TypeError, "length="):
            len(stager.torch.IterableDataset("no such pipeline"))

    def test_a_state_that_cannot_be_loaded_is_refused_by_the_call_that_loads_it(self):
        dataset = stager.torch.IterableDataset(self.numbers())
        for _ in dataset:
            pass
        state = dataset.state_dict()
        for use in (lambda: dataset.load_state_dict({**state, "pass": 7}), lambda: next(iter(dataset))):
            with self.assertRaisesRegex(stager.InvalidArgumentError, "edited"):
                use()
        dataset.set_state(state)
        self.assertEqual(dataset.get_state(), state)
        self.assertEqual(sum(1 for _ in dataset), 5)
        dataset.close()

    def test_workers_are_refused_with_the_reason(self):
        dataset = stager.torch.IterableDataset(self.numbers(stop=6))
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)
        with self.assertRaisesRegex(Exception, "num_workers must be 0: stagerd runs the threads"):
            next(iter(loader))

    def test_its_state_goes_with_the_model(self):
        name = self.numbers(stop=8)
        dataset = stager.torch.IterableDataset(name, private_run=True)
        dataset.set_epoch(3)
        batches = iter(dataset)
        next(batches), next(batches)
        state = dataset.state_dict()
        self.assertEqual((state["position"], state["epoch"]), (4, 3))
        again = stager.torch.IterableDataset(name, private_run=True)
        again.load_state_dict(state)
        self.assertEqual([batch["value"].tolist() for batch in again], [[4, 5], [6, 7]])


class FakeCuda:
    """torch.cuda as `to` uses it, with one device; it records the calls."""

    def __init__(self):
        self.calls = []

    def __enter__(self):
        self._patches = contextlib.ExitStack()
        note = self.calls.append

        class Stream:
            def __init__(self, name):
                self.name = str(name)

            def record_event(self):
                note(f"event on {self.name}")
                return "event"

            def wait_event(self, event):
                note(f"{self.name} waits for {event}")

        @contextlib.contextmanager
        def on(stream):
            note(f"on {stream.name}")
            yield
            note("off")

        def pin_memory(tensor):
            note("pinned")
            return tensor.clone()

        def to(tensor, device, non_blocking):
            note(f"to {device}, non_blocking={non_blocking}")
            return tensor

        def record_stream(tensor, stream):
            note(f"kept for {stream.name}")
        for target, name, fake in (
                (torch.cuda, "is_available", lambda: True), (torch.cuda, "device_count", lambda: 1),
                (torch.cuda, "Stream", lambda device: Stream(f"side of {device}")),
                (torch.cuda, "stream", on),
                (torch.cuda, "current_stream", lambda device: Stream("the current stream")),
                (torch.Tensor, "pin_memory", pin_memory), (torch.Tensor, "to", to),
                (torch.Tensor, "record_stream", record_stream)):
            self._patches.enter_context(mock.patch.object(target, name, fake))
        return self

    def __exit__(self, *_):
        self._patches.close()


class Devices(case.Case):
    def test_the_cpu_is_where_batches_are(self):
        name = self.numbers(stop=4)
        for device in ("cpu", torch.device("cpu"), stager.torch.to("cpu")):
            stream = stager.open(name, private_run=True, device=device)
            rows = next(iter(stream))
            self.assertEqual(stream.held, [0])
            rows["value"] += 1
            self.assertEqual(rows["value"].tolist(), [1, 2])
            del rows
            self.assertEqual(stream.held, [])

    def test_copies_to_another_device_give_the_batch_back(self):
        stream = stager.open(self.numbers(stop=20, capacity=8), device="meta", depth=3)
        rows = next(iter(stream))
        self.assertEqual((rows["value"].device.type, rows["value"].shape), ("meta", (2,)))
        self.assertEqual(stream.held, [])

    def test_cuda_gets_it_through_pinned_memory_on_a_stream_of_its_own(self):
        with FakeCuda() as cuda:
            stream = stager.open(self.numbers(stop=4), device="cuda:0", depth=0)
            rows = next(iter(stream))
        self.assertEqual(cuda.calls, [
            "on side of cuda:0", "pinned", "to cuda:0, non_blocking=True", "event on side of cuda:0", "off",
            "the current stream waits for event", "kept for the current stream"])
        self.assertEqual((rows["value"].tolist(), stream.held), ([0, 1], []))

    def test_copies_to_cuda_are_ahead_of_the_loop(self):
        with FakeCuda() as cuda:
            stream = stager.open(self.numbers(stop=6, capacity=4), device="cuda")
            self.assertEqual([rows["value"].tolist() for rows in stream], [[0, 1], [2, 3], [4, 5]])
            self.assertEqual(cuda.calls.count("pinned"), 3)
            with self.assertRaisesRegex(stager.FailedPreconditionError, "sees 1 CUDA devices"):
                stager.torch.to("cuda:1")

    @unittest.skipUnless(torch.cuda.is_available(), "torch sees no CUDA device")
    def test_a_real_cuda_device_gets_every_batch(self):
        stream = stager.open(self.numbers(stop=4000, batch_size=16, capacity=8), device="cuda:0")
        sums = [rows["value"].sum() for rows in stream]
        self.assertEqual((len(sums), int(sum(sums))), (250, sum(range(4000))))

    def test_a_device_that_is_not_there_is_refused(self):
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            with self.assertRaisesRegex(stager.FailedPreconditionError,
                                        "device='cuda:0': torch .* sees 0 CUDA devices here"):
                stager.torch.open(self.numbers(), device="cuda:0")
        with self.assertRaises(RuntimeError):
            stager.torch.to("abacus")

    def test_a_data_loader_takes_a_device(self):
        dataset = stager.torch.IterableDataset(self.numbers(stop=4), device="meta")
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=0)
        self.assertEqual([rows["value"].device.type for rows in loader], ["meta", "meta"])
        dataset.close()


if __name__ == "__main__":
    case.main()
