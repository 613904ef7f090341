#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches on a GPU, by DLPack: on the stand-in (tests/standin), or, if STG_GPU_DIR names the folder of
libstager-cuda.so, on a real GPU with PyTorch.

    LD_LIBRARY_PATH=FOLDER_OF_THE_PLUGIN test_gpu.py BUILD
"""
import ctypes
import json
import os
import re
import sys
import unittest

import case
import numpy as np
import stager

FOUND = stager.gpu_available()
IS_STANDIN = bool(FOUND) and FOUND.gpus[0].name == "standin"
if not FOUND:
    print(f"skipped: {FOUND.reason}")
    sys.exit(77)
KERNELS = not IS_STANDIN or os.environ.get("STG_STANDIN_KERNELS")  # nvcc compiled those of the stand-in
CUDA, OLD, NEW = 2, b"dltensor", b"dltensor_versioned"


class Standin(ctypes.Structure):
    """struct standin of tests/standin/standin.h."""

    _fields_ = [(name, ctypes.CFUNCTYPE(None)) for name in ("hold", "go", "synchronize")]
    _fields_ += [("block", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("unblock", ctypes.CFUNCTYPE(None)),
                 ("no_read_only", ctypes.c_bool),
                 ("no_memory", ctypes.c_bool)]
    _fields_ += [(name, ctypes.c_uint) for name in ("fail_copy", "fail_alloc", "fail_kernel")]
    _fields_ += [("n_devices", ctypes.c_int)]
    _fields_ += [(name, ctypes.c_uint) for name in ("n_allocations", "n_streams", "n_events", "n_registered",
                                                    "n_bounces", "n_copies", "n_allocs", "n_launches", "n_shared")]
    _fields_ += [("see", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p))]


def standin():
    library = ctypes.CDLL(os.path.join(case.BUILD, "tests/standin/libstager-cuda.so"))
    library.stg_standin.restype = ctypes.POINTER(Standin)
    return library.stg_standin().contents


class Exported(ctypes.Structure):
    """DLTensor, as far as the tests read it."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8)]


def exported(capsule, name, offset=0):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Exported.from_address(get(capsule, name) + offset)


def values(tensor, device, **how):
    """The device's data, once all copies are done."""
    capsule = tensor.__dlpack__(**how)
    device.synchronize()
    at = exported(capsule, OLD)
    assert (at.device_type, at.device_id, at.ndim, at.bits) == (CUDA, 0, 1, 64), at
    n = tensor.shape[0]
    return list((ctypes.c_int64 * n).from_address(device.see(at.data)))


