#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements, and ops over whole dimensions, against TensorFlow's, over random shapes
and values, on either side of the boundary.

    peer_shapes.py BUILD [SECONDS]     SECONDS: how long each test draws (default 20)
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from op_tool import quote  # noqa: E402
from peer_elementwise import ALL, NUMBERS, compare, draw, random_shapes, random_values  # noqa: E402
from peer_ops import FLOATS, main  # noqa: E402


def some(rng, dtypes=ALL, rank=None):
    shape = random_shapes(rng, 1)[0] if rank is None else tuple(rng.choice([0, 1, 2, 3, 5]) for _ in range(rank))
    return random_values(rng, rng.choice(dtypes), shape)


def literal(rng, dtype):
    """A value in the fixture's syntax and in TensorFlow's form."""
    if dtype == "string":
        return '"ab"', b"ab"
    if dtype == "bool":
        return "true", True
    value = rng.choice([0, 1, 7, 100]) if dtype.startswith(("int", "uint")) else rng.choice([0.5, -1.25, 3.0])
    if dtype.startswith("int") and rng.random() < 0.3:
        value = -value
    return repr(value), value


def views(tool, seconds):
    def one(rng):
        x = some(rng)
        n, kind = int(np.prod(x.shape)), rng.randrange(3)
        if kind == 0:
            shape = [d for d in x.shape]
            rng.shuffle(shape)
            if shape and rng.random() < 0.5:
                shape[rng.randrange(len(shape))] = -1
            if rng.random() < 0.4:
                shape = rng.choice([[n], [-1], [n, 1], [1, -1], [2, -1], [-1, 3], [-1, -1], [7], []])
            if 0 in shape and -1 in shape:
                shape = [n]  # TensorFlow answered, with the interface that was used.
            return compare(tool, rng, "reshape", [x], f"shape={shape}", lambda: tf.reshape(x, shape))
        if kind == 1:
            axis = rng.randrange(-len(x.shape) - 2, len(x.shape) + 2)
            return compare(tool, rng, "expand_dims", [x], f"axis={axis}", lambda: tf.expand_dims(x, axis))
        ones = [d for d, size in enumerate(x.shape) if size == 1]
        axis = [d - rng.choice([0, len(x.shape)]) for d in ones if rng.random() < 0.8] if rng.random() < 0.9 else [0]
        if not axis:
            return True
        return compare(tool, rng, "squeeze", [x], f"axis={axis}", lambda: tf.squeeze(x, axis))
    draw(seconds, 40, one)


def parts(tool, seconds):
    def one(rng):
        x = some(rng)
        rank, kind = len(x.shape), rng.randrange(3)
        if kind == 0:
            begin = [rng.randrange(d + 1) for d in x.shape]
            size = [rng.choice([-1, rng.randrange(d - b + 1)]) for d, b in zip(x.shape, begin)]
            if rank and rng.random() < 0.1:
                size[0] += 3
            return compare(tool, rng, "slice", [x], f"begin={begin} size={size}",
                           lambda: tf.slice(x, tf.constant(begin, tf.int64, [rank]), tf.constant(size, tf.int64, [rank])))
        if kind == 1:
            perm = list(range(rank))
            rng.shuffle(perm)
            if rank and rng.random() < 0.1:
                perm[0] = rng.randrange(-1, rank + 1)
            if rng.random() < 0.3:
                return compare(tool, rng, "transpose", [x], "", lambda: tf.transpose(x))
            return compare(tool, rng, "transpose", [x], f"perm={perm}", lambda: tf.transpose(x, perm))
        axis = rng.randrange(-rank, rank) if rank else 0
        dim = x.shape[axis] if rank else 1
        sizes = rng.choice([1, 2, max(dim, 1), [dim], [0, dim], [1, -1], [-1, 1, 0], [dim, 1]])
        n = sizes if isinstance(sizes, int) else len(sizes)
        return compare(tool, rng, "split", [x], f"num_or_size_splits={sizes} axis={axis}",
                       lambda: tf.split(x, sizes, axis), outputs=n)
    draw(seconds, 41, one)


