#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark and every comparison, and writes their figures as a table: the median of some runs, the minimum
and the maximum.

    table.py BUILD [--runs N] [--seconds S] [--only NAME …] [--out FILE]

Run it on an idle machine; it takes four to five minutes. FILE defaults to README.md of this
folder. A benchmark is a program bench_NAME in BUILD/tests/bench; a comparison is a script NAME_PEER.py beside this
one, run by the Python of BUILD/peers-venv (`./quickstart peers` makes it) or, without it, by the Python that
runs this script. Their figures are the numbers in the JSON object of their last line.
"""
import argparse
import ast
import dataclasses
import datetime
import glob
import json
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT_S = 900
SKIPPED = 77
# For the comparisons that require a FOLDER of photographs.
IMAGES = os.environ.get("STAGER_BENCH_IMAGES", os.path.join(HERE, "../../../shared/data/images"))

# Number and duration of runs, for those that need other than the first line.
PROGRAM, SCRIPT = (3, 2), (1, 10)
LENGTHS = {"bench_commit": (3, 6), "bench_handoff": (3, 3), "bench_interference": (1, 12), "bench_interleave": (3, 4),
           "bench_interleave_auto": (1, 100), "bench_overlap": (1, 12), "bench_tune": (1, 60), "bench_sharing": (1, 10),
           "bench_tfrecord": (3, 3), "bench_transport": (3, 3), "csv_tensorflow": (1, 14), "records_tensorflow": (1, 14),
           "interleave_tensorflow": (1, 9), "parquet_pyarrow": (1, 24), "arrow_datasets": (1, 30),
           "bench_remote_stage": (3, 30), "bench_worker_wire": (3, 12), "worker_tensorflow": (1, 48)}

# The rows of the first table, if their benchmark was run: name, figure, goal, description.
GOALS = [
    ("bench_records", "rows_per_s", 2e6,
     "TFRecords of Criteo-like Examples, with both checksums, to dense columns in a trainer's hands: rows per second of "
     "CPU, of stagerd and the trainer"),
    ("records_tensorflow", "ratio", 4,
     "the same over tf.data, `TFRecordDataset().batch().map(parse_example)` at its best, by the clock on the wall"),
    ("records_tensorflow", "cpu_ratio", 4, "the same, rows per second of CPU"),
    ("records_tensorflow", "strings_ratio", 4, "the same, strings not hashed, by the clock on the wall"),
    ("csv_tensorflow", "ratio", 10,
     "CSV of 40 columns to a trainer over tf.data, `TextLineDataset().batch().map(decode_csv)` at its best, strings "
     "hashed on both sides, by the clock on the wall"),
    ("csv_tensorflow", "cpu_ratio", 10, "the same, rows per second of CPU"),
    ("csv_tensorflow", "strings_ratio", 10, "the same, strings not hashed, by the clock on the wall"),
    ("csv_tensorflow", "strings_cpu_ratio", 10, "the same, strings not hashed, rows per second of CPU"),
    ("bench_tune", "auto_over_best", 0.9,
     "batches per second with `capacity: auto` and `num_threads: auto` over the best numbers of a sweep, the least of four "
     "pipelines"),
    ("bench_interleave_auto", "auto_over_best", 0.95,
     "batches per second with `num_parallel_calls: auto` of interleave over the best of 0, 1, 2 and 4, the least of files in "
     "the page cache, far objects, slow files, and files that turn fast and slow"),
    ("bench_codecs", "gzip_ratio", 0.9, "a gzip file, over isa-l in a plain loop"),
    ("bench_codecs", "zstd_ratio", 0.95, "a zstd file, over libzstd in a plain loop"),
    ("bench_codecs", "lz4_ratio", 0.95, "an lz4 file, over liblz4 in a plain loop"),
    ("bench_parquet", "plain_ratio", 0.7,
     "16 columns of a Parquet file, int64 and float32, uncompressed, in the page cache as the disk gave it, to "
     "batches of 4096, over memcpy, bytes per second of CPU"),
    ("bench_parquet", "snappy_ratio", 0.9, "the same, compressed by snappy, over libsnappy in a plain loop"),
    ("bench_parquet", "zstd_ratio", 0.9, "the same, compressed by zstd, over libzstd in a plain loop"),
    ("bench_parquet", "lists_ratio", 0.5,
     "four columns of lists of int64 of a Parquet file, of 0 to 15 elements, uncompressed, to ragged batches of 4096, over "
     "memcpy"),
    ("parquet_pyarrow", "cpu_ratio", 5,
     "Criteo-like Parquet, snappy and dictionaries, to tensors with 26 hashed columns in a trainer's hands, over pyarrow "
     "with NumPy and farmhash at their best, rows per second of CPU"),
    ("parquet_pyarrow", "bare_cpu_ratio", 1, "the same over pyarrow that decodes the columns and hashes nothing"),
    ("parquet_pyarrow", "csv_cpu_ratio", 3, "the same over stagerd with the rows as CSV"),
    ("bench_arrow", "plain_read_ratio", 0.8,
     "16 columns of an Arrow file, int64 and float32, to batches of 4096, over reads of the page cache alone, bytes per "
     "second of CPU"),
    ("bench_arrow", "plain_ratio", None, "the same over memcpy from a mapping of the file"),
    ("arrow_datasets", "ratio", 10,
     "a folder of Hugging Face datasets, 128 token ids, a label and a weight in a row, to batches of 256, over "
     "`with_format(\"torch\")` in a DataLoader with its best number of workers, by the clock on the wall"),
    ("arrow_datasets", "iter_cpu_ratio", None, "the same over `iter(256)` of the data set, rows per second of CPU"),
    ("bench_jpeg", "ratio", 1.2,
     "photographs cropped at random to 224, flipped and normalised, over TurboJPEG's full decode with the same steps"),
    ("jpeg_peers", "tensorflow_ratio", 1.5, "the same files to the same crops over tf.data, rows per second of CPU"),
    ("jpeg_peers", "torch_ratio", 1.5, "the same over PyTorch's DataLoader with Pillow"),
    ("bench_remote", "ratio", 10,
     "64 objects that take 50 ms to the first byte, 100 MB/s a connection: 16 at once over one at a time"),
    ("bench_remote", "ratio_of_possible", 0.9, "the same over 16 connections, or over the parser where that is slower"),
    ("bench_remote", "ratio_stalled", 0.9, "`deterministic: false` with one object that never comes, over none"),
    ("bench_remote_stage", "ratio", 0.9,
     "photographs by a stagerd on one CPU and a worker on another, batches per second over the sum of each alone"),
    ("bench_worker_wire", "ratio", 0.7,
     "batches of 4 MiB that a stagerd takes from a worker over loopback, over plain sendfile of the same file to a reader, "
     "one connection each, by the clock on the wall"),
    ("bench_worker_wire", "cpu_ratio", 0.7, "the same, bytes per second of CPU of all processes"),
    ("bench_worker_wire", "wire_cpu_ratio", 0.7, "the same without the process that makes the batches"),
    ("worker_tensorflow", "wire_cpu_ratio", 5,
     "tensors of 4 MiB from a worker over loopback to a trainer: seconds of CPU a GB of a tf.data service (a dispatcher, a "
     "worker) over those of stagerd and its worker"),
    ("worker_tensorflow", "jpeg_cpu_ratio", None, "the same, photographs to random crops"),
    ("bench_commit", "ratio", 0.98,
     "steps of 1 ms of a trainer that commits every 100 batches, over one that commits nothing"),
    ("bench_metrics", "p50_ms", None,
     "milliseconds of a request for the metrics of 100 pipelines with 8 clients each"),
    ("bench_resume", "global_ratio", None,
     "from a position to batch 1,000,000 of 100 million records, in the order of a global shuffle, over a replay"),
    ("bench_resume", "window_ratio", None,
     "from a position to batch 1,000,000 of 100 million records, shuffled by a window of 65,536, over a replay"),
    ("bench_global", "ratio", 0.8,
     "lines in the order of a global shuffle, over a shuffle with a window of 65,536, rows per second of CPU"),
    ("bench_global", "build_ratio", 0.8,
     "building the record indexes of 100 million lines for the first batch of a global shuffle, over a pass of the reader"),
    ("shuffle_tensorflow", "fill_ratio", None,
     "a shuffle of a million lines: time until the first batch, tf.data's over ours"),
    ("shuffle_tensorflow", "memory_ratio", None, "memory that it takes, tf.data's over ours"),
    ("shuffle_tensorflow", "bytes_per_record", None, "bytes that it takes for a line of 263"),
    ("interleave_tensorflow", "cycle_1_ratio", None,
     "lines of 16 files, one after the other, over tf.data's interleave, by the clock on the wall"),
    ("interleave_tensorflow", "cycle_4_ratio", None, "the same, 4 files in turn"),
    ("interleave_tensorflow", "cycle_16_ratio", None, "the same, 16 files in turn"),
    ("bench_interleave", "cycle_16_block_16_ratio", None,
     "16 files in turn, 16 lines each time, over the reader alone, rows per second of CPU"),
]


@dataclasses.dataclass
class Bench:
    name: str
    about: str
    shown: str  # the command, as a user types it
    command: list
    runs: int
    figures: dict = dataclasses.field(default_factory=dict)  # {key: [value of each run]}


def length(name, default, options):
    runs, seconds = LENGTHS.get(name, default)
    return options.runs or runs, options.seconds or seconds


def program(name, options):
    path = os.path.join(options.build, "tests", "bench", name)
    runs, seconds = length(name, PROGRAM, options)
    shown = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S)
    text = (shown.stdout + shown.stderr).split("\noptions:")[0]
    about = " ".join(line.strip() for line in text.splitlines() if not line.startswith("usage:")).strip()
    arguments = ["--json", "--seconds", f"{seconds:g}"]
    return Bench(name, about, " ".join([f"build/tests/bench/{name}", *arguments]), [path, *arguments], runs)


def docstring(path):
    with open(path, encoding="utf-8") as file:
        return ast.get_docstring(ast.parse(file.read()))


def script_arguments(path, build, seconds):
    """Arguments of a comparison: `BUILD [SECONDS]`, or `BUILD FOLDER [SECONDS]`; None: it has no folder."""
    if f"{os.path.basename(path)} BUILD FOLDER" not in docstring(path):
        return [build, f"{seconds:g}"]
    return [build, IMAGES, f"{seconds:g}"] if os.path.isdir(IMAGES) else None


def script(path, python, options):
    name = os.path.basename(path)[:-len(".py")]
    runs, seconds = length(name, SCRIPT, options)
    about = docstring(path).split("\n\n")[0].replace("\n", " ")
    arguments = script_arguments(path, options.build, seconds)
    if arguments is None:
        return None
    usage = " ".join(["build", *(["FOLDER"] if len(arguments) == 3 else []), f"{seconds:g}"])
    return Bench(name, about, f"tests/bench/{name}.py {usage}", [python, path, *arguments], runs)


def is_wanted(name, only):
    return not only or name in only or name.removeprefix("bench_") in only


def benches(options):
    folder = os.path.join(options.build, "tests", "bench")
    python = os.path.join(options.build, "peers-venv", "bin", "python")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith("bench_") and os.path.isfile(path) and os.access(path, os.X_OK) \
                and is_wanted(name, options.only):
            yield program(name, options)
    for path in sorted(glob.glob(os.path.join(HERE, "*_*.py"))):
        if is_wanted(os.path.basename(path)[:-len(".py")], options.only):
            bench = script(path, python if os.path.exists(python) else sys.executable, options)
            if bench is not None:
                yield bench


def numbers(found, prefix=""):
    """{key: value} of the numbers in an object and nested objects; lists of points are left out."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield prefix + key, value


