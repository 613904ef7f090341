# SPDX-License-Identifier: Apache-2.0
"""Stage workers on loopback. Stand-ins serve batches that were recorded, encoded here from the documented layout
(core/layout.h), or misbehave in ways drawn from a seed. Stagerd is the real one."""
import http.server
import os
import random
import socket
import struct
import subprocess
import threading
import urllib.error
import urllib.request

import case
import numpy as np

DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10}
STRING = 7
HEADER, ENTRY, ALIGN = 256, 128, 64


def _table():
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        yield value


TABLE = list(_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def encode(place, rows, tensors):
    """A batch at rest. place: pass, epoch, index. tensors: (name, part, array, or for strings a list of bytes)."""
    body = bytearray(HEADER + ENTRY * len(tensors))
    entries = []

    def add(data, align):
        body.extend(bytes(-len(body) % align))
        body.extend(data)
        return len(body) - len(data)

    names = [add(name.encode() + b"\0", 1) for name, _, _ in tensors]
    for (name, part, value), at in zip(tensors, names):
        if isinstance(value, list):
            ends = np.cumsum([0] + [len(text) for text in value], dtype="<i8").tobytes()
            dtype, shape, offsets = STRING, [len(value)], (add(ends, ALIGN), len(ends))
            data = b"".join(value)
        else:
            dtype, shape, offsets, data = DTYPES[value.dtype.name], list(value.shape), (0, 0), value.tobytes()
        entries.append(struct.pack("<6I8q5Q", at, len(name), dtype, len(shape), part, 0, *shape, *[0] * (8 - len(shape)),
                                   add(data, ALIGN), len(data), *offsets, 0))
    total = len(body)
    header = struct.pack("<IHHIIIIQ", 0x48435442, 1, 1, 1, len(tensors), HEADER, ENTRY, total)
    header += struct.pack("<2Q3Q5Q", 0, 0, *place, 0, 0, 0, 0, 0) + struct.pack("<Q", rows)
    body[:HEADER] = header.ljust(HEADER, b"\0")
    body[HEADER:HEADER + ENTRY * len(tensors)] = b"".join(entries)
    return bytes(body)


def frame(batch):
    return struct.pack("<QII", len(batch), crc32c(batch), 0).ljust(64, b"\0") + batch + bytes(-len(batch) % 64)


class Worker:
    """Serves `batches`, {(pass, item): bytes}. behave(item) names what it does instead: see _Handler.answer."""

    def __init__(self, batches, behave=lambda item: "good", token=None, zone=None, most=None, address=("127.0.0.1", 0)):
        """most: requests at once; one more is refused with 503. None is answered before one was refused."""
        self.batches, self.behave, self.token, self.zone = batches, behave, token, zone
        self.most, self.n_now, self.n_refused, self.full = most, 0, 0, threading.Event()
        self.asked, self.gate, self.lock = [], threading.Event(), threading.Lock()
        self.server = _Server(address, _Handler)
        self.server.worker = self
        self.port = self.server.server_address[1]
        self.url = f"http://{address[0]}:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self):
        self.gate.set()
        self.full.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that gives up is no error."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if self.server.worker.zone:
            self.send_header("Stager-Zone", self.server.worker.zone)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        worker = self.server.worker
        parts = self.path.split("?")[0].split("/")
        item = (int(parts[-2]), int(parts[-1]))
        with worker.lock:
            refused = worker.most is not None and worker.n_now >= worker.most
            worker.n_refused += refused
            worker.n_now += 1
            worker.asked += [] if refused else [item]
        try:
            self.serve(worker, item, refused)
        finally:
            with worker.lock:
                worker.n_now -= 1

    def serve(self, worker, item, refused):
        if refused:
            worker.full.set()
            self.reply(503, b"the queue is full", Retry_After="30", Connection="close")
            return
        if worker.most is not None:
            worker.full.wait(20)
        if worker.token and self.headers.get("Authorization") != f"Bearer {worker.token}":
            self.reply(401, b"wrong token")
            return
        try:
            self.answer(worker.behave(item[1]), item)
        except OSError:
            self.close_connection = True

    def answer(self, kind, item):
        batch = self.server.worker.batches.get(item)
        whole = frame(batch) if batch is not None else b""
        rng = random.Random(f"{kind} {item}")
        if batch is None:
            self.reply(404, b"no such batch", Stager_End=str(item[1]))
        elif kind == "good":
            self.reply(200, whole)
        elif kind == "hang":
            self.server.worker.gate.wait()
        elif kind == "busy":
            self.reply(503, b"busy", Retry_After="0")
        elif kind == "unknown":
            self.reply(404, b"another pipeline")
        elif kind == "shouting":
            self.reply(500, b"\x1b[2Jno \x07disk\xff \x7fleft\nforged: line")
        elif kind == "element":
            self.reply(422, b"the element fails", Stager_Code="INVALID_ARGUMENT")
        elif kind == "cut":
            self.reply(200, whole[:rng.randrange(len(whole))], length=len(whole))
            self.close_connection = True
        elif kind == "close":
            self.close_connection = True
        elif kind == "flip":
            at = rng.randrange(len(batch)) + 64
            self.reply(200, whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1:])
        elif kind == "noise":
            self.reply(200, rng.randbytes(rng.randrange(4096)))
        elif kind == "forged":  # a good checksum over bytes that are no batch
            damaged = bytearray(batch)
            for _ in range(rng.randrange(1, 8)):
                damaged[rng.randrange(512) % len(damaged)] = rng.randrange(256)
            self.reply(200, frame(bytes(damaged)))
        elif kind == "other":  # the batch of another place
            others = [each for each in self.server.worker.batches if each != item]
            self.reply(200, frame(self.server.worker.batches[rng.choice(others)]))
        else:
            raise ValueError(kind)


def need(test):
    if not os.path.exists(os.path.join(case.BUILD, "daemon", "worker", "stager-worker")):
        test.skipTest("stager-worker is not built")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Stagerd:
    """stagerd --worker, as on another host."""

    def __init__(self, pipeline, token_file, log):
        self.port = free_port()
        self.command = [os.path.join(case.BUILD, "daemon", "stagerd"), "--worker", "--listen", f"127.0.0.1:{self.port}",
                        "--token-file", token_file, pipeline]
        self.log, self.url = log, f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.url + "/readyz", timeout=20 * case.SLOW):
                return True
        except (OSError, urllib.error.HTTPError):
            return False

    def wait(self):
        case.wait_until(self.is_ready, 60)

    def kill_and_start(self):
        self.close()
        self.start()

    def close(self):
        self.process.kill()
        self.process.wait()
