# SPDX-License-Identifier: Apache-2.0
"""Shared by the scripts NAME_PEER.py, which compare stager with another program: `SCRIPT BUILD [SECONDS]`, with a
Python that has the peer (`./quickstart peers` makes one in BUILD/peers-venv).

Both sides do the same work with the same files in the page cache, on the CPUs that the script may use (`taskset`
selects them). They take turns, and the best round of each counts. Rates are those of a consumer without other work, in
wall time, and in CPU time of all threads and processes of a side, which a busy machine hardly changes. The last line is
one JSON object. The exit status is 77 without the peer.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
N_CORES = len(os.sched_getaffinity(0))
TITLES = ["label"] + [f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)]
STRINGS = [title for title in TITLES if title[0] == "C"]
N_BUCKETS = 1000000


def tensorflow():
    """Returns the module, or ends the script."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    try:
        import tensorflow
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    return tensorflow


class Bench:
    """Parses the arguments of the script, and makes a folder for it."""

    def __init__(self, about, seconds):
        if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
            print(about)
            sys.exit(0 if sys.argv[1:] == ["--help"] else 2)
        self.build = os.path.abspath(sys.argv[1])
        self.seconds = float(sys.argv[2]) if len(sys.argv) == 3 else seconds

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="stg-bench-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def program(self, name):
        return os.path.join(self.build, "tests/bench", name)

    def rows(self, kind, n_rows, name):
        """A file of Criteo-like rows, "csv" or "example"."""
        path = os.path.join(self.folder, name)
        subprocess.run([self.program("criteo_write"), kind, str(n_rows), path], check=True)
        return path

    def drain(self, pipeline, seconds):
        """stager's side: the figures of struct drain, for the definition of a pipeline."""
        path = os.path.join(self.folder, "pipeline.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(pipeline, name="bench"), file)
        run = subprocess.run([self.program("drain_file"), "bench", path, str(seconds)], check=True, text=True,
                             stdout=subprocess.PIPE)
        return json.loads(run.stdout.splitlines()[-1])


def staged(features, max_batch_bytes, n_threads=None):
    return {"capacity": 4, "num_threads": n_threads or N_CORES, "max_batch_bytes": max_batch_bytes,
            "features": features}


class Iteration:
    """The peer's side: batches of an endless tf.data.Dataset, as a trainer takes them."""

    def __init__(self, dataset, batch_rows):
        self.iterator = iter(dataset)
        self.batch_rows = batch_rows

    def measure(self, seconds):
        """Rows per second, and rows per second of CPU, from one batch to another."""
        next(self.iterator)
        cpu, began = time.process_time(), time.perf_counter()
        n, now = 0, began
        while now - began < seconds:
            next(self.iterator)
            n += self.batch_rows
            now = time.perf_counter()
        return {"rows_per_s": n / (now - began), "rows_per_cpu_s": n / (time.process_time() - cpu)}


def fastest(settings, make, seconds):
    """(setting, its Iteration): the best by the wall. make: a setting -> Iteration."""
    best = None
    for setting in settings:
        iteration = make(setting)
        iteration.measure(seconds / 2)  # tf.data tunes itself
        rate = iteration.measure(seconds)["rows_per_s"]
        if best is None or rate > best[0]:
            best = (rate, setting, iteration)
    return best[1], best[2]


def turns(ours, theirs, seconds, n_rounds=3):
    """The best figures of both sides; ours, theirs: seconds -> figures."""
    best = [{}, {}]
    for _ in range(n_rounds):
        for side, measure in enumerate((ours, theirs)):
            got = measure(seconds / 2 / n_rounds)
            for key in ("rows_per_s", "rows_per_cpu_s"):
                best[side][key] = max(best[side].get(key, 0), got[key])
    return best


def hash_strings(features, nodes):
    """Puts nodes behind the features that are strings."""
    for title in STRINGS:
        nodes.append({"name": f"ids_{title}", "op": "string_to_hash_bucket_fast", "input": [features[title]],
                      "num_buckets": N_BUCKETS})
        features[title] = f"ids_{title}"


def compared(kind, ours, theirs):
    """The figures of a comparison of that `kind` ("" or "strings_")."""
    print(f"{kind.rstrip('_') or 'all':12} {ours['rows_per_s'] / 1e6:.3f} million rows/s, theirs "
          f"{theirs['rows_per_s'] / 1e6:.3f}; a core {ours['rows_per_cpu_s'] / 1e6:.3f}, theirs "
          f"{theirs['rows_per_cpu_s'] / 1e6:.3f}", flush=True)
    return {f"{kind}ratio": round(ours["rows_per_s"] / theirs["rows_per_s"], 2),
            f"{kind}cpu_ratio": round(ours["rows_per_cpu_s"] / theirs["rows_per_cpu_s"], 2),
            f"{kind}rows_per_s": round(ours["rows_per_s"]),
            f"{kind}rows_per_cpu_s": round(ours["rows_per_cpu_s"]),
            f"{kind}baseline_rows_per_s": round(theirs["rows_per_s"]),
            f"{kind}baseline_rows_per_cpu_s": round(theirs["rows_per_cpu_s"])}


def hashed_and_not(bench, settings, pipeline, theirs):
    """The comparison with strings hashed, and unchanged ("strings_"). pipeline: hashed -> our definition; theirs:
    (hashed, a setting's parts) -> Iteration."""
    figures = {}
    for kind, hashed in (("", True), ("strings_", False)):
        setting, iteration = fastest(settings, lambda s: theirs(hashed, *s), bench.seconds / 40)
        definition = pipeline(hashed)
        best = turns(lambda seconds: bench.drain(definition, seconds), iteration.measure, bench.seconds / 4)
        figures.update(compared(kind, *best))
        figures[f"{kind}baseline_setting"] = str(setting)
    return figures


def report(name, figures):
    print(json.dumps({"bench": name, "cores": N_CORES, **figures}))
