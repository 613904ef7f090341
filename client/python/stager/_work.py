# SPDX-License-Identifier: Apache-2.0
"""One worker: a process that runs the function of a pipeline's step py_function."""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib
import inspect
import os
import signal
import socket
import sys
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from . import _core
from ._batch import Ragged, Sparse, Strings, native, view
from ._errors import Error, InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError

_ROW_SPLITS, _INDICES, _DENSE_SHAPE = 1, 2, 3  # as enum stg_part of core/layout.h
_PR_SET_PDEATHSIG = 1

# What TensorFlow makes of exceptions of a py_function.
_CODES = ((StopIteration, 11), (MemoryError, 8), (NotImplementedError, 12), ((ValueError, TypeError), 3))
_UNKNOWN = 2


# ---- the function ----

@dataclasses.dataclass(frozen=True)
class Context:
    """Which element a py_function is called for. All of it is the same when the element is made again."""

    seed: int   # of the step
    pass_: int
    epoch: int
    index: int  # of the element in the epoch

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """A generator for this element alone: PCG64, seeded by (seed, pass, epoch, index)."""
        return np.random.Generator(np.random.PCG64([self.seed, self.pass_, self.epoch, self.index]))


def _takes_context(function: Callable[..., Any]) -> bool:
    """Has it a parameter `context`?"""
    try:
        return "context" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # of C
        return False


def load(function: str) -> Callable[..., Any]:
    """The function of that name, "module:name". What is wrong with it is said with where it was
    looked for."""
    module_name, _, name = function.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:
        raise NotFoundError(f"{function}: importing {module_name} failed: {_told(error)}; searched: "
                            f"{', '.join(path or os.getcwd() for path in sys.path)}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        file = getattr(sys.modules[module_name], "__file__", "?")
        raise NotFoundError(f"{function}: module {module_name} ({file}) has no function {name}")
    loaded: Callable[..., Any] = found
    return loaded


def _told(error: BaseException) -> str:
    """"ValueError: text (file.py:12, in augment)": the exception, and where it was raised. Its text is the
    user's, too: it may fail, and hold what is no UTF-8."""
    words = type(error).__name__
    try:
        words += f": {error}".replace("\0", "?").encode(errors="replace").decode()
    except Exception:  # pylint: disable=broad-except
        pass
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return words
    last = frames[-1]
    return f"{words} ({last.filename}:{last.lineno}, in {last.name})"


def _code_of(error: BaseException) -> int:
    if isinstance(error, Error):
        return error.code
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), _UNKNOWN)


# ---- what it gets ----

def _strings(tensor: _core.Tensor) -> np.ndarray:
    array = Strings(tensor).numpy()
    array.flags.writeable = False
    return array


def _arrays(job: List[Tuple[str, int, _core.Tensor]]) -> Dict[str, Any]:
    """By name: read-only views, object arrays of bytes for strings; the parts of a ragged or sparse
    component together."""
    batch: Dict[str, Any] = {}
    for name, part, tensor in job:
        array = _strings(tensor) if tensor.dtype == "string" else view(tensor)
        base = name.rpartition("/")[0]
        if part == _ROW_SPLITS:
            batch[base] = Ragged(batch.pop(f"{base}/values"), array)
        elif part == _INDICES:
            batch[base] = Sparse(batch.pop(f"{base}/values"), array, array)
        elif part == _DENSE_SHAPE:
            batch[base] = batch[base]._replace(dense_shape=array)
        else:
            batch[name] = array
    return batch


# ---- what it gives ----

class _Undeclared(InvalidArgumentError):
    """It gave what was not declared."""


def _leaves(output: List[Any]) -> List[Tuple[str, Tuple[str, ...]]]:
    """The names under which it gives its outputs, and the parts of each."""
    leaves: List[Tuple[str, Tuple[str, ...]]] = []
    for name, _, _, part in output:
        if part == 0:
            leaves.append((name, (name,)))
        else:
            base = name.rpartition("/")[0]
            leaves[-1] = (base, leaves[-1][1] + (name,))
    return leaves


def _by_name(result: Any, leaves: List[Tuple[str, Tuple[str, ...]]]) -> Dict[str, Any]:
    names = [name for name, _ in leaves]
    by_name: Dict[str, Any] = result if isinstance(result, dict) else {}
    if not isinstance(result, dict):
        is_one = len(names) == 1 and not (isinstance(result, (list, tuple)) and len(result) == 1)
        values = [result] if is_one else list(result) if isinstance(result, (list, tuple)) else []
        if len(values) != len(names):
            raise _Undeclared(f"it gave {type(result).__name__} where a dict of {names} was declared, or "
                              "a tuple of as many")
        by_name = dict(zip(names, values))
    if sorted(map(str, by_name)) != sorted(names):
        raise _Undeclared(f"it gave {sorted(map(str, by_name))}, and {sorted(names)} was declared")
    return by_name


def _flat(result: Any, leaves: List[Tuple[str, Tuple[str, ...]]]) -> List[Any]:
    values = _by_name(result, leaves)
    flat: List[Any] = []
    for name, parts in leaves:
        value = values[name]
        if len(parts) == 1:
            flat.append(value)
            continue
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            raise _Undeclared(f"{name} is {type(value).__name__}, and is given as a tuple of "
                              f"{', '.join(part.rpartition('/')[2] for part in parts)}")
        flat.extend(value)
    return flat


