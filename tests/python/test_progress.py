# SPDX-License-Identifier: Apache-2.0
"""The line of progress on a terminal."""
import os
import pty
import re
import select
import subprocess
import sys
import time
import unittest.mock

import case
from case import SLOW, Case
import stager

CODE = """
import stager, sys
stream = stager.open("{name}")
print("open", flush=True)
stream.next(); print("taken", flush=True)
"""
SHUFFLE = """
name: {name}
dataset:
  - range: {{stop: 1000000}}
  - map:
      graph: {{late: {{op: sleep, input: [value], sleep_microseconds: 2000}}}}
      output: late
  - shuffle: {{buffer_size: {size}}}
  - batch: {{batch_size: 8}}
"""


class Progress(Case):
    def start(self, name, stderr):
        return subprocess.Popen([sys.executable, "-c", CODE.format(name=name)], env=self.daemon.env(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=stderr, text=True)

    def on_terminal(self, name, until):
        """What it writes to a terminal until that matches, or all of it."""
        master, slave = pty.openpty()
        process, written, end = self.start(name, slave), b"", time.monotonic() + 60 * SLOW
        os.close(slave)
        try:
            while until is None or not re.search(until, written.decode(errors="replace")):
                self.assertTrue(select.select([master], [], [], max(end - time.monotonic(), 0))[0], written)
                try:
                    more = os.read(master, 4096)
                except OSError:  # all of its descriptors are closed
                    break
                if not more:
                    break
                written += more
        finally:
            if until is not None:
                process.kill()
            output = process.communicate(timeout=60 * SLOW)[0]
            os.close(master)
        return written.decode(), output

    def test_a_slow_shuffle_is_one_line_with_rate_and_remaining_time(self):
        stager.apply(SHUFFLE.format(name="filling", size=400000))
        pattern = r"\rstager: step shuffle \(line 8\): [\d.]+( k)? of 400 k elements, \d+/s, \d+ s left\x1b\[K"
        written, _ = self.on_terminal("filling", pattern)
        self.assertRegex(written, pattern)
        self.assertNotIn("\n", written)

    def test_the_line_is_gone_when_the_batch_comes(self):
        stager.apply(SHUFFLE.format(name="short", size=4000))
        written, output = self.on_terminal("short", None)
        self.assertEqual(output, "open\ntaken\n")
        self.assertIn("step shuffle", written)
        self.assertTrue(written.endswith("\r\x1b[K"), written)

    def test_there_is_none_without_a_terminal(self):
        stager.apply(SHUFFLE.format(name="piped", size=4000))
        process = self.start("piped", subprocess.PIPE)
        self.assertEqual(process.communicate(timeout=60 * SLOW), ("open\ntaken\n", ""))

    def test_the_environment_turns_it_on_and_off(self):
        stager.apply(SHUFFLE.format(name="forced", size=4000))
        with unittest.mock.patch.dict(os.environ, STAGER_PROGRESS="1"):
            written = self.start("forced", subprocess.PIPE).communicate(timeout=60 * SLOW)[1]
        self.assertIn("step shuffle", written)
        self.assertTrue(written.endswith("\n\x1b[K"), written)  # a pipe of text: "\r" is read as "\n"
        stager.apply(SHUFFLE.format(name="silent", size=4000))
        with unittest.mock.patch.dict(os.environ, STAGER_PROGRESS="0"):
            written, _ = self.on_terminal("silent", None)
        self.assertEqual(written, "")

    def test_numbers_are_short(self):
        from stager._progress import line_of
        entry = {"what": "index", "unit": "bytes", "done": 3 << 29, "total": 3 << 30, "elapsed_seconds": 8.0, "remaining_seconds": 8.0}
        self.assertEqual(line_of(entry), "index: 1.5 GiB of 3 GiB, 192 MiB/s, 8 s left")
        entry = {"what": "files", "unit": "files", "done": 999, "total": 0, "elapsed_seconds": 3.0, "remaining_seconds": None}
        self.assertEqual(line_of(entry), "files: 999 files, 333/s")


if __name__ == "__main__":
    case.main()
