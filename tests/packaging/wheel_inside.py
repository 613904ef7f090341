# SPDX-License-Identifier: Apache-2.0
"""Run by check_wheel.py on a bare Debian, by the Python that has the wheel, at the top of the tree."""
import functools
import http.server
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import stager
from stager import ops

PACKAGE = pathlib.Path(stager.__file__).parent
BIN = pathlib.Path(sys.executable).parent


def the_package_is_that_of_the_wheel():
    assert PACKAGE.is_relative_to(sys.prefix), PACKAGE
    for path in PACKAGE.iterdir():
        assert path.suffix in (".py", ".pyi") or not path.is_file() or b".debug_info" not in path.read_bytes(), path
    version = subprocess.run([BIN / "stagerd", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert importlib.metadata.version("stager") in version, version
    about = importlib.metadata.metadata("stager")
    assert about["License-Expression"] == "Apache-2.0" and "import stager" in (about.get_payload() or about["Description"])
    assert any(str(path).endswith("licenses/LICENSE") for path in importlib.metadata.files("stager"))


def its_stagerd_and_compute_library_serve_a_trainer():
    element = stager.range(6).batch(3).get_next()
    pipeline = stager.staged({"x": ops.cast(element["value"], dtype="float32")}, name="wheel")
    pipeline = pipeline.targets(pipeline["x"] * 2.0)
    with stager.serve() as server, server.open(server.apply(pipeline)) as stream:
        assert [stream.run(batch)[0].tolist() for batch in stream] == [[0, 2, 4], [6, 8, 10]]


def blocks_of_readme():
    """Of "Five minutes": the one that generates rows, the pipeline, the trainer."""
    text = pathlib.Path("README.md").read_text(encoding="utf-8").split("## Five minutes")[1]
    found = {}
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        found.setdefault("rows" if block.startswith("mkdir ") else kind, block)
    return found


def the_python_example_of_readme_runs():
    blocks = blocks_of_readme()
    subprocess.run(["bash", "-ec", blocks["rows"]], check=True)
    folder = pathlib.Path("/tmp/shop")
    (folder / "shop.yaml").write_text(blocks["yaml"], encoding="utf-8")
    (folder / "train.py").write_text(blocks["python"], encoding="utf-8")
    with stager.serve() as server:
        environment = {**os.environ, "STAGER_RUNTIME_DIR": server.runtime_dir}
        subprocess.run([BIN / "stagerctl", "apply", folder / "shop.yaml"], env=environment, check=True)
        trainers = [subprocess.Popen([sys.executable, folder / "train.py"], env=environment, stdout=subprocess.PIPE, text=True)
                    for _ in range(2)]
        outputs = [trainer.communicate(timeout=300)[0].splitlines() for trainer in trainers]
    assert [trainer.returncode for trainer in trainers] == [0, 0]
    assert outputs[0] == outputs[1] and len(outputs[0]) == 200000 // 4096, outputs


def rows_of(url):
    with stager.serve() as server, server.open(server.apply(stager.files(url).text_line().batch(2), name="remote")) as stream:
        return [batch["record"].tolist() for batch in stream]


def data_on_other_machines_need_libcurl_alone():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "rows.txt").write_text("one\ntwo\n", encoding="ascii")
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/rows.txt"
            try:
                raise AssertionError(f"read without libcurl: {rows_of(url)}")
            except stager.FailedPreconditionError as error:
                assert "libcurl.so.4" in str(error) and "libcurl4" in str(error), error
            subprocess.run("sudo apt-get install -y -qq --no-install-recommends libcurl4 >/dev/null", shell=True, check=True)
            assert rows_of(url) == [[b"one", b"two"]], rows_of(url)
            server.shutdown()


for case in (the_package_is_that_of_the_wheel, its_stagerd_and_compute_library_serve_a_trainer, the_python_example_of_readme_runs,
             data_on_other_machines_need_libcurl_alone):
    case()
    print(f"ok   {case.__name__}", flush=True)
