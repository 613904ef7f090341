#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What models are made of against TensorFlow's: values within rounding, the same inputs refused.

    peer_models.py BUILD [SECONDS]     SECONDS: how long each group is drawn (default 5)
"""
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore", category=UserWarning, module="keras")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from op_tool import OpTool, dtype_name  # noqa: E402


def run(tool, op, attrs, inputs, outputs=1):
    """The op on the stage side, shapes unknown."""
    text = "".join(f"element in{i} {dtype_name(t)} [{', '.join(['-1'] * t.ndim)}]\n" for i, t in enumerate(inputs))
    text += f"y = {op}({', '.join(f'in{i}' for i in range(len(inputs)))}) {attrs}\n"
    text += "".join(f"feature f{k} = y:{k}\n" for k in range(outputs))
    return tool.run(text, inputs)


def near(got, want, what):
    want = np.asarray(want)
    tolerance = 1e-12 if want.dtype == np.float64 else 1e-5
    if got.shape != want.shape or got.dtype != want.dtype or not np.allclose(got, want, tolerance, tolerance, equal_nan=True):
        raise AssertionError(f"{what}:\n{got}\nTensorFlow:\n{want}")


def dtype(rng):
    return str(rng.choice(["float32", "float64"]))


def recurrent(tool, rng):
    kind, after = dtype(rng), bool(rng.integers(2))
    batch, steps, n_in, n = rng.integers(1, 6, 4)
    x = rng.normal(size=(batch, steps, n_in)).astype(kind)
    layer = tf.keras.layers.GRU(int(n), reset_after=after, return_sequences=True, return_state=True, dtype=kind)
    layer.build(x.shape)
    weights = [rng.normal(size=w.shape).astype(kind) for w in layer.get_weights()]
    layer.set_weights(weights)
    lengths = rng.integers(1, steps + 1, batch).astype(rng.choice(["int32", "int64"]))
    want = layer(x, mask=tf.constant(np.arange(steps) < lengths[:, None]))
    got = run(tool, "gru", f"reset_after={str(after).lower()}", [x, *weights, lengths], 2)
    for g, w in zip(got, want):
        near(g, w, "gru")


def masks(tool, rng):
    shape = tuple(rng.integers(1, 5, rng.integers(1, 4)))
    axis, kind = int(rng.integers(-len(shape), len(shape))), dtype(rng)
    x, mask = (rng.normal(size=shape) * 5).astype(kind), rng.random(shape) < 0.5
    np.moveaxis(mask, axis, 0)[rng.integers(shape[axis])] = True
    want = tf.keras.layers.Softmax(axis=axis, dtype=kind)(x, mask=tf.constant(mask))
    near(run(tool, "softmax", f"axis={axis}", [x, mask])[0], want, "softmax")


def embeddings(tool, rng):
    combiner, kind = str(rng.choice(["sum", "mean", "sqrtn"])), dtype(rng)
    n_rows, width, rows = rng.integers(1, 8, 3)
    table = rng.normal(size=(n_rows, width)).astype(kind)
    lengths = rng.integers(0, 4, rows)
    lengths[-1] = 1     # TensorFlow loses empty rows at the end
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype("int64")
    ids = rng.integers(0, n_rows, splits[-1])
    weights = rng.uniform(0.1, 2, splits[-1]).astype(kind) if rng.integers(2) else None
    ragged = tf.RaggedTensor.from_row_splits(ids, splits).to_sparse()
    weighted = tf.RaggedTensor.from_row_splits(weights, splits).to_sparse() if weights is not None else None
    want = tf.nn.embedding_lookup_sparse(tf.constant(table), ragged, weighted, combiner=combiner)
    attrs = f'combiner="{combiner}"' + (" weighted=true" if weights is not None else "")
    last = [weights] if weights is not None else []
    parts = [splits] if rng.integers(2) else [ragged.indices.numpy(), ragged.dense_shape.numpy()]
    near(run(tool, "embedding_lookup", attrs, [table, ids, *parts, *last])[0], want, "embedding_lookup")


def variables(tool, rng):
    shape = tuple(int(d) for d in rng.integers(1, 4, rng.integers(1, 4)))
    kind = str(rng.choice(["float32", "float64", "int32", "int64", "uint8"]))
    start = rng.integers(0, 100, shape).astype(kind)
    variable = tf.Variable(start)
    op = str(rng.choice(["assign", "assign_add", "scatter_add"]))
    if op == "scatter_add":
        indices = rng.integers(0, shape[0], tuple(rng.integers(0, 4, rng.integers(1, 3))))
        value = rng.integers(0, 100, (*indices.shape, *shape[1:])).astype(kind)
        feeds = [indices, value]
        want = variable.scatter_add(tf.IndexedSlices(value.reshape(-1, *shape[1:]), indices.reshape(-1)))
    else:
        value = rng.integers(0, 100, shape).astype(kind)
        feeds, want = [value], getattr(variable, op)(value)
    text = "".join(f"element in{i} {dtype_name(t)} [{', '.join(['-1'] * t.ndim)}]\n" for i, t in enumerate(feeds))
    text += f'w = variable() shape={list(shape)} dtype="{kind}" initializer={start.tolist()}\n'
    text += f"y = {op}(w, {', '.join(f'staged:in{i}' for i in range(len(feeds)))})\ntarget y\n"
    near(tool.run(text, feeds, compute=True)[0], want.numpy(), op)


def main():
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5
    tool = OpTool(sys.argv[1])
    for seed, group in enumerate((recurrent, masks, embeddings, variables)):
        rng, n, end = np.random.default_rng(50 + seed), 0, time.monotonic() + seconds
        while n < 20 or time.monotonic() < end:
            group(tool, rng)
            n += 1
        print(f"{group.__name__}: {n} drawn, all equal")
    tool.close()


if __name__ == "__main__":
    main()
