#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commits of streams: what was committed is where a trainer resumes, whatever crashes."""
import json
import os
import resource
import signal
import subprocess
import sys
import threading

import case
import stager


def values(stream, n):
    """The first value of each of the next n batches."""
    return [int(stream.next()["value"][0]) for _ in range(n)]


class Case(case.Case):
    def setUp(self):
        self.name = self._testMethodName[:64]

    def make(self, stop=100, **staged):
        """Batches of one number each."""
        return self.numbers(stop, 1, **staged)

    def tags(self, name=None):
        return [commit["tag"] for commit in stager.commits(name or self.name)]

    def ranks(self, n, **options):
        """All ranks, rank 0 first."""
        return [stager.open(self.name, rank=rank, world_size=n, **options) for rank in range(n)]

    @staticmethod
    def step(ranks):
        return [int(rank.next()["value"][0]) for rank in ranks]


class Commit(Case):
    def test_a_tag_resumes_after_its_state(self):
        self.make()
        with stager.open(self.name) as stream:
            self.assertEqual(values(stream, 3), [0, 1, 2])
            stream.commit(stream.state_dict(), "three")
            self.assertEqual(values(stream, 4), [3, 4, 5, 6])
            stream.commit(stream.state_dict(), "seven")
            values(stream, 2)
        with stager.open(self.name, resume="tag:seven") as stream:
            state = stream.state_dict()
            self.assertEqual(values(stream, 2), [7, 8])
        with stager.open(self.name, resume="tag:three") as stream:
            self.assertEqual(values(stream, 2), [3, 4])
        with stager.open(self.name, resume="current") as stream:
            self.assertEqual(values(stream, 1), [7])
        with stager.open(self.name, resume="tag:three", state=state) as stream:  # the state wins
            self.assertEqual(values(stream, 1), [7])

    def test_a_new_process_has_to_say_where_it_begins(self):
        self.make()
        with stager.open(self.name, resume="current") as stream:  # no commit yet: the start
            self.assertEqual(values(stream, 5), [0, 1, 2, 3, 4])
            stream.commit(stream.state_dict(), "five")
        with self.assertRaisesRegex(stager.FailedPreconditionError,
                                    'has commits, the last one with tag five at pass 0, position 5.*resume="tag:five"'):
            stager.open(self.name)
        with self.assertRaisesRegex(stager.NotFoundError, "no commit with tag six; the last ones: five"):
            stager.open(self.name, resume="tag:six")
        with self.assertRaisesRegex(stager.InvalidArgumentError, '"exact", "approximate", "start", "current" and "tag:NAME"'):
            stager.open(self.name, resume="last")
        with stager.open(self.name, private_run=True) as stream:  # another reader is not affected
            self.assertEqual(values(stream, 2), [0, 1])
            with self.assertRaisesRegex(stager.FailedPreconditionError, "a private run of pipeline .* has no commits"):
                stream.commit(stream.state_dict(), "private")
        with stager.open(self.name, private_run=True, resume="tag:five") as stream:
            self.assertEqual(values(stream, 1), [5])
        stager.delete(self.name)
        self.make()
        with stager.open(self.name) as stream:
            self.assertEqual(values(stream, 1), [0])

    def test_current_without_a_commit_is_the_start(self):
        """Also after batches and passes that no commit has."""
        self.make(stop=4)
        with stager.open(self.name, client_id="me") as stream:
            self.assertEqual([len(list(values(stream, 4)))], [4])
        for _ in range(2):
            stream = stager.open(self.name, client_id="me", resume="current")
            self.assertEqual(values(stream, 2), [0, 1])
            self.assertEqual(stream.state_dict()["pass"], 0)
            stream.close()      # in the middle: the client may come back
        with stager.open(self.name, client_id="me", resume="current") as stream:
            self.assertEqual(values(stream, 4), [0, 1, 2, 3])

    def test_start_is_the_start_whatever_was_committed(self):
        """A trainer that found no checkpoint: a commit that it does not know of changes nothing for it."""
        self.make()
        with stager.open(self.name, resume="start") as stream:
            self.assertEqual(values(stream, 3), [0, 1, 2])
            stream.commit(stream.state_dict(), "three")
            late = stream.state_dict()
            with stager.open(self.name, resume="start", private_run=True) as other:
                self.assertEqual(values(other, 2), [0, 1])
        with stager.open(self.name, resume="start") as stream:
            self.assertEqual(values(stream, 4), [0, 1, 2, 3])
            stream.commit(stream.state_dict(), "four")
        with stager.open(self.name, resume="start", state=late) as stream:  # the state wins
            self.assertEqual(values(stream, 1), [3])
        with stager.open(self.name, resume="current") as stream:
            self.assertEqual(values(stream, 1), [4])

    def test_a_commit_again_is_no_error_and_another_state_is(self):
        self.make()
        with stager.open(self.name) as stream:
            values(stream, 2)
            early = stream.state_dict()
            stream.commit(early, "a")
            stream.commit(json.dumps({k: v for k, v in early.items() if k != "epoch"}), "a")
            values(stream, 1)
            with self.assertRaisesRegex(stager.AlreadyExistsError,
                                        r"tag a was committed .*position 2, and this state is of pass 0, position 3 \(position differs\)"):
                stream.commit(stream.state_dict(), "a")
            self.assertEqual(values(stream, 1), [3])
            for tag in ("", " ", "a b", "ä", "x" * 129):
                with self.assertRaises(stager.InvalidArgumentError):
                    stream.commit(early, tag)
            with self.assertRaises(stager.InvalidArgumentError):
                stream.commit({**early, "position": 7}, "edited")
            with self.assertRaises(TypeError):
                stream.commit(early, 7)
        self.assertEqual(self.tags(), ["a"])

    def test_a_state_of_another_pipeline_is_refused(self):
        other = self.apply(name="other", dataset=[{"range": {"stop": 10, "start": 1}}, {"batch": {"batch_size": 1}}])
        self.make()
        with stager.open(other) as stream:
            state = stream.state_dict()
        with stager.open(self.name) as stream:
            with self.assertRaisesRegex(stager.FailedPreconditionError, "the state is of another pipeline"):
                stream.commit(state, "a")
        self.assertEqual(self.tags(), [])

    def test_seventeen_tags(self):
        self.make()
        with stager.open(self.name) as stream:
            for i in range(17):
                values(stream, 1)
                stream.commit(stream.state_dict(), f"t{i}")
        self.assertEqual(self.tags(), [f"t{i}" for i in range(1, 17)])
        with self.assertRaisesRegex(stager.NotFoundError, "the last 16 tags are kept"):
            stager.open(self.name, resume="tag:t0")

    def test_the_end_of_a_pass_and_passes_after_it(self):
        self.make(stop=4)
        with stager.open(self.name) as stream:
            for epoch in range(3):
                self.assertEqual([int(batch["value"][0]) for batch in stream], [0, 1, 2, 3])
                stream.commit(stream.state_dict(), f"epoch-{epoch}")
        self.assertEqual([c["pass"] for c in stager.commits(self.name)], [1, 2, 3])
        with stager.open(self.name, resume="current") as stream:
            self.assertEqual([int(batch["value"][0]) for batch in stream], [0, 1, 2, 3])
            self.assertEqual(stream.state_dict()["pass"], 4)

    def test_stagerctl_lists_them(self):
        self.make()
        self.assertEqual(self.daemon.ctl("commits", self.name).decode(), f"No commits of {self.name}.\n")
        with stager.open(self.name, client_id="me") as stream:
            values(stream, 3)
            stream.commit(stream.state_dict(), "three")
        text = self.daemon.ctl("commits", self.name).decode().splitlines()
        self.assertEqual(text[0].split(), ["TAG", "ATTEMPT", "PASS", "POSITION", "TIME", "CLIENT"])
        self.assertEqual(text[1].split()[:4] + text[1].split()[-1:], ["three", "1", "0", "3", "me"])
        found = json.loads(self.daemon.ctl("commits", self.name, "--json"))
        commit = found["commits"][0]
        self.assertRegex(commit.pop("time"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(commit, {"tag": "three", "attempt": 1, "pass": 0, "position": 3, "client": "me", "of": ""})
        self.assertEqual(found["pipeline"], self.name)


class Fencing(Case):
    def test_an_older_attempt_commits_nothing_more(self):
        self.make()
        zombie = stager.open(self.name)
        values(zombie, 3)
        zombie.commit(zombie.state_dict(), "three")
        values(zombie, 1)
        stager.apply(json.dumps({"name": self.name, "dataset": [{"range": {"stop": 100}}, {"batch": {
            "batch_size": 1, "drop_remainder": False}}], "staged": {"capacity": 7}}), replace=True)
        with stager.open(self.name, resume="current") as stream:
            self.assertEqual(values(stream, 1), [3])
            with self.assertRaisesRegex(stager.FailedPreconditionError, "attempt 2 has begun"):
                zombie.commit(zombie.state_dict(), "four")
            stream.commit(stream.state_dict(), "four")
        zombie.close()
        self.assertEqual([(c["tag"], c["attempt"]) for c in stager.commits(self.name)], [("three", 1), ("four", 2)])

    def test_a_later_attempt_may_use_a_tag_again(self):
        self.make()
        with stager.open(self.name) as stream:
            values(stream, 3)
            stream.commit(stream.state_dict(), "three")
            late = stream.state_dict()
            values(stream, 2)
            stream.commit(stream.state_dict(), "five")
        with stager.open(self.name, resume="tag:three") as stream:
            values(stream, 1)
            stream.commit(stream.state_dict(), "four")
        self.assertEqual([(c["tag"], c["attempt"]) for c in stager.commits(self.name)],
                         [("three", 1), ("five", 1), ("four", 2)])
        with stager.open(self.name, state=late) as stream:
            values(stream, 2)
            stream.commit(stream.state_dict(), "five")  # of an older attempt: a new one of that name
        self.assertEqual([(c["tag"], c["attempt"]) for c in stager.commits(self.name)],
                         [("three", 1), ("four", 2), ("five", 3)])

    def test_a_zombie_changes_nothing(self):
        self.make(delivery="round_robin", num_clients=2)
        zombies = self.ranks(2)
        self.step(zombies)
        zombies[0].commit(zombies[0].state_dict(), "one")
        self.step(zombies)
        late = zombies[0].state_dict()
        zombies[1].close()      # rank 1 crashes and comes back; rank 0 hangs, and is one of the old run
        first = stager.open(self.name, rank=1, world_size=2, resume="tag:one")
        with self.assertRaisesRegex(stager.FailedPreconditionError, "attempt 2 has begun, and this stream is of attempt 1"):
            zombies[0].commit(late, "two")
        zombies[0].close()
        second = stager.open(self.name, rank=0, world_size=2, resume="tag:one")
        self.assertEqual(self.step([second, first]), [2, 3])
        second.commit(second.state_dict(), "two")
        first.commit(first.state_dict(), "two")
        self.assertEqual([(c["tag"], c["attempt"]) for c in stager.commits(self.name)], [("one", 1), ("two", 2)])
        first.close()
        second.close()


class Deliveries(Case):
    def test_commits_that_do_not_fit_one_reply_are_counted(self):
        n = 16
        self.make(delivery="broadcast", num_clients=n)
        names = [f"{i:02}-".ljust(127, "x") for i in range(n)]
        streams = [stager.open(self.name, client_id=name) for name in names]
        self.step(streams)
        for k in range(16):
            for stream in streams:
                stream.commit(stream.state_dict(), f"{k:02}-".ljust(128, "t"))
        with self.assertWarnsRegex(RuntimeWarning, r"\d+ older commits did not fit the daemon's reply") as caught:
            commits = stager.commits(self.name)
        self.assertEqual(len(commits) + int(str(caught.warning).split()[2]), 16 * n)
        self.assertEqual([c["of"] for c in commits[-n:]], names)    # the last ones are there
        for stream in streams:
            stream.close()

    def test_round_robin_has_one_commit_for_all_ranks(self):
        self.make(delivery="round_robin", num_clients=2)
        ranks = self.ranks(2)
        self.step(ranks)
        state = ranks[0].state_dict()
        done = []

        def commit(rank):
            rank.commit(rank.state_dict(), "one")
            done.append(rank)
        threads = [threading.Thread(target=commit, args=(rank,)) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(done), 2)
        self.assertEqual(len(stager.commits(self.name)), 1)
        self.step(ranks)
        with self.assertRaises(stager.AlreadyExistsError):
            ranks[1].commit(ranks[1].state_dict(), "one")
        for rank in ranks:
            rank.close()
        ranks = self.ranks(2, resume="tag:one")
        self.assertEqual([rank.state_dict() for rank in ranks], [state, state])
        self.assertEqual(self.step(ranks), [2, 3])
        for rank in ranks:
            rank.close()

    def test_broadcast_has_commits_of_each_client(self):
        self.make(delivery="broadcast", num_clients=2, capacity=8)
        first, second = (stager.open(self.name, client_id=name) for name in ("a", "b"))
        values(first, 2)
        values(second, 4)
        first.commit(first.state_dict(), "x")
        second.commit(second.state_dict(), "x")     # another lane: another state
        self.assertEqual([(c["tag"], c["position"], c["of"]) for c in stager.commits(self.name)],
                         [("x", 2, "a"), ("x", 4, "b")])
        values(first, 1)
        first.commit(first.state_dict(), "y")
        self.assertEqual([(c["tag"], c["of"]) for c in stager.commits(self.name)],
                         [("x", "a"), ("x", "b"), ("y", "a")])      # in the order of time
        self.assertIn("OF", self.daemon.ctl("commits", self.name).decode().splitlines()[0])
        first.close()
        second.close()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "has commits"):
            stager.open(self.name, client_id="a")
        with self.assertRaisesRegex(stager.FailedPreconditionError, "by its name: open pipeline .* with a client_id"):
            stager.open(self.name, resume="current")
        first = stager.open(self.name, client_id="a", resume="current")
        second = stager.open(self.name, client_id="b", resume="tag:x")
        self.assertEqual((values(first, 1), values(second, 1)), ([3], [4]))
        first.close()
        second.close()

    def test_split_among_several_clients_commits_merged_states(self):
        self.make(delivery="split", num_clients=3)
        streams = [stager.open(self.name, client_id=f"trainer-{k}", resume="current") for k in range(3)]
        taken = [values(streams[k], 1)[0] for k in (0, 1, 1, 0, 1)]     # the third one takes nothing
        states = [stream.state_dict() for stream in streams]
        with self.assertRaisesRegex(stager.FailedPreconditionError, r"consumer 2 of 3 \(client trainer-1\): merge it"):
            streams[1].commit(states[1], "five")
        merged = stager.merge_states(states)
        streams[2].commit(merged, "five")
        streams[0].commit(stager.merge_states(reversed(states)), "five")    # the same state again
        streams[0].next().release()
        later = stager.merge_states(stream.state_dict() for stream in streams)
        with self.assertRaisesRegex(stager.AlreadyExistsError, r"tag five was committed .* by trainer-2 .*\(\w+ differs\)"):
            streams[0].commit(later, "five")
        streams[1].close()
        with stager.open(self.name) as stream:  # in place of the one that left: no client begins anywhere
            stream.next(timeout=20).release()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "must load the state of one step; loaded: "):
            stager.open(self.name, resume="current")
        for stream in streams:
            stream.close()
        with self.assertRaisesRegex(stager.FailedPreconditionError, "has commits, the last one with tag five"):
            stager.open(self.name)
        self.daemon.stop()
        self.daemon.start()
        with stager.open(self.name, resume="tag:five") as first, stager.open(self.name, resume="current") as second:
            rest = values(first, 3) + values(second, 2)
            again = stager.merge_states([first.state_dict(), second.state_dict()])
            second.commit(again, "ten")
        with stager.open(self.name, resume="tag:ten", private_run=True) as stream:
            rest += values(stream, 90)
            with self.assertRaises(stager.OutOfRangeError):
                stream.next()
        self.assertEqual(sorted(taken + rest), list(range(100)))


