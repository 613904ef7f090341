#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trainers that tests/gpu/run measures on a GPU (tests/gpu/models.py) work, rehearsed on the CPU: each of five models
gets the same rows with PyTorch's DataLoader and with stager in every mode, and reaches the same losses.

    peer_gpu_models.py BUILD
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GPU = os.path.join(HERE, "../gpu")
sys.path.insert(0, GPU)
sys.dont_write_bytecode = True
import models_table  # noqa: E402

SKIPPED = 77


def cells(found, **wanted):
    return [cell for cell in found["cells"] if all(cell[key] == value for key, value in wanted.items())]


def every_model_trains_in_every_mode(found, text):
    for model in models_table.MODELS:
        for mode in models_table.ALONE:
            cell, = cells(found, model=model, mode=mode, trainers=1)
            assert cell["failure"] is None and cell["steps_per_s"][0] > 0, cell


def all_of_them_train_on_the_same_rows_to_the_same_losses(found, text):
    assert found["differ"] == [], found["differ"]
    for cell in found["cells"]:
        assert len(cell["check"]) == 4, cell
        losses = [loss for loss, _ in cell["check"]]
        assert all(0.1 < loss < 10 for loss in losses) and len(set(losses)) == 4, losses


def batches_are_not_all_the_same(found, text):
    for cell in found["cells"]:
        assert len({json.dumps(sums) for _, sums in cell["check"]}) == 4, cell


def two_trainers_share_what_is_made_once(found, text):
    for mode in ("dataloader", "on", "staged", "shared"):
        assert all(len(cell["steps_per_s"]) == 2 for cell in cells(found, mode=mode, trainers=2)), mode


def a_difference_is_detected(found, text):
    cell, = cells(found, model="DLRM", mode="on", trainers=1)
    loss, sums = cell["check"][2]
    for wrong in ([loss + 0.01, sums], [loss, [value + 1 for value in sums]], [float("nan"), sums]):
        cell["check"][2] = wrong
        models_table.judge(found)
        assert [text for text in found["differ"] if "DLRM, on, 1 trainers: step 2" in text], found["differ"]
    cell["check"][2] = [loss, sums]
    models_table.judge(found)
    assert found["differ"] == []


def it_says_that_it_is_a_rehearsal(found, text):
    assert found["rehearsal"] is True and found["card"] is None
    assert text.startswith("**A rehearsal on a CPU**") and "MPS is the GPU's" in text


def the_seeds_ratios_stand_beside_ours(found, text):
    for model, seed in models_table.SEEDS.items():
        ratios = found["ratios"][model]
        assert ratios["seed"] == seed and ratios["auto_over_off"] > 0 and ratios["auto_over_bound"] > 0, ratios
        assert f"{seed:.3f}" in text


TESTS = [every_model_trains_in_every_mode, all_of_them_train_on_the_same_rows_to_the_same_losses,
         batches_are_not_all_the_same, two_trainers_share_what_is_made_once, a_difference_is_detected,
         it_says_that_it_is_a_rehearsal, the_seeds_ratios_stand_beside_ours]


def main():
    n_failed = 0
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([sys.executable, os.path.join(GPU, "models.py"), sys.argv[1], "--device", "cpu", "--smoke",
                              "--out", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if run.returncode == SKIPPED:
            print(run.stdout)
            return SKIPPED
        if run.returncode != 0:
            print(f"{run.stdout}\nFAIL models.py --smoke ends with {run.returncode}\n0 passed, 1 failed, 0 skipped")
            return 1
        with open(os.path.join(folder, "models.json"), encoding="utf-8") as file:
            found = json.load(file)
        with open(os.path.join(folder, "models.md"), encoding="utf-8") as file:
            text = file.read()
    for test in TESTS:
        try:
            test(found, text)
            print(f"ok   {test.__name__}")
        except AssertionError as error:
            print(f"FAIL {test.__name__}: {error}")
            n_failed += 1
    print(f"{len(TESTS) - n_failed} passed, {n_failed} failed, 0 skipped")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
