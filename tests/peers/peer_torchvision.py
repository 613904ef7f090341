#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops for images against torchvision's transforms and Pillow's EXIF, over random images and attributes.

    peer_torchvision.py BUILD [SECONDS]     SECONDS: how long each test draws (default 20)

Resized pixels are within 1/255 of the range everywhere, colours within 1e-4 of it. With STG_TEST_DATA, a folder with
photographs in images/, the validation recipe of each is compared too; without it, of generated ones.
"""
import glob
import io
import itertools
import os
import sys

import numpy as np
import torch
from PIL import Image, ImageOps

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../bench")]
import image_files  # noqa: E402
from peer_elementwise import draw  # noqa: E402
from peer_images import SIZES, numpy_rng, scalar  # noqa: E402
from peer_ops import main  # noqa: E402
from transforms import functional as tv  # noqa: E402

# Where the result is one pixel wide, torch's antialias differs from its own definition (8 x 8 to 4 x 1, for one).
WIDTHS = SIZES[1:]
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def as_torch(pixels):
    """[h, w, c] of 0 to 255 as float [c, h, w] of 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))).float() / 255


def from_torch(image):
    return image.numpy().transpose(1, 2, 0) * 255


def check(got, want, what, tolerance=1.0):
    assert got.shape == want.shape, f"{what}: {got.shape}, not {want.shape}"
    apart = np.abs(got.astype(float) - want).max() if got.size else 0
    assert apart <= tolerance, f"{what}: {apart} of 255 apart"
    return True


def random_pixels(rng, channels=None):
    shape = (rng.choice(SIZES + [100, 301]), rng.choice(SIZES + [100, 301]), channels or rng.choice([1, 3, 3, 3, 4]))
    return numpy_rng(rng).randint(0, 256, shape).astype("uint8")


def resize(tool, seconds):
    def one(rng):
        x, size = random_pixels(rng), [rng.choice(SIZES), rng.choice(WIDTHS)]
        antialias = rng.random() < 0.8
        got, = tool.op("resize", [x], f"size={size} antialias={str(antialias).lower()}")
        return check(got, from_torch(tv.resize(as_torch(x), size, antialias=antialias)), f"{x.shape} to {size}", 0.05)
    draw(seconds, 81, one)


def shorter_side_and_center(tool, seconds):
    """Sizes and places are torchvision's, to the pixel."""
    def one(rng):
        x, size = random_pixels(rng), rng.choice(WIDTHS)
        if max(x.shape[:2]) * size / min(x.shape[:2]) > 3000:
            return False
        want = tv.resize(as_torch(x), [size], antialias=True)
        got, = tool.op("resize_shorter_side", [x], f"size={size}")
        check(got, from_torch(want), f"{x.shape}, shorter side {size}", 0.05)
        crop = [rng.randint(1, want.shape[1]), rng.randint(1, want.shape[2])]
        got, = tool.run(f"element x uint8 [-1, -1, -1]\nr = resize_shorter_side(x) size={size}\n"
                        f"c = center_crop(r) size={crop}\nfeature c = c\n", [x])
        return check(got, from_torch(tv.center_crop(want, crop)), f"{x.shape}, {size}, crop {crop}", 0.05)
    draw(seconds, 82, one)


def photographs():
    folder = os.environ.get("STG_TEST_DATA")
    for path in sorted(glob.glob(os.path.join(folder, "images", "*.jpg"))) if folder else []:
        with open(path, "rb") as file:
            yield file.read()
    rng = np.random.RandomState(5)
    for height, width in ((375, 500), (500, 333), (257, 256), (1000, 600), (256, 800)):
        yield image_files.jpeg(image_files.picture(rng, height, width), quality=90)


def recipe(tool, _seconds):
    """Resize(256), CenterCrop(224), Normalize of the whole photograph."""
    text = ("element f string []\nr = resize_shorter_side(f) size=256\nc = center_crop(r) size=[224, 224]\n"
            f"n = normalize_image(c) mean={MEAN} std={STD}\nfeature n = n\n")
    mean, std = (torch.tensor(v).view(3, 1, 1) / 255 for v in (MEAN, STD))
    worst, sums, n = 0.0, 0.0, 0
    for data in photographs():
        whole, = tool.op("decode_image", [scalar(data)], "channels=3")
        want = (tv.center_crop(tv.resize(as_torch(whole), [256], antialias=True), [224, 224]) - mean) / std
        got, = tool.run(text, [scalar(data)])
        apart = np.abs(got - want.numpy()) * np.array(STD)[:, None, None]
        worst, sums, n = max(worst, apart.max()), sums + apart.mean(), n + 1
    print(f"{n} photographs: mean difference {sums / n:.5f} of 255, worst pixel {worst:.4f}")
    assert worst <= 1


def orientations(tool, seconds):
    def one(rng):
        orientation = rng.randint(1, 8)
        exif = Image.Exif()
        exif[0x0112] = orientation
        out = io.BytesIO()
        image = Image.fromarray(random_pixels(rng, 3))
        if rng.random() < 0.5:
            image.save(out, "PNG", exif=exif)
        else:
            image.save(out, "JPEG", quality=90, exif=exif)
        data = out.getvalue()
        plain, = tool.op("decode_image", [scalar(data)], "channels=3")
        turned = Image.fromarray(plain)
        turned.getexif()[0x0112] = orientation
        want = np.asarray(ImageOps.exif_transpose(turned))
        got, = tool.op("decode_image", [scalar(data)], "channels=3 apply_exif_orientation=true")
        return check(got, want, f"orientation {orientation}", 0)
    draw(seconds, 84, one)


def colours(tool, seconds):
    """In one of the orders that ColorJitter draws."""
    kinds = {"brightness": tv.adjust_brightness, "contrast": tv.adjust_contrast,
             "saturation": tv.adjust_saturation, "hue": tv.adjust_hue}

    def one(rng):
        x = random_pixels(rng, 3)
        values = {name: rng.uniform(-0.5, 0.5) if name == "hue" else rng.uniform(0, 2)
                  for name in kinds if rng.random() < 0.6}
        attrs = " ".join(f"{name}=[{value!r}, {value!r}]" for name, value in values.items())
        got, = tool.op("color_jitter", [x], f'definition="torchvision" seed={rng.randrange(99)} {attrs}')
        apart = []
        for order in itertools.permutations(values):
            want = as_torch(x)
            for name in order:
                want = kinds[name](want, values[name])
            apart.append(np.abs(got - from_torch(want)).max())
        assert min(apart) < 0.03, f"{values}: {min(apart)} of 255 apart in the nearest order"
        return True
    draw(seconds, 86, one)


TESTS = [resize, shorter_side_and_center, recipe, orientations, colours]


if __name__ == "__main__":
    sys.exit(main(TESTS, __doc__))
