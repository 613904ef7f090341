#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines from Python. The daemon judges: the built pipeline equals the text beside it if applying both changes
nothing."""
import csv
import json
import os
import pathlib
import re
import sys

import numpy as np

import case
import stager
from stager import ops
from stager._names import POSITIONAL

CRITEO = """
name: {name}
dataset:
  - files: {{pattern: ["{path}"], seed: 7, shuffle: false}}
  - interleave: {{cycle_length: 2, block_length: 16, reader: {{text_line: {{skip_header_lines: 1}}}}}}
  - shuffle: {{buffer_size: 100, seed: 7}}
  - repeat: {{count: 3}}
  - batch: {{batch_size: 4, drop_remainder: true}}
graph:
  - {{name: columns, op: decode_csv, input: [record], record_defaults: [0, 0.0, ""]}}
  - {{name: ids, op: string_to_hash_bucket_fast, input: ["columns:2"], num_buckets: 1000}}
  - {{name: table, op: variable, shape: [1000, 16], initializer: ones}}
  - {{name: rows, op: embedding_lookup, input: [table, "staged:ids"]}}
staged:
  features: {{label: "columns:0", ids: ids}}
  capacity: 4
  num_threads: 2
  num_clients: 2
  timeout_millis: 1000
  on_timeout: drop
  delivery: broadcast
  ignored_exception_types: [DATA_LOSS]
