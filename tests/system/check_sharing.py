#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quotas and rules: two users and root share a stagerd, each in a process of its own.

    check_sharing.py SOURCE BUILD TAKING_TRAINER

Needs root, to become the users. Skipped otherwise, with status 77.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from daemon import SLOW, Daemon, check, write

ANN, BOB, GROUP = 64242, 64243, 64300  # numbers that no user or group needs to have
PIPELINE = """name: %s
dataset:
- range: {start: 0, stop: 1000}
- batch: {batch_size: 10}
staged: {capacity: 4, num_threads: %d}
"""
LIMIT_S = 60 * SLOW


def ctl(daemon, uid, *arguments):
    """Runs stagerctl as a user in GROUP; returns status, output and errors."""
    result = subprocess.run([daemon.copy_of("client/stagerctl/stagerctl"), *arguments], env=daemon.env(),
                            user=uid, group=GROUP if uid else 0, extra_groups=[], capture_output=True, text=True,
                            timeout=LIMIT_S, stdin=subprocess.DEVNULL, cwd="/")
    return result.returncode, result.stdout, result.stderr


def must(daemon, uid, *arguments):
    status, out, err = ctl(daemon, uid, *arguments)
    check(status == 0, f"user {uid}: {arguments}: {err}{daemon.log()}")
    return out


def refused(daemon, uid, words, *arguments, code="RESOURCE_EXHAUSTED"):
    status, _, err = ctl(daemon, uid, *arguments)
    check(status != 0 and code in err and all(word in err for word in words),
          f"user {uid}: {arguments}: {status} {err}")


def pipeline(daemon, name, num_threads=1):
    path = os.path.join(daemon.folder, f"{name}.yaml")
    write(path, PIPELINE % (name, num_threads))
    return path


def reload(daemon, **settings):
    """Writes other settings, and waits until stagerd uses them."""
    with open(daemon.config, encoding="utf-8") as file:
        values = dict(line.rstrip("\n").split(": ", 1) for line in file)
    values.update({key: json.dumps(value) for key, value in settings.items()})
    write(daemon.config, "".join(f"{key}: {value}\n" for key, value in values.items()))
    before = daemon.log().count("reload: log_level")
    daemon.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + LIMIT_S
    while daemon.log().count("reload: log_level") == before:
        check(time.monotonic() < end, f"no reload: {daemon.log()}")
        time.sleep(0.01)


def start(build, **settings):
    """A daemon that every user may connect to."""
    daemon = Daemon(build, **settings)
    os.chmod(daemon.folder, 0o755)
    daemon.start()
    os.chmod(os.path.join(daemon.runtime_dir, "attach.sock"), 0o666)
    return daemon


def used(daemon, resource, **whose):
    """The gauge of what is in use of a quota, as root sees it; None: there is none."""
    label = ",".join(f'{key}="{value}"' for key, value in whose.items())
    wanted = f'stager_quota_used{{{label},resource="{resource}"}} '
    lines = [line for line in must(daemon, 0, "metrics").splitlines() if line.startswith(wanted)]
    return int(lines[0].split()[-1]) if lines else None


