#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The step arrow, through a daemon, gives the values that pyarrow reads, bit by bit: each type, in the file format and in
the stream format, with each codec, in batches of several sizes, with dictionaries, with nulls in several patterns, and in
structs that are null. So do lists and lists of lists of each type, and maps. And the folders that Hugging Face datasets saves, where that package is.

    peer_arrow.py BUILD
"""
import decimal
import itertools
import json
import os
import random
import shutil
import sys
import tempfile

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.feather
except ImportError as missing:
    print(f"skipped: no {missing.name}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
sys.path[:0] = [os.path.join(HERE, "../system"), os.path.join(BUILD, "client/python")]
from daemon import Daemon  # noqa: E402
import stager  # noqa: E402

N = 3000
SIZE = 3  # of lists
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
WIDER = {"int8": "int32", "uint8": "int16", "int16": "int64", "uint16": "uint64", "int32": "int64", "uint32": "int64"}


def words(rng):
    letters = [f"{rng.integers(50):03}" + "x" * int(rng.integers(0, 40)) for _ in range(N)]
    letters[7], letters[8] = "", "é\0\n" * 500
    return letters


def columns_of(rng):
    """By name: the array of pyarrow, the dtype here, and the default."""
    columns = {}
    for name in INTEGERS:
        info = np.iinfo(name)
        values = rng.integers(info.min, info.max, N, dtype=name, endpoint=True)
        columns[name] = (pa.array(values), name, 7)
        if name in WIDER:
            columns[f"{name}_wider"] = (pa.array(values), WIDER[name], 7)
    floats = rng.standard_normal(N) * 10.0 ** rng.integers(-4, 4, N)
    floats[:4] = [np.nan, np.inf, -np.inf, -0.0]
    for name in ("float16", "float32", "float64"):
        columns[name] = (pa.array(floats.astype(name)), name, 1.5)
    columns["float_wider"] = (pa.array(floats.astype("float32")), "float64", 1.5)
    columns["bool"] = (pa.array(rng.integers(0, 2, N).astype(bool)), "bool", True)
    days = rng.integers(-10000, 40000, N)
    columns["date32"] = (pa.array(days.astype("int32")).cast(pa.date32()), "int32", 2)
    columns["date64"] = (pa.array(days * 86400000, pa.date64()), "int64", 86400000)
    columns["time32"] = (pa.array((days % 5000 + 5000).astype("int32"), pa.time32("ms")), "int64", 1000)
    columns["time64"] = (pa.array(days % 5000, pa.time64("us")), "int64", 1000)
    columns["duration"] = (pa.array(days, pa.duration("s")), "int64", 5)
    for unit in ("s", "ms", "us", "ns"):
        columns[f"time_{unit}"] = (pa.array(days * 86400, pa.timestamp(unit, tz="UTC" if unit == "s" else None)), "int64", 9)
    cents = [decimal.Decimal(int(day) * 31) / 100 for day in days]
    columns["decimal"] = (pa.array(cents, pa.decimal128(18, 2)), "int64", 125)
    columns["decimal_float"] = (pa.array(cents, pa.decimal128(30, 2)), "float64", 1.25)
    texts = words(rng)
    columns["string"] = (pa.array(texts), "string", "a default")
    columns["large"] = (pa.array(texts, pa.large_string()), "string", "")
    columns["binary"] = (pa.array([text.encode() for text in texts], pa.binary()), "string", "-")
    columns["large_binary"] = (pa.array([text.encode() for text in texts], pa.large_binary()), "string", "-")
    columns["fixed"] = (pa.array([f"{i % 300:05}".encode() for i in range(N)], pa.binary(5)), "string", "abcde")
    few = pa.array([texts[i % 5] for i in range(N)])
    columns["few"] = (few.dictionary_encode(), "string", "few")
    columns["few_wide"] = (few.dictionary_encode().cast(pa.dictionary(pa.uint64(), pa.large_string())), "string", "few")
    columns["few_numbers"] = (pa.array(days % 9, pa.int64()).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.int64())), "int64", -1)
    columns["point"] = (pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(N * SIZE).astype("float32")), SIZE), "float32", 0.5)
    columns["bits"] = (pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 2, N * SIZE).astype(bool)), SIZE), "bool", True)
    columns["nothing"] = (pa.nulls(N), "float32", 4.5)
    return columns


NULLS = {
    "none": lambda i, rng: False,
    "some": lambda i, rng: rng.random() < 0.2,
    "most": lambda i, rng: rng.random() < 0.97,
    "runs": lambda i, rng: i // 100 % 3 == 1,
    "all": lambda i, rng: True,
}


def with_nulls(array, pattern, rng):
    return array.take(pa.array([None if pattern(i, rng) else i for i in range(N)], pa.int64()))


def bits(array, dtype):
    return np.ascontiguousarray(array).astype(dtype, copy=False).view(f"u{np.dtype(dtype).itemsize}").tolist()


def numbers(column, dtype, default):
    """The values of an array of pyarrow without lists, with the default for nulls."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return bits([default] * len(column), dtype)
    if pa.types.is_decimal(column.type):
        values = [default if value is None else float(value) if dtype == "float64" else int(value.scaleb(2))
                  for value in column.to_pylist()]
        return bits(np.array(values, dtype), dtype)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    there = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(column.type):
        values = np.array([bool(value) for value in column.to_pylist()])
    else:
        values = np.frombuffer(column.buffers()[1] or b"", column.type.to_pandas_dtype())[column.offset:column.offset + len(column)]
    with np.errstate(over="ignore", invalid="ignore"):
        return bits(np.where(there, values.astype(dtype), np.dtype(dtype).type(default)), dtype)