targets: [rows]
"""


class Same(case.Case):
    """The built pipeline, and its equivalent text."""

    def same(self, pipeline, text):
        """Applies the text, then the pipeline under its name."""
        name = self._testMethodName[:64]
        self.assertFalse(stager.apply(text, name=name).reply["unchanged"])
        applied = stager.apply(pipeline, name=name)
        self.assertTrue(applied.reply["unchanged"], pipeline.yaml())
        return applied

    def test_a_pipeline_with_staged_features_and_targets(self):
        path = self.file("rows.csv", "a,b,c\n1,2,three\n")
        rows = (stager.files([path], seed=7, shuffle=False)
                .interleave(lambda file: file.text_line(skip_header_lines=1), cycle_length=2,
                            block_length=16)
                .shuffle(100, seed=7).repeat(3).batch(4, drop_remainder=True))
        columns = ops.decode_csv(rows.get_next()["record"], record_defaults=[0, 0.0, ""], name="columns")
        ids = ops.string_to_hash_bucket_fast(columns[2], num_buckets=1000, name="ids")
        pipeline = stager.staged({"label": columns[0], "ids": ids}, capacity=4, num_threads=2,
                                 num_clients=2, timeout_millis=1000, delivery="broadcast",
                                 ignored_exception_types=[stager.DataLossError])
        table = ops.variable(shape=[1000, 16], initializer="ones", name="table")
        pipeline = pipeline.targets(ops.embedding_lookup(table, pipeline["ids"], name="rows"))
        self.same(pipeline, CRITEO.format(name="x", path=path))

    def test_columns_of_parquet_files_are_components(self):
        with open(os.path.join(case.HERE, "../daemon/format/golden_parquet.h"), encoding="utf-8") as file:
            data = re.search(r"parquet_plain\[\d+\] = \{(.*?)\}", file.read(), re.S).group(1)
        path = os.path.join(self.daemon.folder, "rows.parquet")
        with open(path, "wb") as file:
            file.write(bytes(int(byte, 16) for byte in re.findall("0x..", data)))
        columns = {"id": np.int64, "name": "string", "more": "float32"}
        dataset = stager.parquet(path, columns, {"more": 0.5}, shuffle=False).batch(3)
        self.assertIn('{"parquet": {"columns": {"id": "int64", "name": "string", "more": "float32"}, "defaults": {"more": 0.5}}}',
                      dataset.yaml())
        pipeline = dataset.map(lambda r: {"id": r["id"], "name": r["name"], "more": r["more"]})
        with stager.open(stager.apply(pipeline, name=self._testMethodName[:64])) as stream:
            batch = next(iter(stream))
            self.assertEqual(batch["id"].tolist(), [-300, 619, 538])
            self.assertEqual(list(batch["name"]), [b"name-0-", b"name-1-x", b"name-2-xx"])
            self.assertEqual(batch["more"].tolist(), [0.5] * 3)
        with self.assertRaisesRegex(TypeError, "columns maps names to dtypes"):
            stager.files(path).parquet(["id"])
        named = stager.parquet(path, ["name", "id"], shuffle=False)
        self.assertIn('{"parquet": {"columns": {"name": "string", "id": "int64"}}}', named.yaml())
        self.assertIn('"columns": {"id": "int64", "price": "float32", "name": "string", "flag": "bool"}', stager.parquet(path).yaml())
        self.assertEqual(stager.schema(path)["n_rows"], 23)
        with self.assertRaisesRegex(stager.InvalidArgumentError, "no column 'nam'; did you mean 'name'"):
            stager.parquet(path, ["nam"])
        with self.assertRaisesRegex(stager.InvalidArgumentError, "is a file of the step parquet"):
            stager.arrow(path)
        with self.assertRaises(stager.UnavailableError):
            stager.parquet(path, ["id"], runtime_dir=os.path.join(self.daemon.folder, "none"))

    def test_columns_that_nothing_uses_are_not_read(self):
        path = self.file("rows.csv", "a,b,c\n1,x,10\n2,,20\n3,y,30\n")
        name = self._testMethodName[:64]
        text = (f'dataset: [{{files: {{pattern: "{path}"}}}}, {{csv: {{header: true, columns: {{none: int64, a: int64, b: float32, '
                'c: int64}}}, {batch: {batch_size: 2}}]\n'
                'graph: [{name: x, op: add, input: [c, c]}]\nstaged: {features: {x: x, a: a%s}}\n')
        self.assertFalse(any("problem" in line for line in stager.apply(text % "", name=name).reply["advice"]))
        with stager.open(name) as stream:
            self.assertEqual([(batch["a"].tolist(), batch["x"].tolist()) for batch in stream], [([1, 2], [20, 40]), ([3], [60])])
        with self.assertWarnsRegex(RuntimeWarning, 'column b: "x" is not a valid float32'):
            stager.apply(text % ", b: b", name=name, replace=True)

    def test_columns_of_parquet_files_may_be_a_schema_of_pyarrow(self):
        class Schema:
            names = ["id", "price", "at", "name"]
            types = ["uint16", "float", "timestamp[us, tz=UTC]", "large_string"]
        self.assertIn('"columns": {"id": "uint16", "price": "float32", "at": "int64", "name": "string"}',
                      stager.parquet("/x", Schema).yaml())
        Schema.types = ["uint16", "float", "struct<a: int64>", "string"]
        with self.assertRaisesRegex(TypeError, "column at is struct<a: int64>: name its dtype, or leave it out"):
            stager.parquet("/x", Schema)

    def test_lists_of_a_schema_of_pyarrow_have_shapes(self):
        class Type:
            def __init__(self, text, **parts):
                self.text = text
                self.__dict__.update(parts)

            def __str__(self):
                return self.text
        inner = Type("list<element: float>", value_type="float")

        class Schema:
            names = ["ids", "point", "words", "kind"]
            types = [Type("list<element: list<element: float>>", value_type=inner),
                     Type("fixed_size_list<element: double>[3]", value_type="double", list_size=3),
                     Type("map<string, list<element: float>>", key_type="string", item_type=inner),
                     Type("dictionary<values=string, indices=int8, ordered=0>", value_type="string")]
        text = stager.parquet("/x", Schema, shapes={"ids": [None, 4]}).yaml()
        self.assertIn('"columns": {"ids": "float32", "point": "float64", "words/key": "string", "words/value": "float32", '
                      '"kind": "string"}', text)
        self.assertIn('"shapes": {"ids": [null, 4], "point": [3], "words/key": [null], "words/value": [null, null]}', text)

    def test_columns_of_csv_files_are_components(self):
        path = os.path.join(self.daemon.folder, "rows.csv")
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([["site", "user/id", "price"], ["a, b", 1, 0.5], ["c \"d\"", 2, ""], ["", 3, 1]])
        rows = stager.files(path, shuffle=False).csv({"user/id": np.int64, "price": "float32", "site": str}, {"price": 7})
        self.assertIn('{"csv": {"header": true, "columns": {"user/id": "int64", "price": "float32", "site": "string"}, '
                      '"defaults": {"price": 7}}}', rows.yaml())
        stager.apply(rows.batch(3).map(lambda r: {"id": r["user/id"] + 1, "price": r["price"], "site": r["site"]}),
                     name="csv_columns")
        batch = next(iter(stager.open("csv_columns")))
        self.assertEqual(batch["id"].tolist(), [2, 3, 4])
        self.assertEqual(batch["price"].tolist(), [0.5, 7, 1])
        self.assertEqual(batch["site"].tolist(), [b"a, b", b'c "d"', b""])
        self.assertIn('"columns": {"site": "string"}', stager.files(path).csv(["site"], field_delim=",").yaml())
        self.assertNotIn("columns", stager.files(path).csv(header=True).yaml())
        for wrong in ("site", [1]):
            with self.assertRaisesRegex(TypeError, "csv: columns maps names to dtypes"):
                stager.files(path).csv(wrong)

    def test_indices_of_a_saved_folder_are_taken(self):
        folder, columns = self.daemon.folder, {"id": "int64"}
        state = os.path.join(folder, "state.json")
        self.addCleanup(os.remove, state)
        for key in ("_indices_files", "_indices_data_files"):
            with open(state, "w", encoding="utf-8") as file:
                json.dump({"_data_files": [{"filename": "data.arrow"}], key: [{"filename": "indices.arrow"}]}, file)
            text = stager.arrow(folder, columns).yaml()
            self.assertIn(f'"indices": "{folder}/indices.arrow"', text)
            self.assertIn('"shuffle": false', text)
            with open(state, "w", encoding="utf-8") as file:
                json.dump({"_data_files": [], key: [{"filename": "a"}, {"filename": "b"}]}, file)
            with self.assertRaisesRegex(stager.InvalidArgumentError, "has 2 files of indices"):
                stager.arrow(folder, columns)
        self.assertIn(f'"indices": "{os.getcwd()}/order"', stager.arrow("/x", columns, indices="order").yaml())

    def test_columns_of_arrow_files_are_components(self):
        with open(os.path.join(case.HERE, "../daemon/format/golden_arrow.h"), encoding="utf-8") as file:
            data = re.search(r"arrow_stream\[\d+\] = \{(.*?)\}", file.read(), re.S).group(1)
        folder = os.path.join(self.daemon.folder, "saved")
        os.mkdir(folder)
        path = os.path.join(folder, "data-00000-of-00001.arrow")
        with open(path, "wb") as file:
            file.write(bytes(int(byte) for byte in re.findall(r"\d+", data)))
        columns = {"id": np.int64, "name": "string", "more": "float32"}
        with self.assertRaisesRegex(stager.InvalidArgumentError, "saved has no state.json: name its files"):
            stager.arrow(folder, columns)
        with open(os.path.join(folder, "state.json"), "w", encoding="utf-8") as file:
            json.dump({"_data_files": [{"filename": os.path.basename(path)}]}, file)
        dataset = stager.arrow(folder, columns, {"more": 0.5}, shuffle=False).batch(3)
        self.assertIn(path, dataset.yaml())
        self.assertIn('{"arrow": {"columns": {"id": "int64", "name": "string", "more": "float32"}, "defaults": {"more": 0.5}}}',
                      dataset.yaml())
        self.assertIn('"shapes": {"point": [2]}', stager.arrow(path, {"point": "float32"}, shapes={"point": [2]}).yaml())
        with self.assertRaisesRegex(TypeError, "arrow: columns maps names to dtypes"):
            stager.files(path).arrow(["id"])
        try:
            applied = stager.apply(dataset.map(lambda r: {"id": r["id"], "name": r["name"]}), name=self._testMethodName[:64])
        except stager.UnimplementedError:
            self.skipTest("stagerd was built without flatbuffers")
        self.assertIn('"columns": {"name": "string", "id": "int64"}', stager.arrow(folder, ["name", "id"]).yaml())
        with stager.open(applied) as stream:
            batch = next(iter(stream))
            self.assertEqual(batch["id"].tolist(), [-300, 619, 538])
            self.assertEqual(list(batch["name"]), [b"name-0-", b"name-1-x", b"name-2-xx"])

    def test_maps_before_the_batch_are_steps_and_behind_it_the_graph(self):
        pipeline = (stager.range(100).map(lambda r: {"value": r["value"] * ops.constant(value=2, dtype="int64")})
                    .filter(lambda r: r["value"] > ops.constant(value=10, dtype="int64"))
                    .batch(8).map(lambda r: {"x": ops.cast(r["value"], dtype="float32")})
                    .map(lambda r: {"x": r["x"], "y": r["x"] / 4.0}))
        self.same(pipeline, """
