#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An unread standard error, a pipe of 4 KiB, stops neither pipelines nor the shutdown of stagerd. Once it
is read again, the log reports the number of missing lines.

    check_log.py BUILD
"""
import contextlib
import fcntl
import os
import re
import select
import socket
import sys
import threading

from daemon import SLOW, Daemon, check, write

N_REFUSED = 4000  # lines of the log: more than the pipe and the queue hold
PIPELINE = """name: rows
dataset:
  - range: {start: 0, stop: 1000}
  - batch: {batch_size: 10}
graph:
  - {name: x, op: cast, input: [value], dtype: float32}
staged: {features: {x: x}}
"""
LINE = re.compile(rb"\d\d:\d\d:\d\d\.\d{3} (error|warning|info|debug): .+")
MISSING = re.compile(rb"warning: (\d+) lines are missing here: the reader of the log did not keep up")
REFUSED = re.compile(rb"warning: pid \d+ was refused: stagerd has max_clients 4 connections already")


class Quiet(Daemon):
    """A daemon that logs into a pipe of 4 KiB."""

    def start(self):
        self.end, other = os.pipe()
        fcntl.fcntl(other, fcntl.F_SETPIPE_SZ, 4096)
        super().start(stderr=other)
        os.close(other)

    def connect(self):
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        probe.connect(os.path.join(self.runtime_dir, "attach.sock"))
        return probe

    def flood(self):
        """Makes the daemon log N_REFUSED lines, or a few more; returns the number."""
        refused = 0
        while refused < N_REFUSED:
            with contextlib.ExitStack() as stack:
                probes = select.poll()
                for _ in range(100):
                    probes.register(stack.enter_context(self.connect()), select.POLLIN)
                answered = set()
                while len(answered) < 96:  # stagerd serves four of them
                    ready = probes.poll(20000 * SLOW)
                    check(ready, "stagerd stands still: nothing reads its log")
                    answered.update(fd for fd, _ in ready)
                refused += len(answered)
        return refused


def check_lines(text, n_refused):
    """Every line is whole; lines read and lines missing add up to all."""
    lines = text.splitlines()
    for line in lines:
        check(LINE.fullmatch(line), f"a torn line: {line!r}")
    reports = [int(found.group(1)) for found in map(MISSING.search, lines) if found]
    refused = sum(REFUSED.search(line) is not None for line in lines)
    check(reports, "the log does not say how many lines are missing")
    # A few other lines, about pipelines, may be among the missing ones.
    check(n_refused <= sum(reports) + refused <= n_refused + 200,
          f"of {n_refused} lines {refused} were read, {reports} are missing")


def read_to_end(end, texts):
    with open(end, "rb") as file:
        texts.append(file.read())


def main(build):
    with Quiet(build, max_clients=4) as daemon:
        path = os.path.join(daemon.folder, "rows.yaml")
        write(path, PIPELINE)
        n_refused = daemon.flood()
        daemon.ctl("apply", path)
        check(len(daemon.cat("rows")) == 100, "the pipeline stands still")
        texts = []
        reader = threading.Thread(target=read_to_end, args=(daemon.end, texts))
        reader.start()
        check(daemon.stop() == 0, "the exit status")
        reader.join()
        check_lines(texts[0], n_refused)
        last = texts[0].splitlines()[-1]
        check(b"info: stopped" in last or MISSING.search(last), f"the last line: {last!r}")
    with Quiet(build, max_clients=4) as daemon:
        daemon.flood()
        check(daemon.stop() == 0, "SIGTERM while nothing reads the log")
        os.close(daemon.end)
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1])
