# SPDX-License-Identifier: Apache-2.0
"""A stagerd for one test: with separate folders, ended by its pid.

    with Daemon(build) as daemon:
        daemon.ctl("apply", path)
"""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

SLOW = max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)
START_S = 10 * SLOW
STOP_S = 10 * SLOW


class Failed(Exception):
    """A failure, with the daemon's log."""


def check(condition, what):
    """Ends the test with `what` unless the condition holds."""
    if not condition:
        sys.exit(f"FAIL: {what}")


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Daemon:
    prefix = ()  # of its command

    def __init__(self, build, **settings):
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix="stg-daemon-")
        self.runtime_dir = os.path.join(self.folder, "run")
        self.log_path = os.path.join(self.folder, "log")
        self.process = None
        self.prefix = []  # of its command: a program that executes the rest
        values = dict(runtime_dir=self.runtime_dir, state_dir=os.path.join(self.folder, "state"),
                      pipeline_dir=os.path.join(self.folder, "pipelines"), log_level="info")
        values.update(settings)
        for key in ("runtime_dir", "state_dir", "pipeline_dir"):
            os.makedirs(values[key], exist_ok=True)
        self.config = os.path.join(self.folder, "stagerd.yaml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.writelines(f"{key}: {json.dumps(value)}\n" for key, value in values.items())

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for_log(self, text):
        """Returns whether the log holds the text, which a thread of the daemon writes soon after the event."""
        end = time.monotonic() + START_S
        while text not in self.log() and time.monotonic() < end:
            time.sleep(0.01)
        return text in self.log()

    def start(self, stderr=None):
        """Starts the daemon and waits until it answers a connection. stderr: replaces the log file."""
        with open(self.log_path, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*self.prefix, os.path.join(self.build, "daemon/stagerd"), "--foreground", "--config",
                 self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log if stderr is None else stderr)
        self.wait_until_it_answers()

    def wait_until_it_answers(self):
        end = time.monotonic() + START_S
        while not self.answers():
            if self.process.poll() is not None:
                raise Failed(f"stagerd ended with {self.process.returncode}:\n{self.log()}")
            if time.monotonic() > end:
                raise Failed(f"stagerd does not answer after {START_S} s:\n{self.log()}")
            time.sleep(0.01)

    def answers(self):
        """Whether this daemon does: for a moment a child of a killed one may have its socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(os.path.join(self.runtime_dir, "attach.sock"))
                peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                return struct.unpack("3i", peer)[0] == self.process.pid
            except OSError:
                return False

    def stop(self):
        """Ends the daemon with SIGTERM; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed(f"stagerd does not end {STOP_S} s after SIGTERM:\n{self.log()}") from None

    def close(self):
        try:
            if self.process is not None and self.process.poll() is None:
                self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def env(self):
        return dict(os.environ, STAGER_RUNTIME_DIR=self.runtime_dir)

    def run(self, *command, timeout=60):
        """Runs a program of the build ("client/…"); returns its CompletedProcess."""
        return subprocess.run([os.path.join(self.build, command[0]), *command[1:]],
                              env=self.env(), capture_output=True, timeout=timeout * SLOW,
                              stdin=subprocess.DEVNULL)

    def copy_of(self, name):
        """Copies a program of the build, with the client library, to where other users can run it: the build may lie in a
        folder that they cannot enter. The folder of the daemon must be open to them. Returns the path."""
        for each in (name, "client/libstager.so.0"):
            path = os.path.join(self.folder, "copies", each)
            if not os.path.exists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                shutil.copy(os.path.join(self.build, each), path)
        return os.path.join(self.folder, "copies", name)

    def ctl(self, *arguments):
        """Runs stagerctl; returns its output as bytes. Raises Failed if it fails."""
        result = self.run("client/stagerctl/stagerctl", *arguments)
        if result.returncode != 0:
            raise Failed(f"stagerctl {' '.join(arguments)}: {result.returncode}\n"
                         f"{result.stderr.decode(errors='replace')}\n{self.log()}")
        return result.stdout

    def gate(self, token_path):
        """Arguments of stagerctl for requests through the gate, a child that listens soon after stagerd does.

        Writes a token to the path.
        """
        token = json.loads(self.ctl("token", "--json"))
        write(token_path, token["token"])
        end = time.monotonic() + START_S
        while not os.path.exists(token["admin_url"].removeprefix("ipc://")) and time.monotonic() < end:
            time.sleep(0.01)
        return "--gate", token["admin_url"], "--token-file", token_path

    def cat(self, name):
        """The batches of a pipeline, as `stagerctl cat NAME --json` prints them."""
        return [json.loads(line) for line in self.ctl("cat", name, "--json").splitlines()]