def _string_buffers(array: np.ndarray, name: str) -> Tuple[Tuple[int, ...], Any, Any]:
    words: List[bytes] = []
    for word in array.ravel().tolist():
        if isinstance(word, str):
            word = word.encode()
        if not isinstance(word, bytes):
            raise _Undeclared(f"{name}: {type(word).__name__} among its strings")
        words.append(word)
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum([len(word) for word in words], out=offsets[1:])
    return array.shape, b"".join(words), offsets


def _shown(shape: Tuple[Optional[int], ...]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _kind(array: np.ndarray, declared: str) -> str:
    is_string = array.dtype.kind in "SUT" or (array.dtype.kind == "O" and declared == "string")
    return "string" if is_string else array.dtype.name


def _buffers(value: Any, declared: Any) -> Tuple[Tuple[int, ...], Any, Any]:
    """(shape, data, offsets) of one output, which has to be what was declared."""
    name, dtype, shape, _ = declared
    array = np.asarray(value, dtype=object) if dtype == "string" and isinstance(value, (list, tuple)) \
        else np.asarray(value)
    fits = len(array.shape) == len(shape) and all(
        wanted is None or wanted == size for wanted, size in zip(shape, array.shape))
    if _kind(array, dtype) != dtype or not fits:
        is_none = array.dtype == object and array.shape == ()  # None, a generator
        given = type(value).__name__ if is_none else f"{_kind(array, dtype)} {_shown(array.shape)}"
        raise _Undeclared(f"{name} is {given}, but was declared as {dtype} {_shown(shape)}")
    if dtype == "string":
        return _string_buffers(array, name)
    data = np.ascontiguousarray(native(array)).reshape(array.shape)
    return array.shape, data.view(np.uint16) if dtype == "bfloat16" else data, b""


def _bytes(output: Tuple[Tuple[int, ...], Any, Any]) -> List[bytes]:
    return [part if isinstance(part, bytes) else part.tobytes() for part in output[1:]]


# ---- at work ----

class Worker:
    """A worker of a pipeline, attached; of one that has `most` (not 0) it is none: AlreadyExistsError."""

    def __init__(self, name: str, runtime_dir: Optional[str], most: int = 0) -> None:
        self.core = _core.Worker(name, runtime_dir, most)
        self._output = self.core.output
        self._leaves = _leaves(self._output)
        self._function: Optional[Callable[..., Any]] = None
        self._with_context = False
        self._seed = self.core.seed
        self._to_check = self.core.pure

    def load(self) -> None:
        self._function = load(self.core.function)
        self._with_context = _takes_context(self._function)
        self.core.ready()

    def _call_once(self, job: List[Tuple[str, int, _core.Tensor]]) -> List[Any]:
        assert self._function is not None
        named = {"context": Context(self._seed, *self.core.place())} if self._with_context else {}
        flat = _flat(self._function(_arrays(job), **named), self._leaves)
        return [_buffers(value, declared) for value, declared in zip(flat, self._output)]

    def _call(self, job: List[Tuple[str, int, _core.Tensor]]) -> List[Any]:
        """What the function gives. One that is declared pure is called twice for the worker's first element."""
        outputs = self._call_once(job)
        if not self._to_check:
            return outputs
        before = [(output[0], _bytes(output)) for output in outputs]
        again = self._call_once(job)
        for (shape, data), other, declared in zip(before, again, self._output):
            if shape != other[0] or data != _bytes(other):
                raise _Undeclared(f"it is declared pure, and gave another {declared[0]} when it was called again for "
                                  "the same element: make what it gives of the element and of `context` alone "
                                  "(context.rng draws numbers), or leave out `pure`")
        self._to_check = False
        return again

    def run(self) -> None:
        """Until stagerd lets go of it."""
        while True:
            job = self.core.next()
            if job is None:
                return
            try:
                outputs = self._call(job)
            except _Undeclared as error:
                self.core.fail(error.code, error.text)
                continue
            except BaseException as error:  # pylint: disable=broad-except
                self.core.fail(_code_of(error), _told(error))  # SystemExit, too, is of this batch
                continue
            try:
                self.core.give(outputs)
            except ResourceExhaustedError as error:
                self.core.fail(error.code, f"what it gives does not fit its memory ({error.text}): set the "
                               "step's max_output_bytes")


def main(name: str, control_fd: int, most: int) -> int:
    """A process of the supervisor: sends it, over a socket, its connection and what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    control = socket.socket(fileno=control_fd)
    control.setblocking(True)
    control.set_inheritable(False)
    try:
        worker = Worker(name, None, most)
        socket.send_fds(control, [b"attached"], [worker.core.fileno(), worker.core.channel()])
        worker.load()
        control.send(b"ready")
    except Error as error:
        try:
            control.send(f"{error.code} {error.text}".encode()[:8000])
        except OSError:  # the supervisor is gone
            pass
        return 1
    try:
        worker.run()
    except UnavailableError:  # stagerd has ended
        pass
    return 0
