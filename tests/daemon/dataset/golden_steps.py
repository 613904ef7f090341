#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints TensorFlow's results for the rows of step_rows.c: each row's name and its in_place. The input is records 0 to
7, with a failing element before record 2 and one after the last. Needs tensorflow."""

import numpy as np
import tensorflow as tf

NAN = float("nan")
INPUT = [0, 1, NAN, 2, 3, 4, 5, 6, 7, NAN]


def source():
    """Numbers as int64; NaN is an error at that place."""
    return tf.data.Dataset.from_tensor_slices(np.array(INPUT)).map(
        lambda x: tf.cast(tf.debugging.check_numerics(x, "bad"), tf.int64))


def text_of(value):
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return "[" + " ".join(text_of(v) for v in value) + "]"
    return str(value)


def in_place(dataset):
    found, iterator = [], iter(dataset)
    while len(found) < 1000:
        try:
            element = next(iterator)
        except StopIteration:
            return " ".join(found)
        except tf.errors.InvalidArgumentError:
            found.append("!")
            continue
        if isinstance(element, tuple):
            element = element[0]
        found.append(text_of(element.numpy()))
    return "no end"


def divided():
    return source().map(lambda x: tf.constant(12, tf.int64) // (x - 3))


def wide():
    return source().map(lambda x: tf.expand_dims(x, 0))


ROWS = {
    "shuffle 1": source().shuffle(1),
    "repeat 2": source().repeat(2),
    "repeat 0": source().repeat(0),
    "map divide": divided(),
    "map divide, parallel": source().map(
        lambda x: tf.constant(12, tf.int64) // (x - 3), num_parallel_calls=3),
    "map wide": wide(),
    "filter": source().filter(lambda x: x % 3 < 2),
    "take 5": source().take(5),
    "take 2": source().take(2),
    "take 0": source().take(0),
    "take -1": source().take(-1),
    "skip 3": source().skip(3),
    "skip 2": source().skip(2),
    "skip 0": source().skip(0),
    "skip 8": source().skip(8),
    "skip -1": source().skip(-1),
    "shard 3, 1": source().shard(3, 1),
    "shard 3, 0": source().shard(3, 0),
    "shard 1, 0": source().shard(1, 0),
    "enumerate 5": source().enumerate(5),
    "unbatch of batch 1": source().batch(1).unbatch(),
    "rebatch 2 of batch 1": source().batch(1).rebatch(2),
    "rebatch [1, 3] of batch 1": source().batch(1).rebatch([1, 3]),
    "rebatch 3 drop of batch 1": source().batch(1).rebatch(3, drop_remainder=True),
    "ignore_errors": source().ignore_errors(),
    "ignore_errors, batch 3": source().ignore_errors().batch(3),
    "prefetch 3": source().prefetch(3),
    "cache of ignore_errors": source().ignore_errors().cache(),
}

if __name__ == "__main__":
    for name, dataset in ROWS.items():
        print(f"{name}: {in_place(dataset)}")
