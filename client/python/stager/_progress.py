# SPDX-License-Identifier: Apache-2.0
"""One line on a terminal while a stream waits for work of stagerd that takes longer than two seconds."""
from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, Optional, TypeVar

from ._errors import DeadlineExceededError, Error

_FIRST_MILLIS, _TURN_MILLIS = 2000, 500
_T = TypeVar("_T")


def _number(value: float, unit: str) -> str:
    step, names = (1024.0, ("B", "KiB", "MiB", "GiB", "TiB")) if unit == "bytes" else (1000.0, ("", "k", "M", "G", "T"))
    for name in names[:-1]:
        if value < step:
            break
        value /= step
    else:
        name = names[-1]
    return f"{value:.3g} {name}".rstrip() if value < 1000 else f"{value:.0f} {name}".rstrip()


def line_of(progress: Dict[str, Any]) -> str:
    """An entry of `progress` of a status: "step shuffle (line 8): 1.2 k of 200 k elements, 512/s, 388 s left"."""
    unit, done, total, seconds = (progress[key] for key in ("unit", "done", "total", "elapsed_seconds"))
    word = "" if unit == "bytes" else f" {unit}"
    of = f" of {_number(total, unit)}" if total else ""
    rate = f", {_number(done / seconds, unit)}/s" if seconds > 0 else ""
    left = progress["remaining_seconds"]
    return f"{progress['what']}: {_number(done, unit)}{of}{word}{rate}" + ("" if left is None else f", {left:.0f} s left")


def is_wanted(rank: Optional[int]) -> bool:
    """STAGER_PROGRESS=0 or 1 says it; else a terminal, of several ranks on one the first."""
    forced = os.environ.get("STAGER_PROGRESS", "")
    if forced in ("0", "1"):
        return forced == "1" and sys.stderr is not None
    return rank in (None, 0) and sys.stderr is not None and sys.stderr.isatty()


def _show(text: str) -> None:
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        width = 80
    clean = "".join(c if c.isprintable() else "?" for c in text)
    print("\r" + clean[:width - 1] + "\x1b[K", end="", file=sys.stderr, flush=True)


def wait(take: Callable[[int], _T], is_waiting: Callable[[], bool], status: Callable[[], Dict[str, Any]]) -> _T:
    """take(-1), with a line of progress. take: waits for so many milliseconds. is_waiting: after DeadlineExceededError,
    whether it is the time and not a batch."""
    millis, has_line = _FIRST_MILLIS, False
    try:
        while True:
            try:
                return take(millis)
            except DeadlineExceededError:
                if not is_waiting():
                    raise
            millis = _TURN_MILLIS
            try:
                found = status()["progress"]
            except Error:  # stagerd is away, or the pipeline is gone: `take` reports it
                found = []
            if found or has_line:
                _show("stager: " + line_of(found[0]) if found else "")
                has_line = bool(found)
    finally:
        if has_line:
            _show("")
