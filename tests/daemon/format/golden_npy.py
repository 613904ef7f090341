#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_npy.h: files written by numpy.save, of all versions of the format. Usage: golden_npy.py > golden_npy.h,
with numpy installed."""
import io

import numpy as np
from numpy.lib import format as npy


def saved(array, version=(1, 0)):
    file = io.BytesIO()
    npy.write_array(file, array, version=version)
    return file.getvalue()


def array(name, data):
    print(f"static const unsigned char {name}[{len(data)}] = {{")
    for i in range(0, len(data), 16):
        print("    " + " ".join(f"0x{b:02x}," for b in data[i:i + 16]))
    print("};\n")


print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by golden_npy.py: do not edit.
 */
/* clang-format off */
""")
GRID = np.arange(30, dtype=np.float32).reshape(5, 2, 3) / 4
array("npy_grid", saved(GRID))
array("npy_grid_v2", saved(GRID, (2, 0)))
array("npy_grid_v3", saved(GRID, (3, 0)))
array("npy_grid_swapped", saved(GRID.astype(">f4")))
array("npy_grid_fortran", saved(np.asfortranarray(GRID)))
array("npy_line", saved(np.arange(-3, 4, dtype=np.int64)))
array("npy_bools", saved(np.array([True, False, True])))
array("npy_empty", saved(np.zeros((0, 2, 3), np.float32)))
array("npy_hollow", saved(np.zeros((4, 0), np.float32)))
array("npy_scalar", saved(np.float32(1.5)))
array("npy_objects", saved(np.array([None, 1], dtype=object)))
array("npy_fields", saved(np.zeros(2, dtype=[("a", "<i4"), ("b", "<f8")])))
array("npy_strings", saved(np.array(["ab", "c"])))
