# SPDX-License-Identifier: Apache-2.0
"""PyTorch: batches as torch.Tensor without a copy, and an IterableDataset.

A torch.Tensor cannot be read-only, and a write to read-only memory would end the process. So a stream
for torch is opened with writable=True: its memory is copied on write, page by page, for this process
alone, and what was written is gone when the batch is released. Of a stream that is not, tensors are
refused by name, or copied (copy=True).
"""
from __future__ import annotations

import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.utils.data
import torch.utils.dlpack

from ._ahead import Hook
from ._batch import Batch, Ragged, Sparse, Strings
from ._core import Tensor
from ._errors import FailedPreconditionError, InvalidArgumentError
from ._stream import Stream


def tensor(source: Tensor, copy: bool = False) -> Any:
    """A torch.Tensor on the memory of batch.tensor(name), which lives as long as it does. Strings, of
    which torch has none, stay `Strings`."""
    if source.dtype == "string":
        return Strings(source)
    if copy:
        return torch.utils.dlpack.from_dlpack(source.__dlpack__(copy=True))
    try:
        return torch.utils.dlpack.from_dlpack(source.__dlpack__())
    except BufferError:
        raise FailedPreconditionError(
            "a batch is read-only, which a torch.Tensor cannot be: open the stream with writable=True "
            "(stager.torch.open does), or take copies by copy=True") from None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _shape_up(value: Any) -> Any:
    parts: Any = value
    if isinstance(value, Ragged) and _is_tensor(value.values):
        return torch.nested.nested_tensor_from_jagged(parts.values, offsets=parts.row_splits)
    if isinstance(value, Sparse) and _is_tensor(value.values):  # libstager has checked them
        return torch.sparse_coo_tensor(parts.indices.T, parts.values, tuple(parts.dense_shape.tolist()),
                                       check_invariants=False)
    if isinstance(value, dict):
        return {key: _shape_up(part) for key, part in value.items()}
    return [_shape_up(part) for part in value] if isinstance(value, list) else value


def tree(batch: Batch, copy: bool = False) -> Any:
    """batch.tree with torch.Tensors: ragged features as nested tensors of the layout torch.jagged,
    sparse ones as sparse COO tensors. They keep the batch."""
    return _shape_up(batch.tree_of(lambda source: tensor(source, copy)))


def keyed_jagged(batch: Batch, keys: Sequence[str]) -> Tuple[List[str], torch.Tensor, torch.Tensor]:
    """Ragged features of that names in the layout of torchrec's KeyedJaggedTensor: (keys, values,
    lengths), key after key, copied together. `KeyedJaggedTensor(keys, values, lengths=lengths)`."""
    values = np.concatenate([batch[key].values for key in keys])
    lengths = np.concatenate([np.diff(batch[key].row_splits) for key in keys])
    return list(keys), torch.from_numpy(values), torch.from_numpy(lengths)


def open(name: str, **options: Any) -> Stream:  # pylint: disable=redefined-builtin
    """stager.open with writable=True."""
    return Stream(name, **{"writable": True, **options})


class _Host(Hook):
    """Tensors on the batch's own memory: nothing is moved, and so nothing ahead."""

    writable = True
    depth = 0

    def put(self, batch: Any) -> Any:
        return tree(batch)


class _Device(Hook):
    """A device whose copies are waited for."""

    writable = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def put(self, batch: Any) -> Any:
        def move(source: Tensor) -> Any:
            value = tensor(source)
            return value.to(self._device) if _is_tensor(value) else value
        return _shape_up(batch.tree_of(move))


class _Cuda(Hook):
    """A CUDA device: through pinned memory, on a stream of its own. A batch is given back once it is in
    pinned memory; the current stream waits for the copy, not the CPU."""

    writable = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        cuda: Any = torch.cuda  # which has types for some of it
        self._stream = cuda.Stream(device)

    def put(self, batch: Any) -> Any:
        moved: List[torch.Tensor] = []

        def move(source: Tensor) -> Any:
            value = tensor(source)
            if not _is_tensor(value):
                return value
            moved.append(value.pin_memory().to(self._device, non_blocking=True))
            return moved[-1]
        with torch.cuda.stream(self._stream):
            value = _shape_up(batch.tree_of(move))
            return value, moved, self._stream.record_event()

    def take(self, value: Any) -> Any:
        value, moved, event = value
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for part in moved:  # its memory is not for others before the current stream is done with it
            part.record_stream(current)
        return value


