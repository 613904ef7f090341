#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The readers, through a daemon, give the records that tf.data gives: TFRecordDataset, FixedLengthRecordDataset,
TextLineDataset and CsvDataset over random files, plain and compressed. Records are compared by their hash, which is
TensorFlow's own function on either side.

    peer_readers.py BUILD
"""
import csv
import gzip
import json
import os
import random
import sys
import tempfile
import zlib

import tensorflow as tf
from tensorflow.python.lib.io import _pywrap_record_io

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))
from daemon import Daemon  # noqa: E402

BUCKETS = 10 ** 15
PACK = {"": lambda data: data, "GZIP": gzip.compress, "ZLIB": zlib.compress}


class Case:
    def __init__(self, name, step, options, files, dataset, columns=0):
        self.name, self.step, self.options = name, step, options
        self.files, self.dataset, self.columns = files, dataset, columns

    def pipeline(self):
        nodes, names = [], ["record"]
        if self.columns:
            nodes = [{"name": "columns", "op": "decode_csv", "input": ["record"], "record_defaults": [""] * self.columns}]
            names = [f"columns:{i}" for i in range(self.columns)]
        nodes += [{"name": f"hash_{i}", "op": "string_to_hash_bucket_fast", "input": [name], "num_buckets": BUCKETS}
                  for i, name in enumerate(names)]
        return {"name": self.name, "graph": nodes,
                "dataset": [{"files": {"pattern": self.files, "shuffle": False}}, {self.step: self.options},
                            {"batch": {"batch_size": 64}}],
                "staged": {"features": {f"hash_{i}": f"hash_{i}" for i in range(len(names))}}}

    def by_tensorflow(self):
        columns = next(iter(self.dataset.batch(1 << 20)))
        return [tf.strings.to_hash_bucket_fast(column, BUCKETS).numpy().tolist()
                for column in (columns if isinstance(columns, tuple) else (columns,))]

    def by_stager(self, daemon):
        path = os.path.join(daemon.folder, self.name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.pipeline(), file)
        daemon.ctl("apply", path, "--replace")
        got = [[] for _ in range(max(self.columns, 1))]
        for batch in daemon.cat(self.name):
            for i, column in enumerate(got):
                column.extend(batch["tensors"][f"hash_{i}"]["values"])
        return got


def put(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def tfrecords(rng, folder, compression):
    """Written with the class below TFRecordWriter, which does not accept SNAPPY. TFRecordDataset reads blocks of up to
    256 KiB."""
    files = []
    for i in range(3):
        files.append(os.path.join(folder, f"r{i}.{compression or 'plain'}"))
        writer = _pywrap_record_io.RecordWriter(files[-1], _pywrap_record_io.RecordWriterOptions(compression.encode()))
        for _ in range(rng.choice([0, 1, 300])):
            writer.write(rng.randbytes(rng.choice([0, 1, 12, 100, 5000, 70000])))
        writer.write(rng.randbytes(200000 if compression == "SNAPPY" else 400000))
        writer.close()
    return Case(f"tfrecord-{compression}", "tfrecord", {"compression_type": compression}, files,
                tf.data.TFRecordDataset(files, compression))


def fixed(rng, folder, compression):
    header, record, footer = rng.randrange(9), rng.randrange(1, 40), rng.randrange(9)
    files = [put(folder, f"f{i}.{compression}",
                 PACK[compression](rng.randbytes(header + record * rng.randrange(1, 3000) + footer))) for i in range(3)]
    options = {"record_bytes": record, "header_bytes": header, "footer_bytes": footer, "compression_type": compression}
    return Case(f"fixed-{compression}", "fixed_length_record", options, files,
                tf.data.FixedLengthRecordDataset(files, record, header, footer, compression_type=compression))


def lines(rng, folder, compression):
    files = [put(folder, f"l{i}.{compression}", PACK[compression](
        b"\n".join(rng.randbytes(rng.randrange(200)).replace(b"\r", b"").replace(b"\n", b"")
                   for _ in range(rng.randrange(1, 3000))))) for i in range(3)]
    return Case(f"lines-{compression}", "text_line", {"compression_type": compression}, files,
                tf.data.TextLineDataset(files, compression))


def tables(rng, folder, compression):
    parts = ["a", "bc", ",", '"', "\n", "\r\n", " ", "word", "'", ";"]
    files = []
    for i in range(3):
        path = os.path.join(folder, f"c{i}")
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator=rng.choice(["\n", "\r\n"]))
            for _ in range(rng.randrange(1, 800)):
                writer.writerow(["x" + "".join(rng.choices(parts, k=rng.randrange(9))) for _ in range(3)])
        with open(path, "rb") as file:
            files.append(put(folder, f"c{i}.{compression}", PACK[compression](file.read())))
    return Case(f"csv-{compression}", "csv", {"header": True, "compression_type": compression}, files,
                tf.data.experimental.CsvDataset(files, [tf.string] * 3, compression, header=True), 3)


def compare(daemon, case):
    got, want = case.by_stager(daemon), case.by_tensorflow()
    if got == want:
        print(f"ok   {case.name}: {len(want[0])} records")
        return True
    row = next((i for i, pair in enumerate(zip(zip(*got), zip(*want))) if pair[0] != pair[1]), "the end")
    print(f"FAIL {case.name}: stager {len(got[0])} records, TensorFlow {len(want[0])}; they differ at {row}")
    return False


def main():
    rng = random.Random(int(os.environ.get("STG_SEED", "7")))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stg-peer-") as folder, Daemon(sys.argv[1]) as daemon:
        os.chmod(folder, 0o755)
        cases = [make(rng, folder, kind) for kind in PACK for make in (tfrecords, fixed, lines, tables)]
        cases.append(tfrecords(rng, folder, "SNAPPY"))
        for case in cases:
            failed += not compare(daemon, case)
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
