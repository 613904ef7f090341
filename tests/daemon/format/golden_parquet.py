#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_parquet.h: small files written by pyarrow, and the rows that pyarrow has of each. Usage:
golden_parquet.py > golden_parquet.h, with pyarrow installed."""
import datetime
import decimal
import io

import pyarrow as pa
import pyarrow.parquet as pq

N = 23
PLAIN = {"use_dictionary": False, "compression": "none"}


def saved(columns, fields=None, **options):
    table = pa.table(columns, schema=pa.schema(fields) if fields else None)
    file = io.BytesIO()
    pq.write_table(table, file, **{"store_schema": False, "write_statistics": False, **options})
    return file.getvalue()


def array(name, data):
    print(f"static const unsigned char {name}[{len(data)}] = {{")
    for i in range(0, len(data), 16):
        print("    " + " ".join(f"0x{b:02x}," for b in data[i:i + 16]))
    print("};\n")


def text_of(value, default):
    if value is None:
        value = default
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode()
    return f"{value:g}" if isinstance(value, float) else str(value)


def rows_of(columns, defaults):
    """The lines that a test expects: a row that lacks a value without a default is an error."""
    lines = []
    for row in zip(*columns.values()):
        pairs = list(zip(columns, row))
        if any(value is None and name not in defaults for name, value in pairs):
            lines.append("!INVALID_ARGUMENT")
        else:
            lines.append(" ".join(text_of(value, defaults.get(name)) for name, value in pairs))
    return "".join(line + "\\n" for line in lines)


FILES = []


def golden(name, data, dtypes, columns, defaults=None):
    """columns: the values that a reader gets, None for a null."""
    defaults = defaults or {}
    array(f"parquet_{name}", data)
    text = f"columns: {{{', '.join(f'{key}: {dtype}' for key, dtype in dtypes.items())}}}"
    if defaults:
        text += f", defaults: {{{', '.join(f'{key}: {text_of(value, None)}' for key, value in defaults.items())}}}"
    FILES.append((name, text, rows_of(columns, defaults)))


print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by golden_parquet.py: do not edit.
 */
#include <stddef.h>

/* clang-format off */
""")

IDS = [(i * 7919) % 1000 - 300 for i in range(N)]
PRICES = [i / 4 - 2 for i in range(N)]
NAMES = [f"name-{i % 5}-{'x' * (i % 7)}" for i in range(N)]
FLAGS = [i % 3 == 0 for i in range(N)]
REQUIRED = [pa.field("id", pa.int64(), nullable=False), pa.field("price", pa.float32(), nullable=False),
            pa.field("name", pa.string(), nullable=False), pa.field("flag", pa.bool_(), nullable=False)]
OPTIONAL = [field.with_nullable(True) for field in REQUIRED]
TABLE = {"id": IDS, "price": PRICES, "name": NAMES, "flag": FLAGS}
DTYPES = {"id": "int64", "price": "float32", "name": "string", "flag": "bool"}


def with_nulls(values, every):
    return [None if i % every == 1 else value for i, value in enumerate(values)]


SPARSE = {"id": with_nulls(IDS, 4), "price": with_nulls(PRICES, 5), "name": with_nulls(NAMES, 3), "flag": with_nulls(FLAGS, 7)}


def codecs(*names):
    """By column: of those that are not compressed, a changed byte changes what the encoding says."""
    return dict(zip(TABLE, names))


FILL = {"id": -1, "price": 0.5, "name": "none", "flag": True}

golden("plain", saved(TABLE, REQUIRED, row_group_size=10, **PLAIN), DTYPES, TABLE)
golden("nulls", saved(SPARSE, OPTIONAL, compression=codecs("snappy", "none", "none", "snappy"),
                      use_dictionary=False, row_group_size=9, data_page_size=20,
                      write_batch_size=4), DTYPES, SPARSE, FILL)
golden("bad_rows", saved(SPARSE, OPTIONAL, compression=codecs("gzip", "none", "gzip", "none"),
                         data_page_version="2.0"), DTYPES, SPARSE, {"id": 0, "flag": False})
golden("dictionary", saved(TABLE, REQUIRED, compression=codecs("none", "zstd", "none", "zstd"),
                           dictionary_pagesize_limit=60, data_page_size=20,
                           write_batch_size=4), DTYPES, TABLE)
