# SPDX-License-Identifier: Apache-2.0
"""A stream of batches of one pipeline."""
from __future__ import annotations

import json
import operator
import os
import time
import warnings
from typing import (Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple,
                    Union)

import numpy as np

from . import _admin, _core, _workers
from ._ahead import Ahead, Hook, hook_of
from ._batch import Batch, native, view
from ._errors import (DeadlineExceededError, Error, FailedPreconditionError,
                      InvalidArgumentError, MaxInFlightError, OutOfRangeError, ResourceExhaustedError,
                      UnavailableError)
from ._places import depth

_STATE_VERSION = 1
_MAX_IN_FLIGHT, _MAX_THREADS = 256, 64  # libstager's
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


class _Place(NamedTuple):
    """Where load_state_dict goes on."""

    number: int  # of the pass
    batches: Optional[int]  # of it that were taken; None: unknown, after coming back in the middle
    at: Optional[Tuple[int, ...]]  # the last of them: epoch, index, slice; None: unknown, or none was


class _Peeked(NamedTuple):
    """The item that load_state_dict found at its place; `next` returns it."""

    found: Union[_core.Lease, Error]
    before: _Place


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
            if stream._core.info()["at_end"]:
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
                 inter_op_threads_num: int = 1, intra_op_threads_num: int = 1) -> None:
        if not isinstance(name, str):
            raise TypeError(f"open takes the name of a pipeline, not {name!r}: apply a built pipeline "
                            "first, `stager.open(stager.apply(pipeline))`")
        _whole("max_in_flight", max_in_flight, 1, _MAX_IN_FLIGHT)
        _whole("depth", depth, 0)
        _whole("inter_op_threads_num", inter_op_threads_num, 1, _MAX_THREADS)
        _whole("intra_op_threads_num", intra_op_threads_num, 1, _MAX_THREADS)
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
        self._private_run = private_run
        if self._shares_with_ranks(world_size is not None) and client_id is None and self.rank is not None:
            self.client_id = client_id = f"rank-{self.rank}"
        self._timeout_millis = _timeout_millis(timeout)
        self._options = (name, runtime_dir, client_id, max_in_flight, private_run, manual_ack,
                         batch_size or 0, writable, gpu, 0 if gpu is None else max(depth, 1),
                         _names(fields), _names(fetches), inter_op_threads_num,
                         intra_op_threads_num)
        self.writable = writable
        self._length = length
        self._epoch = 0
        self._n_loops = 0
        self._has_warned = False
        self._pid = os.getpid()
        self._workers: Optional[_workers.Workers] = None
        self._open()
        try:
            self._workers = _workers.start(name, runtime_dir, workers)
        except BaseException:
            self._core.close()
            raise

    def _open(self) -> None:
        if self._ahead is not None:
            self._ahead.clear()
        # 0: it begins with a pass. Else a trainer of this name left in the middle of one, stagerd goes on
        # where that was, and its batches have numbers so far apart.
        self._came_back = self._find_place()
        try:
            self._core = _core.Stream(*self._options)
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
            self._locate(error)
            raise
        text = self._core.structure
        # Without `features` a batch is what the dataset yields.
        names = [name for name, _, _ in self.schema]
        self._plan = json.loads(text) if text else {name: name for name in names}
        if self._options[-2] is not None:
            plan = _only(self._plan, set(names))
            self._plan = {} if plan is _LEFT_OUT else plan
        self._before = 0  # batches and error items of earlier passes
        self._pass: Optional[int] = None  # which one it is in, once a batch said so
        self._at: Optional[Tuple[int, ...]] = None  # the last batch of it, where that may be asked for
        self._resume: Optional[_Place] = None  # of a load_state_dict that has not finished
        self._peeked: Optional[_Peeked] = None

    def _find_place(self) -> int:
        if self.client_id is None or self._private_run:
            return 0
        try:
            status = _admin.status(self.name, runtime_dir=self.runtime_dir)
        except Error:  # what is wrong the open will say
            return 0
        if not any(client["client_id"] == self.client_id and client["state"] == "away"
                   for client in status["clients"]):
            return 0
        return int(status["num_clients"]) if status["delivery"] == "round_robin" else 1

    def _shares_with_ranks(self, is_given: bool) -> bool:
        """Returns whether the clients of this pipeline are the ranks. A pipeline for another number of ranks would
        wait for clients that never come. is_given: world_size is an argument and not the variable of torchrun.
        Under torchrun a pipeline for one client belongs to the rank that opens it."""
        if self.world_size is None or self.world_size <= 1:
            return False
        if self.rank is not None and not 0 <= self.rank < self.world_size:
            raise InvalidArgumentError(f"rank {self.rank} of world_size {self.world_size}")
        if self._private_run:
            return is_given
        num_clients = _admin.status(self.name, runtime_dir=self.runtime_dir)["num_clients"]
        here = None if is_given else _from_environment("LOCAL_WORLD_SIZE", None)
        if num_clients in (self.world_size, here) and num_clients > 1:
            return True
        if num_clients == 1 and not is_given:
            return False
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
        found = self._take(millis) if self._resume is None else self._catch_up(millis)
        if isinstance(found, Error):
            raise found
        return Batch(found, self._plan)

    def _take(self, millis: int) -> _core.Lease:
        if self._core.dropped and not self._has_warned:
            self._warn_of_drops()
        if self._peeked is not None:
            found, self._peeked = self._peeked.found, None
            if isinstance(found, Error):
                raise found
            return found
        try:
            lease = self._core.next(millis)
        except FailedPreconditionError as error:
            self._locate(error)
            held = self._core.held()
            if self._core.closed or os.getpid() != self._pid:
                raise
            if self._synchronize is not None and millis != 0 and self._room_comes(self._synchronize):
                lease = self._core.next(millis)
            elif len(held) < self._core.info()["max_in_flight"]:
                raise
            else:
                raise MaxInFlightError(
                    f"{error.text}. A batch is in hand while a view of it exists: copy the data that you keep",
                    held) from None
        except Error as error:
            self._locate(error)
            raise
        if self._pass is None or self.client_id is not None or self._resume is not None:
            info = lease.info()
            self._pass = info["pass"]
            self._at = (info["epoch"], info["index"], info["slice"])
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
        if self._peeked is not None:  # of load_state_dict: goes on there
            pass
        elif info["at_end"] and not (self._ahead is not None and self._ahead.is_pending):
            self._rewind()
        elif self._given() > 0 and self._resume is None and not info["finished"]:
            self._begin_anew()
        self._n_loops += 1
        return _Pass(self, self._n_loops)

    def _taken(self) -> int:
        """Batches and error items of this pass."""
        info = self._core.info()
        return int(info["batches"] + info["errors"]) - self._before

    def _given(self) -> int:
        """Returns the number of items that `next` has returned: without the one that load_state_dict found."""
        return 0 if self._peeked is not None else self._taken()

    def _rewind(self) -> None:
        self._core.rewind()
        self._before += self._taken()
        self._came_back, self._pass, self._at = 0, None, None

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
        """Where this trainer is: the pass, and how many batches of it were taken."""
        ahead = self._ahead.state if self._ahead is not None else None
        return ahead if ahead is not None else self._position()

    def _position(self) -> Dict[str, Any]:
        place = self._place()
        state = {"version": _STATE_VERSION, "pipeline": self.name, "epoch": self._epoch,
                 "pass": place.number, "batches": place.batches}
        return state if self.client_id is None else {**state, "at": place.at}

    def _place(self) -> _Place:
        if self._resume is not None:
            return self._resume
        if self._peeked is not None:
            return self._peeked.before
        info = self._core.info()
        if info["at_end"]:
            return _Place(info["end_pass"] + 1, 0, None)
        return _Place(self._pass or 0, None if self._came_back else self._taken(), self._at)

    def load_state_dict(self, state: Dict[str, Any], timeout: Any = ...) -> None:
        """Goes on after what that state had taken, with the same batches in the same order, on a stream
        that has taken nothing. stagerd cannot jump to a place: what comes before it is made once more
        and thrown away here, which takes its time; timeout is as of `next`, and after a
        DeadlineExceededError the next `next` goes on with it. stagerd counts the passes of a pipeline from
        when that was applied or the daemon started: a pass that is over does not come back
        (FailedPreconditionError), but in a `private_run`. A client that comes back under its client_id in the
        middle of a pass gets what follows what it had acknowledged: FailedPreconditionError where the state
        lies before that. After such an error the stream is where it was, or closed where the text says so. Not
        for `split` among several trainers, where it is not decided beforehand which one gets a batch."""
        place, millis = self._place_of(state), self._timeout_millis if timeout is ... else _timeout_millis(timeout)
        self._resume = place
        self._peeked = _Peeked(self._catch_up(millis), place)
        self._epoch = int(state["epoch"])

    def _place_of(self, state: Dict[str, Any]) -> _Place:
        """Returns the place of a state, checked as far as that needs no batch."""
        keys = {"version", "pipeline", "epoch", "pass", "batches"}
        if not isinstance(state, dict) or not keys <= state.keys() or state["version"] != _STATE_VERSION \
                or state["pipeline"] != self.name:
            raise InvalidArgumentError(
                f"not a state of pipeline {self.name}, version {_STATE_VERSION}: {state!r}")
        batches, at = state["batches"], state.get("at")
        place = _Place(int(state["pass"]), batches, None if at is None else tuple(at))
        is_fresh = self._before == 0 and self._taken() <= (self._peeked is not None)
        if not is_fresh and place != self._resume:
            raise FailedPreconditionError("load_state_dict: this stream has taken batches already; "
                                          "open a new one")
        if not self._private_run:
            status = _admin.status(self.name, runtime_dir=self.runtime_dir)
            if status["delivery"] == "split" and status["num_clients"] > 1:
                raise FailedPreconditionError(
                    f"pipeline {self.name} splits its batches among {status['num_clients']} "
                    "trainers on demand: a position in it cannot be restored")
        if batches is None and at is None or self._came_back and at is None and batches:
            raise FailedPreconditionError(
                f"{state} has no position in its pass: it was taken before the first batch, by a trainer "
                "that had reconnected during the pass, or without a client_id")
        return place

    def _catch_up(self, millis: int) -> Union[_core.Lease, Error]:
        """Discards the items before the place of load_state_dict. Returns the first item after it."""
        wanted, n_thrown = self._resume or _Place(0, 0, None), 0
        while True:
            try:
                lease = self._take(millis)
            except (DeadlineExceededError, MaxInFlightError):
                raise
            except Error as error:
                info = self._core.info()
                number = info["end_pass"] if info["at_end"] else self._pass
                if info["at_end"] and number == wanted.number and self._is_short(wanted):
                    raise self._failed(None, f"the state is after {wanted.batches} batches of pass {number}, "
                                       f"and the pass has {self._taken()}: the pipeline or its files have "
                                       "changed since") from None
                if info["finished"]:
                    self._resume = None
                    raise
                if number == wanted.number and (info["at_end"] or self._is_behind(wanted)):
                    self._resume = None
                    return error
                if info["at_end"]:
                    self._rewind()
                n_thrown += 1
                continue
            if self._pass is not None and self._pass > wanted.number:
                raise self._failed(
                    None if n_thrown else lease,
                    f"the state is of pass {wanted.number}, and pipeline {self.name} is in pass "
                    f"{self._pass}: it does not go back. Delete it and apply it again, by which passes are "
                    "counted anew, or open it with private_run=True")
            if self._pass == wanted.number and self._is_behind(wanted):
                self._arrive(wanted, lease)
                return lease
            lease.release()
            n_thrown += 1

    def _failed(self, lease: Optional[_core.Lease], text: str) -> FailedPreconditionError:
        """Ends a load_state_dict that failed. If only `lease` was taken, the stream stays before it. Otherwise a
        private run begins again, and any other stream is closed."""
        self._resume = None
        if lease is not None:
            self._peeked = _Peeked(lease, _Place(self._pass or 0, None if self._came_back else 0, None))
        elif self._private_run:
            self._core.close()
            self._open()
        else:
            self.close()
            text += ". The stream is closed, because it has passed batches over"
        return FailedPreconditionError(text)

    def _is_short(self, wanted: _Place) -> bool:
        return not self._came_back and wanted.batches is not None and self._taken() < wanted.batches

    def _is_behind(self, wanted: _Place) -> bool:
        """Does what was taken last, a batch or an error item, follow that place?"""
        if not self._came_back and wanted.batches is not None:
            return self._taken() > wanted.batches
        return self._at is not None and self._at > (wanted.at or ())

    def _arrive(self, wanted: _Place, lease: _core.Lease) -> None:
        """The batch that was taken last is the first one behind the place. Of a client that came back: does it
        follow at once?"""
        self._resume = None
        if not self._came_back:
            return
        epoch, index, _ = self._at or (0, 0, 0)
        at_epoch, at_index, _ = wanted.at or (0, -1, 0)
        if self._core.info()["batches"] == 1 and (epoch != at_epoch or index - at_index > self._came_back):
            raise self._failed(
                lease,
                f"{self.client_id} came back in the middle of pass {wanted.number}, where stagerd goes on "
                f"with index {index} of epoch {epoch}; the state is of index {at_index} of epoch "
                f"{at_epoch}, and what lies between was acknowledged. The stream goes on with index {index}; or, "
                f"once reconnect_grace_millis are over, delete {self.name}, apply it again and load the state")
        if wanted.batches is not None:
            self._before += self._taken() - (wanted.batches + 1)
            self._came_back = 0

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
        self._peeked = None
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
