# SPDX-License-Identifier: Apache-2.0
"""JAX: batches as jax.Array, without a copy on the CPU.

A jax.Array cannot be written to, but JAX asks for memory by an older DLPack, which cannot say that memory
is read-only. So a stream for JAX is opened with writable=True, as for PyTorch; of a stream that is not,
arrays are refused by name, or copied (copy=True). JAX takes memory as it lies only where its dtypes have
it: without jax_enable_x64 an int64 becomes an int32, by a copy.
"""
from __future__ import annotations

from typing import Any

import jax
import jax.experimental.sparse
import jax.numpy as jnp

from ._ahead import Hook
from ._batch import Batch, Ragged, Sparse, Strings, view
from ._core import Tensor
from ._errors import FailedPreconditionError
from ._stream import Stream


def _synchronize() -> None:
    """JAX computes behind its caller's back, and keeps what it computes with."""
    for array in jax.live_arrays():
        if not array.is_deleted():
            array.block_until_ready()


def tensor(source: Tensor, copy: bool = False) -> Any:
    """A jax.Array on the memory of batch.tensor(name), which lives as long as it does. Strings, of which
    JAX has none, stay `Strings`."""
    if source.dtype == "string":
        return Strings(source)
    if copy:
        return jnp.array(view(source))
    try:
        return jax.dlpack.from_dlpack(source)
    except BufferError as error:
        raise FailedPreconditionError(
            f"{error}. JAX does not request it: open the stream with writable=True (stager.jax.open "
            "does), or take copies by copy=True") from None


def _shape_up(value: Any) -> Any:
    if isinstance(value, Ragged):  # a NamedTuple, which JAX takes as it is
        return value
    if isinstance(value, Sparse) and isinstance(value.values, jax.Array):
        indices: Any = value.indices
        shape = tuple(int(size) for size in value.dense_shape)
        return jax.experimental.sparse.BCOO((value.values, indices), shape=shape)
    if isinstance(value, dict):
        return {key: _shape_up(part) for key, part in value.items()}
    return [_shape_up(part) for part in value] if isinstance(value, list) else value


def tree(batch: Batch, copy: bool = False) -> Any:
    """batch.tree with jax.Arrays: a pytree, in which ragged features are `Ragged` of two arrays and
    sparse ones BCOO. Arrays keep the batch."""
    return _shape_up(batch.tree_of(lambda source: tensor(source, copy)))


def open(name: str, **options: Any) -> Stream:  # pylint: disable=redefined-builtin
    """stager.open with writable=True. Where JAX still computes with max_in_flight batches that the loop has let
    go of, `next` waits for it."""
    stream = Stream(name, **{"writable": True, **options})
    stream._synchronize = _synchronize
    return stream


class _Device(Hook):
    """A device, to which JAX copies by itself; the first use of an array waits for its copy."""

    writable = True
    synchronize = staticmethod(_synchronize)

    def __init__(self, device: Any) -> None:
        self._device = device
        self.depth = 0 if device.platform == "cpu" else None

    def put(self, batch: Any) -> Any:
        def move(source: Tensor) -> Any:
            value = tensor(source)
            return value if isinstance(value, Strings) else jax.device_put(value, self._device)
        return _shape_up(batch.tree_of(move))


def to(device: Any = None) -> Hook:
    """For `stager.open(…, device=stager.jax.to("gpu"))`: the loop gets trees of arrays on that device, a
    jax.Device or the name of a platform, by default JAX's first, and the next `depth` are on their way
    already. On the CPU they are the batch's own memory."""
    if device is None or isinstance(device, str):
        try:
            device = jax.devices(device)[0]
        except RuntimeError as error:
            raise FailedPreconditionError(f"device={device!r}: {error}") from None
    return _Device(device)
