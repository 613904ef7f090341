#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a header of the page: its bytes, and the policy that allows its own script and style only, by their hashes.

    embed.py PAGE HEADER
"""
import base64
import hashlib
import re
import sys

POLICY = "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; " \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADER = """/* Made of page.html by embed.py. */
#define STG_PAGE_POLICY "{policy}"
static const char stg_page[] = {{{data}}};
"""


def digest(page, tag):
    found = re.findall(rb"<%s>(.*?)</%s>" % (tag, tag), page, re.S)
    if len(found) != 1:
        sys.exit(f"{sys.argv[1]}: {len(found)} elements {tag.decode()}, not one without attributes")
    return "'sha256-" + base64.b64encode(hashlib.sha256(found[0]).digest()).decode() + "'"


def main(source, target):
    with open(source, "rb") as file:
        page = file.read()
    if b"\r" in page or not page.isascii():
        sys.exit(f"{source}: only ASCII, and no carriage returns")
    data = ",".join(str(byte) for byte in page)
    policy = POLICY.format(script=digest(page, b"script"), style=digest(page, b"style"))
    with open(target, "w", encoding="ascii") as file:
        file.write(HEADER.format(policy=policy, data=re.sub(r"(.{100}[0-9]*,)", r"\1\n", data)))


if __name__ == "__main__":
    main(*sys.argv[1:])
