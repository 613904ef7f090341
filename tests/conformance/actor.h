/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer by remote control: a process of its own that opens a stream and does what the
 * test says, one call at a time. A call that waits can be begun and asked for later, so
 * that a test says in which order things happen and never sleeps to get there.
 */
#ifndef STG_TESTS_CONFORMANCE_ACTOR_H
#define STG_TESTS_CONFORMANCE_ACTOR_H

#include "tests/system/fixture.h"

struct actor {
    struct trainer trainer;
    bool busy; /* a call was begun and not asked for */
};

/* What a call gave. The batch of actor_next stays in the actor's hand. */
struct actor_result {
    int rc;
    uint64_t number, pass, epoch, index, n_dropped, n_rows, feed_version;
    int64_t value; /* the first element of the batch's first tensor, if it is int64 */
    bool redelivered;
    bool over; /* rc < 0, and nothing follows until a rewind, or ever */
    uint32_t held;
    char text[512]; /* why rc < 0 */
};

struct actor_options {
    const char *pipeline;  /* NULL: "rows" */
    const char *client_id; /* NULL: made up */
    uint32_t max_held;     /* 0: the default, 2 */
    bool ack_explicit;
};

/* Starts the process and opens the stream; fails the test when that fails. */
void actor_start(struct actor *actor, struct fixture *fixture,
                 const struct actor_options *options);

/* As actor_start, and returns the code and text of stager_open. When it is negative the
 * process has ended. */
struct actor_result actor_try_start(struct actor *actor, struct fixture *fixture,
                                    const struct actor_options *options);

/* stager_next with this timeout (-1: for ever), and the batch is kept. */
struct actor_result actor_next(struct actor *actor, int64_t timeout_millis);

/* As actor_next, within 20 s; fails the test unless it is a batch, which is released.
 * Returns its first value. */
int64_t actor_take(struct actor *actor);

/* As actor_take, and the batch is kept. */
struct actor_result actor_keep(struct actor *actor);

/* In two halves: between them the actor may sleep in the call. */
void actor_begin_next(struct actor *actor, int64_t timeout_millis);
struct actor_result actor_end(struct actor *actor);

/* Is the answer of a call that was begun there? Waits up to millis for it. */
bool actor_answered(struct actor *actor, int millis);

/* Takes and releases until `next` gives a code below 0; returns that. values: what came,
 * n of it, in order; fails the test beyond max. */
struct actor_result actor_drain(struct actor *actor, int64_t *values, int max, int *n);

/* What came to an actor, call by call. */
#define ACTOR_MAX_STEPS 512
struct actor_log {
    int n;
    struct actor_step {
        int rc; /* 0: a batch; else an error item, and the stream went on */
        uint64_t number, n_dropped, pass;
        int64_t value;
        bool redelivered;
    } steps[ACTOR_MAX_STEPS];
    struct actor_result end; /* the call after which nothing follows */
};

/* All actors take and release side by side, whoever is ready first, until each is over.
 * Logs are appended to. */
void actor_drain_all(struct actor *actors, int n, struct actor_log *logs);

/* Releases the batch of that number, or the oldest for UINT64_MAX. */
void actor_release(struct actor *actor, uint64_t number);
int actor_rewind(struct actor *actor);

/* Writes releases of leases that it was never given. */
void actor_forge(struct actor *actor);

/* SIGSTOP, and returns when it has stopped; SIGCONT. */
void actor_stop(struct actor *actor);
void actor_continue(struct actor *actor);

/* Closes the stream and ends the process (batches in hand are not released first). */
void actor_leave(struct actor *actor);
/* Closes the stream; the process lives on with the batches in its hand. */
void actor_close(struct actor *actor);
/* SIGKILL. */
void actor_kill(struct actor *actor);

#endif
