# SPDX-License-Identifier: Apache-2.0
"""SPDL: a pipeline of threads in the trainer's process, or in a separate one from which batches cross through its pool
of shared memory. Its decoder needs the libraries of FFmpeg; here Pillow decodes images in its threads, without Python's
lock."""
import functools
import random

import numpy as np
from spdl.pipeline import PipelineBuilder, SharedMemorySegmentPool, iterate_in_subprocess

import cases
from contestants import plain

NAME = "SPDL"
NEEDS = ["spdl", "numpy", "pillow"]
OUT = {"process of its own, segment pool": {"apart": True}}
VARIANTS = {"ready": OUT, "transport": OUT, "jpeg": {"threads": {"apart": False}, **OUT}}
N_SEGMENTS = 6


class Copies:
    """The pool makes the copy."""

    def __init__(self, n_bytes, n):
        self.buffer, self.n = np.full((1, n_bytes // 4), cases.VALUE, np.float32), n

    def __iter__(self):
        for _ in range(self.n):
            yield {"x": self.buffer}


def copied(n_bytes, n):
    return Copies(n_bytes, n)


def decode(path):
    return plain.normalized(plain.crop(path, random))


def collate(images):
    return {"image": np.stack(images)}


class Paths:
    def __init__(self, paths, is_endless):
        self.paths, self.is_endless = paths, is_endless

    def __iter__(self):
        while True:
            yield from random.sample(self.paths, len(self.paths))
            if not self.is_endless:
                return


class Images:
    def __init__(self, paths, rows, n_threads, is_endless):
        self.paths, self.rows, self.n_threads = Paths(paths, is_endless), rows, n_threads

    def __iter__(self):
        builder = PipelineBuilder().add_source(self.paths).pipe(decode, concurrency=self.n_threads)
        pipeline = builder.aggregate(self.rows, drop_last=True).pipe(collate).add_sink(2).build(num_threads=self.n_threads + 1)
        with pipeline.auto_stop():
            yield from pipeline


def images(paths, rows, n_threads, is_endless):
    return Images(paths, rows, n_threads, is_endless)


class Source:
    def __init__(self, case, data, apart):
        self.case, self.data, self.apart = case, data, apart
        self.made = {}

    def make(self, is_endless):
        if self.case.kind in ("transport", "ready"):
            n_bytes = self.case.options["bytes"]
            return n_bytes, functools.partial(copied, n_bytes, 1 << 40 if is_endless else 8)
        rows = self.case.options["rows"]
        return rows * 3 * 4 * cases.SIDE**2, functools.partial(images, self.data["images"], rows, self.data["cores"], is_endless)

    def batches(self, epochs=None):
        if epochs not in self.made:
            n_bytes, make = self.make(epochs is None)
            pool = SharedMemorySegmentPool(n_bytes + 4096, N_SEGMENTS) if self.apart else None
            self.made[epochs] = iterate_in_subprocess(make, arena=pool, daemon=True) if self.apart else make()
        return iter(self.made[epochs])

    def close(self):
        self.made = {}


def prepare(case, data, apart):
    return Source(case, data, apart)
