# SPDX-License-Identifier: Apache-2.0
"""The process of one contestant: `contestant.py JOB`, JOB being JSON: module, settings, case, data, and for trainers of
a shared data set k, rank and address. It executes lines on stdin, and answers each with a line of JSON on stdout:

    check           takes one epoch (a batch, if there are no epochs), returns its digest
    measure S       takes batches for S seconds; earlier time does not count
    first           makes the loader and takes one batch
    end
"""
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import cases  # noqa: E402
import machine  # noqa: E402

READY_S, READY_SAMPLES = 0.002, 100
WARM_SHARE, WARM_BATCHES = 0.3, 3
now = time.perf_counter


def answer(**found):
    OUT.write(json.dumps(found) + "\n")
    OUT.flush()


def spin(seconds):
    end = now() + seconds
    while now() < end:
        pass


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# ---- measurements ---------------------------------------------------------------------------

def take(batches, use, seconds, least=0):
    """(batches, rows, bytes, seconds) from one batch to another."""
    n = rows = taken = 0
    began = at = now()
    while at - began < seconds or n < least:
        batch = next(batches)
        use(batch)
        n += 1
        rows += cases.n_rows(batch)
        taken += cases.n_bytes(batch) if use is cases.read_all else 0
        at = now()
    return n, rows, taken, at - began


def throughput(kind, batches, seconds):
    use = cases.use(kind)
    take(batches, use, seconds * WARM_SHARE, WARM_BATCHES)
    cpu = machine.cpu_s(os.getpid())
    n, rows, taken, wall = take(batches, use, seconds)
    amount = taken / 1e9 if kind == "transport" else rows
    return {"batches": n, "amount": amount, "wall_s": wall, "cpu_s": machine.cpu_s(os.getpid()) - cpu}


def ready(batches, seconds):
    samples, end = [], now() + seconds
    for i in range(READY_SAMPLES + 10):
        spin(READY_S)
        began = now()
        batch = next(batches)
        tensor = batch["x"]
        samples.append(now() - began)
        del batch, tensor
        if now() > end and i > 20:
            break
    samples = samples[10:]
    return {"p50_us": statistics.median(samples) * 1e6, "p99_us": percentile(samples, 0.99) * 1e6}


def border(epochs, seconds):
    """epochs: an iterator over iterators. The first epoch does not count: no border precedes it."""
    firsts, others, end = [], [], now() + seconds
    began = now()
    for i, batches in enumerate(epochs):
        n = 0
        for _ in batches:
            (others if n else firsts).append(now() - began)
            n += 1
            time.sleep(cases.STEP_S)
            began = now()
        if now() > end and i >= 2:
            break
    return {"epochs": len(firsts) - 1, "border_ms": statistics.median(firsts[1:]) * 1e3,
            "inside_ms": statistics.median(others) * 1e3}


def each_epoch(source, is_endless):
    """Epochs as the library defines them, or pieces of an endless stream."""
    batches = source.batches() if is_endless else None
    while True:
        yield (next(batches) for _ in range(16)) if is_endless else source.batches(1)


# ---- a contestant ---------------------------------------------------------------------------

class Contestant:
    def __init__(self, job):
        self.job, self.kind = job, job["case"]["kind"]
        self.module = importlib.import_module(job["module"])
        self.case = cases.Case(**job["case"])
        self.source = self.stream = None

    def prepare(self):
        settings = {key: value for key, value in self.job["settings"].items() if key != "endless"}
        if "rank" in self.job and self.job["address"] is not None:
            return self.module.attach(self.job["address"], self.case, self.job["data"], self.job["rank"], self.job["k"])
        return self.module.prepare(self.case, self.job["data"], **settings)

    def check(self):
        source = self.prepare()
        digest = cases.digest(self.kind, iter(source.batches(1)))
        source.close()
        return {"digest": digest}

    def batches(self):
        """The endless iterators, begun once."""
        if self.stream is None:
            self.stream = iter(self.source.batches())
        return self.stream

    def measure(self, seconds):
        if self.source is None:
            self.source = self.prepare()
        if self.kind == "ready":
            return ready(self.batches(), seconds)
        if self.kind == "border":
            return border(each_epoch(self.source, self.job["settings"].get("endless", False)), seconds)
        return throughput(self.kind, self.batches(), seconds)

    def first(self):
        began = now()
        cpu = machine.cpu_s(os.getpid())
        self.source = self.prepare()
        rows = cases.n_rows(next(iter(self.source.batches())))
        wall = now() - began
        assert rows == self.case.options["rows"], rows
        return {"first_s": wall, "cpu_s": machine.cpu_s(os.getpid()) - cpu}

    def close(self):
        self.stream = None
        if self.source is not None:
            self.source.close()


class Shared:
    """k trainers in separate processes, and the source that they share, if they do."""

    def __init__(self, job):
        self.job = job
        module = importlib.import_module(job["module"])
        self.source = None
        if hasattr(module, "share"):
            self.source = module.share(cases.Case(**job["case"]), job["data"], job["k"], **job["settings"])
        address = self.source.address if self.source is not None else None
        self.trainers = [self._trainer(rank, address) for rank in range(job["k"])]
        for trainer in self.trainers:
            self._line(trainer)

    def _trainer(self, rank, address):
        job = json.dumps({**self.job, "rank": rank, "address": address})
        return subprocess.Popen([sys.executable, os.path.join(HERE, "contestant.py"), job], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @staticmethod
    def _line(trainer):
        line = trainer.stdout.readline()
        if not line:
            raise RuntimeError("a trainer ended")
        found = json.loads(line)
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def _all(self, command):
        for trainer in self.trainers:
            trainer.stdin.write(command + "\n")
            trainer.stdin.flush()
        return [self._line(trainer) for trainer in self.trainers]

    def check(self):
        return {}

    def measure(self, seconds):
        """Trainers warm up independently; counting starts when all are warm."""
        self._all(f"measure {seconds * WARM_SHARE}")
        cpu, began = machine.cpu_s(os.getpid()), now()
        found = self._all(f"measure {seconds}")
        wall, cpu = now() - began, machine.cpu_s(os.getpid()) - cpu
        rates = [one["amount"] / one["wall_s"] for one in found]
        return {"rates": rates, "amount": min(rates) * wall, "wall_s": wall, "cpu_s": cpu}

    def close(self):
        for trainer in self.trainers:
            trainer.stdin.write("end\n")
            trainer.stdin.flush()
        for trainer in self.trainers:
            trainer.wait()
        if self.source is not None:
            self.source.close()


def obey(contestant, line):
    command, *arguments = line.split()
    return getattr(contestant, command)(*[float(argument) for argument in arguments])


def main():
    job, contestant = json.loads(sys.argv[1]), None
    try:
        contestant = (Shared if "k" in job and "rank" not in job else Contestant)(job)
        answer(ready=True)
        for line in sys.stdin:
            if line.strip() == "end":
                break
            answer(**obey(contestant, line))
    except Exception as error:  # an exception of a library fails only this row
        traceback.print_exc()
        answer(error=f"{type(error).__name__}: {error}")
    if contestant is not None:
        contestant.close()
    sys.stderr.flush()
    os._exit(0)  # some libraries have threads that do not end


if __name__ == "__main__":
    # Output of libraries must not mix with the answers.
    OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
