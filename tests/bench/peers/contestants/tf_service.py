# SPDX-License-Identifier: Apache-2.0
"""tf.data service: a dispatcher and one worker in a separate process, reached over gRPC on loopback. k trainers share
the worker's output through its cross-trainer cache."""
import functools
import json
import subprocess
import sys

from contestants import tf_data

tf = tf_data.tf

NAME = "tf.data service"
NEEDS = tf_data.NEEDS
ALONE = {"1 worker": {}}
VARIANTS = {"ready": ALONE, "transport": ALONE, "csv": ALONE, "tfrecord": ALONE, "jpeg": ALONE,
            "share": {"cross-trainer cache": {}}, "border": ALONE}
SERVE = """
import json, sys
import tensorflow as tf
dispatcher = tf.data.experimental.service.DispatchServer(tf.data.experimental.service.DispatcherConfig(port=0))
address = dispatcher.target.split("://")[1]
worker = tf.data.experimental.service.WorkerServer(tf.data.experimental.service.WorkerConfig(
    dispatcher_address=address, heartbeat_interval_ms=100, dispatcher_timeout_ms=10000))
print(json.dumps(dispatcher.target), flush=True)
sys.stdin.read()
"""


class Service:
    """It ends when its stdin ends, with the process that started it."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", SERVE], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.address = json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


@functools.cache
def own_service():
    return Service()


class Source:
    """epoch after epoch, each iterator is a separate job; job: shared by that name."""

    def __init__(self, case, data, address, **distribute):
        self.case, self.data, self.address, self.distribute = case, data, address, distribute
        self.made = {}

    def batches(self, epochs=None):
        if epochs not in self.made:
            dataset = tf_data.dataset(self.case, self.data, epochs is None).prefetch(tf.data.AUTOTUNE)
            self.made[epochs] = dataset.apply(tf.data.experimental.service.distribute(
                tf.data.experimental.service.ShardingPolicy.OFF, self.address, **self.distribute)).prefetch(tf.data.AUTOTUNE)
        return iter(self.made[epochs])

    def close(self):
        self.made = {}


def prepare(case, data):
    return Source(case, data, own_service().address)


def share(case, data, k):
    return Service()


def attach(address, case, data, rank, k):
    cache = tf.data.experimental.service.CrossTrainerCache(trainer_id=f"trainer {rank}")
    return Source(case, data, address, job_name="shared", cross_trainer_cache=cache)
