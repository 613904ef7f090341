#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/python.md and docs/getting-started.md runs; blocks that import a framework run if it is
installed."""
import contextlib
import importlib.util
import io
import os
import re
import struct
import sys
import zlib

import case

FRAMEWORK = re.compile(r"^import (jax|tensorflow|torch)\b", re.M)
DOCS = os.path.join(case.HERE, "../../docs")
PAGE = os.path.join(DOCS, "python.md")


class Docs(case.Case):
    def write_modules(self):
        """Modules on the page: a block that begins with the file's name."""
        with open(PAGE, encoding="utf-8") as file:
            modules = re.findall(r"^```\n# (\S+\.py)\n(.*?)^```$", file.read(), re.S | re.M)
        self.assertGreaterEqual(len(modules), 1)
        for name, text in modules:
            path = os.path.join(self.daemon.folder, "modules", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        sys.path.insert(0, os.path.join(self.daemon.folder, "modules"))
        self.addCleanup(sys.path.pop, 0)

    def write_photos(self):
        """Two folders of images. Their names end in JPEG; decoders read the bytes."""
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        pixels = b"".join(b"\0" + bytes((x * y) % 256 for x in range(3 * 300)) for y in range(280))
        png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 300, 280, 8, 2, 0, 0, 0))
               + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""))
        for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
            path = os.path.join(self.daemon.folder, "photos", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(png)

    def run_blocks(self, page):
        """Runs each block, in order, in one namespace."""
        os.environ["STAGERD"] = os.path.join(case.BUILD, "daemon/stagerd")
        with open(os.path.join(DOCS, page), encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.S | re.M)
        self.assertGreaterEqual(len(blocks), 6)
        names = {}
        said = io.StringIO()
        for number, block in enumerate(blocks, 1):
            framework = FRAMEWORK.search(block)
            if framework is not None and importlib.util.find_spec(framework.group(1)) is None:
                print(f"skipped: block {number}, no {framework.group(1)}")
                continue
            code = block.replace("/data/criteo", self.daemon.folder).replace("/data", self.daemon.folder)
            with contextlib.redirect_stdout(said):
                exec(compile(code, f"block {number} of {page}", "exec"), names)
        return said.getvalue()

    def test_getting_started(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.daemon.folder)
        said = self.run_blocks("getting-started.md")
        self.assertIn('field 1: "two" is no valid float32', said)
        self.assertIn("line 602", said)

    def test_the_page_of_the_package(self):
        rows = "label,amount,word\n" + "".join(f"{i % 2},{i},word{i}\n" for i in range(640))
        self.file("rows.csv", rows)
        self.write_modules()
        self.write_photos()
        self.run_blocks("python.md")


if __name__ == "__main__":
    case.main()
