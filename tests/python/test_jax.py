#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches in JAX. Skipped without jax."""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from unittest import mock  # noqa: E402

import numpy as np  # noqa: E402

import case  # noqa: E402

jax = case.need("jax")
import jax.numpy as jnp  # noqa: E402

import stager  # noqa: E402
import stager.jax  # noqa: E402


class JaxCase(case.Case):
    def floats(self, dtype="float32", **staged):
        return stager.apply(stager.range(8).batch(4).map(
            lambda r: {"x": stager.ops.cast(r["value"], dtype=dtype)}).staged(
                name=self._testMethodName[:64], **staged))


class Jax(JaxCase):
    def test_an_array_lies_where_the_batch_does_and_keeps_it(self):
        stream = stager.jax.open(self.floats())
        batch = stream.next()
        array = stager.jax.tree(batch)["x"]
        self.assertEqual(array.unsafe_buffer_pointer(), batch["x"].__array_interface__["data"][0])
        del batch
        gave = (array.tolist(), stream.held)
        self.assertEqual(gave, ([0.0, 1.0, 2.0, 3.0], [0]))
        del array
        self.assertEqual(stream.held, [])

    def test_jit_and_what_is_donated_to_it_leave_the_batch_as_it_is(self):
        stream = stager.jax.open(self.floats())
        batch = stream.next()
        self.assertEqual(jax.jit(lambda x: x + 1)(stager.jax.tree(batch)["x"]).tolist(), [1, 2, 3, 4])
        donated = jax.jit(lambda x: x * 2, donate_argnums=0)(stager.jax.tree(batch)["x"])
        self.assertEqual(donated.tolist(), [0, 2, 4, 6])
        self.assertEqual(batch["x"].tolist(), [0, 1, 2, 3])

    def test_a_stream_that_is_read_only_gives_copies_or_a_named_error(self):
        batch = stager.open(self.floats()).next()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "stager.jax.open"):
            stager.jax.tree(batch)
        array = stager.jax.tree(batch, copy=True)["x"]
        batch.release()
        self.assertEqual(array.tolist(), [0, 1, 2, 3])

    def test_every_dtype_that_jax_has(self):
        for dtype in ("float32", "int32", "uint8", "int16", "int8", "bool", "float16", "bfloat16"):
            name = stager.apply(stager.range(3).batch(3).map(
                lambda r: {"x": stager.ops.cast(r["value"], dtype=dtype)}), name=f"dtype_{dtype}")
            array = stager.jax.tree(stager.jax.open(name).next())["x"]
            wanted = jnp.arange(3).astype(dtype)
            self.assertEqual(array.dtype, wanted.dtype)
            self.assertTrue((array == wanted).all(), dtype)

    def test_int64_is_int32_unless_x64_is_on(self):
        batch = stager.jax.open(self.floats(dtype="int64")).next()
        self.assertEqual(stager.jax.tree(batch)["x"].dtype, np.int32)
        with jax.enable_x64(True):
            array = stager.jax.tree(batch)["x"]
        self.assertEqual((array.dtype, array.tolist()), (np.int64, [0, 1, 2, 3]))

    def test_a_batch_is_a_pytree_ragged_and_sparse_too(self):
        path = self.file("lines", "1 2\n3\n")

        def features(r):
            words = stager.ops.string_split(r["record"])
            parts = stager.ops.string_split(r["record"], result_type="sparse")
            number = stager.ops.string_to_number
            return {"r": stager.Ragged(number(words[0]), words[1]),
                    "s": [stager.Sparse(number(parts[0]), parts[1], parts[2])],
                    "w": r["record"]}
        name = stager.apply(stager.files(path, shuffle=False).text_line().batch(2).map(features),
                            name="parts")
        got = stager.jax.tree(stager.jax.open(name).next())
        self.assertEqual(got["w"].tolist(), [b"1 2", b"3"])
        del got["w"]
        doubled = jax.jit(lambda tree: jax.tree.map(lambda x: x * 2, tree))(got)
        self.assertEqual((doubled["r"].values.tolist(), got["r"].row_splits.tolist()), ([2, 4, 6], [0, 2, 3]))
        self.assertEqual(got["s"][0].todense().tolist(), [[1, 2], [3, 0]])


class BehindTheBack(JaxCase):
    def test_next_waits_for_what_is_still_computed_with_batches_that_were_let_go_of(self):
        @jax.jit
        def step(total, x):
            product = jnp.outer(x, x)
            for _ in range(30):
                product = jnp.tanh(product @ product)
            return total + product.sum()
        name = stager.apply(stager.range(2400).batch(300).map(
            lambda r: {"x": stager.ops.cast(r["value"], dtype="float32")}).staged(name="slow", capacity=8))
        for options in ({}, {"device": stager.jax.to()}):
            total, n_batches = jnp.zeros(()), 0
            with stager.jax.open(name, **options) as stream:
                for batch in stream:
                    rows = batch if options else stager.jax.tree(batch)
                    total = step(total, rows["x"])
                    n_batches += 1
            self.assertEqual((n_batches, bool(jnp.isfinite(total))), (8, True))

    def test_a_client_that_keeps_arrays_gets_a_hint(self):
        stream = stager.jax.open(self.floats())
        kept = [stager.jax.tree(stream.next()) for _ in range(2)]
        with mock.patch.object(stager._stream, "_SYNCHRONIZE_S", 0.01):
            with self.assertRaises(stager.MaxInFlightError):
                stream.next()
        self.assertEqual(kept[1]["x"].tolist(), [4, 5, 6, 7])


class Devices(case.Case):
    def test_the_cpu_is_where_batches_are(self):
        name = stager.apply(stager.range(8).batch(4).map(
            lambda r: {"x": stager.ops.cast(r["value"], dtype="float32")}), name="cpu")
        for device in (None, "cpu", jax.devices("cpu")[0]):
            with stager.open(name, private_run=True, device=stager.jax.to(device)) as stream:
                rows = [tree["x"].tolist() for tree in stream]
            self.assertEqual(rows, [[0, 1, 2, 3], [4, 5, 6, 7]])

    def test_a_device_that_is_not_there_is_refused(self):
        with self.assertRaisesRegex(stager.FailedPreconditionError, "abacus"):
            stager.jax.to("abacus")


if __name__ == "__main__":
    case.main()
