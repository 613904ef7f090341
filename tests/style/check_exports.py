#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The exports of the shared libraries: libstager.so exports exactly the declarations of client/stager.h (all
stager_*), libstager-compute.so and libstager-cuda.so one symbol each.

    check_exports.py ROOT LIBRARY...
"""
import os
import re
import subprocess
import sys

import house


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout
    names = set()
    for line in out.split("\n"):
        parts = line.split()
        if len(parts) == 3 and parts[1] != "A":  # A: the name of a version
            names.add(parts[2].split("@")[0])
    return names


def declared(header_text):
    text = re.sub(r"/\*.*?\*/", "", header_text, flags=re.S)
    return set(re.findall(r"\b(stager_\w+)\s*\([^;{]*\)\s*;", text))


def of_library(library, names, wanted):
    base = os.path.basename(library)
    if not base.startswith("libstager.so"):
        return [] if len(names) == 1 else [
            f"{base}: exports {len(names)} symbols, not one: {', '.join(sorted(names))}"]
    found = [f"{base}: exports {name}, which is no stager_*"
             for name in sorted(names) if not name.startswith("stager_")]
    found += [f"{base}: exports {name}, which client/stager.h does not declare"
              for name in sorted(names - wanted) if name.startswith("stager_")]
    found += [f"{base}: does not export {name}, which client/stager.h declares"
              for name in sorted(wanted - names)]
    return found


def problems(root, libraries):
    wanted = declared(house.read(root, "client/stager.h"))
    found = []
    for library in libraries:
        found += of_library(library, exported(library), wanted)
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(house.report(
        problems(sys.argv[1], sys.argv[2:]),
        "public names are declared in client/stager.h and listed in "
        "client/stager.syms; all else keeps -fvisibility=hidden"))
