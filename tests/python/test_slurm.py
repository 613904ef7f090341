#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts for Slurm of examples/cluster, with stand-ins for srun and scontrol (standin_slurm.py): the nodes are names on this
machine. In a network namespace, because a worker listens on all addresses: needs root."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import case
from daemon import SLOW

EXAMPLES = os.path.abspath(os.path.join(case.HERE, "../../examples"))
N = 3000
PIPELINE = """
name: train
dataset:
- files: {pattern: "%s"}
- text_line
- batch: {batch_size: 10}
staged: {delivery: round_robin, num_clients: 2, remote: {mode: on, workers_file: "@FOLDER@/workers", token_file: "@FOLDER@/token"}}
"""
TRAINER = """
import stager
with stager.open("train") as stream:
    rows = sum(len(batch["record"]) for batch in stream)
print(f"{rows} rows\\n", end="", flush=True)
"""


class TestSlurm(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="stg-slurm-")
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("bin", "tmp"):
            os.mkdir(os.path.join(self.folder, name))
        for name in ("srun", "scontrol"):
            os.symlink(os.path.join(case.HERE, "standin_slurm.py"), os.path.join(self.folder, "bin", name))
        self.lines = self.write("lines.txt", "".join(f"{number}\n" for number in range(N)))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def batch(self, script, *arguments, **variables):
        """As sbatch: (exit status, output, errors)."""
        path = [os.path.join(self.folder, "bin"), os.path.join(case.BUILD, "daemon"), os.path.join(case.BUILD, "client/stagerctl"), os.environ["PATH"]]
        env = {**os.environ, "PATH": ":".join(path), "TMPDIR": os.path.join(self.folder, "tmp"), "STAGER_EXAMPLES": EXAMPLES, "STAGER_MEMORY": "256MiB",
               "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": self.folder, "SLURM_CPUS_ON_NODE": "2", "SLURM_CPUS_PER_TASK": "1", **variables}
        job = subprocess.Popen(["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "-", "bash", os.path.join(EXAMPLES, "cluster", script), *arguments],
                               env=env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            out, errors = job.communicate(timeout=100 * SLOW)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            self.fail(f"{script} did not end:\n{job.communicate()[1]}")
        self.assertEqual(os.listdir(os.path.join(self.folder, "tmp")), [], "what a stagerd left:\n" + errors)
        return job.returncode, out, errors

    def two_nodes(self, *arguments):
        return self.batch("job.slurm", *arguments, SLURM_JOB_NODELIST="node-a,node-b", SLURM_JOB_NUM_NODES="2", SLURM_NTASKS_PER_NODE="2")

    def test_a_job_of_two_nodes_counts_each_line_once(self):
        status, out, errors = self.two_nodes(self.lines)
        self.assertEqual(status, 0, errors)
        ranks = re.findall(r"rank (\d): (\d+) rows", out)     # lines of several ranks may be mixed
        self.assertEqual(sorted(int(rank) for rank, _ in ranks), [0, 1, 2, 3], errors)
        self.assertEqual(sum(int(rows) for _, rows in ranks), N)

    def test_trainers_that_fail_end_the_job(self):
        status, _, errors = self.two_nodes(os.path.join(self.folder, "none-*.txt"))
        self.assertNotEqual(status, 0)
        self.assertIn("none-*.txt", errors)

    def test_workers_make_batches_for_trainers(self):
        pipeline, trainer = self.write("train.yaml", PIPELINE % self.lines), self.write("trainer.py", TRAINER)
        status, out, errors = self.batch(
            "workers.slurm", pipeline, "python3", trainer, SLURM_JOB_NODELIST_HET_GROUP_0="node-a", SLURM_JOB_NODELIST_HET_GROUP_1="127.0.0.1",
            SLURM_NTASKS_PER_NODE_HET_GROUP_0="2", SLURM_NTASKS_PER_NODE_HET_GROUP_1="1", SLURM_CPUS_PER_TASK_HET_GROUP_0="1",
            SLURM_CPUS_PER_TASK_HET_GROUP_1="1")
        self.assertEqual(status, 0, errors)
        self.assertEqual(re.findall(r"(\d+) rows", out), [str(N // 2)] * 2, errors)
        self.assertIn("stage workers: 1, before 0", errors)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("stager-7.")], [], "the folder of the job is removed")


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        print("skipped: needs root, unshare and ip, for a network namespace")
        sys.exit(77)
    case.main()
