#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Events in a trainer's process: Ctrl-C, threads, fork, exit, leaks, a dead daemon."""
import gc
import os
import signal
import threading
import time

import case
import stager
from case import Program, wait_until


class Signals(case.Case):
    def interrupted(self, code):
        program = Program(self.daemon, "import stager\n" + code)
        self.assertEqual(program.line(), "waiting")
        program.interrupt()
        status, _, errors = program.end()
        self.assertEqual(status, -signal.SIGINT, errors)
        self.assertIn("KeyboardInterrupt", errors)

    def test_ctrl_c_ends_next(self):
        self.interrupted(f"s = stager.open({self.nothing()!r}); print('waiting', flush=True); s.next()")

    def test_ctrl_c_ends_a_wait_with_a_timeout(self):
        self.interrupted(f"s = stager.open({self.nothing()!r}); print('waiting', flush=True)\n"
                         "s.next(timeout=1000)")

    def test_ctrl_c_ends_open_and_requests(self):
        name = self.numbers()
        self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            for call in (f"stager.open({name!r})", "stager.list()"):
                self.interrupted(f"print('waiting', flush=True); {call}")
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)

    def test_a_handler_that_returns_lets_the_wait_go_on(self):
        program = Program(self.daemon, f"""
import signal, stager
signal.signal(signal.SIGUSR1, lambda *_: print("signal", flush=True))
s = stager.open({self.nothing()!r})
print("waiting", flush=True)
try:
    s.next(timeout=0.5)
except stager.DeadlineExceededError:
    print("deadline", flush=True)
""")
        self.assertEqual(program.line(), "waiting")
        wait_until(program.sleeps)
        program.process.send_signal(signal.SIGUSR1)
        self.assertEqual(program.line(), "signal")
        self.assertEqual(program.line(), "deadline")
        self.assertEqual(program.end(), (0, "", ""))


