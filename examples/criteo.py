# SPDX-License-Identifier: Apache-2.0
"""What trainers of this folder share: Criteo's rows (label, I1-I13, C1-C26; as CSV with a header, Parquet or
Arrow) as a pipeline, and rows where none are given."""
from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Dict, List, Optional

import stager
from stager import ops

N_NUMBERS, N_CATEGORIES = 13, 26
N_BUCKETS = 20_000
NUMBERS = [f"I{i}" for i in range(1, N_NUMBERS + 1)]
CATEGORIES = [f"C{i}" for i in range(1, N_CATEGORIES + 1)]
MAKE_ROWS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/make_criteo.py")


def rows(given: Optional[str], folder: str, n: int = 20_000) -> str:
    """The whole path, or pattern, of rows: of those given, or of n that are generated into folder."""
    if given is not None:
        return given if "://" in given else os.path.abspath(given)
    path = os.path.join(folder, "rows.csv")
    subprocess.run([sys.executable, MAKE_ROWS, "--rows", str(n), "--seed", "1", "--out", path], check=True)
    return path


def from_lines(r: stager.Element) -> List[Any]:
    """The label and the other columns of lines of CSV."""
    return list(ops.decode_csv(r["record"], record_defaults=[0] + [0.0] * N_NUMBERS + [""] * N_CATEGORIES))


def from_columns(r: stager.Element) -> List[Any]:
    numbers = [ops.cast(r[name], dtype="float32") for name in NUMBERS]
    return [r["label"], *numbers, *(r[name] for name in CATEGORIES)]


def table(path: str) -> stager.Dataset:
    """The columns of Parquet files, or of Arrow files, of which datasets of Hugging Face save a folder."""
    columns = {"label": "int64", **dict.fromkeys(NUMBERS, "float64"), **dict.fromkeys(CATEGORIES, "string")}
    defaults = {**dict.fromkeys(NUMBERS, 0.0), **dict.fromkeys(CATEGORIES, "")}
    read = stager.parquet if path.endswith(".parquet") else stager.arrow
    return read(path, columns, defaults)


def pipeline(path: str, batch_size: int, **staged: Any) -> stager.Pipeline:
    """Batches {label: float32 [B], dense: float32 [B, 13], ids: int32 [B, 26]}. path: a pattern or a URL that ends with
    .parquet or .arrow, a folder of datasets, or a pattern of lines of CSV."""
    is_table = path.endswith((".parquet", ".arrow")) or os.path.isdir(path)
    rows_of = table(path) if is_table else stager.files(path).text_line(skip_header_lines=1)

    def features(r: stager.Element) -> Dict[str, Any]:
        columns = from_columns(r) if is_table else from_lines(r)
        counts = ops.stack(columns[1:14], axis=1)
        words = ops.stack(columns[14:40], axis=1)
        ids = ops.string_to_hash_bucket_fast(words, num_buckets=N_BUCKETS)
        return {"label": ops.cast(columns[0], dtype="float32"),
                "dense": ops.log1p(ops.maximum(counts, 0.0)),
                "ids": ops.cast(ids, dtype="int32")}
    return (rows_of.shuffle(65536, seed=7)
            .batch(batch_size, drop_remainder=True).map(features)
            .staged(capacity=4, num_threads=2, max_batch_bytes="8MiB", **staged))
