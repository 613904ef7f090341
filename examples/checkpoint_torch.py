#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A DLRM (dlrm_torch.py) that survives any crash: a checkpoint every 20 steps, committed when it is complete. It is
killed in the middle, and ends with the same model as a run that is not. The lines that end in #+ are what that takes.

    python3 examples/checkpoint_torch.py [ROWS]      a file or a pattern of Criteo rows, else generated
"""
from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import criteo
import stager
import stager.torch
from dlrm_torch import DLRM, descend, share_cpus

BATCH_SIZE, RATE, EVERY, CRASH_AT = 50, 0.1, 20, 37


def train(name: str, runtime_dir: str, path: str, crashes: bool) -> None:
    torch.manual_seed(1)
    model, step = DLRM(), 0
    saved: Any = torch.load(path) if os.path.exists(path) else None             #+
    if saved:                                                                   #+
        model.load_state_dict(saved["model"])                                   #+
        step = saved["step"]                                                    #+
    state = saved["state"] if saved else None                                   #+
    with stager.torch.open(name, runtime_dir=runtime_dir, state=state, resume="start", device="cpu") as stream:
        for rows in stream:
            binary_cross_entropy_with_logits(model(rows["dense"], rows["ids"]), rows["label"]).backward()
            descend(model, RATE)
            step += 1
            if step % EVERY == 0:                                               #+
                state = stream.state_dict()                                     #+
                torch.save({"model": model.state_dict(), "step": step, "state": state}, path + ".new")  #+
                os.rename(path + ".new", path)                                  #+
                stream.commit(state, f"step-{step}")                            #+
            if crashes and step == CRASH_AT:
                os._exit(1)
    print(f"{step} steps, weights {sum(p.double().sum().item() for p in model.parameters()):.12f}", flush=True)


def run(server: stager.Server, name: str, crashes: bool) -> str:
    """One process that trains; its last line."""
    path = os.path.join(server.folder, f"{name}.pt")
    done = subprocess.run([sys.executable, __file__, "--train", name, server.runtime_dir, path, str(int(crashes))],
                          stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == int(crashes), done
    return done.stdout.strip()


def main() -> None:
    if len(sys.argv) == 6 and sys.argv[1] == "--train":
        share_cpus(1)
        train(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5] == "1")
        return
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    with stager.serve() as server:
        rows = criteo.rows(sys.argv[1] if len(sys.argv) == 2 else None, server.folder)
        for name in ("whole", "killed"):
            server.apply(criteo.pipeline(rows, BATCH_SIZE, name=name))
        whole = run(server, "whole", crashes=False)
        run(server, "killed", crashes=True)
        tags = [commit["tag"] for commit in server.commits("killed")]
        killed = run(server, "killed", crashes=False)
        assert killed == whole, (killed, whole)
        print(f"killed at step {CRASH_AT}, resumed at {tags[-1]}: {killed}, as without")


if __name__ == "__main__":
    main()
