#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerd takes the socket that systemd opened for it (stagerd.socket); here the test opens it.

    check_activation.py BUILD
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

SLOW = max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)
LIMIT_S = 20 * SLOW
# As in sd_listen_fds(3): descriptors from 3 on, and the pid of their receiver.
HAND_OVER = """
import fcntl, os, sys
high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, 64) for fd in sys.argv[1].split(",")]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
os.closerange(3 + len(high), 64)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Case:
    """Folders for one stagerd."""

    def __init__(self, build, folder):
        self.stagerd = os.path.join(build, "daemon/stagerd")
        self.stagerctl = os.path.join(build, "client/stagerctl/stagerctl")
        self.run_dir = os.path.join(folder, "run")
        self.path = os.path.join(self.run_dir, "attach.sock")
        self.config = os.path.join(folder, "stagerd.yaml")
        folders = {"runtime_dir": "run", "state_dir": "state", "pipeline_dir": "pipelines"}
        with open(self.config, "w", encoding="utf-8") as file:
            for key, name in folders.items():
                os.mkdir(os.path.join(folder, name))
                file.write(f"{key}: {json.dumps(os.path.join(folder, name))}\n")

    def start(self, *socks):
        """Starts stagerd with these sockets, like systemd."""
        fds = [sock.fileno() for sock in socks]
        return subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, ",".join(map(str, fds)), self.stagerd, "--config",
             self.config], pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)

    def list(self):
        return subprocess.Popen([self.stagerctl, "list", "--json", "--runtime-dir", self.run_dir],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def listen(path, kind=socket.SOCK_SEQPACKET):
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(path)
    sock.listen(8)
    return sock


def said_by(process, status):
    """The output of a process until its end."""
    try:
        said = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[0] + f"\n(killed after {LIMIT_S} s)"
    assert process.returncode == status, f"{process.args}: {process.returncode}\n{said}"
    return said


def stop(process):
    process.send_signal(signal.SIGTERM)
    return said_by(process, 0)


def a_client_that_connects_before_the_start_is_served_and_the_socket_stays(case):
    with listen(case.path) as sock:
        for _ in range(2):
            waiting = case.list()
            daemon = case.start(sock)
            try:
                assert json.loads(said_by(waiting, 0))["pipelines"] == []
            finally:
                said = stop(daemon)
            assert f"ready on {case.path} (of systemd)" in said, said
            assert os.listdir(case.run_dir) == ["attach.sock"], os.listdir(case.run_dir)


def a_socket_elsewhere_is_taken_with_a_warning(case):
    path = case.path + ".other"
    with listen(path) as sock:
        daemon = case.start(sock)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.connect(path)
            probe.settimeout(LIMIT_S)
            probe.send(b"not a message")
            probe.recv(1)
        said = stop(daemon)
    assert f"listens on {path}, but clients look at {case.path}" in said, said


def what_is_no_such_socket_is_refused(case):
    for kinds in ([socket.SOCK_STREAM], [socket.SOCK_SEQPACKET] * 2):
        socks = [listen(f"{case.path}.{i}", kind) for i, kind in enumerate(kinds)]
        said = said_by(case.start(*socks), 1)
        assert "needs one listening socket" in said and "ListenSequentialPacket=" in said, said
        for sock in socks:
            os.unlink(sock.getsockname())
            sock.close()
        assert os.listdir(case.run_dir) == [], os.listdir(case.run_dir)


def main(build):
    cases = [a_client_that_connects_before_the_start_is_served_and_the_socket_stays,
             a_socket_elsewhere_is_taken_with_a_warning, what_is_no_such_socket_is_refused]
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="stg-activation-") as folder:
            try:
                case(Case(os.path.abspath(build), folder))
                print(f"ok   {case.__name__}")
            except AssertionError as error:
                failed += 1
                print(f"FAIL {case.__name__}: {error}")
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
