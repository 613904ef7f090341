#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_tfrecord.h: files of TFRecords written by TensorFlow's writer (2.21), plain and compressed.  Usage:
golden_tfrecord.py > golden_tfrecord.h, with tensorflow-cpu installed."""
import os
import tempfile

import tensorflow as tf
from tensorflow.python.lib.io import _pywrap_record_io

RECORDS = [b"", b"a", b"123456789", bytes(32), bytes(k * 7 & 255 for k in range(256)),
           b"".join(b"line %d of a longer record\n" % k for k in range(30))]


def written(compression, records):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        with tf.io.TFRecordWriter(path, compression) as writer:
            for record in records:
                writer.write(record)
        with open(path, "rb") as file:
            return file.read()


def written_snappy(records):
    """The class below TFRecordWriter, which accepts only GZIP and ZLIB as compressions."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        writer = _pywrap_record_io.RecordWriter(path, _pywrap_record_io.RecordWriterOptions(b"SNAPPY"))
        for record in records:
            writer.write(record)
        writer.close()
        with open(path, "rb") as file:
            return file.read()


def array(name, data):
    print(f"static const unsigned char {name}[{len(data)}] = {{")
    for i in range(0, len(data), 16):
        print("    " + " ".join(f"0x{b:02x}," for b in data[i:i + 16]))
    print("};\n")


print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by golden_tfrecord.py: do not edit.
 */
/* clang-format off */
""")
array("golden_plain", written("", RECORDS))
array("golden_gzip", written("GZIP", RECORDS))
array("golden_zlib", written("ZLIB", RECORDS))
array("golden_snappy", written_snappy(RECORDS))
array("golden_payloads", b"".join(RECORDS))
print("static const unsigned golden_bytes[] = {" + ", ".join(str(len(r)) for r in RECORDS) + "};")
