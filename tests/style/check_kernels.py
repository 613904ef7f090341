#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels are vectorised in every build type and with any CFLAGS: the compiler gets -O3 last, and the
machine code contains -O3's instructions. With link time optimisation there is no machine code yet.

    check_kernels.py BUILD OBJDUMP
"""
import json
import os
import re
import shlex
import subprocess
import sys

import house

# Sources that are kernels, and the folder of their objects in the daemon.
SOURCES = {"ops/kernels/csv/index.c": "ops/", "ops/kernels/csv/vector.c": "ops/",
           "ops/kernels/image/rows.c": "ops/", "daemon/storage/codec/crc32c_kernel.c": "daemon/"}
# Archives, and the minimum number of instructions of a kind: vector arithmetic that a loop without -O3 does not
# contain.
PACKED = r"\b(mul|add|sub)ps\b|\bcvtdq2ps\b|\b(fmul|fadd|fsub|scvtf)\s+v\d+\.4s"
VECTORS = {"ops/libstg_image_plain.a": (PACKED, 20), "ops/libstg_image_avx2.a": (r"\bvcvtdq2ps\b.*%ymm", 8),
           "ops/libstg_csv_avx2.a": (r"%ymm", 500), "ops/libstg_csv_avx512.a": (r"%zmm", 500)}


def levels(commands):
    """Problems with the optimisation levels of the kernels in compile_commands.json."""
    found, seen = [], set()
    for entry in commands:
        name = next((name for name in SOURCES if entry["file"].endswith(name)), "")
        if not entry["output"].startswith(SOURCES.get(name, "\0")):
            continue
        seen.add(name)
        given = [word for word in shlex.split(entry["command"]) if re.fullmatch(r"-O\w*", word)]
        if given[-1:] != ["-O3"]:
            found.append(f"{entry['output']}: compiled with {given[-1] if given else 'no level'}, not -O3")
    return found + [f"{name}: no kernel is compiled from it" for name in sorted(set(SOURCES) - seen)
                    if "/csv/" not in name]


def too_few(archive, code, pattern, least):
    if not re.search(r"^\s*[0-9a-f]+:\t", code, re.M):
        return []
    n = sum(1 for line in code.split("\n") if re.search(pattern, line))
    return [] if n >= least else [f"{archive}: {n} vector instructions, not {least} or more"]


def problems(build, objdump):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        found = levels(json.load(file))
    for archive, (pattern, least) in VECTORS.items():
        path = os.path.join(build, archive)
        if os.path.exists(path):
            code = subprocess.run([objdump, "-d", "--no-show-raw-insn", path], check=True, capture_output=True,
                                  text=True).stdout
            found += too_few(archive, code, pattern, least)
    return found


if __name__ == "__main__":
    sys.exit(house.report(problems(sys.argv[1], sys.argv[2]),
                          "kernel_args of meson.build comes last among the c_args of a kernel"))
