#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden_sigv4.h: signatures by remote_s3.py, which computes them from their definition."""
import hashlib
import os
import urllib.parse

import remote_s3

HOST = "examplebucket.s3.amazonaws.com"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
DATE = "20130524T000000Z"
ALL = "".join(map(chr, range(1, 127)))
# A name that is the prefix of another, "=" and "+" and "%" in values, names without a value, empty parts.
QUERIES = ["continuation-token=at%2F%2B3&delimiter=%2F&encoding-type=url&list-type=2&prefix=data%2Fpart-",
           "prefix=a%2Bb%20c%25%3D%26d&list-type=2", "a-b=1&a=2&a%20=3&ab=4&a", "&&b&&a=&", "x=1=2&x=1",
           "all=" + urllib.parse.quote(ALL, safe="~") + "&" + urllib.parse.quote(ALL, safe="~")]


def main():
    remote_s3.check_signature()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_sigv4.h")
    with open(path, "w", encoding="ascii") as file:
        file.write("/* SPDX-License-Identifier: Apache-2.0\n *\n * Made by golden_sigv4.py: do not edit.\n */\n"
                   "/* clang-format off */\n\nstatic const struct {\n    const char *url, *signature;\n"
                   "} golden_sigv4[] = {\n")
        headers = {"host": HOST, "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(), "x-amz-date": DATE}
        for query in QUERIES:
            signature = remote_s3.signature("GET", "/", query, headers, sorted(headers), SECRET, "us-east-1")
            file.write(f'    {{"https://{HOST}/?{query}",\n     "{signature}"}},\n')
        file.write("};\n")


if __name__ == "__main__":
    main()
