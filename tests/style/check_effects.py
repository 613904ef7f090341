#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All effects of a stage happen in daemon/stage/commit.c: no other object of the folder refers to a
symbol that wakes, sends, disconnects, logs, unmaps or writes to a ring, and no other source calls the hooks of the
loop. What may block is referred to by objects that call it without the lock.
Observers see a stage through observe.c, which commit.c alone calls, and through partition.c.
With link time optimisation the objects have no symbols yet.

    check_effects.py ROOT BUILD NM
"""
import glob
import os
import re
import subprocess
import sys

import house

FOLDER, ONLY_IN = "daemon/stage/", "commit.c"
# {the allowed object: symbols; "x*": all that begin with x}.
ALLOWED = {
    ("commit.c",): {"send", "sendto", "sendmsg", "shutdown", "pthread_cond_signal", "pthread_cond_broadcast", "stg_log",
                 "stg_pool_cancel", "stg_ring_push", "stg_ring_place", "stg_ring_begin", "stg_ring_finish", "stg_ring_revoke", "stg_ring_drop",
                 "stg_ring_trace", "stg_ring_want_doorbell", "stg_observe"},
    ("observe.c",): {"stg_tune_changed", "stg_tune_look", "stg_tune_news", "stg_tune_published", "stg_tune_taken"},
    ("observe.c", "partition.c"): {"stg_partitioner_*"},
    # Without the lock: commit.c frees clients, stage.c a stage that no thread uses, the others make new ones.
    ("commit.c", "stage.c"): {"stg_segment_destroy"},
    ("client.c", "memory.c"): {"stg_segment_create*", "stg_segment_back"},
    # Everything that may block has a function of its own in core or in the host's folder.
    (): {"mmap", "munmap", "memfd_create", "open", "close", "read", "write", "fopen", "fclose", "poll", "usleep",
         "nanosleep", "stg_cores_free"},
}
# Calls through a pointer to a function leave no symbol.
HOOK = re.compile(r"(?:->|\.)(?:wake|tell)\(")


def undefined(listing):
    """The symbols that an object refers to, from `nm -P`."""
    words = [line.split() for line in listing.split("\n")]
    return {word[0] for word in words if len(word) > 1 and word[1] == "U"}


def chosen(names, patterns):
    return {name for name in names
            if name in patterns or any(p.endswith("*") and name.startswith(p[:-1]) for p in patterns)}


def symbols(objects):
    """objects: {source in FOLDER: symbols that its object refers to}."""
    found = []
    for owners, patterns in ALLOWED.items():
        for source, names in sorted(objects.items()):
            bad = chosen(names, patterns) if source not in owners else None
            if bad:
                found.append(f"{FOLDER}{source}:1: refers to {', '.join(sorted(bad))}, which only "
                             f"{' and '.join(owners) or 'other folders'} may")
    return found


def hooks(root):
    found = []
    for name in house.tracked(root, ".c"):
        if not name.startswith(FOLDER) or name == FOLDER + ONLY_IN:
            continue
        for number, line in enumerate(house.read(root, name).split("\n"), 1):
            if HOOK.search(line):
                found.append(f"{name}:{number}: calls a hook of the loop")
    return found


def problems(root, build, nm):
    objects = {}
    for path in glob.glob(os.path.join(build, "daemon/libstg_daemon.a.p/stage_*.c.o")):
        out = subprocess.run([nm, "-P", path], check=False, capture_output=True, text=True).stdout
        objects[os.path.basename(path)[len("stage_"):-len(".o")]] = undefined(out)
    if not objects:
        return [f"{build}: no object of {FOLDER}"]
    found = symbols(objects)
    found += [f"{FOLDER}{owner}:1: refers to none of its symbols: this check looks at the wrong names"
              for owners, patterns in ALLOWED.items() for owner in owners
              if any(objects.values()) and not chosen(objects.get(owner, set()), patterns)]
    return found + hooks(root)


if __name__ == "__main__":
    sys.exit(house.report(problems(*sys.argv[1:4]), "record the effect (daemon/stage/effects.h), and let "
                          "stg_stage_commit perform it"))
