#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rows that look like the Criteo display advertising set, as CSV with a header: label, 13
numbers ("260.0", empty, or -1), 26 categories of 8 hex digits or empty.

The label is drawn from a logistic model of the features, so that a trainer has something to find.
The same arguments give the same bytes.

    make_criteo.py --rows 100000 --seed 1 --out FILE
"""
import argparse
import hashlib
import math
import random
import sys

N_NUMBERS, N_CATEGORIES = 13, 26
COLUMNS = (["label"] + [f"I{i + 1}" for i in range(N_NUMBERS)] +
           [f"C{i + 1}" for i in range(N_CATEGORIES)])
BIAS = -1.2


def number_column(rng, i, n):
    """(texts, contributions to the logit)."""
    weight = rng.uniform(-0.5, 0.5)
    missing = rng.uniform(0.0, 0.4)
    scale = math.exp(rng.uniform(0.0, 5.0))
    texts, logits = [], []
    for _ in range(n):
        if rng.random() < missing:
            texts.append("")
            logits.append(0.0)
            continue
        value = -1 if i == 1 and rng.random() < 0.1 else int(-math.log(1.0 - rng.random()) * scale)
        texts.append(f"{value}.0")
        logits.append(weight * (math.log1p(max(value, 0)) - math.log1p(scale) / 2))
    return texts, logits


def category_column(rng, i, n):
    """As number_column. Few values are frequent, many are rare."""
    n_values = int(math.exp(rng.uniform(math.log(3), math.log(5000))))
    missing = rng.uniform(0.0, 0.3) if i % 3 == 2 else 0.0
    names = [hashlib.sha256(f"C{i + 1}:{k}".encode()).hexdigest()[:8] for k in range(n_values)]
    weights = [rng.uniform(-0.7, 0.7) for _ in range(n_values)]
    texts, logits = [], []
    for _ in range(n):
        if rng.random() < missing:
            texts.append("")
            logits.append(0.0)
            continue
        k = min(int(n_values * rng.random() ** 3), n_values - 1)
        texts.append(names[k])
        logits.append(weights[k])
    return texts, logits


def make(n, seed):
    """Yields the lines, the header first."""
    rng = random.Random(seed)
    columns, total = [], [BIAS] * n
    for i in range(N_NUMBERS + N_CATEGORIES):
        kind = number_column if i < N_NUMBERS else category_column
        texts, logits = kind(rng, i if i < N_NUMBERS else i - N_NUMBERS, n)
        columns.append(texts)
        total = [a + b for a, b in zip(total, logits)]
    labels = ["1" if rng.random() < 1.0 / (1.0 + math.exp(-z)) else "0" for z in total]
    yield ",".join(COLUMNS) + "\n"
    for row in zip(labels, *columns):
        yield ",".join(row) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="default: standard output")
    args = parser.parse_args()
    if args.rows < 0:
        parser.error("--rows may not be negative")
    if args.out is None:
        sys.stdout.writelines(make(args.rows, args.seed))
        return
    with open(args.out, "w", encoding="ascii", newline="") as file:
        file.writelines(make(args.rows, args.seed))


if __name__ == "__main__":
    main()
