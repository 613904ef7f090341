#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows for the models of this folder: label, price, age, user, item, category, items seen before.

    make_clicks.py ROWS [--seen 5] [--users 200] [--items 300] > clicks.csv

--seen: how many items, at most, a row lists as seen before. The same arguments give the
same bytes.
"""
import argparse
import random


def rows(n, n_seen=5, n_users=200, n_items=300):
    rng = random.Random(1)
    for _ in range(n):
        item = rng.randrange(n_items)
        seen = " ".join(f"item{rng.randrange(n_items)}" for _ in range(rng.randrange(n_seen + 1)))
        yield (f"{rng.randrange(2)},{rng.random():.3f},{rng.randrange(18, 80) / 100},user{rng.randrange(n_users)},item{item},"
               f"category{item % 20},{seen}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int)
    parser.add_argument("--seen", type=int, default=5)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--items", type=int, default=300)
    args = parser.parse_args()
    for row in rows(args.rows, args.seen, args.users, args.items):
        print(row)


if __name__ == "__main__":
    main()
