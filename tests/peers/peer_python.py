#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package beside the frameworks that it feeds: its own tests with them, the trainers of examples,
and its types as mypy sees them. What a framework is missing for is skipped.

    peer_python.py BUILD [NAME]...      NAME: only tests with this in their name
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "../.."))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, HERE)
import s3_folder  # noqa: E402
import summary  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
PACKAGE = os.path.join(BUILD, "client/python")
ENVIRONMENT = dict(os.environ, PYTHONPATH=PACKAGE, STAGERD=os.path.join(BUILD, "daemon/stagerd"),
                   LD_LIBRARY_PATH=os.path.join(BUILD, "client"), JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="")
FRAMEWORKS = ["torch", "jax", "tensorflow"]
N_ROWS = 6000
ROUNDING = 2e-4  # of a printed loss: sums in another order


class Skipped(Exception):
    pass


def need(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise Skipped(f"no {module}")


def run(*command, cwd=TOP, **environment):
    """The output of a Python program, which must succeed."""
    result = subprocess.run([sys.executable, *command], cwd=cwd, env={**ENVIRONMENT, **environment}, stdin=subprocess.DEVNULL, timeout=300,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert result.returncode == 0, f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout}"
    return result.stdout


def example(name, *arguments, **environment):
    return run(os.path.join(TOP, "examples", name), *arguments, **environment)


def losses(text, words="log loss"):
    """Of each epoch, in order."""
    found = [float(number) for number in re.findall(rf"^epoch \d+: .*{words} (\d+\.\d+)", text, re.M)]
    assert len(found) >= 3, text
    return found


def falls(found, by):
    assert found[-1] < found[0] - by, f"{found} did not fall by {by}"


def same_rows(got, want):
    """Losses of one model on the same rows, of which a shuffle has mixed some otherwise."""
    falls(got, 0.01)
    assert all(abs(a - b) < 0.02 for a, b in zip(got, want)), f"{got}, not {want}"


# ---- examples ----

def a_logistic_regression_in_jax_learns(rows):
    need("jax")
    falls(losses(example("logistic_jax.py", rows)), 0.01)


def a_logistic_regression_in_keras_learns(rows):
    need("tensorflow")
    text = example("logistic_tensorflow.py", rows)
    falls([float(loss) for loss in re.findall(r"\bloss: (\d+\.\d+)", text)], 0.01)


def a_cnn_learns_photographs_that_it_draws(rows):
    need("torch", "PIL")
    text = example("cnn_torch.py", "--epochs", "4")
    falls(losses(text, "loss"), 0.3)
    assert float(re.findall(r"right (\d\.\d+)", text)[-1]) > 0.8, text


def two_ranks_learn_what_one_trainer_does_with_their_batches_together(rows):
    need("torch")
    one = losses(example("dlrm_torch.py", "--rows", rows, "--batch-size", "100"))
    text = example("ddp_torch.py", rows)
    falls(one, 0.01)
    for single, ranks in zip(one, losses(text)):
        assert abs(single - ranks) < ROUNDING, f"{one}\n{text}"
    assert text.count(f"{N_ROWS // 100} batches for each rank") == 3, text


def a_dlrm_learns_from_parquet_in_s3_what_it_does_from_csv(rows):
    need("torch", "pyarrow")
    import pyarrow.csv
    import pyarrow.parquet
    whole = pyarrow.csv.read_csv(rows)
    with tempfile.TemporaryDirectory() as folder, s3_folder.Server(folder) as server:
        for i, begin in enumerate((0, N_ROWS // 2)):
            pyarrow.parquet.write_table(whole.slice(begin, N_ROWS // 2), f"{folder}/day-{i}.parquet", row_group_size=1000)
        environment = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "127.0.0.1"}
        text = example("dlrm_torch.py", "--rows", "s3://bucket/*.parquet", "--batch-size", "100", **environment)
        assert server.n_bytes > 0
    same_rows(losses(text), losses(example("dlrm_torch.py", "--rows", rows, "--batch-size", "100")))


def a_dlrm_learns_from_a_folder_of_datasets_what_it_does_from_csv(rows):
    need("torch", "pyarrow", "datasets")
    import datasets
    import pyarrow.csv
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        datasets.Dataset(pyarrow.csv.read_csv(rows)).save_to_disk(folder, num_shards=2)
        text = example("dlrm_torch.py", "--rows", folder, "--batch-size", "100")
    same_rows(losses(text), losses(example("dlrm_torch.py", "--rows", rows, "--batch-size", "100")))


def a_killed_trainer_ends_with_the_model_of_one_that_was_not(rows):
    need("torch")
    text = example("checkpoint_torch.py", rows)
    assert re.search(r"killed at step 37, resumed at step-20: \d+ steps, weights \S+, as without", text), text


def killed_ranks_of_torchrun_have_the_rows_of_those_that_were_not_whatever_their_number(rows):
    need("torch")
    text = example("elastic_torch.py", rows)
    whole, killed = re.findall(r": (\d+) steps, the last on (\d) ranks, rows (\S+), weights (\S+)", text)
    assert (whole[0], whole[2]) == (killed[0], killed[2]) and whole[1] != killed[1], text
    assert abs(float(whole[3]) - float(killed[3])) < ROUNDING, text
    assert "resumed at step-" in text, text


def two_experiments_get_the_batches_that_were_made_once(rows):
    need("torch")
    text = example("two_experiments.py", rows)
    (made,) = re.findall(r"stagerd made (\d+) batches, each once", text)
    taken = re.findall(r"^learning rate .*: (\d+) batches", text, re.M)
    assert [made] * 2 == taken == [str(3 * N_ROWS // 100)] * 2, text


def rows_are_generated_when_none_are_given(rows):
    need("torch")
    assert "epoch 0: 19968 rows" in example("dlrm_torch.py", "--epochs", "1"), "20000 rows in batches of 512"


# ---- types ----

def mypy_finds_nothing_in_the_package_and_the_examples(rows):
    need("mypy", "ray", *FRAMEWORKS)
    run("-m", "mypy", "--cache-dir", os.path.join(BUILD, "mypy-cache"))


def the_stub_of_the_c_half_is_what_is_there(rows):
    need("mypy")
    with tempfile.NamedTemporaryFile("w") as allowed:
        allowed.write("stager._core.Tensor.__buffer__\n")  # in C; CPython before 3.12 does not show it
        allowed.flush()
        run("-m", "mypy.stubtest", "--mypy-config-file", os.path.join(TOP, "pyproject.toml"), "--allowlist", allowed.name,
            "--ignore-unused-allowlist", "stager._core", cwd=BUILD)


TESTS = [a_logistic_regression_in_jax_learns, a_logistic_regression_in_keras_learns, a_cnn_learns_photographs_that_it_draws,
         two_ranks_learn_what_one_trainer_does_with_their_batches_together, two_experiments_get_the_batches_that_were_made_once,
         a_dlrm_learns_from_parquet_in_s3_what_it_does_from_csv,
         a_dlrm_learns_from_a_folder_of_datasets_what_it_does_from_csv,
         a_killed_trainer_ends_with_the_model_of_one_that_was_not,
         killed_ranks_of_torchrun_have_the_rows_of_those_that_were_not_whatever_their_number, rows_are_generated_when_none_are_given, mypy_finds_nothing_in_the_package_and_the_examples,
         the_stub_of_the_c_half_is_what_is_there]


def run_test(test, rows):
    """[passed, failed, skipped]."""
    try:
        test(rows)
    except Skipped as why:
        print(f"skipped: {why} ({test.__name__})", flush=True)
        return [0, 0, 1]
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(f"    {error}\nFAIL {test.__name__}", flush=True)
        return [0, 1, 0]
    print(f"ok   {test.__name__}", flush=True)
    return [1, 0, 0]


def run_suite(name):
    """The tests of tests/python for a framework."""
    result = subprocess.run([sys.executable, os.path.join(TOP, "tests/python", f"test_{name}.py"), BUILD], env=ENVIRONMENT,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    count = summary.last_count(result.stdout) or [0, int(result.returncode != 77), int(result.returncode == 77)]
    print(f"{'FAIL' if count[1] else 'ok  '} tests/python/test_{name}.py: " + "{} passed, {} failed, {} skipped".format(*count),
          flush=True)
    if count[1]:
        print(result.stdout)
    return count


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if not os.path.exists(os.path.join(PACKAGE, "stager")):
        print(f"skipped: {PACKAGE} has no package: it was set up without python3-dev or python3-numpy")
        return summary.tell([0, 0, 1])
    total = [0, 0, 0]

    def is_wanted(name):
        return len(sys.argv) == 2 or any(word in name for word in sys.argv[2:])
    with tempfile.TemporaryDirectory(prefix="stg-peer-") as folder:
        rows = os.path.join(folder, "rows.csv")
        run(os.path.join(TOP, "tests/data/make_criteo.py"), "--rows", str(N_ROWS), "--seed", "1", "--out", rows)
        for test in filter(lambda test: is_wanted(test.__name__), TESTS):
            total = [a + b for a, b in zip(total, run_test(test, rows))]
    for name in filter(is_wanted, [*FRAMEWORKS, "docs"]):
        total = [a + b for a, b in zip(total, run_suite(name))]
    return summary.tell(total)


if __name__ == "__main__":
    sys.exit(main())