def gathers(tool, seconds):
    def one(rng):
        x = some(rng, rank=rng.randrange(5))
        rank = len(x.shape)
        axis = rng.randrange(rank) if rank else 0
        batch = rng.randrange(axis + 1) if rng.random() < 0.4 else 0
        shape = tuple(x.shape[:batch]) + tuple(rng.choice([0, 1, 2, 4]) for _ in range(rng.randrange(3)))
        dim = x.shape[axis] if rank else 1
        bad = rng.random() < 0.05
        indices = np.array([rng.randrange(-1 if bad else 0, max(dim, 1)) for _ in range(int(np.prod(shape)))])
        indices = tf.reshape(tf.cast(tf.constant(indices, tf.int64), rng.choice(["int32", "int64"])), shape)
        written = axis - (rank if rng.random() < 0.3 else 0)
        return compare(tool, rng, "gather", [x, indices], f"axis={written} batch_dims={batch}",
                       lambda: tf.gather(x, indices, axis=written, batch_dims=batch))
    draw(seconds, 42, one)


def paddings(tool, seconds):
    def one(rng):
        x = some(rng)
        mode = rng.choice(["CONSTANT", "REFLECT", "SYMMETRIC"])
        pads = [[rng.choice([0, 0, 1, 2, 3]), rng.choice([0, 0, 1, 2])] for _ in x.shape]
        if mode != "CONSTANT" and 0 in x.shape:
            pads = [[0, 0] for _ in x.shape]
        text, value = literal(rng, x.dtype.name)
        if mode == "CONSTANT" and rng.random() < 0.6:
            return compare(tool, rng, "pad", [x], f"paddings={pads} constant_values={text}",
                           lambda: tf.pad(x, tf.reshape(tf.constant(pads, tf.int32), [-1, 2]),
                                          constant_values=tf.constant(value, x.dtype)))
        return compare(tool, rng, "pad", [x], f"paddings={pads} mode={quote(mode.encode())}",
                       lambda: tf.pad(x, tf.reshape(tf.constant(pads, tf.int32), [-1, 2]), mode))
    draw(seconds, 43, one)


def one_hots_and_masks(tool, seconds):
    def one(rng):
        shape = random_shapes(rng, 1)[0][:3]
        n = int(np.prod(shape))
        if rng.random() < 0.4:
            lengths = tf.reshape(tf.constant([rng.randrange(-1, 7) for _ in range(n)], tf.int64, [n]), shape)
            lengths = tf.cast(lengths, rng.choice(["int32", "int64"]))
            dtype, maxlen = rng.choice(NUMBERS + ["bool"]), rng.choice([None, 0, 4, 9])
            attrs = f'dtype="{dtype}"' + ("" if maxlen is None else f" maxlen={maxlen}")
            return compare(tool, rng, "sequence_mask", [lengths], attrs, lambda: tf.sequence_mask(lengths, maxlen, dtype))
        indices = tf.reshape(tf.constant([rng.randrange(-1, 5) for _ in range(n)], tf.int64, [n]), shape)
        indices = tf.cast(tf.maximum(indices, 0), "uint8") if rng.random() < 0.2 else \
            tf.cast(indices, rng.choice(["int8", "int32", "int64"]))
        axis, depth, dtype = rng.randrange(-1, len(shape) + 1), rng.choice([0, 1, 3, 5]), rng.choice(NUMBERS)
        if rng.random() < 0.3:
            return compare(tool, rng, "one_hot", [indices], f"depth={depth}", lambda: tf.one_hot(indices, depth))
        (on, on_value), (off, off_value) = literal(rng, dtype), literal(rng, dtype)
        return compare(tool, rng, "one_hot", [indices], f'depth={depth} axis={axis} dtype="{dtype}" on_value={on} off_value={off}',
                       lambda: tf.one_hot(indices, depth, on_value, off_value, axis, dtype))
    draw(seconds, 44, one)


def dense(tool, seconds):
    def one(rng):
        shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.randrange(1, 4))]
        n, kind = rng.randrange(6), rng.choice(["int32", "int64"])
        cells = [np.unravel_index(c, shape) for c in sorted(rng.sample(range(int(np.prod(shape))), min(n, int(np.prod(shape)))))]
        if cells and rng.random() < 0.15:
            cells[-1] = cells[0] if rng.random() < 0.5 else tuple(d + rng.randrange(2) for d in cells[-1])
        indices = tf.reshape(tf.constant(np.array(cells, np.int64).reshape(-1)), [len(cells), len(shape)])
        values = random_values(rng, rng.choice(ALL), (len(cells),) if rng.random() < 0.8 else ())
        text, default = literal(rng, values.dtype.name)
        check = rng.random() < 0.8
        indices, dims = tf.cast(indices, kind), tf.cast(tf.constant(shape), kind)
        attrs = f"default_value={text}" + ("" if check else " validate_indices=false")
        inputs, static = [indices, dims, values], {1}
        if rng.random() < 0.5:
            inputs, static, attrs = [indices, values], (), attrs + f" output_shape={shape}"
        return compare(tool, rng, "sparse_to_dense", inputs, attrs, static=static, call=lambda:
                       tf.compat.v1.sparse_to_dense(indices, dims, values, tf.constant(default, values.dtype), check))
    draw(seconds, 45, one)


