#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stagerctl's commands and the example trainers against a real daemon.

    test_with_daemon.py BUILD [PART OF A TEST'S NAME]...
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(HERE, "../system"))
sys.path.insert(0, os.path.join(TOP, "examples"))
from daemon import SLOW, Daemon  # noqa: E402
from make_lines import lines  # noqa: E402

CTL = "client/stagerctl/stagerctl"


def write(daemon, name, text):
    path = os.path.join(daemon.folder, name)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


def example(daemon, name, **values):
    """A pipeline of examples with its placeholders filled in."""
    with open(os.path.join(TOP, "examples", name + ".yaml.in"), encoding="utf-8") as file:
        text = file.read()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    assert "@" not in text.split("name:")[1], text
    return write(daemon, os.path.basename(name) + ".yaml", text)


def expect(daemon, status, err_part, *args, stdin=None):
    result = subprocess.run([os.path.join(daemon.build, CTL), *args], env=daemon.env(),
                            input=stdin, capture_output=True, timeout=60 * SLOW)
    out, err = result.stdout.decode(), result.stderr.decode()
    assert result.returncode == status, (args, result.returncode, out, err, daemon.log())
    assert err_part in err, (args, err)
    return out


def expect_error(daemon, status, *args):
    """What stagerctl prints on standard error; nothing is on standard output."""
    result = daemon.run(CTL, *args)
    assert (result.returncode, result.stdout) == (status, b""), (args, result)
    return result.stderr.decode()


def expect_json(daemon, *args):
    out = expect(daemon, 0, "", *args, "--json")
    assert out.count("\n") == 1, out
    reply = json.loads(out)
    assert list(reply)[0] == "schema_version" and reply.pop("schema_version") == 1, out
    return reply


def numbers(path, extra=""):
    return (f"name: numbers\ndataset:\n  - files: {{pattern: ['{path}'], shuffle: false}}\n"
            "  - text_line: {}\n  - batch: {batch_size: 2}\ngraph:\n"
            "  - {name: c, op: decode_csv, input: [record], record_defaults: [0, 0.0, \"\"]}\n"
            f"staged:\n  features: {{i: 'c:0', f: 'c:1', s: 'c:2'}}\n{extra}")


# ---- commands ------------------------------------------------------------------------------

def check_and_apply(daemon):
    data = write(daemon, "numbers.csv", "1,0.5,a\n2,0.25,b\n3,0.1,c\n")
    path = write(daemon, "numbers.yaml", numbers(data))
    out = expect(daemon, 0, "", "check", path)
    assert "numbers is a valid pipeline" in out and "float32" in out, out
    reply = expect_json(daemon, "check", path)
    assert reply["boundary"] == [{"name": "i", "dtype": "int32", "shape": [None]},
                                {"name": "f", "dtype": "float32", "shape": [None]},
                                {"name": "s", "dtype": "string", "shape": [None]}], reply
    assert reply["max_batch_bytes"] > 0 and reply["memory_bytes"] > 0 and "generation" not in reply
    assert expect_json(daemon, "list") == {"pipelines": [], "n_left_out": 0}
    assert "No pipelines" in expect(daemon, 0, "", "list")

    bad = write(daemon, "bad.yaml", numbers(data, "  capcity: 3\n"))
    for command in ("check", "apply"):
        expect(daemon, 1, f"stagerctl: INVALID_ARGUMENT: {bad}:10:3", command, bad)
        expect(daemon, 1, "capacity", command, bad)
        expect(daemon, 1, "INVALID_ARGUMENT: <stdin>:10:3", command, "-",
               stdin=numbers(data, "  capcity: 3\n").encode())
    assert expect_json(daemon, "list") == {"pipelines": [], "n_left_out": 0}

    assert expect_json(daemon, "apply", path)["generation"] == 1
    assert expect_json(daemon, "apply", path)["unchanged"] is True
    changed = write(daemon, "changed.yaml", numbers(data, "  capacity: 3\n"))
    expect(daemon, 1, 'FAILED_PRECONDITION: pipeline numbers already exists with other content: "capacity: 3" is new',
           "apply", changed)
    reply = expect_json(daemon, "apply", changed, "--replace")
    assert (reply["generation"], reply["unchanged"]) == (2, False), reply
    assert expect_json(daemon, "apply", path, "--name", "other")["name"] == "other"
    assert expect_json(daemon, "apply", path, "--replace")["generation"] == 3
    expect(daemon, 0, "", "apply", "-", stdin=numbers(data).encode())


