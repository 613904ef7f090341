#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shellcheck reports nothing about the shell scripts. Skipped if it is missing."""
import shutil
import subprocess
import sys

import house


def scripts(root):
    names = []
    for name in house.tracked(root):
        with open(f"{root}/{name}", "rb") as file:
            first = file.readline(64)
        if first.startswith((b"#!/bin/sh", b"#!/usr/bin/env bash", b"#!/bin/bash")):
            names.append(name)
    return names


def problems(root):
    names = scripts(root)
    if not names:
        return []
    result = subprocess.run(["shellcheck", "--format=gcc", *names], cwd=root,
                            capture_output=True, text=True)
    return (result.stdout + result.stderr).strip().split("\n") if result.returncode else []


if __name__ == "__main__":
    if shutil.which("shellcheck") is None:
        print("skipped: no shellcheck (apt-get install shellcheck)")
        sys.exit(house.SKIPPED)
    house.main(problems, "shellcheck FILE; its wiki has a page for each SC number")
