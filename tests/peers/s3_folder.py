# SPDX-License-Identifier: Apache-2.0
"""A stand-in for S3 on loopback: the files of a folder as the objects of a bucket, in path style, without signatures."""
import http.server
import os
import threading
import urllib.parse
import xml.sax.saxutils


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, **headers):
        self.server.n_bytes += len(body)
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        key = urllib.parse.unquote(url.path).split("/", 2)[2:]
        if not key or not key[0]:
            self.list(query.get("prefix", ""))
            return
        try:
            with open(os.path.join(self.server.folder, os.path.basename(key[0])), "rb") as file:
                data = file.read()
        except OSError:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        begin, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")
        end = min(int(end or len(data)) + 1, len(data))
        self.answer(206, data[int(begin):end], ETag=f'"{len(data)}"', Content_Range=f"bytes {begin}-{end - 1}/{len(data)}")

    def list(self, prefix):
        names = sorted(name for name in os.listdir(self.server.folder) if name.startswith(prefix))
        keys = "".join(f"<Contents><Key>{xml.sax.saxutils.escape(name)}</Key></Contents>" for name in names)
        self.answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode())


class Server(http.server.ThreadingHTTPServer):
    """`with Server(folder) as server`: server.endpoint is its URL, server.n_bytes counts the bytes of answers."""
    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.n_bytes = folder, 0
        self.endpoint = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args):
        self.shutdown()
        self.server_close()
