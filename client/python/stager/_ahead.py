# SPDX-License-Identifier: Apache-2.0
"""Batches that are on their way to a device before the loop asks for them."""
from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Callable, Deque, NamedTuple, Optional, Union

from ._errors import DeadlineExceededError, Error, InvalidArgumentError, MaxInFlightError

if TYPE_CHECKING:
    from ._stream import Stream


class Hook:
    """Puts batches somewhere: put begins, in the order of batches, and take waits for what put gave and
    is what the loop gets. A hook whose batches must be writable says so."""

    writable = False
    gpu: Optional[str] = None  # libstager copies batches there: "cuda:0"
    depth: Optional[int] = None  # None: as the stream was opened

    def put(self, batch: Any) -> Any:
        raise NotImplementedError

    def take(self, value: Any) -> Any:
        return value

    # Waits until nothing is computed with batches that the loop has let go of; None: nothing ever is.
    synchronize: Optional[Callable[[], None]] = None


class _Function(Hook):
    def __init__(self, function: Any) -> None:
        self.put = function  # type: ignore[method-assign]


def hook_of(device: Any) -> Hook:
    """Of open's `device`: a Hook, a function of a batch, or what torch calls a device."""
    if isinstance(device, Hook):
        return device
    if callable(device):
        return _Function(device)
    try:
        from . import torch
    except ImportError:
        raise InvalidArgumentError(f"device={device!r}: torch is not installed. Pass a function of a "
                                   "batch, or stager.jax.to(…)") from None
    return torch.to(device)


class _Entry(NamedTuple):
    value: Any
    error: Optional[Exception]
    mark: Union[str, Error]  # the state of the stream after this one


class Ahead:
    """What a hook has put somewhere, in order, with up to `depth` behind the one that is taken. No thread:
    each `next` begins those that are ready."""

    def __init__(self, hook: Hook, depth: int) -> None:
        if depth < 0:
            raise InvalidArgumentError(f"depth={depth}: expected a number of batches, 0 or more")
        self._hook = hook
        self._depth = depth if hook.depth is None else hook.depth
        self._entries: Deque[_Entry] = collections.deque()
        self._mark: Union[None, str, Error] = None

    def next(self, stream: Stream) -> Any:
        """What the hook made of the next batch; errors of batches come in their places."""
        if not self._entries:
            self._begin(stream, stream.next())
        entry = self._entries.popleft()
        self._mark = entry.mark
        if entry.error is not None:
            raise entry.error
        self._fill(stream)
        return self._hook.take(entry.value)

    def _begin(self, stream: Stream, batch: Any) -> None:
        value, error = None, None
        try:
            value = self._hook.put(batch)
        except Exception as raised:  # in its place
            error = raised
        self._entries.append(_Entry(value, error, stream._mark()))

    def _fill(self, stream: Stream) -> None:
        """What is ready; behind an error, such as the end of the pass, nothing."""
        while len(self._entries) < self._depth and not (self._entries and self._entries[-1].error):
            n_errors = stream.info["errors"]
            try:
                self._begin(stream, stream.next(timeout=0))
            except MaxInFlightError:
                return
            except Exception as error:
                info = stream.info
                # Or is it the code of an error item, or of the stream's end?
                if isinstance(error, DeadlineExceededError) and info["errors"] == n_errors \
                        and not info["finished"]:
                    return
                self._entries.append(_Entry(None, error, stream._mark()))

    @property
    def mark(self) -> Union[None, str, Error]:
        """The state after what the loop has; None: the stream's own."""
        return self._mark if self._entries else None

    @property
    def is_pending(self) -> bool:
        """Is anything ahead of what the loop has?"""
        return bool(self._entries)

    def clear(self) -> None:
        """Drops what is ahead."""
        self._entries.clear()
        self._mark = None