class _Direct(Hook):
    """A CUDA device to which libstager copies by itself, ahead of the loop: tensors are what it copied.
    The stream that is current when the loop gets them waits for the copy, and is waited for."""

    depth = 0

    def __init__(self, index: int) -> None:
        self.gpu = f"cuda:{index}"

    def put(self, batch: Any) -> Any:
        def take(source: Tensor) -> Any:
            return tensor(source) if source.dtype == "string" else torch.utils.dlpack.from_dlpack(source)
        return _shape_up(batch.tree_of(take))


def direct(device: Any = "cuda") -> Hook:
    """For `stager.open(…, device=stager.torch.direct("cuda:0"))`: as `to`, and the copies are libstager's:
    one a batch, from the shared memory itself. A batch is given back when the last tensor of it goes;
    work on it belongs on the stream that was current when the loop got it."""
    device = torch.device(device)
    if device.type != "cuda":
        raise InvalidArgumentError(f"device={str(device)!r}: libstager copies to CUDA devices")
    return _Direct(device.index or 0)


def to(device: Any) -> Hook:
    """For `stager.open(…, device=stager.torch.to("cuda:0"))`, which is `device="cuda:0"`: the loop gets
    trees of tensors on that device, of which the next `depth` are on their way already. On the CPU they
    are the batch's own memory."""
    device = torch.device(device)
    if device.type == "cpu":
        return _Host()
    if device.type != "cuda":
        return _Device(device)
    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= n_devices:
        raise FailedPreconditionError(
            f"device={str(device)!r}: torch {torch.__version__} sees {n_devices} CUDA devices here")
    return _Cuda(device)


def _check_loader() -> None:
    """Is this called for a DataLoader that collates? It would make batches of batches."""
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if type(owner).__name__ == "_IterableDatasetFetcher" and getattr(owner, "auto_collation", False):
            raise FailedPreconditionError(
                "the DataLoader has a batch_size (1 if none is given) and would make batches of batches: the pipeline "
                "batches already. Use DataLoader(dataset, batch_size=None, num_workers=0), for Hugging Face's Trainer "
                "in its get_train_dataloader")
        frame = frame.f_back  # type: ignore[assignment]


class IterableDataset(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """Batches of a pipeline for what takes an IterableDataset: `DataLoader(IterableDataset("criteo"),
    batch_size=None, num_workers=0)`. Opened by the first iteration, so that rank and world size may
    come after it was made. Options are those of stager.open."""

    def __init__(self, name: str, *, copy: bool = False, **options: Any) -> None:
        self._name, self._copy = name, copy
        self._options = {"writable": not copy, **options}
        self._stream: Optional[Stream] = None
        self._state: Optional[Dict[str, Any]] = None
        self._epoch: Optional[int] = None

    @property
    def stream(self) -> Stream:
        """The stream; opens it."""
        if self._stream is None or self._stream.closed:
            if self._state is None:
                self._stream = Stream(self._name, **self._options)
            else:
                self._stream = Stream(self._name, **{**self._options, "state": self._state})
                self._state = None
            if self._epoch is not None:
                self._stream.set_epoch(self._epoch)
        return self._stream

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise FailedPreconditionError(
                "num_workers must be 0: stagerd runs the threads, and a worker process would copy the "
                "shared batches. Raise num_threads of the pipeline instead")
        _check_loader()
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        for batch in self.stream:
            yield tree(batch, self._copy) if isinstance(batch, Batch) else batch

    def __len__(self) -> int:
        """Batches of a pass, as given by `length=`. Opens nothing."""
        length: Optional[int] = self._options.get("length")
        if length is None:
            raise TypeError(f"pipeline {self._name} does not say how many batches a pass has: give "
                            "IterableDataset(…, length=)")
        return length

    def __repr__(self) -> str:
        return f"<stager.torch.IterableDataset {self._name}>"

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if self._stream is not None:
            self._stream.set_epoch(epoch)

    def state_dict(self) -> Dict[str, Any]:
        return self._state if self._state is not None else self.stream.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Opens the stream anew, at the place of that state. After an error each iteration tries it again."""
        self.close()
        self._state = dict(state)
        self.stream  # pylint: disable=pointless-statement

    get_state, set_state = state_dict, load_state_dict

    def commit(self, state: Dict[str, Any], tag: str) -> None:
        """As Stream.commit."""
        self.stream.commit(state, tag)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
