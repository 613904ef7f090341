#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One DLRM (dlrm_torch.py) trained by two processes, with DistributedDataParallel over gloo. Batches go around
among the ranks (delivery: round_robin) in whole rounds, so that no rank waits for a step that another lacks.

    python3 examples/ddp_torch.py [ROWS]             a file or a pattern of Criteo rows, else generated
"""
from __future__ import annotations

import os
import sys
from typing import Any, List, Tuple

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

import criteo
import stager
import stager.torch
from dlrm_torch import DLRM, descend, share_cpus

N_RANKS = 2
EPOCHS, BATCH_SIZE, RATE = 3, 50, 0.1


def train_epoch(stream: stager.Stream, model: torch.nn.Module) -> Tuple[int, float]:
    """(batches, their mean loss) of this rank."""
    losses = []
    for rows in stream:
        loss = binary_cross_entropy_with_logits(model(rows["dense"], rows["ids"]), rows["label"])
        loss.backward()  # gradients are averaged over the ranks
        descend(model, RATE)
        losses.append(loss.item())
    return len(losses), sum(losses) / max(len(losses), 1)


def work(rank: int, folder: str, runtime_dir: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(N_RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=N_RANKS)
    share_cpus(N_RANKS)
    torch.manual_seed(1)
    model = DistributedDataParallel(DLRM())
    with stager.torch.open("ranks", runtime_dir=runtime_dir, device="cpu") as stream:  # RANK, WORLD_SIZE
        for epoch in range(EPOCHS):
            n_batches, loss = train_epoch(stream, model)
            everyone: List[Any] = [None] * N_RANKS
            dist.all_gather_object(everyone, (n_batches, loss, sum(p.sum().item() for p in model.parameters())))
            if rank == 0:
                counts, losses, sums = zip(*everyone)
                assert len(set(counts)) == len(set(sums)) == 1, everyone
                print(f"epoch {epoch}: {n_batches} batches for each rank, log loss {sum(losses) / N_RANKS:.4f}, "
                      "one model", flush=True)
    dist.destroy_process_group()


def main() -> None:
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    with stager.serve() as server:
        rows = criteo.rows(sys.argv[1] if len(sys.argv) == 2 else None, server.folder)
        server.apply(criteo.pipeline(rows, BATCH_SIZE, name="ranks", num_clients=N_RANKS,
                                     delivery="round_robin"))
        spawn(work, args=(server.folder, server.runtime_dir), nprocs=N_RANKS)


if __name__ == "__main__":
    main()
