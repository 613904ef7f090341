# SPDX-License-Identifier: Apache-2.0
"""Images for tests: pixels made of waves and noise, as JPEG (by Pillow) and as PNG of any kind."""
import io
import struct
import zlib

import numpy as np

GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
SAMPLES = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
DEPTHS = {GRAY: [1, 2, 4, 8, 16], RGB: [8, 16], PALETTE: [1, 2, 4, 8], GRAY_ALPHA: [8, 16], RGBA: [8, 16]}
ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def picture(rng, height, width, channels=3):
    """Smooth with edges and some noise, uint8; rng: numpy's RandomState."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for _ in range(channels):
        a, b, c = rng.uniform(0.02, 0.4, 3)
        plane = 128 + 80 * np.sin(a * x + b * y) + 60 * np.sign(np.sin(c * (x - y)))
        planes.append(plane + rng.normal(0, 6, plane.shape))
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def jpeg(pixels, mode=None, **options):
    """options are Pillow's: quality, subsampling (0, 1, 2), progressive, restart_marker_blocks."""
    from PIL import Image
    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels, mode).save(out, "JPEG", **options)
    return out.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(rows, depth):
    """Rows of samples [height, n] as bytes, each row after its filter byte: none."""
    if depth == 16:
        data = rows.astype(">u2").tobytes()
        data = [data[i * 2 * rows.shape[1]:(i + 1) * 2 * rows.shape[1]] for i in range(rows.shape[0])]
    else:
        bits = (rows[..., None] >> np.arange(depth - 1, -1, -1)) & 1
        data = [np.packbits(row.reshape(-1).astype(np.uint8)).tobytes() for row in bits]
    return b"".join(b"\0" + row for row in data)


def png(samples, color, depth, palette=None, trns=None, interlace=False):
    """samples: [height, width, n] of values below 2^depth; palette: [k, 3]."""
    height, width, n = samples.shape
    passes = ADAM7 if interlace else [(0, 0, 1, 1)]
    data = b""
    for y, x, dy, dx in passes:
        part = samples[y::dy, x::dx]
        if part.size:
            data += packed(part.reshape(part.shape[0], -1).astype(np.int64), depth)
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlace))
    chunks = [chunk(b"IHDR", head)]
    if palette is not None:
        chunks.append(chunk(b"PLTE", palette.astype(np.uint8).tobytes()))
    if trns is not None:
        chunks.append(chunk(b"tRNS", trns))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks + [chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b"")])


def random_png(rng, color, depth, transparent=False, side=40):
    height, width = rng.randint(1, side, 2)
    palette = trns = None
    top = 2**depth
    if color == PALETTE:
        palette = rng.randint(0, 256, (rng.randint(1, top + 1), 3))
        top = len(palette)
    samples = rng.randint(0, top, (height, width, SAMPLES[color]))
    if transparent and color == PALETTE:
        trns = bytes(rng.randint(0, 256, len(palette)).tolist())
    elif transparent and color in (GRAY, RGB):
        trns = struct.pack(f">{SAMPLES[color]}H", *samples[0, 0])
    return png(samples, color, depth, palette, trns, rng.randint(2) == 1)
