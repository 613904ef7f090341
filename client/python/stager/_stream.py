# SPDX-License-Identifier: Apache-2.0
"""A stream of batches of one pipeline."""
from __future__ import annotations

import json
import operator
import os
import sys
import time
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import _admin, _core, _progress, _ranks, _workers
from ._ahead import Ahead, Hook, hook_of
from ._batch import Batch, native, view
from ._errors import (DeadlineExceededError, Error, FailedPreconditionError,
                      InvalidArgumentError, MaxInFlightError, OutOfRangeError, ResourceExhaustedError,
                      UnavailableError)
from ._places import depth

_MAX_IN_FLIGHT, _MAX_THREADS = 256, 64  # libstager's
_LONGEST_MILLIS = (1 << 31) - 1
_SYNCHRONIZE_S = 5.0  # within which a library lets go of what it has computed with

# As enum stager_dtype of stager.h numbers them.
_DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9,
           "bool": 10, "bfloat16": 14, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23}
_STRING = 7


def _from_environment(name: str, given: Optional[int]) -> Optional[int]:
    if given is not None:
        return given
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def _whole(name: str, value: Any, least: int, most: int = 1 << 31) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: expected a whole number") from None
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name}={number}: " + (f"{least} to {most}" if most < 1 << 31 else
                                                           f"{least} or more"))
    return number


def _timeout_millis(seconds: Optional[float]) -> int:
    if seconds is None:
        return -1
    if not isinstance(seconds, (int, float, np.number)):
        raise TypeError(f"timeout={seconds!r}: expected seconds, or None")
    if not seconds >= 0:
        raise InvalidArgumentError(f"timeout={seconds}: expected seconds, 0 or more, or None")
    return min(int(seconds * 1000), 1 << 62)


def _names(given: Union[None, str, Sequence[str]]) -> Optional[Tuple[str, ...]]:
    return None if given is None else (given,) if isinstance(given, str) else tuple(given)


def _fed(name: str, value: Any) -> Tuple[str, int, Tuple[int, ...], bytes, bytes]:
    """A tensor as libstager takes it: name, dtype, shape, data, offsets of strings."""
    array = np.asarray(value)
    if array.dtype.kind in "SUTO":
        words = [word.encode() if isinstance(word, str) else bytes(word)
                 for word in array.ravel().tolist()]
        offsets = np.cumsum([0, *map(len, words)], dtype=np.int64)
        return name, _STRING, array.shape, b"".join(words), offsets.tobytes()
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise InvalidArgumentError(f"{name}: stager has no dtype {array.dtype}")
    return name, dtype, array.shape, native(array).tobytes(), b""


def _torch_profiler() -> Any:
    """torch.autograd.profiler, if the user has imported torch and it has the flag that `next` reads."""
    module = sys.modules.get("torch.autograd.profiler")
    return module if hasattr(module, "_is_profiler_enabled") else None


_LEFT_OUT = object()


def _only(plan: Any, names: Set[str]) -> Any:
    """A part of the structure without what is not asked for; of a list the places stay."""
    if plan is None:
        return None
    if isinstance(plan, str):
        return plan if plan in names else _LEFT_OUT
    if isinstance(plan, list):
        parts = [_only(part, names) for part in plan]
        return [None if part is _LEFT_OUT else part for part in parts]
    chosen = {key: _only(part, names) for key, part in plan.items()}
    chosen = {key: part for key, part in chosen.items() if part is not _LEFT_OUT}
    return chosen if chosen else _LEFT_OUT


def _state_text(state: Any) -> str:
    """A state as libstager reads it: without the epoch, which set_epoch gave."""
    if isinstance(state, str):
        return state
    if not isinstance(state, dict):
        raise InvalidArgumentError(f"not a state of a stream: {state!r}")
    try:
        return json.dumps({key: value for key, value in state.items() if key != "epoch"})
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"not a state of a stream: {error}") from None


def _epoch_of(state: Any) -> int:
    epoch = state.get("epoch", 0) if isinstance(state, dict) else 0
    return epoch if isinstance(epoch, int) else 0


