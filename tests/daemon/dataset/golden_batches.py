#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints TensorFlow's results of padded_batch, ragged_batch and bucket_by_sequence_length for lines of words: the
expectations of test_dataset_pad.c. Needs tensorflow."""
import numpy as np
import tensorflow as tf

LINES = ["1 2 3", "", "4", "5 6", "7 8 9 10", "11", "12 13 14"]


def element(line):
    words = tf.strings.split(line)
    return tf.strings.to_number(words, tf.int64), words


def elements():
    return tf.data.Dataset.from_tensor_slices(LINES).map(element)


def text_of(value):
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return "[" + " ".join(text_of(v) for v in value) + "]"
    return value.decode() if isinstance(value, bytes) else str(value)


def show(name, dataset):
    print(f"{name}:")
    iterator = iter(dataset)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except tf.errors.OpError as e:
            print("!", type(e).__name__, e.message[:100])
            continue
        parts = []
        for t in batch:
            if isinstance(t, tf.RaggedTensor):
                parts += [t.values.numpy(), t.row_splits.numpy()]
            else:
                parts.append(t.numpy())
        print("  " + " ".join(text_of(p) for p in parts))


def length(ids, words):
    return tf.shape(ids)[0]


def buckets(*args, **kwargs):
    return elements().bucket_by_sequence_length(length, *args, **kwargs)


if __name__ == "__main__":
    show("padded_batch 3", elements().padded_batch(3))
    show("padded_batch 3, drop_remainder", elements().padded_batch(3, drop_remainder=True))
    show("padded_batch 4, [5] and [None], -1 and '-'",
         elements().padded_batch(4, padded_shapes=([5], [None]),
                                 padding_values=(np.int64(-1), "-")))
    show("padded_batch 2, [3] and [3]", elements().padded_batch(2, padded_shapes=([3], [3])))
    two = elements().map(lambda i, w: (tf.stack([i, i * 2]), tf.size(i)))
    show("padded_batch 4 of two rows", two.padded_batch(4))
    show("ragged_batch 4", elements().ragged_batch(4))
    show("ragged_batch 4, drop_remainder", elements().ragged_batch(4, drop_remainder=True))
    show("buckets [2, 4], [2, 2, 1]", buckets([2, 4], [2, 2, 1]))
    show("buckets, drop_remainder", buckets([2, 4], [2, 2, 1], drop_remainder=True))
    show("buckets [2, 5], to the boundary",
         buckets([2, 5], [2, 2, 1], pad_to_bucket_boundary=True))
    show("buckets [2, 4], padded", buckets(
        [2, 4], [2, 2, 1], padded_shapes=([6], [None]), padding_values=(np.int64(-1), "-")))
    same = elements().filter(lambda i, w: tf.size(i) != 2)
    show("buckets without padding", same.bucket_by_sequence_length(
        length, [1, 2, 4], [2, 2, 2, 2], no_padding=True))
