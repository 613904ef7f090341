#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of batches that come from a worker over loopback: a trainer, its stagerd and a stagerd --worker compared with
a trainer and a tf.data service of a dispatcher and one worker.

    worker_tensorflow.py BUILD [SECONDS]    with a Python that has TensorFlow

`wire`: records of 4 MiB to float32, so that the transport dominates. `jpeg`: photographs to normalized random crops of
224 x 224 in batches of 32. Figures are seconds of CPU of all processes of a side for a GB of tensors, the least of three
rounds; a ratio is the tf.data service's over stager's. stagerd makes some batches itself, as long as its trainer waits;
`wire_cpu_ratio` counts none of them and all CPU time. tf.data runs with its better `compression`, found by trials.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np

from peer import N_CORES, Bench, report, tensorflow

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "peers"))
import cases  # noqa: E402
import machine  # noqa: E402

RECORD_BYTES, N_RECORDS = 4 << 20, 32
N_WARM, N_ROUNDS = 8, 3
JPEG = cases.Case("jpeg", "jpeg", "", "images", {"rows": cases.BATCH_IMAGES})


def take(batches, cpu_s, seconds):
    """Figures of a trainer without other work, from one batch to another."""
    for _ in range(N_WARM):
        next(batches)
    cpu, n, began = cpu_s(), 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        n += sum(np.asarray(tensor).nbytes for tensor in next(batches).values())
    wall = time.perf_counter() - began
    return {"bytes": n, "wall_s": wall, "cpu_s": cpu_s() - cpu}


def cost(got, key="bytes"):
    """Seconds of CPU for a GB."""
    return got["cpu_s"] * 1e9 / max(got[key], 1)


# ---- stager ---------------------------------------------------------------------------------

def wire(path):
    return {"dataset": [{"files": {"pattern": [path]}}, {"fixed_length_record": {"record_bytes": RECORD_BYTES}},
                        {"repeat": {}}, {"batch": {"batch_size": 1}}],
            "graph": [{"name": "x", "op": "decode_raw", "input": ["record"], "out_type": "float32",
                       "fixed_length": RECORD_BYTES}],
            "staged": {"features": {"x": "x"}, "num_threads": 1}}


def jpeg(files):
    side = [cases.SIDE, cases.SIDE]
    graph = [{"name": "crop", "op": "random_resized_crop", "input": ["bytes"], "size": side, "seed": 1},
             {"name": "flip", "op": "random_flip", "input": ["crop"], "seed": 2},
             {"name": "image", "op": "normalize_image", "input": ["flip"], "mean": cases.MEAN, "std": cases.STD}]
    return {"dataset": [{"files": {"pattern": files}}, {"read_file": {}},
                        {"map": {"graph": graph, "output": {"image": "image"}}}, {"repeat": {}},
                        {"batch": {"batch_size": cases.BATCH_IMAGES, "drop_remainder": True}}],
            "staged": {"features": {"image": "image"}, "num_threads": N_CORES}}


class Worker:
    """A stagerd --worker. It ends when its standard input does."""

    def __init__(self, bench, definition):
        path = os.path.join(bench.folder, "worker.json")
        self.path, self.stagerd = os.path.join(bench.folder, "trainer.json"), os.path.join(bench.build, "daemon/stagerd")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"name": "bench", **definition}, file)
        self.process = subprocess.Popen([self.stagerd, "--worker", "--until-eof", "--listen", "127.0.0.1:0", path],
                                        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        port = next(line.rsplit(", port ", 1)[1] for line in self.process.stderr if ", port " in line)
        remote = {"workers": [f"http://127.0.0.1:{int(port)}"], "mode": "on", "max_requests": 4}
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"name": "bench", **definition, "staged": {**definition["staged"], "capacity": 4, "remote": remote}}, file)

    def measure(self, build, seconds):
        """By a trainer in a process of its own, with its stagerd."""
        run = subprocess.run([sys.executable, __file__, "--take", build, self.path, str(self.process.pid), str(seconds)],
                             check=True, text=True, stdout=subprocess.PIPE)
        return json.loads(run.stdout.splitlines()[-1])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def remote_bytes(server):
    return float(re.search(r"\(([0-9.]+) MiB\) by workers", server.status("bench")["remote"])[1]) * 2**20


