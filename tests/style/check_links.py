#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every link of a document to a file or a heading of the repository resolves; docs/README.md names every page of
docs/; README.md is short."""
import os
import re

import house

MAX_LINES, MAX_WORDS = 150, 1800
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)


def anchors(text):
    """The anchors that a code host gives to the headings of a document."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        n = sum(other == slug or re.fullmatch(re.escape(slug) + r"-\d+", other) is not None for other in found)
        found.append(f"{slug}-{n}" if n else slug)
    return found


def problems(root):
    found, known = [], {}
    for name in house.tracked(root, ".md"):
        text = CODE.sub(lambda match: "\n" * match.group().count("\n"), house.read(root, name))
        for number, line in enumerate(text.split("\n"), 1):
            for target, anchor in LINK.findall(line):
                if "://" in target:
                    continue
                path = os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else name
                if not os.path.exists(os.path.join(root, path)):
                    found.append(f"{name}:{number}: {target} is not there")
                elif anchor and path.endswith(".md"):
                    if path not in known:
                        known[path] = anchors(house.read(root, path))
                    if anchor not in known[path]:
                        found.append(f"{name}:{number}: {path} has no heading #{anchor}")
        text = house.read(root, name)
        lines, words = text.count("\n"), len(text.split())
        if name == "README.md" and (lines > MAX_LINES or words > MAX_WORDS):
            found.append(f"{name}:{lines}: {lines} lines and {words} words; at most {MAX_LINES} and {MAX_WORDS}")
    return found + unlisted(root)


def unlisted(root):
    """The pages of docs/ that the index does not name."""
    index = "docs/README.md"
    pages = [name for name in house.tracked(root, ".md") if re.fullmatch(r"docs/(how-to/)?[\w-]+\.md", name)]
    if index not in pages:
        return []
    named = {os.path.normpath(os.path.join("docs", target)) for target, _ in LINK.findall(house.read(root, index))}
    return [f"{index}:1: {name} is not in the index" for name in pages if name not in named | {index}]


if __name__ == "__main__":
    house.main(problems, "name the file by its path from the document; what README.md has no room for belongs into docs/")
