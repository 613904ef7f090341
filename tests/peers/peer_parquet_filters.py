#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`filters` of the steps parquet and arrow keeps the rows that pyarrow's filters keep: conditions drawn at random, on columns of each
type, with nulls, NaN and -0.0, over files with and without statistics and page indexes, in small row groups and pages.
pyarrow filters the table in memory, so that no statistics have a part in what is expected. Folders are those that
pyarrow.dataset writes.

    peer_parquet_filters.py BUILD
"""
import itertools
import os
import random
import sys
import tempfile

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
except ImportError as missing:
    print(f"skipped: no {missing.name}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
sys.path[:0] = [HERE, os.path.join(HERE, "../system"), os.path.join(BUILD, "client/python")]
from daemon import Daemon  # noqa: E402
import peer_parquet as columns_peer  # noqa: E402
import stager  # noqa: E402

N = columns_peer.N
OPS = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
PATTERNS = ["required", "none", "some", "runs", "all"]


def plain(array):
    """As the step has the values: numbers that are dates, times and decimals are integers."""
    if pa.types.is_decimal(array.type):
        return pa.array([None if value is None else int(value.scaleb(2)) for value in array.to_pylist()], pa.int64())
    if pa.types.is_temporal(array.type):
        return array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    if pa.types.is_float16(array.type):
        return array.cast(pa.float32())
    if pa.types.is_large_binary(array.type) or pa.types.is_fixed_size_binary(array.type) or pa.types.is_string(array.type):
        return array.cast(pa.binary())
    return array


def rising(array, rng):
    """Values in order, so that row groups and pages can be excluded."""
    order = pc.sort_indices(plain(array)) if rng.random() < 0.5 else pa.array(np.arange(len(array)))
    return array.take(order)


def literal(value):
    return value.decode("utf-8") if isinstance(value, bytes) else value


def usable(values, kind):
    """Of which literals can be written: text, and integers of 64 bits with a sign."""
    ret = []
    for value in values:
        try:
            literal(value)
        except UnicodeDecodeError:
            continue
        if not (isinstance(value, int) and value > 2 ** 63 - 1) and value != b"" and b"\0" not in (value if kind == "string" else b""):
            ret.append(value)
    return ret


def draw_condition(table, dtypes, rng):
    """A condition, and the expression of pyarrow."""
    name = rng.choice(list(dtypes))
    column = table.column(name).combine_chunks()
    values = usable([value for value in column.to_pylist() if value is not None], dtypes[name])
    op = rng.choice([*OPS, "in", "not in", "is null", "is not null"])
    field = pc.field(name)
    if op in ("is null", "is not null") or not values:
        op = op if op.startswith("is") else "is null"
        return [name, op], field.is_null() if op == "is null" else field.is_valid()
    if op in OPS:
        value = rng.choice(values)
        if op in ("=", "!=") and isinstance(value, float) and value == 0:
            value = 0.0
        return [name, op, literal(value)], OPS[op](field, pa.scalar(value, column.type))
    chosen = [rng.choice(values) for _ in range(rng.choice([1, 2, 5, 40]))]
    chosen = [value for value in chosen if value != 0 or not isinstance(value, float)] or [values[-1]]
    chosen += [None] if rng.random() < 0.3 else []
    found = field.isin(pa.array(chosen, column.type))
    return [name, op, [None if value is None else literal(value) for value in chosen]], found if op == "in" else ~found


def draw_filters(table, dtypes, rng):
    lists = [[draw_condition(table, dtypes, rng) for _ in range(rng.choice([1, 1, 2, 3]))] for _ in range(rng.choice([1, 1, 2]))]
    expression = None
    for one in lists:
        all_of = None
        for _, part in one:
            all_of = part if all_of is None else all_of & part
        expression = all_of if expression is None else expression | all_of
    return [[condition for condition, _ in one] for one in lists], expression


def read(path, columns, filters, defaults=None, batch=97, used=None, reader=stager.parquet):
    """The rows of a pass, by column: of those that are used."""
    dataset = reader(path, columns, defaults, filters=filters, shuffle=False).batch(batch)
    element = dataset.get_next()
    used = list(columns) if used is None else used
    stager.apply(stager.staged({name: element[name] for name in used}, name="filtered", on_timeout="wait",
                               max_batch_bytes="16MiB"), replace=True)
    got = {name: [] for name in used}
    with stager.open("filtered") as stream:
        for one in stream:
            for name in used:
                got[name] += one[name].tolist()
    stager.delete("filtered")
    return got


def write(path, columns, pattern, case, rng):
    codec, version, statistics, index = case
    arrays = {"row": pa.array(np.arange(N))}
    for name, (array, _, _, _) in columns.items():
        arrays[name] = columns_peer.with_nulls(rising(array, rng), columns_peer.NULLS[pattern], rng)
    schema = pa.schema([pa.field(name, array.type, nullable=pattern != "required") for name, array in arrays.items()])
    pq.write_table(pa.table(arrays, schema=schema), path, compression=codec, data_page_version=version,
                   write_statistics=statistics, write_page_index=index and statistics, row_group_size=rng.choice([100, 700, 10000]),
                   data_page_size=rng.choice([300, 3000, 1 << 20]), write_batch_size=rng.choice([10, 100]),
                   store_decimal_as_integer=rng.random() < 0.8, use_dictionary=rng.random() < 0.5)
    return pa.table({name: plain(array) for name, array in arrays.items()})


def write_arrow(path, columns, pattern, rng):
    """Batches of a few rows, some of whose strings have dictionaries."""
    arrays = {"row": pa.array(np.arange(N))}
    for name, (array, _, _, _) in columns.items():
        arrays[name] = columns_peer.with_nulls(rising(array, rng), columns_peer.NULLS[pattern], rng)
    codes = {name: array.dictionary_encode() if pa.types.is_string(array.type) and rng.random() < 0.5 else array
             for name, array in arrays.items()}
    table = pa.table(codes)
    maker = rng.choice([pa.ipc.new_file, pa.ipc.new_stream])
    options = pa.ipc.IpcWriteOptions(compression=rng.choice([None, "lz4", "zstd"]), unify_dictionaries=True)
    with maker(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rng.choice([100, 700, 10000]))
    return pa.table({name: plain(array) for name, array in arrays.items()})


def compare(folder, columns, pattern, case, n, rng):
    is_arrow = case == "arrow"
    path = os.path.join(folder, "table")
    table = write_arrow(path, columns, pattern, rng) if is_arrow else write(path, columns, pattern, case, rng)
    dtypes = {name: dtype for name, (_, dtype, _, _) in columns.items()}
    dtypes = {name: dtype for name, dtype in dtypes.items() if not name.startswith("decimal")}
    dtypes["row"] = "int64"
    failed = 0
    for _ in range(n):
        filters, expression = draw_filters(table, dtypes, rng)
        want = table.filter(expression).column("row").to_pylist()
        got = read(path, {"row": "int64"}, filters, reader=stager.arrow if is_arrow else stager.parquet)["row"]
        if got != want:
            print(f"FAIL {pattern} {case}: {filters}: {len(got)} rows, not {len(want)}")
            failed += 1
    os.remove(path)
    return failed


def compare_unused(folder, columns, pattern, n, rng):
    """Features are some of the declared columns. The others have nulls, or are missing; filters may be of any."""
    path = os.path.join(folder, "table.parquet")
    table = write(path, columns, pattern, ("snappy", "2.0", True, True), rng)
    dtypes = {name: dtype for name, (_, dtype, _, _) in columns.items() if not name.startswith("decimal")}
    failed = 0
    for _ in range(n):
        declared = {**dtypes, "row": "int64", "missing": "float32"}
        declared = {name: declared[name] for name in rng.sample(list(declared), len(declared))}
        of_filter = rng.choice([name for name in dtypes if dtypes[name] != "bool"])
        used = [name for name in declared if name == "row" or (pattern in ("required", "none") and rng.random() < 0.2 and name in dtypes)]
        filters, kept = None, table
        if rng.random() < 0.5:
            filters, kept = [[of_filter, "is not null"]], table.filter(pc.field(of_filter).is_valid())
        got = read(path, declared, filters, used=used)
        for name in used:
            want = kept.column(name).to_numpy(zero_copy_only=False)
            if not np.array_equal(np.asarray(got[name], want.dtype), want, equal_nan=want.dtype.kind == "f"):
                print(f"FAIL {pattern}: {used} of {list(declared)}, {filters}: {name}")
                failed += 1
    os.remove(path)
    return failed


def compare_folders(folder, kind, reader):
    """A data set in folders: values with what is escaped, and a null. kind: pyarrow's name of the format."""
    words = ["a", "b c", "d/e=f%", "ü", None]
    table = pa.table({"row": pa.array(np.arange(N)), "site": pa.array([words[i * 7 % 5] for i in range(N)]),
                      "day": pa.array([None if i % 11 == 3 else i % 4 for i in range(N)], pa.int32()),
                      "price": pa.array(np.arange(N) * 0.5)})
    root = os.path.join(folder, "hive-" + kind)
    parts = ds.partitioning(pa.schema([("site", pa.string()), ("day", pa.int32())]), flavor="hive")
    ds.write_dataset(table, root, format=kind, partitioning=parts)
    failed = 0
    cases = [[], [["site", "=", "d/e=f%"]], [["site", "is null"]], [["site", "!=", "a"], ["day", ">", 1]],
             [["day", "not in", [2]], ["price", "<", 400.0]],
             [[["site", "in", ["ü", "b c"]], ["price", ">=", 30.0]], [["day", "is null"], ["price", "<", 300.0]]]]
    for filters in cases:
        lists = filters if filters and isinstance(filters[0][0], list) else [filters]
        expression = None
        for one in lists:
            for condition in one:
                field, op = pc.field(condition[0]), condition[1]
                part = (field.is_null() if op == "is null" else field.isin(condition[2]) if op == "in" else
                        ~field.isin(condition[2]) if op == "not in" else OPS[op](field, condition[2]))
                all_of = part if condition is one[0] else all_of & part
            if one:
                expression = all_of if expression is None else expression | all_of
        kept = table.filter(expression) if expression is not None else table
        want = sorted(zip(kept.column("row").to_pylist(), [(w or "none").encode() for w in kept.column("site").to_pylist()],
                          [-1 if d is None else d for d in kept.column("day").to_pylist()]))
        got = read(os.path.join(root, "*/*/*." + kind), {"row": "int64", "site": "string", "day": "int32"}, filters or None,
                   {"site": "none", "day": -1}, reader=reader)
        if sorted(zip(got["row"], got["site"], got["day"])) != want:
            print(f"FAIL folders of {kind} {filters}: {len(got['row'])} rows, not {len(want)}")
            failed += 1
    return len(cases), failed


def main():
    rng = random.Random(int(os.environ.get("STG_SEED", "7")))
    per_file = int(os.environ.get("STG_FILTERS", "6"))
    columns = columns_peer.columns_of(np.random.default_rng(rng.randrange(1 << 30)))
    cases = list(itertools.product(["none", "snappy"], ["1.0", "2.0"], [True, False], [True, False]))
    total = failed = 0
    with tempfile.TemporaryDirectory(prefix="stg-peer-") as folder, Daemon(BUILD) as daemon:
        os.chmod(folder, 0o755)
        os.environ.update(daemon.env())
        for pattern, case in itertools.product(PATTERNS, [*cases, *["arrow"] * 4]):
            total += per_file
            failed += compare(folder, columns, pattern, case, per_file, rng)
        for pattern in PATTERNS:
            total += per_file
            failed += compare_unused(folder, columns, pattern, per_file, rng)
        for kind, reader in (("parquet", stager.parquet), ("arrow", stager.arrow)):
            n, wrong = compare_folders(folder, kind, reader)
            total += n
            failed += wrong
    print(f"{total - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
