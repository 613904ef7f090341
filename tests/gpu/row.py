# SPDX-License-Identifier: Apache-2.0
"""One row of tests/gpu/run: a program that runs in a separate session until it ends or times out, and its result. If it
hangs, crashes or is killed, only its own row fails."""
import os
import re
import signal
import subprocess
import time

SKIPPED = 77
TEXT_BYTES = 3000


class Clock:
    """The remaining time of a whole run."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(self.end - time.monotonic(), 0.0)


def members(session):
    """Processes of a session that have not ended, in any process group."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    state_of, _, _, of = file.read().rsplit(")", 1)[1].split()[:4]
            except OSError:
                continue  # it has ended
            if int(of) == session and state_of not in "ZX":
                found.append(int(name))
    return found


def end(process):
    """The program and its descendants, except those that made another session."""
    for _ in range(3):  # processes started meanwhile are found the next time
        for pid in members(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    process.wait()


def execute(command, env, folder, log, seconds):
    """(exit status, None if it was killed; its output). The log gets the output at once."""
    with open(log, "ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        began = out.tell()
        process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(process)
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(began)
        return code, file.read()


def state(code):
    return "passed" if code == 0 else "skipped" if code == SKIPPED else "failed"


def why(code, seconds):
    if code is None:
        return f"ended after {seconds:.0f} s, its deadline"
    return f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def reason(text):
    """The last line except for counts: the reason of a skip."""
    lines = [line for line in text.strip().split("\n") if line and not re.match(r"\d+ passed", line)]
    return lines[-1][-300:] if lines else ""


def run(name, command, env, folder, log, seconds):
    """The row: name, state, seconds; counts if the program ends with them; text if it did not pass."""
    began = time.monotonic()
    try:
        code, text = execute(command, env, folder, log, seconds)
    except OSError as error:
        return {"name": name, "state": "failed", "seconds": 0.0, "text": str(error)}
    row = {"name": name, "state": state(code), "seconds": round(time.monotonic() - began, 1)}
    counts = re.findall(r"(\d+) passed, (\d+) failed, (\d+) skipped", text)
    if counts:
        row["passed"], row["failed"], row["skipped"] = map(int, counts[-1])
    if row["state"] == "failed":
        row["why"], row["text"] = why(code, seconds), text[-TEXT_BYTES:]
    elif row["state"] == "skipped":
        row["text"] = reason(text)
    return row