class Crashes(Case):
    def restart(self):
        self.daemon.process.wait()
        self.daemon.start()

    def test_a_slow_disk_delays_no_other_request(self):
        """An open of the same pipeline waits for the commit; other requests and batches do not."""
        self.make()
        other = self.apply(name="other", dataset=[{"range": {"stop": 100}}, {"batch": {"batch_size": 1}}])
        self.daemon.stop()
        flag = self.start_with_shim()
        opened = []
        with stager.open(self.name) as stream, stager.open(other) as beside:
            values(stream, 2)
            self.rule(flag, "0 hold")
            committing = threading.Thread(target=stream.commit, args=(stream.state_dict(), "two"))
            committing.start()
            case.wait_until(lambda: os.path.exists(flag + ".held"))
            opening = threading.Thread(target=lambda: opened.append(stager.open(self.name, private_run=True)))
            opening.start()
            opening.join()      # a private run has no commits to wait for
            self.assertEqual(values(beside, 50), [*range(50)])
            self.assertEqual(stager.commits(self.name), [])
            self.assertTrue(committing.is_alive())
            os.unlink(flag)
            committing.join()
        self.assertEqual(self.tags(), ["two"])
        opened[0].close()

    def test_a_run_apart_stays_while_its_open_waits_for_a_commit(self):
        """The dataset comes to its state meanwhile."""
        folder = os.path.join(self.daemon.folder, "apart/slow")
        hold, held = (os.path.join(self.daemon.folder, "apart", name) for name in ("hold", "held"))
        os.makedirs(folder)
        with open(os.path.join(folder, "lines.txt"), "w", encoding="ascii") as file:
            file.write("".join(f"{i}\n" for i in range(100)))
        self.daemon.stop()
        flag = self.start_with_shim()
        self.apply(dataset=[{"files": {"pattern": os.path.join(folder, "*.txt")}}, "text_line", {"batch": {"batch_size": 1}}],
                   staged={"delivery": "broadcast", "num_clients": 2, "capacity": 2})
        opened = []
        with stager.open(self.name, client_id="a") as first:
            with stager.open(self.name, client_id="b") as second:
                states = [second.state_dict() for _ in range(8) for stream in (first, second) if stream.next()["record"] is not None]
            self.rule(hold, "")
            opening = threading.Thread(target=lambda: opened.append(stager.open(self.name, client_id="b", state=states[1])))
            opening.start()
            case.wait_until(lambda: os.path.exists(held))
            self.rule(flag, "0 hold")
            committing = threading.Thread(target=first.commit, args=(first.state_dict(), "eight"))
            committing.start()
            case.wait_until(lambda: os.path.exists(flag + ".held"))
            os.unlink(hold)
            for _ in range(300):    # stagerd sweeps
                stager.list()
            os.unlink(flag)
            committing.join()
            opening.join()
        with opened[0] as second:
            self.assertEqual(second.next()["record"].tolist(), [b"1"])

    def test_an_open_that_waits_for_its_dataset_waits_for_a_commit_as_well(self):
        """It has an hour; one that waits for a commit alone has 25 seconds."""
        folder = os.path.join(self.daemon.folder, "slow")
        hold = os.path.join(self.daemon.folder, "hold")
        os.mkdir(folder)
        with open(os.path.join(folder, "lines.txt"), "w", encoding="ascii") as file:
            file.write("".join(f"{i}\n" for i in range(100)))
        dataset = [{"files": {"pattern": os.path.join(folder, "*.txt")}}, "text_line", {"batch": {"batch_size": 1}}]
        other = self.apply(name="beside", dataset=[{"range": {"stop": 100}}, {"batch": {"batch_size": 1}}])
        self.daemon.stop()
        flag = self.start_with_shim()
        self.apply(dataset=dataset)
        opened = []
        with stager.open(self.name) as stream:
            for _ in range(3):
                stream.next().release()
            state = stream.state_dict()
            stager.apply(json.dumps({"name": self.name, "dataset": dataset, "staged": {"capacity": 7}}), replace=True)
            self.rule(hold, "")
            opening = threading.Thread(target=lambda: opened.append(stager.open(self.name, state=state)))
            opening.start()
            case.wait_until(lambda: os.path.exists(os.path.join(self.daemon.folder, "held")))
            self.rule(flag, "0 hold")
            committing = threading.Thread(target=stream.commit, args=(state, "three"))
            committing.start()
            case.wait_until(lambda: os.path.exists(flag + ".held"))
            with stager.open(other) as beside:      # stagerd tries the open again
                values(beside, 1)
                self.rule(flag + ".later", "")
                for _ in range(3):      # stagerd looks at its timers between requests
                    stager.list()
                os.unlink(flag + ".later")
            os.unlink(flag)
            committing.join()
            os.unlink(hold)
            opening.join()
        with opened[0] as stream:
            self.assertEqual(stream.state_dict(), state)

    def test_a_restart_of_the_daemon_keeps_commits_and_attempts(self):
        self.make()
        with stager.open(self.name) as stream:
            values(stream, 3)
            stream.commit(stream.state_dict(), "three")
        with stager.open(self.name, resume="current") as stream:
            values(stream, 1)
            stream.commit(stream.state_dict(), "four")
        before = stager.commits(self.name)
        self.assertEqual([c["attempt"] for c in before], [1, 2])
        self.daemon.process.kill()
        self.restart()
        self.assertEqual(stager.commits(self.name), before)
        with self.assertRaises(stager.FailedPreconditionError):
            stager.open(self.name)
        with stager.open(self.name, resume="tag:three") as stream:
            self.assertEqual(values(stream, 1), [3])
            stream.commit(stream.state_dict(), "four")
        self.assertEqual([(c["tag"], c["attempt"]) for c in stager.commits(self.name)], [("three", 1), ("four", 3)])

    def test_a_kill_at_every_fsync_of_a_commit(self):
        """A commit is there after it, or can be made; it is never another state."""
        self.make()
        self.daemon.stop()
        n_unanswered = 0
        for round_, (when, at) in enumerate((when, at) for at in range(4) for when in ("before", "after")):
            flag = self.start_with_shim()
            stream = stager.open(self.name, resume="current", daemon_reconnect_millis=0)
            begin = stream.state_dict()["position"]
            values(stream, 2)
            state, tag = stream.state_dict(), f"round-{round_}"
            self.rule(flag, f"{at} {when}")
            try:
                stream.commit(state, tag)
                acknowledged = True
            except stager.UnavailableError:
                acknowledged, n_unanswered = False, n_unanswered + 1
            os.unlink(flag)
            stream.close()
            if self.daemon.process.poll() is None and acknowledged:
                self.daemon.process.kill()
            self.restart()
            known = {c["tag"]: c["position"] for c in stager.commits(self.name)}
            if acknowledged:
                self.assertEqual(known[tag], begin + 2)
            self.assertIn(known.get(tag), (None, begin + 2))
            with stager.open(self.name, state=state) as stream:
                stream.commit(state, tag)
                self.assertEqual(values(stream, 1), [begin + 2])
            self.assertEqual(stager.commits(self.name)[-1]["position"], begin + 2)
            self.daemon.stop()
        self.assertGreaterEqual(n_unanswered, 2)
        self.daemon.start()

    def test_a_trainer_that_is_killed_anywhere_ends_as_an_undisturbed_one(self):
        """The model is the sum of what it has seen, saved and then committed."""
        self.make(stop=200)
        folder = os.path.join(self.daemon.folder, self.name)
        os.makedirs(folder)
        code = ("import json, os, sys, stager\n"
                "name, folder = sys.argv[1:]\n"
                "path = os.path.join(folder, 'model')\n"
                "model = json.load(open(path)) if os.path.exists(path) else {'seen': [], 'tag': None}\n"
                "at = {'state': model['state']} if model['tag'] else {'resume': 'current'}\n"
                "with stager.open(name, **at) as stream:\n"
                "    for batch in stream:\n"
                "        model['seen'] += batch['value'].tolist()\n"
                "        model.update(tag=f\"step-{len(model['seen'])}\", state=stream.state_dict())\n"
                "        print('step', flush=True)\n"
                "        with open(path + '.new', 'w') as file:\n"
                "            json.dump(model, file)\n"
                "        os.rename(path + '.new', path)\n"
                "        stream.commit(model['state'], model['tag'])\n"
                "print('done', flush=True)\n")
        line, n_kills = "", 0
        while line != "done":
            trainer = subprocess.Popen([sys.executable, "-c", code, self.name, folder], env=self.daemon.env(),
                                       text=True, stdout=subprocess.PIPE)
            for _ in range(3 + n_kills % 4):
                line = trainer.stdout.readline().strip()
            if line == "":
                self.assertEqual(trainer.wait(), 0, "the trainer fails by itself")
                break
            if line != "done":
                trainer.send_signal(signal.SIGKILL)
                n_kills += 1
            trainer.wait()
            trainer.stdout.close()
            if n_kills % 3 == 2:
                self.daemon.process.kill()
                self.restart()
        self.assertGreater(n_kills, 3)
        with open(os.path.join(folder, "model"), encoding="ascii") as file:
            self.assertEqual(json.load(file)["seen"], [*range(200)])