dataset:
  - range: {stop: 100}
  - map: {graph: [{name: constant, op: constant, value: 2, dtype: int64},
                  {name: multiply, op: multiply, input: [value, constant]}], output: {value: multiply}}
  - filter: {graph: [{name: constant, op: constant, value: 10, dtype: int64},
                     {name: greater, op: greater, input: [value, constant]}], predicate: greater}
  - batch: {batch_size: 8}
graph:
  - {name: cast, op: cast, input: [value], dtype: float32}
  - {name: constant, op: constant, value: 4.0, weak: true}
  - {name: divide, op: divide, input: [cast, constant]}
staged: {features: {x: cast, y: divide}}
""")
        with stager.open(self._testMethodName[:64]) as stream:
            x = np.concatenate([np.array(batch["x"]) for batch in stream])
        np.testing.assert_array_equal(x, np.arange(12, 200, 2, dtype=np.float32))

    def test_datasets_that_others_are_made_of_are_branches(self):
        numbers, hundreds = stager.range(10), stager.range(100, 110)
        self.same(stager.zip(numbers, hundreds).batch(2), """
datasets:
  branch_0: [range: {stop: 10}]
  branch_1: [range: {start: 100, stop: 110}]
dataset: [{zip: {from: [branch_0, branch_1]}}, {batch: {batch_size: 2}}]
""")
        self.assertEqual(stager.zip((numbers, hundreds)).yaml(), stager.zip(numbers, hundreds).yaml())

    def test_sampled_chosen_and_concatenated_datasets(self):
        low, high = stager.range(10), stager.range(100, 110)
        for pipeline in (stager.sample_from_datasets([low, high], [1, 3], seed=5),
                         stager.choose_from_datasets([low, high], stager.range(2).repeat(3)),
                         low.concatenate(high, low), low.zip(high)):
            self.assertIn("memory_bytes", stager.check(pipeline.batch(4)))
        name = stager.apply(low.concatenate(high).batch(20).staged(), name="concatenated")
        self.assertEqual(stager.open(name).next()["value"].tolist(), [*range(10), *range(100, 110)])

    def test_lists_single_tensors_ragged_and_sparse_features(self):
        path = self.file("lines", "1 2\n3\n")
        lines = stager.files(path).text_line().batch(2)

        def features(r):
            words = ops.string_split(r["record"])
            parts = ops.string_split(r["record"], result_type="sparse")
            return [stager.Ragged(words[0], words[1]), stager.Sparse(parts[0], parts[1], parts[2]), None]
        self.same(lines.map(features), f"""
dataset: [{{files: {{pattern: ["{path}"]}}}}, text_line, {{batch: {{batch_size: 2}}}}]
graph:
  - {{name: string_split, op: string_split, input: [record]}}
  - {{name: string_split_1, op: string_split, input: [record], result_type: sparse}}
staged:
  features:
    - {{ragged: {{values: "string_split:0", row_splits: "string_split:1"}}}}
    - {{sparse: {{values: "string_split_1:0", indices: "string_split_1:1", dense_shape: "string_split_1:2"}}}}
    - null
""")
        ragged, sparse, nothing = stager.open(self._testMethodName[:64]).next()
        self.assertEqual((ragged.row_splits.tolist(), sparse.dense_shape.tolist(), nothing),
                         ([0, 2, 3], [2, 2], None))
        single = stager.apply(lines.map(lambda r: r["record"]), name="single")
        self.assertEqual(stager.open(single).next().tree.tolist(), [b"1 2", b"3"])

    def test_feed_dict_replaces_tensors(self):
        numbers = stager.range(4).batch(2)
        value = numbers.get_next()["value"]
        rate = ops.placeholder(dtype="int64", shape=[], name="rate")
        self.same(stager.staged({"x": value * rate}, feed_dict={rate: {"value": 3, "client": True}}), """
dataset: [{range: {stop: 4}}, {batch: {batch_size: 2}}]
graph:
  - {name: rate, op: placeholder, dtype: int64, shape: []}
  - {name: multiply, op: multiply, input: [value, rate]}
staged: {features: {x: multiply}, on_timeout: drop, feed_dict: {rate: {value: 3, client: true}}}
""")
        fed = stager.staged({"x": value}, feed_dict={"value": np.array([7, 8])}, name="fed")
        self.assertEqual(stager.open(stager.apply(fed)).next()["x"].tolist(), [7, 8])

    def test_autotune_is_auto(self):
        path = self.file("lines", "1\n2\n")
        rows = (stager.files([path]).interleave(lambda file: file.text_line(),
                                                num_parallel_calls=stager.AUTOTUNE)
                .prefetch(stager.AUTOTUNE))
        self.same(rows.staged(capacity=stager.AUTOTUNE, num_threads="auto"), f"""
dataset:
  - files: {{pattern: ["{path}"]}}
  - interleave: {{reader: text_line, num_parallel_calls: auto}}
  - prefetch: {{buffer_size: auto}}