def list_and_status(daemon):
    entries = {e["name"]: e for e in expect_json(daemon, "list")["pipelines"]}
    assert set(entries) == {"numbers", "other"}, entries
    assert entries["other"]["generation"] == 1 and entries["other"]["uid"] == os.getuid()
    assert "numbers" in expect(daemon, 0, "", "list")

    status = expect_json(daemon, "status", "numbers")
    assert (status["state"], status["delivery"], status["clients"]) == ("idle", "split", [])
    assert [b["name"] for b in status["boundary"]] == ["i", "f", "s"]
    everything = expect_json(daemon, "status")
    assert everything["daemon"]["pid"] == daemon.process.pid
    assert sorted(p["name"] for p in everything["pipelines"]) == ["numbers", "other"]
    out = expect(daemon, 0, "", "status")
    lines_out = out.splitlines()
    assert f"pid {daemon.process.pid}" in lines_out[0] and len(lines_out) == 4, out
    assert lines_out[1].split() == ["NAME", "STATE", "BATCHES/S", "ROWS/S", "WAIT", "CLIENTS", "MEMORY"], out
    assert lines_out[2].split()[:7] == ["numbers", "idle", "-", "-", "-", "0", "of"], out
    assert "numbers: idle" in expect(daemon, 0, "", "status", "numbers")
    failed = json.loads(expect_error(daemon, 1, "status", "nmbers", "--json"))
    assert failed["schema_version"] == 1 and failed["error"]["code"] == "NOT_FOUND", failed
    assert "did you mean numbers?" in failed["error"]["text"], failed
    expect(daemon, 1, "stagerctl: NOT_FOUND: ", "status", "nmbers")
    expect(daemon, 1, "numbers", "status", "nmbers")


def versions_and_rollback(daemon):
    text = "name: rolled\ndataset: [{range: {stop: %d}}, {batch: {batch_size: 2}}]\nstaged: {capacity: 8}\n"
    for stop in (4, 6):
        path = write(daemon, "rolled.yaml", text % stop)
        expect(daemon, 0, "", "apply", path, "--replace")
    out = expect(daemon, 0, "", "versions", "rolled").splitlines()
    assert out[0].split() == ["GENERATION", "TIME", "USER", "DIGEST", "FILE"], out
    assert out[1].startswith("1 ") and out[2].startswith("2 (current)") and out[2].endswith("rolled.yaml"), out
    versions = expect_json(daemon, "versions", "rolled")["versions"]
    assert [v["generation"] for v in versions] == [1, 2] and versions[1]["current"] is True, versions
    assert versions[0]["digest"] in out[1] and versions[0]["digest"] not in out[2], (versions, out)
    out = expect(daemon, 0, "", "rollback", "rolled")
    assert out.startswith("Rolled back rolled: generation 3 has the definition of generation 1. A batch holds"), out
    out = expect(daemon, 0, "", "rollback", "rolled", "1")
    assert out.startswith("Nothing changed in rolled: generation 3 has the definition of generation 1."), out
    reply = expect_json(daemon, "rollback", "rolled", "2", "--warm", "--if-generation", "3")
    assert (reply["generation"], reply["restored"], reply["unchanged"]) == (4, 2, False), reply
    status = expect_json(daemon, "status", "rolled")
    assert status["buffered"] == 3 and status["warming_generation"] == 0, status
    expect(daemon, 1, "NOT_FOUND: pipeline rolled has no definition of generation 9; stagerd keeps generations 1, 2, 3",
           "rollback", "rolled", "9")
    expect(daemon, 1, "ABORTED: if_generation is 3", "rollback", "rolled", "--if-generation", "3")
    assert expect_json(daemon, "apply", path, "--warm")["unchanged"] is True
    expect(daemon, 0, "", "delete", "rolled")
    expect(daemon, 1, "NOT_FOUND", "versions", "rolled")


