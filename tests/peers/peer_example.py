#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""parse_example against tf.io.parse_example: random features and records, damaged ones, and real ones.

    peer_example.py BUILD [SECONDS]     SECONDS: how long each test draws (default 20)
"""
import os
import random
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from example_wire import bytes_list, entry, example, field, float_list, int_list, tfrecords  # noqa: E402
from op_tool import OpError, quote  # noqa: E402
from peer_elementwise import INVALID_ARGUMENT, compare, draw  # noqa: E402
from peer_ops import main, same  # noqa: E402

SAMPLE = os.path.join(HERE, "../../../shared/data/criteo/criteo_sample.tr.tfrecords")
DTYPES = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}


class Feature:
    """One feature of a node: in stager's form, in TensorFlow's form, and records of it."""

    def __init__(self, rng, name):
        self.name, self.dtype = name, rng.choice(list(DTYPES))
        self.type = rng.choice(["fixed_len"] * 4 + ["fixed_len_sequence", "var_len", "ragged", "sparse"])
        self.shape = rng.choice([[], [], [], [1], [3], [2, 2], [0]])
        self.default, self.value_key, self.indices = None, name, []
        if self.type == "fixed_len" and 0 not in self.shape and rng.random() < 0.7:
            self.default = self.values(rng, int(np.prod(self.shape, dtype=int)))
        if self.type == "fixed_len_sequence":
            self.shape = rng.choice([[], [], [2], [1, 2]])
            self.default = self.values(rng, 1) if rng.random() < 0.5 else None
        if self.type in ("ragged", "sparse") and rng.random() < 0.5:
            self.value_key = name + "_values"
        if self.type == "sparse":
            self.indices = [f"{name}_{d}" for d in range(rng.choice([1, 1, 2]))]
            self.size = [rng.choice([1, 5, 1000]) for _ in self.indices]
            self.places = int(np.prod(self.size))
            self.sorted = rng.random() < 0.3

    def values(self, rng, n):
        if self.dtype == "string":
            return [bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 8, 8, 8, 20, 200]))) for _ in range(n)]
        if self.dtype == "float32":
            return [float(np.float32(rng.choice([0.0, 1.0, -2.5, 1e30, rng.random()]))) for _ in range(n)]
        return [rng.choice([0, 1, -1, 127, 128, rng.randrange(2**20), rng.randrange(-2**63, 2**63)]) for _ in range(n)]

    def attrs(self):
        to = {"dtype": f'"{self.dtype}"'}
        if self.type != "fixed_len":
            to["type"] = f'"{self.type}"'
        if self.type.startswith("fixed"):
            to["shape"] = str(self.shape)
        if self.default is not None:
            texts = [quote(v) if isinstance(v, bytes) else repr(v) for v in self.default]
            to["default_value"] = "[" + ", ".join(texts) + "]"
        if self.value_key != self.name:
            to["value_key"] = f'"{self.value_key}"'
        if self.type == "sparse":
            to["index_key"] = "[" + ", ".join(f'"{k}"' for k in self.indices) + "]"
            to["size"] = str(self.size)
            to["already_sorted"] = str(self.sorted).lower()
        return " ".join(f"features/{self.name}/{k}={v}" for k, v in to.items())

    def theirs(self):
        dtype = DTYPES[self.dtype]
        if self.type == "fixed_len":
            default = None if self.default is None else tf.reshape(tf.constant(self.default, dtype), self.shape)
            return tf.io.FixedLenFeature(self.shape, dtype, default)
        if self.type == "fixed_len_sequence":
            return tf.io.FixedLenSequenceFeature(self.shape, dtype, True, None if self.default is None else self.default[0])
        if self.type == "var_len":
            return tf.io.VarLenFeature(dtype)
        if self.type == "ragged":
            return tf.io.RaggedFeature(dtype, value_key=self.value_key, row_splits_dtype=tf.int64)
        return tf.io.SparseFeature(self.indices, self.value_key, dtype, self.size, self.sorted)

    def n_outputs(self):
        return {"fixed_len": 1, "fixed_len_sequence": 1, "ragged": 2}.get(self.type, 3)

    def outputs(self, got, scalar):
        if self.type == "ragged":
            if scalar:
                return [got, tf.constant([0, len(got)], tf.int64)]
            return [got.values, got.row_splits]
        return [got.values, got.indices, got.dense_shape] if isinstance(got, tf.SparseTensor) else [got]

    def lists(self, rng):
        """(key, feature) of one record."""
        dtype = self.dtype if rng.random() > 0.003 else rng.choice(list(DTYPES))
        n = int(np.prod(self.shape, dtype=int)) * (rng.choice([0, 1, 2, 3, 9]) if self.type == "fixed_len_sequence" else 1)
        if not self.type.startswith("fixed"):
            n = rng.choice([0, 1, 1, 2, 3, 30])
        if self.type == "sparse":
            n = min(n, self.places)
        if rng.random() < 0.003:
            n += 1
        missing = 0.2 if self.type != "fixed_len" or self.default is not None else 0.002
        if rng.random() < missing:
            return [(self.value_key, b"")] if rng.random() < 0.3 and self.type != "sparse" else []
        was, self.dtype = self.dtype, dtype
        values = self.values(rng, n)
        self.dtype = was
        packed = rng.random() < 0.8
        kinds = {"string": lambda: bytes_list(values), "float32": lambda: float_list(values, packed),
                 "int64": lambda: int_list(values, packed, rng.choice([0] * 9 + [1]) if n == 1 and 0 <= values[0] < 128 else 0)}
        feature = kinds[dtype]()
        # TensorFlow refuses an existing list of floats or integers with no bytes.
        ret = [(self.value_key, feature)]
        if self.type == "sparse":
            # Each place once: TensorFlow's sort is not stable.
            places = np.unravel_index(np.array(rng.sample(range(self.places), min(n, self.places)), int), self.size)
            ret += [(k, int_list(list(map(int, at)), rng.random() < 0.8)) for k, at in zip(self.indices, places)]
        return ret


def random_features(rng):
    names = rng.sample(["a", "bb", "label", "image/encoded", "C1", "C2", "C3", "C11", "a_rather_long_name_of_a_feature",
                        "seventeen_letters", "x" * 14, "x" * 13, "x" * 130], rng.choice([1, 2, 5, 12]))
    return [Feature(rng, name) for name in sorted(names)]


def random_record(rng, features, order):
    lists = [pair for f in order for pair in f.lists(rng)]
    if rng.random() < 0.3:
        lists.insert(rng.randrange(len(lists) + 1), ("nobody", int_list([1])))
    if rng.random() < 0.05:
        rng.shuffle(lists)
    if rng.random() < 0.03 and lists:
        # The last one counts.
        lists.append(rng.choice([p for f in features if f.type != "sparse" for p in f.lists(rng)] or lists[:1]))
    entries = [entry(k.encode(), v, rng.random() < 0.01) for k, v in lists]
    if rng.random() < 0.02:
        at = rng.randrange(len(entries) + 1)
        return example(*entries[:at]) + field(9, b"unknown") + example(*entries[at:])
    return example(*entries)


def theirs(features, records, scalar=False):
    got = tf.io.parse_example(records, {f.name: f.theirs() for f in features})
    return [output for f in features for output in f.outputs(got[f.name], scalar)]


def node(features):
    return " ".join(f.attrs() for f in features), sum(f.n_outputs() for f in features)


def examples(tool, seconds):
    def one(rng):
        features = random_features(rng)
        order = rng.sample(features, len(features))
        scalar = rng.random() < 0.1
        n = 1 if scalar else rng.choice([0, 1, 2, 5, 33, 100])
        records = [random_record(rng, features, order) for _ in range(n)]
        x = tf.constant(records[0] if scalar else records, tf.string, [] if scalar else [n])
        attrs, outputs = node(features)
        return compare(tool, rng, "parse_example", [x], attrs, lambda: theirs(features, x, scalar), outputs=outputs)
    draw(seconds, 50, one)


def damaged_examples(tool, seconds):
    """Bytes that are changed, cut or doubled: if both accept them, both return the same. Records that only stager
    accepts have unknown fields. Records that only stager refuses have a length a length exceeds, a packed list of floats
    cut inside one, or an index beyond its size."""
    lax = ("a length exceeds", "is truncated", "inside a value", "is not in [0")
    only_ours = [0]

    def one(rng):
        features = random_features(rng)
        data = bytearray(random_record(rng, features, features))
        for _ in range(rng.choice([1, 1, 1, 3])):
            at = rng.randrange(len(data) + 1)
            data[at:at + rng.choice([0, 1, 1, 1])] = bytes([rng.randrange(256)] * rng.choice([0, 1, 1, 1]))
        x = tf.constant([bytes(data)], tf.string)
        attrs, outputs = node(features)
        try:
            want, reason = theirs(features, x), None
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError, ValueError) as e:
            want, reason = None, str(e)
        try:
            got = tool.op("parse_example", [np.array([bytes(data)], object)], attrs, outputs)
        except OpError as e:
            assert e.code == INVALID_ARGUMENT and e.row == 0, f"{e.code} row {e.row}: {e.text}"
            assert want is None or any(text in e.text for text in lax), \
                f"{attrs} of {bytes(data)!r}: refused ({e.text}); TensorFlow gives {want}"
            return True
        if want is None:
            only_ours[0] += 1
            return True
        for g, w in zip(got, want):
            same(g, w.numpy(), f"{attrs} of {bytes(data)!r}")
        return True
    draw(seconds, 51, one)
    print(f"    {only_ours[0]} taken only by us")


def criteo_examples(tool, _seconds):
    if not os.path.exists(SAMPLE):
        print("    no sample of Criteo here")
        return
    records = list(tfrecords(SAMPLE))
    first = tf.train.Example.FromString(records[0]).features.feature
    names = sorted(first)
    dtypes = {k: "float32" if first[k].WhichOneof("kind") == "float_list" else "int64" for k in names}
    attrs = " ".join(f'features/{k}/dtype="{dtypes[k]}"' for k in names)
    got = tool.op("parse_example", [np.array(records, object)], attrs, len(names))
    want = tf.io.parse_example(records, {k: tf.io.FixedLenFeature([], DTYPES[dtypes[k]]) for k in names})
    for k, g in zip(names, got):
        same(g, want[k].numpy(), k)
    print(f"    {len(records)} records, {len(names)} features")


def hashed_strings(tool, seconds):
    """A feature that is only hashed is never written as strings."""
    def one(rng):
        n = rng.choice([0, 1, 40])
        texts = [[bytes(rng.randrange(256) for _ in range(rng.choice([0, 8, 8, 200])))] for _ in range(n)]
        records = [example(entry(b"a", bytes_list(t))) if rng.random() < 0.8 else b"" for t in texts]
        text = 'element r string [-1]\np = parse_example(r) features/a/dtype="string" features/a/default_value="none"\n' \
               "h = string_to_hash_bucket_fast(p:a) num_buckets=1000003\nfeature h = h\n"
        got, = tool.run(text, [np.array(records, object)])
        parsed = tf.io.parse_example(tf.constant(records, tf.string, [n]), {"a": tf.io.FixedLenFeature([], tf.string, "none")})
        same(got, tf.strings.to_hash_bucket_fast(parsed["a"], 1000003).numpy(), f"{records}")
        return True
    draw(seconds / 4, 52, one)


TESTS = [criteo_examples, hashed_strings]
# TensorFlow 2.21 itself crashes in some of these draws, so they run only on request: peer_example.py BUILD SECONDS
# examples
DRAWN = [examples, damaged_examples]


if __name__ == "__main__":
    random.seed(1)
    sys.exit(main(TESTS + DRAWN if len(sys.argv) > 3 else TESTS, __doc__))
