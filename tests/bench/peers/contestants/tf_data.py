# SPDX-License-Identifier: Apache-2.0
"""tf.data in the trainer's process, as its performance guide recommends: map with AUTOTUNE, prefetch with AUTOTUNE."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import tensorflow as tf  # noqa: E402

import cases  # noqa: E402

NAME = "tf.data"
NEEDS = ["tensorflow-cpu", "numpy"]
ALONE = {"": {}}
VARIANTS = {
    "ready": ALONE, "transport": ALONE, "csv": ALONE, "tfrecord": ALONE, "jpeg": ALONE,
    "share": {"each its own": {}},
    "first": {"list_files": {}}, "border": ALONE,
}


def hashed(columns):
    for title in cases.STRINGS:
        columns[title] = tf.strings.to_hash_bucket_fast(columns[title], cases.N_BUCKETS)
    return columns


def decode_csv(lines):
    defaults = [[0]] + [[0.0]] * len(cases.NUMBERS) + [[""]] * len(cases.STRINGS)
    return hashed(dict(zip(cases.TITLES, tf.io.decode_csv(lines, defaults))))


def parse(records):
    return hashed(tf.io.parse_example(records, {
        title: tf.io.FixedLenFeature([], tf.string, "") if title in cases.STRINGS else
        tf.io.FixedLenFeature([], tf.int64, 0) for title in cases.TITLES}))


def load(path):
    data = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(data), tf.zeros([1, 0, 4]), min_object_covered=0.0, area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3), max_attempts=10, use_image_if_no_bounding_boxes=True)
    window = tf.stack([begin[0], begin[1], size[0], size[1]])
    image = tf.image.resize(tf.io.decode_and_crop_jpeg(data, window, channels=3), [cases.SIDE, cases.SIDE])
    image = tf.image.random_flip_left_right(image)
    return {"image": tf.transpose((image - tf.constant(cases.MEAN)) / tf.constant(cases.STD), [2, 0, 1])}


def records(case, data, is_endless):
    """The steps up to the batch, and after it."""
    rows = case.options["rows"]
    read = tf.data.TFRecordDataset if case.kind == "tfrecord" else tf.data.TextLineDataset
    dataset = read(data[case.kind])
    dataset = (dataset.repeat() if is_endless else dataset).batch(rows)
    return dataset.map(parse if case.kind == "tfrecord" else decode_csv, tf.data.AUTOTUNE)


def images(case, data, is_endless):
    files = tf.data.Dataset.from_tensor_slices(data["images"]).shuffle(len(data["images"]))
    files = files.repeat() if is_endless else files
    return files.map(load, tf.data.AUTOTUNE).batch(case.options["rows"], drop_remainder=True)


def copies(case, data, is_endless):
    """batch(1) is the copy."""
    buffer = tf.fill([case.options["bytes"] // 4], tf.constant(cases.VALUE))
    return tf.data.Dataset.from_tensors({"x": buffer}).repeat(-1 if is_endless else 8).batch(1)


def files(case, data, is_endless):
    found = tf.data.Dataset.list_files(data["tree"] + "/*/*", shuffle=True)
    return found.map(lambda path: {"bytes": tf.io.read_file(path)}, tf.data.AUTOTUNE).batch(case.options["rows"])


MAKE = {"ready": copies, "transport": copies, "csv": records, "border": records, "tfrecord": records, "jpeg": images,
        "share": images, "first": files}


def dataset(case, data, is_endless):
    return MAKE[case.kind](case, data, is_endless)


class Source:
    def __init__(self, case, data):
        self.case, self.data = case, data
        self.once = None

    def batches(self, epochs=None):
        if epochs is None:
            return iter(dataset(self.case, self.data, True).prefetch(tf.data.AUTOTUNE))
        if self.once is None:
            self.once = dataset(self.case, self.data, False).prefetch(tf.data.AUTOTUNE)
        return iter(self.once)

    def close(self):
        self.once = None


def prepare(case, data):
    return Source(case, data)
