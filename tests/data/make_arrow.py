#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_arrow.py OUT [--columns N] [--batches N] [--rows N] [--strings] [--stream]: an Arrow file of columns c0, c1 …

--rows is the number of rows of each record batch. Row r of column c is r * 1000 + c as int64, or with --strings these digits. Without
pyarrow: the tables are those of Message.fbs, Schema.fbs and File.fbs, as flatbuffers.
"""
import argparse
import struct

V5, INT, UTF8, SCHEMA, RECORD_BATCH = 4, 2, 5, 1, 3


class Buffer:
    """A flatbuffer. What a table refers to lies behind it."""

    def __init__(self, root):
        self.data = bytearray(4)
        self.point(0, root)

    def point(self, at, write):
        """Sets the offset at `at` to what write(self) writes."""
        struct.pack_into("<I", self.data, at, write(self) - at)

    def pad(self, n, rest=0):
        while len(self.data) % n != rest:
            self.data.append(0)


def table(*fields):
    """fields: None, a number with its format, or what writes an object."""
    def write(to):
        to.pad(8)
        vtable = len(to.data)
        slots = [8 + 8 * i if field is not None else 0 for i, field in enumerate(fields)]
        to.data += struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), 8 + 8 * len(slots), *slots)
        to.pad(8)
        at = len(to.data)
        to.data += struct.pack("<i4x", at - vtable) + bytes(8 * len(slots))
        for slot, field in zip(slots, fields):
            if isinstance(field, tuple):
                struct.pack_into("<" + field[0], to.data, at + slot, field[1])
            elif field is not None:
                to.point(at + slot, field)
        return at
    return write


def string(text):
    def write(to):
        to.pad(4)
        at = len(to.data)
        to.data += struct.pack("<I", len(text)) + text.encode() + b"\0"
        return at
    return write


def tables(writers):
    def write(to):
        to.pad(4)
        at = len(to.data)
        to.data += struct.pack("<I", len(writers)) + bytes(4 * len(writers))
        for i, one in enumerate(writers):
            to.point(at + 4 + 4 * i, one)
        return at
    return write


def structs(layout, rows):
    def write(to):
        to.pad(8, 4)
        at = len(to.data)
        to.data += struct.pack("<I", len(rows)) + b"".join(struct.pack("<" + layout, *row) for row in rows)
        return at
    return write


def message(kind, header, body_bytes):
    data = Buffer(table(("h", V5), ("B", kind), header, ("q", body_bytes)))
    data.pad(8)
    return struct.pack("<Ii", 0xFFFFFFFF, len(data.data)) + bytes(data.data)


def schema(args):
    kind = table() if args.strings else table(("i", 64), ("B", 1))
    number = UTF8 if args.strings else INT
    return table(("h", 0), tables([table(string(f"c{c}"), ("B", 0), ("B", number), kind, None, tables([]))
                                   for c in range(args.columns)]))


def padded(data):
    return data + bytes(-len(data) % 64)


def column(args, c, first):
    """The buffers of a column in a batch."""
    values = [r * 1000 + c for r in range(first, first + args.rows)]
    if not args.strings:
        return [b"", struct.pack(f"<{len(values)}q", *values)]
    texts, offsets = [str(value).encode() for value in values], [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return [b"", struct.pack(f"<{len(offsets)}i", *offsets), b"".join(texts)]


def batch(args, number):
    body, extents = b"", []
    for c in range(args.columns):
        for data in column(args, c, number * args.rows):
            extents.append((len(body), len(data)))
            body += padded(data)
    header = table(("q", args.rows), structs("qq", [(args.rows, 0)] * args.columns), structs("qq", extents))
    return message(RECORD_BATCH, header, len(body)), body


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    for name, default in (("columns", 4), ("batches", 3), ("rows", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--strings", action="store_true")
    parser.add_argument("--stream", action="store_true")
    args = parser.parse_args()
    blocks = []
    with open(args.out, "wb") as file:
        file.write(b"" if args.stream else b"ARROW1\0\0")
        file.write(message(SCHEMA, schema(args), 0))
        for number in range(args.batches):
            metadata, body = batch(args, number)
            blocks.append((file.tell(), len(metadata), len(body)))
            file.write(metadata + body)
        file.write(struct.pack("<Ii", 0xFFFFFFFF, 0))
        if not args.stream:
            footer = Buffer(table(("h", V5), schema(args), structs("qi4xq", []), structs("qi4xq", blocks))).data
            file.write(footer + struct.pack("<i", len(footer)) + b"ARROW1")


if __name__ == "__main__":
    main()
