#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_batch.h: batches at rest of layout 1.1, made with Python's struct from the text of
core/layout.h and core/batch.h, not with the project's code.  Usage: golden_batch.py > golden_batch.h"""
import struct

FLOAT32, INT32, STRING, INT64 = 1, 3, 7, 9
# magic major minor kind n_tensors header_bytes entry_bytes | total_bytes generation number pass
# epoch index n_dropped partition feed_version random_key[2] n_rows | error code offset bytes | reserved
HEADER = "<IHHIIII" + "12Q" + "4I" + "15Q"
# name offset, bytes, dtype, ndim, part, flags | shape | data offset, bytes, offsets', reserved
ENTRY = "<6I8q5Q"
assert struct.calcsize(HEADER) == 256 and struct.calcsize(ENTRY) == 128


def align(n):
    return (n + 63) // 64 * 64


def header(kind, n_tensors, total, coordinates, error=(0, 0, 0)):
    return struct.pack(HEADER, 0x48435442, 1, 1, kind, n_tensors, 256, 128, total, *coordinates,
                       *error, 0, *[0] * 15)


def batch(tensors, coordinates):
    names = 256 + 128 * len(tensors)
    used = align(names + sum(len(name) + 1 for name, *_ in tensors))
    parts, entries, texts, total = [], b"", b"", 0
    for name, dtype, shape, values in tensors:
        second = (0, 0)
        if dtype == STRING:
            ends = [0]
            for value in values:
                ends.append(ends[-1] + len(value))
            second = (used, 8 * len(ends))
            parts.append((used, struct.pack(f"<{len(ends)}q", *ends)))
            used, data = align(used + second[1]), b"".join(values)
        else:
            code = {FLOAT32: "f", INT32: "i", INT64: "q"}[dtype]
            data = struct.pack(f"<{len(values)}{code}", *values)
        parts.append((used, data))
        entries += struct.pack(ENTRY, names + len(texts), len(name), dtype, len(shape), 0, 0,
                               *(list(shape) + [0] * (8 - len(shape))), used, len(data),
                               *second, 0)
        texts += name.encode() + b"\0"
        total = max(total, used + len(data), sum(second))
        used = align(used + len(data))
    parts.append((0, header(1, len(tensors), total, coordinates) + entries + texts))
    out = bytearray(total)
    for at, data in parts:
        out[at:at + len(data)] = data
    return bytes(out)


def error(code, text):
    total = 256 + len(text) + 1
    return header(2, 0, total, [0] * 11, (code, 256, len(text))) + text + b"\0"


def array(name, data):
    rows = [", ".join(f"{b:#04x}" for b in data[i:i + 16]) for i in range(0, len(data), 16)]
    return (f"alignas(64) static const unsigned char {name}[{len(data)}] = {{\n    "
            + ",\n    ".join(rows) + "};")


TENSORS = [
    ("label", FLOAT32, [3], [0.0, 1.0, -2.5]),
    ("ids", INT64, [3, 2], [1, -1, 2**63 - 1, -2**63, 0, 77]),
    ("text", STRING, [3], [b"ab", b"", "c\u00e4e".encode()]),
    ("step", INT32, [], [42]),
    ("none", STRING, [0], []),
]
COORDINATES = [2, 2**40 + 5, 1, 3, 17, 4, 6, 9, 0x0123456789abcdef, 0xfedcba9876543210, 3]

print("/* SPDX-License-Identifier: Apache-2.0\n *\n * Made by golden_batch.py: do not edit.\n */")
print("/* clang-format off */\n#include <stdalign.h>\n")
print(array("golden_tensors", batch(TENSORS, COORDINATES)))
print()
print(array("golden_error", error(15, b"criteo.txt: line 17: no number")))
