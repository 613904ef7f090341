#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl init: for a file of each format, the pipeline that it writes passes check and delivers the file's values, unchanged.

    check_init.py ROOT BUILD
"""
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zlib

from check_schema import golden, put
from daemon import Daemon, SLOW, check

ROWS = 50
LABELS = [i % 2 for i in range(ROWS)]
PRICES = [i / 4 for i in range(ROWS)]
WORDS = [f"word {i}, \"quoted\"" if i % 3 else "" for i in range(ROWS)]


def ctl(daemon, *arguments, status=0):
    done = subprocess.run([os.path.join(daemon.build, "client", "stagerctl", "stagerctl"), "--runtime-dir", daemon.runtime_dir,
                           *arguments], capture_output=True, text=True, timeout=60 * SLOW)
    check(done.returncode == status, f"{arguments}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def deliver(daemon, path, *arguments):
    """The tensors of the only batch of the pipeline that init writes, sorted by rows if they can be."""
    pipeline = os.path.join(daemon.folder, "p.yaml")
    ctl(daemon, "init", path, "--name", "p", "-o", pipeline, "--force", *arguments)
    checked = json.loads(ctl(daemon, "check", pipeline, "--json"))
    check(not any(line.startswith("problem") or "; better: " in line for line in checked["advice"]), checked)
    ctl(daemon, "apply", pipeline, "--replace")
    lines = [json.loads(line) for line in ctl(daemon, "cat", "p", "--json").splitlines()]
    check(len(lines) == 1, f"{path}: {len(lines)} batches")
    return {name: (tensor["dtype"], tensor["values"]) for name, tensor in lines[0]["tensors"].items()}


def same(tensors, **want):
    """Each tensor has the dtype and, in any one order of the rows, the values."""
    check(sorted(tensors) == sorted(want), f"{sorted(tensors)}, not {sorted(want)}")
    for name, (dtype, _) in want.items():
        check(tensors[name][0] == dtype, f"{name}: {tensors[name][0]}, not {dtype}")
    got = sorted(zip(*(map(repr, tensors[name][1]) for name in sorted(want))))
    expected = sorted(zip(*(map(repr, want[name][1]) for name in sorted(want))))
    check(got == expected, f"{got[:3]}, not {expected[:3]}")


def check_csv(daemon):
    quoted = ['"' + word.replace('"', '""') + '"' if word else "" for word in WORDS]
    lines = [f"{label},{price},{word}\n" for label, price, word in zip(LABELS, PRICES, quoted)]
    path = put(daemon, "a.csv", ("label,price,the word\n" + "".join(lines)).encode())
    text = json.loads(ctl(daemon, "schema", path, "--json"))
    check([(column["name"], column["dtype"], column["nullable"]) for column in text["columns"]] ==
          [("label", "int64", False), ("price", "float32", False), ("the word", "string", True)], text)
    same(deliver(daemon, path), label=("int64", LABELS), price=("float32", PRICES), the_word_2=("string", WORDS))
    path = put(daemon, "b.tsv", "".join(f"{label}\t{price}\n" for label, price in zip(LABELS, PRICES)).encode())
    same(deliver(daemon, path), column_0=("int64", LABELS), column_1=("float32", PRICES))


def check_jsonl(daemon):
    records = [{"label": label, "price": price, "word": word, "pair": [label, price], "deep": {"a": 1}}
               for label, price, word in zip(LABELS, PRICES, WORDS)]
    for i in range(0, ROWS, 7):
        del records[i]["word"]
    words = [record.get("word", "") for record in records]
    path = put(daemon, "a.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode())
    check("cannot be read: deep: " in ctl(daemon, "schema", path), "deep")
    same(deliver(daemon, path), label=("int64", LABELS), price=("float32", PRICES), word=("string", words),
         pair=("float32", [[float(label), price] for label, price in zip(LABELS, PRICES)]))


def varint(n):
    data = b""
    while n > 127:
        data, n = data + bytes([n & 127 | 128]), n >> 7
    return data + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features):
    """tf.train.Example, by its encoding."""
    entries = b""
    for name, values in features.items():
        if isinstance(values[0] if values else 0, int):
            feature = field(3, field(1, b"".join(map(varint, values))))
        elif isinstance(values[0], float):
            feature = field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            feature = field(1, b"".join(field(1, value.encode()) for value in values))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record):
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", crc32c(length)) + record + struct.pack("<I", crc32c(record))


def check_tfrecord(daemon):
    lists = [list(range(i % 4)) for i in range(ROWS)]
    data = b"".join(frame(example(label=[label], pair=[price, 2.0], word=[word], **{"ids": ids}))
                    for label, price, word, ids in zip(LABELS, PRICES, WORDS, lists))
    path = put(daemon, "a.tfrecord", data)
    tensors = deliver(daemon, path)
    splits, values = tensors.pop("ids/row_splits")[1], tensors.pop("ids/values")
    check(values[0] == "int64", values)
    tensors["ids"] = ("int64", [values[1][a:b] for a, b in zip(splits, splits[1:])])
    same(tensors, label=("int64", LABELS), pair=("float32", [[price, 2.0] for price in PRICES]), word=("string", WORDS),
         ids=("int64", lists))
    path = put(daemon, "b.tfrecord", b"".join(frame(b"\xff" + word.encode()) for word in WORDS))
    check(list(deliver(daemon, path)) == ["record"], "no Example")


def check_npy(daemon):
    header = repr({"descr": "<f4", "fortran_order": False, "shape": (ROWS, 2)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    rows = [[price, 1.0] for price in PRICES]
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"".join(struct.pack("<2f", *row) for row in rows)
    same(deliver(daemon, put(daemon, "a.npy", data)), value=("float32", rows))


def png(width, height):
    """One grey."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + b"\x80" * (3 * width)) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def check_tar(daemon):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for i in range(8):
            for part, data in (("png", png(300 + i, 280)), ("cls", b"%d" % i)):
                info = tarfile.TarInfo(f"train/{i:04}.{part}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    tensors = deliver(daemon, put(daemon, "a.tar", buffer.getvalue()))
    check(sorted(tensors["cls"][1]) == [str(i) for i in range(8)], tensors["cls"])
    check(tensors["image"][0] == "float32" and len(tensors["image"][1]) == 8, "image")
    check({pixel for row in tensors["image"][1][0] for place in row for pixel in place} == {128.0}, "pixels")
    os.makedirs(os.path.join(daemon.folder, "photos"))
    for i in range(3):
        put(daemon, f"photos/{i}.png", png(300, 300))
    check(len(deliver(daemon, os.path.join(daemon.folder, "photos"))["image"][1]) == 3, "photos")


def check_columnar(daemon, root):
    plain = deliver(daemon, put(daemon, "a.parquet", golden(root, "parquet_plain")))
    check(sorted(plain) == ["flag", "id", "name", "price"] and len(plain["id"][1]) == 23, plain)
    lists = deliver(daemon, put(daemon, "b.parquet", golden(root, "parquet_lists_v2")))
    check({"id", "ids/values", "ids/row_splits", "words/values", "deep/values/values"} <= set(lists), sorted(lists))
    try:
        arrow = deliver(daemon, put(daemon, "a.arrow", golden(root, "arrow_plain")))
    except SystemExit as error:
        check("built without flatbuffers" in str(error), str(error))
    else:
        check({name: sorted(map(repr, values)) for name, (_, values) in arrow.items()} ==
              {name: sorted(map(repr, values)) for name, (_, values) in plain.items()}, "arrow")


def check_text(daemon):
    path = put(daemon, "lines", b"one\ntwo\nthree\n")
    same(deliver(daemon, path), record=("string", ["one", "two", "three"]))


def check_output(daemon):
    path, output = put(daemon, "o[1].csv", b"a,b\n1,2\n"), os.path.join(daemon.folder, "o.yaml")
    ctl(daemon, "init", path, "-o", output)
    check("ALREADY_EXISTS" in ctl(daemon, "init", path, "-o", output, status=1), "overwritten")
    with open(output, encoding="utf-8") as file:
        written = file.read()
    check(written == ctl(daemon, "init", path), "standard output")
    check('name: "o1"' in written and '"b": "columns:1"' in written, written)
    same(deliver(daemon, path), a=("int64", [1]), b=("int64", [2]))


def main(root, build):
    with Daemon(build) as daemon:
        check_csv(daemon)
        check_jsonl(daemon)
        check_tfrecord(daemon)
        check_npy(daemon)
        check_tar(daemon)
        check_columnar(daemon, root)
        check_text(daemon)
        check_output(daemon)


if __name__ == "__main__":
    main(*sys.argv[1:])
