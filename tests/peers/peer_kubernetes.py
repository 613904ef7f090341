#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests of examples/cluster fit the schema of Kubernetes, their commands are those of stagerctl, and the worker of
workers.yaml answers its probes and drains within its grace period.

    peer_kubernetes.py BUILD
"""
import glob
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import kubernetes_validate
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
SLOW = max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)
TOKEN = "a-token-of-this-test"
PIPELINE = "name: train\ndataset:\n- range: {stop: 100}\n- batch: {batch_size: 10}\n"


def commands(value):
    """The commands below `exec`."""
    if isinstance(value, dict):
        if "exec" in value:
            yield value["exec"]["command"]
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from commands(part)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=20 * SLOW) as answer:
            return answer.status == 200
    except (OSError, urllib.error.HTTPError):
        return False


def check_worker(build, pod):
    """Runs the command of the container, with files and a port of this machine."""
    container, = pod["containers"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = list(container["command"])
        assert command[0] == "stagerd" and command[command.index("--listen") + 1] == f"0.0.0.0:{container['ports'][0]['containerPort']}"
        command[0] = os.path.join(build, "daemon/stagerd")
        command[command.index("--listen") + 1] = f"127.0.0.1:{port}"
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        for at, text in ((command.index("--token-file") + 1, TOKEN), (len(command) - 1, PIPELINE)):
            assert os.path.dirname(command[at]) in mounts, command[at]
            command[at] = os.path.join(folder, os.path.basename(command[at]))
            with open(command[at], "w", encoding="ascii") as file:
                file.write(text)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            end = time.monotonic() + 60 * SLOW
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe]["httpGet"]["port"] == container["ports"][0]["containerPort"]
                while not answers(f"http://127.0.0.1:{port}{container[probe]['httpGet']['path']}"):
                    assert process.poll() is None and time.monotonic() < end, process.communicate()[1]
                    time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(pod["terminationGracePeriodSeconds"] * SLOW) == 0, process.communicate()[1]


def main(build):
    usage = subprocess.run([os.path.join(build, "client/stagerctl/stagerctl"), "--help"], capture_output=True, text=True, check=True).stdout
    paths = glob.glob(os.path.join(HERE, "../../examples/cluster/*.yaml"))
    assert len(paths) == 3, paths
    for path in paths:
        with open(path, encoding="utf-8") as file:
            manifests = list(yaml.safe_load_all(file))
        for manifest in manifests:
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
            for command in commands(manifest):
                assert command[0] == "stagerctl" and f" {command[1]}" in usage, command
                assert all(word in usage for word in command if word.startswith("--")), command
        print(f"ok   {os.path.basename(path)}")
        if os.path.basename(path) == "workers.yaml":
            service, deployment = manifests
            pod = deployment["spec"]["template"]
            assert service["spec"]["clusterIP"] == "None"
            assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
            if os.path.exists(os.path.join(build, "daemon/worker/stager-worker")):
                check_worker(build, pod["spec"])
                print("ok   the worker answers its probes and drains")


main(sys.argv[1])
