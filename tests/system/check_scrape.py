#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Prometheus with the files of examples/prometheus scrapes stager-metrics, and alerts fire in staged faults. Skipped (77)
without Debian's prometheus.

    check_scrape.py SOURCE BUILD TRAINER

The copies of the files here scrape each second, and their alerts wait for nothing.
"""
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

from daemon import Daemon, SLOW, check, write
from check_metrics_http import Server, free_port

SKIPPED = 77
LIMIT_S = 60 * SLOW
# Lines of which some are no numbers: more than max_ignored fail the source, and fewer are errors in place of batches.
PIPELINE = """name: %s
dataset:
- files: {pattern: ["%s"]}
- text_line: {}
- batch: {batch_size: 1}
graph:
- {name: columns, op: decode_csv, input: [record], record_defaults: [0]}
staged: {features: {x: "columns:0"}, num_threads: 1%s}
"""


class Prometheus:
    def __init__(self, source, folder, target):
        self.port, self.folder = free_port(), folder
        for name in ("prometheus.yml", "alerts.yml"):
            with open(os.path.join(source, "examples/prometheus", name), encoding="utf-8") as file:
                text = file.read().replace("127.0.0.1:9464", target)
            write(os.path.join(folder, name), re.sub(r"(?m)^( *for): \w+$", r"\1: 0s", re.sub(r"\b15s\b", "1s", text)))
        self.log = open(os.path.join(folder, "log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            ["prometheus", "--config.file", os.path.join(folder, "prometheus.yml"), "--storage.tsdb.path",
             os.path.join(folder, "data"), "--web.listen-address", f"127.0.0.1:{self.port}"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LIMIT_S)
        self.log.close()

    def query(self, expression):
        """{labels as JSON: value}; {} while it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        with contextlib.suppress(ConnectionError):
            connection.request("GET", "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
            reply = connection.getresponse()
            text = reply.read()
            if reply.status == 200:
                return {json.dumps(row["metric"], sort_keys=True): row["value"][1]
                        for row in json.loads(text)["data"]["result"]}
        return {}

    def wait_for(self, expression, holds):
        end = time.monotonic() + LIMIT_S
        while not holds(found := self.query(expression)):
            with open(self.log.name, encoding="utf-8") as file:
                check(time.monotonic() < end and self.process.poll() is None, f"{expression}: {found}\n{file.read()[-3000:]}")
            time.sleep(0.1)

    def wait_for_alert(self, name, fires=True):
        self.wait_for(f'ALERTS{{alertname="{name}",alertstate="firing"}}', lambda found: bool(found) == fires)


def apply(daemon, name, lines, options=""):
    path = os.path.join(daemon.folder, name)
    write(path + ".csv", lines)
    write(path + ".yaml", PIPELINE % (name, path + ".csv", options))
    return daemon.run("client/stagerctl/stagerctl", "apply", path + ".yaml")


def train(daemon, program, name, expected):
    """Takes ten batches of a pipeline, and holds its run until standard input is closed."""
    trainer = subprocess.Popen([program, name, "a"], env=daemon.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    trainer.stdin.write("10\n")
    trainer.stdin.flush()
    said = trainer.stdout.readline() + trainer.stdout.readline()
    check(expected in said, said)
    return trainer


def check_users(prometheus, source):
    """The queries of the document by user."""
    with open(os.path.join(source, "docs/metrics.md"), encoding="utf-8") as file:
        queries = re.findall(r"^sum by \(uid\).*$", file.read(), re.M)
    check(len(queries) == 4, f"queries {queries}")
    for query in queries:
        prometheus.wait_for(query.replace("[5m]", "[1m]"), lambda found: list(found) == [json.dumps({"uid": str(os.getuid())})])


def check_faults(daemon, prometheus, program, source):
    prometheus.wait_for("stager_pipelines", lambda found: list(found.values()) == ["2"])
    prometheus.wait_for("stager_error_items_total", lambda found: len(found) > 0)
    check(prometheus.query('ALERTS{alertstate="firing"}') == {}, "an alert fires without a fault")
    trainers = [train(daemon, program, "errors", "is not a valid int32")]
    prometheus.wait_for_alert("StagerErrorItems")
    trainers.append(train(daemon, program, "fails", "more than max_ignored 1"))
    prometheus.wait_for_alert("StagerPipelineFailed")
    check_users(prometheus, source)
    refused = apply(daemon, "refused", "1\n", ", memory_budget: 1 TiB")
    check(refused.returncode == 1 and b"RESOURCE_EXHAUSTED" in refused.stderr, f"{refused}")
    prometheus.wait_for_alert("StagerRefused")
    for trainer in trainers:
        trainer.stdin.close()
        trainer.wait(LIMIT_S)
    daemon.stop()
    prometheus.wait_for_alert("StagerDown")
    daemon.start()
    prometheus.wait_for_alert("StagerDown", fires=False)


def main(source, build, program):
    if shutil.which("prometheus") is None:
        print("skipped: no prometheus (apt-get install prometheus)")
        return SKIPPED
    port = free_port()
    with Daemon(build, metrics_address=f"127.0.0.1:{port}") as daemon, tempfile.TemporaryDirectory() as folder:
        check(apply(daemon, "errors", "1\nx\n3\n").returncode == 0, "apply")
        check(apply(daemon, "fails", "1\nx\nx\n", ", ignored_exception_types: [INVALID_ARGUMENT], max_ignored: 1").returncode == 0, "apply")
        server = Server(daemon, port, 10)
        server.start()
        try:
            with Prometheus(source, folder, f"127.0.0.1:{port}") as prometheus:
                check_faults(daemon, prometheus, program, source)
        finally:
            server.stop()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
