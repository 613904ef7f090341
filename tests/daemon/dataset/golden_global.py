#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the orders that test_dataset_global.c expects: the algorithm of daemon/dataset/steps/global_shuffle.h and
permutation.h, implemented in Python with numpy's Philox."""
from golden_shuffle import M, below, words

BLOCKS, WINDOW = 6, 7


def mix(x):
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd & M
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53 & M
    return x ^ x >> 33


def feistel(n, seed, pass_, epoch):
    half = next(h for h in range(1, 32) if 4**h >= n)
    keys = [words(seed, BLOCKS, i // 4, epoch, pass_)[i % 4] for i in range(10)]

    def encrypt(value):
        left, right = value >> half, value & (1 << half) - 1
        for key in keys:
            left, right = right, left ^ mix((key + right) & M) >> (64 - half)
        return left << half | right

    def at(place):
        place = encrypt(place)
        return place if place < n else at(place)
    return at


def table(n, seed, pass_, epoch):
    order = list(range(n))
    for i in range(n, 1, -1):
        k = below(seed, BLOCKS, pass_, epoch, i, i)
        order[i - 1], order[k] = order[k], order[i - 1]
    return order.__getitem__


def shuffle(n, block, window, seed, pass_=0, epoch=0):
    """window: blocks."""
    blocks = [list(range(n))[i:i + block] for i in range(0, n, block)]
    order = (table if len(blocks) <= 1024 else feistel)(len(blocks), seed, pass_, epoch)
    order = [order(i) for i in range(len(blocks))]
    return emit(blocks, [order[i:i + window] for i in range(0, len(blocks), window)], seed, pass_, epoch)


def divide(parts, block, window):
    """Blocks of parts (numbers of records): small ones together, and pieces of those of which two do not fit a window."""
    blocks, held, at, piece = [], [], 0, max(window // 8, 1)
    for n in parts:
        part = list(range(at, at + n))
        at += n
        if held and len(held) + n > block:
            blocks, held = blocks + [held], []
        if n > max(window // 2, piece):
            k = -(-n // piece)
            blocks += [part[i * (n // k):(i + 1) * (n // k)] for i in range(k - 1)] + [part[(k - 1) * (n // k):]]
        else:
            held += part
            if len(held) >= block:
                blocks, held = blocks + [held], []
    return [b for b in blocks + [held] if b]


def shuffle_parts(parts, block, window, seed, pass_=0, epoch=0):
    """window: records."""
    blocks = divide(parts, block, window)
    order = (table if len(blocks) <= 1024 else feistel)(len(blocks), seed, pass_, epoch)
    windows, held = [], 0
    for number in map(order, range(len(blocks))):
        n = len(blocks[number])
        if not windows or held + n > window:
            windows.append([])
            held = 0
        windows[-1].append(number)
        held += n
    return emit(blocks, windows, seed, pass_, epoch)


def emit(blocks, windows, seed, pass_, epoch):
    out = []
    for window in windows:
        records = [record for number in sorted(window) for record in blocks[number]]
        for i in range(len(records), 1, -1):
            k = below(seed, WINDOW, pass_, epoch, len(out) + i - 1, i)
            records[i - 1], records[k] = records[k], records[i - 1]
        out += records
    return out


if __name__ == "__main__":
    for pass_, epoch in [(0, 0), (0, 1), (1, 0)]:
        print(f"range(14) block 3 window 2 seed 7 pass {pass_} epoch {epoch}:", *shuffle(14, 3, 2, 7, pass_, epoch))
    # Files a and b of make_parquet.py --groups 6 --rows 4 and --groups 1 --rows 11; 14 records a window, of which 1 makes a block.
    print("parts:", *shuffle_parts([4] * 6 + [11], 1, 14, 7, 1, 1))
    print("range(1500) exact, window 4, seed 7, the first 12:", *shuffle(1500, 1, 4, 7)[:12])
