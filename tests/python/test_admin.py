#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests return the dicts of `stagerctl --json`; and a private daemon."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import case
import stager

STAGERD = os.path.join(case.BUILD, "daemon/stagerd")
TEXT = "name: {name}\ndataset:\n  - range: {{stop: 4}}\n  - batch: {{batch_size: 2}}\n"


class Admin(case.Case):
    def ctl(self, *arguments):
        reply = json.loads(self.daemon.ctl(*arguments, "--json"))
        self.assertEqual(reply.pop("schema_version"), 1)
        return reply

    def test_replies_are_those_of_stagerctl(self):
        path = pathlib.Path(self.file("p.yaml", TEXT.format(name="replies")))
        self.assertEqual(stager.check(path), self.ctl("check", str(path)))
        name = stager.apply(path)
        self.assertEqual((name, name.generation), ("replies", 1))
        self.assertEqual(stager.apply(path).reply, self.ctl("apply", str(path)))
        for _ in range(100):  # streams closed by other tests may hold memory for a moment
            ours, theirs = stager.list(), self.ctl("list")["pipelines"]
            if ours == theirs:
                break
        self.assertEqual(ours, theirs)
        self.assertEqual(stager.status("replies"), self.ctl("status", "replies"))
        stager.delete("replies")
        with self.assertRaises(stager.NotFoundError):
            stager.status("replies")

    def test_apply_takes_a_name_and_checks_the_generation(self):
        text = TEXT.format(name="first")
        self.assertEqual(stager.apply(text, name="second"), "second")
        with self.assertRaisesRegex(stager.AbortedError, "is at generation 1"):
            stager.apply(text + "staged: {capacity: 2}\n", name="second", if_generation=7)
        self.assertEqual(stager.apply(text + "staged: {capacity: 2}\n", name="second",
                                      if_generation=1).generation, 2)
        with stager.open("second"):
            with self.assertRaisesRegex(stager.FailedPreconditionError, str(os.getpid())):
                stager.apply(text, name="second")
            self.assertEqual(stager.apply(text, name="second", replace=True).generation, 3)

    def test_other_content_under_a_name_is_refused_with_what_differs(self):
        text = TEXT.format(name="kept")
        stager.apply(text)
        with self.assertRaisesRegex(stager.FailedPreconditionError, 'other content: "staged: .capacity: 2." is new'):
            stager.apply(text + "staged: {capacity: 2}\n")
        self.assertEqual(stager.apply(text + "staged: {capacity: 2}\n", replace=True).generation, 2)

    def test_versions_and_a_rollback_are_those_of_stagerctl(self):
        text = TEXT.format(name="rolled")
        stager.apply(text)
        with self.assertRaisesRegex(stager.NotFoundError, "keeps no earlier one"):
            stager.rollback("rolled")
        stager.apply(text.replace("stop: 4", "stop: 6"), replace=True)
        versions = stager.versions("rolled")
        self.assertEqual(versions, self.ctl("versions", "rolled")["versions"])
        self.assertEqual([(v["generation"], v["uid"], v["current"]) for v in versions],
                         [(1, os.getuid(), False), (2, os.getuid(), True)])
        self.assertRegex(versions[0]["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(versions[0]["digest"], "^[0-9a-f]{16}$")
        name = stager.rollback("rolled")
        self.assertEqual((name, name.generation, name.reply["restored"]), ("rolled", 3, 1))
        with stager.open(name) as stream:
            self.assertEqual([batch["value"].tolist() for batch in stream], [[0, 1], [2, 3]])
        self.assertEqual(self.ctl("rollback", "rolled", "2")["restored"], 2)
        with self.assertRaisesRegex(stager.NotFoundError, "keeps generations 1, 2, 3"):
            stager.rollback("rolled", 9)
        with self.assertRaisesRegex(stager.AbortedError, "is at generation 4"):
            stager.rollback("rolled", 1, if_generation=3)
        with self.assertRaisesRegex(ValueError, "at least 1"):
            stager.rollback("rolled", 0)
        same = stager.rollback("rolled", 2)
        self.assertTrue(same.reply["unchanged"])
        self.assertEqual(same.generation, 4)
        first, second = (v["digest"] for v in stager.versions("rolled")[:2])
        self.assertEqual([v["digest"] for v in stager.versions("rolled")], [first, second, first, second])

    def test_a_warm_version_has_batches_before_it_takes_over(self):
        text = TEXT.format(name="warm")
        self.assertEqual(stager.apply(text, warm=True).generation, 1)
        self.assertGreater(stager.status("warm")["buffered"], 0)
        with stager.open("warm") as stream:
            batches = iter(stream)
            self.assertEqual(next(batches)["value"].tolist(), [0, 1])
            other = text.replace("stop: 4", "start: 4, stop: 8")
            with self.assertRaisesRegex(stager.FailedPreconditionError, str(os.getpid())):
                stager.apply(other, warm=True)
            self.assertEqual(stager.apply(other, replace=True, warm=True).generation, 2)
            with self.assertRaisesRegex(stager.AbortedError, "replaced by generation 2"):
                list(batches)
        status = stager.status("warm")
        self.assertEqual((status["buffered"] > 0, status["warming_generation"]), (True, 0))
        self.assertEqual(stager.rollback("warm", warm=True).reply["restored"], 1)
        with stager.open("warm") as stream:
            self.assertEqual([batch["value"].tolist() for batch in stream], [[0, 1], [2, 3]])

    def test_a_warm_apply_that_cannot_fill_its_buffer_changes_nothing(self):
        text = TEXT.format(name="cold")
        stager.apply(text)
        never = ("name: cold\ndataset:\n  - range: {stop: 1000000000000}\n"
                 "  - filter: {graph: {n: {op: constant, value: -1, dtype: int64}, "
                 "p: {op: less, input: [value, n]}}, predicate: p}\n  - batch: {batch_size: 1}\n")
        code = f"import stager; stager.apply({never!r}, replace=True, warm=True)"
        with subprocess.Popen([sys.executable, "-c", code], env=self.daemon.env(), stderr=subprocess.PIPE) as child:
            while stager.status("cold")["warming_generation"] != 2:
                self.assertIsNone(child.poll())
            child.send_signal(signal.SIGINT)
            self.assertIn(b"KeyboardInterrupt", child.communicate()[1])
        while stager.status("cold")["warming_generation"] != 0:
            pass
        self.assertEqual(stager.status("cold")["generation"], 1)

    def test_a_problem_of_files_is_a_warning_at_the_line_that_applies(self):
        text = "name: empty\ndataset:\n  - files: {pattern: /nowhere/*.txt}\n  - text_line\n"
        with stager.serve(stagerd=STAGERD) as server:
            for apply in (stager.apply, server.apply):
                with self.assertWarnsRegex(RuntimeWarning, "pipeline empty: .*/nowhere") as caught:
                    apply(text)
                self.assertEqual(caught.filename, __file__)

    def test_a_script_that_was_edited_replaces_what_it_applied(self):
        """A run after the edit sees the change; one run that uses a name twice does not."""
        path = self.file("script.py", "")
        code = """
import stager
for stop in ({stops}):
    print(stager.apply(stager.range(stop).batch(2).staged(name="scripted")).generation)
"""
        def run(stops):
            with open(path, "w", encoding="utf-8") as file:
                file.write(code.format(stops=stops))
            return subprocess.run([sys.executable, path], env=self.daemon.env(), capture_output=True, text=True)
        self.assertEqual(run("10,").stdout, "1\n")
        self.assertEqual(run("20,").stdout, "2\n")
        twice = run("30, 40")
        self.assertEqual((twice.returncode, twice.stdout), (1, "3\n"))
        self.assertIn("FailedPreconditionError: pipeline scripted already exists with other content", twice.stderr)
        with self.assertRaises(stager.FailedPreconditionError):
            stager.apply(stager.range(50).batch(2).staged(name="scripted"))

    def test_a_mistake_says_where_it_is(self):
        text = TEXT.format(name="bad") + "staged: {capcity: 2}\n"
        with self.assertRaisesRegex(stager.InvalidArgumentError, r'<text>:5:10: .*"capacity"'):
            stager.check(text)
        path = pathlib.Path(self.file("bad.yaml", text))
        with self.assertRaises(stager.InvalidArgumentError) as caught:
            stager.apply(path)
        self.assertEqual(caught.exception.file, str(path))
        with self.assertRaisesRegex(stager.InvalidArgumentError, "pathlib.Path"):
            stager.apply("bad.yaml")
        with self.assertRaisesRegex(TypeError, "a pipeline is its text, a pathlib.Path"):
            stager.apply({"name": "bad"})
        many = stager.files([f"/data/photos/{i:08d}.jpg" for i in range(3000)]).read_file()
        with self.assertRaisesRegex(stager.ResourceExhaustedError, "use a pattern or a `listing` file"):
            stager.check(many)
        with self.assertRaises(FileNotFoundError):
            stager.apply(pathlib.Path("/nonexistent.yaml"))


class Serve(case.Case):
    def test_a_private_daemon_serves_and_ends(self):
        with stager.serve(stagerd=STAGERD, memory_budget="256MiB") as server:
            name = server.apply(TEXT.format(name="mine"))
            with server.open(name) as stream:
                self.assertEqual([batch["value"].tolist() for batch in stream], [[0, 1], [2, 3]])
            self.assertEqual(server.status(name)["made"], 2)
            self.assertEqual([entry["name"] for entry in server.list()], ["mine"])
            server.delete(name)
            self.assertNotIn("mine", [entry["name"] for entry in stager.list()])
            pid, folder = server.pid, server.folder
        self.assertFalse(os.path.exists(folder))
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        server.close()

    def test_one_that_was_closed_says_so(self):
        server = stager.serve(stagerd=STAGERD)
        self.assertIn(server.runtime_dir, repr(server))
        server.close()
        self.assertEqual(repr(server), "<stager.Server closed>")
        for ask in (server.list, server.log, lambda: server.open("x"), lambda: server.apply("dataset: []\n")):
            with self.assertRaisesRegex(stager.FailedPreconditionError, "this daemon was closed"):
                ask()

    def test_the_error_where_no_daemon_runs_names_the_one_used_before(self):
        for ask in (stager.list, lambda runtime_dir: stager.open("x", runtime_dir=runtime_dir)):
            with self.assertRaisesRegex(stager.UnavailableError, r"have stager.serve\(\) start one"):
                ask(runtime_dir="/nonexistent")
            with stager.serve(stagerd=STAGERD) as server, self.assertRaisesRegex(
                    stager.UnavailableError, f"runtime_dir=server.runtime_dir, which is {server.runtime_dir}"):
                ask(runtime_dir="/nonexistent")

    def test_its_folders_may_be_chosen(self):
        folder = os.path.join(self.daemon.folder, "chosen")
        with stager.serve(stagerd=STAGERD, runtime_dir=folder) as server:
            self.assertEqual((server.runtime_dir, server.list()), (folder, []))
            self.assertTrue(os.path.exists(os.path.join(folder, "attach.sock")))

    def test_a_daemon_that_does_not_start_says_why(self):
        with self.assertRaisesRegex(stager.UnavailableError, "memory_bugdet"):
            stager.serve(stagerd=STAGERD, memory_bugdet=1)
        with self.assertRaises((stager.NotFoundError, OSError)):
            stager.serve(stagerd="/dev/null")


if __name__ == "__main__":
    case.main()
