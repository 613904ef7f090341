#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Five models (DIEN, DIN, DLRM, DSSM, DeepFM) trained by PyTorch on a device: steps per second with PyTorch's DataLoader
and with stager, smart_stage off, on and auto, and everything staged; each with one, two and four trainers on one
device, with and without MPS.

    models.py BUILD [--device cuda:0|cpu] [--out DIR] [--limit S] [--seconds S] [--rows N] [--batch-size N] [--seen N]
              [--models NAME …] [--trainers K …] [--workers N] [--smoke]

On `cpu` it is a rehearsal: it shows that the script works, and its figures mean nothing. Writes DIR/models.json and
DIR/models.md after each cell; the table is printed too. A cell that fails or hangs is reported, and the others
continue. Status: 0 success, 1 a cell failed, 77 torch sees no such device, or is not installed.
"""
import argparse
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import models_table  # noqa: E402
import mps  # noqa: E402
import row  # noqa: E402
import toolkit  # noqa: E402

SKIPPED = 77
START_S, CELL_S = 90, 60  # to import torch and make a context; in addition to the time of a cell
# {mode: smart_stage, None if all is staged; other settings of the pipeline}; DataLoader has none.
PIPELINES = {"off": ("off", {}), "on": ("on", {}), "auto": ("auto", {}), "gpu": ("auto", {"compute_device": "auto"}),
             "staged": (None, {}), "shared": (None, {})}
MODES = ["dataloader", "off", "on", "auto", "gpu", "staged"]
TOGETHER = ["dataloader", "on", "staged", "shared"]  # for several trainers, and under MPS


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)


class Gone(Exception):
    """A trainer did not answer."""


class Trainers:
    """k processes that train concurrently. If one dies or hangs, all end; the next cell gets new ones."""

    def __init__(self, k, env, job, log):
        self.k, self.env, self.job, self.log = k, env, job, log
        self.processes = []

    def start(self):
        command = [sys.executable, os.path.join(HERE, "trainer.py"), json.dumps(self.job)]
        self.processes = [subprocess.Popen(command, env=self.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=self.log, start_new_session=True) for _ in range(self.k)]
        self.answers(START_S)

    def answers(self, seconds):
        clock, found = row.Clock(seconds), []
        for process in self.processes:
            ready, _, _ = select.select([process.stdout], [], [], clock.left())
            line = process.stdout.readline() if ready else ""
            if not line:
                self.close()
                raise Gone("a trainer ended" if ready else f"a trainer did not answer within {seconds:.0f} s")
            found.append(json.loads(line))
        return found

    def ask(self, deadline, **command):
        """Returns the answer of each; Gone, or RuntimeError with the failure of one of them."""
        if not self.processes:
            self.start()
        for process in self.processes:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
        found = self.answers(deadline)
        for one in found:
            if "failure" in one:
                raise RuntimeError(one["failure"])
        return found

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
            row.end(process)
            process.stdout.close()
        self.processes = []


class Run:
    """The cells of one run, on one daemon."""

    def __init__(self, args, folder, log):
        self.args, self.log, self.server = args, log, None
        self.clock = row.Clock(args.limit)
        self.paths = {kind: data.make(kind, folder, args.rows, args.seen) for kind in ("criteo", "clicks")}
        self.found = {"device": args.device, "rehearsal": args.device == "cpu", "card": args.card or None,
                      "rows": args.rows, "batch_size": args.batch_size, "seen": args.seen, "workers": args.workers,
                      "seconds": args.seconds, "parts": {}, "cells": []}

    def job(self, k):
        return {"build": self.args.build, "device": self.args.device, "runtime_dir": self.server.runtime_dir,
                "paths": self.paths, "n_rows": self.args.batch_size, "workers": max(self.args.workers // k, 1),
                "threads": max(len(os.sched_getaffinity(0)) // 2 // k, 1)}

    def apply(self, model, mode, k):
        """The pipeline's name; a DataLoader needs none."""
        if mode == "dataloader":
            return ""
        kind, name = data.KINDS[model], f"{model}-{mode}-{k}"
        staged = {"num_clients": k, "delivery": "broadcast"} if k > 1 else {}
        smart_stage, more = PIPELINES[mode]
        made = data.pipeline(name, kind, self.paths[kind], self.args.batch_size, self.args.seen, smart_stage, **staged, **more)
        if mode == "shared":
            made["gpu"] = {"device": "cuda:0" if self.args.device == "cpu" else self.args.device}
        self.server.apply(json.dumps(made), replace=True)
        return name

    def attempt(self, what, trainers, deadline, name, **command):
        """The answers, or the text of a failure."""
        try:
            return trainers.ask(min(deadline, self.clock.left()), name=name, **command), None
        except Gone as error:
            failure = str(error)
        except (RuntimeError, OSError) as error:
            failure = str(error) or type(error).__name__
        finally:
            if name:
                self.server.delete(name)
        say(f"{what}: FAILED: {failure}")
        return None, failure

    def parts(self, trainers, model):
        found, failure = self.attempt(f"{model}, parts", trainers, CELL_S + 4 * self.args.seconds, self.apply(model, "on", 1),
                                      do="parts", model=model, seconds=self.args.seconds / 2)
        self.found["parts"][model] = found[0] if found else {"failure": failure}

    def cell(self, trainers, model, mode, with_mps):
        args, k = self.args, trainers.k
        cell = {"model": model, "mode": mode, "trainers": k, "mps": with_mps}
        auto_s = args.auto_seconds if mode in ("auto", "gpu") else 0
        found, cell["failure"] = self.attempt(
            f"{model}, {mode}, {k}", trainers, CELL_S + auto_s + 2 * args.seconds, self.apply(model, mode, k), do="train",
            model=model, mode=mode, check=args.check, auto_s=auto_s, warm_s=args.seconds / 4, seconds=args.seconds)
        if found:
            cell.update(steps_per_s=[one["n"] / one["s"] for one in found], check=found[0]["check"],
                        decided=found[0].get("decided"))
            say(f"{model}, {mode}, {k} trainers{', MPS' if with_mps else ''}: "
                + ", ".join(f"{rate:.1f}" for rate in cell["steps_per_s"]) + " steps/s")
        self.found["cells"].append(cell)
        self.write()

    def group(self, k, with_mps):
        """All models with k trainers. A single trainer without MPS is measured in more ways."""
        trainers = Trainers(k, dict(os.environ), self.job(k), self.log)
        alone = k == 1 and not with_mps
        try:
            for model in self.args.models:
                if self.clock.left() < CELL_S / 4:
                    self.found["left_out"] = "the time of the whole run was over before all cells were measured"
                    return
                if alone:
                    self.parts(trainers, model)
                for mode in MODES if alone else TOGETHER:
                    self.cell(trainers, model, mode, with_mps)
        finally:
            trainers.close()

    def groups(self, with_mps, **env):
        """Uses a daemon, which starts its processes in the same environment as the trainers'."""
        env = {**env, "STAGER_CUDA_DIR": os.path.join(self.args.build, "cuda")}
        env.update(toolkit.with_libraries(os.environ, os.path.join(self.args.build, "client"), env["STAGER_CUDA_DIR"]))
        with mock.patch.dict(os.environ, env), \
                stager.serve(stagerd=os.path.join(self.args.build, "daemon/stagerd"), memory_budget="4GiB") as self.server:
            for k in self.args.trainers:
                self.group(k, with_mps)

    def all(self):
        self.groups(False)
        if self.args.device == "cpu":
            self.found["mps"] = "not run: MPS is the GPU's"
        else:
            with mps.Mps() as server:
                self.found["mps"] = server.unavailable
                if not server.unavailable:
                    self.groups(True, **server.env)
        self.write()

    def write(self):
        models_table.judge(self.found)
        for name, text in (("models.json", json.dumps(self.found, indent=1) + "\n"),
                           ("models.md", models_table.markdown(self.found))):
            path = os.path.join(self.args.out, name)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path + ".new", path)


