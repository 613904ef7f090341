#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The previous release, built from its commit in RELEASES, beside this one: clients of each with the stagerd of the other, and
the state folder across an upgrade and a downgrade.

    test_previous.py BUILD [NAME]...       builds it below BUILD/previous, once; needs the history of git
"""
import json
import os
import re
import subprocess
import sys
import unittest

import case
from daemon import Daemon, Failed

TOP = os.path.abspath(os.path.join(case.HERE, "../.."))
DELIVERIES = ("split", "round_robin", "broadcast")
STEPS = [{"range": {"stop": 24}}, {"shuffle": {"buffer_size": 8, "seed": 5}}, {"batch": {"batch_size": 2}}]

# Opens the pipeline, and prints what it takes: the values of `take` batches, each on one line. Then it commits under `tag`, prints
# the state, and ends at the next line of its input, or reads on to the end of the pass.
CLIENT = """
import json, sys, stager
name, take, tag, options = json.loads(sys.argv[1])
try:
    with stager.open(name, **options) as stream:
        print(stager.__file__, flush=True)
        for _ in range(take):
            print(json.dumps(stream.next()["value"].tolist()), flush=True)
        state = stream.state_dict()
        if tag:
            stream.commit(state, tag)
        print(json.dumps(state), flush=True)
        if sys.stdin.readline().strip() == "rest":
            while True:
                print(json.dumps(stream.next()["value"].tolist()), flush=True)
except stager.OutOfRangeError:
    pass
except stager.Error as error:
    print(type(error).__name__, error, flush=True)
