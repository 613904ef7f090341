#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes of pipelines (apply, rollback, delete) and the disk of state_dir: a slow one delays no other request, and
a crash at any point leaves the old definition or the new one."""
import contextlib
import json
import os
import select
import signal
import sys
import threading

import case
import stager


def text(name, start):
    """Batches of one number each, from `start` on."""
    return json.dumps({"name": name, "dataset": [{"range": {"start": start, "stop": start + 1000}},
                                                 {"batch": {"batch_size": 1}}], "staged": {"capacity": 2}})


def first(name, **options):
    with stager.open(name, **options) as stream:
        return int(stream.next()["value"][0])


def names():
    return [entry["name"] for entry in stager.list()]


def generation(name):
    """0: there is no such pipeline."""
    return sum(entry["generation"] for entry in stager.list() if entry["name"] == name)


CHANGES = {
    "apply": lambda name: stager.apply(text(name, 300)),
    "replace": lambda name: stager.apply(text(name, 300), replace=True),
    "rollback": stager.rollback,
    "delete": stager.delete,
}
# The first batch before and after each change; None: there is no such pipeline. Generation 1 begins at 100,
# generation 2 at 200.
BEFORE_AFTER = {"apply": (None, 300), "replace": (200, 300), "rollback": (200, 100), "delete": (200, None)}
GENERATIONS = {"apply": (0, 1), "replace": (2, 3), "rollback": (2, 3), "delete": (2, 0)}


class Case(case.Case):
    def setUp(self):
        self.name = self._testMethodName[:64]
        self.addCleanup(self.let_go)

    def let_go(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.daemon.folder, "die-at"))

    def prepare(self, change, name=None):
        name = name or self.name
        if change != "apply":
            stager.apply(text(name, 100))
            stager.apply(text(name, 200), replace=True)
        return name

    def shim(self):
        self.daemon.stop()
        return self.start_with_shim()

    def hold(self, flag):
        """The next fsync of the daemon waits."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(flag + ".held")
        self.rule(flag, "0 hold")

    def held(self, flag):
        case.wait_until(lambda: os.path.exists(flag + ".held"))

    def begin(self, flag, what):
        """Runs `what` in a thread up to an fsync that waits. Returns the thread and its results."""
        results = []

        def run():
            try:
                results.append(what())
            except stager.Error as error:
                results.append(error)
        thread = threading.Thread(target=run)
        self.hold(flag)
        thread.start()
        self.held(flag)
        return thread, results

    def release(self, flag, thread):
        os.unlink(flag)
        thread.join(60)
        self.assertFalse(thread.is_alive())

    def is_at(self, name, begins, expected):
        self.assertEqual(generation(name), expected)
        if begins is not None:
            self.assertEqual(first(name), begins)


