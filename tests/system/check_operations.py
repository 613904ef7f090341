#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operations log: each kind of record, in a file and in the journal; hostile names, floods and full disks.

    check_operations.py BUILD
    check_operations.py BUILD --journal      in a mount namespace: with a socket of its own at the place of journald's

Needs root, to become users and to mount. Skipped otherwise, with status 77.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

from check_sharing import ANN, BOB, GROUP, ctl, must, pipeline, refused, reload, start
from daemon import SLOW, check, write

LIMIT_S = 60 * SLOW
SOCKET = "/run/systemd/journal/socket"
IDS = {"applied": "acc48cafe73249b194ad89fa7f481b7a", "replaced": "ac36aeb0ae16480b9fe27035902deacc",
       "rolled_back": "6282878d28a24995a2223e4618b372b7", "deleted": "f9df7becb6c141e2a4e62c56c06a013c",
       "attached": "9b605b429acf448e9e45ef198927ef8a", "refused": "8fe4c287da414d3b9c05c699540335da",
       "drained": "40e354d6d5944d40b771de617c232854", "resumed": "63063832d60547e899dbca84989f2079",
       "reloaded": "91b383833e0c499f8fe37492dd618303", "lost": "1aab878560d3471ca38946b7dbee036b"}
HELLO, LIST, STATUS = 2, 5, 6  # fields of a request (proto/control.proto)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def records(path):
    """The records of a file: each line is one."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    check(text == "" or text.endswith("\n"), f"a torn line: {text[-200:]!r}")
    return [json.loads(line) for line in text.splitlines()]


def wait_for(path, n, **fields):
    """Waits until n records have these fields; returns them."""
    end = time.monotonic() + LIMIT_S
    while True:
        found = [one for one in records(path) if fields.items() <= one.items()] if os.path.exists(path) else []
        if len(found) >= n:
            check(len(found) == n, f"{len(found)} records, not {n}: {fields}")
            return found
        check(time.monotonic() < end, f"no {n} records of {fields}: {records(path) if os.path.exists(path) else 'no file'}")
        time.sleep(0.01)


def lost(daemon):
    line, = [line for line in must(daemon, 0, "metrics").splitlines() if line.startswith("stager_lost_operations_total ")]
    return int(line.split()[1])


def each_kind_has_a_record(build):
    daemon = start(build, quotas=[{"user": str(ANN), "pipelines": 1}])
    try:
        log = os.path.join(daemon.folder, "operations.jsonl")
        reload(daemon, operations_log=log)
        one, = wait_for(log, 1, operation="reloaded")
        check(one["settings"] == "operations_log" and one["status"] == "OK" and "uid" not in one, one)
        path = pipeline(daemon, "p")
        must(daemon, ANN, "apply", path)
        one, = wait_for(log, 1, operation="applied")
        wanted = {"uid": ANN, "gid": GROUP, "program": "stagerctl", "request": "apply", "pipeline": "p", "generation": 1,
                  "message_id": IDS["applied"]}
        check(wanted.items() <= one.items() and one["pid"] > 0 and TIME.fullmatch(one["time"]), one)
        must(daemon, ANN, "apply", path)
        wait_for(log, 1, operation="applied", unchanged=1)
        must(daemon, 0, "apply", "--replace", pipeline(daemon, "p", 2))
        wait_for(log, 1, operation="replaced", uid=0, pipeline="p", generation=2)
        must(daemon, 0, "rollback", "p")
        wait_for(log, 1, operation="rolled_back", uid=0, request="rollback", pipeline="p", generation=3)
        must(daemon, ANN, "cat", "p")
        one, = wait_for(log, 1, operation="attached")
        check({"uid": ANN, "request": "open", "pipeline": "p", "generation": 3}.items() <= one.items() and one["client"], one)
        refused(daemon, ANN, ("pipelines",), "apply", pipeline(daemon, "q"))
        one, = wait_for(log, 1, operation="refused", uid=ANN, request="apply", pipeline="q", status="RESOURCE_EXHAUSTED")
        check(f"the quota of user {ANN} is 1 pipelines" in one["reason"], one)
        refused(daemon, BOB, ("belongs to uid",), "delete", "p", code="PERMISSION_DENIED")
        wait_for(log, 1, operation="refused", uid=BOB, request="delete", pipeline="p", status="PERMISSION_DENIED")
        reload(daemon, rules={"see": {"users": [str(ANN)]}})
        refused(daemon, BOB, ("rules.see",), "list", code="PERMISSION_DENIED")
        wait_for(log, 1, operation="refused", uid=BOB, request="list", status="PERMISSION_DENIED")
        wait_for(log, 1, operation="reloaded", settings="rules")
        must(daemon, 0, "drain")
        must(daemon, 0, "drain", "--disable")
        wait_for(log, 1, operation="drained", uid=0, request="drain")
        wait_for(log, 1, operation="resumed", uid=0)
        must(daemon, ANN, "delete", "p")
        wait_for(log, 1, operation="deleted", uid=ANN, pipeline="p")
        must(daemon, 0, "apply", path)
        daemon.ctl("delete", "p", *daemon.gate(os.path.join(daemon.folder, "token")))
        one, = wait_for(log, 1, operation="deleted", uid=0, pipeline="p")
        check(one["program"] == "stager-gate" and "pid" not in one, one)
        check(all(one["message_id"] == IDS[one["operation"]] for one in records(log)), "the ids")
        check(not [one for one in records(log) if one["operation"] == "lost"] and lost(daemon) == 0, "nothing is missing")
        check(os.stat(log).st_mode & 0o777 == 0o640, "its mode")
        os.rename(log, f"{log}.1")
        reload(daemon, quotas=[])
        wait_for(log, 1, operation="reloaded", settings="quotas")
        write(daemon.config, "log_level: nonsense\n")
        daemon.process.send_signal(signal.SIGHUP)
        one, = wait_for(log, 1, operation="reloaded", status="INVALID_ARGUMENT")
        check("log_level" in one["reason"], one)
        check(daemon.stop() == 0, "it stops")
    finally:
        daemon.close()


def message(number, body):
    """A message of attach.sock: id 1, and field `number` with that body."""
    def varint(value):
        out = b""
        while value >= 0x80:
            out += bytes([value & 0x7f | 0x80])
            value >>= 7
        return out + bytes([value])
    return b"\x08\x01" + varint(number << 3 | 2) + varint(len(body)) + body


def text_field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def connect(daemon, uid, client=b"test"):
    """A connection of a user, greeted."""
    os.seteuid(uid)
    try:
        ret = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ret.connect(os.path.join(daemon.runtime_dir, "attach.sock"))
    finally:
        os.seteuid(0)
    ret.settimeout(LIMIT_S)
    ask(ret, HELLO, b"\x08\x02\x10\x06" + text_field(3, client))
    return ret


def ask(client, number, body=b"", n=1):
    """Sends n requests, and receives as many replies."""
    for _ in range(n):
        client.send(message(number, body))
    for _ in range(n):
        check(client.recv(65536) != b"", "the connection was closed")


def a_stranger_forges_nothing(build):
    """A client names itself, and the pipeline, with newlines, controls and JSON: each request is one record, with its own uid."""
    hostile = b'p"}\n{"operation":"applied","uid":0}\nSTAGER_UID=0\n\x1b[2J\xc2\x9b\x7f\\'
    daemon = start(build, rules={"see": {}})
    try:
        log = os.path.join(daemon.folder, "operations.jsonl")
        reload(daemon, operations_log=log)
        client = connect(daemon, ANN, hostile)
        ask(client, STATUS, text_field(1, hostile))
        one, = wait_for(log, 1, operation="refused")
        check(one["uid"] == ANN and len(records(log)) == 2, records(log))
        for key in ("program", "pipeline"):
            check(one[key].startswith('p"}?{"operation"') and all(" " <= c < "\x7f" for c in one[key]), one[key])
        client.close()
    finally:
        daemon.close()


def a_flood_is_bounded(build):
    """A user has 100 records at once, then 10 a second; the next one has the number of those that are missing. Others lose none."""
    daemon = start(build, rules={"see": {"users": [str(BOB)]}, "apply": {"users": [str(BOB)]}})
    try:
        log = os.path.join(daemon.folder, "operations.jsonl")
        reload(daemon, operations_log=log)
        client = connect(daemon, ANN)
        n = 0
        while lost(daemon) < 300:  # however slow the machine is
            ask(client, LIST, n=50)
            n += 50
        must(daemon, BOB, "apply", pipeline(daemon, "b"))
        wait_for(log, 1, operation="applied", uid=BOB)
        end = time.monotonic() + LIMIT_S
        while sum(1 + one.get("lost", 0) for one in records(log) if one.get("uid") == ANN) != n:
            ask(client, LIST)
            n += 1
            check(time.monotonic() < end, f"of {n} records some are neither there nor counted")
            time.sleep(0.15)
        client.close()
    finally:
        daemon.close()


def a_full_disk_stops_nothing(build):
    """/dev/full, then a disk that has room for a part of a line; then one with room."""
    daemon = start(build, operations_log="/dev/full")
    try:
        must(daemon, ANN, "apply", pipeline(daemon, "p"))
        check(daemon.wait_for_log("operations_log: /dev/full: cannot write it: No space left on device"), daemon.log())
        must(daemon, ANN, "delete", "p")
        end = time.monotonic() + LIMIT_S
        while lost(daemon) < 2:
            check(time.monotonic() < end, "records are missing, and not counted")
            time.sleep(0.01)
        log = os.path.join(daemon.folder, "operations.jsonl")
        reload(daemon, operations_log=log)
        one, = wait_for(log, 1, operation="lost")
        check(one["lost"] == lost(daemon) and one["message_id"] == IDS["lost"], one)
        reload(daemon, operations_log="off")
        n = len(records(log))
        must(daemon, ANN, "apply", pipeline(daemon, "p"))
        check(daemon.stop() == 0 and len(records(log)) == n, "off")
    finally:
        daemon.close()


def fields(datagram):
    """The fields of a message of journald's native protocol; each is a line here."""
    return [line.split("=", 1) for line in datagram.decode().splitlines()]


