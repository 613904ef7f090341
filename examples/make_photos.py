#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws photographs for cnn_torch.py: JPEG files of four classes, called NUMBER_CLASS.jpg. Needs Pillow.

    make_photos.py FOLDER [PHOTOGRAPHS]
"""
from __future__ import annotations

import os
import random
import sys
from typing import Tuple

from PIL import Image, ImageDraw, ImageFilter

CLASSES = ["disc", "ring", "square", "stripes"]


def colour(rng: random.Random, least: int, most: int) -> Tuple[int, int, int]:
    return rng.randint(least, most), rng.randint(least, most), rng.randint(least, most)


def photo(rng: random.Random, kind: str) -> Image.Image:
    """A bright shape on a dark ground, somewhere, of some size, a little out of focus."""
    width, height = rng.randint(120, 240), rng.randint(120, 240)
    image = Image.new("RGB", (width, height), colour(rng, 0, 90))
    draw, bright = ImageDraw.Draw(image), colour(rng, 130, 255)
    radius = rng.randint(30, 50)
    x, y = rng.randint(radius, width - radius), rng.randint(radius, height - radius)
    box = [x - radius, y - radius, x + radius, y + radius]
    if kind == "stripes":
        for left in range(rng.randint(0, 20), width, 24):
            draw.rectangle([left, 0, left + 8, height], fill=bright)
    elif kind == "square":
        draw.rectangle(box, fill=bright)
    else:
        draw.ellipse(box, fill=bright if kind == "disc" else None, outline=bright, width=8)
    return image.filter(ImageFilter.GaussianBlur(1))


def write(folder: str, n: int = 256) -> None:
    rng = random.Random(1)
    os.makedirs(folder, exist_ok=True)
    for i in range(n):
        kind = CLASSES[i % len(CLASSES)]
        photo(rng, kind).save(os.path.join(folder, f"{i:04}_{kind}.jpg"), quality=90)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    write(sys.argv[1], *map(int, sys.argv[2:]))
