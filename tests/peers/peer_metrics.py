#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prometheus_client, which has parsers of both formats of its own, reads the metrics of stagerctl and stager-metrics, and
finds the same numbers in both.

    peer_metrics.py BUILD
"""
import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../system"))
from daemon import Daemon, SLOW  # noqa: E402

SKIPPED = 77
PIPELINE = """name: {}
dataset: [{{range: {{stop: 6400}}}}, {{batch: {{batch_size: 64}}}}]
graph: [{{name: x, op: cast, input: [value], dtype: float32}}]
staged: {{features: {{x: x}}, num_clients: 3, delivery: round_robin}}
"""
OPEN = "application/openmetrics-text;version=1.0.0"
# Between two scrapes only these change: of the process, and of the scrapes.
MOVING = ("stager_process_", "stager_connections", "stager_accepted_connections", "stager_requests", "stager_memory_used")


def get(path, accept):
    with socket.socket(socket.AF_UNIX) as peer:
        end = time.monotonic() + 30 * SLOW
        while True:
            try:
                peer.connect(path)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
        connection = http.client.HTTPConnection("localhost")
        connection.sock = peer
        connection.request("GET", "/metrics", headers={"Accept": accept})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        return reply.headers["Content-Type"], reply.read().decode()


def samples(families):
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families for sample in family.samples}


def still(found):
    return {key: value for key, value in found.items() if not key[0].startswith(MOVING)}


def main():
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
        from prometheus_client.parser import text_string_to_metric_families as parse_text
    except ImportError:
        print("skipped: no prometheus_client (pip install prometheus_client)")
        sys.exit(SKIPPED)
    with Daemon(sys.argv[1]) as daemon:
        for name in "a", "b.c-d_e":
            path = os.path.join(daemon.folder, "p.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PIPELINE.format(name))
            daemon.ctl("apply", path)
        text = daemon.ctl("metrics").decode()
        found = samples(parse_text(text))
        assert len(found) == len([line for line in text.splitlines() if line[0] != "#"]) > 100
        program = os.path.join(daemon.build, "client/metrics/stager-metrics")
        if not os.path.exists(program):
            print("stager-metrics was not built: OpenMetrics is skipped")
            return
        server = subprocess.Popen([program, "--runtime-dir", daemon.runtime_dir], stdin=subprocess.DEVNULL)
        try:
            socket_path = os.path.join(daemon.runtime_dir, "metrics.sock")
            kind, text = get(socket_path, "text/plain")
            assert kind.startswith("text/plain; version=0.0.4"), kind
            assert still(samples(parse_text(text))) == still(found)
            kind, text = get(socket_path, OPEN)
            assert kind.startswith(OPEN.replace(";", "; ")), kind
            assert still(samples(parse_open(text))) == still(found)
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            server.wait()
    print("ok")


if __name__ == "__main__":
    main()
