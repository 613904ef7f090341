#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""groff has no warning about the manual pages, and they are complete.

    check_man.py ROOT BUILD

Every option and command that --help shows is in the page of the program, and every option of the
page is in --help; every function of stager.h, and every setting that is one value, is in its page.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

import house

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def warnings(path):
    """groff's warnings about a page, except for page breaks: a terminal has none."""
    result = subprocess.run(["groff", "-man", "-t", "-k", "-ww", "-z", "-Tutf8", path],
                            capture_output=True, text=True, errors="replace")
    return [line for line in result.stderr.split("\n")
            if line and not line.endswith("will not fit on one page")]


def words(path):
    """The text of a page without escapes and requests."""
    with open(path, encoding="utf-8") as file:
        return re.sub(r"\\f.", "", file.read()).replace("\\-", "-").replace("\\&", "")


def text_of_help(program, *arguments):
    return subprocess.run([program, *arguments, "--help"], capture_output=True, text=True,
                          check=True, stdin=subprocess.DEVNULL).stdout


def stagerctl_help(program):
    text = text_of_help(program)
    commands = sorted(set(re.findall(r"^  stagerctl (cache \w+|\w+)", text, re.M)))
    return text + "".join(text_of_help(program, *command.split()) for command in commands), commands


def compare(page, text, helped):
    """Options that only one of the two has."""
    documented, shown = (set(OPTION.findall(t)) for t in (text, helped))
    # Options of other programs are shown in examples: systemctl's.
    documented -= {"--now", "--user", "--unix-socket"}
    return ([f"{page}:1: --help shows {option}, the page does not" for option in sorted(shown - documented)] +
            [f"{page}:1: the page shows {option}, --help does not" for option in
             sorted(documented - shown - {"--help"})])


def settings_of(proto):
    """The settings with one value; lists may be documented elsewhere."""
    message = re.search(r"message Settings \{(.*?)\n\}", proto, re.S).group(1)
    return re.findall(r"(?:optional|required) \w+ (\w+) =", message)


def missing(page, text, names, what):
    return [f"{page}:1: {what} {name} is not documented" for name in names
            if not re.search(rf"\b{re.escape(name)}\b", text)]


def problems(root, build):
    folder = os.path.join(build, "docs/man")
    found = []
    pages = sorted(glob.glob(os.path.join(folder, "*.[1-8]")))
    if len(pages) < 8:
        found.append(f"docs/man/meson.build:1: {len(pages)} pages in {folder}")
    for path in pages:
        found += [f"{os.path.basename(path)}:1: {line}" for line in warnings(path)]
    page = {os.path.basename(path): words(path) for path in pages}
    found += compare("docs/stagerd.md", page["stagerd.8"],
                     text_of_help(os.path.join(build, "daemon/stagerd")))
    metrics = os.path.join(build, "client/metrics/stager-metrics")
    if os.path.exists(metrics):
        found += compare("docs/metrics.md", page["stager-metrics.8"], text_of_help(metrics))
    worker = house.read(root, "client/python/stager/__main__.py")
    found += compare("docs/worker.md", page["stager.1"],
                     "\n".join(line for line in worker.split("\n") if "add_argument" in line and "SUPPRESS" not in line))
    helped, commands = stagerctl_help(os.path.join(build, "client/stagerctl/stagerctl"))
    found += compare("docs/stagerctl.md", page["stagerctl.1"], helped)
    found += missing("docs/stagerctl.md", page["stagerctl.1"],
                     [f"stagerctl {name}" for name in commands], "command")
    functions = re.findall(r"\b(stager_\w+)\([^;{}]*\);", house.read(root, "client/stager.h"))
    found += missing("docs/man/make_man.py", page["stager.3"].split("FUNCTIONS")[1],
                     functions, "function")
    found += missing("systemd/stagerd.yaml", page["stagerd.yaml.5"].split("SETTINGS")[1],
                     settings_of(house.read(root, "proto/pipeline.proto")), "setting")
    return found


if __name__ == "__main__":
    if shutil.which("groff") is None:
        print("skipped: no groff (apt-get install groff-base)")
        sys.exit(house.SKIPPED)
    sys.exit(house.report(problems(*sys.argv[1:3]),
                          "tell it in the document that the page is made of (docs)"))
