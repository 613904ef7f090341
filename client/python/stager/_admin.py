# SPDX-License-Identifier: Apache-2.0
"""Requests to the daemon: what `stagerctl --json` prints, as dicts and lists."""
from __future__ import annotations

import json
import os
import warnings
from typing import Any, Dict, List, Optional, Set, Tuple, Union

from . import _core, _ranks
from ._errors import Error, InvalidArgumentError, UnavailableError
from ._places import TEXT, Places, depth, script

# Text of a pipeline, a Path to one, or what a builder made.
Source = Union[str, "os.PathLike[str]", Any]


# This process, and those that it forks: one run of a script.
_run = int.from_bytes(os.urandom(8), "little") | 1

# Runtime directories of the daemons that `serve` has started in this process.
served: Set[str] = set()


# Of the pipelines that this process has built and applied, by runtime directory and name.
_places: Dict[Tuple[str, str], Places] = {}


def _key(runtime_dir: Optional[str], name: str) -> Tuple[str, str]:
    return os.fspath(runtime_dir or os.environ.get("STAGER_RUNTIME_DIR", "")), str(name)


def places_of(runtime_dir: Optional[str], name: str) -> Optional[Places]:
    """Where this process made the parts of a pipeline, if it did."""
    return _places.get(_key(runtime_dir, name))


def locate(error: Error, places: Optional[Places]) -> None:
    """Lets an error name places in Python."""
    if places is not None:
        error.text = places.named(error.text)
        error.args = (error.text, *error.args[1:])


def advised(error: UnavailableError) -> UnavailableError:
    """Where there is no daemon: also what `serve` has to do with it."""
    if not error.text.startswith("cannot reach stagerd"):
        return error
    word = "; or have stager.serve() start one for this process"
    if served:
        word = ("; the one that stager.serve() started here is asked by its own methods, server.open(…), or by "
                f"runtime_dir=server.runtime_dir, which is {' or '.join(sorted(served))}")
    return UnavailableError(error.text + word)


def _ask(kind: str, runtime_dir: Optional[str], name: Optional[str] = None, text: str = "",
         file: Optional[str] = None, replace: bool = False,
         if_generation: Optional[int] = None, script: Optional[str] = None, generation: int = 0,
         warm: bool = False, job: Optional[str] = None) -> Any:
    try:
        return json.loads(_core.request(kind, runtime_dir, name, text, file, replace, if_generation, script, _run,
                                        generation, warm, job))
    except UnavailableError as error:
        raise advised(error) from None


def _read(source: Source) -> Tuple[str, str, Optional[Places]]:
    """Text, the name that errors give it, and where Python made its parts."""
    if isinstance(source, os.PathLike):
        path = os.fspath(source)
        with open(path, encoding="utf-8") as file:
            return file.read(), path, None
    if hasattr(source, "_written"):
        text, places = source._written()
        return text, TEXT, places
    if not isinstance(source, str):
        raise TypeError(f"a pipeline is its text, a pathlib.Path of it, or what a builder made, not {source!r}")
    if "\n" not in source and "{" not in source:
        raise InvalidArgumentError(f"{source!r} is not the text of a pipeline; for a file: "
                                   f"pathlib.Path({source!r})")
    return source, "<text>", None


def check(source: Source, *, runtime_dir: Optional[str] = None) -> Dict[str, Any]:
    """Is it a good pipeline? What a batch would hold, and how much memory it would take."""
    text, file, places = _read(source)
    try:
        reply: Dict[str, Any] = _ask("check", runtime_dir, text=text, file=file)
    except Error as error:
        locate(error, places)
        raise
    return reply if places is None else places.named_in(reply)


def apply(source: Source, *, name: Optional[str] = None, replace: bool = False, warm: bool = False,
          if_generation: Optional[int] = None, runtime_dir: Optional[str] = None) -> Applied:
    """Hands a pipeline to the daemon, which keeps it. source: its text, a pathlib.Path of it, or what
    a builder made. The result is its name, a str, with `reply` and so `generation`. Other content under
    a name that is there is refused, with what differs, unless `replace` says so, `if_generation` is what
    is there, or an earlier run of the same script applied it and no client is attached. With `warm` the
    call returns when the new version has filled its buffer and taken over; if it cannot, nothing changes."""
    text, file, places = _read(source)
    try:
        reply = _ask("apply", runtime_dir, name, text, file, replace, if_generation, script(), warm=warm)
    except Error as error:
        locate(error, places)
        raise
    if places is not None:
        _places[_key(runtime_dir, reply["name"])] = places
        reply = places.named_in(reply)
    _warn(reply)
    return Applied(reply)


