# SPDX-License-Identifier: Apache-2.0
"""The control daemon of MPS (CUDA's Multi-Process Service) as a child of a test, with separate folders.

    with Mps() as mps:
        if mps.unavailable: …                  the reason
        subprocess.run(…, env={**os.environ, **mps.env})

Every wait has a deadline: a process that does not answer is ended, by its id.
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time

import toolkit

PROGRAM = "nvidia-cuda-mps-control"
ELSEWHERE = toolkit.DRIVER_PROGRAMS
START_S, ASK_S, QUIT_S = 20, 5, 15


def find():
    return shutil.which(PROGRAM, path=os.environ.get("PATH", "") + os.pathsep + ELSEWHERE)


def descendants(pid):
    """The descendants of process pid."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    children.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
            except OSError:
                pass  # it has ended
    found = list(children.get(pid, []))
    for child in found:
        found.extend(children.get(child, []))
    return found


class Mps:
    def __init__(self):
        self.program = find()
        self.folder = tempfile.mkdtemp(prefix="stg-mps-")
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}
        self.unavailable = "" if self.program else f"no {PROGRAM}"
        self.process = None

    def _env(self):
        """The daemon starts a server, which is found on PATH, and loads the driver."""
        env = toolkit.with_libraries({**os.environ, **self.env})
        return {**env, "PATH": env.get("PATH", os.defpath) + os.pathsep + ELSEWHERE}

    def _ask(self, command, seconds):
        """Returns whether the daemon accepts the command in time."""
        try:
            return subprocess.run([self.program], env=self._env(), input=command + "\n", text=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds,
                                  check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _start(self):
        """The reason why it does not run; "" if it runs."""
        path = os.path.join(self.folder, "said")
        with open(path, "wb") as said:
            self.process = subprocess.Popen([self.program, "-f"], env=self._env(), stdin=subprocess.DEVNULL,
                                            stdout=said, stderr=said, start_new_session=True)
        end = time.monotonic() + START_S
        while self.process.poll() is None and time.monotonic() < end:
            if self._ask("get_server_list", ASK_S):
                return ""
            time.sleep(0.1)
        with open(path, encoding="utf-8", errors="replace") as file:
            said = file.read().strip()[-500:]
        ended = self.process.poll()
        how = f"does not answer within {START_S} s" if ended is None else f"ended with {ended}"
        return f"{PROGRAM} {how}" + (f": {said}" if said else "")

    def __enter__(self):
        if self.program:
            self.unavailable = self._start()
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self):
        """Its servers are separate processes and normally end with it; otherwise both are ended."""
        if self.process.poll() is None and self._ask("quit", ASK_S):
            try:
                self.process.wait(QUIT_S)
            except subprocess.TimeoutExpired:
                pass
        if self.process.poll() is None:
            for pid in [*descendants(self.process.pid), self.process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()
