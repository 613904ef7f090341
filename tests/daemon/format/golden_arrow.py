#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_arrow.h: small files written by pyarrow, and the rows that pyarrow has of each. Usage:
golden_arrow.py > golden_arrow.h, with pyarrow installed."""
import datetime
import decimal
import io

import pyarrow as pa

N = 23


def saved(batches, kind="file", **options):
    """Batches of one schema, in the file format or the stream format."""
    file = io.BytesIO()
    maker = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with maker(file, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return file.getvalue()


def array(name, data):
    print(f"static const unsigned char {name}[{len(data)}] = {{")
    for i in range(0, len(data), 40):
        print("    " + "".join(f"{b}," for b in data[i:i + 40]))
    print("};\n")


def text_of(value, default):
    if value is None:
        value = default
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return "[" + " ".join(text_of(item, default) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


class Bad(Exception):
    """The row cannot be had."""


def fill(shape, default):
    """What stands for a null."""
    return default if not shape else [fill(shape[1:], default)] * (shape[0] or 0)


def resolve(value, shape, default):
    if value is None:
        if default is None:
            raise Bad
        return fill(shape, default)
    if not shape:
        return value
    if shape[0] not in (None, len(value)):
        raise Bad
    return [resolve(item, shape[1:], default) for item in value]


def cell_of(value, shape, default):
    """The components of a value; two of lists of lists that vary in length."""
    value = resolve(value, shape, default)
    if len(shape) == 2 and shape[1] is None:
        ends = [sum(len(item) for item in value[:k]) for k in range(len(value) + 1)]
        return f"{text_of(sum(value, []), None)} {text_of(ends, None)}"
    return text_of(value, None)


def rows_of(columns, defaults, shapes):
    """The lines that a test expects: a row that lacks a value without a default is an error."""
    lines = []
    for row in zip(*columns.values()):
        try:
            lines.append(" ".join(cell_of(value, shapes.get(name, []), defaults.get(name)) for name, value in zip(columns, row)))
        except Bad:
            lines.append("!INVALID_ARGUMENT")
    return "".join(line + "\\n" for line in lines)


FILES = []


def golden(name, data, dtypes, columns, defaults=None, shapes=None):
    """columns: the values that a reader gets, None for a null."""
    defaults, shapes = defaults or {}, shapes or {}
    array(f"arrow_{name}", data)
    text = f"columns: {{{', '.join(f'{key}: {dtype}' for key, dtype in dtypes.items())}}}"
    if shapes:
        texts = [f"{key}: [{', '.join('null' if n is None else str(n) for n in shape)}]" for key, shape in shapes.items()]
        text += f", shapes: {{{', '.join(texts)}}}"
    if defaults:
        text += f", defaults: {{{', '.join(f'{key}: {text_of(value, None)}' for key, value in defaults.items())}}}"
    FILES.append((name, text, rows_of(columns, defaults, shapes)))


print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by golden_arrow.py: do not edit.
 */
#include <stddef.h>

/* clang-format off */
""")

IDS = [(i * 7919) % 1000 - 300 for i in range(N)]
PRICES = [i / 4 - 2 for i in range(N)]
NAMES = [f"name-{i % 5}-{'x' * (i % 7)}" for i in range(N)]
FLAGS = [i % 3 == 0 for i in range(N)]
SCHEMA = pa.schema({"id": pa.int64(), "price": pa.float32(), "name": pa.string(), "flag": pa.bool_()})
TABLE = {"id": IDS, "price": PRICES, "name": NAMES, "flag": FLAGS}
DTYPES = {"id": "int64", "price": "float32", "name": "string", "flag": "bool"}
FILL = {"id": -1, "price": 0.5, "name": "none", "flag": True}


def with_nulls(values, every):
    return [None if i % every == 1 else value for i, value in enumerate(values)]


def split(columns, schema, *sizes):
    """Batches of so many rows each."""
    table, at, batches = pa.table(columns, schema=schema).combine_chunks(), 0, []
    for size in sizes:
        batches += table.slice(at, size).to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]
        at += size
    return batches


SPARSE = {"id": with_nulls(IDS, 4), "price": with_nulls(PRICES, 5), "name": with_nulls(NAMES, 3), "flag": with_nulls(FLAGS, 7)}
THREE = split(TABLE, SCHEMA, 10, 0, 9, 4)
HOLES = split(SPARSE, SCHEMA, 9, 9, 5)

