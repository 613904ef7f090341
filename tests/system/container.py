# SPDX-License-Identifier: Apache-2.0
"""A real systemd in a container, with one service.

    with Container(root, trees, files) as container:
        status, said, log = container.boot(command)

The container's root is the folder `root` ("/": the machine's) below an overlay in memory: a test writes only to
memory. `trees` are further folders, each below an overlay, `files` {path: text} of the root. The folder
container.out is /run/boot there. All processes run in namespaces and in a control group of this test. A janitor, a
process beside the test, waits for the test's end, even by SIGKILL. It then ends the processes left in that
group and removes the group and the folder.

Skip is raised if no container can boot: no root, no systemd-nspawn, no namespaces, no writable control group.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
SLOW = max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)
BOOT_S = 90 * SLOW
NEEDED = {"systemd-nspawn": "systemd-container", "unshare": "util-linux"}
UNIT = """[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
StandardOutput=append:/run/boot/log
StandardError=append:/run/boot/log
ExecStart={command}
"""


class Skip(Exception):
    """The reason why no container can boot here."""


# ---- control groups -------------------------------------------------------------------------

def own_groups():
    """The folders of this process's control groups that systemd uses: its named one, and version 2."""
    mounts = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            left, right = line.rstrip("\n").split(" - ")
            root, point = left.split()[3:5]
            kind, _, options = right.split()[:3]
            if kind == "cgroup2":
                mounts[""] = (root, point)
            elif kind == "cgroup" and "name=systemd" in options.split(","):
                mounts["name=systemd"] = (root, point)
    groups = []
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, name, path = line.rstrip("\n").split(":", 2)
            if name in mounts:
                root, point = mounts[name]
                path = os.path.relpath(path, root) if path.startswith(root) else path.lstrip("/")
                groups.append(os.path.normpath(os.path.join(point, path)))
    if not groups:
        raise Skip("there is no control group of systemd's (cgroup2, or name=systemd)")
    return groups


def make_groups():
    made = []
    try:
        for group in own_groups():
            path = os.path.join(group, f"stager-boot-{os.getpid()}")
            os.mkdir(path)
            made.append(path)
    except OSError as error:
        remove_groups(made)
        raise Skip(f"no control group can be made: {error}") from None
    return made


def members(group):
    pids = []
    for folder, _, _ in os.walk(group):
        try:
            with open(os.path.join(folder, "cgroup.procs"), encoding="utf-8") as file:
                pids += [int(line) for line in file]
        except OSError:
            continue
    return [pid for pid in pids if pid > 0]


def remove_groups(groups):
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


def end_groups(groups, limit_s=20):
    """Kills the processes in the groups, and removes the groups; False if that failed in time."""
    end = time.monotonic() + limit_s
    while any(os.path.isdir(group) for group in groups) and time.monotonic() < end:
        for pid in {pid for group in groups for pid in members(group)}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        remove_groups(groups)
        time.sleep(0.02)
    return not any(os.path.isdir(group) for group in groups)


def start_janitor(groups, folder):
    """(pid of the janitor, descriptor to close as its start signal)."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid > 0:
        os.close(readable)
        return pid, writable
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(writable)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        while os.read(readable, 1):
            pass
        good = end_groups(groups)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0 if good else 1)
    finally:
        os._exit(2)


# ---- in the namespaces ----------------------------------------------------------------------

def mount(*arguments):
    result = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        print(f"skipped: mount {' '.join(arguments)}: {result.stderr.strip()}")
        sys.exit(SKIPPED)


def overlay(lower, top, name):
    """Mounts a writable layer in memory over `lower`; returns its path."""
    place = {kind: os.path.join(top, f"{name}-{kind}") for kind in ("low", "up", "work", "root")}
    for path in place.values():
        os.mkdir(path)
    mount("--bind", lower, place["low"])
    mount("-t", "overlay", "overlay", "-o",
          f"lowerdir={place['low']},upperdir={place['up']},workdir={place['work']}", place["root"])
    return place["root"]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def prepare(root, files):
    """The root without its services, and without what a stager on this machine keeps."""
    shutil.rmtree(f"{root}/etc/systemd/system", ignore_errors=True)
    for path in ("/usr/local/lib/systemd", "/usr/local/lib/sysusers.d", "/etc/stager", "/var/lib/stager"):
        shutil.rmtree(root + path, ignore_errors=True)
    write(f"{root}/etc/machine-id", os.urandom(16).hex() + "\n")
    for path, text in files.items():
        write(root + path, text)


def tree_options(top, folders):
    """nspawn's options for further folders. They may lie on another file system than the root, or in a folder
    over which nspawn mounts a file system, such as /tmp."""
    options = []
    for i, folder in enumerate(folders):
        outer = next((outer for outer in folders[:i] if os.path.commonpath([outer, folder]) == outer), None)
        if outer is None or os.stat(outer).st_dev != os.stat(folder).st_dev:
            options.append("--bind=" + ":".join(path.replace("\\", "\\\\").replace(":", "\\:")
                                                for path in (overlay(folder, top, f"tree{i}"), folder)))
    return options


def quoted(path):
    """A word of a unit's command."""
    for special in ("\\", '"'):
        path = path.replace(special, "\\" + special)
    return '"' + path.replace("%", "%%").replace("$", "$$") + '"'


def boot_in_namespaces(folder, lower, trees, files):
    """Replaces this process with systemd-nspawn."""
    top = os.path.join(folder, "memory")
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", top)
    # nspawn's state lies in /run, in a private mount.
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    root = overlay(lower, top, "root")
    prepare(root, files)
    os.execvp("systemd-nspawn", [
        "systemd-nspawn", "-q", "-D", root, "--register=no", "--keep-unit", "--boot",
        "--console=pipe", "--private-network", "--resolv-conf=off", "--timezone=off",
        "-M", "stager-boot", f"--bind={folder}/out:/run/boot", *tree_options(top, trees), "systemd.unit=boot.service",
        "--show-status=no"])


# ---- outside --------------------------------------------------------------------------------

def check_needs(root):
    if os.geteuid() != 0:
        raise Skip("a container is booted by root")
    for name, package in NEEDED.items():
        if shutil.which(name) is None:
            raise Skip(f"no {name} (apt-get install {package})")
    if not os.path.exists(os.path.join(root, "lib/systemd/systemd")):
        raise Skip(f"no lib/systemd/systemd in {root} (apt-get install systemd)")


class Container:
    def __init__(self, root="/", trees=(), files=None):
        check_needs(root)
        self.root, self.trees, self.files = root, list(trees), dict(files or {})
        self.groups = make_groups()
        self.folder = tempfile.mkdtemp(prefix="stg-boot-")
        self.out = os.path.join(self.folder, "out")
        for name in ("memory", "out"):
            os.mkdir(os.path.join(self.folder, name))
        self.janitor, self.begin = start_janitor(self.groups, self.folder)

    def boot(self, command, limit_s=BOOT_S):
        """(exit status, nspawn's output, the service's output). Skip if no container boots here."""
        status, said, log = self._boot(command, limit_s)
        if log == "":
            # Decides whether the machine or the test is at fault.
            probe, said, _ = self._boot("/bin/true", limit_s)
            if probe != 0:
                raise Skip(f"no container boots here: {said.strip()}")
        return status, said, log

    def _boot(self, command, limit_s):
        log = os.path.join(self.out, "log")
        write(log, "")
        files = {**self.files, "/etc/systemd/system/boot.service": UNIT.format(command=command)}
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable,
             os.path.abspath(__file__), self.folder, self.root, json.dumps(self.trees), json.dumps(files)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", preexec_fn=self._join_groups)
        try:
            said = process.communicate(timeout=limit_s)[0]
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0] + f"\nnot done after {limit_s} s"
            status = 1
        with open(log, encoding="utf-8", errors="replace") as file:
            return status, said, file.read()

    def _join_groups(self):
        for group in self.groups:
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="utf-8") as file:
                file.write("0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.begin)
        if os.waitpid(self.janitor, 0)[1] != 0:
            print(f"FAIL the janitor could not remove {' '.join(self.groups)}", flush=True)
            os._exit(1)


if __name__ == "__main__":
    boot_in_namespaces(*sys.argv[1:3], *map(json.loads, sys.argv[3:5]))