def staged_ids(daemon, name, data, *staged):
    """The path of models/dlrm, with the parsing written before the boundary."""
    with open(os.path.join(TOP, "examples/models/dlrm.yaml.in"), encoding="utf-8") as file:
        text = file.read().replace("@DATA@", data).replace("name: dlrm\n", f"name: {name}\n")
    for old, new in (('"staged:record"', "record"), ("input: [columns]}", 'input: ["staged:y"]}'), ("[dense, bottom_w]", '["staged:dense", bottom_w]'),
                     ("[table, ids]", '[table, "staged:ids"]'), ("{record: record}", "{y: columns, dense: dense, ids: ids}"),
                     ("staged:\n", "staged:\n" + "".join(f"  {line}\n" for line in staged))):
        assert old in text, old
        text = text.replace(old, new)
    return write(daemon, name + ".yaml", text)


def explain_of_what_runs_and_what_ran(daemon):
    with open(os.path.join(HERE, "compute", "models.golden.h"), encoding="utf-8") as file:
        rows = re.findall(r'^    "(.*)",$', file.read(), re.M)
    data = write(daemon, "many.csv", "".join(row + "\n" for row in rows * 200))
    said = expect(daemon, 0, "", "check", example(daemon, "models/dlrm", DATA=data))
    assert ("\n  smart_stage: stagerd may take over 7 nodes of the trainers' graph, where measurements show a gain: "
            "columns, user, item, category, dense, fields, ids\n") in said, said
    expect(daemon, 0, "", "apply", staged_ids(daemon, "dlrm", data))
    reply = expect_json(daemon, "explain", "dlrm")
    assert (reply["state"], reply["bottleneck"], reply["n_items"]) == ("idle", "unknown", 0), reply
    assert "nothing was measured yet" in expect(daemon, 0, "", "explain", "dlrm")
    expect(daemon, 1, "did you mean dlrm?", "explain", "dlmr")

    assert daemon.run("examples/score", "dlrm").returncode == 0
    reply = expect_json(daemon, "explain", "dlrm")
    nodes = {node["name"]: node for node in reply["nodes"]}
    assert len(nodes) == len(reply["nodes"]), reply
    daemon_side = [node for node in reply["nodes"] if node["in_daemon"] and node["op"]]
    trainer_side = [node for node in reply["nodes"] if node["in_trainer"]]
    assert any(node["daemon_ns"] > 0 for node in daemon_side), daemon_side
    assert any(node["trainer_ns"] > 0 for node in trainer_side), trainer_side
    assert not any(node["n_trainer"] for node in daemon_side), daemon_side
    crossing = {edge["node"] for node in reply["nodes"] for edge in node["inputs"] if edge["crosses"]}
    assert crossing and all(nodes[name]["in_daemon"] for name in crossing), crossing
    status = expect_json(daemon, "status", "dlrm")
    assert [t["name"] for t in reply["boundary"]] == [t["name"] for t in status["boundary"]]
    assert all(t["bytes"] > 0 for t in reply["boundary"]), reply["boundary"]
    assert reply["n_daemon_runs"] > 0 and reply["n_trainer_runs"] > 0, reply
    out = expect(daemon, 0, "", "explain", "dlrm")
    assert "held up by" in out and "--- partition ---" in out and all(name in out for name in nodes), out
    dot = expect(daemon, 0, "", "explain", "dlrm", "--dot")
    assert dot.startswith('digraph "dlrm" {') and "style=bold" in dot, dot
    assert dot.count("[label=") == len(nodes) + sum(len(n["inputs"]) for n in nodes.values()), dot
    expect(daemon, 2, "--json cannot be combined with --dot", "explain", "dlrm", "--dot", "--json")


def explain_of_a_name_that_would_end_a_quotation(daemon):
    data = write(daemon, "one.csv", "1\n")
    name = 'i"]; x -> y [label="\\'
    path = write(daemon, "hostile.yaml", f"name: hostile\ndataset: [{{files: {{pattern: ['{data}']}}}}, text_line, "
                 "{batch: {batch_size: 1}}]\ngraph:\n"
                 "  - {name: c, op: decode_csv, input: [record], record_defaults: [0]}\n"
                 f"  - {{name: t, op: identity, input: [{json.dumps('staged:' + name)}]}}\n"
                 f"staged:\n  features: {{{json.dumps(name)}: c}}\ntargets: [t]\n")
    expect(daemon, 0, "", "apply", path)
    dot = expect(daemon, 0, "", "explain", "hostile", "--dot")
    for line in dot.splitlines():
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0, line
    reply = expect_json(daemon, "explain", "hostile")
    assert [t["name"] for t in reply["boundary"]] == [name], reply