golden("plain", saved(THREE), DTYPES, TABLE)
golden("stream", saved(THREE, "stream"), DTYPES, TABLE)
golden("old", saved(THREE, "stream", use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4), DTYPES, TABLE)
golden("nulls", saved(HOLES), DTYPES, SPARSE, FILL)
golden("bad_rows", saved(HOLES, "stream"), DTYPES, SPARSE, {"id": 0, "flag": False})
golden("lz4", saved(HOLES, compression="lz4"), DTYPES, SPARSE, FILL)
golden("zstd", saved(HOLES, "stream", compression="zstd"), DTYPES, SPARSE, FILL)

DAYS = [i * 100 - 50 for i in range(N)]
EPOCH = datetime.datetime(1970, 1, 1)
MOMENTS = [EPOCH + datetime.timedelta(days=i * 50 - 300, microseconds=i) for i in range(N)]
MICROS = [(moment - EPOCH) // datetime.timedelta(microseconds=1) for moment in MOMENTS]
CENTS = [decimal.Decimal(i * 31 - 99) / 100 for i in range(N)]
HUGE = [decimal.Decimal(10 ** 19 + i) if i % 6 == 5 else decimal.Decimal(i) for i in range(N)]
KINDS = {"day": pa.array(DAYS, pa.int32()).cast(pa.date32()),
         "moment": pa.array(MOMENTS, pa.timestamp("us")),
         "cents": pa.array(CENTS, pa.decimal128(9, 2)),
         "huge": pa.array(HUGE, pa.decimal128(20, 0)),
         "small": pa.array([i - 10 for i in range(N)], pa.int8()),
         "byte": pa.array([i * 11 for i in range(N)], pa.uint8()),
         "half": pa.array(PRICES).cast(pa.float32()).cast(pa.float16()),
         "code": pa.array([bytes([65 + i, 66, 67]) for i in range(N)], pa.binary(3)),
         "view": pa.array(NAMES, pa.string_view()),
         "large": pa.array(NAMES, pa.large_string()),
         "none": pa.nulls(N),
         "user": pa.array([None if i % 8 == 3 else {"id": None if i % 8 == 4 else i, "tag": {"word": f"w{i}"}}
                           for i in range(N)]),
         "ids": pa.array([list(range(i % 4)) for i in range(N)]),
         "point": pa.array([None if i % 7 == 2 else [i, None if i % 7 == 4 else i * 2] for i in range(N)], pa.list_(pa.float32(), 2))}
golden("types", saved(pa.table(KINDS).to_batches()),
       {"day": "int32", "moment": "int64", "cents": "int64", "huge": "int64", "small": "int32", "byte": "int32",
        "code": "string", "large": "string", "none": "int32", "user/id": "int64", "user/tag/word": "string", "point": "float32"},
       {"day": DAYS, "moment": MICROS, "cents": [int(cents * 100) for cents in CENTS],
        "huge": [None if value > 2 ** 63 else int(value) for value in HUGE], "small": [i - 10 for i in range(N)],
        "byte": [i * 11 for i in range(N)], "code": [f"{chr(65 + i)}BC" for i in range(N)], "large": NAMES, "none": [None] * N,
        "user/id": [None if i % 8 in (3, 4) else i for i in range(N)],
        "user/tag/word": [None if i % 8 == 3 else f"w{i}" for i in range(N)],
        "point": [None if i % 7 == 2 else [float(i), None if i % 7 == 4 else i * 2.0] for i in range(N)]},
       {"none": 3, "user/id": -5, "user/tag/word": "gone", "point": 0.5}, {"point": [2]})

WORDS = ["zero", "one", None, "three", "four"]


def coded(values, words, index=pa.int8()):
    """A batch with a dictionary of these words."""
    places = [None if value is None else words.index(value) for value in values]
    return pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(pa.array(places, index), pa.array(words, pa.string())),
                                       pa.DictionaryArray.from_arrays(pa.array([i % 3 for i in range(len(values))], pa.uint16()),
                                                                      pa.array([10, 20, 30], pa.int32()))], ["word", "number"])


CODED = [["zero", "one", None, "one"], ["two", "zero", "two"], ["three", None, "zero", "two", "one"]]
ALL = sum(CODED, [])
NUMBERS = sum(([[10, 20, 30][i % 3] for i in range(len(part))] for part in CODED), [])
CODES = {"word": ALL, "number": NUMBERS}
CODE_TYPES = {"word": "string", "number": "int32"}
SAME = [coded(part, ["zero", "one", "two", "three"]) for part in CODED]
MORE = [coded(part, ["zero", "one", "two", "three"][:n]) for part, n in zip(CODED, (2, 3, 4))]
OTHER = [coded(part, words) for part, words in zip(CODED, (["zero", "one"], ["two", "zero"], ["one", "two", "three", "zero"]))]
golden("dictionary", saved(SAME), CODE_TYPES, CODES, {"word": "none"})
golden("deltas", saved(MORE, "stream", emit_dictionary_deltas=True), CODE_TYPES, CODES, {"word": "none"})
golden("file_deltas", saved(MORE, "file", emit_dictionary_deltas=True, compression="zstd"), CODE_TYPES, CODES)
golden("replaced", saved(OTHER, "stream"), CODE_TYPES, CODES, {"word": "none"})
EMPTY = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
golden("no_words", saved([pa.RecordBatch.from_arrays([EMPTY], ["word"])]), {"word": "string"}, {"word": [None, None]}, {"word": "none"})

