#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel: built on a bare Debian 12, and tried on another one that has no compiler (wheel_inside.py): what it holds, its programs,
workers and metrics, the Python example of README.md, and data on other machines with and without libcurl.

    check_wheel.py [--root FOLDER]

FOLDER is a root of .ci/root to build in; without it a root is made. Its last line is "N passed, N failed, N skipped".
"""
import argparse
import glob
import os
import re
import shutil
import sys
import tempfile
import zipfile

from cases import run, run_cases

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
# glibc 2.34 has what the wheel calls; Debian 12 has 2.36.
TAG = "cp311-abi3-manylinux_2_34_x86_64"
LIBRARIES = {"isal", "jpeg", "lz4", "nanomsg", "protobuf-c", "snappy", "spng", "uv", "yaml-0", "zstd"}
INSIDE = """set -euo pipefail
sudo apt-get update -qq
sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
! command -v cc && ! command -v gcc && ! ls /usr/lib/*/libcurl.so.4
python3 -m venv /tmp/trainer
/tmp/trainer/bin/pip install --quiet --only-binary :all: /tmp/stager-*.whl
PATH=/tmp/trainer/bin:$PATH python tests/packaging/wheel_inside.py
"""


def look_at(wheel):
    """It holds the libraries that a machine may lack, and of Python only the limited API of 3.11."""
    assert wheel.endswith(f"-{TAG}.whl"), f"{os.path.basename(wheel)}: another tag than {TAG}"
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    libraries = {re.sub(r".*/lib(.*)-[0-9a-f]{8}\.so.*", r"\1", name) for name in names if name.startswith("stager.libs/lib")}
    assert libraries == LIBRARIES, f"libraries: {sorted(libraries)}"
    for name in ("_core.abi3.so", "libstager-compute.so", "stagerd", "stagerctl", "stager-metrics", "worker/stager-worker", "licenses/LGPL-2.1"):
        assert f"stager/{name}" in names, f"{name} is missing: {names}"


def look_at_sdist(sdist):
    """It has committed files alone."""
    committed = set(run("git", "-C", TOP, "ls-files").splitlines())
    names = {name.split("/", 1)[1] for name in run("tar", "-tzf", sdist).splitlines() if not name.endswith("/")}
    assert names - {"PKG-INFO"} <= committed, f"not committed: {sorted(names - committed)[:10]}"


def try_out(wheel, work):
    root = os.path.join(work, "bare")
    run(f"{TOP}/.ci/root", "bookworm", root, "true")
    shutil.copy(wheel, f"{root}/tmp")
    said = run(f"{TOP}/.ci/root", "bookworm", root, INSIDE)
    print("".join(line for line in said.splitlines(True) if line.startswith("ok ")), end="", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stg-wheel-", dir="/var/tmp") as work:
        options = ["--root", arguments.root] if arguments.root else []
        out = os.path.join(work, "out")
        cases = [("builds", lambda: run(f"{TOP}/packaging/wheel/build", *options, out)),
                 ("content", lambda: look_at(*glob.glob(f"{out}/*.whl"))),
                 ("sdist", lambda: look_at_sdist(*glob.glob(f"{out}/*.tar.gz"))),
                 ("without a compiler", lambda: try_out(*glob.glob(f"{out}/*.whl"), work))]
        return run_cases(cases)


if __name__ == "__main__":
    sys.exit(main())
