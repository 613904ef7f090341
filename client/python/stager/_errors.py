# SPDX-License-Identifier: Apache-2.0
"""Exceptions, one for each status code."""
import re
from typing import Dict, List, Optional, Type

_RECORD = re.compile(r"\brecord (\d+)")
_OFFSET = re.compile(r"\(offset (\d+)\)")
_LINE = re.compile(r"\bline (\d+)")
_FILE = re.compile(r"(?:^|(?<=[\s(]))(/[^:\n]*)(?::(\d+))?(?::\d+)*: ")


class Error(Exception):
    """What stager says went wrong. `code` and `status` are the canonical status; `file`, `record`,
    `line` and `offset` are where, as far as the text says so."""

    code = 2
    status = "UNKNOWN"

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text

    def _number(self, pattern: "re.Pattern[str]") -> Optional[int]:
        match = pattern.search(self.text)
        return int(match.group(1)) if match else None

    @property
    def file(self) -> Optional[str]:
        match = _FILE.search(self.text)
        return match.group(1) if match else None

    @property
    def record(self) -> Optional[int]:
        return self._number(_RECORD)

    @property
    def line(self) -> Optional[int]:
        line = self._number(_LINE)
        match = _FILE.search(self.text) if line is None else None
        return int(match.group(2)) if match and match.group(2) else line

    @property
    def offset(self) -> Optional[int]:
        return self._number(_OFFSET)


class CancelledError(Error):
    code, status = 1, "CANCELLED"


class UnknownError(Error):
    code, status = 2, "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    code, status = 3, "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    code, status = 4, "DEADLINE_EXCEEDED"


class NotFoundError(Error, LookupError):
    code, status = 5, "NOT_FOUND"


class AlreadyExistsError(Error):
    code, status = 6, "ALREADY_EXISTS"


class PermissionDeniedError(Error, PermissionError):
    code, status = 7, "PERMISSION_DENIED"


class ResourceExhaustedError(Error):
    code, status = 8, "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error):
    code, status = 9, "FAILED_PRECONDITION"


class MaxInFlightError(FailedPreconditionError):
    """`max_in_flight` batches are in hand; `held` are their numbers. Another would never come."""

    def __init__(self, text: str = "", held: Optional[List[int]] = None) -> None:
        super().__init__(text)
        self.held: List[int] = held if held is not None else []


class AbortedError(Error):
    code, status = 10, "ABORTED"


class OutOfRangeError(Error):
    code, status = 11, "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    code, status = 12, "UNIMPLEMENTED"


class InternalError(Error):
    code, status = 13, "INTERNAL"


class UnavailableError(Error, ConnectionError):
    code, status = 14, "UNAVAILABLE"


class DataLossError(Error):
    code, status = 15, "DATA_LOSS"


class UnauthenticatedError(Error):
    code, status = 16, "UNAUTHENTICATED"


_BY_CODE: Dict[int, Type[Error]] = {
    kind.code: kind
    for kind in (CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError,
                 NotFoundError, AlreadyExistsError, PermissionDeniedError,
                 ResourceExhaustedError, FailedPreconditionError, AbortedError, OutOfRangeError,
                 UnimplementedError, InternalError, UnavailableError, DataLossError,
                 UnauthenticatedError)}


# What texts of libstager call by the names of C.
_CALLS = {"stager_rewind": "iter(stream)", "stager_next": "stream.next", "stager_release": "batch.release",
          "stager_run": "stream.run", "stager_open": "stager.open", "stager_options": "the options of stager.open"}


def error_of(code: int, text: str) -> Error:
    """The exception of a status code; stager._core raises what it returns. Calls have their names in Python."""
    text = re.sub(r"\bstager_[a-z_]+", lambda call: _CALLS.get(call[0], call[0]), text)
    return _BY_CODE.get(code, UnknownError)(text)
