#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The completions of bash and zsh have each command and option of stagerctl.

    test_completion.py STAGERCTL FOLDER_OF_COMPLETIONS
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

CTL = [*shlex.split(os.environ.get("MESON_EXE_WRAPPER", "")), os.path.abspath(sys.argv[1])]
BASH, ZSH = (os.path.abspath(os.path.join(sys.argv[2], name)) for name in ("stagerctl.bash", "_stagerctl"))
LISTED = ("NAME      STATE  CLIENTS\nshop      idle   0\nshop-two  idle   0\nclicks    idle   1\n"
          "quarantined 4 KiB: process 7\n")


def usage(*words):
    return subprocess.run([*CTL, *words, "--help"], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def complete(folder, *words):
    """What bash offers for the last word, in a folder whose `stagerctl` lists three pipelines."""
    script = ('source "$1"; shift; cd "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; '
              '_stagerctl stagerctl "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", BASH, folder, os.path.join(folder, "stagerctl"), *words],
                          capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "", done.stderr
    return set(done.stdout.split())


def bash(folder):
    lines = re.findall(r"^  stagerctl (\w+)(?: (list|rm))?(.*)$", usage(), re.M)
    commands = {name for name, _, _ in lines}
    assert commands and complete(folder, "") == commands | {"help", "--json", "--runtime-dir", "--help"}
    assert complete(folder, "ver") == {"versions", "version"}
    assert complete(folder, "cache", "") == {"list", "rm"}
    for name, second, synopsis in lines:
        words = [name, second] if second else [name]
        options = set(re.findall(r"--[a-z-]+", synopsis)) | ({"--output"} if " -o " in synopsis or "[-o " in synopsis else set())
        offered = complete(folder, *words, "-")
        assert options | {"--json", "--runtime-dir", "--help"} <= offered, (name, options, offered)
        for option in offered - {"--help", "--key"}:  # an option that the command does not take is an error
            values = {"--json": [], "--replace": [], "--warm": [], "--dot": [], "--rows": [], "--text": [], "--ideal": [], "--force": [], "--disable": []}
            done = subprocess.run([*CTL, name, *([second] if second else []), option, *values.get(option, ["1"])],
                                  capture_output=True, text=True, timeout=60, check=False, cwd=folder,
                                  env={**os.environ, "STAGER_RUNTIME_DIR": folder})
            assert "takes no" not in done.stderr and "unknown option" not in done.stderr, (name, option, done)
    assert complete(folder, "status", "s") == {"shop", "shop-two"}
    assert complete(folder, "status", "--json", "c") == {"clicks"}
    assert complete(folder, "--runtime-dir", "x", "explain", "") == {"shop", "shop-two", "clicks"}
    assert complete(folder, "explain", "shop", "") == set()
    assert complete(folder, "schema", "p") == {"pipeline.yaml"}
    assert complete(folder, "apply", "p") == {"pipeline.yaml"}
    assert complete(folder, "audit", "") >= {"shop", "pipeline.yaml"}
    assert complete(folder, "cat", "shop", "--limit", "") == set()


def zsh():
    with open(ZSH, encoding="utf-8") as file:
        text = file.read()
    commands = {name for name, _ in re.findall(r"^  stagerctl (\w+)(.*)$", usage(), re.M)}
    offered = re.search(r"'1:command:\((.*?)\)' '\*::argument", text).group(1).split()
    assert set(offered) == commands | {"help"}, offered
    for option in set(re.findall(r"--[a-z-]+", usage())):
        assert option in text, option
    if shutil.which("zsh") is None:
        print("zsh is not installed: its syntax is not checked")
    else:
        subprocess.run(["zsh", "-n", ZSH], check=True, timeout=60)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        fake = os.path.join(temporary, "stagerctl")
        with open(fake, "w", encoding="utf-8") as script_file:
            script_file.write(f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n")
        os.chmod(fake, 0o755)
        with open(os.path.join(temporary, "pipeline.yaml"), "w", encoding="utf-8"):
            pass
        bash(temporary)
        zsh()
    print("ok")
