# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of a contestant, over a process and all its descendants. All figures come from /proc, so no
contestant reports about itself."""
import os
import platform
import signal
import threading
import time

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def tree(pid):
    """pid and its existing descendants."""
    found, at = [pid], 0
    while at < len(found):
        try:
            for task in os.listdir(f"/proc/{found[at]}/task"):
                with open(f"/proc/{found[at]}/task/{task}/children", encoding="ascii") as file:
                    found += [int(child) for child in file.read().split()]
        except OSError:
            pass
        at += 1
    return found


def _cpu_of(pid):
    """Time of all its threads, ended ones included, and of the children that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return time.clock_gettime(~pid << 3 | 2) + (int(fields[13]) + int(fields[14])) * TICK_S
    except OSError:
        return 0.0


def cpu_s(pid):
    return sum(_cpu_of(one) for one in tree(pid))


def pss_bytes(pid, with_root=True):
    """Proportional set size of anonymous or shared memory: a page that n processes share counts 1/n for each, so that
    the sum over a tree counts every page once. File pages do not count: they are the code of libraries, which resting
    contestants share, and the page cache."""
    total = 0
    for one in tree(pid)[0 if with_root else 1:]:
        try:
            with open(f"/proc/{one}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) * 1024
        except OSError:
            pass
    return total


def freeze(pid):
    """Contestants rest during another one's turn."""
    for one in tree(pid):
        _signal(one, signal.SIGSTOP)


def thaw(pid):
    for one in reversed(tree(pid)):
        _signal(one, signal.SIGCONT)


def end(pid):
    for one in reversed(tree(pid)):
        _signal(one, signal.SIGKILL)


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Peak:
    """The peak memory of a tree of processes while the block runs, sampled."""

    INTERVAL_S = 0.2

    def __init__(self, pid, with_root=True):
        self.pid, self.with_root, self.bytes = pid, with_root, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self._over.wait(self.INTERVAL_S):
            self.bytes = max(self.bytes, pss_bytes(self.pid, self.with_root))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self.bytes = max(self.bytes, pss_bytes(self.pid, self.with_root))


def describe():
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as info:
        memory = int(info.readline().split()[1]) / 2**20
    return f"{len(os.sched_getaffinity(0))} x {model}, {memory:.0f} GiB, Linux {platform.release()}, " \
           f"Python {platform.python_version()}"