def look(device):
    """Returns (the device's name, the reason why training is impossible). A separate process looks: this one must not
    get a context."""
    if importlib.util.find_spec("torch") is None:
        return "", "no torch"
    code = ("import sys, torch; torch.zeros(1, device=sys.argv[1]); "
            "print('' if sys.argv[1] == 'cpu' else torch.cuda.get_device_name(sys.argv[1]))")
    done = subprocess.run([sys.executable, "-c", code, device], capture_output=True, text=True, timeout=START_S, check=False)
    if done.returncode != 0:
        return "", done.stderr.strip().split("\n")[-1] or f"python ends with {done.returncode}"
    return done.stdout.strip(), ""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out")
    parser.add_argument("--limit", type=float, default=400, help="seconds for all of it")
    parser.add_argument("--seconds", type=float, default=1, help="of measuring, a cell")
    parser.add_argument("--auto-seconds", type=float, default=12, help="for auto to decide in, at most")
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--seen", type=int, default=20, help="items that a user saw before, at most")
    parser.add_argument("--check", type=int, default=4, help="steps whose losses are compared")
    parser.add_argument("--models", nargs="+", default=models_table.MODELS, choices=models_table.MODELS)
    parser.add_argument("--trainers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--workers", type=int, default=min(8, len(os.sched_getaffinity(0))), help="of all DataLoaders")
    parser.add_argument("--smoke", action="store_true", help="as little as shows that it works")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.batch_size, args.seen, args.seconds, args.auto_seconds = 1024, 128, 6, 0.2, 0.4
        args.trainers, args.workers = [1, 2], 2
    args.build = os.path.abspath(args.build)
    args.out = os.path.abspath(args.out or os.path.join(args.build, "out"))
    args.rows -= args.rows % args.batch_size
    return args


def main():
    args = arguments()
    args.card, why = look(args.device)
    if why:
        print(f"skipped: {why}")
        return SKIPPED
    sys.path.insert(0, os.path.join(args.build, "client/python"))
    global data, stager
    import data
    import stager
    os.makedirs(args.out, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="stg-models-")
    try:
        with open(os.path.join(args.out, "models.log"), "w", encoding="utf-8") as log:
            run = Run(args, folder, log)
            run.all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(models_table.markdown(run.found))
    failed = [cell for cell in run.found["cells"] if cell["failure"]] + run.found["differ"]
    failed += [part for part in run.found["parts"].values() if "failure" in part]
    return 1 if failed or "left_out" in run.found else 0


if __name__ == "__main__":
    sys.exit(main())