def merge_states(states: Iterable[Dict[str, Any]]) -> Dict[str, Any]:
    """One state of the states of all trainers that share a `split`, of one step, in any order. It loads into any
    number of trainers. Equal states of other streams are that state. Needs no daemon. FailedPreconditionError: a
    state is missing, or they are not of one step of one run; it names the trainers."""
    given = [states] if isinstance(states, (dict, str)) else list(states)
    text = _core.merge_states([_state_text(state) for state in given])
    return {**json.loads(text), "epoch": max(map(_epoch_of, given))}


class _Pass:
    """An iterator over one pass. Its end is said once, and stays. Of a stream's iterators the last one
    goes on."""

    __slots__ = ("_stream", "_number")

    def __init__(self, stream: Stream, number: int) -> None:
        self._stream: Optional[Stream] = stream
        self._number = number

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        stream = self._stream
        if stream is None:
            raise StopIteration
        if stream._n_loops != self._number:
            raise FailedPreconditionError(
                f"another loop over this stream of pipeline {stream.name} has begun: a stream serves one "
                "loop at a time; open a stream for each")
        try:
            return stream.next() if stream._ahead is None else stream._ahead.next(stream)
        except OutOfRangeError:
            self._stream = None
            if stream.is_replay or stream._core.info()["at_end"]:
                raise StopIteration from None
            raise


