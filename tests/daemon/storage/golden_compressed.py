#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_compressed.h: one text, compressed by Python's gzip and zlib, by the programs zstd and lz4, and by
python-snappy (TensorFlow's SnappyInputBuffer reads its block after a length); a zstd frame that requires much memory,
and a gzip member of 1 MiB of zeros. Usage: golden_compressed.py > golden_compressed.h, golden_compressed.py snappy >
golden_snappy.h"""
import gzip
import random
import subprocess
import sys
import zlib

import snappy

random.seed(7)
WORDS = [bytes(random.choices(b"abcdefghijklmnop", k=random.randint(2, 9))) for _ in range(200)]
TEXT = b" ".join(random.choices(WORDS, k=400))[:1500] + bytes(random.getrandbits(8) for _ in range(200))


def array(name, data):
    print(f"static const unsigned char {name}[{len(data)}] = {{")
    for i in range(0, len(data), 16):
        print("    " + " ".join(f"0x{b:02x}," for b in data[i:i + 16]))
    print("};\n")


def by(program, *options):
    return subprocess.run([program, "-c", *options], input=TEXT, check=True, capture_output=True).stdout


# A frame of one raw block of one byte, with a window of 2^27: RFC 8878, 3.1.1.
WIDE = bytes.fromhex("28b52ffd") + bytes([0x00, (27 - 10) << 3]) + bytes([0x09, 0, 0]) + b"x"

print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by golden_compressed.py: do not edit.
 */
/* clang-format off */
""")
BLOCK = snappy.compress(TEXT)
if sys.argv[1:] == ["snappy"]:
    array("text_snappy", len(BLOCK).to_bytes(4, "big") + BLOCK)
    array("text_framed", snappy.StreamCompressor().add_chunk(TEXT))
    sys.exit()
array("text_plain", TEXT)
array("text_gzip", gzip.compress(TEXT, mtime=0))
array("text_zlib", zlib.compress(TEXT))
array("text_zstd", by("zstd", "--check"))
array("text_lz4", by("lz4", "-B4", "-BD", "--content-size"))
array("text_wide", WIDE)
array("text_bomb", gzip.compress(bytes(1 << 20), mtime=0))
