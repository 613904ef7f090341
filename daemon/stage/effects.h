/* SPDX-License-Identifier: Apache-2.0
 *
 * Effects of a stage: recorded with its lock held (effects.c), performed by
 * stg_stage_commit (commit.c), the one way out of a stage. A test guards that nothing
 * else of the stage wakes, sends, disconnects, logs or unmaps.
 *
 * Rings are written under the lock, and the runners to signal are chosen under it. The
 * signals, system calls on sockets, calls of the loop, lines of the log and unmapping
 * come after it is released. A doorbell that comes late is a doorbell too
 * many for its client, never one too few: the client looks at its ring again.
 */
#ifndef STG_DAEMON_STAGE_EFFECTS_H
#define STG_DAEMON_STAGE_EFFECTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/layout.h"
#include "core/log.h"
#include "core/trace.h"

/* Runners to wake: those that wait for … */
enum stg_wake {
    STG_WAKE_ROOM = 1,      /* room in the buffer, or a clock of its turn that changes */
    STG_WAKE_MEMORY = 2,    /* an extent */
    STG_WAKE_PASS = 4,      /* a pass that is RUNNING */
    STG_WAKE_ALL = 7,       /* and the stop */
    STG_WAKE_TURN = 8,      /* the turn of publish_next */
    STG_WAKE_PULL = 16,     /* the data set: one of them */
    STG_WAKE_PULL_ALL = 32, /* the data set: all of them, because the pass is exhausted */
    STG_WAKE_LOOK = 64,     /* anything: they look around, and wait on */
};

struct stg_stage;
struct stg_client;
struct stg_work;
struct stg_join;

/* What observers hear of at the next commit. Zero: nothing. */
struct stg_events {
    const struct stg_work
        *published;    /* or dropped, or ignored: out of a runner's hands */
    bool has_changed;  /* clients came or went, or the boundary changed */
    bool has_turned;   /* a pass began or ended */
    bool has_taken;    /* items left the buffer, … */
    uint32_t n_rounds; /* … down to so many rounds … */
    uint32_t taken_tag; /* … and the last one of them belonged to that block of a trial */
};

/* A line of the log that waits for the lock to be released. */
struct stg_line {
    struct stg_line *before;
    enum stg_log_level level;
    char text[];
};

/* Zero: nothing. */
struct stg_effects {
    unsigned wake;                /* enum stg_wake */
    bool doorbells;               /* some client has `rings` or `disconnects` set */
    bool asks_loop;               /* config.wake is to be called */
    bool is_swept;                /* the loop was asked to sweep, or does so every few
                                     milliseconds */
    struct stg_line *line;        /* of the log, the last one first */
    uint32_t n_no_line;           /* for which there was no memory */
    const struct stg_join *reply; /* to a client that joins; NULL: none */
    struct stg_client *dead;      /* to be freed; none is in the stage any more */
    struct stg_events events;
};

/* The rest records, with the lock held. */

/* Something new lies in the ring of a client that sleeps. */
void stg_stage_ring(struct stg_stage *stage, struct stg_client *client);

/* Ends the stream of a client: the loop sees the end of its socket and closes it. */
void stg_stage_disconnect(struct stg_stage *stage, struct stg_client *client);

/* Frees a client that the caller took from the list: its pages are unmapped without the
 * lock. */
void stg_stage_free_client(struct stg_stage *stage, struct stg_client *client);

void stg_stage_log(struct stg_stage *stage, enum stg_log_level level, const char *fmt,
                   ...) __attribute__((format(printf, 3, 4)));

/* ---- commit.c ---- */

/* The socket of a client, as long as it is open. Counted; any thread. */
struct stg_endpoint {
    _Atomic unsigned refs;
    _Atomic bool unrung;  /* the kernel had no memory for a doorbell */
    pthread_mutex_t lock; /* of socket: it is not closed while it is used */
    int socket;           /* -1: closed */
};

/* NULL: out of memory. */
struct stg_endpoint *stg_endpoint_create(int socket);
struct stg_endpoint *stg_endpoint_ref(struct stg_endpoint *endpoint);
void stg_endpoint_unref(struct stg_endpoint *endpoint); /* NULL is allowed */
/* The socket may be closed from then on. Without the stage's lock. */
void stg_endpoint_close(struct stg_endpoint *endpoint);

/* ---- at once, with the lock held: a client's ring ---- */

/* data: the files of the pass of an item; NULL of an end. */
void stg_client_push(struct stg_client *client, const struct stg_descriptor *descriptor,
                     const struct stg_stream_place *place,
                     const struct stg_data_identity *data);

/* Writes the terminal status (code negative), once. */
bool stg_client_finish(struct stg_client *client, const struct stg_err *words);

/* Revokes what lies in the client's ring. */
void stg_client_revoke(struct stg_client *client);

/* An item of so many rows was dropped. */
void stg_client_drop(struct stg_client *client, uint64_t n_rows);

/* Begins or ends asking the client for spans. */
void stg_client_ask_spans(struct stg_client *client, bool on);

/* Asks the client to ring when it releases, acknowledges or asks. */
void stg_client_want_doorbell(struct stg_client *client);

/* ---- performing ---- */

/* Unmaps the client's pages: without the lock, with the client in no list. */
void stg_client_free(struct stg_client *client);

/* Performs what is recorded. Called with the lock held, returns without it. False: the
 * reply could not be sent. */
bool stg_stage_commit(struct stg_stage *stage);

/* A wait, on the monotonic clock when deadline_ns is not 0; a span of that kind. Lock
 * held. Commits first: when that releases the lock, it returns at once, for the caller to
 * look again. */
void stg_stage_wait(struct stg_stage *stage, pthread_cond_t *cond, uint64_t deadline_ns,
                    enum stg_span_kind kind);

#endif