def check_pipelines(build):
    """A pipeline above the quota is refused; replacing one is not. A reload raises the quota; a restart
    loads all pipelines. A quota of a group is of its members together."""
    daemon = start(build, quotas=[{"user": str(ANN), "pipelines": 2}, {"user": "*", "pipelines": 1}])
    try:
        for name in ("a1", "a2"):
            must(daemon, ANN, "apply", pipeline(daemon, name))
        words = (f"the quota of user {ANN} is 2 pipelines, 2 of them are in use", "raise pipelines of", "at least 3")
        refused(daemon, ANN, words, "apply", pipeline(daemon, "a3"))
        check("a3" not in must(daemon, 0, "list"), "a refused pipeline is not there")
        must(daemon, ANN, "apply", "--replace", pipeline(daemon, "a1", 2))
        must(daemon, BOB, "apply", pipeline(daemon, "b1"))
        refused(daemon, BOB, (f"user {BOB} is 1 pipelines", '{user: "*"}'), "apply", pipeline(daemon, "b2"))
        for name in ("r1", "r2", "r3"):
            must(daemon, 0, "apply", pipeline(daemon, name))
        check((used(daemon, "pipelines", user=ANN), used(daemon, "pipelines", user=BOB)) == (2, 1), "metrics")
        check(f'user="{ANN}"' not in must(daemon, BOB, "metrics"), "another user does not see it")
        must(daemon, ANN, "delete", "a2")
        must(daemon, ANN, "apply", pipeline(daemon, "a3"))
        reload(daemon, quotas=[{"group": str(GROUP), "pipelines": 4}])
        check(used(daemon, "pipelines", group=GROUP) == 3, "a reload counts what is there")
        must(daemon, ANN, "apply", pipeline(daemon, "a4"))
        refused(daemon, BOB, (f"group {GROUP} is 4 pipelines",), "apply", pipeline(daemon, "b2"))
        reload(daemon, quotas=[{"group": str(GROUP), "pipelines": 2}])
        check(daemon.stop() == 0, "it stops")
        daemon.start()
        check(len(must(daemon, 0, "list", "--json").split('"name"')) == 8, "a restart loads all of them")
        check(used(daemon, "pipelines", group=GROUP) == 4, "and counts them")
    finally:
        daemon.close()


def on_disk(daemon, *names):
    """The bytes of state_dir that belong to these pipelines."""
    total = 0
    for folder, _, files in os.walk(os.path.join(daemon.folder, "state")):
        part = os.path.relpath(folder, os.path.join(daemon.folder, "state")).split(os.sep)
        total += sum(os.path.getsize(os.path.join(folder, name)) for name in files
                     if (part[0] in ("pipelines", "commits") and name.split(".")[0] in names)
                     or (part[0] == "versions" and part[1] in names))
    return total


def check_disk(build, taking_trainer):
    """Definitions, their earlier versions and audits count on their applier, as many bytes as the files have. What does not fit is refused,
    and changes nothing. A restart measures them again."""
    daemon = start(build, quotas=[{"user": str(ANN), "disk": 20000}])
    try:
        must(daemon, ANN, "apply", pipeline(daemon, "a"))
        check(used(daemon, "disk", user=ANN) == on_disk(daemon, "a") > 0, f"one definition: {used(daemon, 'disk', user=ANN)}")
        must(daemon, ANN, "apply", "--replace", pipeline(daemon, "a", 2))
        check(os.listdir(os.path.join(daemon.folder, "state/versions/a")) == ["1.yaml"], "an earlier version")
        check(used(daemon, "disk", user=ANN) == on_disk(daemon, "a"), "two definitions")
        before = used(daemon, "disk", user=ANN)
        large = os.path.join(daemon.folder, "large.yaml")
        write(large, PIPELINE % ("large", 1) + "# " + "x" * 20000 + "\n")
        words = (f"the quota of user {ANN} is 20000 bytes of state_dir, {before} of them are in use", "raise disk of")
        refused(daemon, ANN, words, "apply", large)
        refused(daemon, ANN, words, "apply", "--replace", "--name", "a", large)
        check(used(daemon, "disk", user=ANN) == before == on_disk(daemon, "a", "large"), "a refusal leaves nothing")
        audited = os.path.join(daemon.folder, "audited.yaml")
        write(audited, (PIPELINE % ("audited", 1)).replace("staged: {", "staged: {audit: positions, "))
        must(daemon, ANN, "apply", audited)
        must(daemon, ANN, "cat", "a")
        trainer = subprocess.run([taking_trainer, "audited", "root"], input="1\n", capture_output=True, text=True,
                                 env=daemon.env(), timeout=LIMIT_S, check=False)
        check(trainer.stdout == "open\ntaken 1\n", f"a trainer of root: {trainer}")
        end = time.monotonic() + LIMIT_S
        path = os.path.join(daemon.folder, "state/commits/audited.audit")
        while not os.path.exists(path) or used(daemon, "disk", user=ANN) != on_disk(daemon, "a", "audited"):
            check(time.monotonic() < end, f"an audit: {used(daemon, 'disk', user=ANN)} of {on_disk(daemon, 'a', 'audited')}")
            time.sleep(0.01)
        check(os.path.getsize(path) > 0, "the audit is empty")
        must(daemon, 0, "apply", "--replace", pipeline(daemon, "a", 3))
        check(used(daemon, "disk", user=ANN) == on_disk(daemon, "audited"), "its files count on another applier")
        check(daemon.stop() == 0, "it stops")
        daemon.start()
        os.chmod(os.path.join(daemon.runtime_dir, "attach.sock"), 0o666)
        check(used(daemon, "disk", user=ANN) == on_disk(daemon, "audited"), "after a restart")
        must(daemon, ANN, "delete", "audited")
        check(used(daemon, "disk", user=ANN) == 0, "after a delete")
    finally:
        daemon.close()


