# SPDX-License-Identifier: Apache-2.0
"""The cases: the work, its data, and the comparison of results.

A contestant is a module of contestants/ with

    NAME        its name in the table
    NEEDS       distributions that must be installed; the table shows their versions
    VARIANTS    {kind of case: {variant: keyword arguments of prepare}}
    prepare(case, data, **settings)     -> a source

and a source has

    batches(epochs=None)    an iterator over batches, without an end, or over one epoch (epochs=1; called again it is
                            the next epoch). A batch is a mapping of names to what numpy.asarray takes
    close()

Where k trainers read one data set, a module may also have share(case, data, k, **settings) -> a source with an
`address` (JSON) for the k trainers, and attach(address, case, data, rank, k) -> the source of a trainer. Without
them each trainer prepares a source of its own.
"""
import dataclasses
import os
import subprocess
import sys
import tarfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import peer  # noqa: E402

TITLES, STRINGS, N_BUCKETS = peer.TITLES, peer.STRINGS, peer.N_BUCKETS
NUMBERS = [title for title in TITLES if title[0] == "I"]
BATCH_ROWS, BORDER_ROWS, BATCH_IMAGES, SIDE = 4096, 512, 32, 224
BATCH_FILES = 32
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
N_FILES, N_SHARDS, N_IMAGES = 4, 4, 100
STEP_S = 0.005  # of the trainer at the border of an epoch
VALUE = 1.5     # of every number of a transported batch


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    kind: str
    about: str
    unit: str           # the unit of throughput
    options: dict = dataclasses.field(default_factory=dict)


def transport(name, n_bytes, shown):
    return Case(f"transport_{name}", "transport", f"Transport, batches of {shown}", "GB", {"bytes": n_bytes})


CASES = [
    Case("ready", "ready", "`next` on a batch that is ready", "", {"bytes": 256 << 10}),
    transport("256k", 256 << 10, "256 KiB"),
    transport("4m", 4 << 20, "4 MiB"),
    transport("64m", 64 << 20, "64 MiB"),
    Case("csv", "csv", "Criteo CSV to columns", "rows", {"rows": BATCH_ROWS}),
    Case("tfrecord", "tfrecord", "TFRecord Examples to columns", "rows", {"rows": BATCH_ROWS}),
    Case("jpeg", "jpeg", "JPEG to random crops of 224 x 224", "images", {"rows": BATCH_IMAGES}),
    Case("share", "share", "k trainers on one data set of JPEG", "images", {"rows": BATCH_IMAGES}),
    Case("first", "first", "Time to the first batch of many files", "", {"rows": BATCH_FILES}),
    Case("border", "border", "Wait at an epoch's border", "", {"rows": BORDER_ROWS}),
]

ABOUT = {
    "ready": "The trainer computes for 2 ms, so that a batch of 256 KiB is ready, then takes the next one and its tensor. "
             "Microseconds of that, the median and the 99th of a hundred.",
    "transport": "Every batch is copied once from a buffer to fresh memory by the loader, and read once, all of its bytes, by "
                 "the trainer.",
    "csv": f"Rows of 40 columns (263 bytes) from the page cache: a label, 13 numbers of which some are missing, 26 strings "
           f"that are hashed to {N_BUCKETS:,} buckets, {BATCH_ROWS} rows a batch. The trainer takes the batches.",
    "tfrecord": f"The same columns as `tf.train.Example` in TFRecord files, {BATCH_ROWS} rows a batch.",
    "jpeg": f"Files are decoded, a random part (8 to 100 % of the area) is resized to {SIDE} x {SIDE}, flipped at random, "
            f"normalized to float32, channels first, {BATCH_IMAGES} a batch. A thousand images per second of CPU is what "
            "counts: it holds for any number of cores.",
    "share": "k trainers get the images of the case above at the same time: each with a loader of its own, or all from one. "
             "A trainer looks at one number of each image. Images per second of the slowest trainer.",
    "first": "From the call that makes the loader to the first batch of 32 small files in the trainer's hands, of a data set "
             "of files that a pattern selects, in random order. A new process each time, in which the libraries "
             "are loaded already.",
    "border": f"A trainer takes {STEP_S * 1000:.0f} ms for each of the 16 batches of an epoch, {BORDER_ROWS} rows of CSV, "
              "parsed as above. Milliseconds that it waits for the first batch of an epoch, the median; inside of an epoch.",
}


# ---- data -----------------------------------------------------------------------------------

def write_images(folder, n):
    """Without photographs: generated pictures of the same size."""
    sys.path.insert(0, os.path.join(HERE, "../../peers"))
    import image_files
    rng = np.random.RandomState(1)
    for i in range(n):
        with open(os.path.join(folder, f"{i:04d}.jpg"), "wb") as file:
            file.write(image_files.jpeg(image_files.picture(rng, 375, 500), "RGB", quality=90))


def write_tar(path, images):
    with tarfile.open(path, "w") as tar:
        for image in images:
            tar.add(image, os.path.basename(image))


