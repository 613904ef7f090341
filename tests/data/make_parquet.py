#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_parquet.py OUT [--columns N] [--groups N] [--rows N] [--page-rows N] [--statistics]: a Parquet file of int64 columns c0, c1 …

--rows is the number of rows of each row group. Row r of column c is r * 1000 + c. PLAIN, not compressed, without pyarrow: the
structures are those of parquet.thrift, in Thrift's compact protocol.
"""
import argparse
import struct

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
INT64, DATA_PAGE, PLAIN, RLE, REQUIRED = 2, 0, 0, 3, 0


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def value(kind, v):
    if kind in (I32, I64):
        return varint(v << 1)       # zigzag of a number that is not negative
    if kind == BINARY:
        return varint(len(v)) + (v if isinstance(v, bytes) else v.encode())
    if kind == LIST:
        element, items = v
        head = bytes([len(items) << 4 | element]) if len(items) < 15 else bytes([0xF0 | element]) + varint(len(items))
        return head + b"".join(value(element, item) for item in items)
    return record(v)


def record(fields):
    """fields: {number: (kind, value)} in ascending order."""
    out, last = b"", 0
    for number, (kind, v) in fields.items():
        out += bytes([number - last << 4 | kind]) + value(kind, v)
        last = number
    return out + b"\0"


def page(values):
    data = struct.pack(f"<{len(values)}q", *values)
    head = {1: (I32, len(values)), 2: (I32, PLAIN), 3: (I32, RLE), 4: (I32, RLE)}
    return record({1: (I32, DATA_PAGE), 2: (I32, len(data)), 3: (I32, len(data)), 5: (STRUCT, head)}) + data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    for name, default in (("columns", 4), ("groups", 3), ("rows", 1000), ("page-rows", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--statistics", action="store_true")
    args = parser.parse_args()
    schema = [{4: (BINARY, "schema"), 5: (I32, args.columns)}]
    schema += [{1: (I32, INT64), 3: (I32, REQUIRED), 4: (BINARY, f"c{c}")} for c in range(args.columns)]
    groups = []
    with open(args.out, "wb") as file:
        file.write(b"PAR1")
        for group in range(args.groups):
            begin, chunks = file.tell(), []
            rows = range(group * args.rows, (group + 1) * args.rows)
            for c in range(args.columns):
                at = file.tell()
                for first in range(0, args.rows, args.page_rows):
                    file.write(page([r * 1000 + c for r in rows[first:first + args.page_rows]]))
                size = file.tell() - at
                meta = {1: (I32, INT64), 2: (LIST, (I32, [PLAIN])), 3: (LIST, (BINARY, [f"c{c}"])), 4: (I32, 0),
                        5: (I64, args.rows), 6: (I64, size), 7: (I64, size), 9: (I64, at)}
                if args.statistics:
                    bounds = [struct.pack("<q", r * 1000 + c) for r in (rows[-1], rows[0])]
                    meta[12] = (STRUCT, {3: (I64, 0), 5: (BINARY, bounds[0]), 6: (BINARY, bounds[1])})
                chunks.append({2: (I64, at), 3: (STRUCT, meta)})
            groups.append({1: (LIST, (STRUCT, chunks)), 2: (I64, file.tell() - begin), 3: (I64, args.rows)})
        footer = {1: (I32, 1), 2: (LIST, (STRUCT, schema)), 3: (I64, args.rows * args.groups), 4: (LIST, (STRUCT, groups))}
        if args.statistics:
            footer[7] = (LIST, (STRUCT, [{1: (STRUCT, {})}] * args.columns))
        footer = record(footer)
        file.write(footer + struct.pack("<I", len(footer)) + b"PAR1")


if __name__ == "__main__":
    main()