LISTS = {"ids": [None if i % 6 == 5 else [i * 10 + k for k in range(i % 4)] for i in range(N)],
         "words": [[f"w{i}-{k}" if (i + k) % 5 else None for k in range((i * 3) % 4)] for i in range(N)],
         "deep": [None if i % 9 == 8 else [None if (i + k) % 7 == 6 else [i + j for j in range((i + k) % 3)] for k in range(i % 3)]
                  for i in range(N)],
         "point": [None if i % 7 == 2 else [float(i), None if i % 7 == 4 else i * 2.0] for i in range(N)],
         "grid": [None if i % 8 == 1 else [[i, i + 1], None if i % 8 == 5 else [i + 2, i + 3]] for i in range(N)],
         "three": [None if i % 5 == 3 else [i, i + 1, i + 2] for i in range(N)],
         "tags/key": [[f"k{k}" for k in range(i % 3)] for i in range(N)],
         "tags/value": [[i + k for k in range(i % 3)] for i in range(N)],
         "pairs/a": [[None if k == 1 and i % 4 == 3 else i for k in range(i % 3)] for i in range(N)],
         "codes": [[["x", "yy"][(i + k) % 2] for k in range(i % 4)] for i in range(N)],
         "none": [[None] * (i % 3) for i in range(N)]}
CODED_LISTS = pa.ListArray.from_arrays(
    pa.array([0, *(sum(len(row) for row in LISTS["codes"][:i + 1]) for i in range(N))], pa.int32()),
    pa.DictionaryArray.from_arrays(pa.array([["x", "yy"].index(word) for word in sum(LISTS["codes"], [])], pa.int8()), ["x", "yy"]))
LIST_TABLE = pa.table({
    "ids": pa.array(LISTS["ids"], pa.list_(pa.int64())),
    "words": pa.array(LISTS["words"], pa.large_list(pa.string())),
    "deep": pa.array(LISTS["deep"], pa.list_(pa.list_(pa.int32()))),
    "point": pa.array(LISTS["point"], pa.list_(pa.float32(), 2)),
    "grid": pa.array(LISTS["grid"], pa.list_(pa.list_(pa.int16(), 2), 2)),
    "three": pa.array(LISTS["three"], pa.list_(pa.int8())),
    "tags": pa.array([list(zip(*row)) for row in zip(LISTS["tags/key"], LISTS["tags/value"])], pa.map_(pa.string(), pa.int64())),
    "pairs": pa.array([[{"a": a, "b": "b"} if a is not None else None for a in row] for row in LISTS["pairs/a"]],
                      pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()}))),
    "codes": CODED_LISTS,
    "none": pa.array(LISTS["none"], pa.list_(pa.null()))})
LIST_TYPES = {"ids": "int64", "words": "string", "deep": "int64", "point": "float32", "grid": "int32", "three": "int32",
              "tags/key": "string", "tags/value": "int64", "pairs/a": "int64", "codes": "string", "none": "int32"}
LIST_SHAPES = {"ids": [None], "words": [None], "deep": [None, None], "point": [2], "grid": [2, 2], "three": [3],
               "tags/key": [None], "tags/value": [None], "pairs/a": [None], "codes": [None], "none": [None]}
LIST_FILL = {"ids": -1, "words": "none", "deep": -2, "point": 0.5, "grid": 7, "three": 9, "pairs/a": -3, "none": 4}
golden("lists", saved(LIST_TABLE.to_batches(max_chunksize=9)), LIST_TYPES, LISTS, LIST_FILL, LIST_SHAPES)
golden("zstd_lists", saved(LIST_TABLE.to_batches(max_chunksize=9), "stream", compression="zstd"), LIST_TYPES, LISTS, LIST_FILL,
       LIST_SHAPES)