staged: {{capacity: auto, num_threads: auto}}
""")

    def test_operators_are_ops_and_compute_what_numpy_does(self):
        def features(r):
            x = ops.cast(r["value"], dtype="float32")
            return {"a": (x + 1.0) * 2.0 - x, "b": 1.0 / (x + 1.0), "c": -x, "d": abs(-x), "e": x ** 2.0,
                    "f": (x > 1.0) & (x < 3.0), "g": ~(x == 2.0) | (x >= 3.0), "h": x % 2.0, "i": x // 2.0,
                    "j": (x != 1.0) & (x <= 2.0), "k": 1.0 + x, "l": 2.0 - x, "m": 3.0 * x,
                    "n": np.float32(3) * x, "o": np.array([1, 2, 3, 4, 5], np.float32) / (x + 1.0)}
        name = stager.apply(stager.range(5).batch(5).map(features), name="operators")
        got = stager.open(name).next().tree
        x = np.arange(5, dtype=np.float32)
        want = {"a": (x + 1) * 2 - x, "b": 1 / (x + 1), "c": -x, "d": x, "e": x ** 2, "f": (x > 1) & (x < 3),
                "g": (x != 2) | (x >= 3), "h": x % 2, "i": x // 2, "j": (x != 1) & (x <= 2), "k": 1 + x,
                "l": 2 - x, "m": 3 * x, "n": 3 * x, "o": np.ones(5)}
        for key, value in want.items():
            np.testing.assert_array_equal(got[key], value, err_msg=key)

    def test_a_number_takes_the_dtype_of_the_tensor_beside_it(self):
        rows = stager.range(5).batch(5)
        for dtype in ("float32", "float64", "float16", "int64", "int32", "uint8"):
            def features(r, dtype=dtype):
                x = ops.cast(r["value"], dtype)
                return {"a": x > 0, "b": x + 1, "c": 2 * x, "d": ops.where(x > 2, x, 0), "e": ops.maximum(x, 3),
                        "f": ops.stack([x, [0, 0, 0, 0, 7]], 1), "g": np.int64(3) - x, "h": x % 2 == 0}
            got = stager.open(stager.apply(rows.map(features), name=f"number_{dtype}")).next().tree
            x = np.arange(5, dtype=dtype)
            want = {"a": x > 0, "b": x + x.dtype.type(1), "c": x * x.dtype.type(2), "d": np.where(x > 2, x, x.dtype.type(0)),
                    "e": np.maximum(x, x.dtype.type(3)), "f": np.stack([x, np.array([0, 0, 0, 0, 7], dtype)], 1),
                    "g": x.dtype.type(3) - x, "h": x % 2 == 0}
            for key, value in want.items():
                np.testing.assert_array_equal(np.array(got[key]), value, f"{dtype} {key}")
                self.assertEqual(got[key].dtype, value.dtype, f"{dtype} {key}")

    def test_a_number_that_the_dtype_does_not_hold_is_refused(self):
        rows = stager.range(5).batch(5)
        for function, reason in ((lambda r: r["value"] + 0.5, '0.5 does not fit int64, the dtype of "value" beside it'),
                                 (lambda r: ops.cast(r["value"], "uint8") < 256, "256 does not fit uint8")):
            with self.assertRaisesRegex(stager.InvalidArgumentError, f"test_pipelines.py:.*{reason}"):
                stager.check(rows.map(function))

    def test_a_dtype_is_a_name_or_a_type(self):
        value = stager.range(4).batch(4).get_next()["value"]
        for dtype, name in ((float, "float64"), (int, "int64"), (bool, "bool"), (np.float32, "float32"), (np.dtype("int8"), "int8"),
                            ("uint16", "uint16")):
            features = {"x": ops.cast(value, dtype=dtype)}
            self.assertEqual(stager.open(stager.apply(stager.staged(features, name=f"as_{name}"))).next()["x"].dtype, np.dtype(name))
        parsed = ops.parse_example(value, features={"label": {"dtype": np.int64}, "word": {"dtype": str}})
        self.assertIn('{"label": {"dtype": "int64"}, "word": {"dtype": "string"}}', stager.staged(parsed).yaml())
        with self.assertRaisesRegex(TypeError, "is no dtype"):
            ops.cast(value, dtype=stager.Ragged)

    def test_nan_and_inf_are_numbers(self):
        path = self.file("rows", "1,NA,x\n,2,\n-,3,n/a\n")
        rows = stager.files(path).text_line().batch(3)
        nan, inf = float("nan"), float("inf")

        def features(r):
            columns = ops.decode_csv(r["record"], record_defaults=[nan, np.float32(-inf), ""], na_value=["NA", "-", "n/a"])
            return {"a": columns[0], "b": columns[1], "c": columns[2], "n": ops.constant(value=nan),
                    "i": ops.constant(value=np.array([inf, -inf, 0.5]), dtype="float64"),
                    "h": ops.constant(value=inf, dtype="float16"), "m": ops.maximum(columns[1], -inf)}
        pipeline = rows.map(features).staged()
        with stager.open(stager.apply(pipeline, name="nan")) as stream:
            batch = stream.next()
            for key, want in {"a": [1, nan, nan], "b": [-inf, 2, 3], "n": nan, "i": [inf, -inf, 0.5], "h": inf,
                              "m": [-inf, 2, 3]}.items():
                np.testing.assert_array_equal(batch[key], want, err_msg=key)
            self.assertEqual((batch["c"].tolist(), batch["n"].dtype), ([b"x", b"", b""], np.float32))
        self.assertTrue(stager.apply(pipeline, name="nan").reply["unchanged"])
        stager.explain("nan"), stager.status("nan")     # are JSON
        for text in (".nan", "nan", "NaN"):
            with stager.open(self.apply_text(path, text)) as stream:
                self.assertEqual(np.isnan(stream.next()["x"]).tolist(), [False, True, True])
        rate = ops.placeholder(dtype="float32", shape=[], name="rate")
        fed = stager.staged({"x": ops.cast(stager.range(2).batch(2).get_next()["value"], dtype="float32") + rate},
                            feed_dict={rate: nan})
        with stager.open(stager.apply(fed, name="fed-nan")) as stream:
            self.assertTrue(np.isnan(stream.next()["x"]).all())

    def apply_text(self, path, text):
        return stager.apply(f"""
