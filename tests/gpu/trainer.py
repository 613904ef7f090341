# SPDX-License-Identifier: Apache-2.0
"""The process of one trainer of models.py: `trainer.py JOB`, JOB being JSON: build, device, runtime_dir, paths, n_rows,
workers. It executes lines of JSON on stdin, and answers each with one on stdout: {"do": "train" …}, {"do": "parts"
…}."""
import contextlib
import itertools
import json
import os
import sys
import time
import traceback
import warnings

JOB = json.loads(sys.argv[1]) if __name__ == "__main__" else {}
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(JOB.get("build", ""), "client/python")]

import torch  # noqa: E402

import data  # noqa: E402
import nets  # noqa: E402
import stager  # noqa: E402
import stager.torch  # noqa: E402

TIMEOUT_S = 60.0
LOOK_S = 0.5
LATE_BATCHES = 8  # copies in flight, at most, while nothing else runs
now = time.perf_counter
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # no thread writes


class Bench:
    """A device, and batches on it."""

    def __init__(self, job):
        self.job, self.device = job, torch.device(job["device"])
        self.is_cuda = self.device.type == "cuda"
        if not self.is_cuda:
            torch.set_num_threads(job["threads"])

    def synchronize(self):
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def put(self, rows):
        return {name: value.to(self.device, non_blocking=True) for name, value in rows.items()}

    def result(self, value):
        """Results of `run`: on the device, or page-locked if there is one."""
        if isinstance(value, stager.Tensor):
            return torch.utils.dlpack.from_dlpack(value)
        value = torch.from_numpy(value)
        return value.pin_memory() if self.is_cuda else value

    # ---- sources of batches ----

    @contextlib.contextmanager
    def dataloader(self, kind):
        """Unchanged, in host memory: page-locked, if there is a device."""
        loader = iter(data.loader(kind, self.job["paths"][kind], self.job["n_rows"], self.job["workers"], self.is_cuda))
        yield loader
        del loader

    def fetched(self, stream, kind):
        """The fetches of `run` for a batch: values that stagerd has computed ahead, and the rest computed now."""
        names = data.FEATURES[kind]
        return lambda batch: dict(zip(names, map(self.result, stream().run(batch))))

    @contextlib.contextmanager
    def run(self, kind, name, put=None, **options):
        """put: how they are moved, for `depth` batches ahead of the loop."""
        streams = []
        fetch = self.fetched(lambda: streams[0], kind)
        take = fetch if put is None else lambda batch: put(fetch(batch))
        with self.open(name, device=take, **options) as stream:
            streams.append(stream)
            yield iter(stream)

    def open(self, name, **options):
        return stager.open(name, runtime_dir=self.job["runtime_dir"], timeout=TIMEOUT_S, **options)

    @contextlib.contextmanager
    def batches(self, kind, mode, name):
        """On the device, as a trainer takes them."""
        if mode == "dataloader":
            with self.dataloader(kind) as loader:
                yield map(self.put, loader)
        elif mode in ("staged", "shared"):
            hook = stager.torch.direct(self.device) if self.is_cuda else stager.torch.to(self.device)
            with self.open(name, device=hook) as stream:
                yield iter(stream)
        else:
            gpu = {"gpu": str(self.device)} if mode == "gpu" and self.is_cuda else {}
            with self.run(kind, name, self.put, **gpu) as batches:
                yield batches

    # ---- measurements ----

    def check(self, trainer, batches, steps):
        """[[loss, sums of whole numbers]] of the first steps."""
        found = []
        for rows in itertools.islice(batches, steps):
            sums = [int(value.sum()) for name, value in sorted(rows.items()) if not value.is_floating_point()]
            found.append([float(trainer.step(rows)), sums])
        return found

    def steps(self, trainer, batches, seconds):
        """(steps, seconds) of them."""
        n, began = 0, now()
        while now() - began < seconds or n == 0:
            trainer.step(next(batches))
            n += 1
        self.synchronize()
        return n, now() - began

    def decide(self, trainer, batches, name, seconds):
        """Trains until `auto` has decided; returns its decision. None: it has not decided in that time."""
        end = now() + seconds
        while now() < end:
            self.steps(trainer, batches, LOOK_S)
            said = [one["text"] for one in stager.explain(name, runtime_dir=self.job["runtime_dir"])["decisions"]
                    if one["text"].startswith("holds")]
            if said:
                return said[-1]
        return None

    def train(self, model, mode, name, check, auto_s, warm_s, seconds):
        kind, trainer = nets.MODELS[model][1], nets.Trainer(model, self.device)
        found = {}
        with self.batches(kind, mode, name) as batches:
            found["check"] = self.check(trainer, batches, check)
            if mode in ("auto", "gpu"):
                found["decided"] = self.decide(trainer, batches, name, auto_s)
            self.steps(trainer, batches, warm_s)
            found["n"], found["s"] = self.steps(trainer, batches, seconds)
        return found

    def parts(self, model, name, seconds):
        """Seconds for a batch of each part alone: made and handed over, copied, trained on."""
        kind, trainer = nets.MODELS[model][1], nets.Trainer(model, self.device)
        with self.run(kind, name) as batches:
            stage = self.each(batches, lambda rows: None, seconds)
        with self.dataloader(kind) as loader:
            loading = self.each(loader, lambda rows: None, seconds)
            host = next(loader)
        copy = self.each(itertools.repeat(host), self.put, seconds)
        there = self.put(host)
        compute = self.each(itertools.repeat(there), trainer.step, seconds)
        return {"stage_s": stage, "dataloader_s": loading, "copy_s": copy, "compute_s": compute}

    def each(self, batches, use, seconds):
        for rows in itertools.islice(batches, LATE_BATCHES):
            use(rows)
        self.synchronize()
        n, began = 0, now()
        while now() - began < seconds or n < LATE_BATCHES:
            use(next(batches))
            n += 1
            if n % LATE_BATCHES == 0:
                self.synchronize()
        self.synchronize()
        return (now() - began) / n

    def obey(self, command):
        return getattr(self, command.pop("do"))(**command)


def main():
    # Output of libraries must not mix with the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench = Bench(JOB)
    torch.zeros(1, device=bench.device)
    out.write('{"ready": true}\n')
    out.flush()
    for line in sys.stdin:
        try:
            answer = bench.obey(json.loads(line))
        except Exception as error:  # any error fails only this cell
            traceback.print_exc()
            answer = {"failure": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
