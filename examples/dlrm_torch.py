#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small DLRM in PyTorch on Criteo rows (label, I1-I13, C1-C26), which stagerd reads, parses and hashes. It starts
a daemon of its own, unless --pipeline names one that is served.

    python3 examples/dlrm_torch.py                                       generates rows
    python3 examples/dlrm_torch.py --rows rows.csv                       lines with a header; a file, or a pattern
    python3 examples/dlrm_torch.py --rows "s3://bucket/days/*.parquet"   with the AWS_ variables of this process
    python3 examples/dlrm_torch.py --rows rows/                          a folder that Hugging Face datasets saved

two_experiments.py lets two of them share one loader, ddp_torch.py makes one of two processes.
"""
from __future__ import annotations

import argparse
import os
import time
from typing import List

import torch
from torch import nn

import criteo
import stager
import stager.torch
from criteo import N_BUCKETS, N_CATEGORIES, N_NUMBERS

N_DIM = 16


class DLRM(nn.Module):
    """Embeddings of the categories and one of the numbers, their products by pairs, an MLP."""

    first: torch.Tensor
    pairs: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.Embedding.from_pretrained(  # begins with zeros: a draw of them all takes a while
            torch.zeros(N_CATEGORIES * N_BUCKETS, N_DIM), freeze=False, sparse=True)
        self.register_buffer("first", torch.arange(N_CATEGORIES) * N_BUCKETS)
        self.bottom = nn.Sequential(nn.Linear(N_NUMBERS, 64), nn.ReLU(), nn.Linear(64, N_DIM))
        n_vectors = N_CATEGORIES + 1
        self.register_buffer("pairs", torch.tril_indices(n_vectors, n_vectors, -1))
        self.top = nn.Sequential(nn.Linear(N_DIM + n_vectors * (n_vectors - 1) // 2, 64), nn.ReLU(),
                                 nn.Linear(64, 1))

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        numbers = self.bottom(dense)
        vectors = torch.cat([numbers.unsqueeze(1), self.tables(ids + self.first)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        score: torch.Tensor = self.top(torch.cat([numbers, products[:, self.pairs[0], self.pairs[1]]], dim=1))
        return score[:, 0]


def share_cpus(n_trainers: int = 1) -> None:
    """Leaves half of the CPUs to stagerd: threads of torch spin while they wait for one another."""
    torch.set_num_threads(max((os.cpu_count() or 2) // 2 // n_trainers, 1))


def descend(model: nn.Module, lr: float) -> None:
    """A step of gradient descent; of the tables the rows that were looked up alone."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-lr)
                parameter.grad = None


def train(stream: stager.Stream, epochs: int, lr: float) -> List[float]:
    torch.manual_seed(1)
    model = DLRM()
    losses: List[float] = []
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
        if n_rows == 0:
            raise SystemExit("no batch: the file has fewer rows than --batch-size, or none")
        seconds = time.monotonic() - begin
        mean = sum(losses[first:]) / (len(losses) - first)
        print(f"epoch {epoch}: {n_rows} rows, log loss {mean:.4f}, {n_rows / seconds:.0f} rows/s")
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", help="a file, a pattern or a folder; generated when not given")
    parser.add_argument("--pipeline", help="one that a daemon serves, instead of --rows")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()
    share_cpus()
    if options.pipeline is not None:
        with stager.torch.open(options.pipeline) as stream:
            train(stream, options.epochs, options.lr)
        return
    with stager.serve() as server:
        rows = criteo.rows(options.rows, server.folder)
        name = server.apply(criteo.pipeline(rows, options.batch_size, name="dlrm"))
        with server.open(name, writable=True) as stream:
            train(stream, options.epochs, options.lr)


if __name__ == "__main__":
    main()
