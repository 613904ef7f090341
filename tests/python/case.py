# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the Python package: a daemon for each class of tests, pipelines, programs that
run beside the test. Needs only the standard library, NumPy, and the package itself.

    test_x.py BUILD [NAME]...       ends with "N passed, N failed, N skipped"
"""
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))
from daemon import SLOW, Daemon, Failed  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
SHIM = os.environ.get("STG_DIE_IN_FSYNC", "")
PACKAGE = os.path.join(BUILD, "client/python")
sys.path.insert(0, PACKAGE)
import stager  # noqa: E402

os.environ["PYTHONPATH"] = PACKAGE


def need(module):
    """A framework under test; without it the tests are skipped."""
    try:
        return importlib.import_module(module)
    except ImportError:
        print(f"skipped: no {module}")
        sys.exit(77)


def wait_until(what, seconds=20):
    """Waits for an effect of another process."""
    end = time.monotonic() + seconds * SLOW
    while not what():
        if time.monotonic() > end:
            raise Failed(f"it did not come in {seconds * SLOW} s")
        time.sleep(0.005)


class Program:
    """Python code in a separate process that can import stager. It prints lines as marks."""

    def __init__(self, daemon, code):
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=daemon.env(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self):
        return self.process.stdout.readline().strip()

    def say(self, text=""):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def sleeps(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "S"

    def interrupt(self):
        """Sends Ctrl-C once the process waits."""
        wait_until(self.sleeps)
        self.process.send_signal(signal.SIGINT)

    def end(self, seconds=30):
        """Returns (exit status, the rest of its output, its errors)."""
        out, err = self.process.communicate(timeout=seconds * SLOW)
        return self.process.returncode, out, err


class Case(unittest.TestCase):
    """Tests with a daemon; the environment points to it."""

    settings = {"memory_budget": "1GiB"}

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(BUILD, **cls.settings)
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()
        os.environ["STAGER_RUNTIME_DIR"] = cls.daemon.runtime_dir

    def start_with_shim(self):
        """Starts the daemon with an fsync that the file it returns rules."""
        if not SHIM:
            self.skipTest("no shim: run by meson")
        flag = os.path.join(self.daemon.folder, "die-at")
        before = dict(os.environ)
        folder, library = os.path.split(SHIM)  # LD_PRELOAD ends a path at a space
        folders = os.pathsep.join(filter(None, [folder, before.get("LD_LIBRARY_PATH")]))
        os.environ.update(LD_PRELOAD=library, LD_LIBRARY_PATH=folders, STG_DIE_AT=flag)
        try:
            self.daemon.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        return flag

    @staticmethod
    def rule(flag, text):
        with open(flag, "w", encoding="ascii") as file:
            file.write(text)

    def file(self, name, text):
        path = os.path.join(self.daemon.folder, f"{self._testMethodName}-{name}")
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def apply(self, **pipeline):
        """Applies a pipeline under that name or the test's; JSON is YAML."""
        pipeline = {"name": self._testMethodName[:64], **pipeline}
        return stager.apply(json.dumps(pipeline))

    def numbers(self, stop=10, batch_size=2, drop_remainder=False, steps=(), **staged):
        """Batches {value: int64 [batch_size]} that count from 0."""
        batch = {"batch": {"batch_size": batch_size, "drop_remainder": drop_remainder}}
        return self.apply(dataset=[{"range": {"stop": stop}}, *steps, batch], staged=staged)

    def nothing(self, **staged):
        """A pipeline without output: its broadcast waits for a client that never attaches."""
        return self.numbers(delivery="broadcast", num_clients=2, **staged)


class _Result(unittest.TextTestResult):
    n_passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.n_passed += 1


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=_Result)
    names = [argument for argument in sys.argv[2:]]
    program = unittest.main(argv=[sys.argv[0], *sum((["-k", name] for name in names), [])],
                            testRunner=runner, exit=False)
    result = program.result
    n_failed = len(result.failures) + len(result.errors)
    print(f"{result.n_passed} passed, {n_failed} failed, {len(result.skipped)} skipped")
    sys.exit(1 if n_failed or result.n_passed == 0 else 0)
