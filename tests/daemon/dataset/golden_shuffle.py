#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the orders that test_dataset_shuffle.c expects: the algorithm of docs/dataset.md, implemented with numpy's
Philox (4x64, ten rounds)."""
import numpy as np

SHUFFLE, FILES = 1, 2
M = 2**64 - 1


def words(seed, purpose, block, epoch, pass_):
    # numpy adds one to the counter before it draws.
    v = ((block | epoch << 64 | pass_ << 128) - 1) % (1 << 256)
    counter = np.array([v >> (64 * i) & M for i in range(4)], dtype=np.uint64)
    key = np.array([seed, purpose], dtype=np.uint64)
    return [int(x) for x in np.random.Philox(key=key, counter=counter).random_raw(4)]


def below(seed, purpose, pass_, epoch, index, n):
    return words(seed, purpose, index // 4, epoch, pass_)[index % 4] * n >> 64


def shuffle(items, size, seed, pass_=0, epoch=0):
    items, buffer, out = list(items), [], []
    while True:
        while items and len(buffer) < size:
            buffer.append(items.pop(0))
        if not buffer:
            return out
        at = below(seed, SHUFFLE, pass_, epoch, len(out), len(buffer))
        out.append(buffer[at])
        last = buffer.pop()
        if at < len(buffer):
            buffer[at] = last


def files(n, seed, pass_=0, epoch=0):
    order = list(range(n))
    for i in range(n, 1, -1):
        j = below(seed, FILES, pass_, epoch, n - i, i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


if __name__ == "__main__":
    for seed, pass_, epoch in [(7, 0, 0), (7, 0, 1), (7, 1, 0), (0, 0, 0), (8, 0, 0)]:
        print(f"range(12) shuffle(5) seed {seed} pass {pass_} epoch {epoch}:",
              *shuffle(range(12), 5, seed, pass_, epoch))
    for epoch in (0, 1):
        print(f"six files seed 3 epoch {epoch}:", *files(6, 3, 0, epoch))
