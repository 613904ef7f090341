#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts under torchrun: the trainer of examples/cluster, started by its host.sh on two "hosts" on loopback. Both are killed
in the middle; the job begins again at its state, on one host, and has counted each line once.

    peer_cluster.py BUILD
"""
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
CLUSTER = os.path.join(TOP, "examples/cluster")
SLOW = int(os.environ.get("STG_TEST_SLOW", "1"))
N = 2 * 2 * 64 * 3200  # whole steps of either number of hosts


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def begin(build, folder, n_hosts):
    """The processes of the hosts."""
    env = dict(os.environ, TMPDIR=folder, PATH=os.path.join(build, "daemon") + ":" + os.environ["PATH"], OMP_NUM_THREADS="1",
               PYTHONPATH=os.path.join(build, "client/python"), LD_LIBRARY_PATH=os.path.join(build, "client"), STAGER_MEMORY="256MiB")
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={n_hosts}", "--nproc-per-node=2", "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
    return [subprocess.Popen([os.path.join(CLUSTER, "host.sh"), *torchrun, os.path.join(CLUSTER, "train.py"),
                              os.path.join(folder, "lines"), os.path.join(folder, "state")], env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(n_hosts)]


def children(pid):
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


def kill(pid):
    """With all that the process has started. The parent is stopped first, so that it starts nothing meanwhile."""
    try:
        os.kill(pid, signal.SIGSTOP)
        for child in children(pid):
            kill(child)
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass


def wait_for(path, hosts):
    end = time.monotonic() + 120 * SLOW
    while not os.path.exists(path):
        assert time.monotonic() < end, "no state was written"
        assert all(host.poll() in (None, 0) for host in hosts), "a host ended: " + "".join(host.communicate()[0] for host in hosts)
        time.sleep(0.005)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if importlib.util.find_spec("torch") is None:
        print("skipped: no torch")
        sys.exit(77)
    build, hosts = os.path.abspath(sys.argv[1]), []
    with tempfile.TemporaryDirectory(prefix="stg-torchrun-") as folder:
        with open(os.path.join(folder, "lines"), "w", encoding="ascii") as file:
            file.writelines(f"{number}\n" for number in range(N))
        try:
            hosts = begin(build, folder, 2)
            wait_for(os.path.join(folder, "state"), hosts)
            for host in hosts:
                kill(host.pid)
                host.communicate()
            with open(os.path.join(folder, "state"), encoding="ascii") as file:
                state = json.load(file)
            before = state["hosts"] * state["position"]
            hosts = begin(build, folder, 1)
            text, _ = hosts[0].communicate(timeout=240 * SLOW)
        finally:
            for host in hosts:
                kill(host.pid)
    assert hosts[0].returncode == 0, text
    rows = sum(int(n) for n in re.findall(r"rank \d+: (\d+) rows", text))
    print(f"two hosts were killed after {before} rows, and one counted {rows} of {N}")
    assert before + rows == N and before > 0, text
    print("1 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    main()