golden("bad_lists", saved(LIST_TABLE.to_batches()), LIST_TYPES, LISTS, {"none": 4, "pairs/a": 0}, LIST_SHAPES)
golden("odd_shapes", saved(LIST_TABLE.to_batches()), {"point": "float32", "grid": "int32", "deep": "int32", "three": "int32"},
       {name: LISTS[name] for name in ("point", "grid", "deep", "three")}, {"point": -1.0, "grid": 1, "deep": 5, "three": 0},
       {"point": [None], "grid": [None, None], "deep": [None, 1], "three": [None]})

array("arrow_empty", saved(split(TABLE, SCHEMA, 0), "stream"))
ODD = {"ids": pa.array([[1, 2], [3]]), "deep": pa.array([[[[1]]], [[[2]]]]), "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
       "view": pa.array(["a", "b" * 20], pa.string_view()), "runs": pa.RunEndEncodedArray.from_arrays([2], [7]),
       "either": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
       "either_dense": pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]),
       "wide": pa.array([decimal.Decimal(1), decimal.Decimal(2)], pa.decimal256(40, 0)),
       "span": pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval()),
       "pairs": pa.array([[{"x": 1}], [{"x": 2}]]),
       "list_view": pa.array([[1], [2]], pa.list_view(pa.int8())),
       "codes": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([{"x": 1}, {"x": 2}])),
       "last": pa.array([5, 6], pa.int32())}
golden("odd", saved(pa.table(ODD).to_batches()), {"last": "int32"}, {"last": [5, 6]})



def big_endian():
    """The schema of a stream by the library of flatbuffers: pyarrow writes numbers as this machine has them."""
    import flatbuffers
    builder = flatbuffers.Builder(0)
    builder.StartObject(4)
    builder.PrependInt16Slot(0, 1, 0)
    schema = builder.EndObject()
    builder.StartObject(5)
    builder.PrependInt64Slot(3, 0, 0)
    builder.PrependUOffsetTRelativeSlot(2, schema, 0)
    builder.PrependUint8Slot(1, 1, 0)
    builder.PrependInt16Slot(0, 4, 0)
    builder.Finish(builder.EndObject())
    data = bytes(builder.Output())
    data += bytes(-len(data) % 8)
    return b"\xff\xff\xff\xff" + len(data).to_bytes(4, "little") + data


array("arrow_big_endian", big_endian())


def damaged(data, kind, change=None):
    """A stream whose first message of that kind is changed in its body, or is left out with all others of it."""
    reader, parts = pa.ipc.MessageReader.open_stream(data), []
    for message in iter(lambda: next(reader, None), None):
        part = bytearray(message.serialize())
        if message.type == kind and change is None:
            continue
        if message.type == kind:
            at, value = change
            body = len(part) - message.body.size
            part[body + at:body + at + len(value)] = value
            change = (0, b"")
        parts.append(bytes(part))
    return b"".join(parts)


HUGE_SIZE = (1 << 40).to_bytes(8, "little")
ONE_LIST = saved(pa.table({"x": pa.array([[1], [2, 3]], pa.list_(pa.int64()))}).to_batches(), "stream")
ONE_TEXT = saved(pa.table({"x": ["one", "two"]}).to_batches(), "stream")
ZEROS = saved(pa.table({"x": pa.array([0] * 1000)}).to_batches(), "stream", compression="zstd")
NESTED = pa.int8()
for _ in range(100):
    NESTED = pa.list_(NESTED)
array("arrow_no_dictionary", damaged(saved(SAME, "stream"), "dictionary"))
array("arrow_bad_list", damaged(ONE_LIST, "record batch", (4, b"\xff\xff\xff\x7f")))
array("arrow_bad_text", damaged(ONE_TEXT, "record batch", (4, b"\xff\xff\xff\x7f")))
array("arrow_bad_size", damaged(ZEROS, "record batch", (0, HUGE_SIZE)))
array("arrow_small_size", damaged(ZEROS, "record batch", (0, (8).to_bytes(8, "little"))))
array("arrow_nested", pa.schema({"x": NESTED}).serialize().to_pybytes())

# Of two files with N rows each: some that follow one another, one twice, one that neither file has, and a null.
INDICES = pa.array([5, 6, 7, N - 1, N, N + 1, 0, 0, 2 * N - 1, 2 * N - 2, 3, 4, 2 * N, 2, None], pa.uint64())
array("arrow_indices", saved(pa.table({"indices": INDICES}).to_batches(max_chunksize=4), "stream"))

print("static const struct arrow_file {\n    const char *name;\n    const unsigned char *data;\n    size_t bytes;\n"
      "    const char *options, *rows;\n} arrow_files[] = {")
for name, text, rows in FILES:
    print(f'    {{"{name}", arrow_{name}, sizeof(arrow_{name}),\n     "{text}",\n     "{rows}"}},')
print("};")
