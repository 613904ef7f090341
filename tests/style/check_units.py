#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""systemd-analyze has no word to say about the units, and finds the system unit well shut in.

    check_units.py ROOT FOLDER_OF_BUILT_UNITS

Skipped where there is no systemd-analyze. `verify` ends with 0 even for values that it does not
know, so what counts is that it prints nothing. The program named by ExecStart need not be
installed: a copy of the unit names /bin/true instead.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import house

# systemd's exposure times ten; see the comments in stagerd.service.in for what is left open.
THRESHOLD = 7
UNITS = [("stagerd.service", "--system"), ("stagerd-user.service", "--user")]


def verify(text, mode):
    """What `systemd-analyze verify` says of a unit."""
    with tempfile.TemporaryDirectory(prefix="stg-units-") as folder:
        unit = os.path.join(folder, "stagerd.service")
        with open(unit, "w", encoding="utf-8") as file:
            file.write(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M))
        env = dict(os.environ, XDG_RUNTIME_DIR=folder)
        result = subprocess.run(["systemd-analyze", "verify", mode, "--man=no", unit], env=env,
                                capture_output=True, text=True)
    return (result.stdout + result.stderr).strip().split("\n") if (
        result.stdout + result.stderr).strip() or result.returncode else []


def security(text, threshold):
    with tempfile.TemporaryDirectory(prefix="stg-units-") as folder:
        unit = os.path.join(folder, "stagerd.service")
        with open(unit, "w", encoding="utf-8") as file:
            file.write(text)
        result = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                                 f"--threshold={threshold}", unit],
                                capture_output=True, text=True)
    if result.returncode == 0:
        return []
    open_doors = [line for line in result.stdout.split("\n") if line.startswith("✗")]
    return [result.stderr.strip() or result.stdout.strip().split("\n")[-1]] + open_doors


def problems(root, folder):
    found = []
    for name, mode in UNITS:
        text = house.read(folder, name)
        found += [f"systemd/{name}.in:1: {line}" for line in verify(text, mode)]
    found += [f"systemd/stagerd.service.in:1: {line}"
              for line in security(house.read(folder, "stagerd.service"), THRESHOLD)]
    return found


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        print("skipped: no systemd-analyze (apt-get install systemd)")
        sys.exit(house.SKIPPED)
    if not os.path.exists(os.path.join(sys.argv[2], "stagerd.service")):
        print("skipped: built with -Dsystemd=disabled")
        sys.exit(house.SKIPPED)
    sys.exit(house.report(problems(*sys.argv[1:3]), "man systemd.exec says which values there are; "
                          "a door that must stay open raises THRESHOLD, with the reason in the unit"))