dataset: [{{files: {{pattern: "{path}"}}}}, text_line, {{batch: {{batch_size: 3}}}}]
graph: [{{name: x, op: decode_csv, input: [record], record_defaults: [{text}], select_cols: [0], na_value: ["-"]}}]
staged: {{features: {{x: x}}}}
""")

    def test_json_with_nan_is_read(self):
        name = self.apply(dataset=[{"range": {"stop": 2}}, {"batch": {"batch_size": 2}}],
                          graph=[{"name": "x", "op": "constant", "value": [float("nan"), float("-inf")]}],
                          staged={"features": {"x": "x"}})
        with stager.open(name) as stream:
            np.testing.assert_array_equal(stream.next()["x"], [float("nan"), float("-inf")])

    def test_na_value_is_text(self):
        for value in (float("nan"), [1], ["a", 2], [["a"]]):
            with self.assertRaisesRegex(stager.InvalidArgumentError, "na_value is a string or a list of strings"):
                stager.check(stager.range(2).map(lambda r, v=value: ops.decode_csv(ops.as_string(r["value"]),
                                                                                  record_defaults=[0], na_value=v)))

    def test_an_unknown_step_or_op_is_the_daemons_to_refuse(self):
        with self.assertRaisesRegex(stager.InvalidArgumentError, "shufle.*shuffle"):
            stager.check(stager.range(4).shufle(buffer_size=3))
        with self.assertRaisesRegex(stager.InvalidArgumentError, "decode_cvs.*decode_csv"):
            stager.check(stager.range(4).batch(2).map(lambda r: ops.decode_cvs(r["value"])))

    def test_a_keyword_of_python_has_an_underscore_behind_it(self):
        dataset = stager.range(1000).shuffle(global_=True, seed=3)
        self.assertIn('{"shuffle": {"global": true, "seed": 3}}', dataset.batch(2).yaml())
        with stager.open(stager.apply(dataset.batch(100), name="global")) as stream:
            values = [value for batch in stream for value in batch["value"].tolist()]
        self.assertEqual(sorted(values), list(range(1000)))
        self.assertNotEqual(values, list(range(1000)))
        with self.assertRaisesRegex(stager.InvalidArgumentError, "leave block_size out"):
            stager.check(stager.range(4).shuffle(global_=True, exact=True, block_size=2).batch(2))
        with self.assertRaisesRegex(stager.InvalidArgumentError, "put repeat after this step"):
            stager.check(stager.range(4).repeat(2).shuffle(global_=True).batch(2))

    def test_text_is_kept_as_it_is(self):
        text = 'é "quoted"\\ \n\t: {yes} # no \U0001f600'
        name = stager.apply(stager.range(1).batch(1).map(
            lambda r: {"t": ops.constant(value=[text]), "v": r["value"]}), name="text")
        self.assertEqual(stager.open(name).next()["t"].tolist(), [text.encode()])


    def test_paths_are_text_or_paths_and_this_folders(self):
        folder = os.path.join(self.daemon.folder, "of [1]*")
        os.mkdir(folder)
        with open(os.path.join(folder, "a.txt"), "w", encoding="ascii") as file:
            file.write("a\n")
        with open(os.path.join(folder, "listed"), "w", encoding="ascii") as file:
            file.write(os.path.join(folder, "a.txt") + "\n")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(folder)
        for number, dataset in enumerate((stager.files("*.txt"), stager.files(pathlib.Path("a.txt")),
                                          stager.files(name for name in ["a.txt"]), stager.files(listing="listed"))):
            with stager.open(stager.apply(dataset.text_line(), name=f"paths{number}")) as stream:
                self.assertEqual([batch["record"][()] for batch in stream], [b"a"])
        self.assertIn('"s3://bucket/*.csv"', stager.files("s3://bucket/*.csv").yaml())
        home = os.path.expanduser("~/photos")
        self.assertIn(f'"{home}"', stager.files("~/photos").yaml())


def values_of_main(batch):
    return batch


class Places(case.Case):
    """Errors about a pipeline built in Python name the line of this file."""

    def refused(self, make, pattern, offset=1):
        """Returns the caller's line plus offset."""
        line = sys._getframe(1).f_lineno + offset
        with self.assertRaises(stager.InvalidArgumentError) as caught:
            stager.check(make())
        text = caught.exception.text.replace(f"{__file__}:{line}", "HERE")
        self.assertRegex(text, pattern)
        self.assertNotRegex(text, r"<pipeline>|\bline \d")
        self.assertEqual((caught.exception.file, caught.exception.line), (__file__, line))

    def test_of_a_step_a_node_and_a_feature(self):
        self.refused(
            lambda: stager.range(4).take("x").batch(2), r"^HERE: dataset\[1\]\.take\.count: found")
        self.refused(
            lambda: stager.range(4).zip(stager.range(4).batch(0)), r"^HERE: datasets.branch_0.dataset\[1\].batch")
        self.refused(
            lambda: stager.range(4).batch(2).map(lambda r: ops.reshape(r["value"], shap=[2])),
            r"^node reshape \(reshape\), HERE: unknown attribute 'shap'")
        self.refused(
            lambda: stager.range(4).map(lambda r: ops.abs(r["v"]), num_parallel_calls=1).batch(2),
            r"^step map \(HERE\): node abs \(abs\), HERE: \"v\": unknown node")
        self.refused(
            lambda: stager.range(4).map(lambda r: {"x": r["y"]}, num_parallel_calls=1).batch(2),
            r"^step map \(HERE\): output.x, HERE: \"y\"")
        self.refused(
            lambda: stager.range(4).batch(2).map(lambda r: {"x": {"y": r["z"]}}), r"^staged.features.x/y, HERE: \"z\"")
        self.refused(
            lambda: stager.range(4).staged(capcity=3), r"^HERE: staged: unknown key")
        self.refused(
            lambda: stager.staged([stager.range(4).get_next()["value"]], {"foo": 3}),
            r"^staged.feed_dict.foo, HERE: ")

    def test_of_the_code_that_calls_and_not_of_the_package(self):
        def features(r):
            value = r["value"]
            return {"x": value + "y"}
        self.refused(
            lambda: stager.range(4).batch(2).map(features), r"^node add \(add\), HERE: .* is string", -1)

    def test_of_a_batch_and_of_an_element(self):
        path = self.file("rows", "1\nx\n")
        rows = stager.files(path).text_line()

        def features(r):
            return {"n": ops.string_to_number(r["record"])}
        node = f"node string_to_number \\(string_to_number\\), {__file__}:{sys._getframe().f_lineno - 1}: "
        line = sys._getframe().f_lineno + 1
        step = rows.map(features, num_parallel_calls=1).batch(2)
        for number, (pipeline, pattern) in enumerate((
                (rows.batch(2).map(features), f"^{path}: line 2 \\(offset 2\\): {node}"),
                (step, f"^{path}: line 2 \\(offset 2\\): step map \\({__file__}:{line}\\): {node}"))):
            with stager.open(stager.apply(pipeline, name=f"places{number}")) as stream:
                with self.assertRaisesRegex(stager.InvalidArgumentError, pattern) as caught:
                    stream.next()
                self.assertEqual((caught.exception.file, caught.exception.line), (path, 2))

    def test_of_the_end_of_a_pass_and_of_advice(self):
        missing = os.path.join(self.daemon.folder, "missing")
        line = sys._getframe().f_lineno + 1
        files = stager.files(missing)
        with stager.open(stager.apply(files, name="missing")) as stream:
            with self.assertRaisesRegex(stager.NotFoundError, f"step files \\({__file__}:{line}\\): no files matched"):
                stream.next()
        repeated = files.text_line().repeat().shuffle(10)
        advice = stager.apply(repeated, name="advised").reply["advice"]
        here = f"({__file__}:{sys._getframe().f_lineno - 2})"
        self.assertTrue(any(f"step repeat {here} before shuffle {here}" in text for text in advice), advice)

    def test_not_of_a_pipeline_that_came_as_text(self):
        with self.assertRaisesRegex(stager.InvalidArgumentError, "^<text>:1:19: "):
            stager.check("dataset: [range: {stp: 4}]\n")


