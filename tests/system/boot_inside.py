#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The only service of the container that boot.py boots: installs stager by the steps of README.md,
and tests it as an administrator and as three users.

    boot_inside.py BUILD

Its last line is "N passed, N failed, 0 skipped".
"""
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

SLOW = max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)
LIMIT_S = 20 * SLOW
TRAINER = "/run/boot/boot_trainer"
N_ROWS = 6000
BATCH = 50
SOCKET = "/run/stager/attach.sock"
METRICS = "/run/stager/metrics.sock"
SETTINGS = "/etc/stager/stagerd.yaml"
# systemd looks for the manual pages that a unit names, if man(1) is installed.
NO_MAN = () if shutil.which("man") else ("--man=no",)
PIPELINE = """name: {name}
dataset:
  - files: {{pattern: ["/srv/rows/*.csv"], shuffle: false}}
  - text_line: {{skip_header_lines: 1}}
  - shuffle: {{buffer_size: 500, seed: 7}}
  - batch: {{batch_size: %d}}
graph:
  - {{name: columns, op: decode_csv, input: [record], record_defaults: [0, 0.0, ""]}}
staged:
  features: {{id: "columns:0", word: "columns:2"}}
  capacity: 2
  num_clients: 2
  delivery: {delivery}
""" % BATCH


def run(*command, user=None, env=None, status=0):
    """Runs a command to its end; returns its output. AssertionError if the status differs."""
    if user is not None:
        command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups",
                   "--inh-caps=-all", *command)
    result = subprocess.run(command, capture_output=True, text=True, timeout=3 * LIMIT_S,
                            stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
    assert status is None or result.returncode == status, (
        f"{' '.join(command)}: {result.returncode}, not {status}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def systemctl(*arguments, **options):
    return run("systemctl", "--no-pager", *arguments, **options)


def show(unit, *names, manager=()):
    text = run(*manager, "systemctl", "show", "--no-pager", unit, "-p", ",".join(names))
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return [values.get(name, "") for name in names]


def journal(*arguments):
    run("journalctl", "--sync")
    return run("journalctl", "--no-pager", "-o", "cat", "-u", "stagerd", *arguments, status=None)


def wait_for(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not after {LIMIT_S} s\n{journal('-n', '20')}"
        time.sleep(0.02)


def processes_of(user):
    """The processes of a user: evidence of processes that should not exist."""
    uid, found = pwd.getpwnam(user).pw_uid, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    found.append(f"{pid} {file.read().strip()}")
        except OSError:
            continue
    return found


def files_of_stager():
    """Installed files with that word in their names, without those of the build."""
    return set(run("find", PREFIX, "/lib/systemd", "-name", "*stager*", "-not", "-type", "d", "-not",
                   "-path", f"{BUILD}/*").splitlines())


class Trainer:
    """Runs boot_trainer as another user."""

    def __init__(self, user, pipeline, hold=0, env=None, tag=None):
        self.name = f"{user} on {pipeline}"
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--inh-caps=-all",
             TRAINER, pipeline, str(N_ROWS), str(hold), *(() if tag is None else (tag, user))], bufsize=0, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, **(env or {})))
        self.said = b""

    def wait_for(self, word):
        """Reads until a line contains that word; returns the line."""
        end = time.monotonic() + LIMIT_S
        pattern = re.compile(rb"^.*\b" + word.encode() + rb"\b.*\n", re.M)
        while not (match := pattern.search(self.said)):
            left = end - time.monotonic()
            assert left > 0, f"{self.name} does not say {word}: {self.said}\n{journal('-n', '20')}"
            if select.select([self.process.stdout], [], [], left)[0]:
                more = os.read(self.process.stdout.fileno(), 4096)
                assert more, f"{self.name} ended without {word}: {self.said}"
                self.said += more
        return match.group().decode()

    def go_on(self):
        self.process.stdin.write(b"\n")

    def finish(self):
        """Reads to the end; {"rows": …, "missing": …}."""
        try:
            words = self.wait_for("missing").split()
            status = self.process.wait(LIMIT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        assert status == 0, f"{self.name}: {status}: {self.said}"
        return {key: int(value) for key, value in zip(words[::2], words[1::2])}


def apply(name, delivery, user="stg-one", env=None):
    path = f"/srv/{name}.yaml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(PIPELINE.format(name=name, delivery=delivery))
    run("stagerctl", "apply", path, user=user, env=env)


def all_rows(tally, reopened=0):
    assert tally == {"rows": N_ROWS, "sum": N_ROWS * (N_ROWS - 1) // 2, "missing": 0, "twice": 0,
                     "reopened": reopened}, tally


# ---- the cases, in order --------------------------------------------------------------------

def meson_install_is_all_that_it_takes():
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet")
    assert pwd.getpwnam("stager").pw_dir == "/var/lib/stager"
    assert os.path.isdir("/etc/stager/pipelines")
    os.makedirs("/srv/rows", exist_ok=True)
    for part in range(2):
        with open(f"/srv/rows/{part}.csv", "w", encoding="utf-8") as file:
            file.write("id,x,word\n")
            file.writelines(f"{i},{i / 7},word {i}\n" for i in range(part, N_ROWS, 2))


def systemd_has_nothing_to_say_about_the_units():
    for unit in ("stagerd.service", "stagerd.socket"):
        assert run("systemd-analyze", "verify", *NO_MAN, f"{PREFIX}/lib/systemd/system/{unit}") == ""
    assert run("systemd-analyze", "verify", *NO_MAN, "--user",
               f"{PREFIX}/lib/systemd/user/stagerd.service",
               env={"XDG_RUNTIME_DIR": "/run"}) == ""


def start_returns_when_stagerd_answers():
    systemctl("start", "stagerd")
    assert show("stagerd", "ActiveState", "StatusText", "NRestarts") == ["active", "ready", "0"]
    assert json.loads(run("stagerctl", "list", "--json", user="stg-one"))["pipelines"] == []
    assert "ready on /run/stager/attach.sock" in journal()
    status = systemctl("status", "stagerd")
    assert "Status: \"ready\"" in status, status


def has_no_rights(unit):
    """The pid of a unit, whose process is the user stager's and has no rights."""
    pid, = show(unit, "MainPID")
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    assert status["Uid"].split() == [str(pwd.getpwnam("stager").pw_uid)] * 4
    assert [int(status[name], 16) for name in ("CapBnd", "CapEff", "CapPrm")] == [0, 0, 0]
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), status
    return pid