golden("delta", saved(SPARSE, OPTIONAL, compression=codecs("none", "lz4", "none", "lz4"),
                      data_page_version="2.0", use_dictionary=False, row_group_size=12,
                      column_encoding={"id": "DELTA_BINARY_PACKED", "price": "BYTE_STREAM_SPLIT",
                                       "name": "DELTA_BYTE_ARRAY", "flag": "RLE"}), DTYPES, SPARSE, FILL)
golden("lengths", saved(TABLE, REQUIRED, compression="none", use_dictionary=False, write_page_checksum=True,
                        column_encoding={"id": "BYTE_STREAM_SPLIT", "name": "DELTA_LENGTH_BYTE_ARRAY"}), DTYPES, TABLE)

DAYS = [i * 100 - 50 for i in range(N)]
EPOCH = datetime.datetime(1970, 1, 1)
MOMENTS = [EPOCH + datetime.timedelta(days=i * 50 - 300, microseconds=i) for i in range(N)]
CENTS = [decimal.Decimal(i * 31 - 99) / 100 for i in range(N)]
KINDS = {"day": pa.array(DAYS, pa.int32()).cast(pa.date32()),
         "moment": pa.array(MOMENTS, pa.timestamp("us")),
         "cents": pa.array(CENTS, pa.decimal128(9, 2)),
         "small": pa.array([i - 10 for i in range(N)], pa.int8()),
         "code": pa.array([bytes([65 + i, 66, 67]) for i in range(N)], pa.binary(3)),
         "user": pa.array([{"id": i, "tag": {"word": f"w{i}"}} for i in range(N)])}
MICROS = [(moment - EPOCH) // datetime.timedelta(microseconds=1) for moment in MOMENTS]
golden("types", saved(KINDS, write_statistics=True, store_decimal_as_integer=True, use_deprecated_int96_timestamps=True),
       {"day": "int32", "moment": "int64", "cents": "int64", "small": "int32", "code": "string", "user/id": "int64",
        "user/tag/word": "string"},
       {"day": DAYS, "moment": [micros * 1000 for micros in MICROS], "cents": [int(cents * 100) for cents in CENTS],
        "small": [i - 10 for i in range(N)], "code": [f"{chr(65 + i)}BC" for i in range(N)], "user/id": range(N),
        "user/tag/word": [f"w{i}" for i in range(N)]})

# Lists, for the tests of lists alone. Row i has i % 4 elements; each fifth list is null, each eleventh value too.
LENGTHS = [i % 4 for i in range(N)]
LISTS = [None if i % 5 == 3 else [None if (i * 3 + k) % 11 == 10 else i * 10 + k for k in range(n)] for i, n in enumerate(LENGTHS)]
DEEP = [None if i % 7 == 5 else [LISTS[(i + k) % N] for k in range(i % 3)] for i in range(N)]
WORDS = [None if row is None else [None if value is None else f"w{value}" for value in row] for row in LISTS]
POINTS = [[i, i + 0.5, -i] for i in range(N)]
MAPS = [[(f"k{k}", i + k) for k in range(i % 3)] for i in range(N)]
STRUCTS = [[{"a": i + k, "b": f"b{k}"} for k in range(i % 2 + 1)] for i in range(N)]
LIST_COLUMNS = {"id": IDS, "ids": pa.array(LISTS, pa.list_(pa.int64())), "words": pa.array(WORDS, pa.list_(pa.string())),
                "deep": pa.array(DEEP, pa.list_(pa.list_(pa.int64()))), "point": pa.array(POINTS, pa.list_(pa.float32(), 3)),
                "map": pa.array(MAPS, pa.map_(pa.string(), pa.int32())),
                "structs": pa.array(STRUCTS, pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()})))}
SMALL_PAGES = {"data_page_size": 30, "write_batch_size": 2, "row_group_size": 12}


def text_of_list(value, default):
    if value is None:
        return "[]"
    if isinstance(value, list):
        return "[" + " ".join(text_of_list(item, default) if isinstance(item, list) else text_of(item, default)
                              for item in value) + "]"
    return text_of(value, default)


def flat(value):
    return [item for inner in value or [] for item in inner or []]


def splits(value):
    ends = [0]
    for inner in value or []:
        ends.append(ends[-1] + len(inner or []))
    return ends