class Names(case.Case):
    """`dir`, and with it completion, lists what there is."""

    def documented(self, name, least):
        with open(os.path.join(case.HERE, "../../docs", name), encoding="utf-8") as file:
            cells = [line.split("|")[1] for line in file if line.startswith("| [`")]
        names = set(re.findall(r"`(\w+)`", " ".join(cells)))
        self.assertGreater(len(names), least)
        return names

    def test_dir_of_ops_is_the_table_of_ops(self):
        self.assertEqual({name.rstrip("_") for name in dir(ops)}, self.documented("ops.md", 90))
        self.assertIn("assert_", dir(ops))
        self.assertEqual(ops.center_crop.__name__, "center_crop")

    def test_dir_of_dataset_has_all_steps(self):
        sources = {"files", "range", "sample_from_datasets", "choose_from_datasets"}
        self.assertEqual(self.documented("dataset.md", 30) - set(dir(stager.Dataset)), sources)
        self.assertEqual(stager.Dataset.shuffle.__doc__, "The step `shuffle` of docs/dataset.md.")
        self.assertEqual(stager.range(4).take(2).yaml(), stager.Dataset.take(stager.range(4), 2).yaml())

    def test_a_step_without_a_method_is_the_daemons_to_judge(self):
        with self.assertRaisesRegex(stager.Error, "shufle"):
            stager.check(stager.range(4).shufle(buffer_size=3))


