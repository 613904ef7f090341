# SPDX-License-Identifier: Apache-2.0
"""Ray: stage workers as actors. Ray places them, starts them again and adds nodes for them; the stagerd of this host
asks them for batches.

    with stager.ray.workers(pipeline, num_workers=4, num_cpus=2) as workers:
        with stager.open(stager.apply(workers.pipeline)) as stream:
            …

Nodes need `stagerd` with `stager-worker`, this package, and the files of the pipeline under the same names.
"""
from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from typing import Any, Dict, List, Optional, Union

import ray

from ._errors import DeadlineExceededError, InvalidArgumentError, UnavailableError
from ._pipeline import Dataset, Pipeline
from ._serve import _find_stagerd

_LOOK_S = 0.25   # between looks at the answers of actors
_AWAY_S = 0.5    # before an actor that is away is asked again
_FAILED_S = 10.0  # and one that cannot start its stagerd
_WATCH_S = 2.5   # an actor that has nothing to say answers after this time
_CLOSE_S = 5.0   # actors have so long to end their stagerd, before Ray ends them
_PORT = b", port "


def _write(folder: str, name: str, text: str) -> str:
    """A file of this user alone, whole or not at all."""
    path = os.path.join(folder, name)
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
    return path


class _Worker:
    """The actor: a `stagerd --worker`, which ends when the actor's process does, however that ends."""

    def __init__(self, text: str, token: str, threads: int, stagerd: Optional[str]) -> None:
        self._text, self._token, self._threads, self._stagerd = text, token, threads, stagerd
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._url = ""
        self._is_closed = False

    def _start(self) -> None:
        host: str = ray.util.get_node_ip_address()
        host = f"[{host}]" if ":" in host else host
        folder = tempfile.mkdtemp(prefix="stager-ray-")
        try:
            self._process = subprocess.Popen(
                [_find_stagerd(self._stagerd), "--worker", "--until-eof", "--listen", f"{host}:0", "--threads",
                 str(self._threads), "--token-file", _write(folder, "token", self._token + "\n"),
                 _write(folder, "pipeline.yaml", self._text)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            self._url = f"http://{host}:{self._port(self._process)}"
        finally:  # it has read both files
            shutil.rmtree(folder, ignore_errors=True)
        threading.Thread(target=self._pass_on, args=(self._process,), daemon=True).start()

    @staticmethod
    def _port(process: subprocess.Popen[bytes]) -> int:
        """Of the line that says where it listens."""
        said: List[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.decode(errors="replace"))
            if b" listens on " in line and _PORT in line:
                return int(line.rsplit(_PORT, 1)[1])
        raise RuntimeError(f"stagerd --worker ended with {process.wait()}: {''.join(said).strip()}")

    @staticmethod
    def _pass_on(process: subprocess.Popen[bytes]) -> None:
        """What it logs goes where Ray has the log of the actor."""
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line.decode(errors="replace"))

    def url(self, known: Optional[str]) -> str:
        """Returns the address: at once if it is another one than `known`, and else after a while. Starts what has
        ended."""
        if self._process is not None and known == self._url:
            try:
                self._process.wait(_WATCH_S)
            except subprocess.TimeoutExpired:
                return self._url
        if not self._is_closed and (self._process is None or self._process.poll() is not None):
            self._start()
        return self._url

    def close(self) -> None:
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Workers:
    """Stage workers on a Ray cluster, and the pipeline that asks them. It is a context manager: at its end the workers
    end. A worker that Ray starts elsewhere is asked there."""

    #: The pipeline with `remote`: it has the files below, which stagerd reads again as they change.
    pipeline: Pipeline

    def __init__(self, pipeline: Union[Pipeline, Dataset], *, num_workers: int, num_cpus: float = 1,
                 mode: str = "auto", max_requests: Optional[int] = None, wait: int = 1, timeout: float = 300.0,
                 folder: Optional[str] = None, stagerd: Optional[str] = None, **options: Any) -> None:
        if num_workers < 1 or not 0 <= wait <= num_workers:
            raise InvalidArgumentError(f"num_workers={num_workers}, wait={wait}: at least one worker, and at most all to "
                                       "wait for")
        pipeline = pipeline.staged() if isinstance(pipeline, Dataset) else pipeline
        if not isinstance(pipeline, Pipeline):
            raise TypeError(f"{pipeline!r}: expected a stager.Pipeline or stager.Dataset")
        token = secrets.token_urlsafe(32)
        self._folder = tempfile.mkdtemp(prefix="stager-ray-", dir=folder)
        self._urls: Dict[int, str] = {}
        self._failed: Dict[int, str] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        threads = max(1, int(num_cpus))
        remote = {"workers_file": _write(self._folder, "workers", ""), "mode": mode,
                  "token_file": _write(self._folder, "token", token + "\n"),
                  "max_requests": min(64, num_workers * threads + 1) if max_requests is None else max_requests}
        self.pipeline = pipeline._with(remote=remote)
        self._actors: List[Any] = []
        self._thread = threading.Thread(target=self._watch, name="stager-ray", daemon=True)
        try:
            actor = ray.remote(_Worker).options(**{"num_cpus": num_cpus, "max_restarts": -1, "max_concurrency": 2,
                                                   "scheduling_strategy": "SPREAD", **options})
            arguments = (pipeline.yaml(), token, threads, stagerd)
            self._actors = [actor.remote(*arguments) for _ in range(num_workers)]
            self._thread.start()
            self._wait(wait, timeout)
        except BaseException:
            self.close()
            raise

    @property
    def urls(self) -> List[str]:
        """Of the workers that answer now."""
        with self._changed:
            return [url for _, url in sorted(self._urls.items())]

    def _wait(self, n: int, timeout: float) -> None:
        with self._changed:
            done = self._changed.wait_for(
                lambda: len(self._urls) >= n or len(self._actors) - len(self._failed) < n, timeout)
            n_there = len(self._urls)
            if n_there >= n:
                return
            why = next(iter(self._failed.values()), "Ray has not placed the others")
        kind = UnavailableError if done else DeadlineExceededError
        raise kind(f"stager.ray: {n_there} of {n} workers have started: {why}")

    def _watch(self) -> None:
        """Asks each actor where it is, always."""
        asked: Dict[Any, int] = {}
        due = {number: 0.0 for number in range(len(self._actors))}
        while not self._is_closed:
            for number in [number for number, at in due.items() if at <= time.monotonic()]:
                del due[number]
                asked[self._actors[number].url.remote(self._urls.get(number))] = number
            if not asked:
                time.sleep(_LOOK_S)
                continue
            for answer in ray.wait(list(asked), timeout=_LOOK_S)[0]:
                number = asked.pop(answer)
                due[number] = time.monotonic() + self._take(number, answer)

    def _take(self, number: int, answer: Any) -> float:
        """Returns in how many seconds to ask again."""
        url, why, pause = None, None, 0.0
        try:
            url = ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            why, pause = str(error.cause), _FAILED_S
        except ray.exceptions.ActorDiedError as error:  # Ray does not start it again
            why, pause = str(error), float("inf")
        except ray.exceptions.RayError:
            pause = _AWAY_S
        if self._is_closed:
            return pause
        if why is not None and number not in self._failed:
            warnings.warn(f"stager.ray: worker {number} has no stagerd: {why}")
        with self._changed:
            self._failed.pop(number, None)
            if why is not None:
                self._failed[number] = why
            if url != self._urls.pop(number, None) or url is None:
                others = list(self._urls.values())
                _write(self._folder, "workers", "".join(f"{each}\n" for each in [*others, *([url] if url else [])]))
            if url is not None:
                self._urls[number] = url
            self._changed.notify_all()
        return pause

    def close(self) -> None:
        """Ends the workers, and removes the files. A run of the pipeline goes on without workers."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread.is_alive():  # a call of Ray after its shutdown would end the process
            self._thread.join(_CLOSE_S)
        if ray.is_initialized():
            ends = [actor.close.remote() for actor in self._actors]
            if ends:
                ray.wait(ends, num_returns=len(ends), timeout=_CLOSE_S)
            for actor in self._actors:
                ray.kill(actor)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"<stager.ray.Workers: {len(self.urls)} of {len(self._actors)} answer>"

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def workers(pipeline: Union[Pipeline, Dataset], *, num_workers: int, num_cpus: float = 1, **options: Any) -> Workers:
    """Starts `num_workers` actors with `num_cpus` CPUs each, which make batches of this pipeline.

    mode, max_requests: of `remote` in the pipeline file. wait: so many workers answer before this returns, within
    `timeout` seconds; 0: none. folder: where the files are made that the stagerd of this host reads; a temporary one
    without it. stagerd: the program on the nodes. Other options are those of a Ray actor, such as `resources`."""
    return Workers(pipeline, num_workers=num_workers, num_cpus=num_cpus, **options)
