#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes debian/changelog to standard output: the sections of CHANGELOG.md, newest first.

    changelog.py SOURCE COMMIT TIME CODENAME

SOURCE is the unpacked tree of COMMIT, TIME that of the commit in seconds. A commit that RELEASES names has the version of its
release. Any other one has a version below that release (0.3.0~20261124.093000.g1a2b3c4), or above it once it is named.
The maintainer is that of debian/control, or DEBFULLNAME and DEBEMAIL.
"""
import datetime
import email.utils
import os
import re
import sys
import textwrap

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def releases():
    """{version: (date, commit)}"""
    return {line.split()[0]: tuple(line.split()[1:]) for line in read(TOP, "RELEASES").splitlines()}


def paragraphs(section):
    """Lists of lines of a section: an item, a heading, or plain text each."""
    found = [[]]
    for line in section.split("\n"):
        if not line.startswith("  "):
            found.append([])
        found[-1].append(line.strip())
    return [" ".join(lines) for lines in found if any(lines)]


def entry(section):
    """A section of CHANGELOG.md as an entry of debian/changelog."""
    lines = []
    for text in paragraphs(LINK.sub(r"\1", section)):
        if text.startswith("#"):
            lines += ["", f"  [ {text.lstrip('# ')} ]"]
        else:
            lines += textwrap.wrap(text[2:] if text.startswith("- ") else text, 78, initial_indent="  * ",
                                   subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def debian_version(version, commit, time):
    date, released = releases().get(version, (None, None))
    if released == commit:
        return version
    return f"{version}{'~' if date is None else '+'}{time:%Y%m%d.%H%M%S}.g{commit[:7]}"


def date_of(version):
    date, _ = releases()[version]
    return datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.timezone.utc)


def maintainer():
    name, address = email.utils.parseaddr(re.search(r"^Maintainer: (.*)$", read(TOP, "packaging/deb/debian/control"), re.M).group(1))
    return f"{os.environ.get('DEBFULLNAME') or name} <{os.environ.get('DEBEMAIL') or address}>"


def main(source, commit, seconds, codename):
    time = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    _, *parts = re.split(r"^## (.*)$", read(source, "CHANGELOG.md"), flags=re.M)
    for i, (version, section) in enumerate(zip(parts[::2], parts[1::2])):
        name, date = (debian_version(version, commit, time), time) if i == 0 else (version, date_of(version))
        print(f"stager ({name}) {codename}; urgency=medium\n\n{entry(section).lstrip(chr(10))}\n\n"
              f" -- {maintainer()}  {email.utils.format_datetime(date)}\n")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
