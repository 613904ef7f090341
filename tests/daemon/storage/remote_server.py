#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""remote_server.py LOG: a web server on loopback that misbehaves as its URLs request.

Prints its port, then serves until its standard input ends. LOG gets a line for every request:
METHOD TARGET, then NAME=VALUE of the headers in SHOWN.

/object/NAME?size=N serves N bytes, byte i of which is value(i). /file/PATH serves a file of this machine.
Other parameters of the query:
  delay=MS       wait before the answer
  times=K        the faults below affect the first K requests for this URL (default: all)
  status=S       answer S; after=SECONDS: with Retry-After
  reset=N        after N bytes of the body the connection is reset
  short=N        after N bytes of the body the connection is closed
  stall=N        after N bytes of the body the server sends no more
  whole=1        ranges are ignored; whole=chunked: and no Content-Length
  wrong=1        206 with another range than the requested one
  swap=K         the object is another one from request K + 1 on; match=0: If-Match is ignored
  weak=1, etag=0 a weak ETag, or none; modified=0: no Last-Modified either
  to=URL         redirect to URL, which is percent-encoded; to=: redirect to itself
  said=TEXT      the body of a refusal
  user=U:P, bearer=T  401 without these credentials

/answers/NAME?of=A,A,... serves answer number k to request number k, the last one to all later requests. Each is
STATUS:LENGTH:SENT:END[:RANGE[:ETAG]]. LENGTH is Content-Length, or "-" for none. SENT bytes of the body are sent, byte i
of which is value(i + the first offset of RANGE). END is "end" or "reset". RANGE is that of Content-Range.
"""
import base64
import http.server
import socket
import struct
import sys
import threading
import time
import urllib.parse

SHOWN = ("Range", "If-Match", "Authorization", "Host", "x-amz-date", "x-amz-content-sha256",
         "x-amz-security-token")


def value(i):
    return (i * 31 + (i >> 8) * 7 + (i >> 16) * 13) & 0xFF


ROWS = [bytes((i * 31 + k) & 0xFF for i in range(256)) for k in range(256)]


def values(size, salt):
    """value(i) + salt of all i, by rows of 256."""
    rows = [ROWS[(value(i << 8) + salt) & 0xFF] for i in range((size + 255) >> 8)]
    return b"".join(rows)[:size]


class Objects:
    def __init__(self):
        self.lock = threading.Lock()
        self.counts = {}
        self.bytes = {}

    def count(self, target):
        with self.lock:
            self.counts[target] = self.counts.get(target, 0) + 1
            return self.counts[target]

    def data(self, size, salt):
        with self.lock:
            if (size, salt) not in self.bytes:
                self.bytes[size, salt] = values(size, salt)
            return self.bytes[size, salt]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects = Objects()
    log = None

    def log_message(self, *args):
        pass

    def log_request(self, *args):
        pass

    def write_log(self):
        line = f"{self.command} {self.path}"
        for name in SHOWN:
            if name in self.headers:
                line += f" {name}={self.headers[name].replace(' ', '_')}"
        with self.objects.lock:
            self.log.write(line + "\n")
            self.log.flush()

    def do_GET(self):
        self.write_log()
        url = urllib.parse.urlsplit(self.path)
        if url.path.startswith("/answers/"):
            answers = dict(urllib.parse.parse_qsl(url.query))["of"].split(",")
            self.answer(*answers[min(self.objects.count(self.path), len(answers)) - 1].split(":"))
            return
        self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        number = self.objects.count(self.path)
        self.faulty = number <= int(self.query.get("times", "1000000"))
        time.sleep(int(self.query.get("delay", "0")) / 1000)
        swapped = "swap" in self.query and number > int(self.query["swap"])
        if not self.refused(swapped):
            self.serve(self.data(url.path, 1 if swapped else 0), swapped)

    def answer(self, status, length, sent, end, span="", etag=""):
        self.send_response(int(status))
        for name, text in (("Content-Length", length.strip("-")), ("ETag", etag and f'"{etag}"'),
                           ("Content-Range", span and f"bytes {span}")):
            if text:
                self.send_header(name, text)
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        first = int(span.split("-")[0]) if span[:1].isdigit() else 0
        try:
            self.wfile.write(self.objects.data(first + int(sent), 0)[first:])
            self.wfile.flush()
            if end == "reset":
                self.reset()
        except OSError:
            pass  # the reader has seen enough

    def data(self, path, salt):
        if path.startswith("/file/"):
            with open(urllib.parse.unquote(path[len("/file"):]), "rb") as file:
                return file.read()
        return self.objects.data(int(self.query.get("size", "0")), salt)

    def refuse(self, status, *headers):
        body = self.query.get("said", "no").encode()
        self.send_response(status)
        for name, text in headers:
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return True

    def allowed(self):
        given = self.headers.get("Authorization", "")
        if "bearer" in self.query:
            return given == "Bearer " + self.query["bearer"]
        if "user" in self.query:
            return given == "Basic " + base64.b64encode(self.query["user"].encode()).decode()
        return True

    def refused(self, swapped):
        if not self.allowed():
            return self.refuse(401)
        if self.faulty and "to" in self.query:
            return self.refuse(302, ("Location", self.query["to"] or self.path))
        if self.faulty and "status" in self.query:
            after = [("Retry-After", self.query["after"])] if "after" in self.query else []
            return self.refuse(int(self.query["status"]), *after)
        if self.headers.get("If-None-Match") == self.etag(swapped):
            self.send_response(304)
            self.end_headers()
            return True
        match = self.headers.get("If-Match")
        if match is not None and self.query.get("match") != "0" and match != self.etag(swapped):
            return self.refuse(412)
        return False

    def etag(self, swapped):
        return ("W/" if "weak" in self.query else "") + ('"new"' if swapped else '"old"')

    def span(self, data):
        """Returns the requested range, or None for all."""
        asked = self.headers.get("Range")
        if asked is None or "whole" in self.query:
            return None
        first, last = asked[len("bytes="):].split("-")
        return int(first), min(int(last), len(data) - 1) + 1

    def serve(self, data, swapped):
        span = self.span(data)
        if span is not None and span[0] >= len(data):
            return self.refuse(416, ("Content-Range", f"bytes */{len(data)}"))
        self.send_response(200 if span is None else 206)
        if self.query.get("etag") != "0":
            self.send_header("ETag", self.etag(swapped))
        if self.query.get("modified") != "0":
            self.send_header("Last-Modified", f"Sat, 0{2 if swapped else 1} Jan 2022 00:00:00 GMT")
        first, end = span or (0, len(data))
        if span is not None:
            off = 1 if self.faulty and "wrong" in self.query else 0
            self.send_header("Content-Range", f"bytes {first + off}-{end - 1}/{len(data)}")
        if self.query.get("whole") == "chunked":
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(end - first))
        self.end_headers()
        self.send(data[first:end])
        return None

    def send(self, body):
        for fault in ("reset", "short", "stall"):
            if self.faulty and fault in self.query:
                self.wfile.write(body[:int(self.query[fault])])
                self.wfile.flush()
                getattr(self, fault)()
                return
        self.wfile.write(body)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        self.close_connection = True

    def short(self):
        self.close_connection = True

    def stall(self):
        try:
            self.connection.recv(1)  # ends when the reader disconnects
        except OSError:
            pass
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # the tests cover readers that disconnect

    def shutdown_request(self, request):
        try:
            super().shutdown_request(request)
        except OSError:
            pass


def main(handler=Handler):
    handler.log = open(sys.argv[1], "w")
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
