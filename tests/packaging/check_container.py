#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image of packaging/container: the steps of its Containerfile in a bare Debian 12, and then the programs of compose.yaml and the
worker of examples/cluster there, in namespaces, as process 1, as the image's user without capabilities, below a read-only root. podman is not needed.

    check_container.py [--debs FOLDER] [--root FOLDER]

--debs: these packages; without it they are built, in the root of --root if that is given. The last line is "N passed, N failed,
N skipped". Skipped as a whole (77) without root or debootstrap.
"""
import argparse
import glob
import json
import os
import re
import shlex
import shutil
import sys
import tempfile

from cases import run, run_cases

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "../.."))
FOLDER = f"{TOP}/packaging/container"
IMAGES = {"debian:12-slim": "bookworm"}
KNOWN = {"FROM", "RUN", "COPY", "USER", "VOLUME", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def steps():
    """[(instruction, rest)] of the Containerfile, in which a line is a step."""
    with open(f"{FOLDER}/Containerfile", encoding="utf-8") as file:
        found = [tuple(line.rstrip("\n").split(" ", 1)) for line in file if not line.startswith("#")]
    assert {name for name, _ in found} <= KNOWN, f"unknown steps: {found}"
    return found


def compose_lists(service):
    """{key: list} of a service of compose.yaml; its lists are JSON."""
    with open(f"{FOLDER}/compose.yaml", encoding="utf-8") as file:
        block = re.search(rf"^  {service}:\n((?:    .*\n)+)", file.read(), re.M).group(1)
    return {key: json.loads(text) for key, text in re.findall(r"^ +(\w+): (\[.*\])$", block, re.M)}


def worker_command():
    """Of the Deployment of examples/cluster."""
    with open(f"{TOP}/examples/cluster/workers.yaml", encoding="utf-8") as file:
        words = re.search(r"^ +command: \[(stagerd, --worker, .*)\]$", file.read(), re.M).group(1)
    return [word.strip('"') for word in words.split(", ")]


class Image:
    """A root that the steps have made, and what they say about its programs."""

    def __init__(self, root, context):
        self.root, self.context, self.said = root, context, {}

    def inside(self, script):
        """Over the memory that .ci/root mounts at /run: the image's own /run."""
        return run(f"{TOP}/.ci/root", "--as-root", "bookworm", self.root, "set -euo pipefail; export DEBIAN_FRONTEND=noninteractive\n"
                   f"mkdir -p /srv/run && mount --bind /srv/run /run && cd /\n{script}")

    def build(self):
        for name, rest in steps():
            if name == "FROM":
                assert rest in IMAGES, f"not a bare Debian: {rest}"
                self.inside("true")
            elif name == "RUN":
                self.inside(rest)
            elif name == "COPY":
                source, target = rest.split()
                shutil.copytree(f"{self.context}/{source}", self.root + target)
            else:
                self.said[name] = rest
        assert json.loads(self.said["ENTRYPOINT"]) == []

    def has_neither_systemd_nor_python(self):
        assert not os.path.exists(f"{self.root}/usr/bin/systemctl") and not os.path.exists(f"{self.root}/usr/bin/python3")

    def programs_run(self):
        health = json.loads(re.search(r"CMD (.*)$", self.said["HEALTHCHECK"]).group(1))
        metrics = compose_lists("metrics")
        assert metrics["test"][0] == "CMD"
        values = {"WHO": self.said["USER"], "VOLUMES": json.loads(self.said["VOLUME"]), "STAGERD": json.loads(self.said["CMD"]),
                  "HEALTH": health, "METRICS": metrics["command"], "READY": metrics["test"][1:],
                  "WORKER": worker_command()}
        shutil.copy(f"{HERE}/container_inside", f"{self.root}/tmp")
        head = "".join(f"{name}=({shlex.join(value if isinstance(value, list) else [value])})\n" for name, value in values.items())
        print(self.inside(f"{head}. /tmp/container_inside"), end="", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debs")
    parser.add_argument("--root")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("skipped: no root or no debootstrap (apt-get install debootstrap)\n0 passed, 0 failed, 1 skipped")
        return 77
    work = tempfile.mkdtemp(prefix="stg-image-", dir="/var/tmp")
    try:
        context = f"{work}/context"
        if arguments.debs is None:
            run(f"{TOP}/packaging/deb/build", *(["--root", arguments.root] if arguments.root else []), f"{context}/debs")
        else:
            os.makedirs(f"{context}/debs")
            for path in glob.glob(f"{arguments.debs}/*.deb"):
                shutil.copy(path, f"{context}/debs")
        image = Image(f"{work}/root", context)
        cases = (image.build, image.has_neither_systemd_nor_python, image.programs_run)
        return run_cases([(case.__name__, case) for case in cases])
    finally:
        run("rm", "-rf", "--one-file-system", work)


if __name__ == "__main__":
    sys.exit(main())