def write_tree(folder, n_files):
    """n_files of 110 bytes in ImageNet's layout: folders of 1,280. They are hard links of 64 files, which are faster to
    make; listing and opening are the same."""
    os.makedirs(os.path.join(folder, "links"))
    for i in range(64):
        with open(os.path.join(folder, "links", str(i)), "wb") as file:
            file.write(bytes([i]) * 110)
    for first in range(0, n_files, 1280):
        name = f"n{first // 1280:08d}"
        inside = os.path.join(folder, "train", name)
        os.makedirs(inside)
        at = os.open(inside, os.O_RDONLY)
        for i in range(min(1280, n_files - first)):
            os.link(os.path.join(folder, "links", str((first // 1280 + i) % 64)), f"{name}_{i}.JPEG", dst_dir_fd=at)
        os.close(at)


class Data:
    """Files for the cases, in a folder that is removed at the end of the block."""

    def __init__(self, build, folder, n_tree_files, small):
        self.build, self.folder, self.n_tree_files = build, folder, n_tree_files
        self.n_rows = BATCH_ROWS * (1 if small else 6)
        self.photographs = os.environ.get("STAGER_BENCH_IMAGES", os.path.join(HERE, "../../../../shared/data/images"))

    def rows(self, kind, n_files, n_rows):
        paths = [os.path.join(self.folder, f"{kind}-{n_rows}-{i}") for i in range(n_files)]
        for path in paths:
            subprocess.run([os.path.join(self.build, "tests/bench/criteo_write"), kind, str(n_rows), path], check=True)
        return paths

    def images(self):
        """The first hundred photographs, where they are."""
        folder = self.photographs
        if not os.path.isdir(folder):
            folder = os.path.join(self.folder, "images")
            os.mkdir(folder)
            write_images(folder, N_IMAGES)
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".jpg"))[:N_IMAGES]

    def tars(self, images):
        paths = [os.path.join(self.folder, f"images-{i}.tar") for i in range(N_SHARDS)]
        for i, path in enumerate(paths):
            write_tar(path, images[i::N_SHARDS])
        return paths

    def make(self, kinds):
        """The data passed to contestants: {"csv": paths …}."""
        made = {"build": self.build, "folder": self.folder, "cores": len(os.sched_getaffinity(0))}
        if "csv" in kinds:
            made["csv"] = self.rows("csv", N_FILES, self.n_rows)
        if "border" in kinds:
            made["border"] = self.rows("csv", 1, 16 * BORDER_ROWS)
        if "tfrecord" in kinds:
            made["tfrecord"] = self.rows("example", N_FILES, max(self.n_rows // 2, BATCH_ROWS))
        if kinds & {"jpeg", "share"}:
            made["images"] = self.images()
            made["tars"] = self.tars(made["images"])
        if "first" in kinds:
            write_tree(os.path.join(self.folder, "tree"), self.n_tree_files)
            made["tree"] = os.path.join(self.folder, "tree/train")
        return made


def warm(data):
    """Reads every file once, so that measurements read from the page cache."""
    for kind in ("csv", "border", "tfrecord", "images", "tars"):
        for path in data.get(kind, []):
            with open(path, "rb") as file:
                while file.read(1 << 20):
                    pass


# ---- batches --------------------------------------------------------------------------------

def n_rows(batch):
    return len(next(iter(batch.values())))


def n_bytes(batch):
    return sum(np.asarray(value).nbytes for value in batch.values())


def read_all(batch):
    """Reads every byte once."""
    return sum(int(np.add.reduce(np.asarray(value).reshape(-1).view(np.uint64))) for value in batch.values())


def look(batch):
    """Reads one number of each image."""
    return float(np.asarray(batch["image"])[:, 0, 0, 0].sum())


def hold(batch):
    """Takes every tensor."""
    return list(batch.values())


def use(kind):
    return {"transport": read_all, "share": look}.get(kind, hold)


def digest(kind, batches):
    """A digest to compare the results of two contestants. It uses sums, because workers change the order."""
    if kind in ("transport", "ready"):
        batch = next(batches)
        return {"bytes": n_bytes(batch), "sum": read_all(batch)}
    if kind in ("csv", "tfrecord", "border"):
        return _digest_columns(batches)
    return _digest_images(batches)


def _digest_columns(batches):
    found = {"rows": 0, "label": 0, "numbers": 0.0, "ids": 0}
    for batch in batches:
        found["rows"] += n_rows(batch)
        for name, value in batch.items():
            key = {"l": "label", "I": "numbers", "n": "numbers"}.get(name[0], "ids")
            found[key] += np.asarray(value).sum(dtype=np.float64 if key == "numbers" else np.int64).item()
    return found


def _digest_images(batches):
    n, mean, square = 0, 0.0, 0.0
    for batch in batches:
        for value in batch.values():
            array = np.asarray(value)
            assert array.dtype == np.float32 and array.shape[1:] == (3, SIDE, SIDE), (array.dtype, array.shape)
            n += len(array)
            mean += float(array.mean(dtype=np.float64)) * len(array)
            square += float(np.square(array, dtype=np.float64).mean()) * len(array)
    return {"images": n, "mean": mean / n, "deviation": (square / n - (mean / n) ** 2) ** 0.5}


def same(a, b):
    """For random crops, mean and deviation of the pixels must be close, closer for more crops (one crop deviates by
    about 0.6). Everything else must be equal."""
    near = max(0.1, 2.5 / a.get("images", 1) ** 0.5)
    return a.keys() == b.keys() and all(abs(a[key] - b[key]) <= (near if key in ("mean", "deviation") else 0) for key in a
                                        if key != "images")
