# SPDX-License-Identifier: Apache-2.0
"""The training data of nets.py: rows as text, and the same batches of them from a pipeline of stager and from a data
set of PyTorch. criteo: label, 13 numbers, 26 hashed words. clicks: also the items that a user saw before."""
import itertools
import os
import subprocess
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from nets import MODELS, N_BUCKETS, N_CATEGORIES, N_IDS, N_KINDS, N_NUMBERS, ROOT

MAKERS = {"criteo": "tests/data/make_criteo.py", "clicks": "examples/models/make_clicks.py"}
KINDS = {model: kind for model, (_, kind) in MODELS.items()}
FEATURES = {"criteo": ["label", "dense", "ids"],
            "clicks": ["label", "dense", "user", "item", "category", "history"]}
HEADERS = {"criteo": 1, "clicks": 0}
# largest size of a batch in any form; plus 16 for each item in the history
ROW_BYTES = {"criteo": 2048, "clicks": 1024}
USERS, ITEMS = 20_000, 10_000


def make(kind, folder, n_rows, n_seen):
    """The path of n_rows generated rows."""
    path = os.path.join(folder, kind + ".csv")
    arguments = ["--rows", str(n_rows)]
    if kind == "clicks":
        arguments = [str(n_rows), "--seen", str(n_seen), "--users", str(USERS), "--items", str(ITEMS)]
    with open(path, "wb") as out:
        subprocess.run([sys.executable, os.path.join(ROOT, MAKERS[kind]), *arguments], stdout=out, check=True)
    return path


# ---- as a pipeline --------------------------------------------------------------------------

def node(name, op, *inputs, **attributes):
    return {"name": name, "op": op, **({"input": list(inputs)} if inputs else {}), **attributes}


def hashed(name, source, n):
    """Ids of 4 bytes, on both sides."""
    return [node(name + "_hash", "string_to_hash_bucket_fast", source, num_buckets=n),
            node(name, "cast", name + "_hash", dtype="int32")]


def columns(record, *defaults):
    return node("columns", "decode_csv", record, record_defaults=list(defaults))


def criteo(record):
    part = lambda first, n: [f"columns:{first + i}" for i in range(n)]
    return [columns(record, 0.0, *[0.0] * N_NUMBERS, *[""] * N_CATEGORIES),
            node("label", "identity", "columns:0"),
            node("counts", "stack", *part(1, N_NUMBERS), axis=1), node("zero", "constant", value=0.0),
            node("positive", "maximum", "counts", "zero"), node("dense", "log1p", "positive"),
            node("words", "stack", *part(1 + N_NUMBERS, N_CATEGORIES), axis=1), *hashed("ids", "words", N_BUCKETS)]


def clicks(record):
    return [columns(record, 0.0, 0.0, 0.0, "", "", "", ""), node("label", "identity", "columns:0"),
            node("dense", "stack", "columns:1", "columns:2", axis=1), *hashed("user", "columns:3", N_IDS),
            *hashed("item", "columns:4", N_IDS), *hashed("category", "columns:5", N_KINDS),
            node("seen", "string_split", "columns:6", result_type="sparse"),
            node("seen_hash", "string_to_hash_bucket_fast", "seen", num_buckets=N_IDS),
            node("history_wide", "sparse_to_dense", "seen:1", "seen:2", "seen_hash", default_value=-1),
            node("history", "cast", "history_wide", dtype="int32")]


GRAPHS = {"criteo": criteo, "clicks": clicks}


def pipeline(name, kind, path, n_rows, n_seen, smart_stage, **staged):
    """Batches without an end. smart_stage: the boundary stands before all computation, and `run` fetches the results of
    nodes that did not move. None: all computation lies before the boundary, and batches carry the features."""
    behind = smart_stage is not None
    graph = GRAPHS[kind]("staged:record" if behind else "record")
    row_bytes = ROW_BYTES[kind] + 16 * n_seen * (kind == "clicks")
    made = {"name": name, "dataset": [{"files": {"pattern": [path]}}, {"text_line": {"skip_header_lines": HEADERS[kind]}},
                                      {"repeat": {}}, {"batch": {"batch_size": n_rows, "drop_remainder": True}}],
            "graph": graph,
            "staged": {"capacity": 4, "max_batch_bytes": n_rows * row_bytes + (1 << 16), **staged}}
    if behind:
        # A target does not move; its inputs may.
        graph += [node("out_" + feature, "identity", feature) for feature in FEATURES[kind]]
        made.update(smart_stage=smart_stage, targets=["out_" + feature for feature in FEATURES[kind]])
        made["staged"]["features"] = {"record": "record"}
    else:
        made["staged"]["features"] = {feature: feature for feature in FEATURES[kind]}
    return made


