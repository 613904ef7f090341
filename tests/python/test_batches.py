#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches in Python: views, strings, ragged and sparse features, protocols."""
import csv
import ctypes
import gc
import io

import numpy as np

import case
import stager
from stager import ops

ROWS = "label,price,word\n" + "".join(f"{i},{i / 4},{'w' * (i % 3)}{i}\n" for i in range(10))


def columns():
    """The rows, read by Python's csv module."""
    table = list(csv.DictReader(io.StringIO(ROWS)))
    return (np.array([int(row["label"]) for row in table], np.int32),
            np.array([float(row["price"]) for row in table], np.float32),
            [row["word"].encode() for row in table])


class Batches(case.Case):
    def rows(self, features, batch_size=4):
        path = self.file("rows.csv", ROWS)
        return self.apply(
            dataset=[{"files": {"pattern": [path]}}, {"text_line": {"skip_header_lines": 1}},
                     {"batch": {"batch_size": batch_size}}],
            graph=[{"name": "c", "op": "decode_csv", "input": ["record"],
                    "record_defaults": [0, 0.0, ""]}], staged={"features": features})

    def test_columns_are_those_of_the_csv_module(self):
        name = self.rows({"label": "c:0", "price": "c:1", "word": "c:2"})
        label, price, word = columns()
        batches = [{key: np.array(view) for key, view in batch.items()}
                   for batch in stager.open(name)]
        np.testing.assert_array_equal(np.concatenate([b["label"] for b in batches]), label)
        np.testing.assert_array_equal(np.concatenate([b["price"] for b in batches]), price)
        self.assertEqual(np.concatenate([b["word"] for b in batches]).tolist(), word)
        self.assertEqual(batches[0]["label"].dtype, np.int32)
        self.assertEqual(batches[0]["price"].dtype, np.float32)

    def test_a_view_is_read_only_and_no_copy(self):
        with stager.open(self.rows({"label": "c:0"})) as stream:
            batch = stream.next()
            view = batch["label"]
            self.assertFalse(view.flags.writeable)
            with self.assertRaises(ValueError):
                view[0] = 1
            with self.assertRaises(ValueError):
                view.flags.writeable = True
            self.assertIs(view, batch["label"])
            again = np.asarray(batch.tensor("label"))
            self.assertEqual(view.__array_interface__["data"][0],
                             again.__array_interface__["data"][0])

    def test_a_batch_has_the_structure_of_its_features(self):
        label, price, word = columns()
        nested = {"x": {"a": "c:0", "l": ["c:1", None]}, "y": "c:2"}
        batch = stager.open(self.rows(nested), batch_size=None).next()
        self.assertEqual(batch.keys(), ["x", "y"])
        self.assertEqual(list(batch["x"]), ["a", "l"])
        np.testing.assert_array_equal(batch["x"]["a"], label[:4])
        np.testing.assert_array_equal(batch["x"]["l"][0], price[:4])
        self.assertIsNone(batch["x"]["l"][1])
        self.assertEqual(batch.tree["y"].tolist(), word[:4])
        self.assertIn("y", batch)
        self.assertNotIn("z", batch)
        self.assertEqual(batch.get("z", 1), 1)
        with self.assertRaisesRegex(KeyError, "'z'; the batch has 'x', 'y'"):
            batch["z"]

    def test_a_list_of_features_unpacks(self):
        label, price, _ = columns()
        batch = stager.open(self.rows(["c:0", "c:1"])).next()
        first, second = batch
        np.testing.assert_array_equal(first, label[:4])
        np.testing.assert_array_equal(second, price[:4])
        self.assertIs(batch[-1], batch[-1])
        self.assertEqual(len(batch), 2)
        self.assertIsInstance(batch.tree, list)
        with self.assertRaisesRegex(IndexError, "a list of 2"):
            batch[2]

    def test_a_single_feature_is_found_by_its_name(self):
        label, _, _ = columns()
        batch = stager.open(self.rows("c:0")).next()
        (key,) = batch.keys()
        np.testing.assert_array_equal(batch[key], label[:4])
        np.testing.assert_array_equal(batch.tree, label[:4])

    def test_a_plain_reader_gives_records(self):
        path = self.file("lines", "one\n\nthree\n")
        name = self.apply(dataset=[{"files": {"pattern": [path]}}, {"text_line": {}},
                                   {"batch": {"batch_size": 3}}])
        batch = stager.open(name).next()
        self.assertEqual(batch["record"].tolist(), [b"one", b"", b"three"])

    def test_a_batch_says_where_it_stands(self):
        stream = stager.open(self.numbers(stop=5, steps=[{"repeat": {"count": 2}}], batch_size=5))
        infos = [batch.info for batch in stream]
        self.assertEqual([(i.number, i.pass_, i.epoch, i.index, i.n_rows) for i in infos],
                         [(0, 0, 0, 0, 5), (1, 0, 1, 0, 5)])
        self.assertEqual([(i.redelivered, i.slice, i.n_slices) for i in infos], [(False, 0, 1)] * 2)

    # ---- dtypes ----

    def test_every_dtype_is_numpys(self):
        names = ["float32", "float64", "int32", "uint8", "int16", "int8", "int64", "bool", "uint16",
                 "float16", "uint32", "uint64"]
        graph = [{"name": name, "op": "cast", "input": ["value"], "dtype": name} for name in names]
        name = self.apply(dataset=[{"range": {"stop": 3}}, {"batch": {"batch_size": 3}}], graph=graph,
                          staged={"features": {name: name for name in names}})
        batch = stager.open(name).next()
        for dtype in names:
            with self.subTest(dtype=dtype):
                self.assertEqual(batch[dtype].dtype, np.dtype(dtype))
                np.testing.assert_array_equal(batch[dtype], np.arange(3).astype(dtype))
                self.assertEqual(batch.tensor(dtype).__array_interface__["typestr"],
                                 np.dtype(dtype).str)

    # ---- strings ----

    def test_strings_are_offsets_and_bytes_without_a_copy(self):
        _, _, word = columns()
        words = stager.open(self.rows({"w": "c:2"})).next()["w"]
        data, offsets = words.data, words.offsets
        self.assertEqual((data.dtype, offsets.dtype), (np.uint8, np.int64))
        self.assertEqual([data[offsets[i]:offsets[i + 1]].tobytes() for i in range(4)], word[:4])
        self.assertFalse(data.flags.writeable or offsets.flags.writeable)
        self.assertEqual(words.tolist(), word[:4])
        self.assertEqual((words[1], words[-1], len(words), words.shape), (word[1], word[3], 4, (4,)))
        with self.assertRaises(IndexError):
            words[4]

    def test_strings_become_numpys_on_demand(self):
        _, _, word = columns()
        words = stager.open(self.rows({"w": "c:2"})).next()["w"]
        self.assertEqual(words.numpy().dtype, object)
        self.assertEqual(np.asarray(words).tolist(), word[:4])
        self.assertEqual(words.numpy("S").tolist(), word[:4])
        self.assertEqual(words.numpy(str).tolist(), [w.decode() for w in word[:4]])
        self.assertEqual(words[1:3].tolist(), word[1:3])
        if hasattr(np.dtypes if hasattr(np, "dtypes") else np, "StringDType"):
            text = words.numpy(np.dtypes.StringDType())
            self.assertEqual(text.tolist(), [w.decode() for w in word[:4]])

    def test_bytes_that_are_no_text_are_refused_as_text_only(self):
        path = self.file("lines", b"a\xff\nb\n")
        name = self.apply(dataset=[{"files": {"pattern": [path]}}, {"text_line": {}},
                                   {"batch": {"batch_size": 2}}])
        words = stager.open(name).next()["record"]
        self.assertEqual(words.tolist(), [b"a\xff", b"b"])
        with self.assertRaises(UnicodeDecodeError):
            words.numpy(str)

    # ---- ragged, sparse ----

    def ragged(self):
        """Row r has the values r, 0 … r - 1 times 10: lines of numbers, split at spaces."""
        lines = [" ".join(str(10 * k) for k in range(r)) for r in range(1, 5)]
        path = self.file("lines", "\n".join(lines) + "\n")
        return path, [[10 * k for k in range(r)] for r in range(1, 5)]

    def ragged_rows(self):
        """Elements {ids: ragged, record} of three lines, in batches of two."""
        path = self.file("ragged", "1 2\n3\n4 5 6\n")
        def ids(r):
            return {"ids": ops.string_to_number(ops.string_split(r["record"]).values, out_type="int64"),
                    "record": r["record"]}
        return stager.files(path).text_line().map(ids, num_parallel_calls=1).ragged_batch(2)

    def check_ragged(self, pipeline, key="ids", times=1):
        with stager.open(stager.apply(pipeline, name=self._testMethodName[:64], replace=True)) as stream:
            got = [(batch[key].values.tolist(), batch[key].row_splits.tolist()) for batch in stream]
            self.assertEqual(got, [([times, 2 * times, 3 * times], [0, 2, 3]),
                                   ([4 * times, 5 * times, 6 * times], [0, 3])])
            return stream.structure

    def test_a_component_of_ragged_batch_is_one_value(self):
        rows = self.ragged_rows()
        ids = {"ragged": {"values": "ids/values", "row_splits": "ids/row_splits"}}
        self.assertEqual(self.check_ragged(rows), {"ids": ids, "record": "record"})
        self.assertEqual(self.check_ragged(rows.map(lambda r: {"ids": r["ids"]}, num_parallel_calls=1)), {"ids": ids})
        self.assertEqual(self.check_ragged(rows.map(lambda r: {"n": r["ids"].row_splits, "ids": r["ids"]})),
                         {"n": "n", "ids": ids})
        x = {"ragged": {"values": "a/x/values", "row_splits": "a/x/row_splits"}}
        with stager.open(stager.apply(rows.map(lambda r: {"a": {"x": r["ids"]}}), name="nested")) as stream:
            self.assertEqual(stream.structure, {"a": {"x": x}})
            self.assertEqual(stream.next()["a"]["x"].values.tolist(), [1, 2, 3])
        with stager.open(stager.apply(rows, name="fields"), fields="ids") as stream:
            self.assertEqual((stream.structure, stream.next()["ids"].row_splits.tolist()), ({"ids": ids}, [0, 2, 3]))

    def test_its_parts_are_tensors_for_ops(self):
        def doubled(r):
            return {"ids": stager.Ragged(r["ids"].values * ops.constant(value=2, dtype="int64"), r["ids"].row_splits)}
        rows = self.ragged_rows()
        self.check_ragged(rows.map(doubled), times=2)
        self.check_ragged(rows.map(doubled, num_parallel_calls=2).prefetch(1), times=2)
        with self.assertRaisesRegex(stager.InvalidArgumentError, '"ids" is a ragged component.*such as "ids/values"'):
            stager.check(rows.map(lambda r: {"x": ops.abs(r["ids"])}))

    def test_a_text_names_it_too_and_slices_keep_it(self):
        path = self.file("words", "a b\nc\n")
        name = self.apply(
            dataset=[{"files": {"pattern": path}}, "text_line",
                     {"map": {"graph": [{"name": "split", "op": "string_split", "input": ["record"]}],
                              "output": {"w": "split"}}}, {"ragged_batch": {"batch_size": 2}}],
            staged={"features": {"words": "w", "splits": "w/row_splits"}})
        with stager.open(name) as stream:
            batch = stream.next()
            self.assertEqual((batch["words"].values.tolist(), batch["words"].row_splits.tolist(),
                              batch["splits"].tolist()), ([b"a", b"b", b"c"], [0, 2, 3], [0, 2, 3]))
        plain = self.apply(name="sliced", dataset=[
            {"files": {"pattern": path}}, "text_line",
            {"map": {"graph": [{"name": "split", "op": "string_split", "input": ["record"]}], "output": {"w": "split"}}},
            {"ragged_batch": {"batch_size": 2}}])
        with stager.open(plain, batch_size=1) as stream:
            self.assertEqual([batch["w"].values.tolist() for batch in stream], [[b"a", b"b"], [b"c"]])

    def test_ragged_is_values_and_row_splits(self):
        path, rows = self.ragged()
        name = self.apply(
            dataset=[{"files": {"pattern": [path]}}, {"text_line": {}}, {"batch": {"batch_size": 4}}],
            graph=[{"name": "r", "op": "string_split", "input": ["record"]},
                   {"name": "n", "op": "string_to_number", "input": ["r"], "out_type": "int64"},
                   {"name": "s", "op": "string_split", "input": ["record"], "result_type": "sparse"}],
            staged={"features": {"r": {"ragged": {"values": "n", "row_splits": "r:1"}},
                                 "s": {"sparse": {"values": "s", "indices": "s:1",
                                                  "dense_shape": "s:2"}}}})
        batch = stager.open(name).next()
        values, splits = batch["r"]
        self.assertEqual([values[splits[r]:splits[r + 1]].tolist() for r in range(4)], rows)
        sparse = batch["s"]
        self.assertIsInstance(sparse, stager.Sparse)
        dense = np.full(sparse.dense_shape, b"", object)
        dense[tuple(sparse.indices.T)] = sparse.values.numpy()
        self.assertEqual(dense.tolist(), [[str(n).encode() for n in row] + [b""] * (4 - len(row))
                                          for row in rows])

    # ---- protocols ----

    def test_the_buffer_protocol_is_read_only(self):
        tensor = stager.open(self.rows({"l": "c:0"})).next().tensor("l")
        view = memoryview(tensor)
        self.assertEqual((view.readonly, view.format, view.shape, view.itemsize),
                         (True, "i", (4,), 4))
        self.assertEqual(view.tolist(), [0, 1, 2, 3])
        with self.assertRaises((BufferError, TypeError)):
            (ctypes.c_int * 4).from_buffer(tensor)

    def test_dlpack_says_that_it_is_read_only_or_refuses(self):
        tensor = stager.open(self.rows({"l": "c:0"})).next().tensor("l")
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        capsule = tensor.__dlpack__(max_version=(1, 0))
        self.assertIn("dltensor_versioned", repr(capsule))
        major, flags = read_versioned(capsule)
        self.assertEqual((major, flags), (1, 1))
        with self.assertRaisesRegex(BufferError, "read-only"):
            tensor.__dlpack__()
        major, flags = read_versioned(tensor.__dlpack__(max_version=(1, 1), copy=True))
        self.assertEqual((major, flags), (1, 2))
        with self.assertRaisesRegex(BufferError, "CPU"):
            tensor.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
        with self.assertRaisesRegex(TypeError, r"max_version must be a tuple \(major, minor\), not \[1, 0\]"):
            tensor.__dlpack__(max_version=[1, 0])

    def test_numpy_reads_dlpack(self):
        batch = stager.open(self.rows({"l": "c:0"})).next()

        class Copied:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **kwargs):
                return self.tensor.__dlpack__(copy=True)

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        array = np.from_dlpack(Copied(batch.tensor("l")))
        batch.release()
        np.testing.assert_array_equal(array, columns()[0][:4])

    def test_an_unconsumed_capsule_keeps_its_batch_until_it_is_freed(self):
        stream = stager.open(self.rows({"l": "c:0"}))
        capsule = stream.next().tensor("l").__dlpack__(max_version=(1, 0))
        self.assertEqual(stream.held, [0])
        del capsule
        self.assertEqual(stream.held, [])

    # ---- writing ----

    def test_writable_views_are_written_by_this_trainer_alone_and_until_release(self):
        name = self.numbers(stop=8, batch_size=4, delivery="broadcast", num_clients=2)
        writer, reader = stager.open(name, writable=True), stager.open(name)
        mine, theirs = writer.next(), reader.next()
        view = mine["value"]
        self.assertTrue(view.flags.writeable)
        view += 100
        memoryview(mine.tensor("value"))[0] = 7
        self.assertEqual(mine["value"].tolist(), [7, 101, 102, 103])
        self.assertEqual(theirs["value"].tolist(), [0, 1, 2, 3])
        self.assertEqual(read_versioned(mine.tensor("value").__dlpack__(max_version=(1, 0)))[1], 0)
        np.testing.assert_array_equal(np.from_dlpack(mine.tensor("value")), [7, 101, 102, 103])

    def test_what_was_written_does_not_come_back_with_the_next_batch_there(self):
        """A stage with one extent more than may be held reuses the same memory."""
        stream = stager.open(self.numbers(stop=4000, batch_size=4), writable=True)
        for number, batch in enumerate(stream):
            view = batch["value"]
            self.assertEqual(view.tolist(), [*range(4 * number, 4 * number + 4)])
            view[:] = -1
            if number % 2:
                batch.release()
                view[:] = -2  # too late: the memory belongs to another batch, or soon will

    # ---- lifetime of a view ----

    def test_the_last_view_gives_the_batch_back(self):
        stream = stager.open(self.rows({"l": "c:0", "w": "c:2"}))
        batch = stream.next()
        views = [batch["l"], batch["w"].data, memoryview(batch.tensor("l")), batch["l"][1:]]
        del batch
        gc.collect()
        while views:
            self.assertEqual(stream.held, [0])
            views.pop(0)
        self.assertEqual(stream.held, [])

    def test_release_and_with_give_it_back_at_once(self):
        stream = stager.open(self.rows({"l": "c:0"}))
        with stream.next() as batch:
            tensor = batch.tensor("l")
            self.assertEqual(stream.held, [0])
        self.assertEqual((stream.held, batch.released), ([], True))
        with self.assertRaisesRegex(stager.FailedPreconditionError, "batch 0 was released"):
            batch["l"]
        with self.assertRaisesRegex(BufferError, "batch 0 was released"):
            memoryview(tensor)
        batch.release()

    def test_a_view_outlives_release_and_close_without_a_crash(self):
        stream = stager.open(self.rows({"l": "c:0"}))
        batch = stream.next()
        view = batch["l"]
        batch.release()
        stream.close()
        del stream, batch
        gc.collect()
        self.assertEqual(view.shape, (4,))
        self.assertIsInstance(int(view.sum()), int)

    def test_a_batch_is_readable_after_close(self):
        stream = stager.open(self.rows({"l": "c:0"}))
        batch = stream.next()
        stream.close()
        np.testing.assert_array_equal(batch["l"], columns()[0][:4])


def read_versioned(capsule):
    """(major, flags) of a DLManagedTensorVersioned."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = get(capsule, b"dltensor_versioned")
    major = ctypes.cast(at, ctypes.POINTER(ctypes.c_uint32))[0]
    return major, ctypes.cast(at, ctypes.POINTER(ctypes.c_uint64))[3]


if __name__ == "__main__":
    case.main()
