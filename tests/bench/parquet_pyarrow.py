#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Criteo-like Parquet, 40 columns, snappy and dictionaries as pyarrow writes them, to tensors with 26 hashed columns:
stagerd compared with pyarrow, NumPy and farmhash ("ratio"), with pyarrow that decodes and hashes nothing ("bare"), and
with stagerd on the same rows as CSV ("csv").

    parquet_pyarrow.py BUILD [SECONDS]    with a Python that has pyarrow, NumPy and pyfarmhash

The strings have as many different values as those of the Criteo Kaggle set, few of which are frequent. The empty fields
are nulls. pyarrow runs in the fastest of several ways, found by trials: with dictionaries or strings, at once or in
batches. Both sides have one thread.
"""
import os
import sys
import time

from peer import N_BUCKETS, SKIPPED, STRINGS, TITLES, Bench, compared, hash_strings, report, staged

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
    import pyarrow.parquet as pq
    from farmhash import fingerprint64
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

N_ROWS = 500000
NUMBERS = TITLES[1:14]
# Of the training set of Criteo Kaggle; then, in percent, what is empty in its first rows, as in criteo.c.
N_VALUES = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10,
            5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]
EMPTY_NUMBERS = [45, 0, 17, 17, 3, 26, 5, 0, 5, 45, 5, 79, 17]
EMPTY_STRINGS = [0, 0, 4, 4, 0, 16, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 41, 41, 4, 80, 0, 4, 41, 41]
DIGITS = [2, 3, 3, 2, 6, 3, 2, 2, 3, 1, 2, 1, 2]


def strings(rng, column, n):
    """Value k of a column is about as frequent as 1 / k."""
    ranks = np.power(float(N_VALUES[column]), rng.random(n)).astype(np.int64)
    ranks, codes = np.unique(ranks, return_inverse=True)
    mixed = ranks.astype(np.uint64) * np.uint64(0x9e3779b97f4a7c15) + np.uint64(column)
    values = pa.array([f"{int(value) >> 32:08x}" for value in mixed])
    mask = rng.random(n) * 100 < EMPTY_STRINGS[column]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=mask), values).cast(pa.string())


def table(n):
    rng = np.random.default_rng(20240607)
    columns = {"label": pa.array((rng.random(n) < 0.26).astype(np.int32))}
    for i, title in enumerate(NUMBERS):
        values = (rng.random(n) * 10.0 ** (1 + rng.integers(0, DIGITS[i], n))).astype(np.int64)
        columns[title] = pa.array(values.astype(np.float32), mask=rng.random(n) * 100 < EMPTY_NUMBERS[i])
    for i, title in enumerate(STRINGS):
        columns[title] = strings(rng, i, n)
    return pa.table(columns)


# ---- pyarrow ----

def hashes(values):
    """The buckets of an array of different strings, and behind them that of the empty one, for nulls."""
    texts = values.to_pylist() + [""]
    return np.fromiter((fingerprint64(text) % N_BUCKETS for text in texts), np.int64, len(texts))


def buckets(column, known):
    """known: the last dictionary, and its buckets."""
    parts = []
    for chunk in column.chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if known.get("of") is None or not known["of"].equals(coded.dictionary):
            known.update(of=coded.dictionary, buckets=hashes(coded.dictionary))
        parts.append(known["buckets"][pc.fill_null(coded.indices, len(coded.dictionary)).to_numpy()])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def tensors(rows):
    got = {"label": rows["label"].to_numpy()}
    for title in NUMBERS:
        got[title] = pc.fill_null(rows[title], 0.0).to_numpy()
    for title in STRINGS:
        got[title] = buckets(rows[title], {})
    return got


def pass_of(path, hashed, as_dictionaries, batch_rows):
    file = pq.ParquetFile(path, read_dictionary=STRINGS if as_dictionaries else None)
    if batch_rows:
        parts = (pa.Table.from_batches([b]) for b in file.iter_batches(batch_rows, use_threads=False))
    else:
        parts = (file.read_row_group(i, use_threads=False) for i in range(file.num_row_groups))
    return [tensors(part) if hashed else part.num_rows for part in parts]


def rates(run, seconds):
    cpu, began, n = time.process_time(), time.perf_counter(), 0
    while n == 0 or time.perf_counter() - began < seconds:
        run()
        n += N_ROWS
    return {"rows_per_s": n / (time.perf_counter() - began), "rows_per_cpu_s": n / (time.process_time() - cpu)}


def fastest(path, hashed):
    settings = [(as_dictionaries, rows) for as_dictionaries in (True, False) for rows in (0, 65536)]
    return max(settings, key=lambda s: max(rates(lambda: pass_of(path, hashed, *s), 0)["rows_per_cpu_s"]
                                           for _ in range(2)))


# ---- stagerd ----

def of_parquet(path):
    columns = {title: "string" for title in STRINGS} | {title: "float32" for title in NUMBERS} | {"label": "int32"}
    defaults = {title: 0.0 for title in NUMBERS} | {title: "" for title in STRINGS}
    nodes, features = [], {title: title for title in TITLES}
    hash_strings(features, nodes)
    return {"dataset": [{"files": {"pattern": [path]}}, {"parquet": {"columns": columns, "defaults": defaults}},
                        {"repeat": {}}, {"batch": {"batch_size": 4096}}],
            "graph": nodes, "staged": staged(features, "4MiB", 1)}


def of_csv(path):
    defaults = [0] + [0.0] * 13 + [""] * len(STRINGS)
    nodes = [{"name": "columns", "op": "decode_csv", "input": ["record"], "record_defaults": defaults}]
    features = {title: f"columns:{i}" for i, title in enumerate(TITLES)}
    hash_strings(features, nodes)
    return {"dataset": [{"files": {"pattern": [path]}}, {"text_line": {}}, {"repeat": {}},
                        {"batch": {"batch_size": 4096}}],
            "graph": nodes, "staged": staged(features, "4MiB", 1)}


def main():
    with Bench(__doc__, 24.0) as bench:
        rows = table(N_ROWS)
        path = os.path.join(bench.folder, "rows.parquet")
        csv = os.path.join(bench.folder, "rows.csv")
        pq.write_table(rows, path, compression="snappy")
        pyarrow.csv.write_csv(rows, csv, pyarrow.csv.WriteOptions(include_header=False, quoting_style="none"))
        ways = {hashed: fastest(path, hashed) for hashed in (True, False)}
        sides = {"ours": lambda s: bench.drain(of_parquet(path), s), "csv": lambda s: bench.drain(of_csv(csv), s),
                 "": lambda s: rates(lambda: pass_of(path, True, *ways[True]), s),
                 "bare": lambda s: rates(lambda: pass_of(path, False, *ways[False]), s)}
        best = {name: {"rows_per_s": 0, "rows_per_cpu_s": 0} for name in sides}
        for _ in range(3):
            for name, measure in sides.items():
                got = measure(bench.seconds / 12)
                best[name] = {key: max(best[name][key], got[key]) for key in best[name]}
        figures = {}
        for name in ("", "bare", "csv"):
            figures.update(compared(name and f"{name}_", best["ours"], best[name]))
        report("parquet_pyarrow", figures | {"baseline_setting": str(ways[True]),
                                             "bare_baseline_setting": str(ways[False])})


if __name__ == "__main__":
    main()
