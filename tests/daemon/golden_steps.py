#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow gives for the rows of step_rows.c: records 0 to 7, an element that fails before
record 2 and one after the last. Prints each row's name and its in_place. Needs tensorflow."""

import numpy as np
import tensorflow as tf

NAN = float("nan")
INPUT = [0, 1, NAN, 2, 3, 4, 5, 6, 7, NAN]


def source():
    """Numbers as int64; NaN is an error in its place."""
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


ROWS = {
    "shuffle 1": source().shuffle(1),
    "repeat 2": source().repeat(2),
    "repeat 0": source().repeat(0),
}

if __name__ == "__main__":
    for name, dataset in ROWS.items():
        print(f"{name}: {in_place(dataset)}")
