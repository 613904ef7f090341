# SPDX-License-Identifier: Apache-2.0
"""stagerctl test: what passes, what fails, and how a failure reads."""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

STAGERCTL = os.path.abspath(sys.argv[1])
CLICKS = """
name: clicks
dataset:
  - files: {pattern: ["/nowhere/*.csv"]}
  - csv: {header: true}
  - shuffle: {buffer_size: 100, seed: 7}
  - repeat
  - batch: {batch_size: 64, drop_remainder: true}
graph:
  - {name: columns, op: decode_csv, input: [record], record_defaults: [0, 0.0, ""]}
  - {name: price, op: log1p, input: ["columns:1"]}
  - {name: two, op: constant, value: 2.0}
  - {name: doubled, op: multiply, input: ["staged:price", two]}
staged: {features: {label: "columns:0", price: price, site: "columns:2"}}
targets: [doubled]
"""
TYPED = """
dataset:
  - files: {pattern: ["/nowhere/*.csv"]}
  - csv: {columns: {price: float32, site: string, n: int64}, header: true}
  - batch: {batch_size: 2}
"""
BRANCHES = """
dataset:
  - zip: {from: [left, right]}
  - batch: {batch_size: 8}
datasets:
  left: [{range: {stop: 5}}, {enumerate: {name: at}}]
  right: [{files: {pattern: ["/nowhere/*"]}}, text_line]
"""


