#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""remote_hdfs.py LOG: remote_server.py as a namenode and its datanode, by the documents of WebHDFS.

/logs has days of parts; only user ann may read /only/ann; /changes/x is another file after K statuses.
"""
import json
import os
import urllib.parse

import remote_server

FILES = {"/logs/day 1/part-0": 100000, "/logs/day 1/part-1": 70000, "/logs/day 1/.crc": 10,
         "/logs/day-2/part-0": 1000, "/logs/day-2/empty": 0, "/logs/day-2/sub/part-0": 5,
         "/logs/top": 7, "/only/ann": 9, "/changes/x": 200000}


class Handler(remote_server.Handler):
    def do_GET(self):
        self.write_log()
        url = urllib.parse.urlsplit(self.path)
        args = dict(urllib.parse.parse_qsl(url.query))
        self.query = {}
        self.faulty = False
        path = urllib.parse.unquote(url.path)
        if path.startswith("/datanode"):
            self.give_bytes(path[len("/datanode"):], args)
            return
        path = path[len("/webhdfs/v1"):]
        if path == "/only/ann" and args.get("user.name") != "ann":
            self.deny(403, "AccessControlException", "Permission denied: user=" +
                      args.get("user.name", args.get("delegation", "")))
        elif not any(name == path or name.startswith(path.rstrip("/") + "/") for name in FILES):
            self.deny(404, "FileNotFoundException", f"File does not exist: {path}")
        else:
            getattr(self, "op_" + args["op"])(path, url.query)

    def deny(self, status, exception, message):
        self.query["said"] = json.dumps({"RemoteException": {
            "exception": exception, "javaClassName": "x", "message": message}},
            separators=(",", ":"))
        self.refuse(status)

    def answer(self, message):
        data = json.dumps(message).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def status(self, path, suffix):
        changed = path == "/changes/x" and self.objects.count("status") > 1
        return {"accessTime": 1, "blockSize": 134217728, "fileId": 17 if changed else 16,
                "group": "g", "length": FILES.get(path, 0), "modificationTime": 1320173277227,
                "owner": "o", "pathSuffix": suffix, "permission": "644",
                "type": "FILE" if path in FILES else "DIRECTORY"}

    def op_GETFILESTATUS(self, path, _):
        self.answer({"FileStatus": self.status(path, "")})

    def op_LISTSTATUS(self, path, _):
        path = path.rstrip("/")
        if path in FILES:
            entries = [self.status(path, "")]
        else:
            names = {name[len(path) + 1:].split("/")[0] for name in FILES
                     if name.startswith(path + "/")}
            entries = [self.status(os.path.join(path, name), name) for name in sorted(names)]
        self.answer({"FileStatuses": {"FileStatus": entries}})

    def op_OPEN(self, path, query):
        port = self.server.server_port
        place = f"http://localhost:{port}/datanode{urllib.parse.quote(path)}?{query}"
        self.refuse(307, ("Location", place))

    def give_bytes(self, path, args):
        first = int(args["offset"])
        data = self.objects.data(FILES[path], 0)[first:first + int(args["length"])]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    remote_server.main(Handler)
