#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/python.md, docs/getting-started.md and docs/guide.md runs, and so does every block of
docs/how-to; what needs a framework runs if it is installed."""
import contextlib
import glob
import importlib.util
import io
import os
import re
import struct
import subprocess
import sys
import tarfile
import zlib

import case

sys.path.insert(0, os.path.join(case.HERE, "../peers"))
import example_wire as wire  # noqa: E402

FRAMEWORK = re.compile(r"^import (jax|tensorflow|torch)\b", re.M)
NAMED = re.compile(r"# (\S+\.(?:py|yaml))\n")                  # the first line of a block that is a file
SOURCE = os.path.join(case.HERE, "../..")
DOCS = os.path.join(SOURCE, "docs")
PAGE = os.path.join(DOCS, "python.md")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def masked(data):
    """The checksum of TFRecord files: CRC-32C, rotated, plus a constant."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def record(data):
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


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

    def write_rows(self):
        """Rows of Criteo's format, in two files."""
        os.makedirs(self.path("criteo"), exist_ok=True)
        for day in range(2):
            subprocess.run([sys.executable, os.path.join(SOURCE, "tests/data/make_criteo.py"), "--rows", "1200",
                            "--seed", str(day + 1), "--out", self.path(f"criteo/day_{day}.csv")], check=True)

    def write_examples(self):
        """A TFRecord file of clicks."""
        os.makedirs(self.path("clicks"), exist_ok=True)
        with open(self.path("clicks/0.tfrecord"), "wb") as file:
            for i in range(200):
                file.write(record(wire.example(wire.entry(b"label", wire.int_list([i % 2])),
                                               wire.entry(b"items", wire.int_list(range(i % 4))))))

    def write_shards(self):
        """Two archives of WebDataset's layout, with the photographs."""
        os.makedirs(self.path("shards"), exist_ok=True)
        with open(self.path("photos/cat/1.jpg"), "rb") as file:
            photo = file.read()
        for shard in range(2):
            with tarfile.open(self.path(f"shards/train-{shard:03}.tar"), "w") as archive:
                for i in range(4):
                    for part, data in (("jpg", photo), ("cls", str(i).encode())):
                        member = tarfile.TarInfo(f"{shard}{i}.{part}")
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))

    def write_saved(self):
        """A folder as Hugging Face datasets saves it, of one file. Returns whether stagerd can read it."""
        with open(os.path.join(SOURCE, "tests/daemon/format/golden_arrow.h"), encoding="utf-8") as file:
            data = re.search(r"arrow_stream\[\d+\] = \{(.*?)\}", file.read(), re.S).group(1)
        os.makedirs(self.path("products/train"), exist_ok=True)
        with open(self.path("products/train/data-00000-of-00001.arrow"), "wb") as file:
            file.write(bytes(int(byte) for byte in re.findall(r"\d+", data)))
        with open(self.path("products/train/state.json"), "w", encoding="utf-8") as file:
            file.write('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
        return os.path.exists(os.path.join(case.BUILD, "daemon/format/arrow/metadata_generated.h"))

    def path(self, name):
        return os.path.join(self.daemon.folder, name)

    def run_commands(self, text):
        """A block of a shell, in the folder of the data, as after `meson devenv`."""
        tools = os.path.dirname(sys.executable) + ":" + os.path.join(case.BUILD, "client/stagerctl")
        env = dict(self.daemon.env(), PATH=f"{tools}:{os.environ['PATH']}", GLOO_SOCKET_IFNAME="lo")
        result = subprocess.run(["bash", "-e", "-u", "-o", "pipefail", "-c", text], env=env, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{text}\n{result.stdout}{result.stderr}")
        return result.stdout

    def needs(self, text, files):
        """The framework that a block needs, also through the programs that it starts, and that is not installed."""
        texts = [text] + [files.get(name) or read(os.path.join(SOURCE, name)) for name in re.findall(r"\S+\.py\b", text)]
        found = {name for text in texts for name in FRAMEWORK.findall(text)}
        return next((name for name in found if importlib.util.find_spec(name) is None), None)

    def run_page(self, path):
        """Runs all blocks of a page in order: commands, Python, and files, which name themselves in their first line."""
        names, files, n_run, said = {}, {}, 0, ""
        for number, (language, text) in enumerate(re.findall(r"^```(\w+)\n(.*?)^```$", read(path), re.S | re.M), 1):
            text = text.replace("/data/", self.daemon.folder + "/").replace("/tmp/shop", self.path("shop"))
            named = NAMED.match(text)
            missing = None if named else self.needs(text, files)
            if missing is not None:
                print(f"skipped: block {number} of {os.path.basename(path)}, no {missing}")
                continue
            n_run += 1
            if named:
                files[named.group(1)] = text
                with open(named.group(1), "w", encoding="utf-8") as file:
                    file.write(text)
                if named.group(1).endswith(".py"):
                    compile(text, named.group(1), "exec")
            elif language == "python":
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(text, f"block {number} of {path}", "exec"), names)
            else:
                self.assertEqual(language, "sh", f"block {number} of {path}")
                said += self.run_commands(text)
        self.assertGreaterEqual(n_run, 1, path)
        return said

    def test_how_to(self):
        """The guide, the page on restarts and every page of docs/how-to run; each page has a separate namespace."""
        self.write_rows()
        self.write_photos()
        self.write_examples()
        self.write_shards()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.daemon.folder)
        os.symlink(os.path.join(SOURCE, "examples"), "examples")
        pages = sorted(glob.glob(os.path.join(DOCS, "how-to/*.md")))
        if not self.write_saved():
            pages = [page for page in pages if not page.endswith("from-huggingface.md")]
        self.assertGreaterEqual(len(pages), 9)
        for page in [os.path.join(DOCS, "guide.md"), os.path.join(DOCS, "exactly-once.md"), *pages]:
            with self.subTest(page=os.path.basename(page)):
                self.run_page(page)
            for pipeline in case.stager.list():
                if pipeline["state"] != "deleted":      # such a one is listed while a batch of it is in hand
                    case.stager.delete(pipeline["name"])

    def test_the_lines_of_the_page_are_those_of_the_example(self):
        """Ten lines more, and one that changes."""
        lines = [re.sub(r" *#\+$", "", line) for line in read(os.path.join(SOURCE, "examples/elastic_torch.py")).splitlines()]
        shown = re.findall(r"^\+(.*)$", read(os.path.join(DOCS, "how-to/ddp.md")), re.M)
        self.assertEqual([line for line in shown if line not in lines], [])
        self.assertEqual(len(shown), 11)

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
        self.assertIn('field 1: "two" is not a valid float32', said)
        self.assertIn("line 602", said)

    def test_the_page_of_the_package(self):
        rows = "label,amount,word\n" + "".join(f"{i % 2},{i},word{i}\n" for i in range(640))
        self.file("rows.csv", rows)
        self.write_modules()
        self.write_photos()
        self.run_blocks("python.md")


if __name__ == "__main__":
    case.main()
