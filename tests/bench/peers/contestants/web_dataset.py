# SPDX-License-Identifier: Apache-2.0
"""WebDataset: the photographs in four tar files, read in turn by the workers of its DataLoader."""
import random

import webdataset as wds

import cases
from contestants import plain

NAME = "WebDataset"
NEEDS = ["webdataset", "torch", "pillow"]
VARIANTS = {"jpeg": {"0 workers": {"workers": 0}, "1 worker": {"workers": 1}, "2 workers": {"workers": 2}}}


def decode(sample):
    return (plain.normalized(plain.crop(sample["jpg"], random)),)


class Source:
    def __init__(self, case, data, workers):
        self.case, self.data, self.workers = case, data, workers

    def batches(self, epochs=None):
        """resampled: endless shards; otherwise each one once."""
        how = {"resampled": True} if epochs is None else {"shardshuffle": len(self.data["tars"])}
        dataset = wds.WebDataset(self.data["tars"], nodesplitter=wds.split_by_node, **how).shuffle(100).map(decode)
        loader = wds.WebLoader(dataset.batched(self.case.options["rows"], partial=epochs is not None), batch_size=None,
                               num_workers=self.workers)
        return ({"image": image} for image, in loader)

    def close(self):
        pass


def prepare(case, data, workers):
    return Source(case, data, workers)
