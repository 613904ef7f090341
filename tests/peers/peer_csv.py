#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The step csv with columns by name, through a daemon, gives the values of Python's csv module, of pandas and of tf.data's
make_csv_dataset: quoted fields with escapes and line ends, empty fields with defaults, files with headers in other orders
(which tf.data refuses), other delimiters, in batches of several sizes.

    peer_csv.py BUILD
"""
import csv
import os
import random
import sys
import tempfile
import warnings

try:
    import numpy as np
    import pandas
except ImportError as missing:
    print(f"skipped: no {missing.name}")
    sys.exit(77)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
try:
    import tensorflow as tf
except ImportError:
    tf = None

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
sys.path[:0] = [os.path.join(HERE, "../system"), os.path.join(BUILD, "client/python")]
from daemon import Daemon  # noqa: E402
import stager  # noqa: E402

warnings.simplefilter("ignore")  # of pandas, about float_precision
N = 4000
DTYPES = {"id": "int64", "count": "int32", "price": "float32", "weight": "float64", "name": "string", "user/id": "string"}
DEFAULTS = {"count": -1, "price": 0.5, "weight": -2.25, "name": "none"}
LETTERS = ["a", "b c", ",", '"', "\n", "é", ";", "''", "x" * 40]


def text(rng):
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(6)))


def row(rng, i):
    may_lack = {"count": str(rng.randrange(-10**9, 10**9)), "price": repr(rng.gauss(0, 100)),
                "weight": repr(rng.gauss(0, 1) * 10.0**rng.randrange(-20, 20)), "name": text(rng)}
    return {"id": str(i), "user/id": text(rng) or "-", "more": text(rng),
            **{name: "" if rng.random() < 0.1 else value for name, value in may_lack.items()}}


def write(path, rows, names, delim, rng):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, delimiter=delim, lineterminator=rng.choice(["\n", "\r\n"]),
                                quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
        writer.writeheader()
        writer.writerows(rows)


def value(text_, name):
    if text_ == "" and name in DEFAULTS:
        text_ = str(DEFAULTS[name])
    dtype = DTYPES[name]
    return text_.encode() if dtype == "string" else np.dtype(dtype).type(text_)


def same(name, got, want):
    return got == want if DTYPES[name] == "string" else np.array_equal(np.array(got), np.array(want, DTYPES[name]))


def staged(paths, delim, size):
    rows = stager.files(paths, shuffle=False).csv(DTYPES, DEFAULTS, field_delim=delim, max_record_bytes=4096, buffer_size=size)
    stager.apply(rows.batch(512).map(lambda r: {f"f{i}": r[name] for i, name in enumerate(DTYPES)}), name="csv", replace=True)
    got = {name: [] for name in DTYPES}
    with stager.open("csv") as stream:
        for batch in stream:
            for i, name in enumerate(DTYPES):
                got[name] += list(map(bytes, batch[f"f{i}"])) if DTYPES[name] == "string" else batch[f"f{i}"].tolist()
    return got


def by_csv(paths, delim):
    """What Python's csv module has of them."""
    want = {name: [] for name in DTYPES}
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            for fields in csv.DictReader(file, delimiter=delim):
                for name in DTYPES:
                    want[name].append(value(fields[name], name))
    return want


def by_pandas(paths, delim):
    """What pandas has, with empty fields filled."""
    frames = [pandas.read_csv(path, sep=delim, dtype=DTYPES | {name: "float64" for name in ("count",)} |
                              {name: "object" for name, dtype in DTYPES.items() if dtype == "string"},
                              keep_default_na=False, na_values=[""], float_precision="round_trip") for path in paths]
    table = pandas.concat(frames).fillna(DEFAULTS)
    return {name: [str(v).encode() for v in table[name]] if dtype == "string" else table[name].astype(dtype).tolist()
            for name, dtype in DTYPES.items()}


def by_tf(path, delim):
    kinds = {"int64": tf.int64, "int32": tf.int32, "float32": tf.float32, "float64": tf.float64, "string": tf.string}
    defaults = [tf.constant([DEFAULTS[name]], kinds[dtype]) if name in DEFAULTS else kinds[dtype] for name, dtype in DTYPES.items()]
    names = list(DTYPES)
    with open(path, encoding="utf-8", newline="") as file:
        order = [name for name in next(csv.reader(file, delimiter=delim)) if name in DTYPES]
    rows = tf.data.experimental.make_csv_dataset(
        path, 300, column_defaults=[defaults[names.index(name)] for name in order], select_columns=order, field_delim=delim,
        num_epochs=1, shuffle=False)
    got = {name: [] for name in DTYPES}
    for batch in rows:
        for name in DTYPES:
            got[name] += batch[name].numpy().tolist()
    return got


def differences(what, got, want):
    wrong = [name for name in DTYPES if not same(name, got[name], want[name])]
    for name in wrong:
        at = next((i for i, pair in enumerate(zip(got[name], want[name])) if pair[0] != pair[1]), None)
        print(f"{what}: {name}: {len(got[name])} of {len(want[name])} values; value {at} is "
              f"{got[name][at] if at is not None else ''!r}, not {want[name][at] if at is not None else ''!r}")
    return bool(wrong)


def main():
    failed = cases = 0
    with tempfile.TemporaryDirectory(prefix="stg-peer-") as folder, Daemon(BUILD) as daemon:
        os.chmod(folder, 0o755)
        os.environ.update(daemon.env())
        for case, delim in enumerate([",", "\t", ";"]):
            rng = random.Random(case)
            paths, names = [], [*DTYPES, "more"]
            for number in range(3):
                rng.shuffle(names)
                paths.append(os.path.join(folder, f"{number}.csv"))
                write(paths[-1], [row(rng, number * N + i) for i in range(N)], names, delim, rng)
            want = by_csv(paths, delim)
            cases += 3 + (tf is not None)
            for size in (262144, 1000):
                failed += differences(f"csv, {delim!r}, {size}", staged(paths, delim, size), want)
            failed += differences(f"pandas, {delim!r}", by_pandas(paths, delim), want)
            if tf is not None:
                failed += differences(f"tf.data, {delim!r}", by_tf(paths[0], delim), {k: v[:N] for k, v in want.items()})
    print(f"{cases - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