class SlowDisk(Case):
    def test_a_slow_disk_delays_no_other_request(self):
        """Not the batches of others, nor their requests; the pipeline is what it was until the disk has the change."""
        flag = self.shim()
        other = self.apply(name="other", dataset=[{"range": {"stop": 1000}}, {"batch": {"batch_size": 1}}])
        with stager.open(other) as beside:
            for change, what in CHANGES.items():
                name = self.prepare(change, f"slow_{change}")
                thread, results = self.begin(flag, lambda: what(name))  # noqa: B023
                for _ in range(50):
                    beside.next().release()
                self.assertIn("other", names())
                with stager.open(other, private_run=True) as stream:
                    stream.next().release()
                if change == "apply":
                    self.assertNotIn(name, names())
                else:
                    self.assertEqual(stager.status(name)["generation"], 2)
                    self.assertEqual([v["generation"] for v in stager.versions(name)], [1, 2])
                self.assertTrue(thread.is_alive())
                self.release(flag, thread)
                self.assertNotIsInstance(results[0], Exception)
                self.is_at(name, BEFORE_AFTER[change][1], GENERATIONS[change][1])

    def test_streams_of_the_pipeline_go_on_until_the_disk_has_the_change(self):
        flag = self.shim()
        for change in ("replace", "rollback", "delete"):
            name = self.prepare(change, f"used_{change}")
            with stager.open(name) as stream:
                thread, _ = self.begin(flag, lambda: CHANGES[change](name))  # noqa: B023
                self.assertEqual([int(stream.next()["value"][0]) for _ in range(50)], [*range(200, 250)])
                self.release(flag, thread)
                with self.assertRaisesRegex(stager.AbortedError, "replaced by generation 3|was deleted"):
                    while True:
                        stream.next().release()

    def test_an_open_waits_for_the_change_of_its_pipeline(self):
        flag = self.shim()
        for change in ("replace", "rollback", "delete"):
            name = self.prepare(change, f"open_{change}")
            thread, _ = self.begin(flag, lambda: CHANGES[change](name))  # noqa: B023
            for private in (False, True):
                opener = case.Program(self.daemon, f"import stager\nprint('begin', flush=True)\ntry:\n"
                                      f"    with stager.open({name!r}, private_run={private}) as stream:\n"
                                      "        print(int(stream.next()['value'][0]), flush=True)\n"
                                      "except stager.NotFoundError:\n    print(None, flush=True)\n")
                self.assertEqual(opener.line(), "begin")
                case.wait_until(opener.sleeps)
                self.assertEqual(select.select([opener.process.stdout], [], [], 0)[0], [])
                if private:
                    self.release(flag, thread)
                    self.assertEqual(opener.line(), str(BEFORE_AFTER[change][1]))
                else:
                    shared = opener
            self.assertEqual(shared.line(), str(BEFORE_AFTER[change][1]))
            self.assertEqual((shared.end()[0], opener.end()[0]), (0, 0))

    def test_changes_of_a_name_take_turns(self):
        """Those that come meanwhile find what the first one left."""
        flag = self.shim()
        self.prepare("replace")
        thread, results = self.begin(flag, lambda: stager.apply(text(self.name, 300), replace=True))
        code = (f"import stager, sys\nname = {self.name!r}\nprint('begin', flush=True)\n"
                "try:\n    reply = eval(sys.stdin.readline())\nexcept stager.AbortedError as error:\n"
                "    reply = error\nprint(repr(reply), flush=True)\n")
        others = []
        for ask in (f"stager.apply({text(self.name, 400)!r}, if_generation=2)", "stager.rollback(name, 2).generation"):
            others.append(case.Program(self.daemon, code))
            self.assertEqual(others[-1].line(), "begin")
            others[-1].say(ask)
        for other in others:
            case.wait_until(other.sleeps)
        self.release(flag, thread)
        self.assertEqual(results[0].generation, 3)
        self.assertRegex(others[0].line(), "is at generation [34]")
        self.assertEqual(others[1].line(), "4")
        self.assertEqual([other.end()[0] for other in others], [0, 0])
        self.is_at(self.name, 200, 4)
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.start()
        self.is_at(self.name, 200, 4)

    def test_a_caller_that_ends_meanwhile_has_its_change_made(self):
        flag = self.shim()
        for change in CHANGES:
            name = self.prepare(change, f"gone_{change}")
            self.hold(flag)
            with case.Program(self.daemon, f"import stager\nprint('begin', flush=True)\n"
                              f"stager.{'apply' if change == 'replace' else change}("
                              f"{text(name, 300) if change in ('apply', 'replace') else name!r}"
                              f"{', replace=True' if change == 'replace' else ''})\n").process as caller:
                self.held(flag)
                caller.kill()
            os.unlink(flag)
            case.wait_until(lambda: generation(name) == GENERATIONS[change][1])  # noqa: B023
            self.is_at(name, BEFORE_AFTER[change][1], GENERATIONS[change][1])

    def test_a_warm_version_takes_over_when_the_disk_has_it(self):
        flag = self.shim()
        for start in (100, 200):    # a new pipeline, and a version that replaces it
            thread, results = self.begin(flag, lambda: stager.apply(text(self.name, start), replace=True,  # noqa: B023
                                                                    warm=True))
            self.assertEqual(generation(self.name), 0 if start == 100 else 1)
            self.release(flag, thread)
            self.assertEqual(results[0].generation, start // 100)
            self.assertGreater(stager.status(self.name)["buffered"], 0)
        self.hold(flag)
        with case.Program(self.daemon, f"import stager\nstager.apply({text(self.name, 300)!r}, replace=True, warm=True)\n"
                          ).process as caller:
            self.held(flag)
            caller.kill()
        os.unlink(flag)
        case.wait_until(lambda: generation(self.name) == 3)
        self.is_at(self.name, 300, 3)
        self.assertEqual(stager.status(self.name)["warming_generation"], 0)

    def test_a_change_through_the_gate_is_made_once(self):
        """The gate has one call at a time; it answers when the disk has the change."""
        flag = self.shim()
        gate = self.daemon.gate(os.path.join(self.daemon.folder, "token"))
        path = self.file("new.yaml", text(self.name, 300))
        thread, results = self.begin(flag, lambda: self.daemon.ctl("apply", path, *gate))
        self.assertNotIn(self.name, names())
        self.release(flag, thread)
        self.assertIn(self.name.encode(), results[0])
        self.assertIn(self.name.encode(), self.daemon.ctl("list", *gate))
        thread, results = self.begin(flag, lambda: self.daemon.ctl("delete", self.name, *gate))
        self.assertIn(self.name, names())
        self.release(flag, thread)
        self.assertNotIn(self.name, names())


class Crashes(Case):
    def test_a_kill_at_every_fsync_of_a_change(self):
        """The old definition or the new one is there after it; the new one if the change was answered."""
        n_unanswered = {}
        for change, what in CHANGES.items():
            for at, when in ((at, when) for at in range(4) for when in ("before", "after")):
                name = f"kill_{change}_{at}_{when}"
                self.daemon.stop()
                flag = self.start_with_shim()
                self.prepare(change, name)
                self.rule(flag, f"{at} {when}")
                try:
                    what(name)
                    answered = True
                except stager.UnavailableError:
                    answered = False
                os.unlink(flag)
                if self.daemon.process.poll() is None and answered:
                    self.daemon.process.kill()
                self.daemon.process.wait()
                self.daemon.start()
                states = list(zip(BEFORE_AFTER[change], GENERATIONS[change], strict=True))
                now = (first(name) if generation(name) > 0 else None, generation(name))
                self.assertIn(now, states[1:] if answered else states)
                n_unanswered[change] = n_unanswered.get(change, 0) + (not answered)
                if now[0] is not None:
                    stager.delete(name)
                self.assertEqual(stager.apply(text(name, 500)).generation, 1)
                self.is_at(name, 500, 1)
                self.assertEqual(len(stager.versions(name)), 1)
                stager.delete(name)
        self.assertTrue(all(n >= 2 for n in n_unanswered.values()), n_unanswered)

    def test_a_stop_does_not_wait_for_a_disk_that_hangs(self):
        flag = self.shim()
        self.prepare("replace")
        thread, results = self.begin(flag, lambda: stager.apply(text(self.name, 300), replace=True))
        self.daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.daemon.process.wait(20 * case.SLOW), 0)
        self.release(flag, thread)
        self.assertIsInstance(results[0], stager.UnavailableError)
        self.daemon.start()
        self.assertIn((first(self.name), generation(self.name)), ((200, 2), (300, 3)))

    def test_a_disk_that_fails_changes_nothing(self):
        flag = self.shim()
        for change in ("apply", "replace", "rollback"):
            name = self.prepare(change, f"fail_{change}")
            self.rule(flag, "0 fail")
            with self.assertRaisesRegex(stager.UnavailableError, "cannot write .*Input/output error"):
                CHANGES[change](name)
            os.unlink(flag)
            self.is_at(name, BEFORE_AFTER[change][0], GENERATIONS[change][0])
            CHANGES[change](name)
            self.is_at(name, BEFORE_AFTER[change][1], GENERATIONS[change][1])
        self.rule(flag, "0 fail")
        with self.assertRaisesRegex(stager.UnavailableError, "cannot write .*Input/output error"):
            stager.apply(text("fail_apply", 400), replace=True, warm=True)
        os.unlink(flag)
        self.is_at("fail_apply", 300, 1)
        self.assertEqual(stager.status("fail_apply")["warming_generation"], 0)


if __name__ == "__main__":
    case.main()