def in_the_journal(build):
    """In a mount namespace: the messages that journald gets."""
    os.makedirs("/run/systemd", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/systemd"], check=True)
    os.makedirs(os.path.dirname(SOCKET))
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind(SOCKET)
    journal.settimeout(LIMIT_S)
    daemon = start(build, operations_log="journal")
    try:
        must(daemon, ANN, "apply", pipeline(daemon, "p"))
        found = fields(journal.recv(65536))
        check(all(len(field) == 2 for field in found), found)
        names = dict(found)
        check(len(names) == len(found), "a field twice")
        pid = names.pop("STAGER_PID")
        check(int(pid) > 0 and names == {
            "MESSAGE": f"applied apply of pipeline p, uid {ANN}", "MESSAGE_ID": IDS["applied"], "PRIORITY": "5",
            "SYSLOG_IDENTIFIER": "stagerd", "STAGER_OPERATION": "applied", "STAGER_UID": str(ANN), "STAGER_GID": str(GROUP),
            "STAGER_PROGRAM": "stagerctl", "STAGER_REQUEST": "apply", "STAGER_PIPELINE": "p", "STAGER_GENERATION": "1"}, names)
        refused(daemon, BOB, ("belongs to uid",), "delete", "p", code="PERMISSION_DENIED")
        names = dict(fields(journal.recv(65536)))
        check(names["MESSAGE_ID"] == IDS["refused"] and names["STAGER_UID"] == str(BOB) and names["PRIORITY"] == "4", names)
        check(names["STAGER_REASON"].startswith(f"pipeline p belongs to uid {ANN}"), names)
        reload(daemon, rules={"see": {}})
        for uid in range(ANN + 10, ANN + 40):  # more records than the socket and the queue hold: nothing reads
            client = connect(daemon, uid)
            ask(client, LIST, n=50)
            client.close()
        check(lost(daemon) > 0, "records that do not fit are counted")
        must(daemon, 0, "list")
        check(daemon.stop() == 0, "it stops")
    finally:
        daemon.close()


def main():
    build = sys.argv[1]
    if os.geteuid() != 0:
        print("skipped: no root, to become users and to mount")
        return 77
    if len(sys.argv) > 2:
        in_the_journal(build)
        return 0
    each_kind_has_a_record(build)
    a_stranger_forges_nothing(build)
    a_flood_is_bounded(build)
    a_full_disk_stops_nothing(build)
    inside = subprocess.run(["unshare", "--mount", sys.executable, __file__, build, "--journal"], stdin=subprocess.DEVNULL, check=False)
    check(inside.returncode == 0, "the journal")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
