# SPDX-License-Identifier: Apache-2.0
"""A batch in hand: views of shared memory, made when they are asked for."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from . import _core

try:  # the package that JAX and TensorFlow bring
    import ml_dtypes
    _BFLOAT16: Any = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    _BFLOAT16 = None

_asarray = np.asarray
_CPU = 1  # DLPack's number


class Ragged(NamedTuple):
    """Row r is values[row_splits[r]:row_splits[r + 1]]."""

    values: Any
    row_splits: np.ndarray


class Sparse(NamedTuple):
    """values[i] stands at indices[i] of a tensor of that shape."""

    values: Any
    indices: np.ndarray
    dense_shape: np.ndarray


class Strings:
    """A tensor of strings in Arrow's layout: string i is data[offsets[i]:offsets[i + 1]]. Both are
    views; the first offset need not be 0. Python's strings are made when asked for."""

    __slots__ = ("tensor", "offsets", "data")

    def __init__(self, tensor: _core.Tensor) -> None:
        self.tensor = tensor
        self.offsets: np.ndarray = _asarray(tensor.string_offsets)
        self.data: np.ndarray = _asarray(tensor.string_data)

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.tensor.shape

    @property
    def size(self) -> int:
        return len(self.offsets) - 1

    @property
    def ndim(self) -> int:
        return len(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(object)

    def __len__(self) -> int:
        if not self.tensor.shape:
            raise TypeError("a single string has no length: [()] gives its bytes")
        return self.tensor.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """bytes, or an object array of them."""
        if isinstance(key, int) and len(self.tensor.shape) == 1:
            return self.tensor.string_at(key + len(self) if key < 0 else key)
        return self.numpy()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numpy())

    def tolist(self) -> Any:
        """Nested lists of bytes."""
        return self.tensor.strings() if self.ndim == 1 else self.numpy().tolist()

    def numpy(self, dtype: Any = object) -> np.ndarray:
        """A copy: objects of type bytes; with dtype=str or numpy.dtypes.StringDType() text, decoded
        as UTF-8; with "S" fixed width."""
        array = np.empty(self.size, dtype=object)
        array[:] = self.tensor.strings()
        array = array.reshape(self.shape)
        wanted = np.dtype(dtype)
        if wanted == object or wanted.kind == "S":
            return array.astype(wanted)
        text = np.empty(self.size, dtype=object)
        text[:] = [word.decode() for word in array.ravel()]
        return text.reshape(self.shape).astype(wanted)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        if copy is False:
            raise ValueError("strings need a copy to become a NumPy array; offsets and data are views")
        return self.numpy(object if dtype is None else dtype)

    def __arrow_array__(self, type: Any = None) -> Any:  # pylint: disable=redefined-builtin
        """For pyarrow.array(strings): large_binary, without a copy."""
        import pyarrow
        array = pyarrow.Array.from_buffers(
            pyarrow.large_binary(), self.size,
            [None, pyarrow.py_buffer(self.offsets), pyarrow.py_buffer(self.data)])
        return array if type is None else array.cast(type)

    def __repr__(self) -> str:
        return f"<stager.Strings {self.shape}>"


@dataclasses.dataclass(frozen=True)
class BatchInfo:
    """What a batch says of itself; docs/c-api.md has the words."""

    generation: int
    number: int
    pass_: int
    epoch: int
    index: int
    n_dropped: int
    n_rows: int
    bytes: int
    assigned_ns: int
    n_tensors: int
    redelivered: bool
    slice: int
    n_slices: int
    feed_version: int
    run_id: int
    position: int


def view(tensor: _core.Tensor) -> Any:
    """A tensor as NumPy sees it, or Strings; on a GPU the tensor itself, for DLPack."""
    kind = tensor.dtype
    if kind == "string":
        return Strings(tensor)
    if tensor.__dlpack_device__()[0] != _CPU:
        return tensor
    if kind == "bfloat16" and _BFLOAT16 is not None:
        return _asarray(tensor).view(_BFLOAT16)
    return _asarray(tensor)