def cat(daemon):
    out = expect(daemon, 0, "", "cat", "numbers", "--json")
    assert out.count("\n") == 2, out
    batches = [json.loads(line) for line in out.splitlines()]
    assert [(b["batch"], b["epoch"]) for b in batches] == [(0, 0), (1, 0)], out
    assert batches[0]["tensors"] == {
        "i": {"dtype": "int32", "shape": [2], "values": [1, 2]},
        "f": {"dtype": "float32", "shape": [2], "values": [0.5, 0.25]},
        "s": {"dtype": "string", "shape": [2], "values": ["a", "b"]}}, out
    assert batches[1]["tensors"]["f"] == {"dtype": "float32", "shape": [1], "values": [0.1]}, out
    assert len(expect(daemon, 0, "", "cat", "numbers", "--json", "--limit", "1").splitlines()) == 1
    out = expect(daemon, 0, "", "cat", "numbers")
    assert "  f float32 [2]: 0.5, 0.25\n" in out and '  s string [1]: "c"\n' in out, out
    out = expect(daemon, 0, "", "cat", "numbers", "--rows", "--limit", "1")
    assert '  row 1: i=2 f=0.25 s="b"\n' in out and "row 2" not in out, out
    expect(daemon, 1, "stagerctl: NOT_FOUND: ", "cat", "nmbers")
    few = "name: few\ndataset: [{range: {stop: 3}}, {batch: {batch_size: 4, drop_remainder: true}}]\n"
    expect(daemon, 0, "", "apply", "-", stdin=few.encode())
    assert expect(daemon, 0, "stagerctl: the pass has no batch", "cat", "few", "--limit", "1") == ""
    expect(daemon, 0, "", "delete", "few")
    scalars = "name: scalars\ndataset: [{range: {start: 4, stop: 6}}, {enumerate: {}}]\n"
    expect(daemon, 0, "", "apply", "-", stdin=scalars.encode())
    assert expect(daemon, 0, "", "cat", "scalars", "--rows").splitlines()[1::2] == [
        "  row 0: index=0 value=4", "  row 0: index=1 value=5"]
    expect(daemon, 0, "", "delete", "scalars")


def cat_of_odd_values(daemon):
    data = write(daemon, "odd.csv", b"1,nan,\xff\xfe\n2,-inf,\xc3\xbc\n3,inf,\"q\"\"q\"\n4,-0.0,\n")
    expect(daemon, 0, "", "apply", write(daemon, "odd.yaml", numbers(data)), "--name", "odd")
    lines_out = expect(daemon, 0, "", "cat", "odd", "--json").splitlines()
    first, second = (json.loads(line)["tensors"] for line in lines_out)
    assert first["f"]["values"] == ["nan", "-inf"], first
    assert first["s"]["values"] == [{"base64": "//4="}, "ü"], first
    assert second["f"]["values"] == ["inf", 0.0] and "-0.0" in lines_out[1], lines_out
    assert second["s"]["values"] == ['q"q', ""], second


