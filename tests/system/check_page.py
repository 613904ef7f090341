#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of stager-metrics in a headless Chromium: the bottleneck, numbers, keyboard, light and dark, hostile names,
stagerd and stager-metrics that are away.

    check_page.py BUILD TRAINER [FOLDER]

FOLDER: screenshots go there. Exits with 77 if there is no Chromium.
"""
import os
import signal
import sys

from browser import Browser, find
from check_metrics import Trainer
from check_metrics_http import Server, free_port
from daemon import Daemon, check, write

EVIL = "<img src=x onerror=hacked=1>"
EVIL_PROGRAM = "<i>name"
BUSY = """name: busy
dataset:
- range: {start: 0, stop: 1000000000}
- batch: {batch_size: 5000}
graph:
- {name: x, op: cast, input: [value], dtype: float32}
- {name: a, op: add, input: [x, x]}
- {name: b, op: add, input: [a, x]}
- {name: slow, op: as_string, input: [b]}
- {name: out, op: string_to_hash_bucket_fast, input: [slow], num_buckets: 1000}
staged: {features: {out: out, x: x}, num_clients: 2, delivery: broadcast, capacity: 4, num_threads: 1}
"""
BROKEN = """name: broken
dataset:
- files: {pattern: ["%s"]}
- tfrecord: {}
- batch: {batch_size: 1}
"""
IDLE = "name: idle-%d\ndataset:\n- range: {start: 0, stop: 10}\n- batch: {batch_size: 5}\n"
N_IDLE = 7
MARKED = "[...document.querySelectorAll('.badge:not(.hidden)')].map(e => e.dataset.lane).join()"
AWAY = "document.getElementById('away')"


def wide_pipeline():
    """Two layers of many nodes with the same op: the picture makes one box of each."""
    nodes = "".join(f"- {{name: c{i}, op: constant, value: {i}, dtype: int64}}\n- {{name: a{i}, op: add, input: [value, c{i}]}}\n"
                    f"- {{name: b{i}, op: cast, input: [a{i}], dtype: float32}}\n" for i in range(40))
    return ("name: wide\ndataset:\n- range: {start: 0, stop: 10}\n- batch: {batch_size: 5}\ngraph:\n" + nodes
            + "staged: {features: {" + ", ".join(f"a{i}: a{i}, b{i}: b{i}" for i in range(40)) + "}}\n")


def apply_all(daemon):
    path = os.path.join(daemon.folder, "p.yaml")
    damaged = os.path.join(daemon.folder, EVIL + ".tfrecord")
    write(damaged, "no record " * 10)
    for text in [BUSY, BROKEN % damaged, wide_pipeline()] + [IDLE % i for i in range(N_IDLE)]:
        write(path, text)
        daemon.ctl("apply", path)


def text(browser, id_):
    return browser.value(f"document.getElementById('{id_}').textContent")


def check_bottleneck(browser):
    browser.wait("document.getElementById('bottleneck')?.textContent === 'Bottleneck: daemon CPU' && " + MARKED + " === 'daemon'")
    check(browser.value("document.querySelectorAll('.lane.hot').length") == 1, "one lane is marked")
    label = browser.value("document.getElementById('picture').getAttribute('aria-label')")
    check("range, batch" in label and "5 nodes in stagerd" in label and "2 trainers" in label, label)
    browser.wait("document.querySelector('svg .slow') !== null")
    shown = browser.value("document.getElementById('picture').textContent")
    check("KiB" in shown and "/s" in shown and "\u00b5s" in shown, shown)


def check_moves(browser):
    """Numbers change, and elements stay: nothing flickers."""
    browser.value("kept = [document.getElementById('picture'), ...document.querySelectorAll('tbody tr, .tiles dd span, [role=option]')]; "
                  "tiles = document.querySelector('.tiles').textContent; 1")
    for _ in range(3):
        browser.wait("document.querySelector('.tiles').textContent !== tiles")
        browser.value("tiles = document.querySelector('.tiles').textContent")
    check(browser.value("kept.length > 5 && kept.every(e => e.isConnected)"), "elements were replaced")
    check(browser.value("[...document.querySelectorAll('tbody')[0].rows].length") == 2, "two clients")


def check_history(browser):
    browser.wait("document.querySelector('.mean-line').getAttribute('d') !== ''")
    label = browser.value("document.querySelector('[role=img][tabindex]').getAttribute('aria-label')")
    check("last hour" in label and "of the hour" in label, label)
    browser.value("document.querySelector('[role=img][tabindex]').focus(); said = document.getElementById('said'); 1")
    browser.key("ArrowLeft")
    browser.wait("/^\\d+:.*(%|not measured)/.test(said.textContent)")
    browser.key("Escape")


def check_keyboard(browser):
    browser.value("document.activeElement.blur(); scrollTo(0, 0); 1")
    order = []
    for _ in range(5):
        browser.key("Tab")
        order.append(browser.value("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
    check("skip" in order and order.index("filter") + 1 == order.index("list"), f"order {order}")
    browser.value("document.getElementById('list').focus(); 1")
    for key in ("Home", "ArrowDown", "ArrowDown", "ArrowUp"):
        browser.key(key)
    names = browser.value("[...document.querySelectorAll('[role=option] .name')].map(e => e.textContent)")
    check(names == sorted(names) and names[:2] == ["broken", "busy"], str(names))
    active = browser.value("document.getElementById(document.getElementById('list').getAttribute('aria-activedescendant')).textContent")
    check(active.startswith("busy"), active)
    outline = browser.value("getComputedStyle(document.querySelector('[role=option].active')).outlineStyle")
    check(outline == "solid", f"the focus is not visible: {outline}")
    browser.key("End")
    browser.key("Enter")
    browser.wait("document.getElementById('name').textContent === 'wide' && document.querySelector('[role=option][aria-selected=true] .name').textContent === 'wide'")
    browser.wait("document.getElementById('picture').textContent.includes('cast \\u00d740')")
    browser.value("document.getElementById('filter').focus(); 1")
    for letter in "busy":
        browser.key(letter)
    browser.wait("document.querySelectorAll('[role=option]').length === 1")
    browser.key("Enter")
    browser.key("Enter")
    browser.wait("document.getElementById('name').textContent === 'busy'")
    browser.value("filter.value = ''; filter.dispatchEvent(new Event('input')); 1")


def check_hostile(browser):
    """Names of clients, programs and files are text."""
    browser.wait("document.querySelector('tbody').textContent.includes('" + EVIL_PROGRAM + "')")
    browser.value("location.hash = '#broken'; 1")
    browser.wait("document.querySelector('.errors').textContent.includes('" + EVIL + "')")
    check(browser.value("typeof hacked") == "undefined", "text from stagerd ran as script")
    check(browser.value("document.querySelectorAll('img, .name i, td i:not(.bar i), body script ~ script').length") == 0, "text from stagerd became elements")
    browser.value("location.hash = '#no-such'; 1")
    browser.wait("document.getElementById('empty').textContent.includes('NOT_FOUND')")
    browser.value("location.hash = '#busy'; 1")
    browser.wait("document.getElementById('name').textContent === 'busy' && !document.getElementById('detail').classList.contains('hidden')")


def check_looks(browser, folder):
    seen = set()
    for width, height in ((1280, 800), (400, 800)):
        for scheme in ("light", "dark"):
            browser.look(width, height, scheme)
            browser.wait("document.getElementById('picture').getBoundingClientRect().width > 0")
            path = os.path.join(folder, f"page-{scheme}-{width}.png") if folder else None
            check(len(browser.screenshot(path)) > 10000, f"{scheme} at {width} shows little")
            seen.add(browser.value("getComputedStyle(document.documentElement).backgroundColor"))
            over = browser.value("document.documentElement.scrollWidth - innerWidth")
            check(over <= 0, f"{scheme} at {width}: {over} pixels too wide")
    check(len(seen) == 2, f"backgrounds {seen}")
    browser.look(1280, 800, "light")


def check_away(browser, server, daemon):
    """What was shown stays, with its age; then stagerd is back, and so is stager-metrics."""
    daemon.stop()
    browser.wait(AWAY + ".textContent.includes('UNAVAILABLE')")
    check(browser.value("document.body.classList.contains('stale') && document.title.includes('away')"), "not marked as old")
    check("The numbers below are those of" in text(browser, "away"), text(browser, "away"))
    check(text(browser, "name") == "busy", "the numbers are gone")
    browser.open(browser.value("location.origin") + "/?again")
    browser.wait(AWAY + "?.textContent.includes('There are no numbers yet')")
    daemon.start()
    browser.wait(AWAY + ".classList.contains('hidden') && document.querySelectorAll('[role=option]').length === " + str(N_IDLE + 3))
    server.stop(signal.SIGKILL)
    browser.wait(AWAY + ".textContent.includes('stager-metrics does not answer')")
    server.start()
    browser.wait(AWAY + ".classList.contains('hidden')")


def check_policy(browser):
    """Even if text became markup, it would neither run nor load."""
    browser.value("broken = []; document.addEventListener('securitypolicyviolation', e => broken.push(e.effectiveDirective)); "
                  "e = document.createElement('script'); e.textContent = 'hacked = 1'; document.body.append(e); "
                  "i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i); 1")
    browser.wait("broken.includes('img-src') && broken.some(d => d.startsWith('script-src'))")
    check(browser.value("typeof hacked") == "undefined", "an inline script ran")


def try_page(browser, server, daemon, folder):
    origin = f"http://127.0.0.1:{server.port}"
    browser.look(1280, 800, "light")
    browser.open(origin + "/#busy")
    check_bottleneck(browser)
    check_moves(browser)
    check_keyboard(browser)
    check_hostile(browser)
    check_history(browser)
    check_looks(browser, folder)
    bad = [line for line in browser.console if "404" not in line]
    check(not bad, f"the console has {bad}")
    check_away(browser, server, daemon)
    bad = [line for line in browser.console if "Failed to load resource" not in line]
    check(not bad, f"the console has {bad}")
    outside = [url for url in browser.urls if not url.startswith((origin + "/", "data:", "about:"))]
    check(not outside, f"it asks for {outside}")
    check_policy(browser)


def main(build, trainer, folder=None):
    program = find()
    if program is None:
        print("SKIP: there is no Chromium (Debian: chromium)")
        sys.exit(77)
    port = free_port()
    with Daemon(build, metrics_address=f"127.0.0.1:{port}") as daemon:
        apply_all(daemon)
        evil = os.path.join(daemon.folder, EVIL_PROGRAM)
        os.symlink(os.path.abspath(trainer), evil)
        server = Server(daemon, port, 10)
        server.start()
        trainers = [Trainer(daemon, trainer, "busy", EVIL), Trainer(daemon, evil, "busy", "rank-1")]
        try:
            for one in trainers:
                one.says("open")
            for one in trainers:
                one.ask(1000000000)
            trainers.append(Trainer(daemon, trainer, "broken", "rank-0"))
            trainers[-1].ask(1)
            with Browser(program) as browser:
                try_page(browser, server, daemon, folder)
        finally:
            for one in trainers:
                one.process.kill()
                one.process.wait()
            if server.process.poll() is None:
                server.stop(signal.SIGKILL)
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
