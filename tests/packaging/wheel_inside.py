# SPDX-License-Identifier: Apache-2.0
"""Run by check_wheel.py on a bare Debian, by the Python that has the wheel, at the top of the tree."""
import contextlib
import functools
import http.server
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import types
import urllib.request

import stager
from stager import ops

PACKAGE = pathlib.Path(stager.__file__).parent
BIN = pathlib.Path(sys.executable).parent
WAIT_S = 60 * max(int(os.environ.get("STG_TEST_SLOW", "1") or 1), 1)
TOKEN = "a-token-of-this-test-0123"


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


def get(url):
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return answer.read().decode()


def stager_metrics_answers():
    with stager.serve() as server:
        server.apply(stager.range(6).batch(3), name="counted")
        url = "http://127.0.0.1:9464"
        with subprocess.Popen([BIN / "stager-metrics", "--runtime-dir", server.runtime_dir, "--listen", url[7:]]) as process:
            wait_for(url + "/healthz")
            assert 'stager_pipeline_info{pipeline="counted"' in get(url + "/metrics"), get(url + "/metrics")
            assert "<html" in get(url + "/")
            process.terminate()
        assert process.returncode == 0, process.returncode


def answers(url):
    try:
        return get(url) is not None
    except OSError:
        return False


def wait_for(url):
    end = time.monotonic() + WAIT_S
    while not answers(url):
        assert time.monotonic() < end, f"{url} does not answer"
        time.sleep(0.05)


def rows(**remote):
    """Batches without an end, of which a worker makes some."""
    dataset = stager.range(1000).batch(10).repeat()
    return dataset.staged(name="rows", capacity=4, **({"remote": {"mode": "on", **remote}} if remote else {}))


def command(folder, *options):
    pathlib.Path(folder, "rows.yaml").write_text(rows().yaml(), encoding="utf-8")
    return [BIN / "stagerd", "--worker", "--until-eof", "--listen", "127.0.0.1:0", *options, pathlib.Path(folder, "rows.yaml")]


@contextlib.contextmanager
def worker(folder, *options):
    """A worker of the command stagerd; gives host and port."""
    with subprocess.Popen(command(folder, *options), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = next((line for line in process.stderr if ", port " in line), "")
        assert line, f"the worker ended with {process.wait()}"
        yield f"127.0.0.1:{int(line.rsplit(' ', 1)[1])}"
        process.stdin.close()
        assert process.wait(WAIT_S) == 0, process.returncode


def a_worker_needs_no_libcurl():
    with tempfile.TemporaryDirectory() as folder, worker(folder) as place:
        wait_for(f"http://{place}/readyz")
        about = json.loads(get(f"http://{place}/v1/worker"))
        with urllib.request.urlopen(f"http://{place}/v1/batches/{about['pipelines'][0]['digest']}/0/5", timeout=WAIT_S) as answer:
            assert len(answer.read()) > 64


def takes_batches_of(**remote):
    """A stagerd of the wheel has batches of a worker, and all are right."""
    with stager.serve() as server, server.open(server.apply(rows(**remote))) as stream:
        end = time.monotonic() + WAIT_S
        for number, batch in enumerate(stream):
            assert batch["value"].tolist() == list(range(number % 100 * 10, number % 100 * 10 + 10)), (number, batch["value"])
            if number % 50 == 49 and server.explain("rows")["remote"]["n_remote_items"] > 0:
                return
            assert time.monotonic() < end, server.explain("rows")["remote"]


def an_actor_of_stager_ray_serves_batches():
    """The actor's own class, without Ray, which is larger than all that this root has."""
    sys.modules["ray"] = types.ModuleType("ray")
    sys.modules["ray"].util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    from stager.ray import _Worker  # pylint: disable=import-outside-toplevel
    actor = _Worker(rows().yaml(), TOKEN, 1, None)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "token").write_text(TOKEN + "\n", encoding="ascii")
        try:
            takes_batches_of(workers=[actor.url(None)], token_file=os.path.join(folder, "token"))
        finally:
            actor.close()


def a_worker_has_tls_by_gnutls_of_the_machine():
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = os.path.join(folder, "key"), os.path.join(folder, "certificate")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
        with worker(folder, "--tls-cert", certificate, "--tls-key", key) as place:
            takes_batches_of(workers=[f"https://{place}"], ca_file=certificate)
        pathlib.Path(folder, "libgnutls.so.30").write_bytes(b"no library")
        refused = subprocess.run(command(folder, "--tls-cert", certificate, "--tls-key", key), check=False, timeout=WAIT_S, text=True,
                                 env={**os.environ, "LD_LIBRARY_PATH": folder}, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert refused.returncode == 1 and "libgnutls30" in refused.stderr, refused


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
             stager_metrics_answers, a_worker_needs_no_libcurl, data_on_other_machines_need_libcurl_alone,
             an_actor_of_stager_ray_serves_batches, a_worker_has_tls_by_gnutls_of_the_machine):
    case()
    print(f"ok   {case.__name__}", flush=True)
