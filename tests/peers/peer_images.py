#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops for images against TensorFlow's (and Pillow's files), over random images and attributes.

    peer_images.py BUILD [SECONDS]     SECONDS: how long each test draws (default 20)

Pixels, resized pixels and normalized ones are the same bits; colours within 1e-5 of the largest value.
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import image_files  # noqa: E402
from op_tool import OpError  # noqa: E402
from peer_elementwise import draw  # noqa: E402
from peer_ops import main  # noqa: E402

INVALID_ARGUMENT = -3
SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 60]


def scalar(data):
    array = np.empty((), object)
    array[()] = data
    return array


def numpy_rng(rng):
    return np.random.RandomState(rng.randrange(2**32))


def random_jpeg(rng, height=None):
    height, width = height or rng.choice(SIZES), rng.choice(SIZES)
    channels = rng.choice([1, 3, 3, 3, 4])
    pixels = image_files.picture(numpy_rng(rng), height, width, channels)
    options = {"quality": rng.randint(20, 98), "progressive": rng.random() < 0.3}
    if channels == 3:
        options["subsampling"] = rng.randrange(3)
    if rng.random() < 0.2:
        options["restart_marker_blocks"] = rng.randint(1, 4)
    return image_files.jpeg(pixels, {1: "L", 3: "RGB", 4: "CMYK"}[channels], **options)


def check(tool, op, inputs, attrs, call):
    """Either both refuse, or both return the same bits."""
    what = f"{op} {attrs}"
    try:
        want = call().numpy()
    except (tf.errors.InvalidArgumentError, ValueError) as e:
        want, reason = None, str(e)
    try:
        got, = tool.op(op, inputs, attrs)
    except OpError as e:
        assert want is None, f"{what}: refused ({e.text})"
        assert e.code == INVALID_ARGUMENT, f"{what}: {e.code} {e.text}"
        return False
    assert want is not None, f"{what}: gives {got.shape}; TensorFlow refuses: {reason}"
    assert got.shape == want.shape and got.dtype == want.dtype, f"{what}: {got.dtype} {got.shape}, not {want.dtype} {want.shape}"
    assert (got == want).all(), f"{what}: {np.abs(got.astype(float) - want).max()} apart at {np.argwhere(got != want)[0]}"
    return True


def jpegs(tool, seconds):
    def one(rng):
        data = random_jpeg(rng)
        channels, ratio = rng.choice([0, 0, 1, 3]), rng.choice([1, 1, 2, 4, 8])
        fancy, method = rng.random() < 0.7, rng.choice(["INTEGER_ACCURATE", "INTEGER_FAST"])
        if rng.random() < 0.1:
            data = data[:rng.randrange(len(data))]
        attrs = f'channels={channels} ratio={ratio} fancy_upscaling={str(fancy).lower()} dct_method="{method}"'
        return check(tool, "decode_jpeg", [scalar(data)], attrs,
                     lambda: tf.io.decode_jpeg(data, channels, ratio, fancy, dct_method=method))
    draw(seconds, 71, one)


def windows(tool, seconds):
    """A window has the pixels of the whole image, which TensorFlow's windows do not always have."""
    def one(rng):
        data = random_jpeg(rng)
        whole = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
        y, x = (rng.randrange(n) for n in whole.shape[:2])
        h, w = rng.randint(1, whole.shape[0] - y), rng.randint(1, whole.shape[1] - x)
        window = np.array([y, x, h, w], rng.choice(["int32", "int64"]))
        return check(tool, "decode_jpeg", [scalar(data), window], "",
                     lambda: tf.convert_to_tensor(whole[y:y + h, x:x + w]))
    draw(seconds, 72, one)


