# SPDX-License-Identifier: Apache-2.0
"""Ops with several outputs in pipelines built in Python: all outputs arrive, as TensorFlow's functions return them, or
an error names the output to choose."""
import glob
import os
import re

import case
import stager
from stager import ops


def field(number, payload):
    """A field of protobuf with a length; all lengths here are below 128."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def example(**features):
    """A tf.train.Example of lists of bytes or small ints."""
    entries = b""
    for name, values in features.items():
        if values and isinstance(values[0], bytes):
            kind = field(1, b"".join(field(1, value) for value in values))
        else:
            kind = field(3, field(1, bytes(values)))
        entries += field(1, field(1, name.encode()) + field(2, kind))
    return field(1, entries)


class Several(case.Case):
    def first(self, pipeline):
        with stager.open(stager.apply(pipeline, name=self._testMethodName[:64], replace=True)) as stream:
            return stream.next().tree

    def lines(self, text, n=2):
        return stager.files(self.file("lines", text)).text_line().batch(n)

    def examples(self):
        records = [example(label=[3], ids=[1, 2], tags=[b"x", b"y"]),
                   example(label=[4], ids=[5, 6], tags=[b"p", b"q"])]
        self.assertEqual(len(records[0]), len(records[1]))
        path = self.file("examples", b"".join(records))
        return stager.files(path).fixed_length_record(len(records[0]))

    PARSED = {"label": {"dtype": "int64"}, "ids": {"type": "ragged", "dtype": "int64"},
              "tags": {"type": "var_len", "dtype": "string"}}

    def test_decode_csv_gives_all_columns(self):
        label, amount, word = self.first(self.lines("1,2,a\n3,4,b\n").map(
            lambda r: ops.decode_csv(r["record"], record_defaults=[0, 0.0, ""])))
        self.assertEqual((label.tolist(), amount.tolist(), word.tolist()), ([1, 3], [2, 4], [b"a", b"b"]))

    def test_columns_are_a_list_whose_length_is_known(self):
        def features(r):
            columns = ops.decode_csv(r["record"], record_defaults=[0, 0.0, ""])
            self.assertEqual(len(columns), 3)
            return dict(zip(["label", "amount", "word"], columns))
        batch = self.first(self.lines("1,2,a\n3,4,b\n").map(features))
        self.assertEqual({name: value.tolist() for name, value in batch.items()},
                         {"label": [1, 3], "amount": [2, 4], "word": [b"a", b"b"]})

    def test_columns_in_a_map_step_are_components(self):
        path = self.file("lines", "1,2\n3,4\n")
        rows = stager.files(path).text_line().map(
            lambda r: ops.decode_csv(r["record"], record_defaults=[0, 0]), num_parallel_calls=2)
        batch = self.first(rows.filter(lambda r: r[0] < 9).batch(2).map(lambda r: {"a": r[0], "b": r["1"]}))
        self.assertEqual((batch["a"].tolist(), batch["b"].tolist()), ([1, 3], [2, 4]))

    def test_columns_are_inputs_of_an_op_that_takes_many(self):
        def features(r):
            columns = ops.decode_csv(r["record"], record_defaults=[0, 0])
            return {"x": ops.stack(columns, axis=1), "y": ops.stack([*columns, [7, 8]], axis=1)}
        batch = self.first(self.lines("1,2\n3,4\n").map(features))
        self.assertEqual((batch["x"].tolist(), batch["y"].tolist()), ([[1, 2], [3, 4]], [[1, 2, 7], [3, 4, 8]]))

    def test_parse_example_gives_all_features_by_name(self):
        batch = self.first(self.examples().batch(2).map(
            lambda r: ops.parse_example(r["record"], features=self.PARSED)))
        self.assertEqual(batch["label"].tolist(), [3, 4])
        self.assertEqual((batch["ids"].values.tolist(), batch["ids"].row_splits.tolist()), ([1, 2, 5, 6], [0, 2, 4]))
        self.assertEqual((batch["tags"].values.tolist(), batch["tags"].dense_shape.tolist()),
                         ([b"x", b"y", b"p", b"q"], [2, 2]))

    def test_parse_example_of_single_records_in_a_map_step(self):
        features = {"label": {"dtype": "int64"}, "ids": {"dtype": "int64", "shape": [2]}}
        rows = self.examples().map(lambda r: ops.parse_example(r["record"], features=features), num_parallel_calls=1)
        batch = self.first(rows.batch(2))
        self.assertEqual((batch["label"].tolist(), batch["ids"].tolist()), ([3, 4], [[1, 2], [5, 6]]))

    def test_features_are_a_dict(self):
        def features(r):
            parsed = ops.parse_example(r["record"], features=self.PARSED)
            self.assertEqual(list(parsed), ["label", "ids", "tags"])
            return {**parsed, "n": parsed["label"] + ops.constant(value=1, dtype="int64"),
                    "flat": parsed["ids/values"], "same": parsed["ids"].values}
        batch = self.first(self.examples().batch(2).map(features))
        self.assertEqual((batch["n"].tolist(), batch["flat"].tolist(), batch["same"].tolist()),
                         ([4, 5], [1, 2, 5, 6], [1, 2, 5, 6]))
        self.assertEqual(batch["label"].tolist(), [3, 4])

    def test_parse_json_gives_all_members_by_name(self):
        batch = self.first(self.lines('{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n').map(lambda r: ops.parse_json(
            r["record"], features={"a": {"dtype": "int32"}, "b": {"dtype": "string"}})))
        self.assertEqual((batch["a"].tolist(), batch["b"].tolist()), ([1, 2], [b"x", b"y"]))

    def test_string_split_is_ragged_or_sparse(self):
        lines = self.lines("a b\nc\n")
        ragged = self.first(lines.map(lambda r: {"words": ops.string_split(r["record"])}))["words"]
        self.assertEqual((ragged.values.tolist(), ragged.row_splits.tolist()), ([b"a", b"b", b"c"], [0, 2, 3]))
        sparse = self.first(lines.map(lambda r: ops.string_split(r["record"], result_type="sparse")))
        self.assertEqual((sparse.values.tolist(), sparse.indices.tolist(), sparse.dense_shape.tolist()),
                         ([b"a", b"b", b"c"], [[0, 0], [0, 1], [1, 0]], [2, 2]))

    def test_a_ragged_tensor_is_looked_up_as_one(self):
        def ids(r):
            words = ops.string_split(r["record"])
            return {"ids": stager.Ragged(ops.string_to_number(words.values, out_type="int64"), words.row_splits)}
        pipeline = self.lines("1 2\n0\n").map(ids).staged()
        table = ops.variable(shape=[3, 1], initializer="ones")
        ragged = stager.Ragged(pipeline["ids/values"], pipeline["ids/row_splits"])
        pipeline = pipeline.targets(ops.embedding_lookup(table, ragged, combiner="sum"))
        with stager.open(stager.apply(pipeline, name="looked-up")) as stream:
            self.assertEqual(stream.run(stream.next())[0].tolist(), [[2], [1]])

    def test_split_gru_and_assert(self):
        def features(r):
            x = ops.cast(ops.reshape(r["value"], shape=[2, 2]), dtype="float32")
            left, right = ops.split(x, num_or_size_splits=2, axis=1)
            parts = ops.split(x, num_or_size_splits=[1, -1], axis=0)
            kept = ops.assert_(left >= 0.0, left, right)
            states, last = ops.gru(ops.reshape(x, shape=[1, 2, 2]), [[0.0] * 3] * 2, [[0.0] * 3], [[0.0] * 3] * 2)
            return {"left": left, "right": right, "parts": parts, "kept": kept, "states": states, "last": last,
                    "one": ops.assert_(left >= 0.0, left)}
        batch = self.first(stager.range(4).batch(4, drop_remainder=True).map(features))
        self.assertEqual((batch["left"].tolist(), batch["right"].tolist()), ([[0], [2]], [[1], [3]]))
        self.assertEqual([part.tolist() for part in batch["parts"]], [[[0, 1]], [[2, 3]]])
        self.assertEqual([part.tolist() for part in batch["kept"]], [[[0], [2]], [[1], [3]]])
        self.assertEqual((batch["states"].shape, batch["last"].tolist(), batch["one"].tolist()),
                         ((1, 2, 1), [[0]], [[0], [2]]))

    def test_targets_are_given_one_by_one(self):
        pipeline = stager.range(4).batch(2).staged()
        halves = ops.split(pipeline["value"], num_or_size_splits=2)
        with stager.open(stager.apply(pipeline.targets(*halves), name="halves")) as stream:
            self.assertEqual([half.tolist() for half in stream.run(stream.next())], [[0], [1]])
        with self.assertRaisesRegex(TypeError, r"argument 1 is one tensor, not a list of 2: take one, \[0\]"):
            pipeline.targets(halves)


class OneTensor(case.unittest.TestCase):
    """One tensor is expected and several are returned."""

    def setUp(self):
        self.rows = stager.range(4).batch(2)
        self.value = self.rows.get_next()["value"]
        self.columns = ops.decode_csv(self.value, record_defaults=[0, 0.0])
        self.parsed = ops.parse_example(self.value, features=Several.PARSED)

    def test_a_predicate_a_length_and_a_feed(self):
        for dataset in (self.rows.filter(lambda r: self.columns),
                        self.rows.bucket_by_sequence_length(lambda r: self.columns, [2], [2, 2])):
            with self.assertRaisesRegex(TypeError, r"its function returns is one tensor, not a list of 2: take one, \[0\]"):
                dataset.yaml()
        with self.assertRaisesRegex(TypeError, r"feed_dict: value is one tensor, not a ragged one of 2: take \.values"):
            stager.staged({"x": self.value}, feed_dict={"value": self.parsed["ids"]}).yaml()

    def test_an_input(self):
        with self.assertRaisesRegex(TypeError, r"cast takes tensors, not a dict of them: name one, \['label'\]"):
            ops.cast(self.parsed, dtype="int32")
        with self.assertRaisesRegex(TypeError, r"abs takes dense tensors, not a ragged one: abs\(x.values\).*"
                                               r"stager.Ragged\(…, x.row_splits\)"):
            ops.abs(self.parsed["ids"])
        with self.assertRaisesRegex(TypeError, "not a sparse one.*x.indices, x.dense_shape"):
            ops.abs(self.parsed["tags"])
        for compute in (lambda: self.columns * 2, lambda: 2 * self.columns, lambda: self.columns + 1):
            with self.assertRaises(TypeError):
                compute()

    def test_an_output_that_is_not_there(self):
        with self.assertRaisesRegex(stager.InvalidArgumentError, "no output 'lable'; did you mean 'label'"):
            self.parsed["lable"]
        with self.assertRaises(IndexError):
            self.columns[2]

    def test_a_number_of_outputs_that_is_not_known(self):
        unknown = ops.split(self.value)
        with self.assertRaisesRegex(TypeError, "number of outputs is not known here"):
            list(unknown)
        with self.assertRaisesRegex(TypeError, "is one tensor"):
            list(ops.abs(self.value))
        self.assertEqual(len(unknown[0:2]), 2)

    def test_each_op_with_several_outputs_is_known(self):
        """A source that reserves room for several outputs has an entry in _outputs.py."""
        folder = os.path.join(case.HERE, "../../ops")
        several = set()
        for name in glob.glob("**/*.c", root_dir=folder, recursive=True):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                numbers = re.findall(r"=\s*stg_op_outputs\(([^;]*?)\);", file.read())
            if any(not re.fullmatch(r"\w+, 1", number) for number in numbers):
                several.add(name)
        self.assertEqual(several, {"kernels/array/assert.c", "kernels/array/slice.c", "kernels/csv/plan.c",
                                   "kernels/example/plan.c", "kernels/math/gru.c", "kernels/text/parse_json.c",
                                   "kernels/text/string_split.c"})


if __name__ == "__main__":
    case.main()
