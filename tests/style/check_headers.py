#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each header compiles alone: as C, and as C++ too unless it (or what it includes) holds C's
_Atomic, which C++ does not know. client/stager.h must compile as both in any case.

    check_headers.py ROOT [BUILD]        BUILD: where generated headers lie
"""
import os
import re
import subprocess
import sys
import sysconfig

import house

PUBLIC = "client/stager.h"
# Without Python.h, code that needs it is not built either.
PYTHON = sysconfig.get_paths()["include"]
C_ONLY = re.compile(r"\b_Atomic\b|<stdatomic\.h>|\b_Generic\b")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def is_c_only(root, name, seen=None):
    seen = set() if seen is None else seen
    if name in seen or not os.path.isfile(os.path.join(root, name)):
        return False
    seen.add(name)
    text = house.read(root, name)
    return bool(C_ONLY.search(text)) or any(
        is_c_only(root, header, seen) for header in INCLUDE.findall(text))


def has_python():
    return os.path.isfile(os.path.join(PYTHON, "Python.h"))


def compile_alone(root, name, compiler, language, build):
    warnings = ["-Wall", "-Wextra", "-Wno-unused-function", "-Werror"]
    if language.startswith("c++"):
        warnings += ["-Wno-missing-field-initializers"]
    std = "c11" if language == "c" and name == PUBLIC else "gnu11"
    if language.startswith("c++"):
        std = "c++11" if name == PUBLIC else "gnu++20"
    result = subprocess.run(
        [*compiler, "-x", language, f"-std={std}", "-D_GNU_SOURCE", "-fsyntax-only", *warnings,
         "-I", ".", "-I", build, "-isystem", PYTHON, "-"],
        input=f'#include "{name}"\n', cwd=root, capture_output=True, text=True)
    if result.returncode == 0:
        return []
    first = [line for line in result.stderr.split("\n") if "error" in line][:1]
    return [f"{name}:1: does not compile alone as {language}: {' '.join(first)}"]


def problems(root, build="."):
    cc = os.environ.get("CC", "cc").split()
    cxx = os.environ.get("CXX", "c++").split()
    found = []
    for name in house.tracked(root, ".h"):
        if "<Python.h>" in house.read(root, name) and not has_python():
            continue
        found += compile_alone(root, name, cc, "c", build)
        if name == PUBLIC or not is_c_only(root, name):
            found += compile_alone(root, name, cxx, "c++", build)
    return found if found or house.tracked(root, ".h") else [".:1: no header found"]


if __name__ == "__main__":
    sys.exit(house.report(
        problems(*map(os.path.abspath, sys.argv[1:3])),
        "include what the header itself needs; give a forward declaration where a pointer is "
        "enough; keep static inline functions valid in C++ (casts from void *)"))
