#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the sdist of ./client/python with pip, for each given interpreter, in a separate environment. The package
imports, its stagerd serves, its stagerctl lists, and its compute library runs the part of a graph behind the boundary. Programs have no
debug information, and the metadata contain licence and description. The sdist contains only committed files.

    check_wheel.py [PYTHON]...          default: the one that runs this; each takes a minute or two
"""
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PROGRAM = """
import json, os, subprocess
import stager
from stager import ops
assert stager.__file__.startswith({folder!r}), stager.__file__
element = stager.range(6).batch(3).get_next()
pipeline = stager.staged({{"x": ops.cast(element["value"], dtype="float32")}}, name="wheel")
pipeline = pipeline.targets(pipeline["x"] * 2.0)
with stager.serve() as server:
    assert server._process.args[0].startswith({folder!r}), server._process.args
    with server.open(server.apply(pipeline)) as stream:
        listed = subprocess.run([{folder!r} + "/bin/stagerctl", "list", "--json"], stdout=subprocess.PIPE, check=True,
                                env={{**os.environ, "STAGER_RUNTIME_DIR": server.runtime_dir}}).stdout
        assert [entry["name"] for entry in json.loads(listed)["pipelines"]] == ["wheel"], listed
        assert [stream.run(batch)[0].tolist() for batch in stream] == [[0, 2, 4], [6, 8, 10]]
import importlib.metadata, pathlib
for path in pathlib.Path(stager.__file__).parent.iterdir():
    assert path.suffix in (".py", ".pyi") or not path.is_file() or b".debug_info" not in path.read_bytes(), path
about = importlib.metadata.metadata("stager")
assert about["License-Expression"] == "Apache-2.0" and "import stager" in (about.get_payload() or about["Description"])
assert any(str(path).endswith("licenses/LICENSE") for path in importlib.metadata.files("stager"))
"""


with open(os.path.join(TOP, "pyproject.toml"), encoding="utf-8") as project:
    VERSION = re.search(r'^version = "(.*)"', project.read(), re.M).group(1)


def check(python):
    with tempfile.TemporaryDirectory(prefix="stg-wheel-") as folder:
        env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "STAGERD", "LD_LIBRARY_PATH")}
        for command in ([python, "-m", "venv", folder],
                        [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "build"],
                        [f"{folder}/bin/python", "-m", "build", "--sdist", "--outdir", f"{folder}/sdist",
                         os.path.join(TOP, "client/python")],
                        [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", f"{folder}/sdist/stager-{VERSION}.tar.gz"],
                        [f"{folder}/bin/python", "-c", PROGRAM.format(folder=folder)]):
            result = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
            if result.returncode != 0:
                print(f"{result.stdout}\nFAIL {python}: {' '.join(command[:4])} ended with {result.returncode}", flush=True)
                return False
    print(f"ok   {python}", flush=True)
    return True


def main():
    passed = [check(python) for python in sys.argv[1:] or [sys.executable]]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed, 0 skipped")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