class Threads(case.Case):
    def test_other_threads_run_while_one_waits(self):
        stream = stager.open(self.nothing())
        steps = []
        done = threading.Event()

        def count():
            while not done.is_set():
                steps.append(None)
        thread = threading.Thread(target=count)
        thread.start()
        with self.assertRaises(stager.DeadlineExceededError):
            stream.next(timeout=0.2)
        done.set()
        thread.join()
        self.assertGreater(len(steps), 1000)

    def waiting(self, stream):
        """Starts a thread that waits in next; its result or error is appended to the list."""
        results = []

        def wait():
            try:
                results.append(stream.next()["value"].tolist())
            except stager.Error as error:
                results.append(error)
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: results or refuses(stream))
        return thread, results

    def test_a_stream_is_for_one_thread_at_a_time(self):
        name = self.nothing()
        stream = stager.open(name)
        thread, results = self.waiting(stream)
        for call in (lambda: stream.next(timeout=0), lambda: stream.feed("x", 1)):
            with self.assertRaisesRegex(stager.FailedPreconditionError, "another thread"):
                call()
        with stager.open(name):
            thread.join()
        self.assertEqual(results, [[0, 1]])

    def test_close_from_another_thread_ends_a_wait(self):
        stream = stager.open(self.nothing())
        thread, results = self.waiting(stream)
        stream.close()
        thread.join()
        self.assertIsInstance(results[0], stager.CancelledError)
        self.assertTrue(stream.closed)

    def test_a_view_freed_in_another_thread_makes_room_for_a_waiting_call(self):
        # One client may hold all memory: the third batch waits for a release.
        name = self.numbers(stop=1 << 20, batch_size=1 << 17, drop_remainder=True, capacity=1)
        stream = stager.open(name, max_in_flight=3)
        held = [stream.next() for _ in range(2)]
        views = [batch["value"] for batch in held]
        del held

        def let_go():
            time.sleep(0.05)
            views.clear()
        thread = threading.Thread(target=let_go)
        thread.start()
        numbers = [stream.next().number for _ in range(6)]
        thread.join()
        self.assertEqual(numbers, [2, 3, 4, 5, 6, 7])

    def test_streams_in_threads_share_a_broadcast(self):
        name = self.numbers(stop=4000, batch_size=2, delivery="broadcast", num_clients=4, capacity=8)
        streams = [stager.open(name) for _ in range(4)]
        sums = [0] * 4

        def take(i):
            sums[i] = sum(int(batch["value"].sum()) for batch in streams[i])
        threads = [threading.Thread(target=take, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [sum(range(4000))] * 4)


def refuses(stream):
    """Returns whether another thread waits in it."""
    try:
        stream.next(timeout=0)
    except stager.FailedPreconditionError as error:
        return "another thread" in error.text
    except stager.DeadlineExceededError:
        pass
    return False


class Fork(case.Case):
    def in_child(self, what):
        """Runs what() in a child of fork; True if it returned true."""
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if what() else 1)
            except BaseException:
                os._exit(2)
        return os.waitpid(pid, 0)[1] == 0

    def test_a_child_may_not_use_its_parents_stream(self):
        stream = stager.open(self.numbers(stop=20))
        batch = stream.next()

        for use in (stream.next, lambda: next(iter(stream))):
            def refused():
                try:
                    use()
                except stager.FailedPreconditionError as error:
                    return "parent" in str(error)
                return False
            self.assertTrue(self.in_child(refused))
        self.assertEqual(batch["value"].tolist(), [0, 1])
        self.assertEqual(stream.next().number, 1)

    def test_what_a_child_lets_go_stays_its_parents(self):
        state = {"stream": stager.open(self.numbers(stop=20, capacity=1))}
        state["batch"] = state["stream"].next()
        state["view"] = state["batch"]["value"]

        def let_go():
            state["batch"].release()
            state["stream"].close()
            state.clear()
            gc.collect()
            return True
        self.assertTrue(self.in_child(let_go))
        self.assertEqual(state["stream"].held, [0])
        self.assertEqual(state["view"].tolist(), [0, 1])
        state["batch"] = None
        self.assertEqual([batch["value"].tolist() for batch in (state["stream"].next(),)], [[2, 3]])

    def test_a_child_opens_its_own(self):
        name = self.numbers(stop=20)
        stream = stager.open(name)
        stream.next()

        def own():
            return [b["value"].tolist() for b in stager.open(name, private_run=True)][0] == [0, 1]
        self.assertTrue(self.in_child(own))

    def test_a_child_that_ends_leaves_a_private_daemon_alone(self):
        server = stager.serve(stagerd=os.path.join(case.BUILD, "daemon/stagerd"))
        self.addCleanup(server.close)

        def end():
            server.close()
            return True
        self.assertTrue(self.in_child(end))
        self.assertEqual(server.list(), [])


