#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/client/compute/models.golden.h: the scores of examples/models for twelve rows, computed by NumPy
in float64 from the definitions of the models. Only the hash of a string is TensorFlow's.

    make_models.py    with a Python that has TensorFlow; what it writes is committed
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../examples/models"))
from make_clicks import rows  # noqa: E402

N = 12


def weight(shape, seed, stddev=0.3):
    """random_normal of docs/ops.md: Philox4x64-10 from the counter 0 on, Box and Muller's transform."""
    last = np.full(4, 2**64 - 1, np.uint64)     # numpy counts before it draws
    n = int(np.prod(shape))
    words = np.random.Philox(key=np.array([seed, 5], np.uint64), counter=last).random_raw(n + n % 2)
    u = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(1 - u[0::2])), 2 * np.pi * u[1::2]
    normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:n]
    return (normal * stddev).astype(np.float32).astype(np.float64).reshape(shape)


def layer(x, n_in, n_out, seed, act=lambda x: x):
    return act(x @ weight((n_in, n_out), seed) + weight((n_out,), seed + 1))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def hashed(words, n):
    return tf.strings.to_hash_bucket_fast(tf.constant(list(words), tf.string), n).numpy()


class Clicks:
    def __init__(self, lines):
        columns = list(zip(*(line.split(",") for line in lines)))
        self.dense = np.array([columns[1], columns[2]], np.float32).T.astype(np.float64)
        self.user, self.item = hashed(columns[3], 1000), hashed(columns[4], 1000)
        self.history = [hashed(text.split(), 1000) for text in columns[6]]
        self.category = hashed(columns[5], 100)
        self.ids = np.stack([self.user, self.item, self.category], 1) + [0, 1000, 2000]


def dlrm(c):
    bottom = layer(c.dense, 2, 8, 101, relu)
    vectors = np.concatenate([bottom[:, None], weight((3000, 8), 103)[c.ids]], 1)
    pairs = [np.sum(vectors[:, i] * vectors[:, k], 1) for i in range(4) for k in range(i)]
    hidden = layer(np.concatenate([bottom, np.stack(pairs, 1)], 1), 14, 8, 104, relu)
    return sigmoid(layer(hidden, 8, 1, 106)[:, 0])


def deepfm(c):
    v, w = weight((3000, 4), 201)[c.ids], weight((3000,), 202)[c.ids]
    fm = sum(np.sum(v[:, i] * v[:, k], 1) for i in range(3) for k in range(i))
    hidden = layer(np.concatenate([c.dense, v.reshape(-1, 12)], 1), 14, 8, 203, relu)
    return sigmoid(w.sum(1) + fm + layer(hidden, 8, 1, 205)[:, 0])


def dssm(c):
    user = np.concatenate([weight((1000, 8), 301)[c.user], c.dense], 1)
    user = layer(layer(user, 10, 8, 302, np.tanh), 8, 4, 304, np.tanh)
    item = np.concatenate([weight((1000, 8), 306)[c.item], weight((100, 4), 307)[c.category]], 1)
    item = layer(layer(item, 12, 8, 308, np.tanh), 8, 4, 310, np.tanh)
    cosine = np.sum(user * item, 1) / (np.linalg.norm(user, axis=1) * np.linalg.norm(item, axis=1))
    return sigmoid(5 * cosine)


def top(c, interest, item, seed):
    deep = np.concatenate([interest, item, weight((1000, 4), seed)[c.user], c.dense], 1)
    return sigmoid(layer(layer(deep, 14, 8, seed + 1, relu), 8, 1, seed + 3)[:, 0])


def softmax(x):
    e = np.exp(x - x.max()) if len(x) else x
    return e / e.sum() if len(x) else x


def din(c):
    table = weight((1000, 4), 401)
    item, interests = table[c.item], []
    for q, ids in zip(item, c.history):
        h = table[ids]
        q = np.broadcast_to(q, h.shape)
        a = layer(layer(np.concatenate([h, q, h - q, h * q], 1), 16, 8, 402, sigmoid), 8, 1, 404)[:, 0]
        interests.append(softmax(a) @ h)
    return top(c, np.stack(interests), item, 406)


def gru(steps, seed, scores=None):
    """States after each step; `scores` as VecAttGRUCell takes them."""
    kernel, back, bias = weight((4, 12), seed), weight((4, 12), seed + 1), weight((12,), seed + 2)
    state, states = np.zeros(4), []
    for t, x in enumerate(steps):
        z = sigmoid(x @ kernel[:, :4] + bias[:4] + state @ back[:, :4])
        r = sigmoid(x @ kernel[:, 4:8] + bias[4:8] + state @ back[:, 4:8])
        candidate = np.tanh(x @ kernel[:, 8:] + bias[8:] + (r * state) @ back[:, 8:])
        z = z if scores is None else (1 - scores[t]) * z
        state = z * state + (1 - z) * candidate
        states.append(state)
    return np.array(states).reshape(-1, 4), state


def dien(c):
    table = weight((1000, 4), 401)
    item, evolved = table[c.item], []
    for q, ids in zip(item, c.history):
        interests, _ = gru(table[ids], 501)
        scores = softmax(interests @ weight((4, 4), 504) @ q)
        evolved.append(gru(interests, 505, scores)[1])
    return top(c, np.stack(evolved), item, 508)


def main():
    lines = list(rows(N))
    clicks = Clicks(lines)
    with open(os.path.join(HERE, "../client/compute/models.golden.h"), "w") as f:
        f.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Written by tests/data/make_models.py. */\n/* clang-format off */\n")
        f.write("static const char *const clicks[] = {\n" + "".join(f'    "{line}",\n' for line in lines) + "};\n\n")
        f.write(f"static const struct {{\n    const char *name;\n    double scores[{N}];\n}} models[] = {{\n")
        for model in (deepfm, dien, din, dlrm, dssm):
            f.write(f'    {{"{model.__name__}", {{{", ".join(f"{s:.9f}" for s in model(clicks))}}}}},\n')
        f.write("};\n/* clang-format on */\n")


if __name__ == "__main__":
    main()