# ---- as a data set of PyTorch ---------------------------------------------------------------

M64 = (1 << 64) - 1
K2 = 0x9AE16A3B2F90404F


def fingerprint64(text):
    """FarmHash's Fingerprint64 of at most 16 bytes."""
    def rotate(x, n):
        return (x >> n | x << 64 - n) & M64

    def mix(u, v, by):
        a = (u ^ v) * by & M64
        a ^= a >> 47
        b = (v ^ a) * by & M64
        b ^= b >> 47
        return b * by & M64
    n, by = len(text), (K2 + 2 * len(text)) & M64
    word = lambda at, size: int.from_bytes(text[at:at + size], "little")
    if n > 16:
        raise ValueError(f"{text!r} has more than 16 bytes")
    if n >= 8:
        a, b = (word(0, 8) + K2) & M64, word(n - 8, 8)
        return mix((rotate(b, 37) * by + a) & M64, (rotate(a, 25) + b) * by & M64, by)
    if n >= 4:
        return mix((n + (word(0, 4) << 3)) & M64, word(n - 4, 4), by)
    if n > 0:
        y, z = text[0] + (text[n >> 1] << 8), n + (text[-1] << 2)
        a = (y * K2 ^ z * 0xC3A5C85C97CB3127) & M64
        return (a ^ a >> 47) * K2 & M64
    return K2


class Ids(dict):
    """{word: its bucket}, hashed at its first use, as in a program without a hash in C."""

    def __init__(self, n):
        super().__init__()
        self.n = n

    def __missing__(self, word):
        self[word] = found = fingerprint64(word.encode()) % self.n
        return found

    def of(self, words):
        return np.fromiter(map(self.__getitem__, words), np.int32)


def numbers(rows, first, n):
    return np.array([[value or 0 for value in row[first:first + n]] for row in rows], np.float32)


def parse_criteo(lines, ids):
    rows = [line.split(",") for line in lines]
    words = ids.setdefault("ids", Ids(N_BUCKETS)).of(itertools.chain.from_iterable(row[1 + N_NUMBERS:] for row in rows))
    return {"label": numbers(rows, 0, 1)[:, 0], "dense": np.log1p(np.maximum(numbers(rows, 1, N_NUMBERS), np.float32(0))),
            "ids": words.reshape(-1, N_CATEGORIES)}


def parse_clicks(lines, ids):
    rows = [line.split(",") for line in lines]
    buckets = {"user": (3, N_IDS), "item": (4, N_IDS), "category": (5, N_KINDS)}
    found = {name: ids.setdefault(name, Ids(n)).of(row[at] for row in rows) for name, (at, n) in buckets.items()}
    seen = [ids["item"].of(row[6].split()) for row in rows]
    history = np.full((len(rows), max(map(len, seen))), -1, np.int32)
    for row, items in zip(history, seen):
        row[:len(items)] = items
    return {"label": numbers(rows, 0, 1)[:, 0], "dense": numbers(rows, 1, 2), **found, "history": history}


PARSERS = {"criteo": parse_criteo, "clicks": parse_clicks}


class Batches(Dataset):
    """Item i is batch i of a file, parsed by the caller."""

    def __init__(self, kind, path, n_rows):
        self.kind, self.path, self.ids = kind, path, {}
        with open(path, "rb") as file:
            offsets = np.cumsum([0] + [len(line) for line in file])[HEADERS[kind]::n_rows].tolist()
        self.ranges = list(zip(offsets, offsets[1:]))

    def __len__(self):
        return len(self.ranges)

    def __getitem__(self, i):
        begin, end = self.ranges[i]
        with open(self.path, "rb") as file:
            file.seek(begin)
            lines = file.read(end - begin).decode().splitlines()
        return {name: torch.from_numpy(array) for name, array in PARSERS[self.kind](lines, self.ids).items()}


class Endless(Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return itertools.cycle(range(self.n))


def loader(kind, path, n_rows, workers, pin):
    batches = Batches(kind, path, n_rows)
    return DataLoader(batches, batch_size=None, sampler=Endless(len(batches)), num_workers=workers, pin_memory=pin)