class Exit(case.Case):
    def test_an_interpreter_that_ends_with_all_of_it_in_hand_ends_well(self):
        name = self.numbers(stop=1000, batch_size=2)
        program = Program(self.daemon, f"""
import stager, threading
s = stager.open({name!r}, max_in_flight=4)
it = iter(s)
batches = [next(it), next(it)]
views = [b["value"] for b in batches]
capsule = batches[0].tensor("value").__dlpack__(max_version=(1, 0))
view = memoryview(batches[1].tensor("value"))
class Late:
    def __del__(self):
        views.clear()
late = Late()
late.itself = late
""")
        self.assertEqual(program.end(), (0, "", ""))
        wait_until(lambda: all(c["state"] != "attached" for c in stager.status(name)["clients"]))

    def test_a_daemon_thread_that_waits_does_not_hold_the_exit(self):
        program = Program(self.daemon, f"""
import stager, threading
s = stager.open({self.nothing()!r})
threading.Thread(target=s.next, daemon=True).start()
print("waiting", flush=True)
""")
        self.assertEqual(program.line(), "waiting")
        self.assertEqual(program.end()[::2], (0, ""))

    def test_a_private_daemon_ends_with_a_process_that_is_killed(self):
        program = Program(self.daemon, f"""
import stager, sys
server = stager.serve(stagerd={os.path.join(case.BUILD, 'daemon/stagerd')!r})
print(server.pid, server.log_path, flush=True)
sys.stdin.read()
""")
        pid, log = program.line().split()
        program.process.kill()
        program.process.communicate()

        def is_gone():
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    is_zombie = file.read().rpartition(") ")[2].startswith("Z")
                # Its files are open until its last thread has ended.
                return is_zombie and len(os.listdir(f"/proc/{pid}/task")) == 1
            except OSError:
                return True
        wait_until(is_gone)
        with open(log, encoding="utf-8") as file:
            self.assertIn("stopping on the end of its input", file.read())
        with stager.serve(stagerd=os.path.join(case.BUILD, "daemon/stagerd")) as other:
            self.assertFalse(os.path.exists(os.path.dirname(log)))  # leftovers
            with stager.serve(stagerd=os.path.join(case.BUILD, "daemon/stagerd")):
                self.assertEqual(other.list(), [])
                self.assertTrue(os.path.exists(other.folder))

    def test_a_private_daemon_ends_with_its_process(self):
        program = Program(self.daemon, f"""
import stager
server = stager.serve(stagerd={os.path.join(case.BUILD, 'daemon/stagerd')!r})
name = server.apply("name: n\\ndataset: [{{range: {{stop: 4}}}}, {{batch: {{batch_size: 2}}}}]")
stream = server.open(name)
next(iter(stream))
print(server.pid, server.folder, flush=True)
""")
        pid, folder = program.line().split()
        self.assertEqual(program.end(), (0, "", ""))
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertFalse(os.path.exists(folder))


class Leaks(case.Case):
    @staticmethod
    def resident_kib():
        with open("/proc/self/status", encoding="ascii") as file:
            return int(next(line for line in file if line.startswith("VmRSS")).split()[1])

    @staticmethod
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    @staticmethod
    def mappings():
        with open("/proc/self/maps", encoding="ascii") as file:
            return sum("memfd" in line for line in file)

    def test_batches_views_and_errors_leave_nothing(self):
        name = self.numbers(stop=2000, batch_size=2)
        stream = stager.open(name)

        def round_trip():
            for batch in stream:
                view = batch["value"]
                memoryview(batch.tensor("value"))
                batch.tensor("value").__dlpack__(max_version=(1, 0))
                try:
                    batch.tensor("nothing")
                except stager.NotFoundError:
                    pass
                del view
        for _ in range(3):
            round_trip()
        gc.collect()
        before = self.resident_kib()
        for _ in range(10):
            round_trip()
        gc.collect()
        self.assertLess(self.resident_kib() - before, 1024)  # 100 bytes a batch would be 1000 KiB

    def test_streams_leave_neither_files_nor_mappings(self):
        name = self.numbers(stop=4)
        gc.collect()
        before = (self.open_files(), self.mappings())
        for i in range(20):
            stream = stager.open(name)
            batch = next(iter(stream))
            view = batch["value"]
            if i % 2:
                stream.close()
            del stream, batch, view
        gc.collect()
        self.assertEqual((self.open_files(), self.mappings()), before)


class DeadDaemon(case.Case):
    def test_a_killed_daemon_is_unavailable_and_batches_stay_readable(self):
        stream = stager.open(self.numbers(stop=1 << 30, capacity=1), daemon_reconnect_millis=0)
        batch = stream.next()
        self.daemon.process.kill()
        self.daemon.process.wait()
        kept = []
        with self.assertRaisesRegex(stager.UnavailableError, "closed the connection"):
            while True:
                kept = stream.next()["value"].tolist()
        self.assertEqual(batch["value"].tolist(), [0, 1])
        self.assertTrue(stream.info["finished"])
        batches = iter(stream)
        with self.assertRaises(stager.UnavailableError):
            next(batches)
        with self.assertRaises(ConnectionError):
            stager.list()
        stream.close()
        self.daemon.start()
        with stager.open(stager.list()[0]["name"]) as again:
            self.assertEqual(again.next()["value"].tolist(), [0, 1])
        self.assertIsInstance(kept, list)


if __name__ == "__main__":
    case.main()