def expected(column, dtype, default):
    if dtype == "string":
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        default = default.encode()
        return [default if value is None else value if isinstance(value, bytes) else value.encode() for value in column.to_pylist()]
    if not pa.types.is_fixed_size_list(column.type):
        return numbers(column, dtype, default)
    rows = [[None] * SIZE if row is None else row for row in column.to_pylist()]
    return numbers(pa.array(sum(rows, []), column.type.value_type), dtype, default)


def found(batch, name, dtype):
    return [bytes(value) for value in batch[name]] if dtype == "string" else bits(batch[name], dtype).copy()


def flat(values):
    return sum((flat(value) if isinstance(value, list) else [value] for value in values), []) if values and isinstance(values[0], list) else values


def read(path, dtypes, defaults, shapes, **named):
    """All batches of a pass, by column."""
    dataset = stager.arrow(path, dtypes, defaults, shapes, **named).batch(512)
    pipeline = stager.staged(dict(zip(dtypes, (dataset.get_next()[column] for column in dtypes))), name="table",
                             on_timeout="wait", max_batch_bytes="16MiB")
    stager.apply(pipeline, replace=True)
    got = {column: [] for column in dtypes}
    with stager.open("table") as stream:
        for batch in stream:
            for column, dtype in dtypes.items():
                got[column] += flat(found(batch, column, dtype))
    stager.delete("table")
    return got


def write(path, arrays, kind, codec, size, deltas):
    """Batches of `size` rows; as structs where deltas are written, so that their nulls are tested, too."""
    table = pa.table(arrays)
    options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=deltas)
    maker = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with maker(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=size)


