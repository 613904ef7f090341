# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DataLoader. Pillow, NumPy and plain Python do the work for which it has no code, as in its users'
programs."""
import glob
import os
import random

import numpy as np
import torch
import torch.utils.data as tud

import cases
from contestants import plain

NAME = "PyTorch DataLoader"
NEEDS = ["torch", "numpy", "pillow", "pyfarmhash", "tfrecord"]
WORKERS = {"0 workers": {"workers": 0}, "1 worker": {"workers": 1}, "2 workers": {"workers": 2}}
VARIANTS = {
    "ready": WORKERS,
    "transport": WORKERS,
    "csv": WORKERS,
    "tfrecord": WORKERS,
    "jpeg": WORKERS,
    "share": {"1 worker each": {"workers": 1}},
    "first": {"1 worker, spawned": {"workers": 1, "context": "spawn"}, "1 worker, forked": {"workers": 1}},
    "border": {"1 worker": {"workers": 1, "persistent": False},
               "1 worker, persistent": {"workers": 1}, "2 workers, persistent": {"workers": 2}},
}


class Buffer(tud.Dataset):
    """Its rows are batches; collating one of them into shared memory is the copy."""

    def __init__(self, n_bytes, n):
        self.buffer, self.n = torch.full([n_bytes // 4], cases.VALUE), n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": self.buffer}


def parts(paths):
    """The share of this worker."""
    info = tud.get_worker_info()
    return paths if info is None else paths[info.id::info.num_workers]


class Batches(tud.IterableDataset):
    """read: a path -> batches of columns."""

    def __init__(self, paths, read, rows, is_endless):
        self.paths, self.read, self.rows, self.is_endless = paths, read, rows, is_endless

    def __iter__(self):
        while True:
            for path in parts(self.paths):
                yield from self.read(path, self.rows)
            if not self.is_endless:
                return


class Images(tud.Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in (cases.MEAN, cases.STD))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        pixels = torch.from_numpy(plain.crop(self.paths[i], random)).permute(2, 0, 1).contiguous()
        return {"image": pixels.float().sub_(self.mean).div_(self.std)}


class Endless(tud.Sampler):
    """Epoch after epoch, each in another order, without a border."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        while True:
            yield from torch.randperm(self.n).tolist()


class Files(tud.Dataset):
    """Like torchvision's ImageFolder, which lists its files when it is created."""

    def __init__(self, pattern):
        self.paths = sorted(glob.iglob(pattern))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as file:
            return file.read()


def as_it_is(batch):
    return {"bytes": batch}


class Source:
    def __init__(self, case, data, workers, persistent=True, context=None):
        self.case, self.data = case, data
        self.options = {"num_workers": workers, "multiprocessing_context": context,
                        "persistent_workers": persistent and workers > 0}
        self.loaders = {}

    def make(self, is_endless):
        kind, rows = self.case.kind, self.case.options.get("rows")
        if kind in ("transport", "ready"):
            return tud.DataLoader(Buffer(self.case.options["bytes"], 1 << 40 if is_endless else 8), batch_size=1, **self.options)
        if kind in ("csv", "border", "tfrecord"):
            read = plain.read_examples if kind == "tfrecord" else plain.read_csv
            return tud.DataLoader(Batches(self.data[kind], read, rows, is_endless), batch_size=None, **self.options)
        if kind == "first":
            return tud.DataLoader(Files(os.path.join(self.data["tree"], "*/*")), batch_size=rows, shuffle=True,
                                  collate_fn=as_it_is, **self.options)
        images = Images(self.data["images"])
        sampler = Endless(len(images)) if is_endless else None
        return tud.DataLoader(images, batch_size=rows, sampler=sampler, shuffle=not is_endless, drop_last=True, **self.options)

    def batches(self, epochs=None):
        if epochs not in self.loaders:
            self.loaders[epochs] = self.make(epochs is None)
        return iter(self.loaders[epochs])

    def close(self):
        self.loaders = {}


def prepare(case, data, **settings):
    torch.set_num_threads(1)
    return Source(case, data, **settings)