"""


def previous():
    """(version, commit) of the last release before this version."""
    with open(os.path.join(TOP, "meson.build"), encoding="utf-8") as file:
        version = re.search(r"version: '([\d.]+)'", file.read()).group(1)
    with open(os.path.join(TOP, "RELEASES"), encoding="ascii") as file:
        lines = [line.split() for line in file]
    return [(line[0], line[2]) for line in lines if line[0] != version][-1]


def run(*command, **options):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            check=False, **options)
    if result.returncode != 0:
        raise Failed(f"{' '.join(command)}: {result.returncode}\n{result.stdout.decode(errors='replace')[-4000:]}")


def build_previous():
    """Returns the build folder of the previous release, which is made if it is not there."""
    version, commit = previous()
    folder = os.path.join(case.BUILD, "previous", commit[:12])
    source, build = os.path.join(folder, "source"), os.path.join(folder, "build")
    git = ("git", "-c", "safe.directory=*", "-C", TOP)
    if subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], check=False, capture_output=True).returncode != 0:
        print(f"skipped: no git history with {commit}, the commit of {version}")
        sys.exit(77)
    if not os.path.exists(os.path.join(folder, "built")):
        os.makedirs(source, exist_ok=True)
        with subprocess.Popen([*git, "archive", commit], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", source], stdin=archive.stdout, check=True)
        if not os.path.exists(os.path.join(build, "build.ninja")):
            run("meson", "setup", build, source, "-Dtests=false", "-Dcuda=disabled", "-Dpython=enabled")
        run("ninja", "-C", build)
        with open(os.path.join(folder, "built"), "w", encoding="ascii") as file:
            file.write(version)
    return build


class Client:
    """A trainer with the package of a build."""

    def __init__(self, build, daemon, name, take=0, tag="", **options):
        env = dict(daemon.env(), PYTHONPATH=os.path.join(build, "client/python"))
        env["LD_LIBRARY_PATH"] = os.path.join(build, "client")
        self.build, self.take = build, take
        self.process = subprocess.Popen([sys.executable, "-c", CLIENT, json.dumps([name, take, tag, options])], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def parse(line):
        if not line.startswith(("[", "{")):
            raise Failed(f"the client printed {line!r}")
        return json.loads(line)

    def begin(self):
        """Returns (values of its batches, its state)."""
        file = self.process.stdout.readline().strip()
        if not file.startswith(self.build):
            raise Failed(f"the client printed {file!r}")
        return [self.parse(self.process.stdout.readline()) for _ in range(self.take)], self.parse(self.process.stdout.readline())

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self):
        """Waits for its end; returns the lines that it still prints."""
        return self.process.communicate(timeout=60 * case.SLOW)[0].splitlines()


class Previous(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.previous = build_previous()

    def daemon(self, build):
        daemon = Daemon(build, memory_budget="1GiB")
        self.addCleanup(daemon.close)
        daemon.start()
        return daemon

    def pipeline(self, daemon, delivery, clients):
        path = os.path.join(daemon.folder, f"{delivery}.yaml")
        with open(path, "w", encoding="ascii") as file:
            json.dump({"name": delivery, "dataset": STEPS, "staged": {"delivery": delivery, "num_clients": clients}}, file)
        daemon.ctl("apply", path)
        return [batch["tensors"]["value"]["values"] for batch in daemon.cat(delivery)]

    def read_all(self, client_build, daemon, delivery, n):
        """What n clients get of a pass: two batches each, then the rest."""
        options = [{"rank": i, "world_size": n} if delivery == "round_robin" else {"client_id": f"c{i}"} for i in range(n)]
        clients = [Client(client_build, daemon, delivery, 2, **option) for option in options]
        got = [client.begin()[0] for client in clients]
        for client in clients:
            client.say("rest")
        return [first + [client.parse(line) for line in client.end()] for first, client in zip(got, clients)]

    def check_reading(self, client_build, daemon_build):
        daemon = self.daemon(daemon_build)
        for delivery in DELIVERIES:
            expected = self.pipeline(daemon, delivery, 2)
            got = self.read_all(client_build, daemon, delivery, 2)
            if delivery == "split":
                self.assertEqual(sorted(got[0] + got[1]), sorted(expected))
            elif delivery == "broadcast":
                self.assertEqual(got, [expected, expected])
            else:
                self.assertEqual(got, [expected[0::2], expected[1::2]])

    def test_its_clients_read_from_this_stagerd(self):
        self.check_reading(self.previous, case.BUILD)

    def test_clients_of_this_release_read_from_its_stagerd(self):
        self.check_reading(case.BUILD, self.previous)

    def check_resuming(self, first, second, daemon_build):
        """A client of one release commits, and one of the other resumes at its tag and at its state."""
        daemon = self.daemon(daemon_build)
        expected = self.pipeline(daemon, "split", 1)
        client = Client(first, daemon, "split", 5, "five")
        got, state = client.begin()
        client.end()
        self.assertEqual(got, expected[:5])
        for options in ({"resume": "tag:five"}, {"state": state}):
            client = Client(second, daemon, "split", 2, **options)
            self.assertEqual(client.begin()[0], expected[5:7])
            client.end()

    def test_states_and_commits_of_its_clients_resume_here(self):
        self.check_resuming(self.previous, case.BUILD, case.BUILD)
        self.check_resuming(self.previous, case.BUILD, self.previous)

    def test_its_clients_resume_at_states_and_commits_of_this_release(self):
        self.check_resuming(case.BUILD, self.previous, case.BUILD)
        self.check_resuming(case.BUILD, self.previous, self.previous)

    def check_replaced(self, before, after):
        """Another release of stagerd starts with the state folder: definitions and commits stay."""
        daemon = self.daemon(before)
        expected = self.pipeline(daemon, "split", 1)
        client = Client(before, daemon, "split", 5, "five")
        client.begin()
        client.end()
        daemon.stop()
        daemon.build = after
        daemon.start()
        self.assertEqual([batch["tensors"]["value"]["values"] for batch in daemon.cat("split")], expected)
        for build, tag in ((before, "six"), (after, "seven")):
            client = Client(build, daemon, "split", 1, tag, resume="current")
            got, _ = client.begin()
            self.assertEqual(got, [expected[5 if tag == "six" else 6]])
            client.end()
        tags = json.loads(daemon.ctl("commits", "split", "--json"))
        self.assertIn("five", json.dumps(tags))
        self.assertIn("seven", json.dumps(tags))

    def test_an_upgrade_keeps_pipelines_and_commits(self):
        self.check_replaced(self.previous, case.BUILD)

    def test_a_downgrade_keeps_pipelines_and_commits(self):
        self.check_replaced(case.BUILD, self.previous)

    def test_its_clients_get_an_error_when_this_stagerd_ends(self):
        daemon = self.daemon(case.BUILD)
        expected = self.pipeline(daemon, "split", 1)
        client = Client(self.previous, daemon, "split", 3)
        got, state = client.begin()
        daemon.process.kill()
        daemon.process.wait()
        client.say("rest")
        rest = client.end()
        self.assertEqual(got, expected[:3])
        self.assertRegex(rest[-1], "^UnavailableError ")
        daemon.start()
        client = Client(self.previous, daemon, "split", 2, state=state)
        self.assertEqual(client.begin()[0], expected[3:5])
        client.end()


if __name__ == "__main__":
    case.main()