class Stream:
    """One consumer of one pipeline. `for batch in stream` takes a pass; the next `for` takes the next
    one. It leaves the pipeline by `close`, with its `with`, or when its last reference goes; batches
    in hand stay readable. One thread at a time; other streams are independent."""

    def __init__(self, name: str, *, runtime_dir: Optional[str] = None,
                 client_id: Optional[str] = None, max_in_flight: int = 2,
                 batch_size: Optional[int] = None, private_run: bool = False,
                 manual_ack: bool = False, writable: bool = False,
                 timeout: Optional[float] = None, rank: Optional[int] = None,
                 world_size: Optional[int] = None, length: Optional[int] = None,
                 device: Union[None, str, Hook, Callable[[Batch], Any]] = None,
                 gpu: Optional[str] = None, depth: int = 2, workers: Optional[int] = None,
                 fields: Union[None, str, Sequence[str]] = None,
                 fetches: Union[None, str, Sequence[str]] = None,
                 inter_op_threads_num: int = 1, intra_op_threads_num: int = 1,
                 state: Union[None, str, Dict[str, Any]] = None, resume: str = "exact",
                 daemon_reconnect_millis: int = 300000, follow: bool = False,
                 job: Optional[str] = None, dp_rank: Optional[int] = None, dp_size: Optional[int] = None,
                 local_rank: Optional[int] = None, local_size: Optional[int] = None,
                 replay_batches: int = 0, replay_held: int = 4) -> None:
        if not isinstance(name, str):
            raise TypeError(f"open takes the name of a pipeline, not {name!r}: apply a built pipeline "
                            "first, `stager.open(stager.apply(pipeline))`")
        _whole("max_in_flight", max_in_flight, 1, _MAX_IN_FLIGHT)
        _whole("depth", depth, 0)
        _whole("inter_op_threads_num", inter_op_threads_num, 1, _MAX_THREADS)
        _whole("intra_op_threads_num", intra_op_threads_num, 1, _MAX_THREADS)
        _whole("replay_batches", replay_batches, 0)
        _whole("replay_held", replay_held, 1, _MAX_IN_FLIGHT)
        _whole("daemon_reconnect_millis", daemon_reconnect_millis, 0, _LONGEST_MILLIS)
        for key, value, least in (("batch_size", batch_size, 1), ("length", length, 0), ("workers", workers, 0)):
            if value is not None:
                _whole(key, value, least)
        hook = None if device is None else hook_of(device)
        gpu = hook.gpu if gpu is None and hook is not None else gpu
        writable = writable or (hook is not None and hook.writable)
        self._ahead = None if hook is None else Ahead(hook, depth)
        self._synchronize = None if hook is None else hook.synchronize
        self.name = name
        self.rank = _from_environment("RANK", rank)
        self.world_size = _from_environment("WORLD_SIZE", world_size)
        self.client_id = client_id
        self.runtime_dir = runtime_dir
        #: True: batches are replayed, and are no training data.
        self.is_replay = replay_batches > 0
        self._replay = (replay_batches, replay_held if self.is_replay else 0)
        private_run = private_run or self.is_replay
        self._private_run = private_run
        self._shows_progress = not private_run and _progress.is_wanted(self.rank)
        ranks = self._find_ranks(_ranks.given(dp_rank, dp_size, local_rank, local_size))
        n_ranks = ranks.local_size if local_rank is not None or dp_rank is not None else self._count_ranks(world_size is not None)
        if n_ranks > 0 and client_id is None and self.rank is not None:
            self.client_id = client_id = f"rank-{self.rank}"
        # Of the ranks of this machine, if they are its clients.
        self._place = (0, 0) if n_ranks == 0 or self.rank is None else (self.rank % n_ranks, n_ranks)
        self._timeout_millis = _timeout_millis(timeout)
        self._options = (name, runtime_dir, client_id, max_in_flight, private_run, manual_ack,
                         batch_size or 0, writable, gpu, 0 if gpu is None else max(depth, 1),
                         _names(fields), _names(fetches), inter_op_threads_num,
                         intra_op_threads_num)
        self.writable = writable
        self._length = length
        self._resume = resume
        self._reconnect_millis = daemon_reconnect_millis
        self._follow = follow
        self._job = _ranks.job() if job is None and ranks != _ranks.NONE else job
        self._ranks = ranks
        self._epoch = _epoch_of(state)
        self._n_loops = 0
        self._has_warned = False
        self._pid = os.getpid()
        self._profiler = _torch_profiler()
        self._workers: Optional[_workers.Workers] = None
        text = None if state is None else _state_text(state)
        # An open at a place waits until the dataset is there, which may take calls of a function.
        if text is not None or resume.startswith(("tag:", "current")):
            self._open_after_workers(text, workers)
        else:
            self._open(text)
            self._start_workers(workers)

    def _start_workers(self, n: Optional[int]) -> None:
        try:
            self._workers = _workers.start(self.name, self.runtime_dir, n)
        except BaseException:
            self._core.close()
            raise

    def _open_after_workers(self, text: Optional[str], n: Optional[int]) -> None:
        self._workers = _workers.start(self.name, self.runtime_dir, n)
        try:
            self._open(text)
        except BaseException:
            if self._workers is not None:
                self._workers.close()
            raise

    def _open(self, state: Optional[str] = None) -> None:
        if self._ahead is not None:
            self._ahead.clear()
        try:
            self._core = _core.Stream(*self._options, state, self._resume, *self._place,
                                      self._reconnect_millis, self._follow, self._job, self._ranks,
                                      self._replay)
        except UnavailableError as error:
            raise _admin.advised(error) from None
        except ResourceExhaustedError as error:
            self._locate(error)
            own = f"(pid {os.getpid()})"
            if own not in error.text:
                if self.client_id is None and (self.world_size or 1) > 1 and not self._private_run:
                    raise ResourceExhaustedError(
                        f"{error.text}. A pipeline for all {self.world_size} ranks needs num_clients="
                        f"{self.world_size}; one for a single rank, such as validation, is opened by that rank "
                        "alone") from None
                raise
            raise ResourceExhaustedError(
                f"{error.text}. {own[1:-1].capitalize()} is this process: close its other stream, or "
                "drop it") from None
        except Error as error:
            if self._ranks_error is not None and "(shard: auto)" in error.text:
                raise self._ranks_error from None
            self._locate(error)
            raise
        self._read_structure()
        self._before = 0  # batches and error items of earlier passes

    def _read_structure(self) -> None:
        self._generation = self._core.generation
        text = self._core.structure
        # Without `features` a batch is what the dataset yields.
        names = [name for name, _, _ in self.schema]
        self._plan = json.loads(text) if text else {name: name for name in names}
        if self._options[-2] is not None:
            plan = _only(self._plan, set(names))
            self._plan = {} if plan is _LEFT_OUT else plan

    def _find_ranks(self, given: Optional[_ranks.Ranks]) -> _ranks.Ranks:
        """Returns the data-parallel ranks of the arguments, or of the launcher. Only a pipeline with `shard: auto` needs
        them: variables that contradict one another are no error for the others."""
        self._ranks_error: Optional[Error] = None
        if given is not None:
            hosts_are_given = given.size > 0
            self.rank, self.world_size = (given.rank, given.size) if hosts_are_given else (given.local_rank, given.local_size)
            return given
        try:
            return _ranks.NONE if self._private_run else _ranks.from_environment()
        except InvalidArgumentError as error:
            self._ranks_error = error
            return _ranks.NONE

    def _count_ranks(self, is_given: bool) -> int:
        """Returns the number of clients of this pipeline if they are the ranks, else 0. A pipeline for another number
        of ranks would wait for clients that never come. is_given: world_size is an argument and not the variable of
        torchrun. Under torchrun a pipeline for one client belongs to the rank that opens it."""
        if self.world_size is None or self.world_size <= 1:
            return 0
        if self.rank is not None and not 0 <= self.rank < self.world_size:
            raise InvalidArgumentError(f"rank {self.rank} of world_size {self.world_size}")
        if self._private_run:
            return self.world_size if is_given else 0
        status = _admin.status(self.name, runtime_dir=self.runtime_dir)
        num_clients = int(status["num_clients"])
        here = None if is_given else _from_environment("LOCAL_WORLD_SIZE", None)
        if "num_clients" in status["auto"]:
            return here or self.world_size
        if num_clients in (self.world_size, here) and num_clients > 1:
            return num_clients
        if num_clients == 1 and not is_given:
            return 0
        raise FailedPreconditionError(
            f"pipeline {self.name} has num_clients {num_clients}, and world_size is "
            f"{self.world_size}: give it num_clients={here or self.world_size}, so that each rank of this machine is a "
            "client; or, if its clients are not the ranks, open it with world_size=1")

    # ---- batches ----

    def next(self, timeout: Any = ...) -> Batch:
        """The next batch of this pass. timeout: seconds, None for ever; not given: as the stream was
        opened. OutOfRangeError: the pass is over. DeadlineExceededError: call again. MaxInFlightError:
        give one back. Another error: of a batch that could not be made; the stream goes on unless
        `finished`."""
        millis = self._timeout_millis if timeout is ... else _timeout_millis(timeout)
        profiler = self._profiler
        if profiler is None or not profiler._is_profiler_enabled:
            lease = self._take(millis)
        else:
            with profiler.record_function("stager.next"):
                lease = self._take(millis)
        if self._generation != self._core.generation:
            self._read_structure()
        return Batch(lease, self._plan)

    def _take(self, millis: int) -> _core.Lease:
        if self._core.dropped and not self._has_warned:
            self._warn_of_drops()
        try:
            return self._core.next(millis) if millis >= 0 or not self._shows_progress else self._take_first()
        except FailedPreconditionError as error:
            self._locate(error)
            held = self._core.held()
            if self._core.closed or os.getpid() != self._pid:
                raise
            if self._synchronize is not None and millis != 0 and self._room_comes(self._synchronize):
                return self._core.next(millis)
            if len(held) < self._core.info()["max_in_flight"]:
                raise
            raise MaxInFlightError(
                f"{error.text}. A batch is in hand while a view of it exists: copy the data that you keep",
                held) from None
        except Error as error:
            self._locate(error)
            raise

    def _take_first(self) -> _core.Lease:
        """Waits for ever, with a line of progress, until the first batch."""
        errors = self._core.info()["errors"]

        def is_waiting() -> bool:
            info = self._core.info()
            return not info["finished"] and info["errors"] == errors
        lease = _progress.wait(self._core.next, is_waiting, lambda: _admin.status(self.name, runtime_dir=self.runtime_dir))
        self._shows_progress = False
        return lease

    def _warn_of_drops(self) -> None:
        self._has_warned = True
        info = self._core.info()
        warnings.warn(
            f"pipeline {self.name} has dropped {info['dropped_batches']} batches ({info['dropped_rows']} rows) since this "
            "stream was opened: no client took them within timeout_millis, and its on_timeout is drop. "
            "staged(on_timeout=\"wait\") drops none; a longer timeout_millis drops fewer",
            RuntimeWarning, stacklevel=depth())

    def _locate(self, error: Error) -> None:
        _admin.locate(error, _admin.places_of(self.runtime_dir, self.name))

    def _room_comes(self, synchronize: Callable[[], None]) -> bool:
        """Is less than max_in_flight in hand when nothing is computed any more? Its memory is given back by
        another thread, a moment later."""
        synchronize()
        max_in_flight, end = self._core.info()["max_in_flight"], time.monotonic() + _SYNCHRONIZE_S
        while len(self._core.held()) >= max_in_flight:
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        return True

    def __iter__(self) -> Iterator[Any]:
        """A new pass: the first one; after the end the next one; in the middle of one, leaves it and
        begins anew, where no other client is affected. It gives batches, or what `device` makes of them."""
        if self._core.closed:
            raise FailedPreconditionError(f"this stream of pipeline {self.name} is closed: open another")
        info = self._core.info()
        if info["at_end"] and not (self._ahead is not None and self._ahead.is_pending):
            self._rewind()
        elif self._taken() > 0 and not info["finished"] and not self.is_replay:
            self._begin_anew()
        self._n_loops += 1
        self._profiler = _torch_profiler()
        return _Pass(self, self._n_loops)

    def _taken(self) -> int:
        """Batches and error items of this pass."""
        info = self._core.info()
        return int(info["batches"] + info["errors"]) - self._before

    def _rewind(self) -> None:
        self._core.rewind()
        self._before += self._taken()

    def _begin_anew(self) -> None:
        if os.getpid() != self._pid:
            raise FailedPreconditionError("this stream belongs to the parent process: open another one "
                                          "after fork")
        delivery, num_clients = "split", 1
        if not self._private_run:
            status = _admin.status(self.name, runtime_dir=self.runtime_dir)
            delivery, num_clients = status["delivery"], status["num_clients"]
        if self.client_id is not None or (delivery != "split" and num_clients > 1):
            raise FailedPreconditionError(
                f"a pass of pipeline {self.name} is not over, and this trainer cannot begin "
                "another: " +
                ("a client that comes back under its name continues where it was" if self.client_id is not None
                 else f"its delivery is {delivery}, and others would notice") +
                ". Take the batches that are left, or close the stream")
        self._core.close()
        self._open()

    def __len__(self) -> int:
        """Batches of a pass: as given by `length=`."""
        if self._length is None:
            raise TypeError(f"pipeline {self.name} does not report the batches of a pass: open it "
                            "with length=")
        return self._length

    # ---- position ----

    def set_epoch(self, epoch: int) -> None:
        """Kept for state_dict. Passes advance by themselves: stagerd counts them, and what it shuffles
        depends on that count."""
        self._epoch = _whole("epoch", epoch, 0)

    def state_dict(self) -> Dict[str, Any]:
        """Where this trainer is: after the batches that its loop has taken, without those that are ahead of it.
        JSON, of at most 1 KiB unless several trainers share a `split`: then each has a state of what it took, and
        merge_states makes one of them. Sends no request. FailedPreconditionError: batches of this pipeline depend on timing,
        and the stream was not opened with resume="approximate"."""
        mark = self._ahead.mark if self._ahead is not None else None
        mark = self._mark() if mark is None else mark
        if isinstance(mark, Error):
            raise mark
        return {**json.loads(mark), "epoch": self._epoch}

    def _mark(self) -> Union[str, Error]:
        """The state now, or the reason that there is none: for what is ahead of the loop."""
        try:
            return self._core.state()
        except Error as error:
            return error

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on after the batches of that state: of any pass, on a stream that has taken batches too. The
        stream leaves the pipeline and opens it again; stagerd moves the dataset to the place, and the call waits
        for that. Every error of the state is raised here, and names the difference. After it the stream is
        closed, unless the state itself is malformed."""
        text = _state_text(state)
        _core.check_state(text)
        self._core.close()
        try:
            self._open(text)
        except Error as error:
            raise type(error)(f"{error.text}. The stream is closed") from None
        self._epoch = _epoch_of(state)

    get_state, set_state = state_dict, load_state_dict

    def commit(self, state: Union[str, Dict[str, Any]], tag: str) -> None:
        """Ties the state to the checkpoint that `tag` names, once that is complete. When the call returns, the
        commit is on disk: `stager.open(…, resume=f"tag:{tag}")` begins there, whatever crashes. The same tag with the
        same state again is no error. AlreadyExistsError: the tag has another state. FailedPreconditionError: another
        trainer has taken over. ResourceExhaustedError, PermissionDeniedError: state_dir is full or read-only; the
        stream goes on, and the call may be repeated."""
        if not isinstance(tag, str):
            raise TypeError(f"a tag is a str, not {tag!r}")
        self._core.commit(_state_text(state), tag)

    # ---- feeding, computing ----

    def feed(self, name: str, value: Any) -> int:
        """Sets a tensor of feed_dict that says `client: true`, for all clients of the pipeline. Batches
        whose info.feed_version is at least what this returns are made with it."""
        return self._core.feed(*_fed(name, value))

    @property
    def targets(self) -> Tuple[str, ...]:
        """The pipeline's targets, for `run`."""
        return self._core.targets()

    def run(self, batch: Optional[Batch], fetches: Union[None, str, Sequence[str]] = None,
            feeds: Optional[Dict[str, Any]] = None) -> List[Any]:
        """Runs the part of the graph behind the boundary on a batch; fetches: names of nodes, by default
        the targets. feeds: values for tensors of the graph, by the names of placeholders, other nodes or
        components, in the dtypes and shapes that the graph has; batch may be None where nothing else is needed. Its
        results are copies."""
        if not isinstance(batch, Batch) and (batch is not None or not feeds):
            raise TypeError(f"run takes a batch of this stream, or None with feeds, not {batch!r}")
        names = self.targets if fetches is None else _names(fetches) or ()
        fed = tuple(_fed(name, value) for name, value in (feeds or {}).items())
        try:
            return [view(tensor) for tensor in self._core.run(None if batch is None else batch.lease, names, fed)]
        except Error as error:
            self._locate(error)
            raise

    # ---- itself ----

    @property
    def structure(self) -> Any:
        """The pipeline's `features`, with names of tensors as leaves."""
        return self._plan

    @property
    def schema(self) -> List[Tuple[str, str, Tuple[Optional[int], ...]]]:
        """(name, dtype, shape) of each tensor, in order; None: not known before the batch."""
        return self._core.schema()

    @property
    def info(self) -> Dict[str, Any]:
        """Counters since it was opened."""
        return {**self._core.info(), "run_where": self._core.run_where()}

    @property
    def held(self) -> List[int]:
        """Numbers of the batches in hand."""
        return self._core.held()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def close(self) -> None:
        """Leaves the pipeline. Batches in hand stay readable until each is released. A wait of another
        thread in `next` ends with CancelledError."""
        if self._ahead is not None:
            self._ahead.clear()
        self._core.close()
        if self._workers is not None:
            self._workers.close()

    def __del__(self) -> None:
        if hasattr(self, "_core"):
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a stream belongs to the process that opened it: open pipeline {self.name} in the "
                        "other process too")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stager.Stream {self.name}{' closed' if self.closed else ''}>"