def check_clients(build):
    """Connections above the quota are refused with the reason; another user is not concerned."""
    daemon = start(build, quotas=[{"user": str(ANN), "clients": 3}])
    held = []
    try:
        os.seteuid(ANN)
        try:
            for _ in range(3):
                held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                held[-1].connect(os.path.join(daemon.runtime_dir, "attach.sock"))
        finally:
            os.seteuid(0)
        refused(daemon, ANN, ("is 3 connections, 3 of them are in use", "raise clients of"), "list")
        must(daemon, BOB, "list")
        for one in held:
            one.close()
        end = time.monotonic() + LIMIT_S
        while used(daemon, "clients", user=ANN) != 0:
            check(time.monotonic() < end, "they count after their end")
        must(daemon, ANN, "list")
    finally:
        for one in held:
            one.close()
        daemon.close()


def check_runs(build):
    """Runners and memory are those of the applier, also if root opens the pipeline. They come back."""
    daemon = start(build, quotas=[{"user": str(ANN), "runners": 2, "memory": "64MiB"}])
    try:
        must(daemon, ANN, "apply", pipeline(daemon, "few", 2))
        must(daemon, ANN, "apply", pipeline(daemon, "many", 3))
        for uid in (ANN, 0):
            refused(daemon, uid, ("pipeline many", "is 2 runners, 0 of them are in use", "needs 3 more"), "cat", "many")
        for _ in range(3):
            must(daemon, ANN, "cat", "few")
        end = time.monotonic() + LIMIT_S
        while used(daemon, "runners", user=ANN) != 0 or used(daemon, "memory", user=ANN) != 0:
            check(time.monotonic() < end, "a run that has ended counts")
        reload(daemon, quotas=[{"user": str(ANN), "memory": "1KiB"}])
        refused(daemon, ANN, ("is 1024 bytes of memory, 0 of them", "raise memory of"), "cat", "few")
        must(daemon, BOB, "apply", pipeline(daemon, "other", 3))
        must(daemon, BOB, "cat", "other")
    finally:
        daemon.close()


def check_requests(build):
    """Requests above the rate wait, and those of another user do not."""
    daemon = start(build, quotas=[{"user": str(ANN), "requests_per_second": 2}])
    loop = 'for i in 1 2 3 4 5 6 7 8; do "$@" >/dev/null || exit 1; done'
    try:
        began = time.monotonic()
        program = daemon.copy_of("client/stagerctl/stagerctl")
        slow = subprocess.Popen(["sh", "-c", loop, "sh", program, "list"], env=daemon.env(), user=ANN, group=GROUP,
                                extra_groups=[], cwd="/", stdin=subprocess.DEVNULL)
        for _ in range(8):
            must(daemon, BOB, "list")
        check(slow.poll() is None, "16 requests of one user take seven seconds")
        check(slow.wait(LIMIT_S) == 0, "and succeed")
        check(time.monotonic() - began > 6, f"too fast: {time.monotonic() - began}")
    finally:
        daemon.close()


