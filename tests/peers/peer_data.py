#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines over real data, through a daemon, give what TensorFlow gives, bit for bit. The data lie in the folder that
the environment names in STG_TEST_DATA, and are skipped without it:

    criteo/criteo_sample.tr.tfrecords   Examples: label and I1 … I13 float, C1 … C26 int64, each a scalar
    criteo/criteo_sample.txt            the same rows as CSV with a header, as they were published; pyarrow makes tables of them
    images/*.jpg                        photographs of mixed sizes

    peer_data.py BUILD
"""
import glob
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))
from daemon import Daemon  # noqa: E402

SKIPPED = 77
CRITEO = "criteo/criteo_sample.tr.tfrecords"
FLOATS = ["label"] + [f"I{i}" for i in range(1, 14)]
IDS = [f"C{i}" for i in range(1, 27)]
BATCH = 64
ROWS = "criteo/criteo_sample.txt"
IMAGES = "images/*.jpg"
SMALL = [32, 24]


def criteo_pipeline(path, reader):
    """Parsed, hashed, bucketized, crossed: the ops of a usual Criteo model."""
    features = {name: {"dtype": "float32"} for name in FLOATS} | {name: {"dtype": "int64"} for name in IDS}
    nodes = [{"name": "parsed", "op": "parse_example", "input": ["record"], "features": features},
             {"name": "text", "op": "as_string", "input": ["parsed:C1"]},
             {"name": "hashed", "op": "string_to_hash_bucket_fast", "input": ["text"], "num_buckets": 1000},
             {"name": "buckets", "op": "bucketize", "input": ["parsed:I1"], "boundaries": [0.0, 0.01, 0.1, 0.5]},
             {"name": "dense", "op": "stack", "input": [f"parsed:I{i}" for i in range(1, 14)], "axis": 1},
             {"name": "clipped", "op": "clip_by_value", "input": ["dense"], "clip_value_min": 0.01, "clip_value_max": 0.9}]
    staged = {name: f"parsed:{name}" for name in FLOATS + IDS}
    staged |= {"hashed": "hashed", "buckets": "buckets", "clipped": "clipped"}
    return {"name": f"criteo-{reader}", "graph": nodes,
            "dataset": [{"files": {"pattern": path}},
                        {"tfrecord": {}} if reader == "tfrecord" else
                        {"interleave": {"cycle_length": 2, "reader": {"tfrecord": {}}}},
                        {"batch": {"batch_size": BATCH}}],
            "staged": {"features": staged}}


def criteo_by_tensorflow(path):
    spec = {name: tf.io.FixedLenFeature([], tf.float32) for name in FLOATS}
    spec |= {name: tf.io.FixedLenFeature([], tf.int64) for name in IDS}

    def parse(records):
        row = tf.io.parse_example(records, spec)
        dense = tf.stack([row[f"I{i}"] for i in range(1, 14)], axis=1)
        return row | {"hashed": tf.strings.to_hash_bucket_fast(tf.as_string(row["C1"]), 1000),
                      "buckets": tf.raw_ops.Bucketize(input=row["I1"], boundaries=[0.0, 0.01, 0.1, 0.5]),
                      "clipped": tf.clip_by_value(dense, 0.01, 0.9)}
    return [{name: value.numpy() for name, value in batch.items()}
            for batch in tf.data.TFRecordDataset(path).batch(BATCH).map(parse)]


def apply(daemon, pipeline):
    path = os.path.join(daemon.folder, pipeline["name"] + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(pipeline, file)
    daemon.ctl("apply", path, "--replace")
    return daemon.cat(pipeline["name"])


def differences(got, want):
    """The names of differing features, batch by batch."""
    if len(got) != len(want):
        return [f"{len(got)} batches instead of {len(want)}"]
    found = []
    for i, (batch, wanted) in enumerate(zip(got, want)):
        if set(batch["tensors"]) != set(wanted):
            return [f"batch {i} has {sorted(batch['tensors'])}, not {sorted(wanted)}"]
        for name, value in wanted.items():
            tensor = batch["tensors"][name]
            mine = np.array(tensor["values"], value.dtype).reshape(tensor["shape"])
            if mine.shape != value.shape or mine.tobytes() != value.tobytes():
                found.append(f"{name} of batch {i}")
    return found


def compare_criteo(daemon, path):
    want = criteo_by_tensorflow(path)
    failed = 0
    for reader in ("tfrecord", "interleave"):
        found = differences(apply(daemon, criteo_pipeline(path, reader)), want)
        rows = sum(len(batch["label"]) for batch in want)
        print(f"FAIL criteo by {reader}: {found[:5]}" if found else f"ok   criteo by {reader}: {rows} rows")
        failed += bool(found)
    return [2 - failed, failed, 0]


# ---- the same data in tables ----

def write_arrow(table, path, **options):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table, max_chunksize=70)


def coded(table):
    """Its strings as dictionaries."""
    return pa.table({name: column.dictionary_encode() if pa.types.is_string(column.type) else column
                     for name, column in zip(table.column_names, table.columns)})


# Row groups and pages that end inside of batches.
FORMS = {
    "parquet as pyarrow writes it": lambda table, path: pq.write_table(table, path),
    "parquet of small pages": lambda table, path: pq.write_table(table, path, row_group_size=70, data_page_size=100, write_batch_size=7,
                                                                 data_page_version="2.0", compression="zstd"),
    "parquet without dictionaries": lambda table, path: pq.write_table(table, path, use_dictionary=False, compression="gzip"),
    "arrow": write_arrow,
    "arrow with dictionaries, compressed": lambda table, path: write_arrow(coded(table), path, compression="lz4"),
}
DTYPES = {pa.int64(): "int64", pa.float64(): "float64", pa.string(): "string"}


def table_pipeline(step, path, table):
    strings = [name for name in table.column_names if table[name].type == pa.string()]
    columns = {name: DTYPES[table[name].type] for name in table.column_names}
    nodes = [{"name": f"{name}-id", "op": "string_to_hash_bucket_fast", "input": [name], "num_buckets": 100000} for name in strings]
    return {"name": "table", "graph": nodes,
            "dataset": [{"files": {"pattern": path}},
                        {step: {"columns": columns, "defaults": {name: "" if name in strings else -1 for name in columns}}},
                        {"batch": {"batch_size": BATCH}}],
            "staged": {"features": {name: f"{name}-id" if name in strings else name for name in columns}}}


def table_by_peers(table):
    """pyarrow fills in the nulls, TensorFlow hashes."""
    def values(column):
        if column.type == pa.string():
            return tf.strings.to_hash_bucket_fast(column.fill_null("").to_pylist(), 100000).numpy()
        return column.fill_null(-1).to_numpy()
    whole = {name: values(table[name].combine_chunks()) for name in table.column_names}
    return [{name: value[at:at + BATCH] for name, value in whole.items()} for at in range(0, len(table), BATCH)]


def compare_tables(daemon, path):
    table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))
    want, failed = table_by_peers(table), 0
    for name, write in FORMS.items():
        file = os.path.join(daemon.folder, name.replace(" ", "-"))
        write(table, file)
        found = differences(apply(daemon, table_pipeline(name.split()[0], file, table)), want)
        print(f"FAIL {name}: {found[:5]}" if found else f"ok   {name}: {table.num_rows} rows, {table.num_columns} columns")
        failed += bool(found)
    return [len(FORMS) - failed, failed, 0]


# ---- photographs ----

def images_pipeline(pattern):
    nodes = {"pixels": {"op": "decode_jpeg", "input": "bytes", "channels": 3},
             "small": {"op": "resize_bilinear", "input": "pixels", "size": SMALL}}
    return {"name": "images", "graph": [],
            "dataset": [{"files": {"pattern": pattern, "shuffle": False}}, {"read_file": {}},
                        {"map": {"graph": nodes, "output": {"small": "small"}, "num_parallel_calls": 2}},
                        {"batch": {"batch_size": 10}}]}


def images_by_tensorflow(paths):
    def decode(path):
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE"), SMALL)
    return [{"small": batch.numpy()} for batch in tf.data.Dataset.from_tensor_slices(paths).map(decode).batch(10)]


def compare_images(daemon, pattern):
    paths = sorted(glob.glob(pattern))
    found = differences(apply(daemon, images_pipeline(pattern)), images_by_tensorflow(paths))
    print(f"FAIL images: {found[:5]}" if found else f"ok   images: {len(paths)} files")
    return [1 - bool(found), int(bool(found)), 0]


def compare_images_in_tables(daemon, pattern):
    """Photographs in a column of structs, as datasets of Hugging Face have them."""
    paths = sorted(glob.glob(pattern))
    images = [{"bytes": open(path, "rb").read(), "path": os.path.basename(path)} for path in paths]
    table = pa.table({"image": pa.array(images, pa.struct({"bytes": pa.binary(), "path": pa.string()}))})
    want, failed = images_by_tensorflow(paths), 0
    for step, write in (("parquet", lambda path: pq.write_table(table, path, row_group_size=30)), ("arrow", lambda path: write_arrow(table, path))):
        file = os.path.join(daemon.folder, f"images.{step}")
        write(file)
        pipeline = images_pipeline(file)
        pipeline["dataset"][1] = {step: {"columns": {"image/bytes": "string"}}}
        pipeline["dataset"][2]["map"]["graph"]["pixels"]["input"] = "image/bytes"
        found = differences(apply(daemon, pipeline), want)
        print(f"FAIL images in {step}: {found[:5]}" if found else f"ok   images in {step}: {len(paths)} rows")
        failed += bool(found)
    return [2 - failed, failed, 0]


def main():
    folder = os.environ.get("STG_TEST_DATA")
    if not folder:
        print("skipped: STG_TEST_DATA names no folder of real data")
        return SKIPPED
    total = [0, 0, 0]
    with Daemon(sys.argv[1]) as daemon:
        for compare, name in ((compare_criteo, CRITEO), (compare_tables, ROWS), (compare_images, IMAGES),
                              (compare_images_in_tables, IMAGES)):
            path = os.path.abspath(os.path.join(folder, name))
            if not glob.glob(path):
                print(f"skipped: no {path}")
            result = compare(daemon, path) if glob.glob(path) else [0, 0, 1]
            total = [a + b for a, b in zip(total, result)]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
