# SPDX-License-Identifier: Apache-2.0
"""Traces of stagerd and of PyTorch's profiler on one time line."""
from __future__ import annotations

import gzip
import json
import os
from typing import Any, Dict, Union

from ._errors import FailedPreconditionError, InvalidArgumentError

_Path = Union[str, "os.PathLike[str]"]


def _load(path: _Path) -> Dict[str, Any]:
    is_gzip = os.fspath(path).endswith(".gz")
    with gzip.open(path, "rt", encoding="utf-8") if is_gzip else open(path, encoding="utf-8") as file:
        try:
            trace = json.load(file)
        except ValueError as error:
            raise InvalidArgumentError(f"{os.fspath(path)}: not JSON: {error}") from None
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise InvalidArgumentError(f"{os.fspath(path)}: not a trace: an object with traceEvents is expected")
    return trace


def merge_traces(profiler: _Path, stager: _Path, merged: _Path) -> None:
    """Writes one Chrome trace of two, for Perfetto and chrome://tracing: of torch.profiler (export_chrome_trace, also
    .gz) and of `stagerctl trace`, recorded on this machine since it was started. Times are those of CLOCK_MONOTONIC.
    FailedPreconditionError: a trace does not have the offset of its clock."""
    theirs, ours = _load(profiler), _load(stager)
    base, offset = theirs.get("baseTimeNanoseconds"), ours.get("otherData", {}).get("realtime_offset_ns")
    if not isinstance(base, int):
        raise FailedPreconditionError(f"{os.fspath(profiler)}: no baseTimeNanoseconds: torch 2.3 or later writes it")
    if not isinstance(offset, int):
        raise FailedPreconditionError(f"{os.fspath(stager)}: no realtime_offset_ns: record it with this release's "
                                      "`stagerctl trace`")
    # Both count microseconds: torch since base on CLOCK_REALTIME, stagerctl on CLOCK_MONOTONIC.
    shift = (base - offset) / 1000
    for event in theirs["traceEvents"]:
        if isinstance(event, dict) and isinstance(event.get("ts"), (int, float)) and event.get("ph") != "M":
            event["ts"] += shift
    theirs["traceEvents"] += ours["traceEvents"]
    theirs["baseTimeNanoseconds"] = offset
    with open(merged, "w", encoding="utf-8") as file:
        json.dump(theirs, file)
