#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Without a GPU: every use of one reports what is missing, with the same text, and everything else works. The
environment decides what is missing: libstager-cuda.so, the driver, a new enough driver, or a device (tests/core has
such drivers). STG_REASON is the expected text.

    LD_LIBRARY_PATH=… STG_REASON=… test_no_gpu.py BUILD
"""
import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest

import case
import stager

FOUND = stager.gpu_available()
REASON = os.environ["STG_REASON"]
if FOUND:
    print(f"skipped: there is {FOUND.gpus[0].name}")
    sys.exit(77)
if "libstager-cuda.so" in REASON and "libstager-cuda.so" not in FOUND.reason:
    print("skipped: libstager-cuda.so is installed")
    sys.exit(77)


def doctor(*options):
    return subprocess.run([os.path.join(case.BUILD, "client/stagerctl/stagerctl"), "doctor", *options],
                          stdout=subprocess.PIPE, text=True, check=True).stdout


class NoGpu(case.Case):
    def test_gpu_available_is_false_and_says_why(self):
        self.assertFalse(FOUND)
        self.assertEqual(FOUND.gpus, [])
        self.assertIn(REASON, FOUND.reason)

    def test_doctor_says_the_same(self):
        report = json.loads(doctor("--json"))
        self.assertEqual((report["gpus"], report["reason"], report["daemon"]["reachable"]), ([], FOUND.reason, True))
        self.assertEqual(report["daemon"]["cuda"], {"available": False, "reason": FOUND.reason})
        self.assertIn(f"  cuda    unavailable: {FOUND.reason}\n", doctor())
        self.assertIn(f"gpu       none: {FOUND.reason}; stager works without a GPU\n", doctor())

    def test_open_on_a_gpu_is_refused_and_without_one_all_goes_on(self):
        name = self.numbers(stop=8, batch_size=4)
        for _ in range(2):
            with self.assertRaisesRegex(stager.UnavailableError, re.escape(FOUND.reason)):
                stager.open(name, gpu="cuda:0")
        with stager.open(name) as stream:
            self.assertEqual([batch["value"].tolist() for batch in stream], [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual([client["taken"] for client in stager.status(name)["clients"]], [2])  # the others never came

    @unittest.skipIf(importlib.util.find_spec("torch"), "there is torch")
    def test_a_device_of_torch_without_torch_is_refused(self):
        with self.assertRaisesRegex(stager.InvalidArgumentError, "torch is not installed"):
            stager.open(self.numbers(), device="cuda:0")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no torch")
    def test_a_device_of_torch_is_refused_by_functions_that_would_copy(self):
        import stager.torch  # pylint: disable=redefined-outer-name
        name = self.numbers()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "sees 0 CUDA devices here"):
            stager.open(name, device="cuda:0")
        with self.assertRaisesRegex(stager.UnavailableError, re.escape(FOUND.reason)):
            stager.open(name, device=stager.torch.direct("cuda:0"))


if __name__ == "__main__":
    case.main()
