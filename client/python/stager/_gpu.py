# SPDX-License-Identifier: Apache-2.0
"""What GPUs there are."""
from __future__ import annotations

from typing import List, NamedTuple

from . import _core
from ._errors import Error


class Gpu(NamedTuple):
    """A GPU, and what of it stager can use; versions of CUDA are 13000 for 13.0."""

    name: str
    compute_capability: str
    memory_bytes: int
    driver: int  # the newest CUDA that the driver supports
    runtime: int  # the CUDA of libstager-cuda.so
    register_read_only: bool  # batches are copied from the shared memory
    ipc: bool  # processes can share its memory
    memory_fds: bool
    mps: bool  # this process shares it through MPS


class Gpus(NamedTuple):
    """True when there is one; else reason says what is missing."""

    gpus: List[Gpu]
    reason: str

    def __bool__(self) -> bool:
        return bool(self.gpus)


def gpu_available() -> Gpus:
    """The GPUs that this process sees, or why it sees none: no libstager-cuda.so, no driver, no device."""
    gpus: List[Gpu] = []
    n_devices = 1
    while len(gpus) < n_devices:
        try:
            found = _core.gpu(len(gpus))
        except Error as error:
            return Gpus(gpus, error.text)
        n_devices = found.pop("n_devices")
        gpus.append(Gpu(**found))
    return Gpus(gpus, "")
