/* SPDX-License-Identifier: Apache-2.0
 *
 * The one way out of a stage: descriptors in rings, signals to runners, doorbells,
 * disconnects, replies, requests to the loop, lines of the log. A test guards that
 * nothing else of the stage calls what wakes, sends, disconnects or logs.
 *
 * Rings are written and runners are signalled under the stage's lock, since what follows
 * from them is decided under it. Whatever makes a system call on a socket, calls the
 * loop, logs or unmaps memory is recorded under the lock and performed without it. A
 * doorbell that comes late is a doorbell too many for its client, never one too few: the
 * client looks at its ring again.
 */
#ifndef STG_DAEMON_STAGE_COMMIT_H
#define STG_DAEMON_STAGE_COMMIT_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/err.h"
#include "core/layout.h"
#include "core/trace.h"

struct stg_stage;
struct stg_client;

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

void stg_client_push(struct stg_client *client, const struct stg_descriptor *descriptor);

/* Says why nothing follows (code negative), once. */
bool stg_client_last_words(struct stg_client *client, const struct stg_err *words);

/* What lies in its ring is not for it any more. */
void stg_client_revoke(struct stg_client *client);

/* An item of so many rows was dropped. */
void stg_client_drop(struct stg_client *client, uint64_t n_rows);

/* Asks it for spans, or no more. */
void stg_client_ask_spans(struct stg_client *client, bool on);

/* Asks it to ring when it releases, acknowledges or asks. */
void stg_client_want_bell(struct stg_client *client);

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