def native(array: np.ndarray) -> np.ndarray:
    """With its bytes in this machine's order, as memory that others read has them."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _is_parts(plan: Any, key: str) -> bool:
    return isinstance(plan, dict) and len(plan) == 1 and isinstance(plan.get(key), dict)


def _path(leaf: str) -> str:
    return leaf.rsplit("/", 1)[0] if "/" in leaf else ""


def _make(lease: _core.Lease, plan: Any, leaf: Callable[[_core.Tensor], Any]) -> Any:
    """A part of the structure, with leaf(tensor) for each tensor."""
    if isinstance(plan, str):
        return leaf(lease.tensor(plan))
    if plan is None:
        return None
    if isinstance(plan, list):
        return [_make(lease, part, leaf) for part in plan]
    if _is_parts(plan, "ragged"):
        return Ragged(*map(leaf, lease.ragged(_path(plan["ragged"]["values"]))))
    if _is_parts(plan, "sparse"):
        return Sparse(*map(leaf, lease.sparse(_path(plan["sparse"]["values"]))))
    return {key: _make(lease, part, leaf) for key, part in plan.items()}


class Batch:
    """One batch. batch[key] is a read-only NumPy view on shared memory (`Strings` for strings,
    `Ragged`, `Sparse`; a dict or a list where the pipeline nests). As long as the batch or any view
    of it lives, its memory is this trainer's; `release` or the end of a `with` gives it back at
    once, and then no view of it may be used any more: its bytes become those of another batch."""

    __slots__ = ("lease", "_plan", "_views")

    def __init__(self, lease: _core.Lease, plan: Any) -> None:
        self.lease = lease
        self._plan = plan
        self._views: Dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = _make(self.lease, self._part(key), view)
        return found

    def _part(self, key: Any) -> Any:
        plan = self._plan
        if isinstance(plan, str):
            if key == plan:
                return plan
        elif isinstance(plan, list):
            if isinstance(key, int) and -len(plan) <= key < len(plan):
                return plan[key]
            raise IndexError(f"the batch is a list of {len(plan)}, it has no {key!r}")
        elif key in plan:
            return plan[key]
        raise KeyError(f"{key!r}; the batch has {', '.join(map(repr, self.keys()))}")

    @property
    def tree(self) -> Any:
        """All of it, as the pipeline declares its features: a dict, a list, nested, or a view."""
        return self.tree_of(view)

    def tree_of(self, leaf: Callable[[_core.Tensor], Any]) -> Any:
        """The same with leaf(tensor) for each tensor."""
        return _make(self.lease, self._plan, leaf)

    def keys(self) -> List[Any]:
        if isinstance(self._plan, str):
            return [self._plan]
        return list(range(len(self._plan))) if isinstance(self._plan, list) else list(self._plan)

    def values(self) -> List[Any]:
        return [self[key] for key in self.keys()]

    def items(self) -> List[Tuple[Any, Any]]:
        return [(key, self[key]) for key in self.keys()]

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def __contains__(self, key: Any) -> bool:
        return key in self.keys()

    def __len__(self) -> int:
        return 1 if isinstance(self._plan, str) else len(self._plan)

    def __iter__(self) -> Iterator[Any]:
        """Keys of a dict, as dicts do; views of a list, as lists do."""
        return iter(self.values() if isinstance(self._plan, list) else self.keys())

    def tensor(self, name: str) -> _core.Tensor:
        """The tensor of that name ("user/id" of a nested one) as it lies: for the buffer protocol,
        DLPack and __array_interface__."""
        return self.lease.tensor(name)

    def tensors(self) -> Dict[str, _core.Tensor]:
        return {name: self.lease.tensor(name) for name in self.lease.names()}

    @property
    def info(self) -> BatchInfo:
        info = self.lease.info()
        info["pass_"] = info.pop("pass")
        return BatchInfo(**info)

    @property
    def number(self) -> int:
        return self.lease.number

    @property
    def released(self) -> bool:
        return self.lease.released

    def release(self) -> None:
        """Gives the batch back now, even if views of it exist."""
        self._views.clear()
        self.lease.release()

    def __reduce__(self) -> Any:
        raise TypeError("a batch is shared memory, leased to this process: pass copies of its views, "
                        "batch[...].copy(), or open the pipeline in the other process too")

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = " released" if self.released else ""
        return f"<stager.Batch {self.number}{state}: {', '.join(map(str, self.keys()))}>"
