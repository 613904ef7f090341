#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl schema: text, JSON, a file of more columns than one reply holds, the gate, errors.

    check_schema.py ROOT BUILD
"""
import json
import os
import re
import subprocess
import sys

from daemon import Daemon, SLOW, check


def golden(root, name):
    """The bytes of a file in tests/daemon/format/golden_*.h."""
    kind = name.split("_")[0]
    with open(os.path.join(root, "tests/daemon/format", f"golden_{kind}.h"), encoding="utf-8") as file:
        text = re.search(rf"char {name}\[\d+\] = {{(.*?)}};", file.read(), re.S).group(1)
    return bytes(int(number, 0) for number in re.findall(r"\w+", text))


def put(daemon, name, data):
    path = os.path.join(daemon.folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def run(daemon, *arguments, status=0, **options):
    done = subprocess.run([os.path.join(daemon.build, "client", "stagerctl", "stagerctl"), "--runtime-dir",
                           daemon.runtime_dir, "schema", *arguments], capture_output=True, text=True, timeout=60 * SLOW, **options)
    check(done.returncode == status, f"{arguments}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def check_parquet(daemon, root):
    path = put(daemon, "lists.parquet", golden(root, "parquet_lists_v1"))
    text = run(daemon, path)
    check(text.startswith(f"{path}\nparquet, 23 rows in 2 row groups, "), text)
    check(re.search(r"^deep +INT64 +int64 \[\?, \?\] +yes ", text, re.M), text)
    described = json.loads(run(daemon, "lists.parquet", "--json", cwd=daemon.folder))
    check((described["url"], described["format"], described["n_rows"], described["n_parts"]) == (path, "parquet", 23, 2), described)
    columns = {column["name"]: column for column in described["columns"]}
    check([(columns[name]["dtype"], columns[name]["shape"]) for name in ("id", "words", "deep")] ==
          [("int64", []), ("string", [None]), ("int64", [None, None])], columns)
    brotli = put(daemon, "brotli.parquet", golden(root, "parquet_brotli"))
    check("cannot be read: id: its codec is BROTLI, which is not supported" in run(daemon, brotli), "brotli")


def varint(n):
    data = b""
    while n > 127:
        data, n = data + bytes([n & 127 | 128]), n >> 7
    return data + bytes([n])


def wide_parquet(n):
    """A file without rows, of n columns: the footer alone, in Thrift's compact protocol."""
    def element(name, *fields):
        return b"".join(fields) + bytes([0x18]) + varint(len(name)) + name.encode()
    root = bytes([0x48]) + b"\x06schema" + bytes([0x15]) + varint(2 * n) + b"\0"
    leaves = b"".join(bytes([0x15, 4, 0x25, 0]) + element(f"column-{i:06}" + "x" * 100, b"") + b"\0" for i in range(n))
    footer = bytes([0x15, 2, 0x19, 0xfc]) + varint(n + 1) + root + leaves + bytes([0x16, 0, 0x19, 0x0c]) + b"\0"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def check_wide(daemon):
    path = put(daemon, "wide.parquet", wide_parquet(3000))
    columns = json.loads(run(daemon, path, "--json"))["columns"]
    check([column["name"] for column in columns] == [f"column-{i:06}" + "x" * 100 for i in range(3000)], "names")
    check({column["dtype"] for column in columns} == {"int64"}, "dtypes")


def check_errors(daemon):
    for path, text in ((os.path.join(daemon.folder, "none.parquet"), "NOT_FOUND: no files matched "),
                       (put(daemon, "junk", bytes(range(256))), "INVALID_ARGUMENT: "),
                       ("ftp://x/y", "UNIMPLEMENTED: ")):
        message = run(daemon, path, status=1)
        check(message.startswith("stagerctl: " + text), message)


def main(root, build):
    with Daemon(build) as daemon:
        check_parquet(daemon, root)
        check_wide(daemon)
        check_errors(daemon)


if __name__ == "__main__":
    main(*sys.argv[1:])