def compare(folder, columns, case, rng):
    kind, codec, pattern, size = case
    path = os.path.join(folder, "a.arrow")
    arrays = {name: with_nulls(array, NULLS[pattern], rng) if name != "nothing" else array for name, (array, _, _) in columns.items()}
    inner = {name: arrays[name] for name in ("int32", "string", "point", "few")}
    outer = pa.array([NULLS[pattern](i, rng) for i in range(N)])
    arrays["outer"] = pa.StructArray.from_arrays(list(inner.values()), list(inner), mask=outer)
    write(path, arrays, kind, codec, size, False)
    dtypes = {name: dtype for name, (_, dtype, _) in columns.items()}
    defaults = {name: default for name, (_, _, default) in columns.items()}
    wants = {name: (arrays[name], dtypes[name]) for name in columns}
    for name, array in inner.items():
        shown = array.take(pa.array([None if gone else i for i, gone in enumerate(outer.to_pylist())], pa.int64()))
        wants[f"outer/{name}"] = (shown, dtypes[name])
        dtypes[f"outer/{name}"], defaults[f"outer/{name}"] = dtypes[name], defaults[name]
    shapes = {name: [SIZE] for name in dtypes if name.endswith(("point", "bits"))}
    got = read(path, dtypes, defaults, shapes, shuffle=False)
    wrong = [name for name, (array, dtype) in wants.items() if got[name] != expected(array, dtype, defaults[name])]
    os.remove(path)
    if wrong:
        print(f"FAIL {' '.join(map(str, case))}: {', '.join(wrong)} differ")
    return not wrong


# ---- lists ----

def list_of(values, kind, null, rng):
    """Lists of these values; of some that are null, the values stay in the file."""
    starts = [0]
    while starts[-1] < len(values):
        starts.append(min(starts[-1] + rng.choice([0, 1, 1, 2, 3, 17, 300]), len(values)))
    mask = pa.array([null(i, rng) for i in range(len(starts) - 1)], pa.bool_())
    maker, index = (pa.LargeListArray, pa.int64()) if kind == "large" else (pa.ListArray, pa.int32())
    return maker.from_arrays(pa.array(starts, index), values, mask=mask)


def lists_of(columns, case, rng):
    """Arrays of lists of each type, all with as many rows: [x] or [[x]]."""
    _, _, pattern, _, depth = case
    null, arrays = NULLS["some" if pattern == "all" else pattern], {}
    for name, (array, _, _) in columns.items():
        arrays[name] = with_nulls(array, NULLS[pattern], rng) if name != "nothing" else array
        for _ in range(depth):
            arrays[name] = list_of(arrays[name], rng.choice(["small", "large"]), null, rng)
    n_rows = min(len(array) for array in arrays.values())
    return {name: array.slice(0, n_rows) for name, array in arrays.items()}


def add_part(got, column, part, dtype):
    values, splits = (part.values, part.row_splits) if isinstance(part, stager.Ragged) else part
    got.setdefault(column + "/lengths", []).extend(np.diff(splits).tolist())
    if isinstance(values, stager.Ragged):
        add_part(got, column + "/values", values, dtype)
    else:
        got.setdefault(column + "/values", []).extend(flat(found({"x": values}, "x", dtype)))


def read_lists(path, dtypes, defaults, shapes):
    """By component of ragged batches: all parts of a pass, and row_splits as lengths."""
    dataset = stager.arrow(path, dtypes, defaults, shapes, shuffle=False).ragged_batch(64)
    is_pair = {column: len(shape) > 1 and shape[1] is None for column, shape in shapes.items()}
    stager.apply(stager.staged(dataset, name="lists", on_timeout="wait", max_batch_bytes="16MiB"), replace=True)
    got = {}
    with stager.open("lists") as stream:
        for batch in stream:
            for column, dtype in dtypes.items():
                pair = (batch[f"{column}/values"], batch[f"{column}/row_splits"]) if is_pair[column] else batch[column]
                add_part(got, column, pair, dtype)
    stager.delete("lists")
    return got


def lengths_of(column):
    return [0 if length is None else length for length in pa.compute.list_value_length(column).to_pylist()]


def expected_lists(array, depth, dtype, default):
    want, leaves = {"/lengths": lengths_of(array)}, array.flatten()
    if depth == 2:
        want["/values/lengths"] = lengths_of(leaves)
        leaves = leaves.flatten()
    want["/values" * depth] = expected(leaves, dtype, default)
    return want


