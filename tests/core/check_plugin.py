#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_plugin.py LIBRARY: it exports stg_cuda_device and needs only libc."""
import re
import subprocess
import sys

library = sys.argv[1]
symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout.split("\n")
names = [line.split()[-1] for line in symbols if line.strip()]
dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True,
                         text=True).stdout
needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
extra = [name for name in needed
         if not re.match(r"lib(c|m|dl|rt|pthread|asan|ubsan|tsan|gcc_s|gcov)\.so|ld-linux", name)]
if names != ["stg_cuda_device"]:
    sys.exit(f"{library} exports {names}")
if extra:
    sys.exit(f"{library} needs {extra}")
print(f"{library}: exports {names[0]}, needs {', '.join(needed)}")
