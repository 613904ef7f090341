#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows for the models of this folder: label, price, age, user, item, category, items seen before.

    make_clicks.py ROWS > clicks.csv
"""
import random
import sys


def rows(n):
    rng = random.Random(1)
    for _ in range(n):
        item = rng.randrange(300)
        seen = " ".join(f"item{rng.randrange(300)}" for _ in range(rng.randrange(6)))
        yield (f"{rng.randrange(2)},{rng.random():.3f},{rng.randrange(18, 80) / 100},user{rng.randrange(200)},item{item},"
               f"category{item % 20},{seen}")


if __name__ == "__main__":
    print("\n".join(rows(int(sys.argv[1]))))