@unittest.skipUnless(IS_STANDIN, "that is a real one")
class OnAStandIn(case.Case):
    def test_a_gpu_is_reported(self):
        gpu = FOUND.gpus[0]
        self.assertTrue(stager.gpu_available())
        self.assertEqual((gpu.name, gpu.register_read_only, gpu.mps), ("standin", True, False))

    def test_batches_are_tensors_of_dlpack_on_the_device(self):
        device = standin()
        with stager.open(self.numbers(stop=40, batch_size=4), gpu="cuda:0", depth=3) as stream:
            got = []
            for batch in stream:
                tensor = batch[batch.keys()[0]]
                self.assertEqual((tensor.__dlpack_device__(), tensor.shape), ((CUDA, 0), (4,)))
                got += values(tensor, device)
        self.assertEqual(got, list(range(40)))
        del batch, tensor, stream
        self.assertEqual((device.n_allocations, device.n_streams, device.n_events), (0, 0, 0))

    def test_replayed_batches_lie_where_they_were_copied_to(self):
        device = standin()
        with stager.open(self.numbers(stop=400, batch_size=4), gpu="cuda:0", depth=3, replay_batches=8, replay_held=2) as stream:
            got, copied = [], []
            for batch in stream:
                got.append(values(batch["value"], device))
                copied.append(stream.info["device_bytes"])
        run = [list(range(4 * i, 4 * i + 4)) for i in range(8)]
        self.assertEqual(got, run + [run[i % 2] for i in range(8)])
        self.assertEqual(copied[8:], [copied[8]] * 8)
        del batch, stream
        self.assertEqual((device.n_allocations, device.n_streams, device.n_events), (0, 0, 0))

    def test_results_are_tensors_of_dlpack_on_the_device_as_long_as_they_are_looked_at(self):
        device = standin()
        twice = {"name": "twice", "op": "concat", "input": ["staged:value", "staged:value"], "axis": 0}
        name = self.apply(dataset=[{"range": {"stop": 20}}, {"batch": {"batch_size": 2}}], graph=[twice],
                          staged={"features": {"value": "value"}, "compute_device": "on"}, targets=["twice"])
        with stager.open(name, gpu="cuda:0") as stream:
            results = [stream.run(batch)[0] for batch in stream]
            if results[0].__dlpack_device__()[0] != CUDA:
                self.skipTest("built without CUDA")
            capsules = [results[0].__dlpack__(stream=1)]
        self.assertEqual([values(result, device, stream=1) for result in results],
                         [[2 * i, 2 * i + 1] * 2 for i in range(10)])
        del results, stream
        self.assertEqual(exported(capsules[0], OLD).device_type, CUDA)
        self.assertGreater(device.n_allocations, 0)
        capsules.clear()
        self.assertEqual((device.n_allocations, device.n_streams, device.n_events), (0, 0, 0))

    def test_a_stream_that_follows_moves_to_the_next_version_on_the_device(self):
        device = standin()
        def make(capacity):
            return stager.apply(json.dumps({
                "name": "moves", "dataset": [{"range": {"stop": 400}}, {"batch": {"batch_size": 2}}],
                "staged": {"capacity": capacity}}), replace=True)
        with stager.open(make(2), gpu="cuda:0", follow=True) as stream:
            held, got = stream.next(timeout=60), []
            for generation in (2, 3):
                make(generation + 1)
                while stream.info["generation"] < generation:
                    with stream.next(timeout=60) as batch:
                        got += values(batch["value"], device)
            self.assertEqual(got, list(range(2, 2 + len(got))))
            self.assertEqual(values(held["value"], device), [0, 1])
        del batch, held, stream
        self.assertEqual((device.n_allocations, device.n_streams, device.n_events), (0, 0, 0))

    def test_explain_tells_what_runs_on_the_gpu(self):
        graph = [{"name": "half", "op": "cast", "input": ["staged:value"], "dtype": "float32"},
                 {"name": "power", "op": "pow", "input": ["staged:value", "staged:value"]}]
        name = self.apply(dataset=[{"range": {"stop": 10 ** 9}}, {"batch": {"batch_size": 8}}], graph=graph,
                          staged={"features": {"value": "value"}, "compute_device": "on"}, targets=["half", "power"])
        nodes = {}
        with stager.open(name, gpu="cuda:0") as stream:
            for batch in stream:
                half = stream.run(batch)[0]
                if half.__dlpack_device__()[0] != CUDA:
                    self.skipTest("built without CUDA")
                nodes = {node["name"]: node for node in stager.explain(name)["nodes"]}
                if nodes["half"]["on_gpu"]:
                    break
        self.assertEqual([nodes[node]["on_gpu"] for node in ("value", "half", "power")], [False, True, False])
        self.assertEqual([nodes[node]["bytes"] for node in ("value", "half", "power")], [64, 32, 64])
        self.assertGreater(nodes["half"]["n_trainer"], 0)

    def test_a_device_tensor_is_nothing_for_the_host(self):
        with stager.open(self.numbers(), gpu="cuda") as stream:
            tensor = next(iter(stream)).tensors().popitem()[1]
            with self.assertRaisesRegex(BufferError, "on a GPU"):
                memoryview(tensor)
            with self.assertRaises(AttributeError):
                tensor.__array_interface__
            for how in ({"dl_device": (1, 0)}, {"copy": True}, {"dl_device": (CUDA, 1)}):
                with self.assertRaisesRegex(BufferError, "on a GPU"):
                    tensor.__dlpack__(**how)

    def test_the_consumers_stream_is_one_of_dlpacks(self):
        device = standin()
        with stager.open(self.numbers(stop=2), gpu="cuda") as stream:
            tensor = next(iter(stream)).tensors().popitem()[1]
            for stream_number in (0, -2):
                with self.assertRaisesRegex(ValueError, "stream"):
                    tensor.__dlpack__(stream=stream_number)
            with self.assertRaises(TypeError):
                tensor.__dlpack__(stream="1")
            for stream_number in (None, -1, 1):
                self.assertEqual(values(tensor, device, stream=stream_number), [0, 1])
            new = tensor.__dlpack__(stream=1, max_version=(1, 0))
            self.assertEqual(exported(new, NEW, 32).device_type, CUDA)

    def test_views_keep_a_batch_and_its_lease_goes_back_after_the_copy(self):
        device = standin()
        name = self.numbers(stop=12, batch_size=2)
        with stager.open(name, gpu="cuda", max_in_flight=1, depth=1) as stream:
            batches = iter(stream)
            capsule = next(batches).tensors().popitem()[1].__dlpack__()
            device.synchronize()
            self.assertEqual(exported(capsule, OLD).device_type, CUDA)
            second = next(batches)
            with self.assertRaises(stager.MaxInFlightError):
                next(batches)
            del capsule
            third = next(batches)
            self.assertEqual([values(batch.tensors().popitem()[1], device) for batch in (second, third)],
                             [[2, 3], [4, 5]])

    def test_what_does_not_go_together_is_refused(self):
        name = self.numbers()
        for how, why in (({"gpu": "tpu"}, "cuda:N"), ({"gpu": "cuda:7"}, "this process sees 1"),
                         ({"gpu": "cuda", "writable": True}, "copy_on_write"),
                         ({"gpu": "cuda", "batch_size": 1}, "batch_size")):
            with self.assertRaisesRegex(stager.InvalidArgumentError, why):
                stager.open(name, **how)