class PipelineTests(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_file(self, pipeline, tests, *options):
        self.write("pipeline.yaml", pipeline)
        path = self.write("tests.yaml", "pipeline: pipeline.yaml\n" + tests)
        return subprocess.run([STAGERCTL, "test", path, *options], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "STAGER_RUNTIME_DIR": self.folder})

    def one(self, pipeline, **test):
        """The result of one test, as JSON."""
        done = self.run_file(pipeline, json.dumps({"t": {**test}}).join(("tests: ", "\n")), "--json")
        self.assertTrue(done.stdout, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1 - found["passed"], done)
        return found["tests"][0]

    def passes(self, pipeline, **test):
        found = self.one(pipeline, **test)
        self.assertTrue(found["passed"], found)

    def differs(self, pipeline, **test):
        found = self.one(pipeline, **test)
        self.assertFalse(found["passed"])
        return [(d["feature"] + d["index"], d["what"], d["expected"], d["got"]) for d in found["differences"]]

    def fails(self, part, pipeline, **test):
        found = self.one(pipeline, **test)
        self.assertFalse(found["passed"])
        self.assertIn(part, found["error"]["text"])

    def test_records_become_features_and_targets_in_their_order(self):
        price = [math.log1p(0.5), math.log1p(3)]
        self.passes(CLICKS, input=["1,0.5,a", "0,3,b"], expect={"label": [1, 0], "price": price, "site": ["a", "b"],
                                                                "doubled": [2 * p for p in price]})

    def test_a_text_and_a_file_go_through_the_reader(self):
        text = "label,price,site\n7,0,x\n"
        self.passes(CLICKS, text=text, expect={"label": [7]})
        self.write("one.csv", text)
        self.passes(CLICKS, file="one.csv", expect={"label": [7]})

    def test_components_have_their_dtypes_and_several_batches(self):
        columns = {"price": [0.5, 1, 2], "site": ["a", "\u00e9", ""], "n": [1, 2, 2 ** 40]}
        self.passes(TYPED, input=columns, batches=[{"n": [1, 2], "site": ["a", "\u00e9"]}, {"n": [2 ** 40], "price": [2]}])

    def test_branches_are_named(self):
        self.passes(BRANCHES, input={"left/value": [4, 9], "right/record": ["x", "y"]},
                    expect={"at": [0, 1], "value": [4, 9], "record": ["x", "y"]})
        self.fails("input has nothing for the branch right", BRANCHES, input={"left/value": [4]}, expect={"value": [4]})
        self.fails("BRANCH/COMPONENT", BRANCHES, text="x", expect={"value": [4]})

    def test_differences_have_feature_index_and_both_values(self):
        self.assertEqual(self.differs(CLICKS, input=["1,0,a", "0,0,b\u00e9"], expect={"label": [1, 1], "site": ["a", "c"], "price": [0, 0.001]}),
                         [("label[1]", "value", "1", "0"), ("site[1]", "value", '"c"', '"b\\xc3\\xa9"'),
                          ("price[1]", "value", "0.001", "0.0")])

    def test_shapes_and_dtypes_differ_too(self):
        self.assertEqual(self.differs(CLICKS, input=["1,0,a"], expect={"label": [1, 1], "price": [[0]]}),
                         [("label", "shape", "[2]", "[1]"), ("price", "shape", "[1, 1]", "[1]")])
        self.assertEqual(self.differs(CLICKS, input=["1,0,a"], expect={"label": [1.5], "site": [1]}),
                         [("label[0]", "dtype", "1.5", "int32"), ("site[0]", "dtype", "1", "string")])

    def test_many_differences_are_counted(self):
        found = self.one(CLICKS, input=["1,0,a"] * 20, expect={"label": [0] * 20})
        self.assertEqual((len(found["differences"]), found["n_left_out"]), (5, 15))

    def test_a_tolerance_is_relative_above_one(self):
        self.passes(TYPED, input={"price": [1000.5]}, expect={"price": [1000]}, tolerance=0.001)
        self.assertEqual(len(self.differs(TYPED, input={"price": [1002]}, expect={"price": [1000]}, tolerance=0.001)), 1)
        self.passes(TYPED, input={"price": [float("nan")]}, expect={"price": [float("nan")]})

    def test_an_error_is_expected_by_code_and_text(self):
        self.passes(CLICKS, input=["1,x,a"], error="INVALID_ARGUMENT")
        self.passes(CLICKS, input=["1,x,a"], error='INVALID_ARGUMENT field 1')
        self.fails("expected the error DATA_LOSS; got INVALID_ARGUMENT", CLICKS, input=["1,x,a"], error="DATA_LOSS")
        self.fails("expected the error INVALID_ARGUMENT nothing", CLICKS, input=["1,x,a"], error="INVALID_ARGUMENT nothing")
        self.fails("there was none", CLICKS, input=["1,0,a"], error="DATA_LOSS")
        self.fails("is not a valid", CLICKS, input=["1,x,a"], expect={"label": [1]})

    def test_names_that_are_unknown_have_the_nearest(self):
        self.fails('unknown feature "lable"; did you mean "label"?', CLICKS, input=["1,0,a"], expect={"lable": [1]})
        self.fails('unknown feature "q"; the pipeline has: label, price, site, doubled', CLICKS, input=["1,0,a"], expect={"q": [1]})
        self.fails('unknown component "prise"; did you mean "price"?', TYPED, input={"prise": [1]}, expect={"price": [1]})

    def test_inputs_that_do_not_fit_are_refused(self):
        self.fails("an element of price is float32 []; the test gives [1]", TYPED, input={"price": [[1]]}, expect={"price": [1]})
        self.fails("n has 2 elements, price has 1", TYPED, input={"price": [1], "n": [1, 2]}, expect={"price": [1]})
        self.fails("is one value; give a list", TYPED, input={"price": 1}, expect={"price": [1]})
        self.fails("values/n", TYPED, input={"n": ["x"]}, expect={"n": [1]})
        self.fails("makes 1 batches; the test expects 2", TYPED, input={"n": [1]}, batches=[{"n": [1]}, {"n": [1]}])
        self.fails("makes more than the 1 batches", TYPED, input={"n": [1, 2, 3]}, expect={"n": [1, 2]})
        self.fails("no files matched", TYPED, file="none.csv", expect={"n": [1]})

    def test_a_python_function_is_refused(self):
        self.fails("a test has no Python workers", """
dataset:
  - range: {stop: 3}
  - py_function: {function: "m:f", output_types: [int32], output_shapes: [[]]}
""", input=[1], expect={"x": [1]})

    def test_the_file_itself_is_checked_with_line_and_column(self):
        for tests, text in (("tests:\n  - {name: a, input: [1], expct: {x: 1}}\n", 'tests.yaml:3:27: tests[0]: unknown key "expct"; did you mean "expect"?'),
                            ("tests:\n  - {name: a, expect: {x: 1}}\n", 'tests.yaml:3:5: test "a": give one of input, text and file'),
                            ("tests:\n  - {name: a, input: [1]}\n", 'test "a": give one of expect, batches and error'),
                            ("tests:\n  - {name: a, input: [1], expect: [1]}\n", 'test "a": name the features'),
                            ("", "tests: missing; add a list")):
            done = self.run_file(CLICKS, tests)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertTrue(done.stderr.startswith("stagerctl: INVALID_ARGUMENT: "), done.stderr)
            self.assertIn(text, done.stderr)
        done = subprocess.run([STAGERCTL, "test", "/nowhere/x.yaml", "--json"], capture_output=True, text=True, timeout=60)
        self.assertEqual(json.loads(done.stderr)["error"]["code"], "NOT_FOUND")

    def test_text_has_a_line_for_each_test(self):
        done = self.run_file(CLICKS, 'tests:\n  - {name: good, input: ["1,0,a"], expect: {label: [1]}}\n'
                             '  - {name: bad, input: ["1,0,a"], expect: {label: [2]}}\n')
        self.assertEqual(done.stdout.replace(self.folder + "/", ""),
                         "ok    good\nFAIL  bad (tests.yaml:4)\n      label[0]: expected 2, got 1\n1 passed, 1 failed\n")
        self.assertEqual((done.returncode, done.stderr), (1, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