def run(bench):
    """False: its peer is not installed."""
    for _ in range(bench.runs):
        done = subprocess.run(bench.command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
        if done.returncode == SKIPPED:
            print(done.stdout, end="", file=sys.stderr)
            return False
        done.check_returncode()
        for key, value in numbers(json.loads(done.stdout.splitlines()[-1])):
            bench.figures.setdefault(key, []).append(value)
    return True


def shown(value):
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"


def spread(values):
    return "" if min(values) == max(values) else f"{shown(min(values))} to {shown(max(values))}"


def machine():
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{len(os.sched_getaffinity(0))} x {model}, Linux {platform.release()}"


def goals(done, to):
    print("\n| what | measured | goal | command |\n|---|---|---|---|", file=to)
    for name, key, goal, what in GOALS:
        if name in done and key in done[name].figures:
            value = statistics.median(done[name].figures[key])
            print(f"| {what} | {shown(value)} | {'at least ' + shown(goal) if goal is not None else ''} | "
                  f"`{done[name].shown}`, `{key}` |", file=to)


def write(done, to):
    print("# Measured\n", file=to)
    print(f"{datetime.date.today()}, {machine()}. The median of the runs, and the least and the most.\n\n"
          "Made by `tests/bench/table.py build`. A ratio is taken within one run; `_ns` are latencies, `_per_s` rates, and\n"
          "`baseline_` is the program compared with. The [README](../../README.md) describes the first ones.\n\n"
          "`smart_stage: auto` against `off` and the best partition, as lower bounds of 95 % confidence intervals, on a quiet\n"
          "machine, with one core busy and under a CPU quota: `tests/bench/smartstage.py build` takes 130 minutes and ends with\n"
          "a table; `--minutes 20 --graphs dien,criteo` is a part of it. Nothing else should run meanwhile.", file=to)
    goals(done, to)
    for bench in done.values():
        print(f"\n## {bench.name}\n\n{bench.about}\n\n`{bench.shown}`, {bench.runs} "
              f"{'run' if bench.runs == 1 else 'runs'}\n\n| figure | median | spread |\n|---|---|---|", file=to)
        for key, values in bench.figures.items():
            print(f"| `{key}` | {shown(statistics.median(values))} | {spread(values)} |", file=to)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", default=os.path.join(HERE, "README.md"))
    options = parser.parse_args()
    done = {}
    for bench in benches(options):
        print(f"{bench.name} …", file=sys.stderr)
        if run(bench):
            done[bench.name] = bench
    with open(options.out, "w", encoding="utf-8") as to:
        write(done, to)


if __name__ == "__main__":
    main()
