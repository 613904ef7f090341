#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exactly once: trainers and stagerd are killed at random points, from before the first request to after the last.
The trainers restart at the last commit, and end with the weights of a run that was not disturbed, bit for bit.

A supervisor forks the trainers and draws each kill: of a trainer, of stagerd or of both, and after how many events of a
trainer. When a trainer ends, all are killed and restarted, as a launcher does. Each time that they start, it draws
whether their streams go on when stagerd alone is killed; STG_EXACT_SURVIVE=1: always, 0: never. The short form makes eight kills of each
delivery; STG_EXACT_KILLS=334 makes a thousand in all, and STG_EXACT_SEED=n draws others. Each delivery
prints a line of figures.
"""
import fcntl
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback

import case
import numpy as np
import stager

N_KILLS = int(os.environ.get("STG_EXACT_KILLS", "8"))
SEED = int(os.environ.get("STG_EXACT_SEED", "1"))
SURVIVE = os.environ.get("STG_EXACT_SURVIVE", "")
N_FILES, N_ROWS, BATCH_SIZE = 3, 123, 3     # 41 batches a pass: the last round of two ranks is incomplete
STEPS_PER_KILL = 5                          # of the whole run
REACH = 24                                  # a kill comes within so many events of the last one
EVERY = 3                                   # steps of a checkpoint
N_WEIGHTS = 8
REFUSED, FAILED = 3, 4                      # exit status: an error of stager or a peer that has ended; a mistake
WAIT_S = 60 * case.SLOW


class Gone(Exception):
    """A peer has ended."""


# ---- what a trainer computes ----

def samples(batch):
    """Rows of small whole numbers and what they should give; they depend on the order too."""
    place = batch.info.pass_ * 7 + batch.info.index * 3
    for number in batch["n"].tolist():
        row = np.array([(number * prime + place) % 17 - 8 for prime in (3, 5, 7, 11, 13, 19, 23, 29)], dtype=np.float64)
        yield row, float((number * 31 + place) % 101)


def gradient(weights, batch):
    """Of squared errors. Sums have one order, whatever a library does."""
    total = np.zeros(N_WEIGHTS)
    for row, target in samples(batch):
        total = total + (sum((row * weights).tolist()) - target) * row
    return total


def moments(batch):
    """Exact sums, whatever their order: whole numbers below 2^53. The weights are the solution of one system."""
    total = np.zeros((N_WEIGHTS, N_WEIGHTS + 1))
    for row, target in samples(batch):
        total += np.outer(row, np.append(row, target))
    return total


class Model:
    """Weights, the steps that made them, and how often each batch of each pass was used."""

    def __init__(self, n_passes, shape):
        self.step = 0
        self.weights = np.zeros(shape)
        self.used = np.zeros((n_passes, N_ROWS // BATCH_SIZE), dtype=np.int64)

    def use(self, pass_, index):
        self.used[pass_, index] += 1

    def save(self, path, state):
        """Publishes the checkpoint: it is there as a whole, or not."""
        with open(path + ".new", "wb") as file:
            np.savez(file, step=self.step, weights=self.weights, used=self.used, state=json.dumps(state))
        os.rename(path + ".new", path)

    @staticmethod
    def load(path):
        """A model and its state."""
        with np.load(path) as saved:
            model = Model(1, 1)
            model.step, model.weights, model.used = int(saved["step"]), saved["weights"], saved["used"]
            return model, json.loads(str(saved["state"]))


# ---- the trainers ----

class Trainer:
    """One process of a run. Its events are lines: o (opened), b (a batch), p (published), c STEP (committed)."""

    def __init__(self, run, rank, start):
        self.run, self.rank = run, rank
        self.events, self.into = os.pipe()
        self.n_events, self.rest, self.has_opened, self.has_begun, self.status = 0, b"", False, False, None
        self.why = os.path.join(run.folder, f"why-{rank}")
        self.pid = os.fork()
        if self.pid == 0:
            self.live(start)
        os.close(self.into)

    def live(self, start):
        status = FAILED
        try:
            for other in self.run.trainers.values():
                if other.status is None:
                    os.close(other.events)
            os.close(self.events)
            self.run.keep_sockets_of(self.rank)
            self.train(start)
            status = 0
        except (stager.Error, Gone):
            status = REFUSED
            self.explain()
        except BaseException:
            self.explain()
        finally:
            os._exit(status)

    def explain(self):
        with open(self.why, "w", encoding="utf-8") as file:
            file.write(traceback.format_exc()[-3000:])

    def tell(self, *words):
        os.write(self.into, " ".join(map(str, words)).encode() + b"\n")

    def train(self, start):
        model, options = start
        with stager.open(self.run.name, **options, **self.run.options(self.rank),
                         daemon_reconnect_millis=self.run.reconnect_millis) as stream:
            self.tell("o")
            self.run.train(self, stream, model)
        self.tell("closed")

    def checkpoint(self, stream, model, state):
        """Publishes and commits. Tags are of one attempt, so that no checkpoint is overwritten: under split a later
        attempt has other batches at the same step."""
        model.save(self.run.path(self.rank, self.tag(model)), state)
        self.tell("p")
        self.commit(stream, model, state)

    def commit(self, stream, model, state):
        stream.commit(state, self.tag(model))
        self.tell("c", self.tag(model))

    def tag(self, model):
        return f"{model.step}.{self.run.attempt}"

    # ---- the supervisor's side ----

    def read(self):
        """Takes in events; returns false after the last one."""
        data = os.read(self.events, 1 << 12)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.n_events += 1
            self.run.heard(self, line.decode().split())
        return bool(data)

    def reap(self):
        os.close(self.events)
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def reason(self):
        try:
            with open(self.why, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return f"status {self.status}"


class Run:
    """The trainers of one pipeline, until they are done."""

    n_trainers = 2
    shape = N_WEIGHTS

    def __init__(self, test, name, n_passes, n_kills, seed):
        self.test, self.name, self.n_passes, self.left = test, name, n_passes, n_kills
        self.draw = random.Random(seed)
        self.folder = os.path.join(test.daemon.folder, name)
        os.makedirs(self.folder)
        self.trainers, self.sockets, self.committed = {}, [], {}
        self.is_disturbed, self.plan, self.down_since = False, None, None
        self.reconnect_millis, self.n_survived = 0, 0
        self.gaps, self.attempt, self.n_restarts, self.n_alone, self.alone = [], 0, 0, 0, None
        self.n_kills = {"trainer": 0, "stagerd": 0}

    # ---- where trainers begin ----

    def lane(self, rank):
        return ""

    def path(self, rank, tag):
        return os.path.join(self.folder, f"{self.lane(rank) or '-'}-{tag}.npz")

    def choose_start(self, rank):
        """A model and the options of the open: of the last commit, by its tag or by its state, of an older one, or of a
        checkpoint that was published and not committed."""
        lane = self.lane(rank)
        tags = [c["tag"] for c in stager.commits(self.name) if c["of"] == lane]
        last = self.committed.pop(lane, None)
        self.test.assertTrue(last is None or last in tags, f"commit {last} is lost: {tags}")
        if not tags:
            return Model(self.n_passes, self.shape), {"resume": "start"}
        how = self.draw.randrange(8)
        tag = self.draw.choice(tags[-3:]) if how == 0 else tags[-1]
        published = [name[2:-4] for name in os.listdir(self.folder) if name.startswith(f"{lane or '-'}-") and name.endswith(".npz")]
        if how == 1:
            tag = max(published, key=lambda tag: tuple(map(int, tag.split(".")))[::-1])     # of the last attempt
        model, state = Model.load(self.path(rank, tag))
        return model, {"state": state} if how in (1, 2) else {"resume": f"tag:{tag}"}

    def options(self, rank):
        return {}

    def draw_reconnect(self):
        survives = self.draw.randrange(2) if SURVIVE == "" else int(SURVIVE)
        self.reconnect_millis = 300000 if survives else 0

    def start_all(self):
        self.is_disturbed, self.attempt = False, self.attempt + 1
        self.draw_reconnect()
        self.connect()
        start = self.choose_start(0)
        for rank in range(self.n_trainers):
            self.trainers[rank] = Trainer(self, rank, start)

    def connect(self):
        """Makes a socket between rank 0 and each other rank."""
        self.sockets = [None] + [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(1, self.n_trainers)]

    def keep_sockets_of(self, rank):
        for other, pair in enumerate(self.sockets):
            if pair is not None:
                pair[rank == 0].close()
                if rank not in (0, other):
                    pair[1 - (rank == 0)].close()
        self.peers = [pair and pair[0] for pair in self.sockets] if rank == 0 else [self.sockets[rank][1]]

    def disconnect(self):
        for pair in self.sockets:
            for end in pair or ():
                end.close()
        self.sockets = []

    # ---- supervising ----

    def heard(self, trainer, words):
        if words[0] == "o":
            trainer.has_opened = True
        if words[0] == "c":
            self.committed[self.lane(trainer.rank)] = words[1]
        trainer.has_begun |= words[0] == "b"
        if words[0] == "b" and self.down_since is not None:
            self.gaps.append(time.monotonic() - self.down_since)
            self.down_since = None

    def draw_plan(self):
        if self.left > 0:
            self.left -= 1
            what = self.draw.choice(("trainer", "trainer", "stagerd", "both"))
            self.plan = (what, self.draw.randrange(self.n_trainers), self.draw.randrange(REACH), self.draw.random() * 0.002)
            self.begins = {rank: trainer.n_events for rank, trainer in self.trainers.items()}
        else:
            self.plan = None

    def is_due(self):
        if self.plan is None:
            return False
        trainer = self.trainers[self.plan[1]]
        return trainer.status is not None or trainer.n_events - self.begins.get(self.plan[1], 0) >= self.plan[2]

    def kill(self):
        """As planned; spins for a moment first, so that it comes anywhere between two events."""
        what, rank, _, spin_s = self.plan
        end = time.monotonic() + spin_s
        while time.monotonic() < end:
            pass
        self.is_disturbed = True
        self.alone = rank if what == "trainer" else None
        begin = time.monotonic()
        if what in ("stagerd", "both"):
            self.test.daemon.process.kill()
            self.n_kills["stagerd"] += 1
        if what in ("trainer", "both") and self.trainers[rank].status is None:
            os.kill(self.trainers[rank].pid, signal.SIGKILL)
            self.n_kills["trainer"] += 1
        if what in ("stagerd", "both"):
            self.test.daemon.process.wait()
            self.test.daemon.start()
            self.n_survived += what == "stagerd" and self.reconnect_millis > 0
            self.drain()
            self.down_since = begin
        if all(trainer.status == 0 for trainer in self.trainers.values()):
            self.restart()      # after the last one
        self.draw_plan()

    def drain(self):
        """What was said so far."""
        living = {trainer.events: trainer for trainer in self.trainers.values() if trainer.status is None}
        while living:
            ready = select.select(list(living), [], [], 0)[0]
            if not ready:
                break
            for events in ready:
                if not living[events].read():
                    del living[events]      # listen reaps it

    def listen(self):
        """Waits for events of living trainers, and reaps those that end."""
        living = {trainer.events: trainer for trainer in self.trainers.values() if trainer.status is None}
        ready = select.select(list(living), [], [], WAIT_S)[0]
        if not ready:
            raise case.Failed(f"no trainer goes on: {self.state_of_all()}\n{self.test.daemon.log()[-4000:]}")
        for events in ready:
            if not living[events].read():
                living[events].reap()
                self.ended(living[events])
                break       # after a restart, other trainers have these descriptors

    def state_of_all(self):
        return {t.rank: (t.status, t.n_events, t.reason() if t.status else "") for t in self.trainers.values()}

    def ended(self, trainer):
        if trainer.status == 0:
            return
        expected = (REFUSED, -signal.SIGKILL) if self.is_disturbed else ()
        if trainer.status not in expected:
            raise case.Failed(f"trainer {trainer.rank} fails by itself: {trainer.reason()}\n{self.test.daemon.log()[-4000:]}")
        self.restart()

    def stop_all(self):
        for trainer in self.trainers.values():
            if trainer.status is None:
                os.kill(trainer.pid, signal.SIGKILL)
                while trainer.read():
                    pass
                trainer.reap()
        self.disconnect()

    def restart(self):
        self.stop_all()
        self.n_restarts += 1
        self.start_all()
        self.begins = {}

    def go(self):
        """Returns the final checkpoints."""
        try:
            self.start_all()
            self.draw_plan()
            while self.plan is not None or any(trainer.status != 0 for trainer in self.trainers.values()):
                if self.is_due():
                    self.kill()
                else:
                    self.listen()
        except stager.UnavailableError:
            raise case.Failed(f"stagerd ended with {self.test.daemon.process.poll()}:\n{self.test.daemon.log()[-4000:]}") from None
        finally:
            self.stop_all()
        return self.final()

    def final(self):
        return [self.last_model(0)]

    def last_model(self, rank):
        lane = self.lane(rank)
        (last,) = [c for c in stager.commits(self.name) if c["of"] == lane][-1:]
        return Model.load(self.path(rank, last["tag"]))[0]


def each_batch(stream, n_passes):
    """The batches of the passes that are left."""
    while stream.state_dict()["pass"] < n_passes:
        yield from stream


def receive(peer, n):
    data = b""
    while len(data) < n:
        try:
            part = peer.recv(n - len(data))
        except ConnectionError:
            part = b""
        if not part:
            raise Gone("a peer has ended")
        data += part
    return data


def send(peer, data):
    try:
        peer.sendall(data)
    except OSError:
        raise Gone("a peer has ended") from None


class RoundRobin(Run):
    """Two ranks of one model: gradients are summed in the order of the ranks."""

    STEP = struct.Struct("<qq")

    def options(self, rank):
        return {"rank": rank, "world_size": self.n_trainers}

    def train(self, trainer, stream, model):
        for batch in each_batch(stream, self.n_passes):
            trainer.tell("b")
            own = gradient(model.weights, batch)
            place = (batch.info.pass_, batch.info.index)
            total = self.reduce(trainer, model, own, place)
            model.weights = model.weights - 1e-4 * total
            model.step += 1
            if model.step % EVERY == 0:
                self.publish(trainer, stream, model)
        if model.step % EVERY != 0:
            self.publish(trainer, stream, model)

    def reduce(self, trainer, model, own, place):
        if trainer.rank != 0:
            send(self.peers[0], self.STEP.pack(*place) + own.tobytes())
            return np.frombuffer(receive(self.peers[0], own.nbytes))
        total, places = own, [place]
        for peer in self.peers[1:]:
            data = receive(peer, self.STEP.size + own.nbytes)
            places.append(self.STEP.unpack_from(data))
            total = total + np.frombuffer(data[self.STEP.size:])
        for place in places:
            model.use(*place)
        for peer in self.peers[1:]:
            send(peer, total.tobytes())
        return total

    def publish(self, trainer, stream, model):
        """Rank 0 publishes; of every second checkpoint all ranks commit."""
        if trainer.rank == 0:
            trainer.checkpoint(stream, model, stream.state_dict())
            for peer in self.peers[1:]:
                send(peer, b"p")
        else:
            receive(self.peers[0], 1)
            if model.step % 2 == 0:
                trainer.commit(stream, model, stream.state_dict())


class Broadcast(Run):
    """Two experiments on the same batches, each with checkpoints and commits."""

    def lane(self, rank):
        return "ab"[rank]

    def options(self, rank):
        return {"client_id": self.lane(rank)}

    def connect(self):
        pass

    def keep_sockets_of(self, rank):
        pass

    def train(self, trainer, stream, model):
        for batch in each_batch(stream, self.n_passes):
            trainer.tell("b")
            model.weights = model.weights - 1e-4 * (1 + trainer.rank) * gradient(model.weights, batch)
            model.use(batch.info.pass_, batch.info.index)
            model.step += 1
            if model.step % EVERY == 0:
                trainer.checkpoint(stream, model, stream.state_dict())
        if model.step % EVERY != 0:
            trainer.checkpoint(stream, model, stream.state_dict())

    def start_all(self):
        """The earliest one opens first: no client is rewound."""
        self.is_disturbed, self.came_alone, self.attempt = False, None, self.attempt + 1
        self.draw_reconnect()
        starts = [self.choose_start(rank) for rank in range(self.n_trainers)]
        for rank in sorted(range(self.n_trainers), key=lambda rank: starts[rank][0].step):
            self.trainers[rank] = Trainer(self, rank, starts[rank])
            if not self.opens(self.trainers[rank]):
                raise case.Failed(f"trainer {rank} does not begin: {self.trainers[rank].reason()}")

    def opens(self, trainer):
        while not trainer.has_opened and trainer.status is None:
            if not trainer.read():
                trainer.reap()
        return trainer.status in (None, 0)

    def ended(self, trainer):
        """A trainer that was killed alone restarts alone, while the buffer has what follows its commit. Else all do, and
        if the other one has ended: a run begins with both."""
        other = self.trainers[1 - trainer.rank]
        if self.alone == trainer.rank and trainer.status == -signal.SIGKILL and other.status is None:
            self.alone, self.attempt = None, self.attempt + 1
            self.trainers[trainer.rank] = Trainer(self, trainer.rank, self.choose_start(trainer.rank))
            self.begins.pop(trainer.rank, None)
            if self.opens(self.trainers[trainer.rank]):
                self.n_alone, self.came_alone = self.n_alone + 1, trainer.rank
                return
            trainer = self.trainers[trainer.rank]
        if trainer.status == 0 and self.came_alone is not None and other.status is None and not other.has_begun:
            self.restart()      # the other one may have come after this one left, and wait for it
        else:
            super().ended(trainer)

    def final(self):
        return [self.last_model(rank) for rank in range(self.n_trainers)]


class Split(Run):
    """Three trainers share the batches. Rank 0 asks the others for what they have (B), and publishes the sum with the
    merged state; it begins the next pass (E), and ends the run (F). A rank at the end of the pass says X."""

    n_trainers = 3
    shape = (N_WEIGHTS, N_WEIGHTS + 1)

    def options(self, rank):
        return {"client_id": f"trainer-{rank}"}

    def train(self, trainer, stream, model):
        own = Model(self.n_passes, self.shape)
        if trainer.rank == 0:
            self.lead(trainer, stream, model, own)
        else:
            self.follow(trainer, stream, own)

    def take(self, trainer, stream, own):
        """At most one batch; returns False at the end of the pass."""
        try:
            with stream.next(timeout=0.02) as batch:
                trainer.tell("b")
                own.weights += moments(batch)
                own.use(batch.info.pass_, batch.info.index)
                own.step += 1
        except stager.DeadlineExceededError:
            pass    # the others have what is left
        except stager.OutOfRangeError:
            return False
        return True

    def follow(self, trainer, stream, own):
        (rank_0,), ends = self.peers, False
        while True:
            if not ends and not select.select([rank_0], [], [], 0)[0]:
                ends = not self.take(trainer, stream, own)
                if ends:
                    send(rank_0, b"X")
                continue
            word = receive(rank_0, 1)
            if word == b"B":
                state = json.dumps(stream.state_dict()).encode()
                send(rank_0, b"S" + own.weights.tobytes() + own.used.tobytes() + struct.pack("<q", len(state)) + state)
                own = Model(self.n_passes, self.shape)
            elif word == b"E":
                ends = False
                iter(stream)
            else:
                return

    def lead(self, trainer, stream, model, own):
        self.ended = set()
        while True:
            while own.step < EVERY and self.take(trainer, stream, own):
                pass
            is_end = own.step < EVERY
            if is_end:
                for peer in set(self.peers[1:]) - self.ended:
                    self.expect(peer, b"X")
            state = self.gather(stream, model, own)
            own = Model(self.n_passes, self.shape)
            trainer.checkpoint(stream, model, state)
            if is_end:
                self.ended = set()
                is_last = state["pass"] + 1 == self.n_passes
                for peer in self.peers[1:]:
                    send(peer, b"F" if is_last else b"E")
                if is_last:
                    return
                iter(stream)

    @staticmethod
    def expect(peer, word):
        found = receive(peer, 1)
        if found != word:
            raise case.Failed(f"{found} in place of {word}")

    def gather(self, stream, model, own):
        """Adds to the model what all have, and returns the merged state."""
        states = [stream.state_dict()]
        model.weights = model.weights + own.weights
        model.used = model.used + own.used
        for peer in self.peers[1:]:
            send(peer, b"B")
        for peer in self.peers[1:]:
            word = receive(peer, 1)
            if word == b"X":    # before it heard of this
                self.ended.add(peer)
                self.expect(peer, b"S")
            model.weights = model.weights + np.frombuffer(receive(peer, own.weights.nbytes)).reshape(self.shape)
            model.used = model.used + np.frombuffer(receive(peer, own.used.nbytes), dtype=np.int64).reshape(own.used.shape)
            states.append(json.loads(receive(peer, struct.unpack("<q", receive(peer, 8))[0])))
        model.step += 1
        return stager.merge_states(states)

    def final(self):
        model = self.last_model(0)
        model.weights = np.linalg.solve(model.weights[:, :N_WEIGHTS], model.weights[:, N_WEIGHTS])
        model.step = int(model.used.sum())
        return [model]


class Exact(case.Case):
    settings = {"memory_budget": "1GiB", "log_level": "warning"}

    def make(self, name, **staged):
        """Shuffled numbers of files."""
        folder = os.path.join(self.daemon.folder, "rows")
        if not os.path.exists(folder):
            os.makedirs(folder)
            for i in range(N_FILES):
                with open(os.path.join(folder, f"{i}.txt"), "w", encoding="ascii") as file:
                    file.writelines(f"{n}\n" for n in range(i, N_ROWS, N_FILES))
        return stager.apply(json.dumps({
            "name": name,
            "dataset": [{"files": {"pattern": f"{folder}/*.txt", "seed": 3}}, "text_line",
                        {"shuffle": {"buffer_size": 32, "seed": 7}}, {"batch": {"batch_size": BATCH_SIZE}}],
            "graph": [{"name": "n", "op": "string_to_number", "input": ["record"], "out_type": "int64"}],
            "staged": {"features": {"n": "n"}, **staged}}))

    def compare(self, kind, n_ranks, **staged):
        steps = STEPS_PER_KILL * N_KILLS
        n_passes = max(2, steps * n_ranks // (N_ROWS // BATCH_SIZE))
        name = kind.__name__.lower()
        runs = []
        for what, n_kills in (("whole", 0), ("killed", N_KILLS)):
            self.make(f"{name}-{what}", **staged)
            begin = time.monotonic()
            run = kind(self, f"{name}-{what}", n_passes, n_kills, SEED)
            run.models = run.go()
            run.seconds = time.monotonic() - begin
            runs.append(run)
        whole, killed = runs
        more = sum(k.used - w.used for k, w in zip(killed.models, whole.models))
        lost, duplicated = -int(more[more < 0].sum()), int(more[more > 0].sum())
        gaps = sorted(killed.gaps)
        print(f"{name}: {killed.n_kills['trainer']} kills of trainers, {killed.n_kills['stagerd']} of stagerd ({killed.n_survived} survived), "
              f"{killed.n_restarts} restarts of all, {killed.n_alone} of one, {killed.models[0].step} steps in {killed.seconds:.1f} s (undisturbed "
              f"{whole.seconds:.1f}): {lost} batches lost, {duplicated} duplicated, gap "
              + (f"{gaps[len(gaps) // 2]:.3f} s (most {gaps[-1]:.3f})" if gaps else "none"), flush=True)
        self.assertEqual((lost, duplicated), (0, 0))
        for what in ("whole", "killed"):
            for proof in stager.audit(f"{name}-{what}")["proofs"]:
                self.assertEqual((proof["missing"]["items"], proof["twice"]["items"]), (0, 0), proof)
                # An attempt that goes on after a kill has items of which stagerd could write nothing.
                self.assertTrue(proof["exactly_once"] or killed.n_survived > 0, proof)
        for k, w in zip(killed.models, whole.models):
            self.assertEqual(k.step, w.step)
            self.assertEqual(k.weights.tobytes(), w.weights.tobytes())
            self.assertTrue(np.isfinite(k.weights).all() and k.weights.any())

    def test_stagerd_starts_while_a_child_of_a_killed_one_has_its_lock(self):
        """A daemon that is killed while it makes a process leaves its lock to it for a moment."""
        self.daemon.process.kill()
        self.daemon.process.wait()
        fd = os.open(os.path.join(self.daemon.runtime_dir, "stagerd.lock"), os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        before = self.daemon.process
        starting = threading.Thread(target=self.daemon.start)
        starting.start()
        case.wait_until(lambda: self.daemon.process is not before and self.sleeps(self.daemon.process.pid))
        os.close(fd)
        starting.join()
        self.assertEqual(stager.list(), stager.list())
        self.assertIsNone(self.daemon.process.poll())

    @staticmethod
    def sleeps(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "S"

    def test_round_robin_is_exact_across_kills(self):
        self.compare(RoundRobin, 2, delivery="round_robin", num_clients=2)

    def test_split_is_exact_across_kills(self):
        """A rank that has the end of the pass waits for the others, and calls no next: if stagerd ends then, they wait for
        that rank as long as these times."""
        self.compare(Split, 3, delivery="split", num_clients=3, start_timeout_millis=5000, reconnect_grace_millis=5000)

    def test_broadcast_is_exact_across_kills(self):
        self.compare(Broadcast, 1, delivery="broadcast", num_clients=2, capacity=4)


if __name__ == "__main__":
    case.main()
