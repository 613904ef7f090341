#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The alerts and the dashboard of examples/prometheus: each query names metrics that exist, each alert has a row in
docs/metrics.md and a test, and promtool accepts and tests them.

    check_prometheus.py SOURCE
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
METRIC = re.compile(r"\bstager_\w+")
LIMIT_S = 60 * max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)


def check(condition, what):
    if not condition:
        sys.exit(f"FAIL: {what}")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def check_names(document, text, where):
    metrics = dict(re.findall(r"^\| `(stager_\w+)` \| (\w+) \|", document, re.M))
    for name in METRIC.findall(text):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        check(name in metrics or metrics.get(base) == "histogram", f"{where}: {name} is no metric")


def check_alerts(document, folder):
    alerts, tests = read(folder, "alerts.yml"), read(folder, "alerts_test.yml")
    names = re.findall(r"- alert: (\w+)", alerts)
    check(len(names) > 10 and len(set(names)) == len(names), str(names))
    check(names == re.findall(r"^\| `(Stager\w+)` \|", document, re.M), "alerts and rows of docs/metrics.md differ")
    check(sorted(names) == sorted(set(re.findall(r'alertname="(\w+)"', tests))), "alerts and their tests differ")
    check(alerts.count("summary:") == alerts.count("runbook:") == len(names), "each alert has a runbook")
    for line in alerts.split("\n"):
        if "expr:" in line:
            check_names(document, line, "alerts.yml")


def queries(folder):
    dashboard = json.loads(read(folder, "dashboard.json"))
    check(dashboard["uid"] == "stager" and len({panel["id"] for panel in dashboard["panels"]}) ==
          len(dashboard["panels"]), "panels")
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def promtool(*arguments, cwd=None):
    result = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=LIMIT_S, cwd=cwd)
    check(result.returncode == 0, f"promtool {arguments}: {result.stdout}{result.stderr}")


def check_by_promtool(folder, found):
    promtool("check", "rules", "alerts.yml", cwd=folder)
    promtool("test", "rules", "alerts_test.yml", cwd=folder)
    promtool("check", "config", "--syntax-only", "prometheus.yml", cwd=folder)
    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "queries.yml")
        rules = [{"record": f"query_{i}", "expr": query.replace("$__rate_interval", "1m").replace("$pipeline", ".*")}
                 for i, query in enumerate(found)]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
        promtool("check", "rules", path)


def main(source):
    document, folder = read(source, "docs/metrics.md"), os.path.join(source, "examples/prometheus")
    check_alerts(document, folder)
    found = queries(folder)
    for query in found:
        check_names(document, query, "dashboard.json")
    for block in re.findall(r"^```\n(.*?)^```", document, re.M | re.S):
        check_names(document, "\n".join(line for line in block.split("\n") if "(" in line), "docs/metrics.md")
    if shutil.which("promtool") is None:
        print("skipped: no promtool (apt-get install prometheus); names and rows agree")
        sys.exit(SKIPPED)
    check_by_promtool(folder, found)
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