def raw_bytes(tool, seconds):
    dtypes = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"]

    def one(rng):
        shape, dtype, little = random_shapes(rng, 1)[0], rng.choice(dtypes), rng.random() < 0.7
        n, length = int(np.prod(shape)), rng.choice([0, 8, 16, 4, 3])
        texts = [bytes(rng.randrange(2 if dtype == "bool" else 256) for _ in range(length)) for _ in range(n)]
        if texts and rng.random() < 0.1:
            texts[-1] += b"\0"
        x = tf.reshape(tf.constant(texts, tf.string, [n]), shape)
        attrs = f'out_type="{dtype}" little_endian={str(little).lower()}'
        if dtype not in ("float16", "bool") and rng.random() < 0.3:
            fixed = rng.choice([8, 4, 1, 16])
            return compare(tool, rng, "decode_raw", [x], attrs + f" fixed_length={fixed}",
                           lambda: tf.io.decode_raw(x, dtype, little, fixed))
        return compare(tool, rng, "decode_raw", [x], attrs, lambda: tf.io.decode_raw(x, dtype, little))
    draw(seconds, 46, one)


def bounds(tool, seconds):
    def one(rng):
        kind = rng.randrange(3)
        if kind == 0:
            x = some(rng, NUMBERS)
            (low, low_value), (high, high_value) = literal(rng, x.dtype.name), literal(rng, x.dtype.name)
            return compare(tool, rng, "clip_by_value", [x], f"clip_value_min={low} clip_value_max={high}",
                           lambda: tf.clip_by_value(x, low_value, high_value), units=0.1)
        if kind == 1:
            x = some(rng, ["int32", "int64", "float32", "float64", "float16"])
            edges = [rng.choice([-9.0, -1.5, 0.0, 0.1, 1.0, 7.0, 1e9, 2147483648.0]) for _ in range(rng.randrange(6))]
            edges = sorted(edges) if rng.random() < 0.9 else edges
            return compare(tool, rng, "bucketize", [x], f"boundaries={edges}",
                           lambda: tf.raw_ops.Bucketize(input=x, boundaries=edges))
        x = some(rng, NUMBERS)
        n = rng.choice([1, x.shape[-1] if len(x.shape) else 1]) or 1
        mean, std = ([round(rng.uniform(low, 9), 3) for _ in range(n)] for low in (-9, 0.5))
        wide = x.dtype if x.dtype == tf.float64 else tf.float32

        def call():
            y = (tf.cast(x, wide) - tf.constant(mean, wide)) / tf.constant(std, wide)
            y = tf.reshape(y, x.shape)
            return tf.cast(y, x.dtype) if x.dtype.name in FLOATS else y
        return compare(tool, rng, "normalize", [x], f"mean={mean} std={std}", call)
    draw(seconds, 47, one)


def finite(x, low=-9, high=9):
    """Plain floats in sums that TensorFlow computes in another order."""
    if x.dtype.name not in FLOATS:
        return x
    return tf.where(tf.math.is_finite(x), tf.clip_by_value(x, low, high), tf.ones_like(x))


# Sums of floats: TensorFlow's sums lose this many units in the last place, and more if terms cancel.
UNITS = {"float32": 16, "float64": 16, "float16": 16, "bfloat16": 16}


