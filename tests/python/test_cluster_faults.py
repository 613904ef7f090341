#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults of etcd and of clocks under a running job (docs/cluster.md): hosts whose time of day differs by hours or jumps, a history
that is compacted, a database that is full, and etcd away for longer than the lease. STG_ETCD_PAUSE=60: for that many seconds; the
test prints how long trainers waited for a batch meanwhile."""
import os
import shutil
import sys
import time
import unittest

import case
import stager
from daemon import SLOW
from test_cluster_etcd import LEASE, NAME, Case, Etcd

CLOCK = os.environ.get("STG_SHIFT_CLOCK", "")   # shift_clock.c
PAUSE = float(os.environ.get("STG_ETCD_PAUSE", "0")) or 2 * LEASE
HOURS = 3600
LONG = 1 << 30    # records: no pass ends


def shifted(text):
    """Of the command of a stagerd whose time of day is wrong."""
    return ["env", f"LD_PRELOAD={CLOCK}", f"STG_SHIFT_SECONDS={text}"]


class FaultCase(Case):
    def together(self, **options):
        """A host of one trainer, that waits longer for the others than a busy machine takes to start theirs."""
        return self.host(n=LONG, n_trainers=1, steady_millis=2000 * SLOW, **options)


@unittest.skipUnless(CLOCK, "STG_SHIFT_CLOCK does not name the library")
class TestClocks(FaultCase):
    def setUp(self):
        self.start(Etcd())

    def test_membership_and_commits_need_no_time_of_day(self):
        a, b = self.together(prefix=shifted(5 * HOURS)), self.together(prefix=shifted(f"~{7 * HOURS}"))
        self.open([a, b])
        rows = self.step([a, b])
        end = time.monotonic() + 2 * LEASE
        while time.monotonic() < end:   # leases are renewed
            rows += self.step([a, b])
        self.assertEqual(self.commit(b.trainers[0], "first"), {"committed": "first"})
        self.assertEqual(self.commit(a.trainers[0], "first"), {"committed": "first"})   # it is there
        seen, = stager.commits(NAME, runtime_dir=a.daemon.runtime_dir)
        self.assertEqual((seen["tag"], seen["attempt"]), ("first", 1), "no generation has ended")
        b.kill()
        self.ends(a.trainers[0], "left: generation 2 of the hosts begins")
        self.open([a], "tag:first")
        more = self.step([a])
        hours = [self.hour_of_a()]
        self.assertEqual(self.commit(a.trainers[0], "second"), {"committed": "second"})
        hours.append(self.hour_of_a())
        self.assertEqual(a.commits(), ["first", "second"])
        self.assertIn(stager.commits(NAME, runtime_dir=a.daemon.runtime_dir)[1]["time"][:13], hours, "the clock really is wrong")
        self.assertEqual(len(rows + more), len(set(rows + more)))

    @staticmethod
    def hour_of_a():
        return time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() + 5 * HOURS))


@unittest.skipUnless(shutil.which("etcdctl"), "etcdctl is not installed (etcd-client)")
class TestDatabase(FaultCase):
    def setUp(self):
        self.start(Etcd(more=["--quota-backend-bytes", str(4 << 20)]))

    def revision(self):
        return self.etcd.call("endpoint", "status", "--write-out=fields").split('"Revision" : ')[1].split()[0]

    def compact(self):
        self.etcd.call("compaction", "--physical", self.revision())
        self.etcd.call("defrag")

    def fill(self):
        path = os.path.join(self.etcd.folder, "big")
        with open(path, "wb") as file:
            file.write(b"x" * (1 << 20))
        for _ in range(16):
            if "NOSPACE" in self.etcd.call("alarm", "list"):
                return
            with open(path, "rb") as file:
                self.etcd.call("put", "/big", stdin=file, check=False)
        self.fail("etcd is not full")

    def test_a_compacted_etcd_changes_nothing_and_a_full_one_fails_commits_alone(self):
        a, b = self.together(), self.together()
        self.open([a, b])
        rows, tags = [], ["step-0", "step-1", "step-2"]
        for tag in tags:
            rows += self.step([a, b])
            self.compact()
            self.assertEqual(self.commit(a.trainers[0], tag), {"committed": tag})
        self.fill()
        end = time.monotonic() + 1.5 * LEASE
        while time.monotonic() < end:   # leases are renewed
            rows += self.step([a, b])
        answer = self.commit(b.trainers[0], "step-3")
        self.assertEqual(answer["error"], "ResourceExhaustedError", answer)
        self.assertIn("database space exceeded (compact and defragment etcd, then clear its alarm)", answer["text"])
        rows += self.step([a, b])
        self.assertEqual(a.commits(), tags)
        self.etcd.call("del", "/big")
        self.compact()
        self.etcd.call("alarm", "disarm")
        self.assertEqual(self.commit(b.trainers[0], "step-3"), {"committed": "step-3"})
        rows += self.step([a, b])
        self.assertEqual([(commit["tag"], commit["attempt"]) for commit in stager.commits(NAME, runtime_dir=a.daemon.runtime_dir)],
                         [(tag, 1) for tag in [*tags, "step-3"]])
        self.assertEqual(len(rows), len(set(rows)))


class TestAway(Case):
    def setUp(self):
        self.start(Etcd())

    def waits(self, host, seconds):
        """The longest time that a trainer waited for a batch, in ms, and how many it got."""
        end, longest, n = time.monotonic() + seconds, 0.0, 0
        while time.monotonic() < end:
            for trainer in host.trainers:
                trainer.ask()
            answers = self.answers([host])
            self.assertEqual([set(answer) for answer in answers], [{"rows", "wait_ms"}] * len(answers), answers)
            longest, n = max(longest, *(answer["wait_ms"] for answer in answers)), n + len(answers)
        return longest, n

    def test_no_batch_waits_for_etcd(self):
        host = self.host(n=LONG)
        self.open([host], shows_waits=True)
        self.waits(host, 0.2)   # the first batches
        before, n_before = self.waits(host, PAUSE)
        self.etcd.pause()
        during, n_during = self.waits(host, PAUSE)
        self.etcd.resume()
        print(f"longest wait for a batch in {PAUSE:.0f} s: {before:.1f} ms of {n_before} batches, "
              f"{during:.1f} ms of {n_during} without etcd (lease {LEASE} s)", flush=True)
        self.assertGreater(n_during, 0)


if __name__ == "__main__":
    if not shutil.which("etcd"):
        print("skipped: etcd is not installed (etcd-server)")
        sys.exit(77)
    case.main()
