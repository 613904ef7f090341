#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/kernels/matmul.golden.h: products of matrices by NumPy. Elements are eighths, so that every sum is exact
in float32, whatever its order.

    make_matmul.py    with a Python that has NumPy; what it writes is committed
"""
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [  # shapes as they lie in memory, and which are transposed
    ((3, 5), (5, 4), "", ""),
    ((5, 3), (5, 4), "T", ""),
    ((3, 5), (4, 5), "", "T"),
    ((5, 3), (4, 5), "T", "T"),
    ((1, 5), (5, 4), "", ""),
    ((3, 1), (1, 4), "", ""),
    ((3, 5), (5, 1), "", ""),
    ((2, 3, 5), (2, 5, 4), "", ""),
    ((2, 3, 5), (2, 4, 5), "", "T"),
    ((2, 5, 3), (2, 5, 4), "T", ""),
    ((2, 3, 5), (5, 4), "", ""),
    ((2, 5, 3), (5, 4), "T", ""),
    ((3, 5), (2, 5, 4), "", ""),
    ((2, 1, 3, 5), (1, 3, 5, 2), "", ""),
    ((2, 3, 3, 5), (3, 5, 2), "", ""),
    ((3, 2, 4, 5), (3, 1, 5, 2), "", ""),
    ((2, 4, 3), (2, 4, 3), "", "T"),
]


def values(shape, seed):
    i = np.arange(np.prod(shape, dtype=int))
    return (((i * 37 + seed) % 41 - 20) / 8).reshape(shape)


def turned(x, how):
    return np.swapaxes(x, -1, -2) if how else x


def main():
    with open(os.path.join(HERE, "../kernels/matmul.golden.h"), "w", encoding="utf-8") as file:
        file.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Written by tests/data/make_matmul.py. Element i of input k is\n"
                   " * ((i * 37 + 11 + k * 8) % 41 - 20) / 8. */\n/* clang-format off */\n"
                   "#include <stdbool.h>\n#include <stdint.h>\n\nstatic const struct {\n    int ndim[2];\n    int64_t shape[2][4];\n    bool transpose[2];\n"
                   "    double y[64];\n    int n;\n} products[] = {\n")
        for a, b, of_a, of_b in CASES:
            y = np.matmul(turned(values(a, 11), of_a), turned(values(b, 19), of_b)).reshape(-1)
            assert len(y) <= 64 and np.array_equal(y, y.astype(np.float32))
            numbers = lambda all_of: "{" + ", ".join(map(str, all_of)) + "}"
            flags = "{" + ", ".join("true" if how else "false" for how in (of_a, of_b)) + "}"
            file.write(f"    {{{{{len(a)}, {len(b)}}}, {{{numbers(a)}, {numbers(b)}}}, {flags},\n"
                       f"     {numbers([repr(float(v)) for v in y])}, {len(y)}}},\n")
        file.write("};\n/* clang-format on */\n")


if __name__ == "__main__":
    main()