def cat_of_sparse_and_ragged(daemon):
    path = write(daemon, "words.txt", "a bb\n\nccc\n")
    text = f"""
name: words
dataset:
  - files: {{pattern: ["{path}"]}}
  - text_line: {{}}
  - batch: {{batch_size: 3}}
graph:
  - {{name: w, op: string_split, input: [record]}}
  - {{name: s, op: string_split, input: [record], result_type: sparse}}
staged:
  features:
    - null
    - ragged: {{values: w, row_splits: "w:1"}}
    - sparse: {{values: s, indices: "s:1", dense_shape: "s:2"}}
"""
    expect(daemon, 0, "", "apply", write(daemon, "words.yaml", text))
    tensors = json.loads(expect(daemon, 0, "", "cat", "words", "--json"))["tensors"]
    words = ["a", "bb", "ccc"]
    assert tensors == {
        "1/values": {"dtype": "string", "shape": [3], "values": words},
        "1/row_splits": {"dtype": "int64", "part": "row_splits", "shape": [4],
                         "values": [0, 2, 2, 3]},
        "2/values": {"dtype": "string", "shape": [3], "values": words},
        "2/indices": {"dtype": "int64", "part": "indices", "shape": [3, 2],
                      "values": [[0, 0], [0, 1], [2, 0]]},
        "2/dense_shape": {"dtype": "int64", "part": "dense_shape", "shape": [2], "values": [3, 2]},
    }, tensors
    rows = expect(daemon, 0, "", "cat", "words", "--rows").splitlines()
    assert rows[1:] == ['  row 0: 1=["a", "bb"] 2={0: "a", 1: "bb"}', "  row 1: 1=[] 2={}",
                        '  row 2: 1=["ccc"] 2={0: "ccc"}'], rows


def cat_of_a_bad_row(daemon):
    data = write(daemon, "rows.csv", "1,1,a\n2,2,b\nx,3,c\n4,4,d\n5,5,e\n")
    expect(daemon, 0, "", "apply", write(daemon, "rows.yaml", numbers(data)), "--name", "rows")
    out = expect(daemon, 1, '"error": {"code": "INVALID_ARGUMENT", "text": ', "cat", "rows", "--json")
    expect(daemon, 1, "rows.csv", "cat", "rows", "--json")
    batches = [json.loads(line) for line in out.splitlines()]
    assert [b["batch"] for b in batches] == [0, 2], out  # the error item has number 1
    assert batches[1]["tensors"]["i"]["values"] == [5], out


def delete(daemon):
    assert expect_json(daemon, "delete", "other") == {"deleted": "other"}
    expect(daemon, 1, "NOT_FOUND", "delete", "other")
    expect(daemon, 1, "NOT_FOUND", "cat", "other")
    assert "Deleted odd" in expect(daemon, 0, "", "delete", "odd")
    assert "other" not in [e["name"] for e in expect_json(daemon, "list")["pipelines"]]


def version(daemon):
    version = expect_json(daemon, "version")
    seen = version["daemon"]
    assert seen["reachable"] and seen["pid"] == daemon.process.pid, version
    assert len(seen["instance"]) == 16 and seen["protocol"] == 6, version
    assert seen["release"] == version["release"], version
    assert seen["release"] in expect(daemon, 0, "", "version")


def the_development_shell_finds_the_plugin(daemon):
    """The shell of `meson devenv` looks for libstager-cuda.so where the build puts it."""
    dump = subprocess.run(["meson", "devenv", "-C", daemon.build, "--dump"], capture_output=True, text=True, timeout=60 * SLOW,
                          check=True).stdout
    paths = re.search(r'^(?:export )?LD_LIBRARY_PATH="?([^"\n]*)', dump, re.M)
    folders = [os.path.realpath(path) for path in paths.group(1).split(":")]
    assert os.path.realpath(os.path.join(daemon.build, "cuda")) in folders, dump


def a_closed_pipe_ends_cat(daemon):
    """`stagerctl cat … | head` must neither hang nor print for ever."""
    text = "name: endless\ndataset:\n  - range: {stop: 1000}\n  - repeat: {}\n  - batch: {batch_size: 10}\n"
    expect(daemon, 0, "", "apply", "-", stdin=text.encode())
    cat_process = subprocess.Popen([os.path.join(daemon.build, CTL), "cat", "endless", "--json"],
                                   env=daemon.env(), stdout=subprocess.PIPE)
    assert json.loads(cat_process.stdout.readline())["batch"] == 0
    cat_process.stdout.close()
    assert cat_process.wait(60 * SLOW) != 0
    with open("/dev/full", "wb") as full:
        result = subprocess.run([os.path.join(daemon.build, CTL), "cat", "endless", "--json"],
                                env=daemon.env(), stdout=full, stderr=subprocess.PIPE,
                                timeout=60 * SLOW)
    assert result.returncode == 1 and b"standard output" in result.stderr, result


