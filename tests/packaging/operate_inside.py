#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The only service of the container that check_deb.py boots for an operator's first day: stager, Prometheus and Chromium are installed
by apt there, two trainers train, Prometheus scrapes their pipeline, and the page shows them.

    operate_inside.py

Below /run/boot it finds the packages in new/, the files of examples/prometheus, and browser.py; it leaves light.png and dark.png there.
Its last line is "N passed, N failed, 0 skipped".
"""
import glob
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import boot_inside
from boot_inside import LIMIT_S, journal, run, show, systemctl, wait_for
from browser import Browser, find

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHIVES = "/srv/archives"
SETTINGS = "/etc/stager/stagerd.yaml"
METRICS = "127.0.0.1:9464"
PROMETHEUS = "http://127.0.0.1:9090"
USERS = ("ada", "grace")
PIPELINE = """name: clicks
dataset:
- files: {pattern: ["/srv/clicks.csv"]}
- text_line: {}
- repeat: {}
- shuffle: {buffer_size: 4096}
- batch: {batch_size: 1024}
graph:
- {name: columns, op: decode_csv, input: [record], record_defaults: [0, 0.0, ""]}
- {name: price, op: log1p, input: ["columns:1"]}
- {name: words, op: string_to_hash_bucket_fast, input: ["columns:2"], num_buckets: 100000}
staged: {features: {click: "columns:0", price: price, words: words}, num_clients: 2, delivery: broadcast, capacity: 8, num_threads: 1}
"""
# A step of training takes 10 ms.
TRAINER = """import stager, time
for batch in stager.open("clicks"):
    batch["price"].sum()
    time.sleep(0.01)
"""
trainers = []


def apt_install(*what):
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", f"Dir::Cache::Archives={ARCHIVES}", *what,
        env={"DEBIAN_FRONTEND": "noninteractive"})


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def ask(expression):
    """[value] of each series of a query to Prometheus; [] while it does not answer."""
    try:
        with urllib.request.urlopen(f"{PROMETHEUS}/api/v1/query?" + urllib.parse.urlencode({"query": expression}), timeout=LIMIT_S) as reply:
            return [float(row["value"][1]) for row in json.load(reply)["data"]["result"]]
    except urllib.error.URLError:
        return []


def n_attached():
    status = json.loads(run("stagerctl", "status", "clicks", "--json"))
    return sum(client["state"] == "attached" for client in status["clients"])


# ---- the cases, in order --------------------------------------------------------------------

def apt_installs_the_packages():
    os.chdir(f"{HERE}/new")
    apt_install(*(f"./{deb}" for deb in glob.glob("*stager*.deb")))


def systemctl_starts_stagerd():
    systemctl("start", "stagerd")
    assert show("stagerd", "ActiveState", "StatusText", "NRestarts") == ["active", "ready", "0"], journal("-n", "20")


def two_users_train():
    write("/srv/clicks.csv", "".join(f"{i % 2},{i / 7},word {i % 1000}\n" for i in range(20000)))
    write("/srv/clicks.yaml", PIPELINE)
    for user in USERS:
        run("useradd", "--create-home", "--groups", "stager", user)
    run("stagerctl", "apply", "/srv/clicks.yaml", user="ada")
    for user in USERS:
        trainers.append(subprocess.Popen(["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "python3", "-c", TRAINER]))
    wait_for(lambda: n_attached() == 2, "two trainers are attached")


def prometheus_scrapes_stagerd():
    with open(SETTINGS, "a", encoding="utf-8") as file:
        file.write(f"metrics_address: {METRICS}\n")
    systemctl("enable", "--now", "stagerd-metrics")
    apt_install("prometheus")
    for name in ("prometheus.yml", "alerts.yml"):
        with open(f"{HERE}/{name}", encoding="utf-8") as file:
            write(f"/etc/prometheus/{name}", re.sub(r"\b15s\b", "1s", file.read()))
    systemctl("restart", "prometheus")
    wait_for(lambda: ask('up{job="stager"}') == [1], "Prometheus scrapes stagerd")
    wait_for(lambda: any(rate > 0 for rate in ask('rate(stager_delivered_batches_total{pipeline="clicks"}[10s])')),
             "Prometheus sees batches of the pipeline")
    assert ask("stager_pipelines") == [1]


def the_page_shows_the_trainers():
    apt_install("chromium")
    with Browser(find()) as browser:
        browser.look(1280, 800, "light")
        browser.open(f"http://{METRICS}/#clicks")
        browser.wait("document.getElementById('name')?.textContent === 'clicks' && document.querySelectorAll('tbody')[0]?.rows.length === 2")
        browser.wait("/2 trainers/.test(document.getElementById('picture').getAttribute('aria-label'))")
        browser.wait("/[1-9][0-9.,]* ?[kM]?/.test(document.querySelector('.tiles dd').textContent)")
        browser.wait("document.querySelector('.mean-line').getAttribute('d') !== ''")
        for scheme in ("light", "dark"):
            browser.look(1280, 800, scheme)
            assert len(browser.screenshot(f"{HERE}/{scheme}.png")) > 10000
        bad = [line for line in browser.console if not line.startswith(("log: ", "info: "))]
        assert not bad, bad
    assert [trainer.poll() for trainer in trainers] == [None, None]


def the_trainers_outlive_a_restart():
    systemctl("restart", "stagerd")
    wait_for(lambda: n_attached() == 2, "both reconnect")
    assert [trainer.poll() for trainer in trainers] == [None, None]
    for trainer in trainers:
        trainer.kill()
        trainer.wait()


CASES = [apt_installs_the_packages, systemctl_starts_stagerd, two_users_train, prometheus_scrapes_stagerd, the_page_shows_the_trainers,
         the_trainers_outlive_a_restart]

if __name__ == "__main__":
    boot_inside.CASES = CASES
    sys.exit(boot_inside.main())