def pngs(tool, seconds):
    def one(rng):
        color = rng.choice(list(image_files.DEPTHS))
        depth, transparent = rng.choice(image_files.DEPTHS[color]), rng.random() < 0.4
        data = image_files.random_png(numpy_rng(rng), color, depth, transparent)
        channels, dtype = rng.choice([0, 1, 3, 4]), rng.choice(["uint8", "uint16"])
        if channels == 4 and depth < 8 and not transparent:
            channels = 3  # TensorFlow generates an alpha that is not opaque
        if rng.random() < 0.1:
            data = data[:rng.randrange(len(data) - 4)]  # it ignores a missing checksum of its empty last chunk
        return check(tool, "decode_png", [scalar(data)], f'channels={channels} dtype="{dtype}"',
                     lambda: tf.io.decode_png(data, channels, dtype))
    draw(seconds, 73, one)


def sizes(tool, seconds):
    def one(rng):
        shape = (rng.choice(SIZES), rng.choice(SIZES), rng.choice([1, 2, 3, 3, 3, 4, 5]))
        if rng.random() < 0.3:
            shape = (rng.choice([1, 2, 3]), *shape)
        x = numpy_rng(rng).randint(0, 256, shape).astype(rng.choice(["uint8", "uint8", "uint16", "float32"]))
        size = [rng.choice(SIZES), rng.choice(SIZES)]
        half, corners = rng.choice([(True, False), (True, False), (False, False), (False, True)])
        attrs = f"size={size} half_pixel_centers={str(half).lower()} align_corners={str(corners).lower()}"
        return check(tool, "resize_bilinear", [x], attrs, lambda: tf.reshape(tf.raw_ops.ResizeBilinear(
            images=x.reshape((-1, *shape[-3:])), size=size, align_corners=corners, half_pixel_centers=half),
            shape[:-3] + (*size, shape[-1])))
    draw(seconds, 74, one)


def colours(tool, seconds):
    kinds = {"brightness": tf.image.adjust_brightness, "contrast": tf.image.adjust_contrast,
             "saturation": tf.image.adjust_saturation, "hue": tf.image.adjust_hue}

    def one(rng):
        x = numpy_rng(rng).randint(0, 256, (rng.choice(SIZES), rng.choice(SIZES), 3)).astype("float32")
        want, attrs = x, []
        for name, adjust in kinds.items():
            if rng.random() < 0.5:
                value = rng.uniform(-0.5, 0.5) * (100 if name == "brightness" else 1)
                value = value + 1 if name in ("contrast", "saturation") else value
                want = adjust(want, value)
                attrs.append(f"{name}=[{value!r}, {value!r}]")
        got, = tool.op("color_jitter", [x], " ".join(attrs))
        apart = np.abs(got - np.asarray(want)).max()
        assert apart <= 1e-5 * max(1, np.abs(want).max()) + 1e-4, f"color_jitter {attrs}: {apart} apart"
        return True
    draw(seconds, 75, one)


def crops_of_files(tool, seconds):
    """A crop of a file equals that of its pixels; resized, flipped and normalized like TensorFlow and numpy do."""
    def one(rng):
        data = random_jpeg(rng, rng.choice([20, 40, 60]))
        size, seed = [rng.choice(SIZES), rng.choice(SIZES)], rng.randrange(2**31)
        head = "element f string []\nd = decode_jpeg(f) channels=3\n"
        pixels = f"r = random_resized_crop(d) size={size} seed={seed}\nfeature r = r\n"
        chain = (f"r = random_resized_crop(f) size={size} seed={seed}\ne = random_flip(r) seed={seed}\n"
                 "n = normalize_image(e) mean=[120, 110, 100] std=[58.5, 57.25, 57]\nfeature n = n\n")
        want, = tool.run(head + pixels, [scalar(data)])
        got, = tool.run(head + chain, [scalar(data)])
        normalized = [((w - np.float32([120, 110, 100])) / np.float32([58.5, 57.25, 57])).transpose(2, 0, 1)
                      for w in (want, want[:, ::-1])]
        assert any((got == n).all() for n in normalized), f"size {size} seed {seed}"
        return True
    draw(seconds, 76, one)


TESTS = [jpegs, windows, pngs, sizes, colours, crops_of_files]


if __name__ == "__main__":
    sys.exit(main(TESTS, __doc__))
