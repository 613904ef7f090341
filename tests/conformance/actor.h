/* SPDX-License-Identifier: Apache-2.0
 *
 * A remotely controlled trainer: a separate process that opens a stream and executes the
 * test's calls one at a time. A test can start a call that waits and collect its result
 * later. The test thereby fixes the order of events and never sleeps.
 */
#ifndef STG_TESTS_CONFORMANCE_ACTOR_H
#define STG_TESTS_CONFORMANCE_ACTOR_H

#include "tests/system/fixture.h"

struct actor {
    struct trainer trainer;
    bool busy; /* a call has started and its result was not collected */
};

/* The result of a call. The actor holds the batch of actor_next. */
struct actor_result {
    int rc;
    uint64_t number, pass, epoch, index, n_dropped, n_rows, feed_version;
    int64_t value; /* the first element of the batch's first tensor, if it is int64 */
    bool redelivered;
    bool over; /* rc < 0, and every call fails until a rewind, or for ever */
    uint32_t held;
    char text[512]; /* why rc < 0 */
};

struct actor_options {
    const char *pipeline;   /* NULL: "rows" */
    const char *client_id;  /* NULL: the daemon chooses one */
    uint32_t max_in_flight; /* 0: the default, 2 */
    bool manual_ack;
};

/* Starts the process and opens the stream. Fails the test if the open fails. */
void actor_start(struct actor *actor, struct fixture *fixture,
                 const struct actor_options *options);

/* Like actor_start, but returns the code and text of stager_open. If it is negative, the
 * process has ended. */
struct actor_result actor_try_start(struct actor *actor, struct fixture *fixture,
                                    const struct actor_options *options);

/* Calls stager_next with this timeout (-1: none). The actor keeps the batch. */
struct actor_result actor_next(struct actor *actor, int64_t timeout_millis);

/* Like actor_next with a timeout of 20 s. Fails the test unless the result is a batch,
 * which the actor releases. Returns its first value. */
int64_t actor_take(struct actor *actor);

/* Like actor_take, but the actor keeps the batch. */
struct actor_result actor_keep(struct actor *actor);

/* Start a call and collect its result. The actor may block in the call in between. */
void actor_begin_next(struct actor *actor, int64_t timeout_millis);
struct actor_result actor_end(struct actor *actor);

/* Returns whether the result of a started call has arrived. Waits for it up to millis. */
bool actor_answered(struct actor *actor, int millis);

/* Takes and releases until `next` returns a code below 0, and returns that code. values:
 * the values received, n of them, in order. Fails the test beyond max. */
struct actor_result actor_drain(struct actor *actor, int64_t *values, int max, int *n);

/* The results of an actor, call by call. */
#define ACTOR_MAX_STEPS 512
struct actor_log {
    int n;
    struct actor_step {
        int rc; /* 0: a batch; otherwise an error item, and the stream continued */
        uint64_t number, n_dropped, pass;
        int64_t value;
        bool redelivered;
    } steps[ACTOR_MAX_STEPS];
    struct actor_result end; /* the call that ended the stream */
};

/* All actors take and release concurrently until the stream of each one has ended.
 * Results are appended to the logs. */
void actor_drain_all(struct actor *actors, int n, struct actor_log *logs);

/* Releases the batch with that number, or the oldest one for UINT64_MAX. */
void actor_release(struct actor *actor, uint64_t number);
int actor_rewind(struct actor *actor);

/* Writes releases of leases that the actor never received. */
void actor_forge(struct actor *actor);

/* Sends SIGSTOP and returns once the process has stopped; sends SIGCONT. */
void actor_stop(struct actor *actor);
void actor_continue(struct actor *actor);

/* Closes the stream and ends the process without releasing its batches first. */
void actor_leave(struct actor *actor);
/* Closes the stream; the process lives on and still holds its batches. */
void actor_close(struct actor *actor);
/* Sends SIGKILL. */
void actor_kill(struct actor *actor);

#endif
