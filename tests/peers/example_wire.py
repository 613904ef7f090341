# SPDX-License-Identifier: Apache-2.0
"""Writes tf.train.Example byte by byte, also in encodings that no library produces; reads TFRecord files."""
import struct


def varint(n, pad=0):
    """Varint of a number below 2^64; pad: superfluous bytes."""
    n &= 2**64 - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + (bytes([n]) if not pad else bytes([n | 128]) + b"\x80" * (pad - 1) + b"\0")


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def int_list(values, packed=True, pad=0):
    if packed:
        return field(3, field(1, b"".join(varint(v, pad) for v in values)))
    return field(3, b"".join(b"\x08" + varint(v, pad) for v in values))


def float_list(values, packed=True):
    if packed:
        return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
    return field(2, b"".join(b"\x0d" + struct.pack("<f", v) for v in values))


def bytes_list(values):
    return field(1, b"".join(field(1, v) for v in values))


def entry(key, feature, value_first=False):
    parts = [field(1, key), field(2, feature)]
    return field(1, b"".join(reversed(parts) if value_first else parts))


def example(*entries):
    return field(1, b"".join(entries))


def tfrecords(path):
    """The records of a TFRecord file."""
    with open(path, "rb") as f:
        while head := f.read(12):
            record = f.read(struct.unpack("<Q", head[:8])[0])
            f.read(4)
            yield record
