# SPDX-License-Identifier: Apache-2.0
"""Shared by the style checks: the files of the repository, and the report of a finding.

A check is a script check_*.py with a function problems(root) that returns a list of lines
"FILE:LINE: what is wrong". tests/style/test_checks.py feeds each of them a bad sample.
"""
import os
import subprocess
import sys

SKIPPED = 77


def tracked(root, *suffixes):
    """Paths relative to root, sorted: those tracked by git, or every file without git."""
    try:
        out = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"],
            check=True, capture_output=True).stdout.decode()
        top = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", root, "rev-parse", "--show-toplevel"],
            check=True, capture_output=True).stdout.decode().strip()
        if os.path.realpath(top) != os.path.realpath(root):
            raise ValueError("root is not the top of a checkout")
        names = [name for name in out.split("\0") if name]
    except (OSError, ValueError, subprocess.CalledProcessError):
        names = walk(root)
    names = [name for name in names if os.path.isfile(os.path.join(root, name))]
    return sorted(name for name in names if not suffixes or name.endswith(suffixes))


def walk(root):
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith((".", "build", "__pycache__"))]
        names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return names


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


def main(problems, how):
    """The main of a check: argv[1] is the top of the tree."""
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    sys.exit(report(problems(root), how))


def report(found, how):
    for line in found:
        print(line)
    if found:
        print(f"\nHow to mend: {how}")
    return 1 if found else 0
