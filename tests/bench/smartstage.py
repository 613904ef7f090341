#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_smartstage on a quiet machine, with one core busy, and under a CPU quota; then a table of all figures.

    smartstage.py BUILD [--minutes 130] [--conditions quiet,busy,quota] [--graphs dien,criteo] [--quota CPUS]

--minutes: of all conditions together. 130 give each variant of a graph a run of 60 s in each condition; the shares of
trials, which take a part of the time, grow in shorter runs. quota: a control group if one with a quota can be made
below /sys/fs/cgroup, else a stand-in that stops the processes for the rest of each 100 ms once they have used their
share. The last line is one JSON object; `auto_over_off_low` and the like are lower bounds of 95 % confidence intervals.
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

PERIOD_S, LOOK_S = 0.1, 0.004
KEYS = ("auto_over_off", "first_over_off", "auto_over_best")
GOALS = {"auto_over_off": 0.99, "first_over_off": 0.95, "auto_over_best": 0.97}


@contextlib.contextmanager
def nothing(_):
    yield None


@contextlib.contextmanager
def one_busy_core(_):
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
    try:
        yield None
    finally:
        process.kill()
        process.wait()


def make_group(folder, files):
    """The control group with these settings, or None."""
    try:
        os.mkdir(folder)
        for name, text in files.items():
            with open(os.path.join(folder, name), "r+", encoding="ascii") as file:
                file.write(str(text))
        return folder
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        return None


@contextlib.contextmanager
def quota(cpus):
    """Yields the control group, or None: then the stand-in has to hold the process back."""
    share, period = int(cpus * PERIOD_S * 1e6), int(PERIOD_S * 1e6)
    name = f"stager-bench-{os.getpid()}"
    folder = make_group(f"/sys/fs/cgroup/{name}", {"cpu.max": f"{share} {period}"}) or make_group(
        f"/sys/fs/cgroup/cpu/{name}", {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": share})
    try:
        yield folder
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def cpu_clock(pid):
    return ~pid << 3 | 2  # as clock_getcpuclockid(3)


def members(group):
    """The processes of a process group."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[2]) == group:
                        yield int(name)


class HoldBack(threading.Thread):
    """The stand-in for a quota: the process group may use so many CPUs within each period."""

    def __init__(self, group, cpus):
        super().__init__(daemon=True)
        self.group, self.share_s, self.over = group, cpus * PERIOD_S, threading.Event()
        self.used, self.before = 0.0, {}

    def look(self, pids):
        for pid in pids:
            with contextlib.suppress(OSError):
                now = time.clock_gettime(cpu_clock(pid))
                self.used += now - self.before.get(pid, now)
                self.before[pid] = now

    def run(self):
        while not self.over.is_set():
            end, pids, self.used = time.monotonic() + PERIOD_S, list(members(self.group)), 0.0
            stopped = False
            while time.monotonic() < end and not self.over.is_set():
                self.look(pids)
                if self.used >= self.share_s and not stopped:
                    self.signal(signal.SIGSTOP)
                    stopped = True
                self.over.wait(min(LOOK_S, max(0, end - time.monotonic())))
            if stopped:
                self.signal(signal.SIGCONT)

    def signal(self, number):
        with contextlib.suppress(OSError):
            os.killpg(self.group, number)


CONDITIONS = {"quiet": nothing, "busy": one_busy_core, "quota": quota}


def run(args, condition, seconds):
    command = [os.path.join(args.build, "tests/bench/bench_smartstage"), "--json", "--seconds", f"{seconds:.0f}"]
    env = dict(os.environ, **({"STAGER_BENCH_GRAPHS": args.graphs} if args.graphs else {}))
    with CONDITIONS[condition](args.quota) as folder:
        def begin():
            os.setsid()
            if folder is not None:
                with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))
        # pylint: disable=subprocess-popen-preexec-fn
        with subprocess.Popen(command, env=env, preexec_fn=begin, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            hold = HoldBack(process.pid, args.quota) if condition == "quota" and folder is None else None
            if hold is not None:
                hold.start()
            lines = []
            for line in process.stdout:
                lines.append(line)
                if not line.startswith("{"):
                    print(f"  {line.rstrip()}", flush=True)
            if hold is not None:
                hold.over.set()
                hold.join()
    if process.returncode != 0:
        sys.exit(f"bench_smartstage ended with {process.returncode}")
    found = json.loads(lines[-1])
    found["by"] = {"quota": f"{args.quota:g} CPUs, {'control group' if folder else 'stand-in'}", "busy": "one core"}.get(condition, "")
    return found


def table(found):
    """Mean and lower bound of each graph in each condition; a bound below its goal is marked."""
    for key in KEYS:
        print(f"\n{key}: mean, at least (95 %); * is below {GOALS[key]}")
        print(f"  {'':16}" + "".join(f"{name:>18}" for name in found))
        for i, point in enumerate(next(iter(found.values()))["points"]):
            cells = [result["points"][i] for result in found.values()]
            print(f"  {point['graph']:16}" + "".join(
                f"{c[key]:>10.3f}{c[key + '_low']:>7.3f}{'*' if c[key + '_low'] < GOALS[key] else ' '}" for c in cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--minutes", type=float, default=130)
    parser.add_argument("--conditions", default=",".join(CONDITIONS))
    parser.add_argument("--graphs")
    parser.add_argument("--quota", type=float, default=max(1, (os.cpu_count() or 1) / 2))
    args = parser.parse_args()
    wanted = args.conditions.split(",")
    for name in wanted:
        if name not in CONDITIONS:
            parser.error(f"no condition {name}: the conditions are {', '.join(CONDITIONS)}")
    found = {}
    for name in wanted:
        print(f"{name}, load {os.getloadavg()[0]:.2f}", flush=True)
        found[name] = run(args, name, args.minutes * 60 / len(wanted))
    table(found)
    print(json.dumps({"bench": "smartstage", "conditions": found,
                      **{key + "_low": min(f[key + "_low"] for f in found.values()) for key in KEYS}}))


if __name__ == "__main__":
    main()
