#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an operator sees: rates, progress, limits, reports, tables that fit a terminal, `top` in one.

    check_operator.py BUILD TAKING_TRAINER [PART OF A TEST'S NAME]...
"""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from daemon import SLOW, Daemon

CTL = "client/stagerctl/stagerctl"
LIMIT_S = 60 * SLOW


def stagerctl(daemon, *arguments, status=0, **env):
    """The standard output of stagerctl; of a failure, standard error."""
    result = subprocess.run([os.path.join(daemon.build, CTL), *arguments], env={**daemon.env(), **env}, timeout=LIMIT_S,
                            capture_output=True, check=False)
    assert result.returncode == status, (arguments, result, daemon.log())
    return (result.stderr if status else result.stdout).decode()


def reply(daemon, *arguments):
    return json.loads(stagerctl(daemon, *arguments, "--json"))


def apply(daemon, text):
    path = os.path.join(daemon.folder, "pipeline.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    stagerctl(daemon, "apply", path)


@contextlib.contextmanager
def reading_trainer(daemon, name):
    """A trainer that takes and releases batches until it is killed."""
    process = subprocess.Popen([TRAINER, name, "reader"], env=daemon.env(), stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL)
    try:
        process.stdin.write(b"1000000000\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


STEADY = ("name: steady\ndataset: [{range: {stop: 1000000}}, {repeat: {}}, {batch: {batch_size: 8}}]\n"
          "staged: {capacity: 2}\n")


def status_shows_rates_while_a_trainer_reads(daemon):
    apply(daemon, STEADY)
    assert reply(daemon, "status", "steady")["rows_per_second"] is None
    with reading_trainer(daemon, "steady"):
        end = time.monotonic() + LIMIT_S
        status = {"rows_per_second": None}
        while not status["rows_per_second"]:
            assert time.monotonic() < end, status
            status = reply(daemon, "status", "steady")
        assert status["rows_per_second"] > 0 and 0 <= status["wait_share"] <= 1, status
        assert abs(status["rows_per_second"] / status["batches_per_second"] - 8) < 1, status
        line = [line for line in stagerctl(daemon, "status").splitlines() if line.startswith("steady ")][0]
        assert line.split()[1] == "running" and " %  " in line and "1 of 1" in line, line
        assert "\n  lately " in stagerctl(daemon, "status", "steady")
    end = time.monotonic() + LIMIT_S
    while reply(daemon, "status", "steady")["rows_per_second"] is not None:
        assert time.monotonic() < end
    stagerctl(daemon, "delete", "steady")


def tables_fit_the_terminal(daemon):
    """COLUMNS stands for the width of a terminal. Without either, lines have no limit."""
    name = "a-name-of-sixty-four-letters-" + "x" * 35
    apply(daemon, f"name: {name}\ndataset: [{{range: {{stop: 4}}}}, {{batch: {{batch_size: 2}}}}]\n")
    for width in (60, 80, 100):
        for command in ("list",), ("status",), ("status", name), ("versions", name), ("explain", name):
            out = stagerctl(daemon, *command, COLUMNS=str(width))
            rows = [row for row in out.splitlines() if not row.startswith(("stagerd ", name + ":"))]
            assert rows and max(map(len, rows)) <= width, (width, command, out)
    assert name in stagerctl(daemon, "list") and name in stagerctl(daemon, "status")
    assert max(map(len, stagerctl(daemon, "list").splitlines())) > 100
    stagerctl(daemon, "delete", name)


SLOW_SHUFFLE = """
name: filling
dataset:
  - range: {stop: 1000000}
  - map:
      graph: {late: {op: sleep, input: [value], sleep_microseconds: 2000}}
      output: late
  - shuffle: {buffer_size: 200000}
  - batch: {batch_size: 8}
"""


def status_shows_how_far_a_buffer_is(daemon):
    apply(daemon, SLOW_SHUFFLE)
    with reading_trainer(daemon, "filling"):
        end = time.monotonic() + LIMIT_S
        found = []
        while not found:
            assert time.monotonic() < end, daemon.log()
            found = reply(daemon, "status", "filling")["progress"]
        assert (found[0]["what"], found[0]["unit"], found[0]["total"]) == ("step shuffle (line 8)", "elements", 200000)
        assert found[0]["elapsed_seconds"] >= 2 and 0 < found[0]["done"] < 200000, found
        expected = found[0]["elapsed_seconds"] * (200000 - found[0]["done"]) / found[0]["done"]
        assert abs(found[0]["remaining_seconds"] - expected) <= 0.001 * expected, (found, expected)
        line = [line for line in stagerctl(daemon, "status").splitlines() if line.startswith("  filling ")][0]
        assert re.search(r"step shuffle \(line 8\): [\d.]+( k)? of 200 k elements, \d+/s, \d+ s left$", line), line
        assert "progress" in stagerctl(daemon, "status", "filling")
    stagerctl(daemon, "delete", "filling")


SLOW_MAP = """
name: slow
dataset:
  - range: {stop: 1000000}
  - repeat: {}
  - batch: {batch_size: 1}
graph:
  - {name: late, op: sleep, input: [value], sleep_microseconds: 20000}
staged: {features: {value: late}, num_threads: 1, capacity: 4}
"""


def explain_names_the_limit_and_what_a_perfect_loader_gives(daemon):
    """The trainer does nothing: it waits for almost all of its time, for a graph that sleeps."""
    apply(daemon, SLOW_MAP)
    assert "no trainer is attached" in stagerctl(daemon, "explain", "slow", "--ideal", "--seconds", "1", status=1)
    assert reply(daemon, "explain", "slow")["advice"]["limit"] == ""
    with reading_trainer(daemon, "slow"):
        end = time.monotonic() + LIMIT_S
        while reply(daemon, "explain", "slow")["bottleneck"] != "daemon CPU":
            assert time.monotonic() < end, reply(daemon, "explain", "slow")
        advice = reply(daemon, "explain", "slow")["advice"]
        assert advice["limit"] in ("runners", "cpu"), advice
        assert "  limit " in stagerctl(daemon, "explain", "slow")
        ideal = reply(daemon, "explain", "slow", "--ideal", "--seconds", "1")
        (trainer,) = ideal["trainers"]
        assert trainer["client_id"] == "reader" and trainer["batches"] > 0 and ideal["seconds"] >= 1, ideal
        share = trainer["wait_ns"] / 1e9 / ideal["seconds"]
        assert abs(trainer["wait_share"] - share) < 0.001 and trainer["wait_share"] > 0.5, ideal
        assert trainer["speedup"] is None or abs(trainer["speedup"] - share / (1 - share)) <= 0.01 * trainer["speedup"], ideal
        out = stagerctl(daemon, "explain", "slow", "--ideal", "--seconds", "1")
        assert "an estimate from the waits" in out and "PERFECT LOADER" in out and "\n  reader " in out, out
    assert "--seconds is for --ideal" in stagerctl(daemon, "explain", "slow", "--seconds", "1", status=2)
    stagerctl(daemon, "delete", "slow")


def explain_names_the_columns_that_are_read(daemon):
    data = os.path.join(daemon.folder, "wide.csv")
    with open(data, "w", encoding="utf-8") as file:
        file.write("a,b,c\n1,2,3\n")
    apply(daemon, f"""
name: wide
dataset:
  - files: {{pattern: "{data}"}}
  - csv: {{header: true, columns: {{a: int64, b: int64, c: int64}}}}
  - batch: {{batch_size: 1}}
staged: {{features: {{x: c, y: a}}}}
""")
    assert reply(daemon, "explain", "wide")["reads"] == ["csv reads 2 of 3: a, c"]
    assert "\n  columns     csv reads 2 of 3: a, c\n" in stagerctl(daemon, "explain", "wide")
    stagerctl(daemon, "delete", "wide")


def a_bugreport_has_no_data(daemon):
    path = os.path.join(daemon.folder, "rows.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write("1\nprivate-value\n3\n")
    apply(daemon, f"name: reported\ndataset: [{{files: {{pattern: ['{path}']}}}}, text_line, {{batch: {{batch_size: 1}}}}]\n"
          "graph: [{name: c, op: decode_csv, input: [record], record_defaults: [0]}]\nstaged: {features: {x: c}}\n")
    with reading_trainer(daemon, "reported"):
        end = time.monotonic() + LIMIT_S
        while "private-value" not in reply(daemon, "status", "reported")["last_error"]:
            assert time.monotonic() < end, daemon.log()
        text = stagerctl(daemon, "bugreport")
    assert "private-value" not in text and "***" in text, text
    for part in ("== machine", "== status of reported", "== bottleneck of reported", "== settings", "== log"):
        assert f"\n{part}" in text, (part, text)
    assert f"pid {daemon.process.pid}" in text and "last error" in text, text
    written = os.path.join(daemon.folder, "report")
    assert "Wrote" in stagerctl(daemon, "bugreport", "-o", written)
    with open(written, encoding="utf-8") as file:
        assert "== status of reported" in file.read()
    assert os.stat(written).st_mode & 0o777 == 0o600
    assert "cannot write" in stagerctl(daemon, "bugreport", "-o", daemon.folder + "/none/x", status=1)
    stagerctl(daemon, "delete", "reported")


WORDS = ['plain', 'quote" and \\', 'beep\x07', 'c1 \u009b', 'caf\u00e9', "x" * 100]
TAPPED = """
name: tapped
dataset:
  - files: {pattern: ["%s"]}
  - text_line
  - repeat: {}
  - batch: {batch_size: 6}
graph: [{name: size, op: string_length, input: [record]}]
staged: {features: {word: record, size: size}, capacity: 3}
"""


def tap_shows_published_batches_and_disturbs_no_client(daemon):
    path = os.path.join(daemon.folder, "words.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(word + "\n" for word in WORDS)
    apply(daemon, TAPPED % path)
    error = stagerctl(daemon, "tap", "tapped", "--seconds", "1", status=1)
    assert "DEADLINE_EXCEEDED: pipeline tapped published no batch" in error and "start a trainer" in error, error
    with reading_trainer(daemon, "tapped"):
        lines = stagerctl(daemon, "tap", "tapped", "--batches", "3", "--json").splitlines()
        batches = [json.loads(line) for line in lines]
        numbers = [batch["batch"] for batch in batches]
        assert numbers == sorted(set(numbers)) and len(numbers) == 3, numbers
        for batch in batches:
            assert (batch["schema_version"], batch["pipeline"], batch["rows"], batch["tensors_left_out"]) == (1, "tapped", 6, 0)
            assert batch["tensors"]["word"] == {"dtype": "string", "shape": [6], "complete": False,
                                                "values": WORDS[:5] + ["x" * 64]}, batch
            assert batch["tensors"]["size"]["values"] == [len(word.encode()) for word in WORDS], batch
            assert batch["tensors"]["size"]["complete"] and batch["tensors"]["size"]["shape"] == [6], batch
        text = stagerctl(daemon, "tap", "tapped", COLUMNS="80")
        assert max(map(len, text.splitlines())) <= 80 and "\x07" not in text and "\u009b" not in text, text
        flat = re.sub(r"\s+", "", text)
        assert '"beep\\x07"' in flat and '"c1\\xc2\\x9b"' in flat and '"caf\u00e9"' in flat, text
        status = reply(daemon, "status", "tapped")
        (client,) = status["clients"]
        assert (client["client_id"], client["violations"], client["gaps"], client["lost"]) == ("reader", 0, 0, 0), client
        assert status["dropped"] == status["errors"] == status["redelivered"] == 0 and status["capacity"] == 3, status
    stagerctl(daemon, "delete", "tapped")
    assert "NOT_FOUND" in stagerctl(daemon, "tap", "tapped", status=1)


def count_requests(daemon):
    return int(re.search(r"^stager_requests_total (\d+)$", stagerctl(daemon, "metrics"), re.M).group(1))


def tap_is_bounded_and_ends_with_the_pipeline(daemon):
    features = ", ".join(f"f{i:03}: value" for i in range(300))
    apply(daemon, "name: wide\ndataset: [{range: {stop: 1000}}, {repeat: {}}, {batch: {batch_size: 1000}}]\n"
          f"staged: {{features: {{{features}}}}}\n")
    with reading_trainer(daemon, "wide"):
        batch = reply(daemon, "tap", "wide")
    assert (len(batch["tensors"]), batch["tensors_left_out"], batch["rows"]) == (256, 44, 1000), batch
    assert batch["tensors"]["f255"] == {"dtype": "int64", "shape": [1000], "values": list(range(8)), "complete": False}
    apply(daemon, "name: asleep\ndataset: [{range: {stop: 4}}, {batch: {batch_size: 2}}]\n")
    before = count_requests(daemon)
    with subprocess.Popen([os.path.join(daemon.build, CTL), "tap", "asleep", "--seconds", "600"], env=daemon.env(),
                          stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as tap:
        end, n = time.monotonic() + LIMIT_S, 1
        while count_requests(daemon) < before + 2 * n + 2:  # hello and tap; each look is two itself
            assert time.monotonic() < end
            n += 1
        stagerctl(daemon, "delete", "asleep")
        error = tap.communicate(timeout=LIMIT_S)[1]
        assert tap.returncode == 1 and "ABORTED: pipeline asleep was replaced or deleted" in error, error
    stagerctl(daemon, "delete", "wide")


def drain_lets_clients_end_and_admits_no_others(daemon):
    apply(daemon, "name: drained\ndataset: [{range: {stop: 8}}, {repeat: {}}, {batch: {batch_size: 2}}]\n")
    path = os.path.join(daemon.folder, "pipeline.yaml")
    with reading_trainer(daemon, "drained"):
        end = time.monotonic() + LIMIT_S
        while reply(daemon, "status", "drained")["rows_per_second"] is None:
            assert time.monotonic() < end
        error = stagerctl(daemon, "drain", "--timeout", "1", status=1)
        assert "DEADLINE_EXCEEDED: 1 client is left" in error and "of pipeline drained;" in error, error
        before = reply(daemon, "status", "drained")["acknowledged"]
        for command in ("cat", "drained"), ("apply", path), ("rollback", "drained"):
            error = stagerctl(daemon, *command, status=1)
            assert "UNAVAILABLE: stagerd is draining" in error and "drain --disable" in error, (command, error)
        stagerctl(daemon, "check", path)
        assert "\nstager_draining 1\n" in stagerctl(daemon, "metrics")
        while reply(daemon, "status", "drained")["acknowledged"] == before:
            assert time.monotonic() < end  # the trainer goes on
        assert reply(daemon, "tap", "drained")["tensors"]["value"]["values"] in ([0, 1], [2, 3], [4, 5], [6, 7])
        drain = subprocess.Popen([os.path.join(daemon.build, CTL), "drain", "--json"], env=daemon.env(),
                                 stdout=subprocess.PIPE, text=True)
    out = json.loads(drain.communicate(timeout=LIMIT_S)[0])
    assert drain.returncode == 0 and (out["draining"], out["clients"]) == (True, 0) and out["waited_seconds"] >= 0, out
    if os.geteuid() == 0:
        another_user_cannot_drain(daemon)
    assert "admits clients and applies" in stagerctl(daemon, "drain", "--disable") and "\nstager_draining 0\n" in stagerctl(daemon, "metrics")
    assert "leave out --timeout" in stagerctl(daemon, "drain", "--disable", "--timeout", "1", status=2)
    stagerctl(daemon, "cat", "drained", "--limit", "1")
    stagerctl(daemon, "drain")
    assert daemon.stop() == 0, daemon.log()
    daemon.start()  # a restart ends it
    stagerctl(daemon, "apply", path)
    stagerctl(daemon, "delete", "drained")


def another_user_cannot_drain(daemon):
    for name in (daemon.folder, daemon.runtime_dir, os.path.join(daemon.runtime_dir, "attach.sock")):
        os.chmod(name, 0o777)
    for option in [], ["--disable"]:
        result = subprocess.run([daemon.copy_of(CTL), "drain", *option], env=daemon.env(), user=65534, group=65534,
                                extra_groups=[], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert result.returncode == 1 and "PERMISSION_DENIED: only root and the user of stagerd" in result.stderr, result


class Terminal:
    """stagerctl in a terminal: what it writes moves through a screen of characters."""

    def __init__(self, daemon, *arguments, width=80, height=24, **env):
        self.master, self.slave = pty.openpty()
        self.raw = b""
        self.resize(width, height)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([os.path.join(daemon.build, CTL), *arguments], stdin=self.slave,
                                        stdout=self.slave, stderr=self.slave, env={**daemon.env(), "TERM": "xterm", **env},
                                        start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, width, height):
        self.lines = [""] * height
        self.row = 0
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys):
        os.write(self.master, keys)

    def take(self, text):
        """Home, a line with its end cleared, the next line, the rest cleared: no other movement is there."""
        for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\r\n|[^\x1b\r\n]+", text):
            if part == "\x1b[H":
                self.row, self.fresh = 0, ""
            elif part == "\r\n":
                self.row, self.fresh = self.row + 1, ""
            elif part == "\x1b[K":
                self.lines[self.row] = self.fresh
            elif part[0] != "\x1b":
                self.fresh += part
            else:
                assert part == "\x1b[J" or part[-1] in "mhl", part

    def wait_for(self, found):
        """Reads until a whole frame is what is wanted."""
        end = time.monotonic() + LIMIT_S
        pending = b""
        while True:
            assert time.monotonic() < end, self.lines
            if select.select([self.master], [], [], 0.1)[0]:
                chunk = os.read(self.master, 65536)
                self.raw += chunk
                pending += chunk
            while b"\x1b[J" in pending:
                frame, pending = pending.split(b"\x1b[J", 1)
                frame = frame[frame.rfind(b"\x1b[H"):]
                with contextlib.suppress(IndexError):  # of the size before
                    self.take(frame.decode())
                if found(self.lines):
                    return self.lines

    def end(self):
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end
            if select.select([self.master], [], [], 0.1)[0]:
                self.raw += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.raw += os.read(self.master, 65536)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is as it was"
        return self.process.returncode


def top_in_a_terminal(daemon):
    apply(daemon, STEADY)
    apply(daemon, "name: quiet\ndataset: [{range: {stop: 4}}, {batch: {batch_size: 2}}]\n")
    with reading_trainer(daemon, "steady"), Terminal(daemon, "top") as top:
        lines = top.wait_for(lambda lines: " %" in "".join(lines))
        assert lines[0] == f"stagerd {reply(daemon, 'version')['release']}, pid {daemon.process.pid}; 2 pipelines"
        assert lines[1].split() == ["NAME", "STATE", "BATCHES/S", "ROWS/S", "WAIT", "CLIENTS", "QUEUE", "MEMORY"]
        assert lines[2].startswith("> quiet ") and lines[3].startswith("  steady "), lines
        assert lines[3].split()[1] == "running" and "1/1" in lines[3].split(), lines
        assert set(lines[4:23]) == {""} and "q ends" in lines[23] and lines[23].startswith("by NAME"), lines
        assert max(map(len, lines)) <= 80 and b"\x1b[7m" in top.raw, lines
        top.press(b"r")
        top.wait_for(lambda lines: lines[2].startswith("> steady ") and lines[3].startswith("  quiet ")
                     and lines[23].startswith("by ROWS/S"))
        top.press(b"n\x1b[B")
        top.wait_for(lambda lines: lines[3].startswith("> steady "))
        top.press(b"\r")
        lines = top.wait_for(lambda lines: lines[0] == "stagerctl top steady")
        assert lines[1].startswith("  held up by  ") and lines[23].startswith("up and down"), lines
        assert any(line.startswith("  buffer ") for line in lines), lines
        top.press(b"jj")
        top.wait_for(lambda lines: not lines[1].startswith("  held up by  "))
        top.resize(100, 40)
        top.wait_for(lambda lines: lines[39].startswith("up and down"))
        top.press(b"\x1b")
        top.wait_for(lambda lines: lines[0].startswith("stagerd ") and "q ends" in lines[39])
        top.press(b"q")
        assert top.end() == 0
        assert top.raw.startswith(b"\x1b[?1049h\x1b[?25l") and top.raw.endswith(b"\x1b[?25h\x1b[?1049l"), top.raw[-80:]
        assert b"\x1b[2J" not in top.raw
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with Terminal(daemon, "top", NO_COLOR="1") as top:
            top.wait_for(lambda lines: "q ends" in lines[23])
            top.process.send_signal(number)
            assert top.end() == 0
            assert top.raw.endswith(b"\x1b[?1049l") and b"m" not in re.findall(rb"\x1b\[[0-9;]*([A-Za-z])", top.raw)
    stagerctl(daemon, "delete", "quiet")


def top_without_a_terminal(daemon):
    frames = stagerctl(daemon, "top", "--count", "2").split("\n\n")
    assert len(frames) == 3 and frames[2] == "" and "\x1b" not in frames[0], frames
    for frame in frames[:2]:
        assert frame.splitlines()[1].split()[0] == "NAME" and frame.splitlines()[2].startswith("steady "), frame
    assert "held up by" in stagerctl(daemon, "top", "steady", "--count", "1")
    assert "did you mean steady?" in stagerctl(daemon, "top", "stedy", "--count", "1", status=1)
    assert "INVALID_ARGUMENT" in stagerctl(daemon, "top", "--json", status=2)
    stagerctl(daemon, "delete", "steady")


TESTS = [status_shows_rates_while_a_trainer_reads, tables_fit_the_terminal, status_shows_how_far_a_buffer_is,
         explain_names_the_limit_and_what_a_perfect_loader_gives, explain_names_the_columns_that_are_read,
         a_bugreport_has_no_data,
         tap_shows_published_batches_and_disturbs_no_client, tap_is_bounded_and_ends_with_the_pipeline,
         drain_lets_clients_end_and_admits_no_others,
         top_in_a_terminal, top_without_a_terminal]

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    TRAINER = sys.argv[2]
    with Daemon(sys.argv[1]) as one:
        for test in TESTS:
            if any(part in test.__name__ for part in sys.argv[3:] or [""]):
                test(one)
                print("ok  ", test.__name__, flush=True)
        assert one.stop() == 0, one.log()
