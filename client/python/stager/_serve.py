# SPDX-License-Identifier: Apache-2.0
"""A daemon of one's own, for a notebook or a laptop."""
from __future__ import annotations

import atexit
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Optional, Union

from . import _admin
from ._errors import DeadlineExceededError, FailedPreconditionError, NotFoundError, UnavailableError
from ._stream import Stream

_START_S = 30
_STOP_S = 10
_PREFIX = "stager-serve-"


_BESIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stagerd")


def _find_stagerd(given: Optional[str]) -> str:
    if given is not None:
        return given
    for path in (os.environ.get("STAGERD"), _BESIDE, shutil.which("stagerd")):
        if path and os.access(path, os.X_OK):
            return path
    raise NotFoundError("stagerd was not found, neither in this package nor on PATH: set stagerd= or the "
                        "environment variable STAGERD")


def _lock(folder: str) -> int:
    """A descriptor that marks the folder as in use while it is open."""
    new = os.path.join(folder, "lock.new")
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.rename(new, os.path.join(folder, "lock"))
    return fd


def _sweep() -> None:
    """Removes folders of this user's whose process was killed, and whose stagerd has ended since."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            fd = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use
            pass
        finally:
            os.close(fd)


class Server:
    """A stagerd that belongs to this process: its folders are below a temporary one, and it ends by
    `close`, with the `with`, at exit, or when this process and children that it forked are gone,
    however they ended. The folders of one whose process was killed go when the next one starts. A
    child of fork leaves it alone."""

    def __init__(self, *, stagerd: Optional[str] = None, **settings: Any) -> None:
        _sweep()
        self.folder = tempfile.mkdtemp(prefix=_PREFIX)
        self.runtime_dir = str(settings.get("runtime_dir", os.path.join(self.folder, "run")))
        self.log_path = os.path.join(self.folder, "log")
        self._pid = os.getpid()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._in_use = _lock(self.folder)
        try:
            self._start(_find_stagerd(stagerd), settings)
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)
        _admin.served.add(self.runtime_dir)

    def _start(self, program: str, settings: Dict[str, Any]) -> None:
        config = os.path.join(self.folder, "stagerd.yaml")
        values = {"runtime_dir": self.runtime_dir, "state_dir": os.path.join(self.folder, "state"),
                  "pipeline_dir": os.path.join(self.folder, "pipelines"),
                  # The package has no stager-gate.
                  **({"gate": {"enable": False}} if program == _BESIDE else {}), **settings}
        for key in ("runtime_dir", "state_dir", "pipeline_dir"):
            os.makedirs(values[key], exist_ok=True)
        with open(config, "w", encoding="utf-8") as file:
            file.writelines(f"{key}: {json.dumps(value)}\n" for key, value in values.items())
        # A session of its own: Ctrl-C at the terminal is for this process.
        with open(self.log_path, "wb") as log:
            self._process = subprocess.Popen([program, "--foreground", "--until-eof", "--config", config],
                                             stdin=subprocess.PIPE, stdout=log, stderr=log,
                                             start_new_session=True, pass_fds=[self._in_use])
        end = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None:
                raise UnavailableError(f"{program} ended with {self._process.returncode}:\n{self.log()}")
            if time.monotonic() > end:
                raise DeadlineExceededError(f"{program} does not answer:\n{self.log()}")
            time.sleep(0.005)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(os.path.join(self.runtime_dir, "attach.sock")) == 0

    @property
    def pid(self) -> int:
        """Of stagerd; 0 once it was closed."""
        return self._process.pid if self._process is not None else 0

    def log(self) -> str:
        """What stagerd said."""
        self._check()
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def _check(self) -> str:
        if self._process is None:
            raise FailedPreconditionError("this daemon was closed: stager.serve() starts another")
        return self.runtime_dir

    def open(self, name: str, **options: Any) -> Stream:
        """As stager.open, of this daemon."""
        return Stream(name, runtime_dir=self._check(), **options)

    def check(self, source: _admin.Source) -> Dict[str, Any]:
        """As stager.check, of this daemon."""
        return _admin.check(source, runtime_dir=self._check())

    def apply(self, source: _admin.Source, **options: Any) -> _admin.Applied:
        """As stager.apply, to this daemon."""
        return _admin.apply(source, runtime_dir=self._check(), **options)

    def list(self) -> List[Dict[str, Any]]:
        """All pipelines of this daemon."""
        return _admin.list(runtime_dir=self._check())

    def status(self, name: str) -> Dict[str, Any]:
        """As stager.status, of this daemon."""
        return _admin.status(name, runtime_dir=self._check())

    def explain(self, name: str) -> Dict[str, Any]:
        """As stager.explain, of this daemon."""
        return _admin.explain(name, runtime_dir=self._check())

    def commits(self, name: str) -> List[Dict[str, Any]]:
        """As stager.commits, of this daemon."""
        return _admin.commits(name, runtime_dir=self._check())

    def versions(self, name: str) -> List[Dict[str, Any]]:
        """As stager.versions, of this daemon."""
        return _admin.versions(name, runtime_dir=self._check())

    def schema(self, path: Union[str, "os.PathLike[str]"]) -> Dict[str, Any]:
        """As stager.schema, by this daemon."""
        return _admin.schema(path, runtime_dir=self._check())

    def rollback(self, name: str, generation: Optional[int] = None, **options: Any) -> _admin.Applied:
        """As stager.rollback, to this daemon."""
        return _admin.rollback(name, generation, runtime_dir=self._check(), **options)

    def audit(self, name: str, other: Optional[str] = None, *, job: Optional[str] = None) -> Dict[str, Any]:
        """As stager.audit, of this daemon."""
        return _admin.audit(name, other, job=job, runtime_dir=self._check())

    def delete(self, name: str, **options: Any) -> None:
        """As stager.delete, of this daemon."""
        _admin.delete(name, runtime_dir=self._check(), **options)

    def close(self) -> None:
        """Ends stagerd and removes its folders."""
        if os.getpid() != self._pid:
            return
        _admin.served.discard(self.runtime_dir)
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._in_use >= 0:
            os.close(self._in_use)
        self._in_use = -1
        atexit.unregister(self.close)

    def __repr__(self) -> str:
        state = f"in {self.runtime_dir}, pid {self.pid}" if self._process is not None else "closed"
        return f"<stager.Server {state}>"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(*, stagerd: Optional[str] = None, **settings: Any) -> Server:
    """Starts a stagerd for this process alone; settings are those of stagerd.yaml."""
    return Server(stagerd=stagerd, **settings)
