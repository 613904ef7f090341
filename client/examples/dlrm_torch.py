#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small DLRM in PyTorch on Criteo rows (label, I1-I13, C1-C26 as CSV with a header), which stagerd
reads, parses and hashes. It starts a daemon of its own, unless --pipeline names one that is served.

    python3 tests/data/make_criteo.py --rows 100000 --seed 1 --out rows.csv
    python3 client/examples/dlrm_torch.py --rows $PWD/rows.csv --epochs 3

Two of them with --pipeline NAME, where NAME has `num_clients: 2` and `delivery: broadcast`, share one
loader.
"""
import argparse
import time

import torch
from torch import nn

import stager
import stager.torch
from stager import ops

N_NUMBERS, N_CATEGORIES = 13, 26
N_BUCKETS, N_DIM = 20_000, 16


def pipeline(rows, batch_size):
    """Batches {label: float32 [B], dense: float32 [B, 13], ids: int64 [B, 26]}."""
    def features(r):
        defaults = [0] + [0.0] * N_NUMBERS + [""] * N_CATEGORIES
        columns = ops.decode_csv(r["record"], record_defaults=defaults)
        counts = ops.stack(columns[1:14], axis=1)
        words = ops.stack(columns[14:40], axis=1)
        return {"label": ops.cast(columns[0], dtype="float32"),
                "dense": ops.log1p(ops.maximum(counts, 0.0)),
                "ids": ops.string_to_hash_bucket_fast(words, num_buckets=N_BUCKETS)}
    return (stager.files(rows).text_line(skip_header_lines=1).shuffle(65536, seed=7)
            .batch(batch_size, drop_remainder=True).map(features)
            .staged(name="dlrm", capacity=4, num_threads=2, max_batch_bytes="8MiB"))


class DLRM(nn.Module):
    """Embeddings of the categories and one of the numbers, their products by pairs, an MLP."""

    def __init__(self):
        super().__init__()
        self.tables = nn.Embedding.from_pretrained(  # begins with zeros: a draw of them all takes a while
            torch.zeros(N_CATEGORIES * N_BUCKETS, N_DIM), freeze=False, sparse=True)
        self.register_buffer("first", torch.arange(N_CATEGORIES) * N_BUCKETS)
        self.bottom = nn.Sequential(nn.Linear(N_NUMBERS, 64), nn.ReLU(), nn.Linear(64, N_DIM))
        n_vectors = N_CATEGORIES + 1
        self.register_buffer("pairs", torch.tril_indices(n_vectors, n_vectors, -1))
        self.top = nn.Sequential(nn.Linear(N_DIM + n_vectors * (n_vectors - 1) // 2, 64), nn.ReLU(),
                                 nn.Linear(64, 1))

    def forward(self, dense, ids):
        numbers = self.bottom(dense)
        vectors = torch.cat([numbers.unsqueeze(1), self.tables(ids + self.first)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([numbers, products[:, self.pairs[0], self.pairs[1]]], dim=1))[:, 0]


def descend(model, lr):
    """A step of gradient descent; of the tables the rows that were looked up alone."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(parameter.grad, alpha=-lr)
            parameter.grad = None


def train(stream, epochs, lr):
    torch.manual_seed(1)
    model = DLRM()
    losses = []
    for epoch in range(epochs):
        begin, n_rows, first = time.monotonic(), 0, len(losses)
        for batch in stream:
            rows = stager.torch.tree(batch)
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(rows["dense"], rows["ids"]), rows["label"])
            loss.backward()
            descend(model, lr)
            losses.append(loss.item())
            n_rows += len(rows["label"])
        seconds = time.monotonic() - begin
        mean = sum(losses[first:]) / max(len(losses) - first, 1)
        print(f"epoch {epoch}: {n_rows} rows, log loss {mean:.4f}, {n_rows / seconds:.0f} rows/s")
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", help="absolute path, or a pattern")
    parser.add_argument("--pipeline", help="one that a daemon serves, instead of --rows")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()
    if (options.rows is None) == (options.pipeline is None):
        parser.error("say --rows or --pipeline")
    if options.pipeline is not None:
        with stager.torch.open(options.pipeline) as stream:
            train(stream, options.epochs, options.lr)
        return
    with stager.serve() as server:
        name = server.apply(pipeline(options.rows, options.batch_size))
        with server.open(name, writable=True) as stream:
            train(stream, options.epochs, options.lr)


if __name__ == "__main__":
    main()