def floats(tensor):
    """The elements of a float32 tensor, wherever it is."""
    if tensor.__dlpack_device__()[0] != CUDA:
        return np.asarray(tensor)
    if not IS_STANDIN:
        return case.need("torch").from_dlpack(tensor).cpu().numpy()
    device, capsule = standin(), tensor.__dlpack__()
    device.synchronize()
    at = device.see(exported(capsule, OLD).data)
    return np.array((ctypes.c_float * tensor.shape[0]).from_address(at))


class Models(case.Case):
    """The whole models of examples/models, on the stand-in or on a GPU."""

    def golden(self):
        """(the rows, {model: scores by NumPy})"""
        with open(os.path.join(case.HERE, "../client/compute/models.golden.h"), encoding="utf-8") as file:
            text = file.read()
        scores = {name: [float(score) for score in of.split(", ")] for name, of in re.findall(r'{"(\w+)", {(.*?)}}', text)}
        return re.findall(r'^    "(.*)",$', text, re.M), scores

    def model(self, name, data, suffix, **staged):
        """Applies the model, with everything that may run before the boundary there."""
        with open(os.path.join(case.HERE, f"../../examples/models/{name}.yaml.in"), encoding="utf-8") as file:
            text = file.read().replace("@DATA@", data)
        text = re.sub(r"^smart_stage:.*\n", "", text, flags=re.M)
        text = text.replace(f"name: {name}\n", f"name: {name}-{suffix}\n").replace("staged:\n", "staged:\n" + "".join(
            f"  {key}: {value}\n" for key, value in staged.items()))
        return stager.apply(text + "smart_stage: on\n", replace=True)

    def test_scores_are_computed_on_the_device(self):
        rows, golden = self.golden()
        data = self.file("clicks.csv", "".join(row + "\n" for row in rows * 4))  # a batch, and half of one
        self.assertEqual(len(golden), 5)
        for name, want in golden.items():
            with self.subTest(name), stager.open(self.model(name, data, "on", compute_device="on"), fields=[], fetches=["scores"],
                                                 gpu="cuda:0") as stream:
                got, places = [], set()
                for batch in stream:
                    scores = stream.run(batch, ["scores"])[0]
                    if IS_STANDIN and not KERNELS:
                        self.skipTest("built without CUDA")
                    self.assertEqual(scores.__dlpack_device__(), (CUDA, 0))
                    got += list(floats(scores))
                    places.add(stream.info["run_where"])
                self.assertEqual((len(got), places), (48, {"cuda:0"}))
                np.testing.assert_allclose(got, want * 4, rtol=0, atol=2e-6)

    def test_scores_on_the_device_are_those_of_the_host(self):
        rows, golden = self.golden()
        data = self.file("clicks.csv", "".join(row + "\n" for row in rows * 40))
        for name in golden:
            with self.subTest(name):
                found = []
                for how in ("on", "off"):
                    with stager.open(self.model(name, data, how, compute_device=how), fields=[], fetches=["scores"],
                                     gpu="cuda:0") as stream:
                        found.append(np.concatenate([floats(stream.run(batch, ["scores"])[0]) for batch in stream]))
                np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-6)


@unittest.skipIf(IS_STANDIN, "there is no GPU")
class OnAGpu(case.Case):
    def test_pytorch_gets_every_batch(self):
        torch = case.need("torch")
        import stager.torch  # pylint: disable=redefined-outer-name
        name = self.numbers(stop=40000, batch_size=16, capacity=8)
        total = torch.zeros((), dtype=torch.int64, device="cuda:0")
        n = 0
        with stager.open(name, device=stager.torch.direct("cuda:0"), depth=4) as stream:
            for batch in stream:
                (value,) = batch.values()
                self.assertTrue(value.is_cuda)
                total += value.sum()
                n += 1
        self.assertEqual((n, total.item()), (2500, sum(range(40000))))

    def test_pytorch_may_use_a_stream_of_its_own(self):
        torch = case.need("torch")
        import stager.torch  # pylint: disable=redefined-outer-name
        side, got = torch.cuda.Stream(), []
        with stager.open(self.numbers(stop=4000), device=stager.torch.direct()) as stream, torch.cuda.stream(side):
            for batch in stream:
                (value,) = batch.values()
                got.append(value.clone())
        side.synchronize()
        self.assertEqual(np.concatenate([part.cpu().numpy() for part in got]).tolist(), list(range(4000)))

    def test_cupy_takes_batches_on_a_stream_of_its_own(self):
        try:
            import cupy
        except ImportError:
            self.skipTest("no cupy")
        side, got = cupy.cuda.Stream(non_blocking=True), []
        with stager.open(self.numbers(stop=400), gpu="cuda:0") as stream, side:
            for batch in stream:
                got.append(cupy.from_dlpack(batch["value"]).copy())
            del batch  # side must not be freed earlier
        side.synchronize()
        self.assertEqual(cupy.concatenate(got).tolist(), list(range(400)))


if __name__ == "__main__":
    case.main()
