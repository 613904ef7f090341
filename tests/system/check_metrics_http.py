#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stager-metrics: its pages in both formats, a stagerd that is away, hangs or comes back, and HTTP clients that are
slow, many or malformed.

    check_metrics_http.py BUILD SANITIZER

SANITIZER is that of the build. Only with `none` is the memory of the process its own.
"""
import base64
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time

from daemon import Daemon, SLOW, check, write
from metrics_text import Metrics, check_grows

LIMIT_S = 30 * SLOW
TIMEOUT_S = 60 * SLOW  # --timeout: a quarter of it, the time for stagerd, is longer than a stall of a busy machine
HURRY_S = 2  # --timeout where the deadline itself is tested
PIPELINE = """name: p
dataset:
- range: {start: 0, stop: 100}
- batch: {batch_size: 10}
"""
OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
MANY = 60  # connections: more than it serves at once
AT_ONCE = 32
N_PIPELINES = 80  # their text is longer than what a Unix socket takes
FRESH_S = 0.2  # how long an answer of stagerd serves all requests
VIEW_S = 0.9  # how long that for a pipeline, or for the page, does
VIEWED = 16  # pipelines in VIEW_S


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(self.path)


class Server:
    """A stager-metrics of this daemon, by its settings."""

    def __init__(self, daemon, port, timeout, *options, socket_name="metrics.sock"):
        self.path = os.path.join(daemon.runtime_dir, socket_name)
        self.port = port
        self.command = [os.path.join(daemon.build, "client/metrics/stager-metrics"), "--config", daemon.config,
                        "--timeout", str(timeout), "--socket", self.path, *options]
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        end = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            check(self.process.poll() is None, f"it ended: {self.process.stderr.read() if self.process.poll() else ''}")
            check(time.monotonic() < end, "it does not listen")

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(LIMIT_S)
        self.process.stderr.close()
        return self.process.returncode

    def get(self, page, accept=None, method="GET", unix=False, body=None):
        """(status, headers, text)"""
        connection = UnixConnection(self.path) if unix else http.client.HTTPConnection("127.0.0.1", self.port, LIMIT_S)
        connection.timeout = LIMIT_S
        connection.request(method, page, body=body, headers={"Accept": accept} if accept else {})
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, reply.headers, text

    def get_all(self, pages, accepts=(None,)):
        """[(status, text)] of requests that are all sent before an answer is read; each takes the next format."""
        connections = []
        for page, accept in zip(pages, itertools.cycle(accepts)):
            connections.append(http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S))
            connections[-1].request("GET", page, headers={"Accept": accept} if accept else {})
        found = []
        for connection in connections:
            with connection.getresponse() as reply:
                found.append((reply.status, reply.read().decode()))
        return found

    def raw(self, request):
        """What it sends until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as peer:
            found = b""
            with contextlib.suppress(ConnectionError):
                peer.sendall(request)
                while part := peer.recv(65536):
                    found += part
            return found


