#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The audit of a pipeline: the proof that each item was delivered once, and where two runs differ."""
import json
import os
import subprocess

import case
import stager


def values(stream, n):
    """The first value of each of the next n batches."""
    return [int(stream.next()["value"][0]) for _ in range(n)]


def ranges(shares, what="acknowledged"):
    """All items of clients, in order; each that is there twice is there twice."""
    return sorted(item for share in shares for first, end in share[what]["ranges"] for item in range(first, end))


class Audit(case.Case):
    def setUp(self):
        self.name = self._testMethodName[:64]

    def make(self, stop=100, name=None, replace=False, **staged):
        """Batches of one number each."""
        return stager.apply(json.dumps({
            "name": name or self.name,
            "dataset": [{"range": {"stop": stop}}, {"batch": {"batch_size": 1, "drop_remainder": False}}],
            "staged": staged}), replace=replace)

    def proof(self):
        proofs = stager.audit(self.name)["proofs"]
        self.assertEqual(len(proofs), 1)
        return proofs[0]

    def ctl(self, *words):
        """(exit status, output, errors)"""
        done = subprocess.run([os.path.join(case.BUILD, "client/stagerctl/stagerctl"), "audit", *words],
                              env=self.daemon.env(), capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def restart(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.start()


class Proof(Audit):
    def test_a_restart_at_a_commit_is_exactly_once(self):
        self.make()
        with stager.open(self.name, client_id="first") as stream:
            values(stream, 10)
            stream.commit(stream.state_dict(), "ten")
            values(stream, 5)
        with stager.open(self.name, client_id="second", resume="tag:ten") as stream:
            self.assertEqual(values(stream, 20), list(range(10, 30)))
            stream.commit(stream.state_dict(), "thirty")
            values(stream, 1)
        audit = stager.audit(self.name)
        first, second = audit["attempts"]
        self.assertEqual(first["begins"], {"pass": 0, "item": 0, "position": 0, "from_attempt": 0, "tag": ""})
        self.assertEqual(second["begins"], {"pass": 0, "item": 10, "position": 10, "from_attempt": 1, "tag": "ten"})
        self.assertEqual(ranges(first["clients"], "delivered")[:15], list(range(15)))
        self.assertEqual(ranges(second["clients"], "delivered")[:20], list(range(10, 30)))
        self.assertEqual(ranges(second["clients"])[:19], list(range(10, 29)))
        self.assertEqual([commit["tag"] for commit in second["commits"]], ["thirty"])
        proof = self.proof()
        self.assertEqual((proof["attempts"], proof["items"], proof["acknowledged"] + proof["unacknowledged"]),
                         ([1, 2], 30, 30))
        self.assertTrue(proof["exactly_once"] and proof["from_start"])
        status, out, _ = self.ctl(self.name)
        self.assertEqual(status, 0)
        self.assertIn("Exactly once up to pass 0, item 30, by attempts 1, 2.", out)
        self.assertIn("ten of attempt 1", out)
        for words in ([f"{self.name}@3"], [f"{self.name}@1", f"{self.name}@3"]):
            status, out, error = self.ctl(*words)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(f"NOT_FOUND: {self.name} has no attempt 3, or it is too old", error)

    def test_a_stream_that_follows_stays_one_attempt(self):
        self.make(capacity=2)
        with stager.open(self.name, client_id="trainer", follow=True) as stream:
            got = values(stream, 3)
            stream.commit(stream.state_dict(), "before")
            for capacity in (3, 4):
                self.make(capacity=capacity, replace=True)
                while stream.info["generation"] < capacity - 1:
                    got += values(stream, 1)
            got += values(stream, 5)
            self.assertEqual(got, list(range(len(got))))
            stream.commit(stream.state_dict(), "after")
            values(stream, 1)
        proof = self.proof()
        self.assertEqual((set(proof["attempts"]), proof["items"], proof["exactly_once"]), ({1}, len(got), True))
        with stager.open(self.name, resume="tag:before") as stream:
            self.assertEqual(values(stream, 1), [3])

    def test_a_killed_daemon_leaves_the_proof_up_to_the_commit(self):
        self.make()
        stream = stager.open(self.name, client_id="trainer")
        values(stream, 40)
        stream.commit(stream.state_dict(), "forty")
        values(stream, 3)
        self.proof()  # after the line of the commit, which is written behind its reply
        self.restart()
        with stager.open(self.name, client_id="trainer", resume="current") as stream:
            self.assertEqual(values(stream, 10), list(range(40, 50)))
            stream.commit(stream.state_dict(), "fifty")
        self.proof()
        self.restart()
        proof = self.proof()
        self.assertEqual((proof["items"], proof["attempts"]), (50, [1, 2]))
        self.assertTrue(proof["exactly_once"])

    def test_an_older_tag_leaves_the_attempts_after_it_out(self):
        self.make()
        with stager.open(self.name) as stream:
            for k in (10, 20):
                values(stream, 10)
                stream.commit(stream.state_dict(), f"step-{k}")
        with stager.open(self.name, resume="tag:step-20") as stream:
            values(stream, 5)
            stream.commit(stream.state_dict(), "abandoned")
        with stager.open(self.name, resume="tag:step-10") as stream:
            values(stream, 2)
            stream.commit(stream.state_dict(), "twelve")
        proof = self.proof()
        self.assertEqual((proof["attempts"], proof["items"]), ([1, 3], 12))
        self.assertTrue(proof["exactly_once"])

    def test_clients_of_a_split_have_each_item_once(self):
        self.make(num_clients=3)
        streams = [stager.open(self.name, client_id=f"c{i}") for i in range(3)]
        for i in range(20):
            values(streams[i % 2], 1)
        state = stager.merge_states([stream.state_dict() for stream in streams])
        streams[0].commit(state, "merged")
        for stream in streams:
            stream.close()
        proof = self.proof()
        self.assertEqual((proof["items"], proof["twice"]["items"]), (20, 0))
        self.assertTrue(proof["exactly_once"])
        with stager.open(self.name, resume="tag:merged") as stream:
            left = values(stream, 80)
            with self.assertRaises(stager.OutOfRangeError):
                stream.next()
            self.assertEqual(len(set(left)), 80)
            stream.commit(stream.state_dict(), "end")
        proof = self.proof()
        self.assertEqual(proof["items"], 100)
        self.assertTrue(proof["exactly_once"])

    def test_ranks_have_each_item_once_and_an_error_counts_once(self):
        self.make(10, delivery="round_robin", num_clients=2)
        ranks = [stager.open(self.name, rank=rank, world_size=2) for rank in range(2)]
        for _ in range(4):
            for rank in ranks:
                values(rank, 1)
        ranks[0].commit(ranks[0].state_dict(), "four")
        for rank in ranks:
            rank.close()
        proof = self.proof()
        self.assertEqual((proof["items"], proof["exactly_once"]), (8, True))

    def test_clients_of_a_broadcast_have_a_proof_each(self):
        self.make(num_clients=2, delivery="broadcast")
        streams = [stager.open(self.name, client_id=name) for name in ("a", "b")]
        for _ in range(5):
            for stream in streams:
                values(stream, 1)
        values(streams[1], 1)
        for stream, n in zip(streams, (5, 6)):
            stream.commit(stream.state_dict(), f"tag-{n}")
        for stream in streams:
            stream.close()
        proofs = {proof["of"]: proof["items"] for proof in stager.audit(self.name)["proofs"] if proof["exactly_once"]}
        self.assertEqual(proofs, {"a": 5, "b": 6})

    def test_items_that_were_ignored_are_named_and_not_missing(self):
        path = self.file("data.csv", "".join(f"{'x' if i % 10 == 3 else i}\n" for i in range(40)))
        stager.apply(json.dumps({
            "name": self.name,
            "dataset": [{"files": {"pattern": path}}, "text_line", {"batch": {"batch_size": 1, "drop_remainder": False}}],
            "graph": [{"name": "value", "op": "string_to_number", "input": ["record"], "out_type": "int64"}],
            "staged": {"features": {"value": "value"}, "ignored_exception_types": ["INVALID_ARGUMENT"]}}))
        with stager.open(self.name) as stream:
            for _ in range(30):
                stream.next()
            stream.commit(stream.state_dict(), "thirty")
        proof = self.proof()
        self.assertEqual(proof["acknowledged"] + proof["unacknowledged"], 30)
        self.assertGreaterEqual(proof["skipped"], 3)
        self.assertTrue(proof["exactly_once"])

    def test_passes_follow_one_another(self):
        self.make(7)
        with stager.open(self.name) as stream:
            for _ in range(3):
                for _ in stream:
                    pass
            stream.commit(stream.state_dict(), "three")
        proof = self.proof()
        self.assertEqual((proof["items"], proof["exactly_once"]), (21, True))

    def test_a_pipeline_without_an_audit_says_so(self):
        self.make(audit="none")
        with stager.open(self.name) as stream:
            values(stream, 2)
        with self.assertRaisesRegex(stager.NotFoundError, "stagerd has no audit of it yet: open it first, with another `audit` than none"):
            stager.audit(self.name)

    def test_a_deleted_pipeline_has_no_audit_any_more(self):
        self.make()
        with stager.open(self.name) as stream:
            values(stream, 2)
        self.assertEqual(len(stager.audit(self.name)["attempts"]), 1)
        stager.delete(self.name)
        self.make()
        with self.assertRaises(stager.NotFoundError):
            stager.audit(self.name)

    def test_a_private_run_is_not_in_it(self):
        self.make()
        with stager.open(self.name, private_run=True) as stream:
            values(stream, 2)
        with self.assertRaises(stager.NotFoundError):
            stager.audit(self.name)

    def test_attempts_have_other_numbers_after_a_restart_without_commits(self):
        self.make()
        for _ in range(2):
            with stager.open(self.name) as stream:
                values(stream, 2)
            stager.audit(self.name)
            self.restart()
        self.assertEqual([a["attempt"] for a in stager.audit(self.name)["attempts"]], [1, 2])


    def test_a_version_that_was_warmed_is_in_it(self):
        self.make(10)
        with stager.open(self.name) as stream:
            values(stream, 3)
        text = json.dumps({
            "name": self.name, "dataset": [{"range": {"stop": 20}}, {"batch": {"batch_size": 1}}], "staged": {}})
        stager.apply(text, replace=True, warm=True)
        with stager.open(self.name) as stream:
            values(stream, 20)
            stream.commit(stream.state_dict(), "twenty")
        proof = self.proof()
        self.assertEqual((proof["attempts"], proof["items"], proof["exactly_once"]), ([2], 20, True))


class Comparison(Audit):
    def photographs(self, name, seed=1, change=None, n=50, **staged):
        """Shuffled lines, of which one may differ."""
        path = self.file("lines", "".join(f"line {i}{'!' if i == change else ''}\n" for i in range(n)))
        return stager.apply(json.dumps({
            "name": name,
            "dataset": [{"files": {"pattern": path}}, "text_line",
                        {"shuffle": {"buffer_size": 10, "seed": seed}},
                        {"batch": {"batch_size": 2, "drop_remainder": False}}],
            "staged": staged}))

    def run_all(self, name, **options):
        with stager.open(name, **options) as stream:
            for _ in stream:
                pass

    def test_the_same_run_again_is_the_same(self):
        for name in ("same-a", "same-b"):
            self.photographs(name, audit="contents", num_threads=2)
            self.run_all(name)
        found = stager.audit("same-a", "same-b")
        self.assertEqual(found, {"comparisons": [{"of": "", "same": True, "contents": True, "items": 25}], "same": True})
        self.assertEqual(self.ctl("same-a", "same-b")[:2], (0, "The same: 25 items, by their tensors.\n"))

    def test_the_first_batch_that_differs_is_named_with_its_client_and_attempt(self):
        self.photographs("seed-a", audit="contents")
        self.run_all("seed-a", client_id="first")
        path = self.file("a.audit", "")
        self.assertEqual(self.ctl("seed-a", "-o", path)[0], 0)
        with stager.open("seed-a", client_id="again") as stream:  # of the next pass: another history
            stream.next()
        self.photographs("seed-b", audit="contents", change=30)
        self.run_all("seed-b", client_id="second")
        with stager.open("seed-b", client_id="third") as stream:
            stream.next()
        rows = [[row for row in batch] for batch in self.batches("seed-b")]
        item = next(i for i, batch in enumerate(rows) if b"line 30!" in batch)
        found = stager.audit(path, "seed-b@1")["comparisons"][0]
        self.assertEqual(found, {"of": "", "same": False, "contents": True, "items": item, "pass": 0, "first": item,
                                 "end": item + 1, "a": {"attempt": 1, "client": "first"},
                                 "b": {"attempt": 1, "client": "second"}})
        status, out, _ = self.ctl(path, "seed-b@1")
        self.assertEqual(status, 1)
        self.assertIn(f"The first difference is in pass 0, item {item} ", out)
        self.assertIn("seed-b: attempt 1, client second", out)

    def batches(self, name):
        with stager.open(name, private_run=True) as stream:
            return [[bytes(value) for value in next(iter(batch.values()))] for batch in stream]

    def test_a_run_with_a_restart_is_the_same_as_one_without(self):
        for name in ("whole", "cut"):
            self.photographs(name, audit="contents")
        self.run_all("whole")
        stager.audit("whole")  # what is shown is on disk
        with stager.open("cut") as stream:
            for _ in range(9):
                stream.next()
            stream.commit(stream.state_dict(), "nine")
            for _ in range(4):
                stream.next()
        self.restart()
        with stager.open("cut", resume="current") as stream:
            for _ in stream:
                pass
        found = stager.audit("whole", "cut")
        self.assertEqual((found["same"], found["comparisons"][0]["items"]), (True, 25))
        self.assertFalse(stager.audit("whole@1", "cut@2")["comparisons"][0]["items"] < 25)

    def test_positions_show_another_batch_size_and_not_another_content(self):
        self.make(20, name="p-a")
        self.make(20, name="p-b")
        self.numbers(20, 2, steps=())  # the test's own name
        for name in ("p-a", "p-b", self.name):
            self.run_all(name)
        self.assertTrue(stager.audit("p-a", "p-b")["same"])
        found = stager.audit("p-a", self.name)["comparisons"][0]
        self.assertEqual((found["same"], found["contents"], found["first"]), (False, False, 0))

    def test_contents_and_positions_are_refused(self):
        self.make(20, name="kind-a")
        self.make(20, name="kind-b", audit="contents")
        for name in ("kind-a", "kind-b"):
            self.run_all(name)
        with self.assertRaisesRegex(stager.FailedPreconditionError, "positions alone: apply both .*audit: contents"):
            stager.audit("kind-a", "kind-b")

    def test_what_is_no_audit_is_refused(self):
        path = self.file("x", "not an audit\n")
        with self.assertRaisesRegex(stager.DataLossError, "has no attempt, and 1 lines that are damaged"):
            stager.audit(path)
        with self.assertRaisesRegex(stager.NotFoundError, "No such file"):
            stager.audit(path + "-none")
        with self.assertRaisesRegex(stager.InvalidArgumentError, "not the number of an attempt"):
            stager.audit("name@x")
        with self.assertRaisesRegex(stager.NotFoundError, "no pipeline"):
            stager.audit("nothing-here")
        self.assertEqual(self.ctl("a", "b", "c")[0], 2)


if __name__ == "__main__":
    case.main()
