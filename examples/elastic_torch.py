#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A DLRM (dlrm_torch.py) on the ranks of torchrun, by DistributedDataParallel over gloo, with asynchronous checkpoints:
a thread writes the model and the state of the stream, and the state is committed when that checkpoint is complete.
A rank is killed, and torchrun restarts all ranks. Then the job is killed, and continues with another number of ranks.
It has the same rows in each step as a job that was not killed, and the same weights up to the order of sums of
gradients. The lines that end in #+ are what that takes.

    python3 examples/elastic_torch.py [ROWS]         a file or a pattern of Criteo rows, else generated
"""
from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver             #+
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

import criteo
import stager
import stager.torch
from dlrm_torch import DLRM, descend, share_cpus

RANKS = (2, 1)                                      # before and after the job is killed
BATCH_SIZE, BATCHES, RATE, EVERY = 50, 4, 0.1, 5    # a step has 4 batches, whatever the number of ranks
CRASHES = (8, 13)                                   # the steps in which rank 1 is killed: first, and after a restart


class Model(DLRM):
    """With the number of steps, and one number of all rows in them, which depends on the order of the steps."""

    step: torch.Tensor
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

    def count(self, rows: torch.Tensor) -> None:
        """A step is done; rows: the digests of this rank's batches."""
        dist.all_reduce(rows)
        self.step += 1
        self.seen.mul_(1000003).add_(rows)


def digest(ids: torch.Tensor) -> torch.Tensor:
    """One number of the rows of a batch."""
    return (ids.long() * torch.arange(1, ids.numel() + 1).view_as(ids)).sum().view(1) ** 2


def train(name: str, runtime_dir: str, folder: str, data: str, crashes: bool) -> None:
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    crash_at = CRASHES[int(os.environ["TORCHELASTIC_RESTART_COUNT"])] if crashes and rank == 1 else -1
    if rank == 0:
        stager.apply(criteo.pipeline(data, BATCH_SIZE, name=name, num_clients="auto", delivery="round_robin"),
                     runtime_dir=runtime_dir)
    dist.barrier()
    torch.manual_seed(1)
    model, seen = Model(), torch.zeros(1, dtype=torch.int64)
    writers, saving, tags = dist.new_group(), cast(Any, []), [c["tag"] for c in stager.commits(name, runtime_dir=runtime_dir)]    #+
    if tags:                                                                            #+
        state_dict_loader.load({"model": model}, checkpoint_id=f"{folder}/{tags[-1]}")                #+
    ranks = DistributedDataParallel(model)
    with stager.torch.open(name, runtime_dir=runtime_dir, device="cpu", resume=f"tag:{tags[-1]}" if tags else "start") as stream:
        for i, rows in enumerate(stream, 1):
            is_whole = i % (BATCHES // n_ranks) == 0
            with contextlib.nullcontext() if is_whole else ranks.no_sync():
                loss = binary_cross_entropy_with_logits(ranks(rows["dense"], rows["ids"]), rows["label"])
                (loss * n_ranks / BATCHES).backward()
            seen += digest(rows["ids"])
            if not is_whole:
                continue
            descend(model, RATE)
            model.count(seen)
            seen.zero_()
            if saving and (saving[0].done() or model.step % EVERY == 0):                #+
                saving.pop(0).result()                                                  #+
                stream.commit(saving.pop(0), saving.pop(0))                             #+
            if model.step % EVERY == 0:                                                 #+
                state, tag = stream.state_dict(), f"step-{model.step.item()}"           #+
                saving = [state_dict_saver.async_save({"model": model, "stream": state}, checkpoint_id=f"{folder}/{tag}", process_group=writers), state, tag]  #+
            if model.step == crash_at:
                os.kill(os.getpid(), signal.SIGKILL)
    if saving:
        saving[0].result()                  # the last checkpoint
    if rank == 0:
        print(f"{model.step.item()} steps, the last on {n_ranks} ranks, rows {model.seen.item()}, weights "
              f"{sum(p.double().sum().item() for p in model.parameters()):.6f}", flush=True)


def torchrun(server: stager.Server, name: str, data: str, n_ranks: int, crashes: bool = False) -> str:
    """One job; its last line."""
    folder = os.path.join(server.folder, "checkpoints", name)
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=localhost", f"--nproc-per-node={n_ranks}",
         "--max-restarts=1", __file__, "--train", name, server.runtime_dir, folder, data, str(int(crashes))],
        # Each start of the ranks has a store of its own: some releases of torchrun share one, with addresses of dead ranks.
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if crashes else None, text=True, check=False)
    assert done.returncode == int(crashes), done
    return done.stdout.strip()


def main() -> None:
    if len(sys.argv) == 7 and sys.argv[1] == "--train":
        dist.init_process_group("gloo")
        share_cpus(dist.get_world_size())
        train(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5], sys.argv[6] == "1")
        dist.destroy_process_group()        # before the exit, which would race with the group's threads
        return
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    with stager.serve() as server:
        data = criteo.rows(sys.argv[1] if len(sys.argv) == 2 else None, server.folder, 6000)
        whole = torchrun(server, "whole", data, RANKS[0])
        torchrun(server, "killed", data, RANKS[0], crashes=True)
        tags = [commit["tag"] for commit in server.commits("killed")]
        killed = torchrun(server, "killed", data, RANKS[1])
        print(f"undisturbed: {whole}\nkilled twice, then resumed at {tags[-1]}: {killed}")
        assert re.findall(r"(\d+) steps|rows (\S+),", whole) == re.findall(r"(\d+) steps|rows (\S+),", killed)


if __name__ == "__main__":
    main()
