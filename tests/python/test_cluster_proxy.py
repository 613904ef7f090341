#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A caching proxy between stagerds and a worker: nginx with examples/cluster/nginx.conf, on loopback. Hosts that ask for
the same batches have them made once, and the token is required for what the cache has too."""
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import case
import stage_workers
import stager
from daemon import Daemon
from test_remote_stage import FEATURES, LATE, content, same, steps

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
EXAMPLE = os.path.join(case.HERE, "../../examples/cluster/nginx.conf")
TOKEN = "a-token-of-this-test"
NAME = "train"


def get(url, token):
    """Status, headers and body."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30 * case.SLOW) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


class Counter(http.server.ThreadingHTTPServer):
    """Passes requests on to the worker, and notes the batches that it gave."""
    daemon_threads = True

    def __init__(self, worker):
        self.worker, self.given = worker, []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that gives up is no error."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        status, headers, body = get(self.server.worker.url + self.path, token)
        if status == 200 and self.path.startswith("/v1/batches/"):
            self.server.given.append(self.path)
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "date"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Proxy:
    """nginx with the example, for one worker and on a loopback port."""

    def __init__(self, upstream, change=lambda text: text):
        self.folder, self.port = tempfile.mkdtemp(prefix="stg-nginx-"), stage_workers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        with open(EXAMPLE, encoding="utf-8") as file:
            text = file.read()
        for old, new in (("server 10.0.0.7:9465;", f"server 127.0.0.1:{upstream};"), ("server 10.0.0.8:9465;", ""),
                         ("listen 0.0.0.0:9466;", f"listen 127.0.0.1:{self.port};"),
                         ("worker_processes auto;", "worker_processes 1;")):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self.path = os.path.join(self.folder, "nginx.conf")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(change(text))
        self.command = [NGINX, "-e", "stderr", "-p", self.folder, "-c", self.path,
                        "-g", "daemon off;" + ("user root;" if os.getuid() == 0 else "")]
        self.process = None

    def check(self):
        return subprocess.run([*self.command, "-t"], capture_output=True, text=True, check=False)

    def start(self):
        self.log = os.path.join(self.folder, "log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        case.wait_until(self.is_ready, 60)

    def is_ready(self):
        try:
            return get(f"{self.url}/readyz", None)[0] == 200
        except OSError:
            return False

    def close(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.folder)


class CachingProxy(unittest.TestCase):
    def setUp(self):
        stage_workers.need(self)
        self.folder = tempfile.mkdtemp(prefix="stg-proxy-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.how = {"dataset": steps(count=2), "graph": LATE}
        self.token = self.write("token", TOKEN + "\n")
        text = self.write("served.yaml", json.dumps({"name": "served", **self.how, "staged": {"features": FEATURES}}))
        self.worker = stage_workers.Stagerd(text, self.token, self.write("log", ""))
        self.addCleanup(self.worker.close)
        self.worker.wait()
        self.counter = Counter(self.worker)
        self.addCleanup(self.counter.server_close)
        self.addCleanup(self.counter.shutdown)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def proxy(self, **options):
        proxy = Proxy(self.counter.server_address[1], **options)
        self.addCleanup(proxy.close)
        tested = proxy.check()
        self.assertEqual(tested.returncode, 0, tested.stderr)
        proxy.start()
        return proxy

    def host(self):
        daemon = Daemon(case.BUILD)
        self.addCleanup(daemon.close)
        daemon.start()
        return daemon

    def read(self, daemon, remote=None):
        """The batches of a pass, and how many workers made."""
        more = {"remote": {**remote, "mode": "on", "max_requests": 2, "token_file": self.token}} if remote else {}
        stager.apply(json.dumps({"name": NAME, **self.how, "staged": {"features": FEATURES, "num_threads": 1, **more}}),
                     runtime_dir=daemon.runtime_dir, replace=True)
        got, said = [], None
        with stager.open(NAME, runtime_dir=daemon.runtime_dir, timeout=60) as stream:
            for batch in stream:
                got.append(content(batch))
                said = stager.status(NAME, runtime_dir=daemon.runtime_dir)["remote"]
        return got, int(said.split()[0]) if said else 0

    def test_two_hosts_have_a_batch_made_once(self):
        proxy, first, second = self.proxy(), self.host(), self.host()
        local, _ = self.read(first)
        remote = {"workers": [proxy.url]}
        got, n_first = self.read(first, remote)
        n_made = len(self.counter.given)
        again, n_second = self.read(second, remote)
        for name, each in (("first", got), ("second", again)):
            self.assertEqual(len(each), len(local))
            for at, (a, b) in enumerate(zip(local, each)):
                self.assertTrue(same(a, b), f"{name}, batch {at}: {a} is not {b}")
        self.assertGreater(n_first, 0)
        self.assertEqual(sorted(set(self.counter.given)), sorted(self.counter.given), "each batch is made once")
        self.assertGreater(n_second, len(self.counter.given) - n_made, "the cache answers the second host")

    def batch(self, number):
        about = json.loads(get(f"{self.worker.url}/v1/worker", TOKEN)[2])
        return f"/v1/batches/{about['pipelines'][0]['digest']}/0/{number}"

    def test_the_cache_keeps_what_the_worker_says(self):
        proxy, path = self.proxy(), self.batch(3)
        status, headers, body = get(self.worker.url + path, TOKEN)
        self.assertEqual(status, 200)
        for cache in ("MISS", "HIT"):
            status, kept, same_body = get(proxy.url + path, TOKEN)
            self.assertEqual((status, kept["Stager-Cache"], same_body), (200, cache, body))
            for name in ("ETag", "Cache-Control", "Content-Type"):
                self.assertEqual(kept[name], headers[name])
        self.assertEqual(len(self.counter.given), 1)
        self.assertNotEqual(get(f"{proxy.url}{path}?host=0&hosts=2&begin=0", TOKEN)[0], 200, "the query is part of the key")
        for _ in range(2):
            self.assertEqual(get(proxy.url + self.batch(1 << 40), TOKEN)[0], 404)

    def test_nothing_is_served_without_the_token(self):
        proxy, path = self.proxy(), self.batch(3)
        self.assertEqual(get(proxy.url + path, TOKEN)[0], 200)
        for token in (None, "", "x", TOKEN[:-1], TOKEN + "x"):
            for each in (path, self.batch(4), "/v1/worker"):
                status, headers, body = get(proxy.url + each, token)
                self.assertEqual((status, headers["WWW-Authenticate"]), (401, "Bearer"), f"{each} {token}: {body}")
        self.assertEqual(get(f"{proxy.url}/allowed", TOKEN)[0], 404, "only for subrequests")
        self.assertEqual(self.counter.given, [path])

    def test_auth_request_is_what_protects_the_cache(self):
        proxy = self.proxy(change=lambda text: text.replace("auth_request /allowed;", ""))
        path = self.batch(3)
        self.assertEqual(get(proxy.url + path, None)[0], 401)
        self.assertEqual(get(proxy.url + path, TOKEN)[0], 200)
        self.assertEqual(get(proxy.url + path, None)[0], 200)


if __name__ == "__main__":
    if NGINX is None:
        print("skipped: nginx is not installed (nginx-light)")
        sys.exit(77)
    case.main()
