# SPDX-License-Identifier: Apache-2.0
"""Workers of a pipeline with a step py_function: `stager worker NAME`, and what `stager.open` starts.

A supervisor, a process of its own, starts workers and starts those again that died or that stagerd
let go of, ever more slowly when they do not last. Nothing runs in the trainer's process."""
from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import List, Optional

from . import _admin, _core
from ._errors import (AlreadyExistsError, DeadlineExceededError, Error, FailedPreconditionError, UnavailableError,
                      error_of)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_LASTED_S = 30.0  # a worker that lived that long is started again at once
_GRACE_S = 1.0    # for a worker that stagerd has let go of to end by itself
_LOOK_S = 1.0     # how often it is asked whether others' workers are there
_SOON_S = 0.1     # and as long as none was ready
_START_S = 60.0


class _Log:
    """Lines for standard error from a thread of their own: one that is full stops no supervisor. Lines
    that do not fit into the queue are counted, and the count is a line."""

    def __init__(self) -> None:
        self._lines: "queue.Queue[str]" = queue.Queue(100)
        self._lost = 0
        self._thread: Optional[threading.Thread] = None

    def say(self, line: str) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, daemon=True)
            self._thread.start()
        try:
            if self._lost > 0:
                self._lines.put_nowait(f"stager: {self._lost} lines are missing here: the reader of standard "
                                       "error did not keep up")
                self._lost = 0
            self._lines.put_nowait(line)
        except queue.Full:
            self._lost += 1

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            try:
                os.write(2, (line + "\n").encode(errors="replace"))
            except OSError:
                pass


class _Child:
    """A worker's process, as its supervisor sees it."""

    def __init__(self, name: str, most: int, stdout: Optional[int]) -> None:
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stager", "worker", "--control", str(other.fileno()),
                 "--most", str(most), name],
                stdin=subprocess.DEVNULL, stdout=stdout, pass_fds=[other.fileno()])
        self.control.setblocking(False)
        self.pidfd = os.pidfd_open(self.process.pid)
        self.began = time.monotonic()
        self.connection: Optional[int] = None
        self.channel: Optional[int] = None
        self.is_ready = False
        self.error: Optional[Error] = None
        self.is_let_go = False  # by stagerd
        self.kill_at: Optional[float] = None

    def hear(self) -> None:
        """What it said; its connection shows later that stagerd has released it."""
        try:
            message, fds, _, _ = socket.recv_fds(self.control, 16384, 2)
        except BlockingIOError:
            return
        except OSError:
            message, fds = b"", []
        if message == b"attached" and len(fds) == 2:
            self.connection, self.channel = fds
        elif message == b"ready":
            self.is_ready = True
        elif message:
            code, _, text = message.decode(errors="replace").partition(" ")
            self.error = error_of(int(code) if code.isdigit() else 2, text)
        elif self.kill_at is None:  # it has ended, or is about to
            self.kill_at = time.monotonic() + _GRACE_S

    def end(self) -> None:
        """Kills it. If it had ended before that by itself, reports to stagerd how."""
        status = self.process.poll()
        self.process.kill()
        self.process.wait()
        if status is not None and self.channel is not None:
            _core.tell_end(self.channel, status)
        self.control.close()
        for fd in (self.pidfd, self.connection, self.channel):
            if fd is not None:
                os.close(fd)

    def how(self) -> str:
        status = self.process.returncode
        if self.error is not None:
            return self.error.text
        if self.is_let_go:
            return "stagerd let go of it"
        if status >= 0:
            return f"ended with exit status {status}"
        name = next((f" ({known.name})" for known in signal.Signals if known == -status), "")
        return f"was killed by signal {-status}{name}"


