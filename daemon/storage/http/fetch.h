/* SPDX-License-Identifier: Apache-2.0
 *
 * Fetches one range of an object into a chunk. Separate threads (fetcher.h) do the work;
 * a reader waits for the bytes. After a temporary failure, the fetcher requests the rest
 * from the byte where the answer broke off, with growing delays. If the object is
 * replaced meanwhile, the fetch fails. This module is independent of files, schemes and
 * reading ahead.
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
    struct stg_object *object; /* takes a reference */
    enum stg_fetch_kind kind;
    uint64_t begin, end;
    struct stg_version version; /* the required version, if known */
    struct stg_version cached;  /* if the object has this version, fetch no bytes */
    struct stg_chunk *chunk;    /* end - begin bytes go to its start; takes a reference */
};

/* Starts a fetch. Does not wait. RESOURCE_EXHAUSTED. Any thread. */
int stg_fetch_start(const struct stg_fetch_plan *plan, struct stg_fetch **ret,
                    struct stg_err *err);

/* Blocks until `bytes` bytes have arrived, or all that the object has; bytes 0: until the
 * server has answered. Returns the number of bytes, which do not change any more.
 * Negative: the fetch failed first, or `stopped` (may be NULL) is not 0. Several threads
 * may wait. */
int64_t stg_fetch_wait(struct stg_fetch *fetch, uint64_t bytes,
                       const _Atomic int *stopped, struct stg_err *err);

/* After a successful wait: returns the version of the object as the server reports it;
 * not known for STG_FETCH_ALL. Valid as long as the fetch. */
const struct stg_version *stg_fetch_version(const struct stg_fetch *fetch);

/* After a successful wait: returns whether the object has the version plan.cached; then
 * no bytes were fetched. */
bool stg_fetch_is_cached(struct stg_fetch *fetch);

/* Returns the number of bytes that have arrived. */
uint64_t stg_fetch_there(struct stg_fetch *fetch);

/* Returns the duration of the whole fetch; 0 if it is in progress or failed. */
uint64_t stg_fetch_elapsed_ns(struct stg_fetch *fetch);

/* Returns the chunk that has the bytes. */
struct stg_chunk *stg_fetch_chunk(struct stg_fetch *fetch);

struct stg_fetch *stg_fetch_ref(struct stg_fetch *fetch);
void stg_fetch_unref(struct stg_fetch *fetch); /* NULL is allowed */

/* Cancels the rest of the fetch, and drops the reference. Does not wait for the threads.
 */
void stg_fetch_cancel(struct stg_fetch *fetch);

#endif