class Mistakes(case.unittest.TestCase):
    def test_map_takes_a_function(self):
        with self.assertRaisesRegex(TypeError, "map takes a function"):
            stager.range(4).map(3)

    def test_a_function_for_workers_is_one_of_a_module(self):
        dataset = stager.range(4).batch(2)
        self.assertEqual(dataset.py_function(json.dumps).yaml(), dataset.py_function("json:dumps").yaml())
        with self.assertRaisesRegex(stager.InvalidArgumentError, "a function of a module"):
            dataset.py_function(lambda batch: batch)
        for here in ("__main__:spread", values_of_main):
            with self.assertRaisesRegex(stager.InvalidArgumentError, "a script or notebook cannot be imported"):
                dataset.py_function(here)
        for signature in (["image"], {"image": "float32"}):
            with self.assertRaisesRegex(TypeError, "output_signature"):
                dataset.py_function("json:dumps", signature)

        class TorchDtype:
            def __str__(self):
                return "torch.bfloat16"
        self.assertIn('{"x": "bfloat16"}', dataset.py_function("json:dumps", {"x": (TorchDtype(), [2])}).yaml())

    def test_a_tensor_of_a_pipeline_has_no_value(self):
        value = stager.range(4).get_next()["value"]
        with self.assertRaisesRegex(TypeError, "traced once"):
            bool(value > 1)
        with self.assertRaisesRegex(TypeError, "number of outputs is not known here"):
            list(ops.decode_csv(value))
        with self.assertRaisesRegex(TypeError, 'element\\["record"\\]'):
            list(stager.range(4).get_next())

    def test_numpys_functions_are_not_for_tensors(self):
        value = stager.range(4).get_next()["value"]
        for function, hint in ((np.log1p, "ops.log1p"), (np.log, "ops.log"), (np.exp, "ops.exp"), (np.isnan, "an op of dir.stager.ops.")):
            with self.assertRaisesRegex(TypeError, f"numpy.{function.__name__} computes on arrays.* use {hint}$"):
                function(value)
        self.assertEqual((np.absolute(value).op, np.negative(value).op), ("abs", "negative"))

    def test_brackets_take_outputs_and_no_rows(self):
        value = stager.range(4).batch(2).get_next()["value"]
        for wrong in (lambda: ops.stack([value, value], axis=1)[:, 0], lambda: value[0], lambda: value[:, 0], lambda: (value + 1)[...],
                      lambda: ops.split(value, 2)[0][1]):
            with self.assertRaisesRegex(TypeError, "has no rows and columns to take.*ops.slice.*ops.gather"):
                wrong()
        with self.assertRaisesRegex(TypeError, "is one tensor"):
            list(value)

    def test_attributes_have_the_positions_of_tensorflow(self):
        value = stager.range(4).batch(4).get_next()["value"]
        text = stager.staged([ops.cast(value, "float32"), ops.concat([value, value], 0), ops.reshape(value, [2, 2]),
                              ops.one_hot(value, 4, 1.0), ops.split(value, 2)[0], ops.constant(3, "int64"),
                              ops.concat(value, value, axis=0)]).yaml()
        for part in ('"op": "cast", "input": ["value"], "dtype": "float32"', '"op": "concat", "input": ["value", "value"], "axis": 0',
                     '"op": "reshape", "input": ["value"], "shape": [2, 2]', '"depth": 4, "on_value": 1.0', '"num_or_size_splits": 2',
                     '"op": "constant", "value": 3, "dtype": "int64"'):
            self.assertIn(part, text)
        for wrong, reason in ((lambda: ops.cast(value, "int8", 3), "takes 2 positional arguments at most, but 3"),
                              (lambda: ops.cast(value, "int8", dtype="int8"), "dtype is given twice"),
                              (lambda: ops.reshape(value, value), "shape is an attribute")):
            with self.assertRaisesRegex(TypeError, reason):
                wrong()

    def test_positions_are_of_documented_attributes(self):
        with open(os.path.join(case.HERE, "../../docs/ops.md"), encoding="utf-8") as file:
            sections = re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", file.read(), re.M | re.S)
        known = {op: set(re.findall(r"^\| `(\w+)` \|", text, re.M)) for ops_of, text in sections for op in ops_of.split(", ")}
        for op, (_, attributes) in POSITIONAL.items():
            self.assertLessEqual(set(attributes), known[op], op)

    def test_what_describes_batches_is_not_looped_over(self):
        rows = stager.range(4).batch(2)
        for what in (rows, rows.staged()):
            with self.assertRaisesRegex(TypeError, "stager.open\\(stager.apply"):
                next(iter(what))

    def test_a_function_that_returns_nothing_is_reported(self):
        def forgets(r):
            ops.negative(r["value"])
        for dataset in (stager.range(4).map(forgets), stager.range(4).map(forgets).batch(2),
                        stager.range(4).filter(forgets)):
            with self.assertRaisesRegex(stager.InvalidArgumentError, "forgets returned None"):
                dataset.yaml()

    def test_features_are_of_one_dataset(self):
        one, two = stager.range(4).get_next()["value"], stager.range(5).get_next()["value"]
        with self.assertRaisesRegex(stager.InvalidArgumentError, "one dataset, not of 2"):
            stager.staged([one, two]).yaml()
        with self.assertRaisesRegex(stager.InvalidArgumentError, "ops.constant"):
            stager.staged([one, 3]).yaml()
        with self.assertRaisesRegex(stager.InvalidArgumentError, "two nodes have the name"):
            stager.staged([ops.abs(one, name="a"), ops.negative(one, name="a")]).yaml()

    def test_arguments_are_counted(self):
        with self.assertRaisesRegex(TypeError, "takes 2 positional arguments"):
            stager.range(4).batch(1, True, 3)
        with self.assertRaisesRegex(TypeError, "did you mean shuffle"):
            stager.range(4).shuffel(3)
        with self.assertRaisesRegex(TypeError, "given twice"):
            stager.range(4).batch(1, batch_size=2)
        for inside in (lambda file: file.text_line().batch(2), lambda file: file, lambda file: None):
            with self.assertRaisesRegex(stager.InvalidArgumentError, "other steps stand behind interleave"):
                stager.files("/x").interleave(inside)

    def test_the_text_is_yaml_one_step_a_line(self):
        text = (stager.range(4).shuffle(4, seed=1).batch(2)
                .staged(name="rows", capacity=3, container="box").yaml())
        self.assertEqual(text.splitlines(), [
            'name: "rows"', 'container: "box"', "dataset:", '  - {"range": {"stop": 4}}',
            '  - {"shuffle": {"buffer_size": 4, "seed": 1}}', '  - {"batch": {"batch_size": 2}}',
            'staged: {"capacity": 3}'])
        self.assertEqual(json.loads(text.splitlines()[-1].split(": ", 1)[1]), {"capacity": 3})


