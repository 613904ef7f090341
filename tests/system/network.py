# SPDX-License-Identifier: Apache-2.0
"""A network for tests: its hosts are network namespaces, and its switch is a thread of the test that delays frames, loses
some by a seed, and parts hosts. Needs root, iproute2 and /dev/net/tun; nothing of the machine's own network, and no module
of the kernel. All of it ends with the test's process: an interface with its descriptor, a namespace with its processes.

    with Network(seed, delay_ms=2, loss=0.01) as network:
        a, b = network.host(), network.host()
        subprocess.Popen([*a.prefix, "server", a.address])
        network.part(a, b)
"""
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
MTU = 9000
TOOLS = ("ip", "nsenter", "unshare")
_libc = ctypes.CDLL(None, use_errno=True)


def missing():
    """What a network needs and is not there, as a reason to skip the test; None: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"no {tool} (iproute2, util-linux)"
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        return "no network namespace can be made here"
    return None


class Host:
    """A namespace with the interface eth0. `prefix` + command runs a program there; the process keeps its pid."""

    def __init__(self, number):
        self.address = f"10.77.0.{number + 1}"
        self.mac = b"\x02\0\0\0\0" + bytes([number + 1])
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.path = f"/proc/{self.holder.pid}/ns/net"
        self.prefix = ["nsenter", f"--net={self.path}", "--"]
        self.tap = self.inside(self._make_interface)
        commands = (f"link set lo up\nlink set eth0 address {self.mac.hex(':')} mtu {MTU} up\n"
                    f"addr add {self.address}/24 dev eth0\n")
        subprocess.run([*self.prefix, "ip", "-batch", "-"], input=commands, text=True, check=True)

    @staticmethod
    def _make_interface():
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
        return tap

    def inside(self, function):
        """What the function returns, called in the namespace."""
        results = []

        def enter():
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _libc.setns(fd, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                results.append((function(), None))
            except Exception as error:  # pylint: disable=broad-except
                results.append((None, error))
            finally:
                os.close(fd)
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        value, error = results[0]
        if error is not None:
            raise error
        return value

    def close(self):
        os.close(self.tap)
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()


class Network:
    def __init__(self, seed, delay_ms=0.0, loss=0.0):
        self.delay_ms, self.loss = delay_ms, loss
        self.hosts, self.n_sent, self.n_lost = [], 0, 0
        self._parted, self._random, self._count = set(), random.Random(seed), itertools.count()
        self._lock = threading.Lock()  # of the hosts and of what is parted
        self._epoll = select.epoll()
        self._waker, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._waker, select.EPOLLIN)
        self._thread = threading.Thread(target=self._switch, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def host(self):
        host = Host(len(self.hosts))
        with self._lock:
            self.hosts.append(host)
        self._epoll.register(host.tap, select.EPOLLIN)
        return host

    def part(self, host, *others):
        """Loses all frames between the host and the others (none given: all others), in both directions."""
        with self._lock:
            self._parted |= {frozenset((host, other)) for other in others or self.hosts if other is not host}

    def join(self):
        """Ends all partitions."""
        with self._lock:
            self._parted.clear()

    def close(self):
        os.write(self._wake, b"x")
        self._thread.join()
        self._epoll.close()
        for host in self.hosts:
            host.close()
        os.close(self._wake)
        os.close(self._waker)

    # ---- the switch ----

    def _take(self, source, queue):
        """Queues the frames of a host, in their order."""
        while True:
            try:
                frame = os.read(source.tap, MTU + 64)
            except BlockingIOError:
                return
            with self._lock:
                to = [host for host in self.hosts if host is not source and (frame[0] & 1 or host.mac == frame[:6])]
                parted = {host for host in to if frozenset((source, host)) in self._parted}
            for host in to:
                self.n_sent += 1
                if host in parted or self._random.random() < self.loss:
                    self.n_lost += 1
                else:
                    heapq.heappush(queue, (time.monotonic() + self.delay_ms / 1000, next(self._count), host, frame))

    @staticmethod
    def _deliver(queue):
        """Delivers what is due. Returns how many seconds later the next frame is; None: there is none."""
        while queue and queue[0][0] <= time.monotonic():
            _, _, host, frame = heapq.heappop(queue)
            try:
                os.write(host.tap, frame)
            except BlockingIOError:
                pass  # lost
        return max(queue[0][0] - time.monotonic(), 0) if queue else None

    def _switch(self):
        queue, wait = [], None
        while True:
            ready = {fd for fd, _ in self._epoll.poll(wait)}
            if self._waker in ready:
                return
            with self._lock:
                sources = [host for host in self.hosts if host.tap in ready]
            for source in sources:
                self._take(source, queue)
            wait = self._deliver(queue)
