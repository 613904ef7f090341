#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two experiments on one loader: DLRMs of two learning rates (dlrm_torch.py), each in a process of its own,
train on the same batches. stagerd reads, parses and hashes the rows once (delivery: broadcast).

    python3 examples/two_experiments.py [ROWS]       a file or a pattern of Criteo rows, else generated
"""
from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import List

import criteo
import stager
import stager.torch
from dlrm_torch import share_cpus, train

RATES = [0.1, 0.01]
EPOCHS, BATCH_SIZE = 3, 100


def experiment(lr: float, runtime_dir: str) -> List[float]:
    share_cpus(len(RATES))
    with stager.torch.open("shared", runtime_dir=runtime_dir, timeout=60) as stream:
        return train(stream, EPOCHS, lr)


def main() -> None:
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    with stager.serve() as server:
        rows = criteo.rows(sys.argv[1] if len(sys.argv) == 2 else None, server.folder)
        name = server.apply(criteo.pipeline(rows, BATCH_SIZE, name="shared", num_clients=len(RATES),
                                            delivery="broadcast"))
        with ProcessPoolExecutor(len(RATES), mp_context=get_context("spawn")) as processes:
            runs = [processes.submit(experiment, lr, server.runtime_dir) for lr in RATES]
        for lr, run in zip(RATES, runs):
            losses = run.result()
            last = losses[-(len(losses) // EPOCHS):]
            print(f"learning rate {lr}: {len(losses)} batches, log loss of the last epoch "
                  f"{sum(last) / len(last):.4f}")
        print(f"stagerd made {server.status(name)['published']} batches, each once")


if __name__ == "__main__":
    main()
