#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/c-api.md and docs/compatibility.md compile without a warning. Every step of
pipeline.proto has a section in docs/dataset.md that describes its fields or names the document that does.

    test_docs.py SOURCE_ROOT COMPILER...
"""
import os
import re
import subprocess
import sys

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-unused-function"]


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


def undocumented(proto, page):
    """What a step of the schema has and the page does not: "step" or "step.field"."""
    messages = dict(re.findall(r"^message (\w+) \{(.*?)^\}", proto, re.S | re.M))
    headings = {name for line in re.findall(r"^## (.*)$", page, re.M) for name in re.split("[ ,]+", line)}
    for message, step in re.findall(r"([A-Z]\w+) (\w+) = \d+", messages["Step"]):
        if step not in headings:
            yield step
        for field in re.findall(r"(?:optional|required|repeated) \S+ (\w+) =", messages.get(message, "")):
            if not re.search(rf"`{field}[`:]", page):
                yield f"{step}.{field}"


def check_steps(root):
    found = list(undocumented(read(root, "proto/pipeline.proto"), read(root, "docs/dataset.md")))
    for name in found:
        print(f"docs/dataset.md: {name} is not there")
    return 1 if found else 0


def main(root, compiler):
    blocks = [(page, block) for page in ("docs/c-api.md", "docs/compatibility.md")
              for block in re.findall(r"^```c\n(.*?)^```$", read(root, page), re.S | re.M)]
    assert len(blocks) >= 5, f"only {len(blocks)} examples"
    for number, (page, block) in enumerate(blocks, 1):
        result = subprocess.run(
            [*compiler, *WARNINGS, "-x", "c", "-fsyntax-only", "-I", os.path.join(root, "client"), "-"],
            input=block, capture_output=True, text=True)
        if result.returncode != 0:
            print(f"example {number} of {page}:\n{result.stderr}")
            return 1
    print(f"{len(blocks)} examples compile")
    return check_steps(root)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
