#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer for several hosts: each rank takes its share of the lines of FILES, and counts them. The stagerd of each
host is at STAGER_RUNTIME_DIR, or the service of the host. A launcher sets the ranks (docs/cluster.md).

    torchrun --nnodes=2 --nproc-per-node=2 … examples/cluster/train.py '/data/*.csv' [STATE]

STATE is a file in a folder that all hosts share: the first rank writes its position there after each 100 steps, and a
job that finds it goes on there, also on another number of hosts.
"""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Optional

import stager

BATCH_SIZE, EVERY = 64, 100


def pipeline(files: str) -> stager.Pipeline:
    lines = stager.files(files, seed=1).text_line().shuffle(10000, seed=1)
    return lines.shard("auto").batch(BATCH_SIZE).staged(name="cluster", delivery="round_robin", num_clients="auto")


def load(path: Optional[str]) -> Optional[Dict[str, Any]]:
    if path is None or not os.path.exists(path):
        return None
    with open(path, encoding="ascii") as file:
        state: Dict[str, Any] = json.load(file)
    return state


def save(path: str, state: Dict[str, Any]) -> None:
    """Whole or not at all: a host that is lost leaves the earlier one."""
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = sys.argv[2] if len(sys.argv) == 3 else None
    stager.apply(pipeline(sys.argv[1]))     # of equal content: the ranks of a host may all do so
    state = load(path)
    rank, n_rows = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))), 0
    with stager.open("cluster", state=state) as stream:
        for step, batch in enumerate(stream, 1):
            n_rows += len(batch["record"])  # here the step of the model
            if path is not None and rank == 0 and step % EVERY == 0:
                save(path, stream.state_dict())
        print(f"rank {rank}: {n_rows} rows", flush=True)


if __name__ == "__main__":
    main()
