#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder of Hugging Face `datasets` to batches of tensors: stagerd compared with `with_format("torch")` in PyTorch's
DataLoader (""), and with `iter(batch_size)` of the same data set, which takes a batch at once ("iter").

    arrow_datasets.py BUILD [SECONDS]    with a Python that has datasets and torch

A row has 128 token ids, as a list of fixed length, a label and a weight: what a fine-tuning of a text classifier reads.
The DataLoader runs with the number of workers of 0 to the number of CPUs that is fastest by the wall. A round is a whole
epoch, which includes the start of workers.
"""
import os
import resource
import sys
import time

from peer import N_CORES, SKIPPED, Bench, compared, report, staged

try:
    import datasets
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

N_ROWS, N_TOKENS, BATCH = 50000, 128, 256


def make(folder):
    rng = np.random.default_rng(20240607)
    features = datasets.Features({"input_ids": datasets.Sequence(datasets.Value("int32"), N_TOKENS),
                                  "label": datasets.Value("int64"), "weight": datasets.Value("float32")})
    rows = {"input_ids": list(rng.integers(0, 30000, (N_ROWS, N_TOKENS), np.int32)),
            "label": rng.integers(0, 2, N_ROWS), "weight": rng.random(N_ROWS, np.float32)}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(folder)
    return datasets.load_from_disk(folder).with_format("torch")


def cpu_s():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def epochs(batches, seconds):
    """batches: () -> an iterable of an epoch."""
    cpu, began, n = cpu_s(), time.perf_counter(), 0
    while n == 0 or time.perf_counter() - began < seconds:
        n += sum(len(batch["label"]) for batch in batches())
    return {"rows_per_s": n / (time.perf_counter() - began), "rows_per_cpu_s": n / (cpu_s() - cpu)}


def of_arrow(folder):
    columns = {"input_ids": "int32", "label": "int64", "weight": "float32"}
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".arrow"))
    return {"dataset": [{"files": {"pattern": files}},
                        {"arrow": {"columns": columns, "shapes": {"input_ids": [N_TOKENS]}}},
                        {"repeat": {}}, {"batch": {"batch_size": BATCH}}],
            "graph": [], "staged": staged({name: name for name in columns}, "1MiB", 1)}


def main():
    with Bench(__doc__, 30.0) as bench:
        torch.set_num_threads(1)
        folder = os.path.join(bench.folder, "rows")
        rows = make(folder)

        def loader(n_workers):
            return lambda: torch.utils.data.DataLoader(rows, batch_size=BATCH, num_workers=n_workers)
        n_workers = max(range(N_CORES + 1), key=lambda n: epochs(loader(n), 0)["rows_per_s"])
        sides = {"ours": lambda s: bench.drain(of_arrow(folder), s), "": lambda s: epochs(loader(n_workers), s),
                 "iter": lambda s: epochs(lambda: rows.iter(BATCH), s)}
        best = {name: {"rows_per_s": 0, "rows_per_cpu_s": 0} for name in sides}
        for _ in range(3):
            for name, measure in sides.items():
                got = measure(bench.seconds / 9)
                best[name] = {key: max(best[name][key], got[key]) for key in best[name]}
        figures = compared("", best["ours"], best[""]) | compared("iter_", best["ours"], best["iter"])
        report("arrow_datasets", figures | {"baseline_workers": n_workers})


if __name__ == "__main__":
    main()