class Supervisor:
    """Keeps n workers of a pipeline; n None: as many as the pipeline has threads, those of other processes included."""

    def __init__(self, name: str, n: Optional[int], parent: Optional[int]) -> None:
        self.name, self.n = name, n
        self._log = _Log()
        self._children: List[_Child] = []
        self._pause = 0.0
        self._start_at = 0.0
        self._look_at = 0.0
        self._missing = 0
        self._most = 0  # n None: how many there are to be, of all supervisors
        self._enough_until = 0.0  # those of others are starting
        self._told = False
        self._is_lost = False  # a connection to stagerd has ended: does it run?
        self._was_away = False
        self._parent: Optional[int] = None
        if parent is not None:
            self._parent = os.pidfd_open(parent)
            if os.getppid() != parent:
                raise UnavailableError("the process that started it has ended")

    # ---- what is to be done ----

    def _count(self) -> int:
        """How many to start."""
        if self.n is not None:
            return self.n - len(self._children)
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + (_LOOK_S if self._told else _SOON_S)
            try:
                status = _admin.status(self.name)
            except Error:
                if not self._told:
                    raise
                return 0
            if not status["py_function"]:
                raise FailedPreconditionError(f"pipeline {self.name} has no step py_function")
            starting = sum(not child.is_ready for child in self._children)
            self._most = status["num_threads"]
            self._missing = self._most - status["workers"] - starting if now >= self._enough_until else 0
            if status["workers"] > 0:
                self._tell()
        return self._missing

    def _is_away(self) -> bool:
        """Has stagerd ended? When it runs again, workers start at once. One that runs has let go of them, and they
        start after a pause."""
        try:
            _admin.status(self.name)
        except UnavailableError:
            self._was_away = True
            self._start_at, self._look_at = time.monotonic() + _SOON_S / 4, 0.0
            return True
        except Error:
            pass
        was_away, self._is_lost, self._was_away = self._was_away, False, False
        if was_away:
            self._pause, self._start_at = 0.0, 0.0
        return not was_away and time.monotonic() < self._start_at

    def _start(self) -> None:
        if self._is_lost and self._told:
            if self._is_away():
                return
        elif time.monotonic() < self._start_at:
            return
        for _ in range(self._count()):
            # Only the supervisor writes to the process that started it.
            self._children.append(_Child(self.name, self._most, 2 if self._parent is not None else None))
        self._missing = 0

    def _tell(self) -> None:
        """Reports to the process that started it that workers are ready."""
        if not self._told:
            self._told = True
            print("ready", flush=True)

    def _restart_later(self, child: _Child) -> None:
        lasted = time.monotonic() - child.began >= _LASTED_S
        self._pause = _FIRST_PAUSE_S if lasted or self._pause == 0.0 else \
            min(2 * self._pause, _LONGEST_PAUSE_S)
        self._start_at = time.monotonic() + self._pause
        self._look_at = 0.0
        self._log.say(f"stager: worker pid {child.process.pid} of pipeline {self.name}: {child.how()}; the "
                      f"next one starts in {self._pause:.1f} s")

    def _reap(self) -> None:
        now = time.monotonic()
        for child in list(self._children):
            if child.process.poll() is None and (child.kill_at is None or now < child.kill_at):
                continue
            for _ in range(3):  # its terminal status, and what it sent before that
                child.hear()
            if child.is_ready:
                self._tell()
            child.end()
            self._children.remove(child)
            if isinstance(child.error, AlreadyExistsError):  # others were faster
                self._enough_until = now + _LOOK_S
                continue
            if not self._told:
                raise child.error or UnavailableError(
                    f"a worker of pipeline {self.name} {child.how()} before it was ready: its standard "
                    "error may say why")
            self._is_lost = self._is_lost or child.is_let_go or isinstance(child.error, UnavailableError)
            self._restart_later(child)

    # ---- the loop ----

    def _wait(self) -> bool:
        """Waits for an event. False: the process that started it has ended."""
        poll, now = select.poll(), time.monotonic()
        ends = [child.kill_at for child in self._children if child.kill_at is not None]
        for child in self._children:
            poll.register(child.pidfd, select.POLLIN)
            if child.kill_at is not None:
                continue
            poll.register(child.control, select.POLLIN)
            if child.connection is not None:
                poll.register(child.connection, select.POLLRDHUP)
        if self._parent is not None:
            poll.register(self._parent, select.POLLIN)
            poll.register(0, select.POLLIN)
        if self._is_lost and self._told:
            ends.append(self._start_at if self._was_away else now)
        elif self.n is None or len(self._children) < self.n:
            ends.append(max(self._start_at, self._look_at if self.n is None else 0.0))
        wait = max(min(ends) - now, 0.0) if ends else _LOOK_S
        events = dict(poll.poll(int(min(wait, _LOOK_S) * 1000) + 1))
        if self._parent is not None and (self._parent in events or 0 in events):
            return False
        for child in self._children:
            if child.connection in events:
                # Of one that is dead it lets go, too.
                child.is_let_go = child.process.poll() is None and child.pidfd not in events
                child.kill_at = now + _GRACE_S
            if child.control.fileno() in events:
                child.hear()
                if child.is_ready:
                    self._tell()
        return True

    def run(self) -> None:
        try:
            while True:
                self._start()
                if not self._wait():
                    return
                self._reap()
        finally:
            for child in self._children:
                child.end()


# ---- of a stream ----

class Workers:
    """The supervisor that a stream has started; it ends with the stream, or with its process."""

    def __init__(self, name: str, runtime_dir: Optional[str], n: Optional[int]) -> None:
        environment = dict(os.environ)
        # What can be imported here can be imported there.
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        if runtime_dir is not None:
            environment["STAGER_RUNTIME_DIR"] = runtime_dir
        command = [sys.executable, "-m", "stager", "worker", "--parent", str(os.getpid()), name]
        if n is not None:
            command += ["--number", str(n)]
        self._pid = os.getpid()
        # A session of its own: Ctrl-C at the terminal is for this process.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env=environment, start_new_session=True)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], _START_S)[0]:
            raise DeadlineExceededError(f"workers did not start within {_START_S:.0f} s")
        words = out.readline().decode(errors="replace").strip()
        if words != "ready":
            code, _, text = words.partition(" ")
            raise error_of(int(code) if code.isdigit() else 14, text or "the workers' supervisor ended")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        if os.getpid() != self._pid or self._process.returncode is not None:
            return
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


def start(name: str, runtime_dir: Optional[str], n: Optional[int]) -> Optional[Workers]:
    """What a stream of that pipeline needs; n as `workers` of `stager.open`."""
    if n == 0 or not _admin.status(name, runtime_dir=runtime_dir)["py_function"]:
        return None
    return Workers(name, runtime_dir, n)
