#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Boots a real systemd in a container and runs boot_inside.py, its only service, which tests stagerd there.

    boot.py SOURCE BUILD TRAINER

The container's root is the machine's: the test downloads nothing. Skipped (77) if no container can boot.
"""
import os
import shutil
import signal
import sys

import container

HERE = os.path.dirname(os.path.abspath(__file__))
# The users as which boot_inside.py trains: two of the group stager, and one outside it.
USERS = """u stg-one 2001 "one" /home/stg-one /bin/sh
u stg-two 2002 "two" /home/stg-two /bin/sh
u stg-stranger 2003 "stranger" / /bin/sh
m stg-one stager
m stg-two stager
g stager -
"""


def test(booted, build, trainer):
    shutil.copy(trainer, os.path.join(booted.out, "boot_trainer"))
    shutil.copy(os.path.join(HERE, "boot_inside.py"), booted.out)
    status, said, log = booted.boot(f"/usr/bin/python3 -u /run/boot/boot_inside.py {container.quoted(build)}")
    print(log, end="")
    if status != 0:
        print(said.strip())
    return 1 if status != 0 else 0


def main(source, build, trainer):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        if shutil.which("meson") is None:
            raise container.Skip("no meson (apt-get install meson)")
        with container.Container("/", [source, build], {"/etc/sysusers.d/boot.conf": USERS}) as booted:
            return test(booted, build, trainer)
    except container.Skip as why:
        print(f"skipped: {why}")
        return container.SKIPPED


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]))
