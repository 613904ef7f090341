#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md's "Five minutes", unchanged: the check writes its files and runs its commands in order, against a separate
daemon. It leaves out the start of a daemon, and pip: the Python trainer runs with the package of the build, if there
is one.

    check_readme.py ROOT BUILD
"""
import os
import re
import subprocess
import sys

from daemon import Daemon

FOLDER = "/tmp/shop"
ROWS, BATCH = 200000, 4096


def blocks(root):
    """(language, text) of each block of the section, and the files it names, by extension."""
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        section = re.search(r"^## Five minutes\n(.*?)^## ", file.read(), re.M | re.S).group(1)
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.M | re.S)
    names = {os.path.splitext(name)[1]: name for name in re.findall(rf"`({FOLDER}/\w+\.(?:yaml|c|py))`", section)}
    return found, names


def environment(build, daemon):
    """The environment of `meson devenv`'s shell."""
    path = os.path.join(build, "client/stagerctl") + ":" + os.environ["PATH"]
    return dict(daemon.env(), PATH=path, LD_LIBRARY_PATH=os.path.join(build, "client"),
                PKG_CONFIG_PATH=os.path.join(build, "meson-uninstalled"), PYTHONPATH=os.path.join(build, "client/python"))


def run(root, script, env):
    result = subprocess.run(["bash", "-e", "-u", "-c", script + "\nwait\n"], cwd=root, env=env, capture_output=True, text=True)
    assert result.returncode == 0, f"{script}\nended with {result.returncode}:\n{result.stdout}{result.stderr}"
    return result.stdout


def main():
    root, build = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    found, names = blocks(root)
    assert set(names) == {".yaml", ".c", ".py"}, names
    with Daemon(build) as daemon:
        def here(text):
            return text.replace(FOLDER, daemon.folder)

        for language, text in found:
            if language:
                name = names["." + language.replace("python", "py")]
                with open(here(name), "w", encoding="utf-8") as file:
                    file.write(here(text))
        env = environment(build, daemon)
        scripts = [here(text) for language, text in found if not language and "stagerd &" not in text]
        *by_hand, python = scripts
        assert len(by_hand) >= 3 and "pip install" in python, scripts
        said = "".join(run(root, script, env) for script in by_hand)
        assert said.count(f"{BATCH} rows, the first id is") == 2 * (ROWS // BATCH), said
        assert "shop is a valid pipeline" in said and "advice" not in said, said
        print("ok   two trainers in C")
        if not os.path.isdir(os.path.join(build, "client/python/stager")):
            print("skipped: a trainer in Python: the package was not built")
            return
        said = run(root, re.sub(r"^.*pip install.*$", "", python, flags=re.M).replace("~/stager/bin/python", sys.executable), env)
        assert said.count("[") == ROWS // BATCH, said
        print("ok   one in C, one in Python")


if __name__ == "__main__":
    main()