def compare_lists(folder, columns, case, rng):
    kind, codec, _, size, depth = case
    path = os.path.join(folder, "lists.arrow")
    arrays = lists_of(columns, case, rng)
    write(path, arrays, kind, codec, size, False)
    dtypes = {name: dtype for name, (_, dtype, _) in columns.items()}
    defaults = {name: default for name, (_, _, default) in columns.items()}
    got = read_lists(path, dtypes, defaults, {name: [None] * depth for name in columns})
    wrong = []
    for name, dtype in dtypes.items():
        want = expected_lists(arrays[name], depth, dtype, defaults[name])
        wrong += [name + part for part, values in want.items() if got.get(name + part) != values]
    if wrong:
        print(f"FAIL lists {' '.join(map(str, case))}: {', '.join(wrong)} differ")
    return not wrong


def compare_maps(folder, rng):
    """Maps, and lists of lists of one size."""
    path = os.path.join(folder, "maps.arrow")
    rows = [None if i % 9 == 4 else [(f"k{i}-{k}", None if k % 5 == 3 else i + k) for k in range(rng.randrange(6))] for i in range(N)]
    sizes = [rng.randrange(4) for _ in range(N)]
    vectors = [[[i, k, 0.5] for k in range(size)] for i, size in enumerate(sizes)]
    write(path, {"m": pa.array(rows, pa.map_(pa.string(), pa.int64())), "v": pa.array(vectors, pa.list_(pa.list_(pa.float32(), SIZE)))},
          "file", None, 700, False)
    dtypes = {"m/key": "string", "m/value": "int64", "v": "float32"}
    got = read_lists(path, dtypes, {"m/key": "", "m/value": -1}, {"m/key": [None], "m/value": [None], "v": [None, SIZE]})
    pairs, lengths = [pair for row in rows for pair in row or []], [len(row or []) for row in rows]
    want = {"m/key/lengths": lengths, "m/key/values": [key.encode() for key, _ in pairs],
            "m/value/lengths": lengths, "m/value/values": bits(np.array([-1 if v is None else v for _, v in pairs]), "int64"),
            "v/lengths": sizes, "v/values": bits(np.array(flat(sum(vectors, []))), "float32")}
    if got != want:
        print(f"FAIL maps: {', '.join(name for name in want if got.get(name) != want[name])} differ")
    return got == want


def grown(folder, rng):
    """Dictionaries that grow by deltas, and those that are replaced, batch by batch; and all rows in a global shuffle."""
    texts = [f"w{i}" for i in range(200)]
    failed = 0
    for deltas, codec in itertools.product((True, False), (None, "zstd")):
        path, rows = os.path.join(folder, "grown.arrow"), []
        schema = pa.schema({"word": pa.dictionary(pa.int16(), pa.string()), "row": pa.int64()})
        with pa.ipc.new_stream(path, schema, options=pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=deltas)) as writer:
            for batch in range(20):
                known = texts[:10 * batch + 10] if deltas else rng.sample(texts, 10)
                part = [rng.randrange(len(known)) for _ in range(50)]
                word = pa.DictionaryArray.from_arrays(pa.array(part, pa.int16()), pa.array(known))
                writer.write_batch(pa.record_batch([word, pa.array(range(len(rows), len(rows) + 50))], schema=schema))
                rows += [known[i].encode() for i in part]
        got = read(path, {"word": "string", "row": "int64"}, None, None, shuffle=False)
        failed += got["word"] != rows
        dataset = stager.arrow(path, {"word": "string", "row": "int64"}, shuffle=False)
        dataset = dataset.shuffle(buffer_size=64, **{"global": True, "seed": 3, "block_size": 7}).batch(100)
        stager.apply(stager.staged({"word": dataset.get_next()["word"], "row": dataset.get_next()["row"]}, name="any",
                                   on_timeout="wait"), replace=True)
        with stager.open("any") as stream:
            pairs = [pair for batch in stream for pair in zip(batch["row"].tolist(), map(bytes, batch["word"]))]
        stager.delete("any")
        failed += sorted(pairs) != list(enumerate(rows)) or pairs == sorted(pairs)
    return failed


