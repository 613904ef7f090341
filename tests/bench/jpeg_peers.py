#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Photographs to normalized random crops by tf.data, or by PyTorch's DataLoader with Pillow,
whichever this Python has, compared with stager's pipeline in bench_jpeg.

    jpeg_peers.py BUILD FOLDER [SECONDS]    FOLDER: of .jpg files

Files are read, decoded, cropped and resized to 224 x 224, flipped, normalized, channels first, and
batched by 50; one thread each. Results are images per second of CPU, of all threads, the best of several
epochs. TensorFlow decodes the crop alone, with its own default DCT; Pillow resizes with antialias.
With PyTorch, also the validation recipe: a shorter side of 256, the middle 224 x 224, by torchvision where it
is installed. The last line is one JSON object; a ratio is stager's rate over the peer's.
"""
import glob
import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import cases  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BATCH = 50


def best_rate(dataset, n_images, seconds):
    best, end, rounds = 0.0, time.monotonic() + seconds, 0
    while rounds < 2 or time.monotonic() < end:
        began, n = time.process_time(), 0
        for batch in dataset:
            n += batch.shape[0]
        assert n == n_images
        best = max(best, n / (time.process_time() - began))
        rounds += 1
    return best


def by_tensorflow(files, seconds):
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    from contestants import tf_data
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    dataset = tf.data.Dataset.from_tensor_slices(files).map(lambda path: tf_data.load(path)["image"])
    dataset = dataset.batch(BATCH).with_options(options)
    return best_rate(dataset, len(files), seconds)


def by_torch(files, seconds):
    import torch
    from contestants import plain
    torch.set_num_threads(1)
    rng = random.Random(1)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (cases.MEAN, cases.STD))

    class Files(torch.utils.data.Dataset):
        def __len__(self):
            return len(files)

        def __getitem__(self, i):
            pixels = torch.from_numpy(plain.crop(files[i], rng)).permute(2, 0, 1).contiguous()
            return pixels.float().sub_(mean).div_(std)

    return best_rate(torch.utils.data.DataLoader(Files(), batch_size=BATCH), len(files), seconds)


def validation(files, seconds):
    """Decoded, resized with antialias and cropped by torchvision on Pillow's images; no batches, no normalization."""
    import torch
    from PIL import Image
    from transforms import functional
    torch.set_num_threads(1)

    def one(path):
        with Image.open(path) as image:
            return functional.center_crop(functional.resize(image.convert("RGB"), [256]), [224, 224])

    class Files:
        def __iter__(self):
            return (torch.zeros(1) for path in files if one(path) is not None)

    return best_rate(Files(), len(files), seconds)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, seconds = sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 10.0
    files = sorted(glob.glob(os.path.join(folder, "*.jpg")))
    bench = [os.path.join(sys.argv[1], "tests/bench/bench_jpeg"), "--json", "--seconds", str(seconds)]
    environment = dict(os.environ, STAGER_BENCH_IMAGES=os.path.abspath(folder))
    ours = json.loads(subprocess.run(bench, check=True, stdout=subprocess.PIPE, env=environment).stdout.splitlines()[-1])
    found = {"bench": "jpeg_peers", "images": len(files), "images_per_s": ours["pipeline_images_per_s"]}
    for name, call in (("tensorflow", by_tensorflow), ("torch", by_torch)):
        try:
            rate = call(files, seconds)
        except ImportError as e:
            print(f"{name}: {e}")
            continue
        found[f"{name}_images_per_s"] = round(rate, 1)
        found[f"{name}_ratio"] = round(found["images_per_s"] / rate, 2)
        print(f"{name:10} {rate:7.1f} images/s a core, ours {found['images_per_s']:.1f}")
    try:
        rate = validation(files, seconds)
        found["torchvision_validation_images_per_s"] = round(rate, 1)
        found["torchvision_validation_ratio"] = round(ours["validation_images_per_s"] / rate, 2)
        print(f"validation by torchvision {rate:7.1f} images/s a core, ours {ours['validation_images_per_s']:.1f}")
    except ImportError as e:
        print(f"validation: {e}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