def the_daemon_is_shut_in():
    pid = has_no_rights("stagerd")
    mounts = run("nsenter", "-t", pid, "-m", "cat", "/proc/self/mounts").splitlines()
    options = {line.split()[1]: line.split()[3].split(",") for line in mounts}
    assert "ro" in options["/"] and "rw" in options["/run/stager"], options
    links = run("nsenter", "-t", pid, "-n", "ls", "/sys/class/net", status=None)
    assert links.split() == ["lo"] or "lo" in links, links
    st = os.stat(SOCKET)
    assert (st.st_mode & 0o777, st.st_gid) == (0o660, pwd.getpwnam("stager").pw_gid)


def what_the_daemon_starts_runs_in_its_unit():
    """stager-gate, if it was built, must work within the unit's restrictions."""
    if not any(path.endswith("/stager-gate") for path in files_of_stager()):
        return
    wait_for(lambda: any(line.endswith(" stager-gate") for line in processes_of("stager")),
             "stager-gate runs as the user of the unit")


def has_metrics():
    return os.path.exists(f"{PREFIX}/lib/systemd/system/stagerd-metrics.service")


def http(page, address=METRICS):
    """What stager-metrics answers; "" while it does not listen."""
    with socket.socket(socket.AF_UNIX if address == METRICS else socket.AF_INET) as peer:
        peer.settimeout(LIMIT_S)
        try:
            peer.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return ""
        peer.sendall(f"GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return b"".join(iter(lambda: peer.recv(65536), b"")).decode()


def metrics_are_served_to_the_group_alone():
    if not has_metrics():
        return
    assert run("systemd-analyze", "verify", *NO_MAN, f"{PREFIX}/lib/systemd/system/stagerd-metrics.service") == ""
    systemctl("start", "stagerd-metrics")
    wait_for(lambda: http("/readyz").startswith("HTTP/1.1 200 "), "stager-metrics is ready")
    assert "\nstager_pipelines 0\n" in http("/metrics")
    st = os.stat(METRICS)
    assert (st.st_mode & 0o777, st.st_gid) == (0o660, pwd.getpwnam("stager").pw_gid)
    assert http("/readyz", ("127.0.0.1", 9464)) == ""
    has_no_rights("stagerd-metrics")


def metrics_are_served_over_tcp_where_settings_say():
    if not has_metrics():
        return
    with open(SETTINGS, "a", encoding="utf-8") as file:
        file.write("metrics_address: 127.0.0.1:9464\n")
    systemctl("restart", "stagerd-metrics")
    wait_for(lambda: "\nready\n" in http("/readyz", ("127.0.0.1", 9464)), "stager-metrics is ready")
    systemctl("stop", "stagerd")
    wait_for(lambda: http("/metrics", ("127.0.0.1", 9464)).startswith("HTTP/1.1 503 "), "no stagerd")
    systemctl("start", "stagerd")
    wait_for(lambda: http("/metrics", ("127.0.0.1", 9464)).startswith("HTTP/1.1 200 "), "stagerd is back")
    systemctl("kill", "-s", "KILL", "stagerd-metrics")
    wait_for(lambda: show("stagerd-metrics", "ActiveState", "NRestarts") == ["active", "1"], "it is started again")
    wait_for(lambda: "\nready\n" in http("/readyz"), "its socket is replaced")
    systemctl("stop", "stagerd-metrics")
    assert show("stagerd-metrics", "Result") == ["success"] and not os.path.exists(METRICS)


def a_user_outside_the_group_is_refused():
    refusal = run(TRAINER, "all", str(N_ROWS), user="stg-stranger", status=1)
    assert "PERMISSION_DENIED" in refusal and "group stager" in refusal, refusal
    run("stagerctl", "list", user="stg-stranger", status=1)


def two_trainers_under_two_users_get_every_row():
    apply("all", "broadcast")
    trainers = [Trainer(user, "all") for user in ("stg-one", "stg-two")]
    for trainer in trainers:
        all_rows(trainer.finish())


def two_trainers_share_every_row():
    apply("shared", "split", user="stg-two")
    trainers = [Trainer(user, "shared", 1) for user in ("stg-one", "stg-two")]
    for trainer in trainers:
        trainer.wait_for("held")
    for trainer in trainers:
        trainer.go_on()
    tallies = [trainer.finish() for trainer in trainers]
    assert sum(t["rows"] for t in tallies) == N_ROWS, tallies
    assert sum(t["sum"] for t in tallies) == N_ROWS * (N_ROWS - 1) // 2, tallies
    assert sum(t["missing"] for t in tallies) == N_ROWS and not any(t["twice"] for t in tallies)


def reload_reads_the_settings_and_disturbs_no_client():
    trainers = [Trainer(user, "all", 3) for user in ("stg-one", "stg-two")]
    for trainer in trainers:
        trainer.wait_for("held")
    pid = show("stagerd", "MainPID")
    with open(SETTINGS, "a", encoding="utf-8") as file:
        file.write("log_level: debug\nmax_clients: 77\n")
    systemctl("reload", "stagerd")
    wait_for(lambda: "reload: log_level debug" in journal(), "the reload is in the journal")
    assert "max_clients 77" in journal("-p", "info..info"), journal()
    assert "max_clients 77" not in journal("-p", "warning"), journal()
    assert show("stagerd", "MainPID") == pid
    for trainer in trainers:
        trainer.go_on()
    for trainer in trainers:
        all_rows(trainer.finish())


def trainers_see_a_restart_and_open_again(restart=("restart", "stagerd"), n_restarts="0"):
    trainers = [Trainer(user, "all", 3) for user in ("stg-one", "stg-two")]
    for trainer in trainers:
        trainer.wait_for("held")
    pid = show("stagerd", "MainPID")
    systemctl(*restart)
    wait_for(lambda: show("stagerd", "ActiveState") == ["active"] and
             show("stagerd", "MainPID") not in (pid, ["0"]), "stagerd is back")
    assert show("stagerd", "NRestarts") == [n_restarts]
    for trainer in trainers:
        trainer.go_on()
    for trainer in trainers:
        all_rows(trainer.finish(), reopened=1)
        assert b"unavailable\n" in trainer.said


def a_killed_daemon_comes_back_with_its_pipelines():
    trainers_see_a_restart_and_open_again(("kill", "-s", "KILL", "stagerd"), "1")
    names = [p["name"] for p in json.loads(run("stagerctl", "list", "--json"))["pipelines"]]
    assert sorted(names) == ["all", "shared"], names
    assert "status=9/KILL" in run("journalctl", "--no-pager", "-u", "stagerd")


def a_daemon_that_hangs_is_started_again():
    drop_in = "/run/systemd/system/stagerd.service.d/watchdog.conf"
    os.makedirs(os.path.dirname(drop_in))
    with open(drop_in, "w", encoding="utf-8") as file:
        file.write("[Service]\nWatchdogSec=1\nTimeoutAbortSec=1\n")
    systemctl("daemon-reload")
    systemctl("restart", "stagerd")
    pid, fed = show("stagerd", "MainPID", "WatchdogTimestampMonotonic")

    def is_fed():
        now, last = show("stagerd", "MainPID", "WatchdogTimestampMonotonic")
        assert now == pid, journal("-n", "20")
        return int(last) > int(fed) + 1200000
    wait_for(is_fed, "the watchdog is fed for longer than it waits")
    os.kill(int(pid), signal.SIGSTOP)
    wait_for(lambda: show("stagerd", "ActiveState", "NRestarts") == ["active", "1"],
             "stagerd is started again")
    assert "Watchdog timeout" in run("journalctl", "--no-pager", "-u", "stagerd")
    assert len(json.loads(run("stagerctl", "list", "--json"))["pipelines"]) == 2
    os.unlink(drop_in)
    systemctl("daemon-reload")


def stop_leaves_nothing():
    systemctl("stop", "stagerd")
    assert show("stagerd", "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert os.listdir("/run/stager") == [], os.listdir("/run/stager")
    assert os.listdir("/dev/shm") == []
    assert processes_of("stager") == [], processes_of("stager")
    lines = journal()
    assert "stopping on SIGTERM" in lines and "stopped" in lines, lines
    refusal = run("stagerctl", "list", status=1)
    assert "UNAVAILABLE" in refusal, refusal


def the_socket_starts_the_daemon_and_outlives_it():
    systemctl("start", "stagerd.socket")
    st = os.stat(SOCKET)
    assert (st.st_mode & 0o777, st.st_gid) == (0o660, pwd.getpwnam("stager").pw_gid)
    assert show("stagerd", "ActiveState") == ["inactive"]
    run("stagerctl", "list", user="stg-stranger", status=1)
    assert show("stagerd", "ActiveState") == ["inactive"]
    trainers = [Trainer(user, "all") for user in ("stg-one", "stg-two")]
    for trainer in trainers:
        all_rows(trainer.finish())
    assert "attach.sock (of systemd)" in journal("-n", "100"), journal("-n", "100")
    inode = os.stat(SOCKET).st_ino
    systemctl("restart", "stagerd")
    systemctl("stop", "stagerd")
    assert os.stat(SOCKET).st_ino == inode
    assert run("stagerctl", "list", user="stg-two") != ""
    systemctl("stop", "stagerd.socket", "stagerd.service")
    assert os.listdir("/run/stager") == [], os.listdir("/run/stager")


def drop_ins_open_what_they_say():
    folder = "/etc/systemd/system/stagerd.service.d"
    os.makedirs(folder)
    for name in ("cuda", "network"):
        os.symlink(f"{PREFIX}/share/stager/stagerd.service.d/{name}.conf", f"{folder}/{name}.conf")
    assert run("systemd-analyze", "verify", *NO_MAN, f"{PREFIX}/lib/systemd/system/stagerd.service") == ""
    systemctl("daemon-reload")
    systemctl("start", "stagerd")
    assert show("stagerd", "PrivateNetwork", "PrivateDevices", "MemoryDenyWriteExecute") == ["no"] * 3
    run("stagerctl", "list")
    systemctl("stop", "stagerd")
    for name in ("cuda", "network"):
        os.unlink(f"{folder}/{name}.conf")
    systemctl("daemon-reload")


def start_daemon_of(user):
    """Starts the daemon of a user; returns the user's environment, and systemctl of the user's manager."""
    uid = pwd.getpwnam(user).pw_uid
    systemctl("start", f"user@{uid}.service")
    home = f"/home/{user}"
    os.makedirs(home, exist_ok=True)
    os.chown(home, uid, uid)
    env = {"XDG_RUNTIME_DIR": f"/run/user/{uid}", "HOME": home}
    manager = ("env", *(f"{k}={v}" for k, v in env.items()), "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
    run(*manager, "systemctl", "--user", "--no-pager", "start", "stagerd")
    assert os.path.exists(f"/run/user/{uid}/stager/attach.sock")
    return env, (*manager, "systemctl", "--user", "--no-pager")


def a_user_has_a_daemon_of_their_own():
    env, systemctl_user = start_daemon_of("stg-one")
    apply("own", "broadcast", env=env)
    trainers = [Trainer("stg-one", "own", env=env) for _ in range(2)]
    for trainer in trainers:
        all_rows(trainer.finish())
    run(*systemctl_user, "stop", "stagerd")
    assert not os.path.exists("/run/user/2001/stager")
    assert os.path.exists("/home/stg-one/.local/state/stager")
    systemctl("stop", "user@2001.service")


def is_denied(user, *command):
    said = run(*command, user=user, status=None)
    assert "Permission denied" in said, (user, command, said)


def daemons_of_two_users_share_nothing():
    """A process with the rights of one user's stagerd reaches neither socket, state nor memory of the other's."""
    daemons = {user: start_daemon_of(user) for user in ("stg-one", "stg-two")}
    pids = {user: run(*systemctl_user, "show", "stagerd", "-p", "MainPID", "--value").strip()
            for user, (_, systemctl_user) in daemons.items()}
    for user, other in (("stg-one", "stg-two"), ("stg-two", "stg-one")):
        env, pid = daemons[user][0], pids[other]
        with open(f"/proc/{pids[user]}/status", encoding="utf-8") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        assert status["Uid"].split() == [str(pwd.getpwnam(user).pw_uid)] * 4, status
        assert (status["CapEff"], status["NoNewPrivs"], status["Seccomp"]) == ("0" * 16, "1", "2"), status
        allowed = run(*daemons[user][1], "show", "stagerd", "-p", "SystemCallFilter", "--value").split()
        assert "read" in allowed and "mount" not in allowed, allowed
        apply(f"of-{user}", "broadcast", user=user, env=env)
        assert [p["name"] for p in json.loads(run("stagerctl", "list", "--json", user=user, env=env))["pipelines"]
                if p["name"].startswith("of-")] == [f"of-{user}"]
        is_denied(user, "ls", daemons[other][0]["XDG_RUNTIME_DIR"])
        is_denied(user, "ls", f"/home/{other}/.local/state/stager")
        is_denied(user, "cat", f"/proc/{pid}/mem")
        is_denied(user, "ls", f"/proc/{pid}/fd/")
        is_denied(user, "ls", f"/proc/{pid}/map_files/")
        elsewhere = {**env, "STAGER_RUNTIME_DIR": f"{daemons[other][0]['XDG_RUNTIME_DIR']}/stager"}
        refusal = run("stagerctl", "list", user=user, env=elsewhere, status=1)
        assert "PERMISSION_DENIED" in refusal, refusal
    for user, (_, systemctl_user) in daemons.items():
        run(*systemctl_user, "stop", "stagerd")
        systemctl("stop", f"user@{pwd.getpwnam(user).pw_uid}.service")


def an_upgrade_keeps_settings_and_pipelines():
    systemctl("start", "stagerd")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet")
    with open(SETTINGS, encoding="utf-8") as file:
        assert "max_clients: 77" in file.read()
    systemctl("restart", "stagerd")
    assert len(json.loads(run("stagerctl", "list", "--json"))["pipelines"]) == 2
    systemctl("enable", "stagerd")
    assert os.path.islink("/etc/systemd/system/multi-user.target.wants/stagerd.service")


def uninstall_leaves_settings_and_state_alone():
    systemctl("disable", "--now", "stagerd")
    run("ninja", "-C", BUILD, "uninstall")
    left = files_of_stager() - BEFORE
    assert left == set(), left
    assert os.path.exists(SETTINGS)
    assert len([name for name in os.listdir("/var/lib/stager")]) > 0


CASES = [
    meson_install_is_all_that_it_takes, systemd_has_nothing_to_say_about_the_units,
    start_returns_when_stagerd_answers, the_daemon_is_shut_in,
    what_the_daemon_starts_runs_in_its_unit, metrics_are_served_to_the_group_alone,
    metrics_are_served_over_tcp_where_settings_say, a_user_outside_the_group_is_refused,
    two_trainers_under_two_users_get_every_row, two_trainers_share_every_row,
    reload_reads_the_settings_and_disturbs_no_client, trainers_see_a_restart_and_open_again,
    a_killed_daemon_comes_back_with_its_pipelines, a_daemon_that_hangs_is_started_again,
    stop_leaves_nothing, the_socket_starts_the_daemon_and_outlives_it,
    drop_ins_open_what_they_say, a_user_has_a_daemon_of_their_own,
    daemons_of_two_users_share_nothing, an_upgrade_keeps_settings_and_pipelines, uninstall_leaves_settings_and_state_alone,
]


def main():
    passed = 0
    for case in CASES:
        begin = time.monotonic()
        try:
            case()
        except Exception as error:  # pylint: disable=broad-except
            print(f"FAIL {case.__name__}: {type(error).__name__}: {error}")
            print(f"{passed} passed, {len(CASES) - passed} failed, 0 skipped")
            return 1
        passed += 1
        print(f"ok   {case.__name__} ({time.monotonic() - begin:.1f} s)")
    print(f"{passed} passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    BUILD = sys.argv[1]
    PREFIX = next(option["value"] for option in
                  json.loads(run("meson", "introspect", "--buildoptions", BUILD))
                  if option["name"] == "prefix")
    BEFORE = files_of_stager()
    sys.exit(main())
