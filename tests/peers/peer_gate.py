#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/gate_watch.py lists pipelines and follows events through stager-gate, with pynng and
protobuf as they are on PyPI and the messages as protoc makes them of proto/.

    peer_gate.py BUILD
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(HERE, "../system"))
from daemon import Daemon  # noqa: E402

ROWS = "name: {}\ndataset: [{{range: {{stop: 64}}}}, {{batch: {{batch_size: 4}}}}]\n"


def apply(daemon, name):
    path = os.path.join(daemon.folder, name + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(ROWS.format(name))
    daemon.ctl("apply", path, "--replace")


def main():
    proto = os.path.join(ROOT, "proto")
    with tempfile.TemporaryDirectory() as folder, Daemon(sys.argv[1]) as daemon:
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", proto, "--python_out", folder,
                        "control.proto", "pipeline.proto"], check=True)
        apply(daemon, "rows")
        env = dict(daemon.env(), PYTHONPATH=folder, STAGER_TOKEN=daemon.ctl("token").decode().strip())
        watch = subprocess.Popen([sys.executable, os.path.join(ROOT, "examples/gate_watch.py"),
                                  os.path.join(daemon.runtime_dir, "gate"), "3"], env=env,
                                 stdout=subprocess.PIPE, text=True)
        line = watch.stdout.readline()
        assert line == "rows: idle, 0 clients\n", line
        line = watch.stdout.readline()
        assert line == "following\n", line
        apply(daemon, "more")
        daemon.ctl("delete", "rows")
        daemon.ctl("delete", "more")
        rest = watch.stdout.read()
        assert watch.wait(60) == 0
        assert rest == "more APPLIED\nrows DELETED\nmore DELETED\n", rest
    print("ok   gate_watch.py lists pipelines and follows events")
    print("1 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    sys.exit(main())