class Trouble(Case):
    def test_a_full_disk_stops_commits_and_nothing_else(self):
        self.make()
        with stager.open(self.name) as stream:
            values(stream, 1)
            stream.commit(stream.state_dict(), "one")
            values(stream, 1)
            _, hard = resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE)
            path = os.path.join(self.daemon.folder, f"state/commits/{self.name}.journal")
            resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (os.path.getsize(path) + 100, hard))
            with self.assertRaisesRegex(stager.ResourceExhaustedError, f"{self.name}.journal: File too large"):
                stream.commit(stream.state_dict(), "two")
            self.assertIn("File too large", stager.status(self.name)["commit_problem"])
            self.assertIn("no commit is stored: ", self.daemon.ctl("status", self.name).decode())
            self.assertEqual(values(stream, 2), [2, 3])
            resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
            stream.commit(stream.state_dict(), "four")
            self.assertEqual(stager.status(self.name)["commit_problem"], "")
        self.assertEqual(self.tags(), ["one", "four"])

    def test_a_failing_disk_stops_commits_and_nothing_else(self):
        self.make()
        self.daemon.stop()
        flag = self.start_with_shim()
        with stager.open(self.name) as stream:
            values(stream, 1)
            stream.commit(stream.state_dict(), "one")
            for rule, error, text in (("0 fail", stager.UnavailableError, "Input/output error"),
                                      ("0 readonly", stager.PermissionDeniedError, "Read-only file system")):
                before = self.tags()
                taken = values(stream, 1)
                self.rule(flag, rule)
                for _ in range(2):
                    with self.assertRaisesRegex(error, f"{self.name}.journal: {text}"):
                        stream.commit(stream.state_dict(), rule[2:])
                self.assertTrue(self.daemon.wait_for_log(f"{self.name}.journal: {text}"))
                self.assertEqual(self.daemon.log().count(f"{self.name}.journal: {text}"), 1)
                self.assertEqual(self.tags(), before)
                self.assertIn(text, stager.status(self.name)["commit_problem"])
                self.assertIn("no commit is stored: ", self.daemon.ctl("status", self.name).decode())
                self.assertEqual(values(stream, 2), [taken[0] + 1, taken[0] + 2])
                os.unlink(flag)
                stream.commit(stream.state_dict(), f"after-{rule[2:]}")
                self.assertEqual(stager.status(self.name)["commit_problem"], "")
        before = stager.commits(self.name)
        self.assertEqual([c["tag"] for c in before], ["one", "after-fail", "after-readonly"])
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.start()
        self.assertEqual(stager.commits(self.name), before)

    def test_a_failing_disk_is_named_also_when_the_run_is_over(self):
        self.make()
        self.daemon.stop()
        flag = self.start_with_shim()
        with stager.open(self.name) as stream:
            values(stream, 3)
            state = stream.state_dict()
            stager.apply(json.dumps({"name": self.name, "dataset": [{"range": {"stop": 100}}, {"batch": {
                "batch_size": 1, "drop_remainder": False}}], "staged": {"capacity": 7}}), replace=True)
            with self.assertRaises(stager.AbortedError):
                while True:
                    stream.next().release()
            self.rule(flag, "0 fail")
            with self.assertRaisesRegex(stager.UnavailableError, f"{self.name}.journal: Input/output error"):
                stream.commit(state, "three")
            os.unlink(flag)
            stream.commit(state, "three")
        self.assertEqual(self.tags(), ["three"])

    def test_another_delivery_does_not_lead_back_to_the_start(self):
        """Its commits are of other clients, so that there is none to resume from."""
        self.make()
        with stager.open(self.name) as stream:
            values(stream, 3)
            stream.commit(stream.state_dict(), "three")
            state = stream.state_dict()
        stager.apply(json.dumps({"name": self.name, "dataset": [{"range": {"stop": 100}}, {"batch": {
            "batch_size": 1, "drop_remainder": False}}], "staged": {"delivery": "broadcast", "num_clients": 2}}),
                     replace=True)
        for at in ({}, {"resume": "current"}):
            with self.assertRaisesRegex(stager.FailedPreconditionError,
                                        "has commits of another delivery or num_clients, the last one with tag three"):
                stager.open(self.name, client_id="a", **at)
        with stager.open(self.name, client_id="c", resume="start") as stream:
            self.assertEqual(stream.state_dict()["position"], 0)
        with stager.open(self.name, client_id="a", state=state) as stream:
            stream.commit(state, "three")
        with self.assertRaisesRegex(stager.FailedPreconditionError, "and none of this one"):
            stager.open(self.name, client_id="b", resume="current")
        with stager.open(self.name, client_id="a", resume="current") as stream:
            self.assertEqual(stream.state_dict(), state)

    def test_inexact_batches_do_not_lead_back_to_the_start(self):
        self.make()
        with stager.open(self.name) as stream:
            values(stream, 3)
            state = stream.state_dict()
            stream.commit(state, "three")
        pipeline = {"name": self.name, "dataset": [{"range": {"stop": 100}}, {"batch": {
            "batch_size": 1, "drop_remainder": False}}], "staged": {"deterministic": False}}
        stager.apply(json.dumps(pipeline), replace=True)
        with self.assertRaisesRegex(stager.FailedPreconditionError, "has commits, the last one with tag three, and a "
                                    "state is not exact here any more: .*deterministic: false"):
            stager.open(self.name)
        with stager.open(self.name, private_run=True) as stream:
            self.assertEqual(len(values(stream, 2)), 2)
        with stager.open(self.name, state=state, resume="approximate") as stream:
            self.assertEqual(len(values(stream, 97)), 97)
        pipeline["staged"] = {"delivery": "broadcast", "num_clients": 2}
        stager.apply(json.dumps(pipeline), replace=True)
        with self.assertRaisesRegex(stager.FailedPreconditionError, "has commits of another delivery or num_clients"):
            stager.open(self.name)      # without a name it has no commits at all
        stager.delete(self.name)
        stager.apply(json.dumps(pipeline))
        stager.open(self.name).close()

    def test_damage_in_the_middle_costs_one_commit_and_is_logged(self):
        self.make()
        with stager.open(self.name) as stream:
            for i in range(3):
                values(stream, 1)
                stream.commit(stream.state_dict(), f"t{i}")
        self.daemon.stop()
        path = os.path.join(self.daemon.folder, f"state/commits/{self.name}.journal")
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            file.write(b"XXXX")
        self.daemon.start()
        self.assertEqual(self.tags(), ["t0", "t2"])
        self.assertTrue(self.daemon.wait_for_log("damaged records, which are left out: 1; good ones: 2"))
        with stager.open(self.name, resume="tag:t2") as stream:
            self.assertEqual(values(stream, 1), [3])


if __name__ == "__main__":
    case.main()