def check_remote(source, build):
    """Reads of remote files keep to the rate of their user; those of another user do not wait."""
    with tempfile.NamedTemporaryFile() as log:
        server = subprocess.Popen([sys.executable, os.path.join(source, "tests/daemon/storage/remote_server.py"), log.name],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/"
        daemon = start(build, quotas=[{"user": str(ANN), "remote_bytes_per_second": 500000}],
                       remote={"stores": [{"prefix": url}]})
        text = ("name: %s\ndataset:\n- files: {pattern: ['" + url + "object/o?size=2000000']}\n"
                "- fixed_length_record: {record_bytes: 1000}\n- batch: {batch_size: 100}\n")
        try:
            for uid, name in ((ANN, "a"), (BOB, "b")):
                path = os.path.join(daemon.folder, name)
                write(path, text % name)
                must(daemon, uid, "apply", path)
            began = time.monotonic()
            lines = must(daemon, ANN, "cat", "a", "--json").splitlines()
            slow = time.monotonic() - began
            check(len(lines) == 20 and slow > 2, f"{len(lines)} batches in {slow} s")
            began = time.monotonic()
            check(must(daemon, BOB, "cat", "b", "--json").splitlines() == lines, "another user reads the same")
            check(time.monotonic() - began < slow, "and does not wait")
        finally:
            daemon.close()
            server.stdin.close()
            server.wait(LIMIT_S)
            server.stdout.close()


def denied(daemon, uid, word, *arguments):
    refused(daemon, uid, (word,), *arguments, code="PERMISSION_DENIED")


def check_users(build):
    """Each rule permits its users and groups alone, and root. An unknown name permits no user."""
    rules = {"apply": {"users": [str(ANN)]}, "attach": {"users": [str(BOB)]}, "see": {"groups": ["nobodys-group"]}}
    daemon = start(build, rules=rules)
    try:
        check("rules.see: group nobodys-group does not exist" in daemon.log(), daemon.log())
        path = pipeline(daemon, "p")
        denied(daemon, BOB, f"rules.apply of stagerd.yaml does not let uid {BOB} apply", "apply", path)
        must(daemon, ANN, "apply", path)
        denied(daemon, ANN, "rules.attach", "cat", "p")
        for uid in (ANN, BOB):
            denied(daemon, uid, "rules.see", "list")
        check("p" in must(daemon, 0, "list"), "root may")
        must(daemon, 0, "cat", "p")
        reload(daemon, rules={"see": {"groups": [str(GROUP)]}, "apply": {}})
        check("p" in must(daemon, ANN, "list"), "a group may")
        must(daemon, ANN, "cat", "p")
        denied(daemon, ANN, "rules.apply", "delete", "p")
    finally:
        daemon.close()


def reads(daemon, pattern):
    """Applies a pipeline of a file and reads it as a user; returns status and errors."""
    path = os.path.join(daemon.folder, "read.yaml")
    write(path, f"name: read\ndataset:\n- files: {{pattern: ['{pattern}']}}\n"
                "- fixed_length_record: {record_bytes: 4}\n- batch: {batch_size: 1}\n")
    must(daemon, ANN, "apply", "--replace", path)
    status, _, err = ctl(daemon, ANN, "cat", "read")
    return status, err


def check_paths(build):
    """Neither ".." nor a link leads out of the folders of rules.read."""
    daemon = start(build)
    try:
        base = os.path.join(daemon.folder, "data")
        for folder in ("in/sub", "out", "in2"):
            os.makedirs(os.path.join(base, folder))
        for name in ("in/a", "in/sub/b", "out/c", "in2/d"):
            write(os.path.join(base, name), "1234")
        os.symlink("sub/b", f"{base}/in/good")
        os.symlink("../out/c", f"{base}/in/bad")
        os.symlink("../out", f"{base}/in/folder")
        os.symlink(f"/proc/{daemon.process.pid}/root", f"{base}/in/magic")
        everything = ("in/a", "in/sub/b", "in/good", "in/sub/../a", "in/*/b", "out/c", "in/bad", "in/../out/c", "in/folder/c",
                      "in2/d", "in/f*/c")
        for name in everything:
            check(reads(daemon, f"{base}/{name}")[0] == 0, f"{name}: without rules")
        reload(daemon, rules={"read": {"paths": [f"{base}/in"]}})
        for name in everything[:5]:
            check(reads(daemon, f"{base}/{name}")[0] == 0, f"{name}: {reads(daemon, f'{base}/{name}')}")
        for name in (*everything[5:], f"in/magic{base}/in/a"):
            status, err = reads(daemon, f"{base}/{name}")
            check(status != 0 and ("rules.read of stagerd.yaml" in err or "*" in name), f"{name}: {status} {err}")
        reload(daemon, rules={"read": {}})
        check(reads(daemon, f"{base}/in/a")[0] != 0, "no path is allowed")
    finally:
        daemon.close()


def check_urls(source, build):
    """URLs outside of the prefixes of rules.read are refused, and redirections."""
    with tempfile.NamedTemporaryFile() as log:
        server = subprocess.Popen([sys.executable, os.path.join(source, "tests/daemon/storage/remote_server.py"), log.name],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/"
        daemon = start(build, remote={"stores": [{"prefix": url}]}, rules={"read": {"urls": [url.replace("http", "HTTP") + "object"]}})
        try:
            check(reads(daemon, url + "object/o?size=8")[0] == 0, f"an allowed one: {reads(daemon, url + 'object/o?size=8')}")
            other = f"{url}file{daemon.config}"
            status, err = reads(daemon, other)
            check(status != 0 and "begins with none of the urls of rules.read" in err, f"{status} {err}")
            to = other.replace(":", "%3A").replace("/", "%2F")
            status, err = reads(daemon, f"{url}object/o?to={to}")
            check(status != 0 and "redirect" in err, f"a redirection: {status} {err}")
            check(reads(daemon, daemon.config)[0] != 0, "no path is allowed")
        finally:
            daemon.close()
            server.stdin.close()
            server.wait(LIMIT_S)
            server.stdout.close()


def check_gate(build):
    """Quotas and rules bind the user of a token at the gate too."""
    daemon = start(build, quotas=[{"user": str(ANN), "pipelines": 1}],
                   rules={"see": {"users": [str(ANN)]}})
    try:
        gates = {}
        for uid in (ANN, BOB):
            token = json.loads(must(daemon, uid, "token", "--json"))
            path = os.path.join(daemon.folder, f"token-{uid}")
            write(path, token["token"])
            os.chown(path, uid, -1)
            gates[uid] = ("--gate", token["admin_url"], "--token-file", path)
            end = time.monotonic() + LIMIT_S
            while not os.path.exists(token["admin_url"].removeprefix("ipc://")):
                check(time.monotonic() < end, f"no gate: {daemon.log()}")
                time.sleep(0.01)
        must(daemon, 0, *gates[ANN], "apply", pipeline(daemon, "g1"))
        refused(daemon, 0, (f"the quota of user {ANN} is 1 pipelines",), *gates[ANN], "apply", pipeline(daemon, "g2"))
        check("g1" in must(daemon, 0, *gates[ANN], "list"), "the user of a rule may")
        denied(daemon, 0, "rules.see", *gates[BOB], "list")
        reload(daemon, rules={}, quotas=[{"user": str(BOB), "requests_per_second": 1}])
        end, err = time.monotonic() + LIMIT_S, ""
        while "has sent more requests than its quota allows" not in err:
            check(time.monotonic() < end, f"no rate: {err}")
            err = ctl(daemon, 0, *gates[BOB], "list")[2]
        must(daemon, 0, *gates[ANN], "list")
    finally:
        daemon.close()


def main():
    if os.geteuid() != 0:
        print("needs root, to become two users")
        sys.exit(77)
    source, build, taking_trainer = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3]
    check_pipelines(build)
    check_disk(build, taking_trainer)
    check_clients(build)
    check_runs(build)
    check_requests(build)
    check_remote(source, build)
    check_users(build)
    check_gate(build)
    check_paths(build)
    check_urls(source, build)


if __name__ == "__main__":
    main()
