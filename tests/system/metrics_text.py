# SPDX-License-Identifier: Apache-2.0
"""A strict reader of the text format 0.0.4 of Prometheus, and rules for a series of such texts."""
import re

from daemon import check

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\d+(?:\.\d+)?)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')


class Metrics:
    """families: {name: type}; helps: {name: text}; samples: {(name, labels): value}, labels a sorted tuple of pairs."""

    def __init__(self, text):
        self.families, self.helps, self.samples = {}, {}, {}
        family = None
        check(text.endswith("\n"), "the last line has no end")
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                _, _, family, text = line.split(" ", 3)
                check(family not in self.helps, f"a second family {family}")
                self.helps[family] = text
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                check(name == family, f"TYPE {name} after HELP {family}")
                self.families[name] = kind
            else:
                self.add(line, family)

    def add(self, line, family):
        match = SAMPLE.fullmatch(line)
        check(match, f"no sample: {line!r}")
        name, labels, value = match.groups()
        kind = self.families[family]
        names = {family} if kind != "histogram" else {family + suffix for suffix in ("_bucket", "_sum", "_count")}
        check(name in names, f"{name} in family {family}")
        pairs = LABEL.findall(labels or "")
        check("".join(f'{key}="{text}",' for key, text in pairs) == (labels + "," if labels else ""), line)
        key = (name, tuple(sorted(pairs)))
        check(key not in self.samples, f"twice: {line}")
        self.samples[key] = float(value)

    def get(self, name, **labels):
        return self.samples[name, tuple(sorted(labels.items()))]

    def sum(self, name, **labels):
        """The sum over all samples of that name that have these labels."""
        return sum(value for (other, pairs), value in self.samples.items()
                   if other == name and set(labels.items()) <= set(pairs))

    def family_of(self, name):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        return name if name in self.families else base

    def labels(self):
        """{family: names of labels}, of those that have samples."""
        found = {}
        for name, pairs in self.samples:
            found.setdefault(self.family_of(name), set()).update(key for key, _ in pairs)
        return found


def check_grows(before, after, but=()):
    """No counter and no part of a histogram is smaller, or gone."""
    for (name, pairs), value in before.samples.items():
        if before.families[before.family_of(name)] not in ("counter", "histogram"):
            continue
        if dict(pairs).get("pipeline") in but:
            continue
        check((name, pairs) in after.samples, f"{name} {pairs} is gone")
        check(after.samples[name, pairs] >= value, f"{name} {pairs}: {value} -> {after.samples[name, pairs]}")
    for (name, pairs), value in after.samples.items():
        if name.endswith("_bucket") and dict(pairs)["le"] == "+Inf":
            others = tuple(pair for pair in pairs if pair[0] != "le")
            check(after.samples[name[:-len("_bucket")] + "_count", others] == value, f"{name} {pairs}")