def rows_of_lists():
    lines = []
    for i in range(N):
        parts = [(IDS[i], None), (LISTS[i], -1), (WORDS[i], "none"), (flat(DEEP[i]), -1), (splits(DEEP[i]), -1), (POINTS[i], 0.0),
                 ([key for key, _ in MAPS[i]], ""), ([value for _, value in MAPS[i]], 0), ([row["b"] for row in STRUCTS[i]], "")]
        lines.append(" ".join(text_of_list(*part) for part in parts) + "\\n")
    return "".join(lines)


LIST_OPTIONS = ("columns: {id: int64, ids: int64, words: string, deep: int64, point: float32, map/key: string, map/value: int32, "
                "structs/list/element/b: string}, shapes: {ids: [null], words: [null], deep: [null, null], point: [3], map/key: [null], "
                "map/value: [null], structs/list/element/b: [null]}, defaults: {ids: -1, words: none, deep: -1}")
for list_name, list_options in (("lists_v1", {"data_page_version": "1.0", **PLAIN}),
                                ("lists_v2", {"data_page_version": "2.0", "compression": "snappy"})):
    array(f"parquet_{list_name}", saved(LIST_COLUMNS, **list_options, **SMALL_PAGES))
    FILES.append((list_name, LIST_OPTIONS, rows_of_lists()))

array("parquet_lists", saved({"id": [1, 2], "ids": pa.array([[1, 2], [3]], pa.list_(pa.int64()))}))
array("parquet_brotli", saved({"id": [1, 2]}, compression="brotli"))
array("parquet_empty", saved({"id": pa.array([], pa.int64())}))

# Row i of 100,000, in one page: i // 7 % 3 as a word, or null for each fifth thousand.
PARTS = [None if i // 1000 % 5 == 4 else ("zero", "one", "two")[i // 7 % 3] for i in range(100000)]
array("parquet_parts", saved({"word": PARTS}, compression="zstd", max_rows_per_page=1 << 20))

# Filters, over files whose statistics and page indexes exclude parts of them: each row that pyarrow's filter keeps of the table.
FILTERED = {"row": list(range(N)), "price": [None if i % 5 == 1 else float("nan") if i % 11 == 4 else i / 4 - 2 for i in range(N)],
            "name": [None if i % 7 == 3 else f"name-{i // 4}" for i in range(N)], "flag": FLAGS}
FILTERS = [
    ([[("row", ">=", 7), ("row", "<", 19), ("name", "!=", "name-3")]],
     "[[row, \">=\", 7], [row, <, 19], [name, \"!=\", name-3]]"),
    ([[("price", "<=", -1.0)], [("price", "!=", 0.5), ("row", ">", 14.5)]],
     "[[[price, <=, -1]], [[price, \"!=\", 0.5], [row, \">\", 14.5]]]"),
    ([[("name", "in", ["name-1", "name-4"])], [("flag", "=", True), ("row", "<", 4)]],
     "[[[name, in, [name-1, name-4]]], [[flag, =, true], [row, <, 4]]]")]


def filtered(number, **options):
    """The column of the filter that comes last is not among those that are yielded."""
    condition, text = FILTERS[number]
    table = pa.table(FILTERED)
    kept = table.filter(pq.filters_to_expression(condition)).to_pydict()
    data = saved(FILTERED, write_statistics=True, **options)
    name = f"filtered_{number}" + ("_pages" if options.get("write_page_index") else "")
    array(f"parquet_{name}", data)
    rows = "".join(f"{row} {text_of(word, 'none')}\\n" for row, word in zip(kept["row"], kept["name"]))
    FILES.append((name, f"columns: {{row: int64, name: string}}, defaults: {{name: none}}, filters: {text}".replace('"', '\\"'), rows))


for filter_number in range(len(FILTERS)):
    filtered(filter_number, row_group_size=5, compression="none" if filter_number == 1 else "snappy")
    filtered(filter_number, write_page_index=True, data_page_size=20, write_batch_size=3, use_dictionary=filter_number == 2,
             row_group_size=15, data_page_version="2.0" if filter_number == 0 else "1.0", compression="none")

print("static const struct {\n    const char *name;\n    const unsigned char *data;\n    size_t bytes;\n"
      "    const char *options, *rows;\n} parquet_files[] = {")
for file, text, rows in FILES:
    print(f'    {{"{file}", parquet_{file}, sizeof(parquet_{file}),\n     "{text}",\n     "{rows}"}},')
print("};")
