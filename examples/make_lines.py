#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes 1.txt for seed_staged: lines of two columns of text.

    make_lines.py FILE [LINES]
"""
import sys


def lines(n):
    return [f"user{i % 7},item{i * i}" for i in range(n)]


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    count = int(sys.argv[2]) if len(sys.argv) == 3 else 10
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines(count)))
