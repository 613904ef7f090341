#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""systemd-analyze reports nothing about the units, and rates the system unit as well confined, also
with the drop-ins that open access for CUDA and the network.

    check_units.py ROOT FOLDER_OF_BUILT_UNITS

Skipped without systemd-analyze. `verify` exits with 0 even for unknown values, so the check requires
that it prints nothing. The program named by ExecStart need not be
installed: a copy of the unit names /bin/true instead.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import house

# systemd's exposure times ten; the comments in the units explain what stays open.
THRESHOLD = 7
DROP_INS = {"cuda": 10, "network": 16}
UNITS = [("stagerd.service", "--system"), ("stagerd-user.service", "--user"), ("stagerd-metrics.service", "--system")]
METRICS_THRESHOLD = 15


# systemd 257 makes this folder before it reads a unit. Where no systemd runs, only root can.
NO_FOLDER = "Failed to create directory '/run/systemd/"
OWN_RUN = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]


class Unable(Exception):
    """systemd-analyze cannot run here."""


def analyze(*arguments, env=None):
    """Runs systemd-analyze, in a mount namespace with an empty /run if it needs one."""
    command = ["systemd-analyze", *arguments]
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    if NO_FOLDER in result.stderr:
        result = subprocess.run(OWN_RUN + command, env=env, capture_output=True, text=True)
        if re.match("unshare:|mount:", result.stderr):
            raise Unable(f"systemd-analyze needs /run/systemd, or a namespace: {result.stderr.strip()}")
    return result


def programless(text):
    return re.sub(r"^(Exec\w+)=\S+/(stagerd|stager-metrics)", r"\1=/bin/true", text, flags=re.M)


def verify(text, mode, socket=None, name="stagerd.service"):
    """The output of `systemd-analyze verify` for a unit, and for a socket for it."""
    with tempfile.TemporaryDirectory(prefix="stg-units-") as folder:
        unit = os.path.join(folder, name)
        with open(unit, "w", encoding="utf-8") as file:
            file.write(programless(text))
        if socket is not None:
            unit = os.path.join(folder, "stagerd.socket")
            with open(unit, "w", encoding="utf-8") as file:
                file.write(socket)
        env = dict(os.environ, XDG_RUNTIME_DIR=folder)
        result = analyze("verify", mode, "--man=no", unit, env=env)
    return (result.stdout + result.stderr).strip().split("\n") if (
        result.stdout + result.stderr).strip() or result.returncode else []


def exposure(text):
    """(systemd's figure times ten, the exposures that it finds)."""
    with tempfile.TemporaryDirectory(prefix="stg-units-") as folder:
        unit = os.path.join(folder, "stagerd.service")
        with open(unit, "w", encoding="utf-8") as file:
            file.write(text)
        result = analyze("security", "--offline=true", "--no-pager", unit)
    level = re.search(r"exposure level for .*: (\d+)\.(\d)", result.stdout)
    if level is None:
        return 1000, [result.stderr.strip() or result.stdout.strip()]
    return (int(level.group(1)) * 10 + int(level.group(2)),
            [line for line in result.stdout.split("\n") if line.startswith("✗")])


def security(text, threshold, what="stagerd.service"):
    level, exposed = exposure(text)
    print(f"{what}: exposure {level / 10}, at most {threshold / 10}")
    if level <= threshold:
        return []
    return [f"exposure {level / 10}, at most {threshold / 10}"] + exposed


def missing():
    """The reason why systemd-analyze cannot run here, or None."""
    if shutil.which("systemd-analyze") is None:
        return "no systemd-analyze (apt-get install systemd)"
    try:
        exposure("[Service]\nExecStart=/bin/true\n")
    except Unable as reason:
        return str(reason)
    return None


def problems(root, folder):
    found = []
    units = [(name, mode) for name, mode in UNITS if os.path.exists(os.path.join(folder, name))]
    for name, mode in units:
        text = house.read(folder, name)
        found += [f"systemd/{name}.in:1: {line}" for line in verify(text, mode, name=name.replace("-user", ""))]
    unit = house.read(folder, "stagerd.service")
    found += [f"systemd/stagerd.socket:1: {line}"
              for line in verify(unit, "--system", house.read(root, "systemd/stagerd.socket"))]
    found += [f"systemd/stagerd.service.in:1: {line}" for line in security(unit, THRESHOLD)]
    if len(units) == len(UNITS):
        metrics = house.read(folder, "stagerd-metrics.service")
        found += [f"systemd/stagerd-metrics.service.in:1: {line}"
                  for line in security(metrics, METRICS_THRESHOLD, "stagerd-metrics.service")]
    for name, threshold in DROP_INS.items():
        # A drop-in is read as if it stood at the end of the unit.
        text = unit + house.read(folder, f"stagerd-{name}.conf")
        found += [f"systemd/stagerd-{name}.conf.in:1: {line}" for line in
                  verify(text, "--system") + security(text, threshold, f"with {name}.conf")]
    return found


if __name__ == "__main__":
    if missing() is not None:
        print(f"skipped: {missing()}")
        sys.exit(house.SKIPPED)
    if not os.path.exists(os.path.join(sys.argv[2], "stagerd.service")):
        print("skipped: built with -Dsystemd=disabled")
        sys.exit(house.SKIPPED)
    sys.exit(house.report(problems(*sys.argv[1:3]), "man systemd.exec says which values there are; "
                          "a directive that must stay open raises THRESHOLD, with the reason in the unit"))