def _warn(reply: Dict[str, Any]) -> None:
    for line in reply["advice"]:
        if line.startswith("problem: "):
            warnings.warn(f"pipeline {reply['name']}: {line[len('problem: '):]}", RuntimeWarning,
                          stacklevel=depth())


class Applied(str):
    """The name of a pipeline that was applied; `reply` is what the daemon said of it."""

    reply: Dict[str, Any]

    def __new__(cls, reply: Dict[str, Any]) -> Applied:
        self = super().__new__(cls, reply["name"])
        self.reply = reply
        return self

    @property
    def generation(self) -> int:
        return int(self.reply["generation"])


def list(*, runtime_dir: Optional[str] = None) -> List[Dict[str, Any]]:  # pylint: disable=redefined-builtin
    """All pipelines."""
    reply: List[Dict[str, Any]] = _ask("list", runtime_dir)
    return reply


def status(name: str, *, runtime_dir: Optional[str] = None) -> Dict[str, Any]:
    """The attached clients, their progress, and what each waits for."""
    reply: Dict[str, Any] = _ask("status", runtime_dir, name)
    return reply


def commits(name: str, *, job: Optional[str] = None, runtime_dir: Optional[str] = None) -> List[Dict[str, Any]]:
    """The last commits of a pipeline, from the oldest on. job: where etcd has the commits, those of that job; None: of the
    job that the launcher names. Warns of older ones that did not fit the daemon's reply."""
    reply = _ask("commits", runtime_dir, name, job=_ranks.job() if job is None else job)
    if reply["n_left_out"] > 0:
        warnings.warn(f"pipeline {name}: {reply['n_left_out']} older commits did not fit the daemon's reply",
                      RuntimeWarning, stacklevel=depth())
    found: List[Dict[str, Any]] = reply["commits"]
    return found


def versions(name: str, *, runtime_dir: Optional[str] = None) -> List[Dict[str, Any]]:
    """The last 10 generations of a pipeline, whose definitions the daemon keeps; the current one is the last."""
    reply: List[Dict[str, Any]] = _ask("versions", runtime_dir, name)
    return reply


def schema(path: Union[str, "os.PathLike[str]"], *, runtime_dir: Optional[str] = None) -> Dict[str, Any]:
    """What is in a data file, or in the first one of a pattern or a folder: `stagerctl schema --json`. A relative path
    is one of this process's folder."""
    reply: Dict[str, Any] = _ask("schema", runtime_dir, os.path.expanduser(os.fspath(path)))
    return reply


def rollback(name: str, generation: Optional[int] = None, *, warm: bool = False, if_generation: Optional[int] = None,
             runtime_dir: Optional[str] = None) -> Applied:
    """Applies the definition of an earlier generation again, as a new one; None: the last one with other content.
    The result is as that of `apply`; reply["restored"] is the generation whose definition it is. Attached clients
    receive the published batches, then AbortedError. warm: as of `apply`. NotFoundError names the generations that are kept."""
    if generation is not None and generation < 1:
        raise ValueError(f"a generation is a number of at least 1, not {generation}")
    reply = _ask("rollback", runtime_dir, name, if_generation=if_generation, generation=generation or 0, warm=warm)
    _places.pop(_key(runtime_dir, name), None)
    _warn(reply)
    return Applied(reply)


def audit(name: str, other: Optional[str] = None, *, job: Optional[str] = None,
          runtime_dir: Optional[str] = None) -> Dict[str, Any]:
    """Which client got and acknowledged which items, in each attempt, and whether the attempts that led to the last
    commit delivered each item exactly once: `stagerctl audit --json`. With `other`: the first item in which two runs
    differ. Each is the name of a pipeline, or a path with a / of a file of `stagerctl audit -o`, and may end with
    "@ATTEMPT". job: the share of this host in a job whose hosts etcd has; without `other`."""
    if job is not None and other is not None:
        raise ValueError("hosts that come and go number their items anew: audit one run of a job")
    try:
        reply: Dict[str, Any] = json.loads(_core.audit(runtime_dir, name, other, job))
    except UnavailableError as error:
        raise advised(error) from None
    return reply


def explain(name: str, *, runtime_dir: Optional[str] = None) -> Dict[str, Any]:
    """What holds a pipeline up, what each node of its graph takes, and its partition."""
    reply: Dict[str, Any] = _ask("explain", runtime_dir, name)
    places = places_of(runtime_dir, name)
    return reply if places is None else places.named_in(reply)


def delete(name: str, *, if_generation: Optional[int] = None,
           runtime_dir: Optional[str] = None) -> None:
    """Takes a pipeline from the daemon. Its clients get ABORTED."""
    _ask("delete", runtime_dir, name, if_generation=if_generation)
    _places.pop(_key(runtime_dir, name), None)
