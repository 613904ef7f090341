#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer whose hosts come and go by etcd (docs/cluster.md). The stagerd of each host has `cluster.etcd` in its settings. Start
the ranks of a host at any time, each with its number among those of its host:

    LOCAL_RANK=0 LOCAL_SIZE=2 python3 examples/cluster/elastic.py '/data/*.txt' /shared/run-7

It learns the mean of the numbers in FILES, which have one in each line, by SGD. FOLDER is one that all hosts share: it has a
checkpoint for each tag, and the address of the first rank (HOST, by default the name of the machine). If a host is lost or
joins, all hosts go on at the last commit.
"""
from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from typing import Any, Dict, List

import stager

NAME, BATCH_SIZE, RATE = "elastic", 8, 0.05
EVERY = int(os.environ.get("EVERY", "100"))     # steps for a checkpoint
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))   # of a model that is larger
TIMEOUT = 60    # seconds for the other ranks


def pipeline(files: str) -> stager.Pipeline:
    lines = stager.files(files, seed=1).text_line().shuffle(10000, seed=1)
    return lines.shard("auto").batch(BATCH_SIZE).staged(name=NAME, delivery="round_robin", num_clients="auto")


def save(path: str, value: Any) -> None:
    """Whole or not at all."""
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


class Group:
    """The ranks of a generation of hosts, as those of torch.distributed would be: a rank that is lost is an OSError of the others.
    The first rank sums up."""

    def __init__(self, folder: str, info: Dict[str, Any], local_rank: int, local_size: int) -> None:
        self.rank, size = info["host"] * local_size + local_rank, info["hosts"] * local_size
        path = os.path.join(folder, f"generation-{info['hosts_generation']}")
        with contextlib.ExitStack() as stack:
            if self.rank == 0:
                server = stack.enter_context(socket.create_server(("", 0)))
                server.settimeout(TIMEOUT)
                save(path, [os.environ.get("HOST", socket.gethostname()), server.getsockname()[1]])
                found = [stack.enter_context(server.accept()[0]) for _ in range(size - 1)]
            else:
                deadline = time.monotonic() + TIMEOUT
                while not os.path.exists(path) and time.monotonic() < deadline:
                    time.sleep(0.01)
                with open(path, encoding="ascii") as file:
                    found = [stack.enter_context(socket.create_connection(json.load(file), TIMEOUT))]
            for connection in found:
                connection.settimeout(TIMEOUT)
            self.peers = [stack.enter_context(connection.makefile("rw", encoding="ascii")) for connection in found]
            self.close = stack.pop_all().close

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):      # of what a lost rank was to get
            self.close()

    def receive(self, peer: Any) -> List[float]:
        line = peer.readline()
        if not line.endswith("\n"):
            raise ConnectionError("a rank is lost")
        values: List[float] = json.loads(line)
        return values

    def send(self, values: List[float]) -> None:
        for peer in self.peers:
            peer.write(json.dumps(values) + "\n")
            peer.flush()

    def all_reduce(self, values: List[float]) -> List[float]:
        if self.rank > 0:
            self.send(values)
            return self.receive(self.peers[0])
        values = [sum(column) for column in zip(values, *map(self.receive, self.peers))]
        self.send(values)
        return values


def train(stream: stager.Stream, group: Group, folder: str, model: Dict[str, Any]) -> None:
    for batch in stream:
        numbers = [float(line) for line in batch["record"]]
        time.sleep(STEP_SECONDS)
        rows, total = group.all_reduce([len(numbers), sum(numbers)])
        model = {"step": model["step"] + 1, "rows": model["rows"] + rows, "total": model["total"] + total,
                 "mean": model["mean"] + RATE * (total / rows - model["mean"])}
        # Behind the all-reduce every rank has taken this batch. The checkpoint is complete before the commit that names it.
        if group.rank == 0 and model["step"] % EVERY == 0:
            tag = f"step-{model['step']}"
            save(os.path.join(folder, tag), model)
            stream.commit(stream.state_dict(), tag)
    group.all_reduce([])    # a host that leaves ends the generation of the others
    if group.rank == 0:
        print(f"{model['step']} steps, {model['rows']:.0f} rows, total {model['total']:.0f}, mean {model['mean']:.3f}", flush=True)


def begin(folder: str, local_rank: int, local_size: int) -> None:
    """From the last commit to the end, or to the first change of the hosts."""
    job = os.path.basename(folder)
    tags = [commit["tag"] for commit in stager.commits(NAME, job=job)]
    model = {"step": 0, "rows": 0, "total": 0, "mean": 0.0}
    if tags:
        with open(os.path.join(folder, tags[-1]), encoding="ascii") as file:
            model = json.load(file)
    with stager.open(NAME, job=job, local_rank=local_rank, local_size=local_size, resume=f"tag:{tags[-1]}" if tags else "start") as stream:
        info = stream.info
        print(f"rank {local_rank} of host {info['host']} of {info['hosts']}, generation {info['hosts_generation']}, from step {model['step']}", flush=True)
        with Group(folder, info, local_rank, local_size) as group:
            train(stream, group, folder, model)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    files, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    os.makedirs(folder, exist_ok=True)
    stager.apply(pipeline(files))       # of equal content: the ranks of a host may all do so
    while True:
        try:
            begin(folder, int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_SIZE"]))
            return
        except (stager.AbortedError, stager.UnavailableError, OSError) as error:
            # A host left or joined, or is about to; or stagerd is started again.
            print(f"goes on at the last commit: {error}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
