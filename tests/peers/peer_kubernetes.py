#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests of examples/cluster fit the schema of Kubernetes, and their commands are those of stagerctl."""
import glob
import os
import subprocess
import sys

import kubernetes_validate
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))


def commands(value):
    """The commands below `exec`."""
    if isinstance(value, dict):
        if "exec" in value:
            yield value["exec"]["command"]
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from commands(part)


def main(build):
    usage = subprocess.run([os.path.join(build, "client/stagerctl/stagerctl"), "--help"], capture_output=True, text=True, check=True).stdout
    paths = glob.glob(os.path.join(HERE, "../../examples/cluster/*.yaml"))
    assert len(paths) == 2, paths
    for path in paths:
        with open(path, encoding="utf-8") as file:
            manifest = yaml.safe_load(file)
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
        for command in commands(manifest):
            assert command[0] == "stagerctl" and f" {command[1]}" in usage, command
            assert all(word in usage for word in command if word.startswith("--")), command
        print(f"ok   {os.path.basename(path)}")


main(sys.argv[1])
