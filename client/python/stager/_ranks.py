# SPDX-License-Identifier: Apache-2.0
"""Data-parallel ranks: of the arguments of `open`, or of the variables that a launcher sets."""
from __future__ import annotations

import os
import re
from typing import Dict, NamedTuple, Optional, Tuple

from ._errors import InvalidArgumentError


class Ranks(NamedTuple):
    """This process among the data-parallel ranks of its job and of its host."""
    rank: int
    size: int
    local_rank: int
    local_size: int


NONE = Ranks(0, 0, 0, 0)

# rank, size, local rank, local size. torchrun's variables are also those of Ray Train, accelerate and Lightning.
_LAUNCHERS: Dict[str, Tuple[str, str, str, str]] = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "OpenMPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
}


# The name of the run, the same in each process of it. torchrun without --rdzv-id has "none".
_JOBS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


def job() -> Optional[str]:
    """Returns the name of the job that a launcher has set; None: there is none."""
    for name in _JOBS:
        value = os.environ.get(name, "")
        if value not in ("", "none"):
            return value[:63]
    return None


def _number(name: str) -> int:
    """The number that a variable has; Slurm writes one for all hosts as "2(x3)"."""
    text = os.environ[name]
    match = re.fullmatch(r"(\d{1,9})(\(x\d+\))?", text)
    if match is None or (match.group(2) and not name.endswith("TASKS_PER_NODE")):
        raise InvalidArgumentError(
            f"environment variable {name} is {text!r}: expected one whole number, the same on each host; or open with "
            "dp_rank, dp_size, local_rank and local_size")
    return int(match.group(1))


def _refuse_part(found: Dict[str, str], launcher: str) -> None:
    names = _LAUNCHERS[launcher]
    there = [name for name in names if name in found]
    lacks = [name for name in names if name not in found]
    raise InvalidArgumentError(
        f"environment variables {', '.join(there)} are set, and {', '.join(lacks)} not: start the trainer by {launcher}, or "
        "open with dp_rank, dp_size, local_rank and local_size")


def from_environment() -> Ranks:
    """Returns the ranks that the innermost launcher has set; NONE: there is no launcher. InvalidArgumentError: the
    variables contradict one another."""
    found = {name: value for name, value in os.environ.items() if value}
    partial: Optional[str] = None
    for launcher, names in _LAUNCHERS.items():
        n_found = sum(name in found for name in names)
        if n_found == len(names):
            if partial is not None:
                _compare(partial, launcher, found)
            return Ranks(*map(_number, names))
        if n_found > 0 and partial is None:
            partial = launcher
    if partial is not None:
        _refuse_part(found, partial)
    return NONE


def _compare(partial: str, launcher: str, found: Dict[str, str]) -> None:
    """RANK and WORLD_SIZE that a script has set must be those of the launcher whose other variables are used."""
    for name, other in zip(_LAUNCHERS[partial], _LAUNCHERS[launcher]):
        if name in found and _number(name) != _number(other):
            raise InvalidArgumentError(
                f"environment variables {name} ({found[name]}) and {other} ({found[other]}) contradict one another: remove "
                "one, or open with dp_rank, dp_size, local_rank and local_size")


def given(dp_rank: Optional[int], dp_size: Optional[int], local_rank: Optional[int],
          local_size: Optional[int]) -> Optional[Ranks]:
    """Returns the ranks of the arguments; None: there are none. Without local ranks the client is alone on its host."""
    values = {"dp_rank": dp_rank, "dp_size": dp_size, "local_rank": local_rank, "local_size": local_size}
    if all(value is None for value in values.values()):
        return None
    if dp_rank is None and dp_size is None and local_rank is not None and local_size is not None:
        values.update(dp_rank=0, dp_size=0)  # stagerd finds the hosts
    if local_rank is None and local_size is None:
        values.update(local_rank=0, local_size=1)
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise InvalidArgumentError(f"{', '.join(missing)} missing: give dp_rank and dp_size, and both local_rank and "
                                   "local_size if the host has several data-parallel ranks")
    numbers = []
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r}: expected a whole number")
        if not 0 <= value < 1 << 31:
            raise InvalidArgumentError(f"{name}={value}: 0 or more")
        numbers.append(value)
    return Ranks(*numbers)
