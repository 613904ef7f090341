#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small CNN in PyTorch on photographs: stagerd reads JPEG files, decodes a random part of each, resizes,
mirrors and normalizes it. The class is the last part of a file's name: 0007_ring.jpg, or the file's folder.

    python3 examples/cnn_torch.py                          draws photographs (with Pillow)
    python3 examples/cnn_torch.py --images FOLDER          its *.jpg, or those of its folders
"""
from __future__ import annotations

import argparse
import glob
import os
import time
from typing import Any, Dict, List

import torch
from torch import nn

import stager
import stager.torch
from stager import ops

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def class_of(path: str) -> str:
    folder, name = os.path.split(path)
    stem = os.path.splitext(name)[0]
    return stem.rsplit("_", 1)[1] if "_" in stem else os.path.basename(folder)


def pipeline(paths: List[str], size: int, batch_size: int) -> stager.Pipeline:
    """Batches {image: float32 [B, 3, size, size], path: string [B]}."""
    def prepare(r: stager.Element) -> Dict[str, Any]:
        part = ops.random_resized_crop(r["bytes"], size=[size, size], scale=[0.5, 1.0])
        return {"image": ops.normalize_image(ops.random_flip(part), mean=MEAN, std=STD), "path": r["path"]}
    return (stager.files(paths, seed=7).read_file().map(prepare, num_parallel_calls="auto")
            .batch(batch_size, drop_remainder=True).ignore_errors()
            .staged(name="photos", capacity=4))


def network(n_classes: int) -> nn.Module:
    def block(n_in: int, n_out: int) -> List[nn.Module]:
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
                         nn.Linear(64, n_classes))


def train(stream: stager.Stream, classes: List[str], epochs: int, lr: float) -> None:
    torch.manual_seed(1)
    number = {name: i for i, name in enumerate(classes)}
    model = network(len(classes))
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for epoch in range(epochs):
        begin, n_images, total, n_right = time.monotonic(), 0, 0.0, 0
        for rows in stream:
            labels = torch.tensor([number[class_of(os.fsdecode(path))] for path in rows["path"].tolist()])
            scores = model(rows["image"])
            loss = nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n_images += len(labels)
            total += loss.item() * len(labels)
            n_right += (scores.argmax(1) == labels).sum().item()
        seconds = time.monotonic() - begin
        print(f"epoch {epoch}: {n_images} photographs, loss {total / n_images:.3f}, "
              f"right {n_right / n_images:.2f}, {n_images / seconds:.0f} photographs/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", help="a folder; drawn when not given")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.005)
    options = parser.parse_args()
    torch.set_num_threads(max((os.cpu_count() or 2) // 2, 1))  # the other half is stagerd's
    with stager.serve() as server:
        folder = options.images
        if folder is None:
            import make_photos
            folder = os.path.join(server.folder, "photos")
            make_photos.write(folder)
        folder = os.path.abspath(folder)
        paths = sorted(glob.glob(f"{glob.escape(folder)}/*.jpg") + glob.glob(f"{glob.escape(folder)}/*/*.jpg"))
        if len(paths) < options.batch_size:
            parser.error(f"{folder}: {len(paths)} photographs (*.jpg, */*.jpg), fewer than a batch")
        classes = sorted({class_of(path) for path in paths})
        name = server.apply(pipeline(paths, options.size, options.batch_size))
        with server.open(name, device="cpu") as stream:
            train(stream, classes, options.epochs, options.lr)


if __name__ == "__main__":
    main()