def reductions(tool, seconds):
    calls = {"reduce_sum": tf.reduce_sum, "reduce_mean": tf.reduce_mean, "reduce_max": tf.reduce_max}

    def one(rng):
        x = some(rng, NUMBERS)
        op, rank = rng.choice(list(calls)), len(x.shape)
        if op != "reduce_max":
            x = tf.abs(finite(x)) if x.dtype.name in FLOATS else x
            if x.dtype.name in ("float16", "bfloat16"):
                x = tf.where(x < 0.01, tf.ones_like(x), x)
        if op == "reduce_mean" and x.dtype.name in ("int32", "int64", "uint32", "uint64"):
            x = x % 1000  # the sum itself wraps in TensorFlow
        axis = rng.sample(range(-rank, 0), rng.randrange(rank + 1)) if rng.random() < 0.9 else [0, 0]
        keep = rng.random() < 0.5
        attrs = f"axis={axis} keepdims={str(keep).lower()}"
        if rng.random() < 0.2:
            axis, attrs = None, f"keepdims={str(keep).lower()}"
        elif len(axis) == 1 and rng.random() < 0.5:
            axis = axis[0]
            attrs = f"axis={axis} keepdims={str(keep).lower()}"
        axes = axis if axis is None else tf.constant(axis, tf.int32)
        return compare(tool, rng, op, [x], attrs, lambda: calls[op](x, axes, keep), UNITS.get(x.dtype.name, 0))
    draw(seconds, 50, one)


def rows(tool, seconds):
    def one(rng):
        x = finite(some(rng, FLOATS + (["int32"] if rng.random() < 0.05 else [])))
        rank = len(x.shape)
        axis = rng.randrange(-rank, rank) if rank else 0
        if rng.random() < 0.5:
            if rng.random() < 0.2:
                x = tf.where(x > 8, tf.cast(float("inf"), x.dtype), x) if x.dtype.is_floating else x
            return compare(tool, rng, "softmax", [x], f"axis={axis}", lambda: tf.nn.softmax(x, axis), 64)
        epsilon = rng.choice([1e-12, 0.5])
        if x.dtype == tf.float16:
            epsilon = 0.5  # the other one is 0 there
        return compare(tool, rng, "l2_normalize", [x], f"axis={axis} epsilon={epsilon}",
                       lambda: tf.math.l2_normalize(x, axis, epsilon), 64)
    draw(seconds, 51, one)


def products(tool, seconds):
    def one(rng):
        m, k, n = (rng.choice([0, 1, 2, 3, 5, 9]) for _ in range(3))
        left, right = random_shapes(rng, 2)
        dtype, ta, tb = rng.choice(FLOATS + ["int32", "int64", "int8"][:2 if rng.random() < 0.9 else 3]), rng.random() < 0.5, rng.random() < 0.5
        wrong = 1 if rng.random() < 0.05 else 0
        left, right = left[:3] + ((k, m) if ta else (m, k)), right[:3] + ((n, k + wrong) if tb else (k + wrong, n))
        a, b = (finite(random_values(rng, dtype, shape)) for shape in (left, right))
        if dtype in FLOATS:
            a, b = (tf.round(v) for v in (a, b))  # sums of whole numbers are exact in any order
        if dtype == "int8":
            return compare(tool, rng, "matmul", [a, b], "", lambda: tf.raw_ops.MatMul(a=a, b=b))
        flags = f"{str(ta).lower()} {{}}={str(tb).lower()}"
        if rng.random() < 0.3:
            return compare(tool, rng, "batch_matmul", [a, b], "adj_x=" + flags.format("adj_y"),
                           lambda: tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_x=ta, adj_y=tb), 1)
        return compare(tool, rng, "matmul", [a, b], "transpose_a=" + flags.format("transpose_b"),
                       lambda: tf.matmul(a, b, ta, tb), 1)
    draw(seconds, 52, one)


def biases(tool, seconds):
    def one(rng):
        shape = tuple(rng.choice([0, 1, 2, 5]) for _ in range(rng.choice([1, 2, 2, 3, 4, 5])))
        dtype, second = rng.choice(NUMBERS), rng.random() < 0.4
        n = shape[1] if second and len(shape) > 1 else shape[-1]
        x, b = random_values(rng, dtype, shape), random_values(rng, dtype, (n + (rng.random() < 0.05),))
        attrs = 'data_format="NC.."' if second else ""
        return compare(tool, rng, "bias_add", [x, b], attrs, lambda: tf.nn.bias_add(x, b, "NC.." if second else None))
    draw(seconds, 53, one)


TESTS = [reductions, rows, products, biases, views, parts, gathers, paddings, one_hots_and_masks, dense, raw_bytes, bounds]


if __name__ == "__main__":
    sys.exit(main(TESTS, __doc__))
