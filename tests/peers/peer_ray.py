#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stager.ray with Ray itself, on one node: batches are those of a run without workers, also while the process of an actor
is killed and Ray starts it again; at the end of `with` no worker runs.

    peer_ray.py BUILD

It runs in network and process namespaces that it makes, with nothing but loopback; they end with it.
"""
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
SLOW = max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)
LIMIT_S = 900 * SLOW
N, SIZE = 6000, 10
INSIDE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def wait_until(what, of, seconds=120):
    end = time.monotonic() + seconds * SLOW
    while not what():
        assert time.monotonic() < end, f"not within {seconds * SLOW} s: {of}"
        time.sleep(0.05)


def processes():
    """{pid: (parent, command line)} of those here."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                found[int(pid)] = (parent, file.read().split("\0"))
        except OSError:  # it has ended
            pass
    return found


def workers():
    """{pid: parent} of each `stagerd --worker`."""
    return {pid: parent for pid, (parent, command) in processes().items() if "--worker" in command}


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def check_secrets(folder, log_folder):
    """The token is in one file of this user, and neither on a command line nor in a log."""
    assert mode_of(folder) == 0o700 and {mode_of(os.path.join(folder, name)) for name in os.listdir(folder)} == {0o600}
    with open(os.path.join(folder, "token"), encoding="ascii") as file:
        token = file.read().strip()
    assert len(token) >= 40
    assert not any(token in part for _, command in processes().values() for part in command)
    for at, _, names in os.walk(log_folder):
        for path in (os.path.join(at, name) for name in names if at != folder):
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as file:
                    assert token.encode() not in file.read(), path


def content(batch):
    return batch.info.epoch, batch.info.index, batch["value"].tolist(), batch["text"].tolist()


def n_made(server):
    """Batches that workers have made."""
    return int(server.status("train")["remote"].split()[0])


def check(stager, server, build, log_folder):
    stagerd = os.path.join(build, "daemon/stagerd")

    def with_text(element):
        return {"value": element["value"], "text": stager.ops.as_string(element["value"])}

    numbers = stager.range(N).shuffle(seed=3, **{"global": True}).batch(SIZE).map(with_text)
    pipeline = numbers.staged(name="train", num_threads=1)
    server.apply(pipeline)
    with server.open("train") as stream:
        local = [content(batch) for batch in stream]
    assert len(local) == N // SIZE
    with stager.ray.workers(pipeline, num_workers=2, mode="on", wait=2, timeout=240 * SLOW, stagerd=stagerd) as helpers:
        folder, before = helpers._folder, helpers.urls
        assert len(set(before)) == 2 and len(workers()) == 2, (before, workers())
        check_secrets(folder, log_folder)
        server.apply(helpers.pipeline, replace=True)
        with server.open("train") as stream:
            got = [content(stream.next()) for _ in range(100)]
            assert n_made(server) > 0
            print("ok   workers make batches", flush=True)
            (killed, actor), *_ = workers().items()
            os.kill(actor, signal.SIGKILL)
            wait_until(lambda: len(helpers.urls) == 2 and helpers.urls != before, "Ray starts the actor again")
            wait_until(lambda: killed not in workers() and len(workers()) == 2, "its stagerd ends with it")
            got += [content(stream.next()) for _ in range(100)]
            print("ok   an actor that was killed is started again", flush=True)
            os.kill(next(iter(workers())), signal.SIGKILL)
            wait_until(lambda: len(workers()) == 2 and len(helpers.urls) == 2, "the actor starts its stagerd again")
            made = n_made(server)
            got += [content(stream.next()) for _ in range(len(local) - len(got))]
            differ = [(a, b) for a, b in zip(got, local) if a != b]
            assert got == local, f"{len(got)} batches, {len(differ)} differ, such as {differ[:1]}"
            print(f"ok   {len(got)} batches are those without workers; {made} and more were made by workers", flush=True)
        check_secrets(folder, log_folder)
    wait_until(lambda: not workers(), "the workers end")
    assert not os.path.exists(folder)
    print("ok   at the end no worker runs", flush=True)
    try:
        stager.ray.workers(stager.range(N).shuffle(10).batch(SIZE), num_workers=1, timeout=240 * SLOW, stagerd=stagerd)
        raise AssertionError("a pipeline that workers refuse")
    except stager.UnavailableError as error:
        assert "shuffle" in str(error), error
    print("ok   what a worker refuses is an error with its reason", flush=True)


def inside(build):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    package = os.path.join(build, "client/python")
    sys.path.insert(0, package)
    folder = tempfile.mkdtemp(prefix="rp-", dir="/tmp")  # the names of Ray's sockets are bounded
    os.environ.update(PYTHONPATH=package, HOME=folder, RAY_USAGE_STATS_ENABLED="0", TMPDIR=folder, PYTHONWARNINGS="ignore")
    tempfile.tempdir = None
    import ray
    import stager
    import stager.ray
    try:
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False, _temp_dir=folder)
        with stager.serve(stagerd=os.path.join(build, "daemon/stagerd")) as server:
            check(stager, server, build, folder)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    build = os.path.abspath(sys.argv[1])
    if len(sys.argv) == 3:
        inside(build)
        return 0
    if importlib.util.find_spec("ray") is None:
        print("skipped: no ray")
        return SKIPPED
    if not os.path.exists(os.path.join(build, "daemon/worker/stager-worker")):
        print("skipped: stager-worker is not built")
        return SKIPPED
    if subprocess.run([*INSIDE, "ip", "link", "set", "lo", "up"], check=False, capture_output=True).returncode != 0:
        print("skipped: unshare cannot make namespaces with a network")
        return SKIPPED
    # With its first process everything in the namespace ends.
    environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "client"))
    return subprocess.run([*INSIDE, sys.executable, os.path.abspath(__file__), build, "inside"], env=environment,
                          stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