def with_shell(build, redirections, *command, **more):
    """Runs a program of the build with descriptors redirected by a shell."""
    return subprocess.Popen(["bash", "-c", f'exec "$@" {redirections}', "bash",
                             os.path.join(build, command[0]), *command[1:]], **more)


def closed_standard_descriptors_are_not_reused(daemon):
    """Output must not go into a socket that received the number of standard output."""
    for command in ("list",), ("status", "--json"), ("cat", "endless", "--limit", "1"), ("version",):
        process = with_shell(daemon.build, ">&-", CTL, *command, env=daemon.env(), stderr=subprocess.PIPE)
        err = process.communicate(timeout=60 * SLOW)[1]
        assert process.returncode == 1 and b"standard output" in err, (command, process.returncode, err)
    with Daemon(daemon.build) as other:
        assert other.stop() == 0
        other.process = with_shell(other.build, "<&- >&- 2>&-", "daemon/stagerd", "--config", other.config)
        while not other.answers():
            assert other.process.poll() is None, other.process.returncode
            time.sleep(0.01)
        for fd in range(3):
            assert os.readlink(f"/proc/{other.process.pid}/fd/{fd}") == "/dev/null", fd
        assert other.stop() == 0


def a_reload_takes_what_is_not_written_any_more(running):
    with Daemon(running.build, memory_budget="1MiB") as daemon:
        with open(daemon.config, encoding="utf-8") as file:
            lines_kept = [line for line in file if not line.startswith(("memory_budget", "pipeline_dir"))]
        write(daemon, "stagerd.yaml", "".join(lines_kept))
        daemon.process.send_signal(signal.SIGHUP)
        while "reload: log_level" not in daemon.log():
            assert daemon.process.poll() is None, daemon.log()
            time.sleep(0.01)
        assert daemon.wait_for_log("pipeline_dir and access_group change only with a restart"), daemon.log()
        budget = int(daemon.log().split("info, memory_budget ")[1].split(",")[0])
        assert budget >= 64 << 20, daemon.log()


# ---- trainers ------------------------------------------------------------------------------

