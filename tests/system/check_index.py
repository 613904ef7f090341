#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl index: builds the indexes of a pipeline's files, finds them again, reports what cannot be read; a full pass builds
them too, and a restart keeps them.

    check_index.py BUILD
"""
import json
import os
import subprocess
import sys

from daemon import Daemon, SLOW, check, write

ROWS = 220000
PIPELINE = """name: {name}
dataset:
- files: {{pattern: "{pattern}", shuffle: true}}
- interleave: {{cycle_length: 2, reader: {{text_line: {{skip_header_lines: 1}}}}}}
- batch: {{batch_size: 1000}}
"""


def indexes(daemon):
    folder = os.path.join(daemon.folder, "state", "index")
    return sorted(name for name in os.listdir(folder) if name.endswith(".kept"))


def make_files(daemon, n):
    folder = os.path.join(daemon.folder, "data [1]")  # a pattern's own characters
    os.makedirs(folder, exist_ok=True)
    for i in range(n):
        write(os.path.join(folder, f"{i}.csv"), "header\n" + "".join(f"{k},line of file {i}\n" for k in range(ROWS)))
    write(os.path.join(folder, "small.csv"), "header\n1\n")
    return folder


def run(daemon, *arguments, status=0):
    done = subprocess.run([os.path.join(daemon.build, "client", "stagerctl", "stagerctl"), "--runtime-dir",
                           daemon.runtime_dir, *arguments], capture_output=True, text=True, timeout=60 * SLOW)
    check(done.returncode == status, f"{arguments}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def check_command(daemon, folder):
    pipeline = os.path.join(daemon.folder, "p.yaml")
    write(pipeline, PIPELINE.format(name="lines", pattern=folder.replace("[", "\\\\[") + "/*.csv"))
    daemon.ctl("apply", pipeline)
    first = json.loads(run(daemon, "index", "lines", "--json").stdout)
    check(first["done"] and first["files"] == 4 and first["files_done"] == 4, first)
    check((first["built"], first["existing"], first["without_index"], first["failed"]) == (3, 0, 1, 0), first)
    check(first["records"] == 3 * ROWS, first)
    check(len(indexes(daemon)) == 3 and 0 < first["index_bytes"] < first["bytes"] / 500, first)
    # By the file: the same indexes.
    second, third = (json.loads(line) for line in run(daemon, "index", pipeline, "lines", "--json").stdout.splitlines())
    for again in second, third:
        check((again["built"], again["existing"], again["records"]) == (0, 3, 3 * ROWS), again)
    check("3 existed" in run(daemon, "index", "lines").stdout, "text")
    return pipeline


def check_refusals(daemon, folder):
    check("NOT_FOUND" in run(daemon, "index", "none", status=1).stderr, "an unknown name")
    broken = os.path.join(daemon.folder, "broken.yaml")
    write(broken, "dataset: [\n")
    check("broken.yaml:" in run(daemon, "index", broken, status=1).stderr, "a file that is no pipeline")
    missing = os.path.join(daemon.folder, "missing.yaml")
    write(missing, PIPELINE.format(name="missing", pattern=folder + "/none*"))
    check("no files matched" in run(daemon, "index", missing, status=1).stderr, "no files")
    check("usage" in run(daemon, "index", "--help").stdout, "help")
    run(daemon, "index", status=2)


def check_restart(daemon):
    before = indexes(daemon)
    daemon.stop()
    write(os.path.join(daemon.folder, "state", "index", "new-1-1"), "half")
    daemon.start()
    again = json.loads(run(daemon, "index", "lines", "--json").stdout)
    check((again["built"], again["existing"]) == (0, 3), again)
    check(indexes(daemon) == before, "the indexes survive a restart")
    check("new-1-1" not in os.listdir(os.path.join(daemon.folder, "state", "index")), "leftovers go")


def check_stale(daemon, folder):
    with open(os.path.join(folder, "0.csv"), "a", encoding="utf-8") as file:
        file.write("one more\n")
    again = json.loads(run(daemon, "index", "lines", "--json").stdout)
    check((again["built"], again["existing"], again["records"]) == (1, 2, 3 * ROWS + 1), again)
    check(daemon.wait_for_log("is stale: the file has changed"), "the log names a stale index")


def check_pass(daemon):
    """A run of the pipeline builds them, too."""
    folder = os.path.join(daemon.folder, "state", "index")
    for name in indexes(daemon):
        os.unlink(os.path.join(folder, name))
    run(daemon, "cat", "lines", "--limit", "1000")
    check(len(indexes(daemon)) == 3, f"{len(indexes(daemon))} indexes after a pass")


def main():
    with Daemon(sys.argv[1]) as daemon:
        folder = make_files(daemon, 3)
        check_command(daemon, folder)
        check_refusals(daemon, folder)
        check_restart(daemon)
        check_stale(daemon, folder)
        check_pass(daemon)
    with Daemon(sys.argv[1], index_size=0) as daemon:
        pipeline = os.path.join(daemon.folder, "p.yaml")
        write(pipeline, PIPELINE.format(name="lines", pattern=make_files(daemon, 1).replace("[", "\\\\[") + "/*.csv"))
        check("index_size is 0" in run(daemon, "index", pipeline, status=1).stderr, "index_size 0")
    print("ok")


if __name__ == "__main__":
    main()
