#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_tar.h: archives written by Python's tarfile in its three formats, compressed with gzip. Usage:
golden_tar.py > golden_tar.h"""
import gzip
import io
import tarfile

LONG = "a" * 60 + "/" + "b" * 60 + "/" + "c" * 60
VERY_LONG = "d" * 150 + "/" + "e" * 150
# (name, data, type)
MEMBERS = [("images", b"", tarfile.DIRTYPE),
           ("README", b"not a part", tarfile.REGTYPE),
           ("images/0001.jpg", b"first image", tarfile.REGTYPE),
           ("images/0001.cls", b"7", tarfile.REGTYPE),
           ("images/0002.CLS", b"", tarfile.REGTYPE),
           ("images/0002.seg.png", b"another part", tarfile.REGTYPE),
           ("images/link.jpg", b"", tarfile.SYMTYPE),
           ("images/0002.jpg", bytes(range(256)) * 3, tarfile.REGTYPE),
           (LONG + "/0003.jpg", b"long", tarfile.REGTYPE),
           (LONG + "/0003.cls", b"3", tarfile.REGTYPE)]
MORE = [(VERY_LONG + "/0004.jpg", b"very long", tarfile.REGTYPE),
        (VERY_LONG + "/0004.cls", b"4", tarfile.REGTYPE)]


def archive(form, members, base256=False):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, data, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data)
            info.linkname = "images/0001.jpg" if kind == tarfile.SYMTYPE else ""
            info.uid = 1 << 30 if base256 else 0
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def array(name, data):
    data = gzip.compress(data, mtime=0)
    print(f"static const unsigned char {name}[{len(data)}] = {{")
    for i in range(0, len(data), 16):
        print("    " + " ".join(f"0x{b:02x}," for b in data[i:i + 16]))
    print("};\n")


print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by golden_tar.py: do not edit.
 */
/* clang-format off */
""")
array("tar_ustar", archive(tarfile.USTAR_FORMAT, MEMBERS))
array("tar_gnu", archive(tarfile.GNU_FORMAT, MEMBERS + MORE, base256=True))
array("tar_pax", archive(tarfile.PAX_FORMAT, MEMBERS + MORE))
array("tar_small", archive(tarfile.USTAR_FORMAT, [("a.x", b"1", tarfile.REGTYPE),
                                                  ("a.y", b"2", tarfile.REGTYPE),
                                                  ("b.x", b"3", tarfile.REGTYPE),
                                                  ("b.y", b"4", tarfile.REGTYPE)]))