def two_trainers_learn(daemon):
    data = os.path.join(daemon.folder, "criteo.csv")
    subprocess.run([sys.executable, os.path.join(HERE, "../data/make_criteo.py"), "--rows", "2000",
                    "--seed", "3", "--out", data], check=True)
    expect(daemon, 0, "", "apply", example(daemon, "criteo_lr", DATA=data, EPOCHS=5, BATCH=50))
    trainers = []
    for name, lr in (("fast", "0.05"), ("slow", "0.01")):
        report = os.path.join(daemon.folder, name + ".json")
        command = [os.path.join(daemon.build, "examples/criteo_lr"), "criteo_lr", "--name",
                   name, "--lr", lr, "--hash-bits", "18", "--report", report]
        trainers.append((report, subprocess.Popen(command, env=daemon.env(),
                                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
    for report, process in trainers:
        out, err = process.communicate(timeout=60 * SLOW)
        assert process.returncode == 0, (err, daemon.log())
        assert b"log loss" in out, out
        with open(report, encoding="utf-8") as file:
            reply = json.load(file)
        assert reply["finite"] and (reply["batches"], reply["rows"]) == (200, 10000), reply
        assert reply["loss_end"] < reply["loss_start"] - 0.05, reply
        assert 0 <= reply["wait_share"] <= 1 and reply["batches_per_s"] > 0, reply


def the_first_program_prints_what_tensorflow_prints(daemon):
    data = write(daemon, "1.txt", "".join(line + "\n" for line in lines(10)))
    expect(daemon, 0, "", "apply", example(daemon, "seed_staged", DATA=data))
    result = daemon.run("examples/seed_staged")
    assert result.returncode == 0, result.stderr
    with open(os.path.join(HERE, "../peers/seed_staged.golden"), encoding="utf-8") as file:
        golden = file.read().splitlines()[1::2]
    assert result.stdout.decode().splitlines() == golden, result.stdout


def the_first_program_prints_the_same_when_its_hash_is_run_ahead(daemon):
    """smart_stage: on: `bucket` and the rows of text run in stagerd. The data of the test before still exist."""
    with open(os.path.join(TOP, "examples/seed_staged.yaml.in"), encoding="utf-8") as file:
        text = file.read().replace("@DATA@", os.path.join(daemon.folder, "1.txt"))
    path = write(daemon, "ahead.yaml", text.replace("name: seed_staged", "name: ahead") + "smart_stage: on\n")
    expect(daemon, 0, "", "apply", path)
    result = daemon.run("examples/seed_staged", "ahead")
    assert result.returncode == 0, result.stderr
    with open(os.path.join(HERE, "../peers/seed_staged.golden"), encoding="utf-8") as file:
        golden = file.read().splitlines()[1::2]
    assert result.stdout.decode().splitlines() == golden, result.stdout
    reply = json.loads(daemon.run("client/stagerctl/stagerctl", "explain", "ahead", "--json").stdout)
    ran = {node["name"] for node in reply["nodes"] if node.get("n_daemon", 0) > 0}
    assert {"v", "bucket", "longer", "pair"} <= ran and not {"rows", "target"} & ran, reply


def five_models_score_as_numpy_does(daemon):
    with open(os.path.join(HERE, "compute", "models.golden.h"), encoding="utf-8") as file:
        golden = file.read()
    data = write(daemon, "clicks.csv", "".join(row + "\n" for row in re.findall(r'^    "(.*)",$', golden, re.M)))
    for name, scores in re.findall(r'{"(\w+)", {(.*?)}}', golden):
        expect(daemon, 0, "", "apply", example(daemon, "models/" + name, DATA=data), "--replace")
        result = daemon.run("examples/score", name)
        assert result.returncode == 0, result.stderr
        *rows, last = result.stdout.decode().splitlines()
        assert last == "12 rows", result.stdout
        for row, score in zip(rows, scores.split(", ")):
            assert abs(float(row.split()[1]) - float(score)) < 2e-6, (name, row, score)


def a_narrow_feature_is_as_good_as_a_wide_one(daemon):
    """Ids fit int32: the scores equal those of the test before. Its data still exist."""
    data = os.path.join(daemon.folder, "clicks.csv")
    expect(daemon, 0, "", "apply", staged_ids(daemon, "narrow", data, "transfer_dtypes: {ids: int32}"))
    wide, narrow = (daemon.run("examples/score", name).stdout for name in ("dlrm", "narrow"))
    assert wide == narrow and wide.endswith(b"12 rows\n"), (wide, narrow)
    batch = json.loads(daemon.ctl("cat", "narrow", "--json").splitlines()[0])
    assert batch["tensors"]["ids"]["dtype"] == "int32", batch
    assert batch["tensors"]["ids"]["shape"] == [12, 3], batch


def trainers_say_what_is_wrong(daemon):
    result = daemon.run("examples/criteo_lr", "numbers")
    assert result.returncode == 1 and b"no tensor label" in result.stderr, result
    result = daemon.run("examples/criteo_lr", "nothing")
    assert result.returncode == 1 and b"NOT_FOUND" in result.stderr, result
    result = daemon.run("examples/seed_staged", "numbers")
    assert result.returncode == 1 and b"0 targets" in result.stderr, result
    assert daemon.run("examples/criteo_lr").returncode == 2


TESTS = [check_and_apply, list_and_status, versions_and_rollback, explain_of_what_runs_and_what_ran,
         explain_of_a_name_that_would_end_a_quotation, cat, cat_of_odd_values, cat_of_sparse_and_ragged,
         cat_of_a_bad_row, delete, version, the_development_shell_finds_the_plugin,
         a_closed_pipe_ends_cat, closed_standard_descriptors_are_not_reused,
         a_reload_takes_what_is_not_written_any_more, two_trainers_learn, the_first_program_prints_what_tensorflow_prints,
         the_first_program_prints_the_same_when_its_hash_is_run_ahead, five_models_score_as_numpy_does, a_narrow_feature_is_as_good_as_a_wide_one,
         trainers_say_what_is_wrong]

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    chosen = [test for test in TESTS if any(part in test.__name__ for part in sys.argv[2:] or [""])]
    with Daemon(sys.argv[1]) as one:
        for test in chosen:
            test(one)
            print("ok  ", test.__name__)
        assert one.stop() == 0, one.log()
    print(f"{len(chosen)} passed, 0 failed, 0 skipped")
