#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts of a job are killed at random (`shard: auto`): each element is trained exactly once with respect to the checkpoints.

Three hosts, each a stagerd with two trainers. The trainers of a host are killed by SIGKILL, mostly with its stagerd. The job
then begins again at its last checkpoint, on the hosts that are left or on all three.
"""
import os
import random
import shutil
import tempfile
import unittest

import case
import cluster_job
import stager
from daemon import SLOW

N = 3000
KILLS = int(os.environ.get("STG_CLUSTER_KILLS", "6"))
SEED = int(os.environ.get("STG_CLUSTER_SEED", "0")) or random.randrange(1, 1 << 30)


class TestKills(unittest.TestCase):
    def test_an_epoch_is_trained_once_while_hosts_are_killed(self):
        print(f"seed {SEED} (STG_CLUSTER_SEED)", flush=True)
        shared = tempfile.mkdtemp(prefix="stg-cluster-")
        self.addCleanup(shutil.rmtree, shared)
        dataset = stager.range(N).shuffle(64, seed=7).shard("auto").batch(cluster_job.BATCH)
        pipeline = dataset.staged(name=cluster_job.NAME, delivery="round_robin", num_clients="auto")
        hosts = []
        for _ in range(3):
            hosts.append(cluster_job.Host(pipeline, cluster={"compare_dir": shared, "compare_timeout_millis": 60000 * SLOW}))
            self.addCleanup(hosts[-1].close)
        job = cluster_job.Job(self, hosts, random.Random(SEED), KILLS)
        job.run()
        job.check(cluster_job.order_of(hosts[0]))


if __name__ == "__main__":
    case.main()