def check_pages(server):
    status, headers, text = server.get("/metrics")
    check((status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8"), (status, headers))
    check(headers["Connection"] == "close" and int(headers["Content-Length"]) == len(text.encode()), str(headers))
    metrics = Metrics(text)
    check(metrics.get("stager_pipeline_state", pipeline="p", state="idle") == 1, text)
    check_grows(metrics, Metrics(server.get("/metrics", unix=True)[2]))
    status, headers, text = server.get("/metrics", OPEN)
    check(headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8", str(headers))
    check(text.endswith("\n# EOF\n") and "# TYPE stager_requests counter\n" in text, text)
    check("# TYPE stager_build info\n" in text and "stager_build_info{" in text, text)
    check(server.get("/healthz")[::2] == (200, "ok\n"), "healthz")
    check(server.get("/readyz")[::2] == (200, "ready\n"), "readyz")
    status, headers, text = server.get("/version")
    releases = json.loads(text)
    check(status == 200 and releases["stager_metrics"] == releases["stagerd"], text)
    check(server.get("/metrics", method="HEAD")[::2] == (200, ""), "HEAD")
    status, headers, _ = server.get("/metrics", method="POST", body=b"x" * 100000)
    check((status, headers["Allow"]) == (405, "GET, HEAD"), str(headers))
    check(server.get("/index.html")[0] == server.get("/metrics/x")[0] == server.get("/api/v1/x")[0] == 404, "other pages")


def check_front(server):
    """The page may load nothing but its own script, style and data, and is never stored."""
    status, headers, text = server.get("/")
    check((status, headers["Content-Type"], headers["Cache-Control"]) == (200, "text/html; charset=utf-8", "no-store"), str(headers))
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    for key in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        check(policy[key] == "'none'", str(policy))
    for tag, key in (("script", "script-src"), ("style", "style-src")):
        inside = text.split(f"<{tag}>")[1].split(f"</{tag}>")[0].encode()
        check(policy[key] == f"'sha256-{base64.b64encode(hashlib.sha256(inside).digest()).decode()}'", f"{key}: {policy}")
    check(policy["connect-src"] == "'self'" and headers["X-Content-Type-Options"] == "nosniff", str(headers))
    check("http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text, "a resource from outside")
    check("'none'" in server.get("/api/v1/status")[1]["Content-Security-Policy"], "policy of the API")


def ask(server, page):
    status, headers, text = server.get("/api/v1/" + page)
    check(headers["Content-Type"] == "application/json", str(headers))
    return status, json.loads(text)


def check_api(server, daemon):
    """The same objects as stagerctl --json has."""
    status, answer = ask(server, "status")
    check(status == 200 and answer["daemon"]["pid"] == daemon.process.pid, str(answer)[:200])
    check(len(answer["pipelines"]) == N_PIPELINES and answer["n_left_out"] == 0, str(answer)[:200])
    check(answer["pipelines"][0].keys() >= {"name", "state", "rows", "n_clients", "waited_seconds"}, str(answer["pipelines"][0]))
    check(0 < answer["memory"]["budget_bytes"] >= answer["memory"]["used_bytes"], str(answer["memory"]))
    status, answer = ask(server, "pipeline?name=p")
    for command in ("status", "explain"):
        wanted = json.loads(daemon.ctl(command, "p", "--json"))
        check(wanted.pop("schema_version") == answer["schema_version"] == 1 and answer[command] == wanted, f"{command}: {answer} {wanted}")
    status, answer = ask(server, "history?name=p")
    check(status == 200 and len(answer["exposed_wait_mean"]) == 360 == len(answer["exposed_wait_worst"]), str(answer)[:200])
    for page, status, code in (("pipeline?name=none", 404, "NOT_FOUND"), ("history?name=none", 404, "NOT_FOUND"),
                               ("pipeline", 400, "INVALID_ARGUMENT"), ("pipeline?name=", 400, "INVALID_ARGUMENT"),
                               ("history?name=" + "x" * 65, 400, "INVALID_ARGUMENT"), ("pipeline?name=%22%00%ff%0a", 404, "NOT_FOUND")):
        found, answer = ask(server, page)
        check((found, answer["error"]["code"]) == (status, code), f"{page}: {found} {answer}")


def check_hosts(server):
    """A name that another site points at 127.0.0.1 gets nothing."""
    for page in ("/", "/metrics", "/api/v1/status"):
        for host, status in (("evil.example", 421), (f"evil.example:{server.port}", 421), ("127.0.0.1.evil.example", 421),
                             (f"localhost:{server.port}", 200), ("127.0.0.1", 200), ("[::1]:1", 200)):
            answer = server.raw(f"GET {page} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            check(answer.startswith(b"HTTP/1.1 %d " % status), f"{page} of {host}: {answer[:100]}")
    check(server.get("/api/v1/status", unix=True)[0] == 200, "no name leads to a Unix socket")


def check_serves(server, what):
    """Behind other peers a request may itself meet the deadline: the next one is served."""
    end = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if server.get("/healthz")[0] == 200:
                return
        check(time.monotonic() < end, f"it answers no request {what}")


def check_bad_requests(server):
    long = b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n\r\n"
    for request in (long, b"GET /metrics HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(10000)) + b"\r\n",
                    b"\x00\xff" * 5000 + b"\r\n\r\n", b"GET\r\n\r\n", b"\r\n" * 5000, b"GET /metrics HTTP/9.9\r\n\r\n"):
        answer = server.raw(request)
        check(not answer.startswith(b"HTTP/1.1 200") and len(answer) < 10000, f"{request[:40]} {answer[:200]}")
        check_serves(server, f"after {request[:40]}")


def check_slow(server):
    """Peers that send nothing, or a byte now and then, or read nothing, end at the deadline, and others are served."""
    began = time.monotonic()
    peers = [socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) for _ in range(MANY)]
    peers[1].sendall(b"GET /metrics HTTP/1.1\r\n")
    peers[2].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    check_serves(server, "behind many that are silent")
    peers[0].settimeout(0.05)
    ended = False
    while not ended:  # a byte at a time
        try:
            peers[0].send(b"G")
            ended = peers[0].recv(1) == b""
        except TimeoutError:
            pass
        except ConnectionError:
            ended = True
        check(time.monotonic() - began < LIMIT_S, "a slow request goes on")
    check(time.monotonic() - began >= HURRY_S / 2, "it was ended at once")
    for peer in peers[3:]:
        with contextlib.suppress(ConnectionError):
            check(peer.recv(1) == b"", "a silent connection goes on")
    for peer in peers:
        peer.close()
    check_serves(server, "afterwards")


def memory(server, key):
    """Bytes of a line of /proc/PID/status."""
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":"))


def read_nothing(server):
    """MANY peers that ask and read no more than the first bytes, in both formats."""
    connections = [UnixConnection(server.path) for _ in range(MANY)]
    for i, connection in enumerate(connections):
        connection.request("GET", "/metrics", headers={"Accept": OPEN if i % 2 else "*/*"})
    for connection in connections[:AT_ONCE]:
        check(connection.sock.recv(1) == b"H", "no answer")
    for connection in connections:
        connection.close()
    check(server.get("/healthz", unix=True)[0] == 200, "behind them")


def check_memory(server, is_bounded):
    """Each connection has at most one copy of a text, and none outlives it."""
    text = len(server.get("/metrics", OPEN)[2])
    check(text > 250000, f"a text of {text} bytes")
    before = memory(server, "VmRSS")
    for _ in range(3):
        read_nothing(server)
    grown = memory(server, "VmHWM") - before
    check(not is_bounded or grown < (AT_ONCE + 8) * text, f"{grown} bytes more for texts of {text}")


def requests_of(server):
    """How many requests stagerd has served: a scrape is one, and its greeting may be another."""
    return Metrics(server.get("/metrics")[2]).get("stager_requests_total")


@contextlib.contextmanager
def at_most(server, n, fresh_s):
    """Checks that stagerd serves n requests, greetings too, every fresh_s at most."""
    began, before = time.monotonic(), requests_of(server)
    yield
    asked = requests_of(server) - before
    most = n * ((time.monotonic() - began) / fresh_s + 3)  # one before, one after: `before` is fresh_s old at most
    check(asked <= most, f"{asked} requests, more than {most}")


def check_rate(server):
    """However often HTTP clients ask for both formats, stagerd is asked for each every FRESH_S at most."""
    with at_most(server, 4, FRESH_S):
        for _ in range(6):
            found = server.get_all(["/metrics"] * AT_ONCE, [None, OPEN])
            check({status for status, _ in found} == {200}, "one of many")


def check_api_rate(server):
    """However often viewers ask, stagerd is asked for a pipeline about once a second, and for a few pipelines only."""
    with at_most(server, 5, VIEW_S):
        for _ in range(6):
            found = server.get_all(["/api/v1/pipeline?name=p", "/api/v1/status"] * (AT_ONCE // 2))
            check({status for status, _ in found} == {200}, "one of many")
    began = time.monotonic()
    found = server.get_all([f"/api/v1/pipeline?name=p{i}" for i in range(1, 1 + AT_ONCE)])
    most = VIEWED * (int((time.monotonic() - began) / VIEW_S) + 1)
    refused = [json.loads(text)["error"]["code"] for status, text in found if status != 200]
    check(set(refused) <= {"RESOURCE_EXHAUSTED"}, str(refused))
    check(len(found) - len(refused) <= most, f"{len(found) - len(refused)} pipelines, more than {most}")


def wait_for(server, page, status):
    end = time.monotonic() + LIMIT_S
    while server.get(page)[0] != status:
        check(time.monotonic() < end, f"{page} is not {status}")
    return server.get(page)


def check_away(server, hurried, daemon):
    daemon.ctl("drain")
    check(wait_for(server, "/readyz", 503)[2] == "stagerd is draining\n" and server.get("/healthz")[0] == 200, "draining")
    daemon.ctl("drain", "--disable")
    check(wait_for(server, "/readyz", 200)[2] == "ready\n", "not draining")
    daemon.stop()
    status, headers, text = wait_for(server, "/metrics", 503)
    check(headers["Content-Type"].startswith("text/plain") and "UNAVAILABLE" in text, text)
    check(server.get("/readyz")[0] == 503 and server.get("/healthz")[0] == 200, "pages without stagerd")
    check(json.loads(server.get("/version")[2])["stagerd"] is None, "version without stagerd")
    for page in ("status", "pipeline?name=p"):
        end = time.monotonic() + LIMIT_S
        while ask(server, page)[1].get("error", {}).get("code") != "UNAVAILABLE":
            check(time.monotonic() < end, f"{page} without stagerd")
    check(server.get("/")[0] == 200, "the page without stagerd")
    daemon.start()
    check(Metrics(wait_for(server, "/metrics", 200)[2]).get("stager_pipelines") == N_PIPELINES, "stagerd is back")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        status, headers, text = wait_for(hurried, "/metrics", 503)
        check("DEADLINE_EXCEEDED" in text, text)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    for each in (hurried, server):
        check(wait_for(each, "/readyz", 200)[2] == "ready\n", "stagerd goes on")


def check_killed(server):
    """Killed, it leaves its socket, which the next one replaces; stopped, it removes it."""
    before = Metrics(server.get("/metrics")[2])
    check(server.stop(signal.SIGKILL) == -signal.SIGKILL and os.path.exists(server.path), "killed")
    server.start()
    check_grows(before, Metrics(server.get("/metrics", unix=True)[2]))
    check(os.stat(server.path).st_mode & 0o777 == 0o660, "mode of the socket")
    check(server.stop() == 0 and not os.path.exists(server.path), "stopped")


def check_mapped(daemon):
    """A socket of IPv6 to which 127.0.0.1 leads too refuses the same names."""
    with contextlib.closing(socket.socket(socket.AF_INET6)) as probe:
        try:
            probe.bind(("::ffff:127.0.0.1", 0))
        except OSError:
            return  # no IPv6 here
    port = free_port()
    with Server(daemon, port, TIMEOUT_S, "--listen", f"[::ffff:127.0.0.1]:{port}", socket_name="mapped.sock") as server:
        check_hosts(server)


def check_options(server, daemon):
    def fails(status, text, *arguments):
        result = subprocess.run([server.command[0], *arguments], capture_output=True, text=True, timeout=LIMIT_S)
        check(result.returncode == status and text in result.stderr, f"{arguments}: {result}")
    fails(2, "usage", "--timeout", "0")
    fails(2, "usage", "now")
    fails(1, "INVALID_ARGUMENT", "--runtime-dir", daemon.runtime_dir, "--listen", "localhost")
    fails(1, "UNAVAILABLE: cannot listen on", "--socket", "/nowhere/metrics.sock")
    fails(1, "NOT_FOUND", "--config", "/nowhere/stagerd.yaml")
    check(not os.path.exists(server.path), "a socket is left")
    bad = os.path.join(daemon.folder, "bad.yaml")
    write(bad, "metrics_address: localhost\n")
    result = subprocess.run([os.path.join(daemon.build, "daemon/stagerd"), "--check-config", "--config", bad],
                            capture_output=True, text=True, timeout=LIMIT_S)
    check(result.returncode == 1 and f"{bad}:1: metrics_address: " in result.stderr, result.stderr)


def main(build, sanitizer):
    port, hurried_port = free_port(), free_port()
    daemon = Daemon(build, metrics_address=f"127.0.0.1:{port}")
    for i in range(N_PIPELINES):
        write(os.path.join(daemon.folder, "pipelines", f"p{i or ''}.yaml"), PIPELINE.replace("name: p", f"name: p{i or ''}"))
    with daemon:
        with Server(daemon, port, TIMEOUT_S) as server:
            check_pages(server)
            check_front(server)
            check_api(server, daemon)
            check_hosts(server)
            check_memory(server, sanitizer == "none")
            check_rate(server)
            check_api_rate(server)
            with Server(daemon, hurried_port, HURRY_S, "--listen", f"127.0.0.1:{hurried_port}",
                        socket_name="hurried.sock") as hurried:
                check_bad_requests(hurried)
                check_slow(hurried)
                check_away(server, hurried, daemon)
            check_killed(server)
        check_mapped(daemon)
        check_options(server, daemon)
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
