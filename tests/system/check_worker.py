# SPDX-License-Identifier: Apache-2.0
"""stagerd --worker: its batches are those of the definition, computed here, at any
position; ends, errors, tokens, TLS, draining."""
import concurrent.futures
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import SLOW, check  # noqa: E402

TOKEN = "a-token-of-this-test-0123"
N, SIZE = 1003, 10
ROWS = f"""
name: rows
dataset:
- files: {{pattern: "DIR/data/*.csv", shuffle: false}}
- text_line
- batch: {{batch_size: {SIZE}}}
graph:
- {{name: c, op: decode_csv, input: record, record_defaults: [0, 0]}}
staged: {{features: {{label: "c:0", weight: "c:1"}}}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Worker:
    """A worker over one pipeline, ended by its pid."""

    def __init__(self, build, folder, files, *options):
        self.port = free_port()
        self.log = os.path.join(folder, "log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [os.path.join(build, "daemon", "stagerd"), "--worker", "--listen", f"127.0.0.1:{self.port}",
                 *options, *files], stderr=log, stdin=subprocess.DEVNULL)
        self.context = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def connect(self):
        if self.context:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20 * SLOW, context=self.context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20 * SLOW)

    def get(self, path, token=TOKEN, method="GET"):
        connection = self.connect()
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def wait(self):
        """Until it is ready, with its digest."""
        until = time.monotonic() + 20 * SLOW
        while True:
            try:
                if self.get("/readyz")[0] == 200:
                    break
            except OSError:
                pass
            check(self.process.poll() is None and time.monotonic() < until,
                  f"the worker does not start:\n{open(self.log, encoding='utf-8').read()}")
            time.sleep(0.02)
        status, _, body = self.get("/v1/worker")
        check(status == 200, f"/v1/worker: {status} {body}")
        self.about = json.loads(body)
        return self.about["pipelines"][0]["digest"]


def frames(body):
    """The batches of a body, whose checksums are right."""
    at, ret = 0, []
    while at < len(body):
        n, crc, zero = struct.unpack_from("<QII", body, at)
        check(zero == 0 and body[at + 16:at + 64] == bytes(48), "the rest of a head is zero")
        batch = body[at + 64:at + 64 + n]
        check(len(batch) == n and crc32c(batch) == crc, f"frame at {at}: CRC-32C")
        ret.append(batch)
        at += 64 + (n + 63) // 64 * 64
    check(at == len(body), "the body ends with a frame")
    return ret


TABLE = []
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    TABLE.append(c)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def tensors(batch):
    """Header and int32 tensors of a batch at rest, read by core/layout.h."""
    magic, major, _, kind, n, header, entry, total = struct.unpack_from("<IHHIIIIQ", batch)
    check((magic, major, kind, header, entry, total) == (0x48435442, 1, 1, 256, 128, len(batch)), "header")
    generation, number, pass_, epoch, index, dropped, partition, feed = struct.unpack_from("<8Q", batch, 32)
    check((generation, number, dropped, partition, feed) == (0,) * 5, "fields of delivery are zero")
    rows, = struct.unpack_from("<Q", batch, 112)
    values = {}
    for i in range(n):
        at = header + entry * i
        name_at, name_n, dtype, ndim = struct.unpack_from("<4I", batch, at)
        offset, size = struct.unpack_from("<QQ", batch, at + 88)
        name = batch[name_at:name_at + name_n].decode()
        values[name] = list(struct.unpack_from(f"<{size // 4}i", batch, offset))
    return dict(pass_=pass_, epoch=epoch, index=index, rows=rows), values


def expected(index):
    """What the source has there."""
    first = index * SIZE
    rows = range(first, min(first + SIZE, N))
    return {"label": [r * 7 for r in rows], "weight": [r % 13 for r in rows]}


def check_batches(worker, digest):
    path = f"/v1/batches/{digest}"
    last = (N - 1) // SIZE
    for pass_, index in ((0, 5), (0, 0), (3, 99), (0, last), (0, 50), (0, 51)):
        status, headers, body = worker.get(f"{path}/{pass_}/{index}")
        check(status == 200, f"{index}: {status} {body[:200]}")
        check(headers["ETag"] == f'"{digest}/{pass_}/{index}-{index}"', "ETag")
        check(headers["Cache-Control"] == "private, immutable, max-age=86400", "Cache-Control")
        check(int(headers["Content-Length"]) == len(body) and headers["Stager-Zone"] == "z1", "headers")
        check(0 < int(headers["Stager-Cpu-Ns"]) < 60e9, f"CPU time: {headers['Stager-Cpu-Ns']}")
        (batch,) = frames(body)
        where, values = tensors(batch)
        rows = min(SIZE, N - index * SIZE)
        check(where == dict(pass_=pass_, epoch=0, index=index, rows=rows), f"coordinates {where}")
        check(values == expected(index), f"values of {index}: {values}")
    status, _, body = worker.get(f"{path}/0/10-73")
    check(status == 200 and [tensors(b)[1] for b in frames(body)] == [expected(i) for i in range(10, 74)], "range")
    status, headers, body = worker.get(f"{path}/0/{last - 1}-{last + 40}")
    check(status == 200 and headers["Stager-End"] == str(last + 1), "the range ends with the pass")
    check([tensors(b)[1] for b in frames(body)] == [expected(last - 1), expected(last)], "its batches")
    for index in (last + 1, 1 << 40):
        status, headers, _ = worker.get(f"{path}/0/{index}")
        check(status == 404 and headers["Stager-End"] == str(last + 1), f"end: {status} {headers}")
    # The coordinates of the asking side count.
    where, values = tensors(frames(worker.get(f"{path}/0/7?epoch=0&index=3")[2])[0])
    check(where["index"] == 3 and values == expected(7), "index of the query")
    check(worker.get(f"{path}/0/7?epoch=2&index=3")[0] == 409, "another epoch")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: worker.get(f"{path}/0/{i}"), [i * 37 % 100 for i in range(100)]))
    served = [(i * 37 % 100, g) for i, g in enumerate(got) if g[0] == 200]
    check(all(g[0] in (200, 503) for g in got) and served, "served or refused")
    for index, (_, _, body) in served:
        check(tensors(frames(body)[0])[1] == expected(index), f"{index} of many at once")


def share(rows, host, hosts, begin, pad, weights=None):
    """The rows of a host, from the definition: each round has one for each host, or as many as its weight says."""
    owners = [number for number in range(hosts) for _ in range(weights[number] if weights else 1)]
    rest = rows[begin:]
    last = len(rest) % len(owners)
    rest = rest + rest[len(rest) - last:][:1] * (len(owners) - last) if pad and last else rest[:len(rest) - last]
    return [row for at, row in enumerate(rest) if owners[at % len(owners)] == host]


def check_deals(worker, pipelines):
    """`shard: auto`: batches of any host of any number of hosts, in any order."""
    rng = random.Random(7)
    digests = {each["name"]: each["digest"] for each in worker.about["pipelines"]}

    def get(name, batch, host, hosts, begin, last=None, **more):
        query = "&".join(f"{key}={value}" for key, value in dict(host=host, hosts=hosts, begin=begin, **more).items())
        path = f"/v1/batches/{digests[name]}/0/{batch}" + (f"-{last}" if last is not None else "")
        return worker.get(f"{path}?{query}")

    for name, pad, epochs in pipelines:
        # Without a deal a request has all rows, in the order which hosts divide.
        rows, index = [], 0
        while True:
            epoch = index * SIZE // N if epochs > 1 else 0
            status, _, body = worker.get(f"/v1/batches/{digests[name]}/0/{index}?epoch={epoch}&index=0")
            if status == 404:
                break
            check(status == 200, f"{name} {index}: {status} {body[:200]}")
            rows += tensors(frames(body)[0])[1]["label"]
            index += 1
        check(sorted(rows) == sorted([r * 7 for r in range(N)] * epochs), f"{name}: all rows")
        if name == "plain":
            check(rows == [r * 7 for r in range(N)], "the order of the files")
        asked = []
        for hosts, begin in ((3, 0), (2, 0), (2, 600), (5, 17), (1, 3), (N - 1, 2)):
            for host in {0, hosts - 1, rng.randrange(hosts)}:
                want = share(rows, host, hosts, begin, pad)
                n = (len(want) + SIZE - 1) // SIZE
                asked += [(host, hosts, begin, i, want[i * SIZE:(i + 1) * SIZE], n) for i in range(n + 1)]
        rng.shuffle(asked)
        for host, hosts, begin, i, want, n in asked[:150]:
            place = begin + i * SIZE * hosts + host
            epoch = (place if place < len(rows) else place - host) // N
            status, headers, body = get(name, i, host, hosts, begin, epoch=epoch, index=i)
            what = f"{name}: batch {i} of host {host} of {hosts} from {begin}: {status} {dict(headers)}"
            if i == n:
                check(status == 404 and headers["Stager-End"] == str(n), what)
                continue
            check(status == 200, f"{what} {body[:200]}")
            check(headers["ETag"] == f'"{digests[name]}/0/{i}-{i}/{host}-{hosts}-{begin}"', what)
            where, values = tensors(frames(body)[0])
            check(values["label"] == want and where["rows"] == len(want), f"{what}: {values} is not {want}")
    status, _, body = get("plain", 1, 1, 3, 30, last=4)
    check(status == 200 and [row for batch in frames(body) for row in tensors(batch)[1]["label"]] ==
          share([r * 7 for r in range(N)], 1, 3, 30, False)[SIZE:5 * SIZE], "a range of a host")
    for host, hosts, begin in ((3, 3, 0), (0, 0, 0), (0, (1 << 20) + 1, 0), (-1, 3, 0), (0, 3, -1), ("", 3, 0), (0, 3, "x"),
                               (0, 3, 1 << 64), (1 << 32, (1 << 32) + 1, 0), ("00", 3, 0)):
        status, _, body = get("plain", 0, host, hosts, begin)
        check(status == 400, f"deal {host} {hosts} {begin}: {status} {body}")
    for query in ("host=0", "hosts=3", "host=0&hosts=3", "begin=0", "host=0&begin=0"):
        check(worker.get(f"/v1/batches/{digests['plain']}/0/0?{query}")[0] == 400, query)
    for begin in (N + 1, 1 << 63, (1 << 64) - 2):
        status, _, body = get("plain", 0, 0, 3, begin)
        check(status == 404 and f"has {N}" in body.decode(), f"begin {begin}: {status} {body}")
    check(get("plain", 0, 0, 3, N)[0] == 404 and get("plain", (1 << 64) - 2, 0, 3, N)[0] == 404, "nothing is left")
    check(get("plain", 0, 0, 1 << 20, 0)[0] == 404, "more hosts than rows")
    status, _, body = get("rows", 0, 0, 3, 0)
    check(status == 400 and b"divides nothing" in body, f"no division: {status} {body}")
    for place in (dict(index=1 << 62, begin=0), dict(index=0, begin=1 << 62), dict(index=(1 << 64) - 2, begin=(1 << 64) - 2)):
        status, _, body = get("endless", place["index"], 2, 3, place["begin"])
        check(status == 404 and b"epochs ahead" in body, f"{place}: {status} {body}")
    check(get("endless", 0, 2, 3, 0)[0] == 200, "it goes on")
    check_weights(get)


def check_weights(get):
    """Any batch, in any order: most begin in the middle of a round."""
    rng = random.Random(9)
    rows = [r * 7 for r in range(N)]
    asked = []
    for host in range(3):
        for begin in (0, 100):
            want = share(rows, host, 3, begin, True, (3, 1, 7))
            asked += [(host, begin, i, want[i:i + SIZE]) for i in range(0, len(want), SIZE)]
    rng.shuffle(asked)
    for host, begin, first, want in asked[:60]:
        status, _, body = get("weighted", first // SIZE, host, 3, begin)
        what = f"weighted: {first} of host {host} from {begin}: {status}"
        check(status == 200 and tensors(frames(body)[0])[1]["label"] == want, f"{what} {body[:200]} is not {want}")
    check(tensors(frames(get("weighted", 7, 0, 1, 0)[2])[0])[1]["label"] == rows[7 * SIZE:8 * SIZE], "one host has all rows")
    status, _, body = get("weighted", 0, 0, 2, 0)
    check(status == 400 and b"weights has 3 values, and the job has 2 hosts" in body, f"two hosts: {status} {body}")


def check_connection(worker, digest):
    """One connection for all requests; the memory of answers is used again, and shows nothing of the last ones."""
    connection = worker.connect()
    sizes = ["0-63", "99", "3-40", "98-100", "7"]

    def ask(path):
        connection.request("GET", f"/v1/batches/{digest}/0/{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        return answer.status, answer.headers["Connection"], answer.read()

    first = {path: ask(path) for path in sizes}
    own = connection.sock.getsockname()
    again = {path: ask(path) for path in reversed(sizes)}
    check(connection.sock.getsockname() == own, "the connection is kept")
    check(all(status == 200 and said is None for status, said, _ in first.values()), f"{[a[:2] for a in first.values()]}")
    check(first == again, "a batch has the same bytes each time")
    connection.close()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def check_kills(worker, digest):
    """stager-worker is killed while requests run: they are asked again, and no batch is wrong."""
    path = f"/v1/batches/{digest}"

    def insist(index):
        until = time.monotonic() + 60 * SLOW
        while time.monotonic() < until:
            try:
                status, _, body = worker.get(f"{path}/0/{index}")
            except (OSError, http.client.HTTPException):
                status = 0
            if status == 200:
                return tensors(frames(body)[0])[1] == expected(index)
            time.sleep(0.01)
        return False

    for _ in range(5):
        (http_pid,) = children(worker.process.pid)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            got = pool.map(insist, range(40))
            os.kill(http_pid, signal.SIGKILL)
            check(all(got), "the batches of a worker whose stager-worker is killed")
    log = open(worker.log, encoding="utf-8").read()
    check(log.count("stager-worker was killed by signal 9: it is started again") == 5, log)
    os.kill(children(worker.process.pid)[0], signal.SIGKILL)
    check(worker.process.wait(60 * SLOW) == 1, "one kill too many ends the worker")
    check("stager-worker has ended" in open(worker.log, encoding="utf-8").read(), "and says so")


def check_refusals(worker, digest):
    path = f"/v1/batches/{digest}"
    for token in (None, "x", TOKEN[:-1], TOKEN + "x", TOKEN[:-1] + "4"):
        for page in ("/v1/worker", f"{path}/0/0"):
            check(worker.get(page, token)[0] == 401, f"token {token}")
    check(worker.get("/healthz", None)[0] == 200 and worker.get("/readyz", None)[0] == 200, "probes need no token")
    for bad in ("", "/0", "/0/", "/x/0", "/0/-1", "/0/5-4", "/0/0-64", "/0/1/2", "/00/1", "/0/01",
                "/0/99999999999999999999999", "/0/1?epoch=1", "/0/1?epoch=x&index=0", "/0/1-",
                "/0/1%00", "/0/%31", "/0/1%00/2", "/0/1?epoch=0%00&index=1", "/0/1?epoch=0&index=%31"):
        check(worker.get(path + bad)[0] == 400, f"{bad}: {worker.get(path + bad)}")
    check(worker.get("/v1/batches/" + digest.upper() + "/0/0")[0] == 400, "upper case")
    status, _, body = worker.get("/v1/batches/" + "0" * 64 + "/0/0")
    check(status == 404 and digest in body.decode() and "rows" in body.decode(), f"unknown digest: {body}")
    check(worker.get("/else")[0] == 404 and worker.get("/v1/worker", method="DELETE")[0] == 405, "other pages")
    with socket.create_connection(("127.0.0.1", worker.port), timeout=20 * SLOW) as raw:
        raw.sendall(b"\x00\xff garbage\r\n\r\n")
    with socket.create_connection(("127.0.0.1", worker.port)) as raw:  # leaves before its answer
        raw.sendall(f"GET {path}/0/0-63 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    check(worker.get(f"{path}/0/0")[0] == 200, "it goes on")


def write_failing(folder, name, code, closed):
    """A pipeline of which every batch fails with `code`."""
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"""
name: {name}
dataset: [{{range: {{stop: 3}}}}]
graph:
- {{name: never, op: constant, value: false}}
- {{name: v, op: assert, input: [never, value], code: {code}, message: planned}}
staged: {{features: {{v: v}}, closed_exception_types: {closed}}}
""")
    return path


def check_codes(build, folder):
    """An error item has the code that a stage gives it: OUT_OF_RANGE, which looks like an end, only where it ends the pass."""
    cases = (("closed", "OUT_OF_RANGE", "[OUT_OF_RANGE]", "OUT_OF_RANGE"), ("open", "OUT_OF_RANGE", "[]", "FAILED_PRECONDITION"),
             ("other", "NOT_FOUND", "[]", "NOT_FOUND"))
    files = [write_failing(folder, name, code, closed) for name, code, closed, _ in cases]
    with Worker(build, folder, files) as worker:
        worker.wait()
        digests = {each["name"]: each["digest"] for each in worker.about["pipelines"]}
        for name, code, _, want in cases:
            status, headers, body = worker.get(f"/v1/batches/{digests[name]}/0/1")
            said = f"{name}: {status} {dict(headers)} {body}"
            check(status == 422 and headers["Stager-Code"] == want and headers["Stager-End"] is None and b"planned" in body, said)
            check((b"OUT_OF_RANGE, not in closed_exception_types" in body) == (want != code), said)
        end(worker)


def end(worker):
    worker.process.send_signal(signal.SIGTERM)
    code = worker.process.wait(60 * SLOW)
    check(code == 0, f"SIGTERM: status {code}\n{open(worker.log, encoding='utf-8').read()}")


def check_end_of_input(build, folder, pipeline):
    """A worker on a free port, which ends with the program that started it."""
    with subprocess.Popen([os.path.join(build, "daemon", "stagerd"), "--worker", "--until-eof", "--threads", "1", "--listen",
                           "127.0.0.1:0", pipeline], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = next((line for line in process.stderr if "listens on 127.0.0.1:0, port " in line), "")
        check(line != "", "the log names the port")
        with socket.create_connection(("127.0.0.1", int(line.rsplit(" ", 1)[1])), timeout=20 * SLOW):
            check(process.poll() is None, "it serves")
        process.stdin.close()
        check(process.wait(60 * SLOW) == 0, "the end of its input")


def refused(build, folder, text, part, *options):
    path = os.path.join(folder, "bad.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    got = subprocess.run([os.path.join(build, "daemon", "stagerd"), "--worker", "--listen", f"127.0.0.1:{free_port()}",
                          *options, path], stderr=subprocess.PIPE, text=True, timeout=60 * SLOW, check=False)
    check(got.returncode == 1 and part in got.stderr, f"{got.returncode}: {got.stderr}")


def write_data(folder):
    for k, (first, last) in enumerate(((0, 400), (400, N))):
        with open(os.path.join(folder, f"{k}.csv"), "w", encoding="utf-8") as file:
            file.writelines(f"{r * 7},{r % 13}\n" for r in range(first, last))


def main(build):
    folder = tempfile.mkdtemp(prefix="stg-worker-")
    try:
        data = os.path.join(folder, "data")
        os.mkdir(data)
        write_data(data)
        text = ROWS.replace("DIR", folder)
        pipeline = os.path.join(folder, "rows.yaml")
        token = os.path.join(folder, "token")
        for path, content in ((pipeline, text), (token, TOKEN + "\n")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        deals = []
        for name, steps in (
                ("plain", "shard: auto"), ("padded", "shard: {num_shards: auto, remainder: pad}"),
                ("mixed", "shuffle: {global: true, seed: 3}\n- repeat: {count: 2}\n- shard: auto"),
                ("endless", "repeat\n- shard: auto"),
                ("weighted", "shard: {num_shards: auto, weights: [3, 1, 7], remainder: pad}")):
            deals.append(os.path.join(folder, name + ".yaml"))
            with open(deals[-1], "w", encoding="utf-8") as file:
                file.write(text.replace("name: rows", "name: " + name).replace("- text_line", "- text_line\n- " + steps))
        with Worker(build, folder, [pipeline, *deals], "--token-file", token) as worker:
            worker.wait()
            check_deals(worker, (("plain", False, 1), ("padded", True, 1), ("mixed", False, 2)))
            end(worker)
        with Worker(build, folder, [pipeline], "--token-file", token, "--zone", "z1") as worker:
            digest = worker.wait()
            check(worker.about["zone"] == "z1" and worker.about["pipelines"][0]["name"] == "rows", "about")
            check_batches(worker, digest)
            check_connection(worker, digest)
            check_refusals(worker, digest)
            # A record that fails, behind those that were counted: other bytes, and as many.
            with open(os.path.join(data, "1.csv"), "r+", encoding="utf-8") as file:
                file.write("x")
            status, headers, body = worker.get(f"/v1/batches/{digest}/5/40")
            check(status == 422 and headers["Stager-Code"] == "INVALID_ARGUMENT" and b"1.csv: line 1" in body,
                  f"a bad record: {status} {dict(headers)} {body}")
            check(worker.get(f"/v1/batches/{digest}/5/41")[0] == 200, "the next batch")
            with open(os.path.join(data, "1.csv"), "a", encoding="utf-8") as file:
                file.write("1,1\n")
            status, _, body = worker.get(f"/v1/batches/{digest}/6/0")
            check(status == 409 and b"have changed" in body, f"other data: {status} {body}")
            end(worker)
        shutil.rmtree(data)
        os.mkdir(data)
        write_data(data)
        with Worker(build, folder, [pipeline]) as worker:
            check_kills(worker, worker.wait())
        openssl = shutil.which("openssl")
        if openssl:
            key, certificate = os.path.join(folder, "key"), os.path.join(folder, "certificate")
            subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                            "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                           check=True, stderr=subprocess.DEVNULL)
            with Worker(build, folder, [pipeline], "--tls-cert", certificate, "--tls-key", key) as worker:
                worker.context = ssl.create_default_context(cafile=certificate)
                status, _, body = worker.get(f"/v1/batches/{worker.wait()}/0/3", None)
                check(status == 200 and tensors(frames(body)[0])[1] == expected(3), "TLS")
                end(worker)
        refused(build, folder, text.replace("- text_line", "- text_line\n- shuffle: {buffer_size: 5}"), "shuffle")
        refused(build, folder, text.replace("- text_line", "- text_line\n- filter: {graph: [], predicate: x}"), "filter")
        refused(build, folder, text, "--tls-key", "--tls-cert", pipeline)
        refused(build, folder, text, "token", "--listen", f"0.0.0.0:{free_port()}")
        refused(build, folder, text, "zone", "--zone", "a b")
        for threads in ("0", "-1", "1025", "two", "99999999999999999999"):
            refused(build, folder, text, "--threads", "--threads", threads)
        check_codes(build, folder)
        check_end_of_input(build, folder, pipeline)
    finally:
        shutil.rmtree(folder)
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1])
