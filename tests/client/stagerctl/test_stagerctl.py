#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl without a daemon: usage, exit codes, files.

    test_stagerctl.py STAGERCTL [PLUGIN_DIR FAKE_DRIVER_DIR]

With the folders of libstager-cuda.so and of a libcuda.so.1 without a device, it also checks the error where
only one of the two is installed.
"""
import fcntl
import json
import os
import shlex
import subprocess
import sys
import tempfile

# A program for another machine runs by what meson calls the wrapper.
CTL = [*shlex.split(os.environ.get("MESON_EXE_WRAPPER", "")), sys.argv[1]]
REASONS = []
if len(sys.argv) > 3:
    BOTH = f"{sys.argv[2]}:{sys.argv[3]}"
    REASONS = [("the driver finds no device", {"LD_LIBRARY_PATH": BOTH, "STG_FAKE_DRIVER": "none"}),
               ("supports CUDA 12.2", {"LD_LIBRARY_PATH": BOTH, "STG_FAKE_DRIVER": "old"}),
               ("stub library", {"LD_LIBRARY_PATH": BOTH, "STG_FAKE_DRIVER": "stub"})]


def run(*args, stdin="", **env):
    result = subprocess.run([*CTL, *args], input=stdin, capture_output=True, text=True,
                            env={**os.environ, **env}, timeout=60)
    return result.returncode, result.stdout, result.stderr


def expect(status, err_part, *args, **more):
    code, out, err = run(*args, **more)
    assert code == status, (args, code, out, err)
    assert err_part in err, (args, err)
    assert status == 0 or out == "", (args, out)
    return out


def usage():
    expect(2, "usage: stagerctl")
    assert "stagerctl apply FILE" in expect(0, "", "--help")
    assert "stagerctl apply FILE" in expect(0, "", "help")
    for command in ("check", "apply", "list", "status", "cat", "delete", "doctor", "trace", "versions",
                    "rollback", "version"):
        assert f"usage: stagerctl {command}" in expect(0, "", command, "--help")
        assert f"usage: stagerctl {command}" in expect(0, "", "--json", command, "-h")
    for command in ("metrics", "top", "bugreport"):
        assert "--json" not in expect(0, "", command, "--help").splitlines()[0]
    expect(2, 'unknown command "stauts"; did you mean "status"?', "stauts")
    expect(2, 'unknown command "x"', "x")
    expect(2, "check needs FILE", "check")
    expect(2, "cat needs NAME [--limit N]", "cat")
    expect(2, "too many arguments: b", "delete", "a", "b")
    expect(2, "too many arguments: a", "list", "a")
    expect(2, "too many arguments: 3", "rollback", "x", "2", "3")
    expect(2, "rollback needs NAME [GENERATION]", "rollback")
    for generation in ("0", "x", "3x", "", "99999999999999999999"):
        expect(2, "rollback takes a generation", "rollback", "x", generation)
    expect(2, "list takes no --warm", "list", "--warm")
    expect(2, "--warm cannot be combined with --gate", "apply", "-", "--warm", "--gate", "ipc:///x")
    expect(2, "list takes no --rows", "list", "--rows")
    expect(2, "cat takes no --replace", "cat", "--replace", "x")
    expect(2, 'unknown option "--frobnicate"', "list", "--frobnicate")
    expect(2, "--runtime-dir needs a value", "list", "--runtime-dir")
    for limit in ("0", "-1", "x", "3x", ""):
        expect(2, "--limit", "cat", "x", "--limit", limit)
    expect(2, "--json", "cat", "x", "--json", "--rows")


def no_daemon(folder):
    start = (f"stagerctl: UNAVAILABLE: cannot reach stagerd at {folder}/attach.sock: No such file or "
             "directory; start it with `systemctl start stagerd` (or `stagerd --foreground`)\n")
    for args in (["list"], ["status"], ["status", "x"], ["cat", "x"], ["delete", "x"], ["versions", "x"],
                 ["rollback", "x"], ["rollback", "x", "3"], ["check", "-"], ["apply", "-"]):
        code, out, err = run(*args, "--runtime-dir", folder, stdin="name: x\n")
        assert (code, out, err) == (1, "", start), (args, code, out, err)
        assert run(*args, stdin="name: x\n", STAGER_RUNTIME_DIR=folder)[2] == start
    expect(1, "INVALID_ARGUMENT", "list", "--runtime-dir", "/" + "d" * 200)

    code, out, err = run("list", "--json", "--runtime-dir", folder)
    assert (code, out) == (1, "") and json.loads(err) == {
        "schema_version": 1, "error": {"code": "UNAVAILABLE", "text": start[len("stagerctl: UNAVAILABLE: "):-1]}}, err
    for usage in (["lst", "--json"], ["list", "--json", "--frobnicate"], ["--json", "cat"], ["list", "--json", "a"],
                  ["cat", "x", "--limit", "--json"], ["metrics", "--json"], ["rollback", "x", "0", "--json"],
                  ["trace", "x", "--json", "--text"], ["audit", "a", "b", "c", "--json"]):
        code, out, err = run(*usage)
        assert (code, out) == (2, "") and json.loads(err)["error"]["code"] == "INVALID_ARGUMENT", (usage, err)

    version = json.loads(expect(0, "", "version", "--json", "--runtime-dir", folder))
    assert version["daemon"]["reachable"] is False and "cannot reach" in version["daemon"]["reason"]
    assert version["protocol"] == {"min": 2, "max": 6}
    assert isinstance(version["cuda"]["available"], bool)
    assert version["release"] in expect(0, "", "--version", "--runtime-dir", folder)


def doctor(folder):
    reply = json.loads(expect(0, "", "doctor", "--json", "--runtime-dir", folder))
    assert reply["daemon"]["reachable"] is False and "cannot reach" in reply["daemon"]["reason"]
    text = expect(0, "", "doctor", "--runtime-dir", folder)
    assert "stagerd   none: cannot reach" in text, text
    if reply["gpus"]:
        assert all(gpu["memory_bytes"] > 0 and "." in gpu["compute_capability"]
                   for gpu in reply["gpus"])
    else:
        assert reply["reason"] in text, text
    for reason, env in REASONS:
        reply = json.loads(run("doctor", "--json", "--runtime-dir", folder, **env)[1])
        assert reply["gpus"] == [] and reason in reply["reason"], (reason, reply)


def files(folder):
    for command in ("check", "apply"):
        expect(1, f"NOT_FOUND: {folder}/none.yaml: No such file", command, f"{folder}/none.yaml")
        expect(1, f"INVALID_ARGUMENT: {folder}: Is a directory", command, folder)
        expect(1, "none?[31m: No such file", command, f"{folder}/none\x1b[31m")
        long = os.path.join(folder, "long.yaml")
        with open(long, "w", encoding="utf-8") as file:
            file.write("#" * 61441)
        expect(1, f"INVALID_ARGUMENT: {long}: a pipeline file has at most 61440 bytes", command, long)
        expect(1, "INVALID_ARGUMENT: <stdin>: a pipeline file", command, "-", stdin="#" * 70000)


def the_output_cannot_be_written(folder):
    for code, path in (("NOT_FOUND", f"{folder}/none/x"), ("INVALID_ARGUMENT", folder), ("RESOURCE_EXHAUSTED", "/dev/full")):
        expect(1, f"{code}: cannot write {path}: ", "bugreport", "-o", path, "--runtime-dir", folder)


def cache(folder):
    keys = ["0123456789abcdef", "fedcba9876543210"]
    path = os.path.join(folder, "clicks")
    for number, name in enumerate([f"clicks.{keys[0]}", f"clicks.{keys[1]}", f"clicks.{keys[1]}.part", "clicks",
                                   "clicks.0123", f"clicks.{keys[0]}x", f"other.{keys[0]}"]):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(bytes(number + 1))
        os.utime(os.path.join(folder, name), (1000 + number, 500))
    rows = json.loads(expect(0, "", "cache", "list", path, "--json"))["entries"]
    assert rows == [{"key": keys[1], "whole": False, "bytes": 3, "written": 500, "read": 1002},
                    {"key": keys[1], "whole": True, "bytes": 2, "written": 500, "read": 1001},
                    {"key": keys[0], "whole": True, "bytes": 1, "written": 500, "read": 1000}], rows
    text = expect(0, "", "cache", "list", path)
    assert len(text.splitlines()) == 4 and "LAST READ" in text and text.count("not whole") == 1, text
    expect(1, "NOT_FOUND: no complete entry has that key", "cache", "rm", path, "--key", "0" * 16)
    with open(f"{path}.{keys[1]}.part", "rb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        assert expect(0, "", "cache", "rm", path, "--key", keys[1]) == "1 removed\n"
        assert expect(0, "", "cache", "rm", "--json", path) == '{"schema_version": 1, "removed": 1}\n'
    assert expect(0, "", "cache", "rm", path) == "1 removed\n"
    assert json.loads(expect(0, "", "cache", "list", path, "--json"))["entries"] == []
    assert sorted(name for name in os.listdir(folder) if name.startswith("clicks")) == \
        ["clicks", "clicks.0123", f"clicks.{keys[0]}x"]
    expect(1, "NOT_FOUND: cannot open", "cache", "list", os.path.join(folder, "none", "x"))
    assert expect(0, "", "cache", "list", path) == f"No entries of {path}.\n"
    for words in (["cache"], ["cache", "lst", path], ["cache", "--help"]):
        expect(2, "cache needs list or rm, and PATH", *words)
    expect(2, "cache list needs PATH", "cache", "list")
    expect(2, "cache list takes no --key", "cache", "list", path, "--key", keys[0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        usage()
        no_daemon(temporary)
        doctor(temporary)
        files(temporary)
        the_output_cannot_be_written(temporary)
        cache(temporary)
    print("ok")
