# SPDX-License-Identifier: Apache-2.0
"""What trainers of this folder share: Criteo's rows (label, I1-I13, C1-C26 as CSV with a header) as a
pipeline, and rows where none are given."""
from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Dict, Optional

import stager
from stager import ops

N_NUMBERS, N_CATEGORIES = 13, 26
N_BUCKETS = 20_000
MAKE_ROWS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/data/make_criteo.py")


def rows(given: Optional[str], folder: str, n: int = 20_000) -> str:
    """The whole path, or pattern, of rows: of those given, or of n that are generated into folder."""
    if given is not None:
        return os.path.abspath(given)
    path = os.path.join(folder, "rows.csv")
    subprocess.run([sys.executable, MAKE_ROWS, "--rows", str(n), "--seed", "1", "--out", path], check=True)
    return path


def pipeline(path: str, batch_size: int, **staged: Any) -> stager.Pipeline:
    """Batches {label: float32 [B], dense: float32 [B, 13], ids: int32 [B, 26]}."""
    def features(r: stager.Element) -> Dict[str, Any]:
        defaults = [0] + [0.0] * N_NUMBERS + [""] * N_CATEGORIES
        columns = ops.decode_csv(r["record"], record_defaults=defaults)
        counts = ops.stack(columns[1:14], axis=1)
        words = ops.stack(columns[14:40], axis=1)
        ids = ops.string_to_hash_bucket_fast(words, num_buckets=N_BUCKETS)
        return {"label": ops.cast(columns[0], dtype="float32"),
                "dense": ops.log1p(ops.maximum(counts, 0.0)),
                "ids": ops.cast(ids, dtype="int32")}
    return (stager.files(path).text_line(skip_header_lines=1).shuffle(65536, seed=7)
            .batch(batch_size, drop_remainder=True).map(features)
            .staged(capacity=4, num_threads=2, max_batch_bytes="8MiB", **staged))