def take_ours(build, path, worker, seconds):
    """In a separate process: prints the figures."""
    sys.path.insert(0, os.path.join(build, "client/python"))
    import stager
    with stager.serve(stagerd=os.path.join(build, "daemon/stagerd"), memory_budget="2GiB") as server:
        server.apply(pathlib.Path(path))
        with server.open("bench") as stream:
            before = [0.0]

            def cpu_s():
                before.append(remote_bytes(server))
                return machine.cpu_s(os.getpid()) + machine.cpu_s(worker)

            found = take(iter(stream), cpu_s, seconds)
            print(json.dumps({**found, "remote_bytes": before[-1] - before[-2]}))


# ---- the tf.data service --------------------------------------------------------------------

class Job:
    """An endless iterator over what the worker of a service makes."""

    def __init__(self, service, kind, data, compression):
        from contestants import tf_data
        tf = tf_data.tf
        self.service = service
        if kind == "wire":
            dataset = tf.data.FixedLengthRecordDataset(data, RECORD_BYTES).repeat()
            dataset = dataset.map(lambda record: {"x": tf.io.decode_raw(record, tf.float32)}, tf.data.AUTOTUNE)
        else:
            dataset = tf_data.dataset(JPEG, {"images": data}, True)
        dataset = dataset.prefetch(tf.data.AUTOTUNE).apply(tf.data.experimental.service.distribute(
            tf.data.experimental.service.ShardingPolicy.OFF, service.address, compression=compression))
        self.batches = iter(dataset.prefetch(tf.data.AUTOTUNE))

    def measure(self, seconds):
        def cpu_s():
            return machine.cpu_s(self.service.process.pid) + time.process_time()
        return take(self.batches, cpu_s, seconds)


def better(service, kind, data, seconds):
    """(compression, its Job): the one that takes less CPU time."""
    best = None
    for compression in (None, "AUTO"):
        job = Job(service, kind, data, compression)
        took = cost(job.measure(seconds))
        if best is None or took < best[0]:
            best = (took, compression, job)
    return best[1:]


# ---- both -----------------------------------------------------------------------------------

def compare(kind, bench, service, definition, data):
    worker = Worker(bench, definition)
    compression, job = better(service, kind, data, bench.seconds / 16)
    ours, theirs = [], []
    for _ in range(N_ROUNDS):
        machine.freeze(service.process.pid)
        ours.append(worker.measure(bench.build, bench.seconds / 4 / N_ROUNDS))
        machine.thaw(service.process.pid)
        theirs.append(job.measure(bench.seconds / 4 / N_ROUNDS))
    worker.close()
    peer = min(cost(got) for got in theirs)
    whole, remote = (min(cost(got, key) for got in ours) for key in ("bytes", "remote_bytes"))
    share = sum(got["remote_bytes"] for got in ours) / sum(got["bytes"] for got in ours)
    rates = [max(got["bytes"] / got["wall_s"] for got in side) for side in (ours, theirs)]
    print(f"{kind:4} {whole:.3f} s of CPU a GB ({share:.2f} of it by the worker; {remote:.3f} for a GB of the worker), the "
          f"tf.data service {peer:.3f}; {rates[0] / 1e9:.2f} and {rates[1] / 1e9:.2f} GB/s", flush=True)
    return {f"{kind}_cpu_ratio": round(peer / (remote if kind == "wire" else whole), 2),
            f"{kind}_delivered_cpu_ratio": round(peer / whole, 2),
            f"{kind}_cpu_s_per_gb": round(whole, 3), f"{kind}_remote_cpu_s_per_gb": round(remote, 3),
            f"{kind}_baseline_cpu_s_per_gb": round(peer, 3), f"{kind}_remote_share": round(share, 3),
            f"{kind}_ratio": round(rates[0] / rates[1], 2), f"{kind}_baseline_compression": str(compression)}


def main():
    tensorflow()
    from contestants import tf_service
    with Bench(__doc__, 24.0) as bench:
        service = tf_service.Service()
        path = os.path.join(bench.folder, "records")
        np.random.default_rng(1).integers(0, 1 << 32, RECORD_BYTES // 4 * N_RECORDS, np.uint32).tofile(path)
        images = cases.Data(bench.build, bench.folder, 0, True).images()
        figures = compare("wire", bench, service, wire(path), path)
        figures.update(compare("jpeg", bench, service, jpeg(images), images))
        service.close()
    report("worker_tensorflow", figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--take"]:
        take_ours(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    else:
        main()