def saved_folders(folder):
    """A folder of datasets, in shards, of rows that were shuffled and selected before: files have them in that order."""
    try:
        import datasets
    except ImportError:
        print("skipped: no datasets")
        return 0
    datasets.disable_progress_bars()
    path = os.path.join(folder, "saved")
    rows = {"text": [f"text {i}" for i in range(5000)], "label": [i % 3 for i in range(5000)], "emb": [[i, i / 2] for i in range(5000)]}
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b", "c"]),
                                  "emb": datasets.Sequence(datasets.Value("float32"), length=2)})
    given = datasets.Dataset.from_dict(rows, features=features).shuffle(seed=1).select(range(4000))
    given.save_to_disk(path, num_shards=3)
    for root, _, names in os.walk(path):
        os.chmod(root, 0o755)
        for name in names:
            os.chmod(os.path.join(root, name), 0o644)
    got = read(path, {"text": "string", "label": "int64", "emb": "float32"}, None, {"emb": [2]}, shuffle=False)
    want = {"text": [text.encode() for text in given["text"]], "label": bits(np.array(given["label"]), "int64"),
            "emb": bits(np.array(given["emb"], "float32").reshape(-1), "float32")}
    return int(got != want)


def mapped_rows(folder):
    """The files of a cache of datasets, in the order of an indices mapping that shuffle, select, sort and filter wrote; and a
    folder as save_to_disk of older releases wrote it."""
    try:
        import datasets
    except ImportError:
        return 0
    path, order = os.path.join(folder, "cached"), os.path.join(folder, "order.arrow")
    rows = {"text": [f"text {i}" for i in range(5000)], "label": [i * 7 % 5000 for i in range(5000)]}
    datasets.Dataset.from_dict(rows).save_to_disk(path, num_shards=3)
    whole = datasets.load_from_disk(path)
    files, failed = [part["filename"] for part in whole.cache_files], 0
    for made in (whole.shuffle(seed=3, indices_cache_file_name=order + "1"),
                 whole.sort("label", indices_cache_file_name=order + "2"),
                 whole.select([4, 5, 6, 4999, 4, 0, 1666, 1667, 1668], indices_cache_file_name=order + "3"),
                 whole.filter(lambda row: row["label"] % 3 == 1, cache_file_name=order + "4")):
        for root, _, names in os.walk(folder):
            for name in names:
                os.chmod(os.path.join(root, name), 0o644)
            os.chmod(root, 0o755)
        indices = made._indices.path  # pylint: disable=protected-access
        want = {"text": [text.encode() for text in made["text"]], "label": bits(np.array(made["label"]), "int64")}
        columns = {"text": "string", "label": "int64"}
        failed += read(files, columns, None, None, indices=indices) != want
        with open(os.path.join(path, "state.json"), encoding="utf-8") as file:
            state = json.load(file)
        shutil.copy(indices, os.path.join(path, "indices.arrow"))
        with open(os.path.join(path, "state.json"), "w", encoding="utf-8") as file:
            json.dump({**state, "_indices_data_files": [{"filename": "indices.arrow"}]}, file)
        failed += read(path, columns, None, None) != want
    return failed


def main():
    rng = random.Random(int(os.environ.get("STG_SEED", "7")))
    columns = columns_of(np.random.default_rng(rng.randrange(1 << 30)))
    cases = list(itertools.product(["file", "stream"], [None, "lz4", "zstd"], NULLS, [70, 1000, 100000]))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stg-peer-") as folder, Daemon(BUILD) as daemon:
        os.chmod(folder, 0o755)
        os.environ.update(daemon.env())
        for case in cases:
            failed += not compare(folder, columns, case, rng)
        scalars = {name: column for name, column in columns.items() if name not in ("point", "bits")}
        for case in itertools.product(["file", "stream"], [None, "lz4", "zstd"], NULLS, [20, 100000], [1, 2]):
            cases.append(case)
            failed += not compare_lists(folder, scalars, case, rng)
        failed += (not compare_maps(folder, rng)) + grown(folder, rng) + saved_folders(folder) + mapped_rows(folder)
    print(f"{len(cases) + 4 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
