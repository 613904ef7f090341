#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints golden_interleave.h, tf.data's results for interleave. Needs TensorFlow.

Input x is x copies of x; -1 is an input whose only element is an error. With errors the order is that of tf.data's
parallel interleave, where an error counts as an element of its visit. Without errors the sequential and the parallel
order are equal."""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow as tf  # noqa: E402

INPUTS = [[4, 5, 6, 4, 5, 6], [4, 0, 6, 4, 0, 6], [1, 2, 3], [0, 0, 0], [],
          [7, 1, 1, 5, 2, 9, 0, 4, 3], [4, -1, 6, 4, -1, 6], [2, -1, 3, 1], [-1, -1, 2]]


def copies(x):
    def value(_):
        with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
            return tf.identity(x)
    return tf.data.Dataset.range(tf.where(x < 0, tf.constant(1, tf.int64), x)).map(value)


def drain(dataset):
    out, it = [], iter(dataset)
    while True:
        try:
            out.append(str(int(next(it))))
        except StopIteration:
            return " ".join(out)
        except tf.errors.InvalidArgumentError:
            out.append("!")


def main():
    print("/* SPDX-License-Identifier: Apache-2.0\n *\n * Made by golden_interleave.py with"
          f" TensorFlow {tf.__version__}; inputs end with -2.\n */")
    print("#ifndef STG_TESTS_GOLDEN_INTERLEAVE_H\n#define STG_TESTS_GOLDEN_INTERLEAVE_H\n\n"
          "struct golden_interleave {\n    int inputs[12];\n    int cycle, block;\n"
          "    const char *want;\n};\n\n/* clang-format off */\n"
          "static const struct golden_interleave golden_interleave[] = {")
    for inputs in INPUTS:
        for cycle in (1, 2, 3, 7):
            for block in (1, 2, 3, 16):
                dataset = tf.data.Dataset.from_tensor_slices(tf.constant(inputs, tf.int64))
                got = drain(dataset.interleave(copies, cycle, block,
                                               num_parallel_calls=tf.data.AUTOTUNE))
                if -1 not in inputs:
                    assert got == drain(dataset.interleave(copies, cycle, block))
                values = ", ".join(map(str, inputs + [-2]))
                print(f'    {{{{{values}}}, {cycle}, {block},\n     "{got}"}},')
    print("};\n\n#endif")


main()
