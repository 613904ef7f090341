#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops on strings against TensorFlow's, over random texts and shapes, on either side of the boundary.

    peer_strings.py BUILD [SECONDS]     SECONDS: how long each test draws (default 20)
"""
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from op_tool import quote  # noqa: E402
from peer_elementwise import compare, draw, random_shapes  # noqa: E402
from peer_ops import main, random_number, same  # noqa: E402

WORD_PARTS = [b"a", b"b", b" ", b",", b"\t", b"\x00", b"\xff", b"z", "é".encode(), b"word", b"x" * 40]
PARTS = [b"a", b"b", b" ", b"  ", b",", b",,", b";", b"<>", b"<", b"\t", b"\n", b"\x0b", b"\x0c", b"\r", b"\x00", b"\xff",
         b"\xa0", b"A", b"Z", b"[", b"@", b"`", b"{", b"z", "é".encode(), "😀".encode(), b"word", b"x" * 40]


def random_texts(rng, shape, parts=PARTS):
    n = 1
    for d in shape:
        n *= d
    values = [b"".join(rng.choice(parts) for _ in range(rng.choice([0, 1, 2, 4, 9, 30]))) for _ in range(n)]
    return tf.reshape(tf.constant(values, tf.string, [n]), shape)


def pieces_of_ragged(ragged, shape):
    """(values, splits over all strings) from tf.strings.split for any rank."""
    if not shape:
        return ragged, tf.constant([0, ragged.shape[0]], tf.int64)
    while isinstance(ragged.values, tf.RaggedTensor):
        ragged = ragged.values
    return ragged.values, tf.cast(ragged.row_splits, tf.int64)


def splits(tool, seconds):
    def one(rng):
        sep = rng.choice([None, b"", b",", b" ", b"<>", b",,", b"a", b"\0"])
        maxsplit = rng.choice([None, -1, 0, 1, 2, 5, -7])
        shape = random_shapes(rng, 1)[0][:3]
        x = random_texts(rng, shape)
        attrs = ("" if sep is None else f"sep={quote(sep)} ") + ("" if maxsplit is None else f"maxsplit={maxsplit}")

        def ragged():
            return tf.strings.split(x, sep, -1 if maxsplit is None else maxsplit)
        if not shape or rng.random() < 0.6:
            return compare(tool, rng, "string_split", [x], attrs, lambda: pieces_of_ragged(ragged(), shape), outputs=2)

        def sparse():
            got = ragged().to_sparse()
            return got.values, got.indices, tf.concat([tf.shape(x, tf.int64), got.dense_shape[-1:]], 0)
        return compare(tool, rng, "string_split", [x], attrs + ' result_type="sparse"', sparse, outputs=3)
    draw(seconds, 30, one)


def splits_by_a_set_of_bytes(tool, seconds):
    def one(rng):
        delimiter = rng.choice([b" ", b"", b",;", b"<>", b"ab,", b"\xff"])
        skip = rng.choice([None, True, False])
        x = random_texts(rng, (rng.randrange(6),))
        attrs = f"delimiter={quote(delimiter)}" + ("" if skip is None else f" skip_empty={str(skip).lower()}")

        def call():
            got = tf.raw_ops.StringSplit(input=x, delimiter=delimiter, skip_empty=skip is not False)
            return got.values, got.indices, got.shape
        return compare(tool, rng, "string_split", [x], attrs + ' result_type="sparse"', call, outputs=3)
    draw(seconds / 2, 31, one)


def numbers(tool, seconds):
    def one(rng):
        dtype = rng.choice(["float32", "float64", "int32", "int64", "uint32", "uint64", "int8"])
        x = tf.constant([random_number(rng) for _ in range(rng.choice([0, 1, 1, 1, 2]))], tf.string)
        attrs = "" if dtype == "float32" and rng.random() < 0.5 else f'out_type="{dtype}"'
        return compare(tool, rng, "string_to_number", [x], attrs, lambda: tf.strings.to_number(x, dtype))
    draw(seconds, 32, one)


def texts(tool, seconds):
    ops = {"string_strip": tf.strings.strip, "string_lower": tf.strings.lower, "string_upper": tf.strings.upper,
           "string_length": tf.strings.length}

    def one(rng):
        op = rng.choice(list(ops))
        x = random_texts(rng, random_shapes(rng, 1)[0])
        if op == "string_length" and rng.random() < 0.7:
            unit = rng.choice(["BYTE", "UTF8_CHAR", "utf8"])
            return compare(tool, rng, op, [x], f'unit="{unit}"', lambda: tf.strings.length(x, unit))
        return compare(tool, rng, op, [x], "", lambda: ops[op](x))
    draw(seconds, 33, one)


def strong_hashes(tool, seconds):
    def one(rng):
        x = random_texts(rng, random_shapes(rng, 1)[0]) if rng.random() < 0.5 else \
            tf.constant([bytes(rng.randrange(256) for _ in range(n)) for n in range(rng.randrange(70))], tf.string)
        buckets = rng.choice([1, 10, 2**40, 2**63 - 1])
        key = [rng.choice([0, 1, -1, rng.randrange(-2**63, 2**63)]) for _ in range(rng.choice([2] * 20 + [1, 3]))]
        return compare(tool, rng, "string_to_hash_bucket_strong", [x], f"num_buckets={buckets} key={key}",
                       lambda: tf.strings.to_hash_bucket_strong(x, buckets, key))
    draw(seconds / 2, 34, one)


def crosses(tool, seconds):
    """Dense columns, as tf.feature_column.crossed_column passes them to the op below it."""
    def one(rng):
        n = rng.choice([0, 1, 5, 40])
        columns = []
        for _ in range(rng.choice([1, 2, 2, 3, 4])):
            width = rng.choice([1, 1, 1, 2, 3, 0])
            columns.append(random_texts(rng, (n, width)) if rng.random() < 0.6 else
                           tf.constant([[rng.randrange(-2**63, 2**63) for _ in range(width)] for _ in range(n)], tf.int64,
                                       (n, width)))
        buckets, key = rng.choice([0, 1, 10, 1000, 2**62]), rng.choice([None, 0, 0xDECAFCAFFE, rng.randrange(2**62)])

        def call():
            got = tf.raw_ops.SparseCross(indices=[], values=[], shapes=[], dense_inputs=columns, hashed_output=True,
                                         num_buckets=buckets, hash_key=0xDECAFCAFFE if key is None else key,
                                         out_type=tf.int64, internal_type=tf.int64)
            width = 1
            for column in columns:
                width *= column.shape[1]
            want = tf.reshape(got.output_values, (n, width))
            return want[:, 0] if flat else want
        flat = all(column.shape[1] == 1 for column in columns) and rng.random() < 0.5
        inputs = [column[:, 0] if flat or (column.shape[1] == 1 and rng.random() < 0.3) else column for column in columns]
        flat = flat or all(len(x.shape) == 1 for x in inputs)
        attrs = f"num_buckets={buckets}" + ("" if key is None else f" hash_key={key}")
        return compare(tool, rng, "cross", inputs, attrs, call)
    draw(seconds / 2, 35, one)


def lookups(tool, seconds):
    def one(rng):
        lines = sorted({b"".join(rng.choice(WORD_PARTS) for _ in range(rng.choice([1, 1, 2, 5, 40])))
                        for _ in range(rng.choice([1, 2, 10, 300]))})
        rng.shuffle(lines)
        # TensorFlow caches tables by the name of their file.
        fd, path = tempfile.mkstemp(prefix="stager-vocabulary-")
        with open(fd, "wb") as f:
            f.write(b"\n".join(lines) + rng.choice([b"\n", b""]))
        oov = rng.choice([0, 0, 1, 3, 1000])
        words = np.array([rng.choice(lines + [b"", b"nobody", b"zz", b"word "]) for _ in range(rng.choice([0, 1, 50]))], object)
        text = f'element w string [-1]\nt = vocabulary() file="{path}"\ny = lookup(t, w) num_oov_buckets={oov}\nfeature y = y\n'
        got, = tool.run(text, [words])
        init = tf.lookup.TextFileInitializer(path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
                                             tf.lookup.TextFileIndex.LINE_NUMBER)
        table = tf.lookup.StaticVocabularyTable(init, oov) if oov else tf.lookup.StaticHashTable(init, -1)
        same(got, table.lookup(tf.constant(words, tf.string, words.shape)).numpy(), f"{words} in {lines}, {oov} buckets")
        os.unlink(path)
        return True
    draw(seconds / 4, 36, one)


TESTS = [crosses, lookups, splits, splits_by_a_set_of_bytes, numbers, texts, strong_hashes]


if __name__ == "__main__":
    sys.exit(main(TESTS, __doc__))