class TfData(case.Case):
    """The forms in which tf.data's functions are called."""

    def same(self, *datasets):
        texts = {dataset.batch(2).yaml() for dataset in datasets}
        self.assertEqual(len(texts), 1, texts)

    def test_functions_have_their_names_and_positions(self):
        def twice(r):
            return {"value": r["value"] + r["value"]}

        def small(r):
            return r["value"] < ops.constant(value=3, dtype="int64")

        def lines(file):
            return file.text_line()
        numbers, files = stager.range(8), stager.files("/x")
        self.same(numbers.map(twice, 2), numbers.map(map_func=twice, num_parallel_calls=2))
        self.same(numbers.map(twice, 2, False), numbers.map(twice, deterministic=False, num_parallel_calls=2))
        self.same(numbers.filter(small), numbers.filter(predicate=small))
        self.same(files.interleave(lines, 4, 16), files.interleave(map_func=lines, cycle_length=4, block_length=16))
        self.same(files.interleave(lines, 4, 16, 2, False),
                  files.interleave(lines, cycle_length=4, block_length=16, num_parallel_calls=2, deterministic=False))
        self.same(files.parallel_interleave(lines, 4, 16, True), files.parallel_interleave(
            map_func=lines, cycle_length=4, block_length=16, sloppy=True))
        self.same(numbers.map_and_batch(twice, 2, 3), numbers.map_and_batch(map_func=twice, batch_size=2,
                                                                            num_parallel_batches=3))
        self.same(files.flat_map(lines), files.text_line())
        self.same(numbers.apply(lambda d: d.shuffle(3, seed=1)), numbers.shuffle(3, 1))
        self.same(numbers.ignore_errors(True), numbers.ignore_errors(log_warning=True))
        self.same(stager.sample_from_datasets([numbers], [1.0], 7), stager.sample_from_datasets(
            datasets=[numbers], weights=[1.0], seed=7))
        with self.assertRaisesRegex(TypeError, "returned None"):
            numbers.apply(lambda d: None)

    def test_a_map_inside_interleave_parses_what_its_reader_reads(self):
        paths = [self.file(f"{number}.csv", "".join(f"{number * 10 + i},x\n" for i in range(4))) for number in range(3)]

        def parse(r):
            return {"n": ops.decode_csv(r["record"], record_defaults=[0, ""])[0]}

        def check(name, dataset, want):
            with stager.open(stager.apply(dataset.batch(2).staged(name=name))) as stream:
                self.assertEqual([int(n) for batch in stream for n in batch["n"]], want)
        files = stager.files(paths, shuffle=False)
        for number, inside in enumerate((lambda file: file.text_line().map(parse),
                                         lambda file: file.text_line().map(parse, 2).map(lambda r: {"n": r["n"]}))):
            check(f"inside_{number}", files.interleave(inside, 3, 2), [0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23])
            check(f"parallel_{number}", files.parallel_interleave(inside, 2), [0, 10, 1, 11, 2, 12, 3, 13, 20, 21, 22, 23])
            check(f"flat_{number}", files.flat_map(inside), [10 * file + i for file in range(3) for i in range(4)])
        text = files.interleave(lambda file: file.text_line().map(parse), deterministic=False).batch(2).yaml()
        self.assertRegex(text, r'"map": .*"num_parallel_calls": -1, "deterministic": false')

    def test_ops_run_after_those_of_control_dependencies(self):
        def features(r):
            check = ops.assert_(r["value"] < ops.constant(value=4, dtype="int64"), r["value"])
            with stager.control_dependencies([check]):
                twice = ops.identity(r["value"], name="same")
                with stager.control_dependencies(None):
                    free = ops.identity(r["value"], name="free")
            return {"same": twice, "free": free}
        document = stager.range(8).batch(2).map(features).staged().document()
        inputs = {node["name"]: node["input"] for node in document["graph"] if "input" in node}
        self.assertEqual((inputs["same"], inputs["free"]), (["value", "^assert"], ["value"]))
        name = stager.apply(stager.range(8).batch(2).map(features), name="controls")
        with stager.open(name) as stream:
            self.assertEqual([next(stream.__iter__())["same"].tolist(), stream.next()["free"].tolist()], [[0, 1], [2, 3]])
            with self.assertRaises(stager.InvalidArgumentError):
                stream.next()
        with self.assertRaisesRegex(stager.InvalidArgumentError, "made by no op"):
            with stager.control_dependencies([stager.range(2).get_next()["value"]]):
                pass


class SmartStage(case.Case):
    def built(self, **parameters):
        """The pipeline whose target is the sum of `twice`, which may move, and a variable."""
        value = stager.range(8).batch(2).get_next()["value"]
        pipeline = stager.staged({"n": value}, name=self._testMethodName, **parameters)
        twice = ops.add(pipeline["n"], pipeline["n"], name="twice")
        ones = ops.variable(shape=[1], dtype="int64", initializer="ones")
        return pipeline.targets(ops.add(twice, ones, name="sum"))

    def test_it_is_auto_with_targets(self):
        self.assertEqual(stager.explain(stager.apply(self.built()))["smart_stage"], "auto")
        name = stager.apply(stager.range(4).batch(2), name="without_targets")
        self.assertEqual(stager.explain(name)["smart_stage"], "off")

    def test_each_word_is_accepted(self):
        for given, mode in (("auto", "auto"), (True, "on"), ("on", "on"), ("true", "on"), (False, "off"), ("off", "off")):
            with self.subTest(given=given):
                name = stager.apply(self.built(smart_stage=given), replace=True)
                self.assertEqual(stager.explain(name)["smart_stage"], mode)
        with self.assertRaisesRegex(stager.InvalidArgumentError, "test_pipelines.py:.*found the string \"ja\"; expected "
                                    "off, on or auto"):
            stager.check(self.built(smart_stage="ja"))
        for given in (True, "on", "true"):
            stager.check(self.built(keep_warm=given, use_stage_subgraph_thread_pool=False))

    def test_smart_stage_gpu_makes_the_largest_partition(self):
        for parameters in ({"smart_stage_gpu": True}, {"smart_stage": True}):
            name = stager.apply(self.built(**parameters), replace=True)
            with stager.open(name) as stream:
                for number, batch in enumerate(stream):
                    self.assertEqual(stream.run(batch)[0].tolist(), [4 * number + 1, 4 * number + 3])
                    self.assertEqual(stager.status(name)["moved"], ["twice"])
        with self.assertRaisesRegex(stager.InvalidArgumentError, "leave smart_stage out"):
            stager.check(self.built(smart_stage="auto", smart_stage_gpu=True))

    def test_smart_stage_without_effect_is_reported(self):
        dataset = stager.range(8).batch(2)
        for key, value, found in (("smart_stage_gpu", True, True), ("smart_stage", True, True), ("capacity", 2, False)):
            advice = stager.check(dataset.staged(name="still", **{key: value}))["advice"]
            self.assertEqual(any(line.startswith(f"{key} has no effect") for line in advice), found, advice)

    def test_gpu_is_a_device_or_a_mapping(self):
        dataset = stager.range(8).batch(2)
        for given in ("cuda:0", {"device": "cuda:0"}):
            self.assertIn('gpu: {"device": "cuda:0"}', dataset.staged(gpu=given).yaml())
        with self.assertRaisesRegex(stager.InvalidArgumentError, "gpu.*cpu"):
            stager.check(dataset.staged(gpu="cpu"))

    def test_names_of_tf_data_are_answered_with_ours(self):
        for name, hint in (("TFRecordDataset", "tfrecord"), ("from_generator", "py_function"), ("from_tensor_slices", "npy")):
            with self.assertRaisesRegex(AttributeError, hint):
                getattr(stager, name)

    def test_names_of_deeprecs_are_answered_with_ours(self):
        for name, hint in (("make_prefetch_hook", "no hook is needed"), ("mark_target_node", "targets")):
            with self.assertRaisesRegex(AttributeError, hint):
                getattr(stager, name)
        with self.assertRaisesRegex(stager.InvalidArgumentError, "is the key \"smart_stage\" of a pipeline"):
            stager.check(self.built(do_smart_stage=True))


if __name__ == "__main__":
    case.main()
