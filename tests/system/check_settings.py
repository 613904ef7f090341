#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages of stagerd about wrong settings, about folders that another daemon has locked, and about a limit
of descriptors that is too small.

    check_settings.py BUILD
"""
import contextlib
import os
import socket
import subprocess
import sys
import tempfile

from daemon import SLOW, Daemon, check, write

PIPELINE = """name: %s
dataset:
  - range: {start: 0, stop: 10}
  - batch: {batch_size: 10}
graph:
  - {name: x, op: cast, input: [value], dtype: float32}
staged: {features: {x: x}}
"""
LIMIT_S = 20 * SLOW


def stagerd(build, *arguments, **environment):
    """Runs stagerd until it ends by itself; exit status, standard output and error."""
    env = {key: value for key, value in os.environ.items() if key != "STAGER_RUNTIME_DIR"}
    result = subprocess.run([os.path.join(build, "daemon/stagerd"), *arguments], capture_output=True,
                            text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                            env={**env, **environment})
    return result.returncode, result.stdout, result.stderr


def check_mistakes(build, folder):
    """Each mistake is reported with its line. A pipeline with an error is reported and does not count as a mistake in
    the settings."""
    config = os.path.join(folder, "stagerd.yaml")
    pipelines = os.path.join(folder, "pipelines")
    os.mkdir(pipelines)
    good = f"runtime_dir: {folder}/run\nstate_dir: {folder}/state\npipeline_dir: {pipelines}\n"
    write(config, good)
    check(stagerd(build, "--check-config", "--config", config) == (0, f"{config}: ok\n", ""), "good settings")
    check(not os.path.exists(f"{folder}/run"), "a check makes no folders")
    for line, words in (
            ("max_clients: many", ":4:14: max_clients"),
            ("max_client: 4", ':4:1: unknown key "max_client"'),
            ("log_level: loud", ':4: log_level: "loud" is not one of'),
            ("access_group: nobodys-group", ":4: access_group: there is no group nobodys-group"),
            ("quotas: [{user: nobodys-user, clients: 1}]", ":4: quotas: quotas[0]: user nobodys-user does not exist"),
            ("quotas: [{user: '7'}, {user: '7'}]", ":4: quotas: quotas[1]: user 7 has an entry already"),
            ("rules: {see: {users: [nobodys-user]}}", ":4: rules: rules.see: user nobodys-user does not exist"),
            ("rules: {read: {paths: [data]}}", ":4: paths: data is not an absolute path"),
            ("rules: {read: {urls: [data]}}", ":4: urls: data is not a URL"),
            ("thread_pools: [{global_name: io, cpus: '99999'}]", ":4: thread_pools: "),
            ("remote: {cache_dir: /dev/null/cache}", ":4: cache_dir: /dev/null is not a directory"),
            ("remote: {stores: [{prefix: 's3://b/', credentials_file: /nowhere/keys}]}",
             ":4: credentials_file: of prefix s3://b/: /nowhere/keys: No such file"),
    ):
        write(config, good + line + "\n")
        status, out, err = stagerd(build, "--check-config", "--config", config)
        check((status, out) == (1, "") and config + words in err, f"{line}: {status} {err}")
    write(config, good.replace(f"{folder}/run", "/dev/null/run"))
    check(f"{config}:1: runtime_dir: /dev/null is not a directory" in stagerd(build, "--check-config", "--config", config)[2], "runtime_dir")
    write(config, good)
    write(os.path.join(pipelines, "p.yaml"), PIPELINE.replace("range", "rang") % "p")
    status, out, err = stagerd(build, "--check-config", "--config", config)
    check(status == 0 and "p.yaml:3:" in err and "does not load" in err and "ok" in out, f"a pipeline: {status} {err}")


def check_state_folder(build, folder):
    """Two daemons do not share a state folder, which follows STAGER_RUNTIME_DIR."""
    with Daemon(build) as first:
        config = os.path.join(folder, "second.yaml")
        write(config, f"runtime_dir: {folder}/second\nstate_dir: {first.folder}/state\n")
        status, _, err = stagerd(build, "--config", config)
        for words in (f"another stagerd (pid {first.process.pid}, runtime_dir {first.runtime_dir})",
                      f"state_dir {first.folder}/state", "set another state_dir"):
            check(status == 1 and words in err, f"{words}: {status} {err}")
        check(first.stop() == 0, "the first one ends")
    home = os.path.join(folder, "home")
    daemons = [Own(build, home, os.path.join(folder, name)) for name in ("a", "b")]
    for daemon in daemons:
        with daemon:
            path = os.path.join(folder, "p.yaml")
            write(path, PIPELINE % "p")
            daemon.ctl("apply", path)
            check(os.path.exists(os.path.join(daemon.runtime_dir, "state/pipelines/p.yaml")), "the state folder")
    check(not os.path.exists(os.path.join(home, ".local")), "the state folder at home")


class Own(Daemon):
    """A daemon without a settings file, in the folder that the environment names."""

    def __init__(self, build, home, runtime_dir):
        super().__init__(build)
        self.home, self.runtime_dir = home, runtime_dir
        os.makedirs(home, exist_ok=True)

    def start(self):
        environment = {"HOME": self.home, "STAGER_RUNTIME_DIR": self.runtime_dir}
        with open(self.log_path, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([os.path.join(self.build, "daemon/stagerd")], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_until_it_answers()


class Small(Daemon):
    """A daemon with few descriptors."""

    def start(self):
        with open(self.log_path, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", "ulimit -Sn 32; ulimit -Hn 64; exec \"$@\"", "sh",
                 os.path.join(self.build, "daemon/stagerd"), "--config", self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_until_it_answers()


# Request {number: 1, hello: {min_version: 2, max_version: 2, client: "test"}}, as bytes.
HELLO = b"\x08\x01\x12\x0a\x08\x02\x10\x02\x1a\x04test"
REFUSED = b"file descriptors in use"


def fill(daemon, stack):
    """Makes connections, which the daemon answers and keeps, until it refuses one."""
    for _ in range(64):
        probe = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        probe.settimeout(LIMIT_S)
        probe.connect(os.path.join(daemon.runtime_dir, "attach.sock"))
        with contextlib.suppress(BrokenPipeError):  # refused before it sent anything
            probe.send(HELLO)
        try:
            reply = probe.recv(4096)
        except ConnectionResetError:  # it was closed unread; the reply follows
            reply = probe.recv(4096)
        if REFUSED in reply:
            return
    check(False, f"64 connections with 64 descriptors\n{daemon.log()}")


def check_files(build):
    """The daemon raises the limit as far as allowed. A trainer that is refused for want of descriptors gets the
    reason."""
    with Small(build) as daemon:
        with contextlib.ExitStack() as stack:
            fill(daemon, stack)
            result = daemon.run("client/stagerctl/stagerctl", "list")
        check(result.returncode == 1 and b"RESOURCE_EXHAUSTED: stagerd has all of its 64 file descriptors in use: "
              b"set LimitNOFILE=" in result.stderr, f"{result.stderr}\n{daemon.log()}")
        check("nearly all descriptors" not in daemon.log(), daemon.log())
        daemon.stop()
        check("64 file descriptors (the hard limit) are fewer than the 4160 of max_clients 1024: set "
              "LimitNOFILE=4160" in daemon.log(), daemon.log())


def main(build):
    with tempfile.TemporaryDirectory(prefix="stg-settings-") as folder:
        check_mistakes(build, folder)
        check_state_folder(build, folder)
    check_files(build)
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1])
