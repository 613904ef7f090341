#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Versions agree: meson.build, pyproject.toml, CHANGELOG.md, and RELEASES. The last line of RELEASES is the previous version in
upgrade tests.

A line of RELEASES: version, date, commit. meson.build of that commit has that version.
"""
import re
import subprocess

import house

VERSION = re.compile(r"^project\([^)]*\bversion: '([\d.]+)'", re.M)
LINE = re.compile(r"^(\d+\.\d+\.\d+) (\d{4}-\d\d-\d\d) ([0-9a-f]{40})$")


def show(root, commit):
    """meson.build of a commit, or None where the history does not hold it (a tarball, a shallow clone)."""
    result = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "show", f"{commit}:meson.build"],
                            capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else None


def problems(root, show=show):
    version = VERSION.search(house.read(root, "meson.build")).group(1)
    found = []
    python = re.search(r'^version = "(.*)"', house.read(root, "pyproject.toml"), re.M).group(1)
    if python != version:
        found.append(f"pyproject.toml:1: has version {python}, and meson.build has {version}")
    if f"\n## {version}" not in house.read(root, "CHANGELOG.md"):
        found.append(f"CHANGELOG.md:1: has no section {version}, the version of meson.build")
    for number, line in enumerate(house.read(root, "RELEASES").splitlines(), 1):
        match = LINE.match(line)
        if match is None:
            found.append(f"RELEASES:{number}: is not VERSION DATE COMMIT")
            continue
        text = show(root, match.group(3))
        if text is not None and VERSION.search(text).group(1) != match.group(1):
            found.append(f"RELEASES:{number}: {match.group(3)} has version {VERSION.search(text).group(1)}")
        if f"\n## {match.group(1)}" not in house.read(root, "CHANGELOG.md"):
            found.append(f"RELEASES:{number}: CHANGELOG.md has no section {match.group(1)}")
    return found


if __name__ == "__main__":
    house.main(problems, "a release is a commit that sets the version, then a line of RELEASES that names it")
