# SPDX-License-Identifier: Apache-2.0
"""Grain: reader threads, or worker processes (mp_prefetch). Pillow decodes."""
import glob
import os
import random

import grain
import numpy as np
from absl import flags

import cases
from contestants import plain

NAME = "Grain"
NEEDS = ["grain", "numpy", "pillow"]
WORKER = {"1 worker": {"workers": 1}}
VARIANTS = {"ready": WORKER, "transport": WORKER,
            "jpeg": {"threads": {"workers": 0}, **WORKER, "2 workers": {"workers": 2}}, "first": WORKER}


class Copies:
    """Moving it into shared memory is the copy."""

    def __init__(self, n_bytes, n):
        self.buffer, self.n = np.full((1, n_bytes // 4), cases.VALUE, np.float32), n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": self.buffer}


def decode(path):
    return {"image": plain.normalized(plain.crop(path, random))}


def read(path):
    with open(path, "rb") as file:
        return {"bytes": np.frombuffer(file.read(), np.uint8)}


class Source:
    def __init__(self, case, data, workers):
        self.case, self.data, self.workers = case, data, workers
        self.made = {}

    def items(self, is_endless):
        if self.case.kind in ("transport", "ready"):
            return grain.MapDataset.source(Copies(self.case.options["bytes"], 1 << 40 if is_endless else 8))
        is_first = self.case.kind == "first"
        paths = glob.glob(os.path.join(self.data["tree"], "*/*")) if is_first else self.data["images"]
        files = grain.MapDataset.source(paths).shuffle(seed=1)
        files = files.repeat() if is_endless else files
        return files.map(read if is_first else decode).batch(self.case.options["rows"], drop_remainder=True)

    def batches(self, epochs=None):
        if epochs not in self.made:
            dataset = self.items(epochs is None).to_iter_dataset(
                grain.ReadOptions(num_threads=self.data["cores"] if self.workers == 0 else 1, prefetch_buffer_size=2))
            if self.workers:
                dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=self.workers, per_worker_buffer_size=2))
            self.made[epochs] = dataset
        return iter(self.made[epochs])

    def close(self):
        self.made = {}


def prepare(case, data, workers):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["peers"])
    return Source(case, data, workers)
