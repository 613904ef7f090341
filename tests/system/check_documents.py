#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerd accepts each pipeline shown in a document, and the settings file.

    check_documents.py ROOT BUILD
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from daemon import Daemon

BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.M | re.S)
DOCUMENTS = ("README.md", "docs/*.md", "docs/how-to/*.md")


def pipelines(root):
    """(document, text) of each YAML block that has a dataset."""
    for pattern in DOCUMENTS:
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            with open(path, encoding="utf-8") as file:
                for text in BLOCK.findall(file.read()):
                    if re.search(r"^dataset:", text, re.M):
                        yield os.path.relpath(path, root), text


def check(stagerd, folder, text):
    """The error of `stagerd --check` for a pipeline, or None."""
    path = os.path.join(folder, "pipeline.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    result = subprocess.run([stagerd, "--check", path], capture_output=True, text=True)
    return None if result.returncode == 0 else result.stderr.strip()


def value_of(text):
    if text.startswith("{"):
        values = json.loads(re.sub(r"(?<= )(/[^,}]*)", r'"\1"', re.sub(r"(\w+): ", r'"\1": ', text)))
        return {key: value for key, value in values.items() if not key.endswith("_dir")}
    return int(text) if text.isdigit() else text


def settings_with_defaults(root, folder):
    """systemd/stagerd.yaml with its commented settings enabled, except for folders."""
    with open(os.path.join(root, "systemd/stagerd.yaml"), encoding="utf-8") as file:
        text = re.sub(r"^#(\w+: )", r"\1", file.read(), flags=re.M)
    keys = re.findall(r"^(\w+): (.*)$", text, re.M)
    return {key: value_of(value) for key, value in keys
            if not key.endswith("_dir")}


def main():
    root, build = sys.argv[1:3]
    n = failed = 0
    with tempfile.TemporaryDirectory(prefix="stg-documents-") as folder:
        stagerd = os.path.join(build, "daemon/stagerd")
        for document, text in pipelines(root):
            n += 1
            said = check(stagerd, folder, text)
            if said is not None:
                failed += 1
                print(f"FAIL {document}: {said}")
            else:
                print(f"ok   a pipeline of {document}")
        assert n >= 2, f"{n} pipelines in the documents: not found?"
        assert check(stagerd, folder, "dataset: 5\n") is not None
        settings = settings_with_defaults(root, folder)
        assert len(settings) >= 5, settings
        with Daemon(build, **settings):
            print("ok   the settings file, with its comments made real")
    print(f"{n + 1 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
