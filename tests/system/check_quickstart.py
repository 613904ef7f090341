#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./quickstart build shows progress: on a terminal each step, in a log its beginning and its end. The programs that it
starts are played by scripts.

    check_quickstart.py ROOT
"""
import os
import pty
import re
import subprocess
import sys
import tempfile

PROGRAMS = {
    "dpkg-query": "printf 'install ok installed'",
    "meson": 'mkdir -p "$2/tests"; : >"$2/build.ninja"',
    # [1/2] of a dry run, and of a run that is not quiet
    "ninja": 'case " $* " in *" -n "*) printf "[1/2] a\\n[2/2] b\\n" ;; *" --quiet "*) ;; *) printf "[1/2] compiles\\n" ;; esac',
}


def environment(folder):
    os.mkdir(os.path.join(folder, "bin"))
    for name, text in PROGRAMS.items():
        path = os.path.join(folder, "bin", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)
    return {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "STAGER_BUILD": f"{folder}/build"}


def on_a_terminal(command, env):
    master, slave = pty.openpty()
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave) as process:
        os.close(slave)
        said = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:     # the last writer is gone
                break
            if not part:
                break
            said += part
    os.close(master)
    assert process.returncode == 0, said
    return said.decode()


def main(root):
    command = [os.path.join(root, "quickstart"), "build"]
    with tempfile.TemporaryDirectory(prefix="stg-quickstart-") as folder:
        env = environment(folder)
        log = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
        terminal = on_a_terminal(command, env)
    assert re.search(r"==> Building into \S+/build: 2 steps\nbuilt in \d+ s\n\Z", log), log
    assert re.search(r"2 steps\r\n\[1/2\] compiles\r\nbuilt in \d+ s\r\n\Z", terminal), terminal
    print("1 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
