#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the values that test_dataset_branches.c expects of sample_from_datasets: the algorithm of docs/dataset.md,
implemented with numpy's Philox."""
from golden_shuffle import words

SAMPLE = 3


def sample(inputs, weights, seed, stop=False, pass_=0, epoch=0):
    inputs, out, i = [list(x) for x in inputs], [], 0
    ended = [False] * len(inputs)
    while True:
        sums, total = [], 0.0
        for k, weight in enumerate(weights):
            total += 0 if ended[k] else weight
            sums.append(total)
        if total == 0:
            return out
        word = words(seed, SAMPLE, i // 4, epoch, pass_)[i % 4]
        i += 1
        at = (word >> 11) * 2.0**-53 * total
        k = next(k for k, s in enumerate(sums) if s > at)
        if inputs[k]:
            out.append(inputs[k].pop(0))
        elif stop:
            return out
        else:
            ended[k] = True


if __name__ == "__main__":
    three = [range(6), range(10, 16), range(20, 26)]
    for name, weights, stop in [("GOLDEN_EQUAL", [1, 1, 1], False),
                                ("GOLDEN_WEIGHTS", [1, 0.5, 2.5], False),
                                ("GOLDEN_STOP", [1, 0.5, 2.5], True)]:
        print(name, '"' + "; ".join(map(str, sample(three, weights, 7, stop))) + '"')
