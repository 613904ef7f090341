#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon derives memory from the known sizes of batches: photographs in large batches, and the numbers in
errors."""
import os
import re
import struct

import case
import stager
from daemon import Daemon
from stager import ops

SIDE = 32


def jpeg():
    """A gray baseline JPEG of three components: each block is one bit of DC and one of AC."""
    def part(kind, data):
        return b"\xff" + bytes([kind]) + struct.pack(">H", len(data) + 2) + data
    one_code = bytes([1] + [0] * 15) + b"\0"
    frame = struct.pack(">BHHB", 8, SIDE, SIDE, 3) + b"".join(bytes([i, 0x11, 0]) for i in (1, 2, 3))
    scan = b"\x03" + b"".join(bytes([i, 0]) for i in (1, 2, 3)) + b"\0\x3f\0"
    n_bits = 2 * 3 * (SIDE // 8) ** 2
    return (b"\xff\xd8" + part(0xdb, b"\0" + b"\1" * 64) + part(0xc0, frame) + part(0xc4, b"\0" + one_code)
            + part(0xc4, b"\x10" + one_code) + part(0xda, scan) + bytes(n_bits // 8) + b"\xff\xd9")


class Photographs(case.Case):
    settings = {"memory_budget": "1GiB"}

    def photographs(self, n):
        folder = os.path.join(self.daemon.folder, f"photos{n}")
        for i in range(n):
            path = os.path.join(folder, "cat" if i % 2 else "dog", f"{i}.jpg")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(jpeg())
        return os.path.join(folder, "*/*.jpg")

    def pipeline(self, n, batch_size, **staged):
        """The recipe of docs/how-to/photographs.md, without the label's table of classes."""
        def training(r):
            part = ops.random_flip(ops.random_resized_crop(r["bytes"], size=[224, 224]))
            image = ops.normalize_image(part, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
            return {"image": image, "label": ops.string_length(r["path"])}
        photos = stager.files(self.photographs(n), seed=7).read_file()
        return photos.map(training, num_parallel_calls="auto").ignore_errors().batch(batch_size).staged(**staged)

    def take(self, n, daemon=None):
        rows = 0
        runtime_dir = (daemon or self.daemon).runtime_dir
        for batch in stager.open(self._testMethodName, runtime_dir=runtime_dir):
            self.assertEqual(batch["image"].shape[1:], (3, 224, 224))
            rows += len(batch["label"])
        self.assertEqual(rows, n)

    def refused(self, pipeline, what, daemon=None):
        """The number in the error, in MiB."""
        with self.assertRaises(stager.ResourceExhaustedError) as raised:
            stager.apply(pipeline, name=self._testMethodName, runtime_dir=(daemon or self.daemon).runtime_dir)
        found = re.search(what + r" (\d+)MiB", str(raised.exception))
        self.assertIsNotNone(found, str(raised.exception))
        return int(found.group(1))

    def test_batches_of_32_need_no_setting(self):
        stager.apply(self.pipeline(80, 32, capacity=4), name=self._testMethodName)
        self.take(80)

    def test_batches_of_256_work_by_the_number_that_is_named(self):
        pipeline = self.pipeline(300, 256)
        number = self.refused(pipeline, "raise memory_budget in stagerd.yaml to")
        self.assertGreater(number, 1024)
        daemon = Daemon(case.BUILD, memory_budget=f"{number}MiB")
        self.addCleanup(daemon.close)
        daemon.start()
        stager.apply(pipeline, name=self._testMethodName, runtime_dir=daemon.runtime_dir)
        self.take(300, daemon)

    def test_a_budget_that_is_too_small_names_one_that_works(self):
        number = self.refused(self.pipeline(80, 32, memory_budget="64MiB"), "raise it to")
        stager.apply(self.pipeline(80, 32, memory_budget=f"{number}MiB"), name=self._testMethodName)
        self.take(80)

    def test_the_datasets_buffers_name_a_budget_that_works(self):
        path = self.file("lines", "".join(f"{i} is a line of a log, of some length {i}\n" for i in range(300000)))

        def lines(**staged):
            return stager.files(path).text_line().shuffle(300000, seed=1).batch(1000).staged(**staged)
        stager.apply(lines(memory_budget="16MiB"), name=self._testMethodName)
        with self.assertRaises(stager.ResourceExhaustedError) as raised:
            for _ in stager.open(self._testMethodName):
                pass
        number = re.search(r"raise staged.memory_budget to (\d+MiB)", str(raised.exception))
        self.assertIsNotNone(number, str(raised.exception))
        stager.apply(lines(memory_budget=number.group(1)), name=self._testMethodName, replace=True)
        self.assertEqual(sum(batch.info.n_rows for batch in stager.open(self._testMethodName)), 300000)

    def test_a_batch_that_is_too_large_names_a_budget_that_works(self):
        path = self.file("lines", "".join("x" * 900 + f" {i}\n" for i in range(4000)))

        def lines(**staged):
            words = stager.files(path).text_line().batch(2000)
            return words.map(lambda r: {"a": r["record"], "b": ops.string_upper(r["record"])}).staged(**staged)
        stager.apply(lines(memory_budget="16MiB"), name=self._testMethodName)
        with self.assertRaises(stager.ResourceExhaustedError) as raised:
            for _ in stager.open(self._testMethodName):
                pass
        number = re.search(r"raise staged.memory_budget to (\d+MiB)", str(raised.exception))
        self.assertIsNotNone(number, str(raised.exception))
        stager.apply(lines(memory_budget=number.group(1)), name=self._testMethodName, replace=True)
        self.assertEqual(sum(batch.info.n_rows for batch in stager.open(self._testMethodName)), 4000)


if __name__ == "__main__":
    case.main()
