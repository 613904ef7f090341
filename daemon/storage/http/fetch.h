/* SPDX-License-Identifier: Apache-2.0
 *
 * One stretch of an object, on its way into a chunk. Separate threads (fetcher.h) do the
 * work; a reader waits for the bytes. What fails for a while is asked for again
 * at the byte where it broke off, later and later; what is replaced meanwhile is an
 * error. It knows nothing of files, schemes and reading ahead.
 *
 * Errors, with the URL: NOT_FOUND, UNAUTHENTICATED and PERMISSION_DENIED with what to
 * set, DATA_LOSS (the object was replaced), UNAVAILABLE (every attempt failed),
 * UNIMPLEMENTED (the server has no ranges), INVALID_ARGUMENT, CANCELLED.
 */
#ifndef STG_DAEMON_FETCH_H
#define STG_DAEMON_FETCH_H

#include "daemon/storage/chunk.h"
#include "daemon/storage/http/object.h"
#include "daemon/storage/http/progress.h"

struct stg_fetch;

struct stg_fetch_plan {
    struct stg_object *object; /* a reference is taken */
    enum stg_fetch_kind kind;
    uint64_t begin, end;
    struct stg_version version; /* it has to be this one, if it is known */
    struct stg_version cached;  /* if it is this one, no byte of it is wanted */
    struct stg_chunk *chunk; /* end - begin bytes go to its start; a reference is taken */
};

/* Returns at once. RESOURCE_EXHAUSTED. Any thread. */
int stg_fetch_start(const struct stg_fetch_plan *plan, struct stg_fetch **ret,
                    struct stg_err *err);

/* Waits until `bytes` of them are there, or all that there will be; 0: until the server
 * has answered. Returns how many there are; they stay as they are. Negative: it failed
 * before, or `stopped` (may be NULL) is not 0. Several threads may wait. */
int64_t stg_fetch_wait(struct stg_fetch *fetch, uint64_t bytes,
                       const _Atomic int *stopped, struct stg_err *err);

/* After a wait that succeeded: what the server said of the object; not known for
 * STG_FETCH_ALL. Valid as long as the fetch. */
const struct stg_version *stg_fetch_version(const struct stg_fetch *fetch);

/* After a wait that succeeded: the object is plan.cached, and no byte of it came. */
bool stg_fetch_is_cached(struct stg_fetch *fetch);

/* Bytes that are there by now. */
uint64_t stg_fetch_there(struct stg_fetch *fetch);

/* How long all of it took, or 0: it is under way, or failed. */
uint64_t stg_fetch_elapsed_ns(struct stg_fetch *fetch);

/* Where its bytes are. */
struct stg_chunk *stg_fetch_chunk(struct stg_fetch *fetch);

struct stg_fetch *stg_fetch_ref(struct stg_fetch *fetch);
void stg_fetch_unref(struct stg_fetch *fetch); /* NULL is allowed */

/* Cancels the rest; as unref. It does not wait for the threads. */
void stg_fetch_cancel(struct stg_fetch *fetch);

#endif
