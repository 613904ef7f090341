#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tree uses the field's standard terms. A term of the first table stands in no word and no identifier of any text; one of the
second table, which is also plain English, in no identifier of the C files of its folders."""
import re

import house

TEXT = (".c", ".h", ".cu", ".py", ".sh", ".proto", ".build", ".syms", ".service", ".socket", ".md", ".yaml", ".yml", ".in", ".options")
ALSO = ("quickstart", ".ci/run")
OWN = ("tests/style/check_vocabulary.py", "tests/style/test_checks.py", "CHANGELOG.md")

# a pattern, the standard term
TERMS = (
    ("twins?", "device mirror"),
    ("bells?", "doorbell"),
    ("bury|buries|buried|expel|expels|expelled", "reap, disconnect"),
    ("last_words?", "terminal status"),
    ("crews?", "thread pool, task pool"),
    ("doors?", "endpoint"),
    ("hands?_on|handed_on", "emit, requeue"),
    ("owe|owes|owed", "pending redelivery"),
    ("put_aside|is_aside", "deferred"),
    ("lend|lends|lent", "grant, leased"),
    ("take_in", "drain"),
    ("settle|settles|settled", "the verb that fits: synchronize, infer, retire, resolve"),
    ("unseen", "unwatched"),
    ("one_path", "single_path"),
    ("tickets?", "access token"),
    ("max_held", "max_in_flight"),
    ("ack_explicit", "manual_ack"),
    ("hold_timeout_millis", "lease_timeout_millis"),
    ("rejoin_millis", "reconnect_grace_millis"),
)

# a pattern, folders, identifiers that a textbook has, the standard term
NAMES = (
    ("cuts?", ("client/", "core/", "daemon/", "ops/", "proto/"), "min_cut|network_cut", "partition, revoke, past_end, slice"),
    ("kept", ("client/", "core/", "daemon/", "ops/", "proto/"), None, "reply cache, cache entry, free list, retained"),
    ("draw|draws|drawn|drawing", ("core/", "daemon/autotune/", "daemon/placement/", "daemon/stage/"), None, "pull"),
    ("lanes?", ("daemon/dataset/", "daemon/gpu/"), None, "parallel readers, channel"),
    ("lacks", ("client/", "core/", "daemon/", "ops/"), None, "unsupported nodes"),
)


def part(pattern):
    return re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![a-z])", re.I)


TERMS = [(part(pattern), instead) for pattern, instead in TERMS]
NAMES = [(part(pattern), folders, part(allowed) if allowed else None, instead) for pattern, folders, allowed, instead in NAMES]
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#include[^\n]*', re.S)


def code_of(text):
    """Comments, literals and includes are blank; lines keep their numbers."""
    return NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def problems(root):
    found = []
    for name in house.tracked(root, *TEXT, *ALSO):
        if name in OWN:
            continue
        text = house.read(root, name)
        for number, line in enumerate(text.split("\n"), 1):
            found += [f"{name}:{number}: {match.group(0)}: {instead}" for term, instead in TERMS for match in term.finditer(line)]
        if not name.endswith((".c", ".h", ".cu")):
            continue
        names = [rule for rule in NAMES if name.startswith(rule[1])]
        for number, line in enumerate(code_of(text).split("\n"), 1) if names else ():
            for term, _, allowed, instead in names:
                rest = allowed.sub("", line) if allowed else line
                found += [f"{name}:{number}: {match.group(0)}: {instead}" for match in term.finditer(rest)]
    return found


if __name__ == "__main__":
    house.main(problems, "write the standard term, which each line names last; a word that is right as plain English goes into "
               "NAMES with its folders")
