#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The step parquet, through a daemon, gives the values that pyarrow reads, bit by bit: each type, in each encoding that
pyarrow writes for it, with each codec and version of pages, and with nulls in several patterns. So do lists and lists of
lists of each type, in pages of several sizes, and maps.

    peer_parquet.py BUILD
"""
import datetime
import decimal
import itertools
import os
import random
import sys
import tempfile

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute  # pylint: disable=unused-import
    import pyarrow.parquet as pq
except ImportError as missing:
    print(f"skipped: no {missing.name}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
sys.path[:0] = [os.path.join(HERE, "../system"), os.path.join(BUILD, "client/python")]
from daemon import Daemon  # noqa: E402
import stager  # noqa: E402

N = 3000
EPOCH = datetime.datetime(1970, 1, 1)
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def integers(rng, name):
    """Numbers of all sizes, and runs of steps."""
    info = np.iinfo(name)
    at = rng.integers(0, 3, N)
    wide = rng.integers(info.min, info.max, N, dtype=name, endpoint=True)
    steps = (np.arange(N) % 100).astype(name)
    return np.where(at == 0, wide, np.where(at == 1, steps, np.full(N, info.max, name)))


def words(rng):
    letters = [f"{rng.integers(50):03}" + "x" * int(rng.integers(0, 40)) for _ in range(N)]
    letters[7], letters[8] = "", "é\0\n" * 500
    return letters


def columns_of(rng):
    """By name: the array of pyarrow, the dtype here, and the default there and here."""
    columns = {name: (pa.array(integers(rng, name)), name, 7, 7) for name in INTEGERS}
    floats = rng.standard_normal(N) * 10.0 ** rng.integers(-4, 4, N)
    floats[:4] = [np.nan, np.inf, -np.inf, -0.0]
    for name, kind in (("float16", "float16"), ("float32", "float32"), ("float64", "float64")):
        columns[name] = (pa.array(floats.astype(kind)), kind, np.dtype(kind).type(1.5), 1.5)
    columns["bool"] = (pa.array(rng.integers(0, 2, N).astype(bool)), "bool", True, True)
    columns["runs"] = (pa.array(np.arange(N) % 700 < 400), "bool", False, False)
    days = rng.integers(-10000, 40000, N).astype("int32")
    columns["date"] = (pa.array(days).cast(pa.date32()), "int32", datetime.date(1970, 1, 3), 2)
    columns["time32"] = (pa.array(days % 5000 + 5000, pa.time32("ms")), "int32", datetime.time(0, 0, 1), 1000)
    columns["time64"] = (pa.array((days % 5000).astype("int64"), pa.time64("us")), "int64", datetime.time(0, 0, 1), 1000000)
    for unit, factor in (("ms", 1000), ("us", 10 ** 6), ("ns", 10 ** 9)):
        columns[f"time_{unit}"] = (pa.array(days.astype("int64") * 86400 * factor + 5, pa.timestamp(unit)), "int64",
                                   EPOCH + datetime.timedelta(seconds=1), factor)
    for digits in (9, 18):
        cents = [decimal.Decimal(int(day) * 31) / 100 for day in days]
        columns[f"decimal_{digits}"] = (pa.array(cents, pa.decimal128(digits, 2)), "int64", decimal.Decimal("1.25"), 125)
    texts = words(rng)
    columns["string"] = (pa.array(texts), "string", "a default", b"a default")
    columns["few"] = (pa.array([texts[i % 5] for i in range(N)]), "string", "", b"")
    columns["binary"] = (pa.array([text.encode() for text in texts], pa.large_binary()), "string", b"\0\1", b"\0\1")
    columns["fixed"] = (pa.array([f"{i % 300:05}".encode() for i in range(N)], pa.binary(5)), "string", b"abcde", b"abcde")
    return columns


NULLS = {
    "required": None,
    "none": lambda i, rng: False,
    "some": lambda i, rng: rng.random() < 0.2,
    "most": lambda i, rng: rng.random() < 0.97,
    "runs": lambda i, rng: i // 100 % 3 == 1,
    "all": lambda i, rng: True,
}
SPLIT = ("int32", "int64", "float", "time", "date", "fixed", "decimal", "uint32", "uint64")
ENCODINGS = {
    "plain": lambda name: "PLAIN",
    "dictionary": lambda name: None,
    "delta": lambda name: "DELTA_BINARY_PACKED" if "int" in name or name.startswith(("date", "time", "decimal"))
    else "DELTA_BYTE_ARRAY" if name in ("string", "few", "fixed", "float16") else "DELTA_LENGTH_BYTE_ARRAY" if name == "binary"
    else "RLE" if name in ("bool", "runs") else "PLAIN",
    "split": lambda name: "BYTE_STREAM_SPLIT" if name.startswith(SPLIT) else "PLAIN",
}
CODECS = ["none", "snappy", "gzip", "zstd", "lz4"]


def with_nulls(array, pattern, rng):
    if pattern is None:
        return array
    return array.take(pa.array([None if pattern(i, rng) else i for i in range(N)], pa.int64()))


def write(path, columns, pattern, encoding, codec, version, rng):
    """Returns the table, as pyarrow reads it."""
    arrays = {name: with_nulls(array, NULLS[pattern], rng) for name, (array, _, _, _) in columns.items()}
    schema = pa.schema([pa.field(name, array.type, nullable=pattern != "required") for name, array in arrays.items()])
    int96 = rng.random() < 0.3
    encodings = {name: "PLAIN" if int96 and name.startswith("time_") else ENCODINGS[encoding](name) for name in columns}
    options = {"use_dictionary": True} if encoding == "dictionary" else {
        "use_dictionary": False, "column_encoding": encodings}
    pq.write_table(pa.table(arrays, schema=schema), path, compression=codec, data_page_version=version,
                   row_group_size=rng.choice([700, 10000]), data_page_size=rng.choice([500, 20000, 1 << 20]),
                   dictionary_pagesize_limit=rng.choice([300, 1 << 20]), write_batch_size=rng.choice([10, 1024]),
                   write_page_checksum=rng.random() < 0.5, store_decimal_as_integer=True,
                   use_deprecated_int96_timestamps=int96, **options)
    return pq.ParquetFile(path).read()


def bits(array, dtype):
    return np.ascontiguousarray(array).astype(dtype, copy=False).view(f"u{np.dtype(dtype).itemsize}").tolist()


def expected(column, dtype, default):
    """The values of a column of pyarrow, with the default for nulls, as this side has them."""
    n = len(column)
    column = pa.concat_arrays([*column.chunks, pa.array([default], column.type)])
    column = column.take(pa.array([i if there else n for i, there in enumerate(column.is_valid().to_pylist()[:n])], pa.int64()))
    if dtype == "string":
        return [value if isinstance(value, bytes) else value.encode() for value in column.to_pylist()]
    if pa.types.is_decimal(column.type):
        return [int(value.scaleb(2)) % 2 ** 64 for value in column.to_pylist()]
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return bits(column.to_numpy(zero_copy_only=False), dtype)


def found(batches, name, dtype):
    values = []
    for batch in batches:
        part = batch[name]
        values += [bytes(value) for value in part] if dtype == "string" else bits(part, dtype)
    return values


def read(name, path, dtypes, defaults):
    """All batches of a pass, by column."""
    dataset = stager.parquet(path, dtypes, defaults, shuffle=False).batch(512)
    pipeline = stager.staged(dict(zip(dtypes, (dataset.get_next()[column] for column in dtypes))), name=name,
                             on_timeout="wait", max_batch_bytes="16MiB")
    stager.apply(pipeline, replace=True)
    got = {column: [] for column in dtypes}
    with stager.open(name) as stream:
        for batch in stream:
            for column, dtype in dtypes.items():
                got[column] += found([batch], column, dtype)
    stager.delete(name)
    return got


def compare(folder, columns, case, rng):
    codec, version, pattern, encoding = case
    path = os.path.join(folder, "-".join(case) + ".parquet")
    table = write(path, columns, pattern, encoding, codec, version, rng)
    dtypes = {name: dtype for name, (_, dtype, _, _) in columns.items()}
    defaults = {name: here.decode() if isinstance(here, bytes) else here for name, (_, _, _, here) in columns.items()}
    got = read("table", path, dtypes, defaults)
    wrong = []
    for name, (array, dtype, there, _) in columns.items():
        column = table.column(name)
        if column.type != array.type and pa.types.is_timestamp(array.type):
            there = EPOCH + datetime.timedelta(microseconds=columns[name][3] / 1000)
        if got[name] != expected(column, dtype, there):
            wrong.append(name)
    os.remove(path)
    if wrong:
        print(f"FAIL {' '.join(case)}: {', '.join(wrong)} differ")
    return not wrong


# ---- lists ----

def offsets_of(n_values, null, rng):
    """Where lists begin that have n_values together; None for those that are null."""
    starts, at = [], 0
    while at < n_values:
        starts.append(at)
        at += min(rng.choice([0, 1, 1, 2, 3, 17, 300]), n_values - at)
    starts.append(n_values)
    return pa.array([None if null is not None and i < len(starts) - 1 and null(i, rng) else start
                     for i, start in enumerate(starts)], pa.int32())


def list_of(values, pattern, rng):
    return pa.ListArray.from_arrays(offsets_of(len(values), NULLS[pattern] if pattern != "all" else NULLS["some"], rng), values)


def write_lists(path, columns, case, rng):
    """The names and arrays of a file of lists: x, [x] and [[x]] of each type, all with as many rows."""
    codec, version, pattern, encoding, page, depth = case
    arrays = {}
    for name, (array, _, _, _) in columns.items():
        lists = list_of(with_nulls(array, NULLS[pattern], rng), pattern, rng)
        arrays[name] = list_of(lists, pattern, rng) if depth == 2 else lists
    n_rows = min(len(array) for array in arrays.values())
    arrays = {name: array.slice(0, n_rows) for name, array in arrays.items()}
    leaf = ".list.element" * depth
    options = {"use_dictionary": True} if encoding == "dictionary" else {
        "use_dictionary": False, "column_encoding": {name + leaf: ENCODINGS[encoding](name) for name in columns}}
    pq.write_table(pa.table(arrays), path, compression=codec, data_page_version=version, data_page_size=page,
                   row_group_size=rng.choice([50, 10000]), write_batch_size=rng.choice([1, 7, 1024]),
                   dictionary_pagesize_limit=rng.choice([300, 1 << 20]), write_page_checksum=rng.random() < 0.5,
                   store_decimal_as_integer=True, **options)
    return pq.ParquetFile(path).read()


def lengths_of(column):
    return [0 if length is None else length for length in pa.compute.list_value_length(column).to_pylist()]


def read_lists(name, path, dtypes, defaults, shapes, shards):
    """By component of ragged batches: all parts of a pass over the first shard, and row_splits as lengths."""
    dataset = stager.parquet(path, dtypes, defaults, shapes, shuffle=False)
    dataset = (dataset.shard(shards, 0) if shards > 1 else dataset).ragged_batch(64)
    stager.apply(stager.staged(dataset, name=name, on_timeout="wait", max_batch_bytes="16MiB"), replace=True)
    got = {}
    with stager.open(name) as stream:
        for batch in stream:
            for column, dtype in dtypes.items():
                deep = len(shapes[column]) > 1
                add_part(got, column, (batch[f"{column}/values"], batch[f"{column}/row_splits"]) if deep else batch[column], dtype)
    stager.delete(name)
    return got


def add_part(got, column, part, dtype):
    values, splits = (part.values, part.row_splits) if isinstance(part, stager.Ragged) else part
    got.setdefault(column + "/lengths", []).extend(np.diff(splits).tolist())
    if isinstance(values, stager.Ragged):
        add_part(got, column + "/values", values, dtype)
    else:
        got.setdefault(column + "/values", []).extend(found([{"x": values}], "x", dtype))


def expected_lists(column, depth, dtype, default):
    array = column.combine_chunks()
    lengths, leaves = {"/lengths": lengths_of(array)}, array.flatten()
    if depth == 2:
        lengths["/values/lengths"] = lengths_of(leaves)
        leaves = leaves.flatten()
    lengths["/values" * depth] = expected(pa.chunked_array([leaves]), dtype, default)
    return lengths


def compare_lists(folder, columns, case, rng):
    depth = case[-1]
    label = " ".join(map(str, case))
    path = os.path.join(folder, "lists.parquet")
    table = write_lists(path, columns, case, rng)
    dtypes = {name: dtype for name, (_, dtype, _, _) in columns.items()}
    defaults = {name: here.decode() if isinstance(here, bytes) else here for name, (_, _, _, here) in columns.items()}
    shards = rng.choice([1, 1, 2, 5])
    table = table.take(pa.array(range(0, table.num_rows, shards), pa.int64()))
    got = read_lists("lists", path, dtypes, defaults, {name: [None] * depth for name in columns}, shards)
    wrong = []
    for name, (_, dtype, there, _) in columns.items():
        want = expected_lists(table.column(name), depth, dtype, there)
        wrong += [name + part for part, values in want.items() if got.get(name + part) != values]
    if wrong:
        print(f"FAIL {label}: {', '.join(wrong)} differ")
    return not wrong


def compare_maps(folder, version, rng):
    path = os.path.join(folder, "maps.parquet")
    rows = [None if i % 9 == 4 else [(f"k{i}-{k}", None if k % 5 == 3 else i + k) for k in range(rng.randrange(6))] for i in range(N)]
    pq.write_table(pa.table({"m": pa.array(rows, pa.map_(pa.string(), pa.int64()))}), path, data_page_version=version,
                   data_page_size=200, write_batch_size=3)
    dtypes = {"m/key": "string", "m/value": "int64"}
    dataset = stager.parquet(path, dtypes, {"m/key": "", "m/value": -1}, {name: [None] for name in dtypes}, shuffle=False)
    batch = dataset.ragged_batch(64).get_next()
    stager.apply(stager.staged({"k": batch["m/key"], "v": batch["m/value"]}, name="maps", max_batch_bytes="16MiB"), replace=True)
    got = {}
    with stager.open("maps") as stream:
        for batch in stream:
            add_part(got, "k", batch["k"], "string")
            add_part(got, "v", batch["v"], "int64")
    stager.delete("maps")
    pairs = [pair for row in rows for pair in row or []]
    want = {"k/lengths": [len(row or []) for row in rows], "k/values": [key.encode() for key, _ in pairs],
            "v/lengths": [len(row or []) for row in rows], "v/values": bits(np.array([-1 if v is None else v for _, v in pairs]), "int64")}
    if got != want:
        print(f"FAIL maps {version}: they differ")
    return got == want


def list_cases():
    every = itertools.product(["none", "snappy"], ["1.0", "2.0"], NULLS, ENCODINGS, [100, 3000, 1 << 20], [1, 2])
    return [case for i, case in enumerate(every) if case[0] == "none" or i % 3 == 0]


def main():
    rng = random.Random(int(os.environ.get("STG_SEED", "7")))
    columns = columns_of(np.random.default_rng(rng.randrange(1 << 30)))
    cases = list(itertools.product(CODECS, ["1.0", "2.0"], NULLS, ENCODINGS))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stg-peer-") as folder, Daemon(BUILD) as daemon:
        os.chmod(folder, 0o755)
        os.environ.update(daemon.env())
        for case in cases:
            failed += not compare(folder, columns, case, rng)
        for case in list_cases():
            cases.append(case)
            failed += not compare_lists(folder, columns, case, rng)
        for version in ("1.0", "2.0"):
            cases.append(version)
            failed += not compare_maps(folder, version, rng)
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
