#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops that work element by element against TensorFlow's, over random shapes and values, on either
side of the boundary.

    peer_elementwise.py BUILD [SECONDS]     SECONDS: how long each test draws (default 20)
"""
import os
import random
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from op_tool import OpError  # noqa: E402
from peer_ops import FLOATS, INTS, as_bits, feed_of, main, same  # noqa: E402

NUMBERS = FLOATS + INTS
ALL = NUMBERS + ["bool", "string"]
INVALID_ARGUMENT = -3


def random_values(rng, dtype, shape, zeros=True):
    """A tensor of critical values: limits, zeros, infinities, NaN, small and large numbers."""
    n = int(np.prod(shape))
    if dtype == "string":
        values = [rng.choice([b"", b"a", b"b", b"ab", b"a\0b", b"x" * 40, b"\xff"]) for _ in range(n)]
        return tf.constant(values, tf.string, [n]) if not n else tf.reshape(tf.constant(values), shape)
    if dtype == "bool":
        return tf.reshape(tf.constant([rng.random() < 0.5 for _ in range(n)], tf.bool), shape)
    if dtype in INTS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = [rng.choice([low, high, 0, 1, max(low, -1), rng.randrange(low, high + 1), rng.randrange(0, 9)])
                  for _ in range(n)]
        values = [v if v or zeros else 1 for v in values]
        return tf.reshape(tf.constant(np.array(values, dtype)), shape)
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan")]
    values = [rng.choice(special) if rng.random() < 0.3 else
              rng.choice([rng.uniform(-100, 100), float(rng.randrange(-9, 9)), rng.uniform(-1, 1)]) for _ in range(n)]
    return tf.reshape(tf.cast(tf.constant(values, tf.float64, [n]), dtype), shape)


def random_shapes(rng, n):
    """n shapes that mostly broadcast: parts of one shape with some dimensions 1."""
    whole = [rng.choice([0, 1, 2, 3, 5, 17]) if rng.random() < 0.9 else 1 for _ in range(rng.randrange(5))]
    shapes = []
    for _ in range(n):
        shape = [d if rng.random() < 0.7 else 1 for d in whole[rng.randrange(len(whole) + 1) if rng.random() < 0.4 else 0:]]
        if shape and rng.random() < 0.05:
            shape[rng.randrange(len(shape))] = 4
        shapes.append(tuple(shape))
    return shapes


def near(got, want, units, what):
    """Floats at most that many units in the last place apart; infinities and NaN at the same places."""
    dtype = want.dtype
    wide = tf.cast(want, tf.float64).numpy()
    ours = tf.cast(tf.bitcast(tf.constant(got), tf.bfloat16) if dtype == tf.bfloat16 else tf.constant(got), tf.float64).numpy()
    assert ours.shape == wide.shape, f"{what}: {ours.shape}, TensorFlow {wide.shape}"
    odd = ~np.isfinite(wide)
    if not np.array_equal(ours[odd], wide[odd], equal_nan=True):
        raise AssertionError(f"{what}: {ours}, TensorFlow {wide}")
    bits = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype.name]
    small = {"float16": 2.0**-24, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}[dtype.name]
    unit = np.maximum(2.0 ** np.floor(np.log2(np.maximum(np.abs(wide[~odd]), small)) - bits), small)
    apart = np.abs(ours[~odd] - wide[~odd]) / unit
    assert not apart.size or apart.max() <= units, f"{what}: {apart.max()} units apart: {ours}, TensorFlow {wide}"


def one_nan(bits):
    """bfloat16 as bits, all NaN alike."""
    return np.where((bits & 0x7fff) > 0x7f80, np.uint16(0x7fc0), bits)


def compare(tool, rng, op, tensors, attrs, call, units=0, outputs=1, static=()):
    """Either both refuse, or both return the same. True: both returned a value."""
    compute = rng.random() < 0.3
    what = f"{op} {attrs} of {[t.dtype.name + str(tuple(t.shape)) for t in tensors]} {'compute' if compute else 'stage'}"
    try:
        want, reason = call(), None
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.OutOfRangeError, ValueError,
            TypeError, UnicodeDecodeError) as e:
        want, reason = None, str(e)
    pairs = [feed_of(t) for t in tensors]
    try:
        got = tool.op(op, [a for a, _ in pairs], attrs, outputs, {i: name for i, (_, name) in enumerate(pairs)}, compute,
                      static)
    except OpError as e:
        assert reason is not None, f"{what}: refused ({e.text}); TensorFlow gives {want}"
        assert e.code == INVALID_ARGUMENT, f"{what}: {e.code} {e.text}"
        return False
    assert reason is None, f"{what}: gives {got}; TensorFlow refuses: {reason}"
    want = list(want) if isinstance(want, (list, tuple)) else [want]
    assert len(got) == len(want), f"{what}: {len(got)} outputs, TensorFlow {len(want)}"
    for g, w in zip(got, want):
        if units and w.dtype.is_floating:
            near(g, w, units, f"{what}, inputs {[a.tolist() for a, _ in pairs]}")
        else:
            g, theirs = (one_nan(g), one_nan(as_bits(w.numpy()))) if w.dtype == tf.bfloat16 else (g, w.numpy())
            same(g, theirs, f"{what}, inputs {[a.tolist() for a, _ in pairs]}")
    return True


def draw(seconds, seed, one):
    """Calls one(rng) for this long; at least a third of the calls must succeed."""
    rng = random.Random(seed)
    end, n, accepted = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end or n < 100:
        accepted += bool(one(rng))
        n += 1
    print(f"    {n} draws, {accepted} accepted")
    assert accepted * 3 > n


TWO = {"add": tf.add, "subtract": tf.subtract, "multiply": tf.multiply, "divide": tf.math.divide,
       "floordiv": tf.math.floordiv, "floormod": tf.math.floormod, "minimum": tf.minimum, "maximum": tf.maximum}
COMPARE = {"equal": tf.equal, "not_equal": tf.not_equal, "less": tf.less, "less_equal": tf.less_equal,
           "greater": tf.greater, "greater_equal": tf.greater_equal}


def arithmetic(tool, seconds):
    def one(rng):
        op = rng.choice(list(TWO))
        dtype = rng.choice(NUMBERS if rng.random() < 0.98 else ["bool"])
        a, b = random_shapes(rng, 2)
        x = random_values(rng, dtype, a)
        y = random_values(rng, dtype, b, zeros=rng.random() < 0.1)
        # For 0 and -0 TensorFlow returns either one, by their position in the tensor.
        units = 0.1 if op in ("minimum", "maximum") else 0
        return compare(tool, rng, op, [x, y], "", lambda: TWO[op](x, y), units)
    draw(seconds, 20, one)


def comparisons(tool, seconds):
    def one(rng):
        op = rng.choice(list(COMPARE))
        dtype = rng.choice(ALL)
        x, y = (random_values(rng, dtype, shape) for shape in random_shapes(rng, 2))
        return compare(tool, rng, op, [x, y], "", lambda: COMPARE[op](x, y))
    draw(seconds, 21, one)


def logic(tool, seconds):
    def one(rng):
        x, y = (random_values(rng, "bool" if rng.random() < 0.95 else "int32", shape) for shape in random_shapes(rng, 2))
        op = rng.choice(["logical_and", "logical_or", "logical_not"])
        if op == "logical_not":
            return compare(tool, rng, op, [x], "", lambda: tf.logical_not(x))
        return compare(tool, rng, op, [x, y], "", lambda: getattr(tf, op)(x, y))
    draw(seconds / 2, 22, one)


def one_input(tool, seconds):
    def one(rng):
        dtype = rng.choice(ALL)
        x = random_values(rng, dtype, random_shapes(rng, 1)[0])
        op = rng.choice(["negative", "abs", "zeros_like", "ones_like"])
        if op.endswith("like") and rng.random() < 0.5:
            to = rng.choice(ALL)
            return compare(tool, rng, op, [x], f'dtype="{to}"', lambda: getattr(tf, op)(x, to))
        return compare(tool, rng, op, [x], "", lambda: getattr(tf, op)(x))
    draw(seconds / 2, 23, one)


def choices(tool, seconds):
    def one(rng):
        dtype = rng.choice(ALL)
        c, x, y = random_shapes(rng, 3)
        condition = random_values(rng, "bool" if rng.random() < 0.95 else "int8", c)
        x, y = random_values(rng, dtype, x), random_values(rng, dtype, y)
        return compare(tool, rng, "where", [condition, x, y], "", lambda: tf.where(condition, x, y))
    draw(seconds, 24, one)


# The allowed distance from TensorFlow, in units in the last place: its results are not correctly rounded.
FUNCTIONS = {"exp": (tf.exp, 3), "log": (tf.math.log, 3), "sqrt": (tf.sqrt, 1), "tanh": (tf.tanh, 12),
             "sigmoid": (tf.sigmoid, 16), "relu": (tf.nn.relu, 0.1)}


def functions(tool, seconds):
    def one(rng):
        op = rng.choice(list(FUNCTIONS))
        call, units = FUNCTIONS[op]
        x = random_values(rng, rng.choice(NUMBERS if op == "relu" else FLOATS), random_shapes(rng, 1)[0])
        if op == "exp":
            # TensorFlow flushes subnormal results to zero.
            x = tf.where(x < -10, tf.zeros_like(x), x)
        if op == "sigmoid":
            x = tf.where((x < -8) & (x > float("-inf")), tf.zeros_like(x), x)
        return compare(tool, rng, op, [x], "", lambda: call(x), units)
    draw(seconds, 25, one)


def powers(tool, seconds):
    def one(rng):
        dtype = rng.choice(FLOATS + ["int8", "int16", "int32", "int64", "uint8"])
        a, b = random_shapes(rng, 2)
        x, y = random_values(rng, dtype, a), random_values(rng, dtype, b)
        if dtype in INTS:
            y = tf.cast(tf.cast(y, tf.int64) % 9 - (1 if rng.random() < 0.1 else 0), dtype)
        else:
            x, y = (tf.where(tf.math.is_finite(v), tf.clip_by_value(v, -9, 9), v) for v in (x, y))
            if dtype in ("float16", "bfloat16"):
                y = tf.where(tf.math.is_finite(y), tf.clip_by_value(y, -1, 2), y)
        return compare(tool, rng, "pow", [x, y], "", lambda: tf.pow(x, y), 4)
    draw(seconds, 26, one)


TESTS = [functions, powers, arithmetic, comparisons, logic, one_input, choices]


if __name__ == "__main__":
    sys.exit(main(TESTS, __doc__))
