/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of feed_dict that clients set: immutable sets of values, one current at a time,
 * counted because items in hand keep the set that they were pulled with. Counts are
 * guarded by the stage's lock.
 */
#ifndef STG_DAEMON_STAGE_FEED_H
#define STG_DAEMON_STAGE_FEED_H

#include "ops/graph/graph.h"
#include "proto/wire.h"

#define STG_FEED_MAX_BYTES 61440u

struct stg_stage;

/* What a client sets, checked and copied. */
struct stg_feed_value;

struct stg_feed_set {
    unsigned refs;
    uint64_t version; /* from 1; without a set, all is as the file says: 0 */
    size_t n;
    struct stg_feed_value **values;    /* one an entry of feed_dict, or NULL */
    const struct stg_tensor **tensors; /* of them: for stg_run_feed */
};

/* Checks a feed request: a tensor that a client may set, of the dtype and shape that the
 * graph says, all of its bytes there, at most STG_FEED_MAX_BYTES. NOT_FOUND,
 * FAILED_PRECONDITION, INVALID_ARGUMENT with both dtypes and shapes. ret_feed is the
 * entry; the value is the caller's. */
int stg_feed_value_create(const struct stg_graph *graph,
                          const struct stg_request *request, size_t *ret_feed,
                          struct stg_feed_value **ret, struct stg_err *err);

/* As `old` (NULL: the file) but for this entry; version is one more. Takes the value on
 * success. */
int stg_feed_set_create(const struct stg_feed_set *old, size_t n_feeds, size_t feed,
                        struct stg_feed_value *value, struct stg_feed_set **ret,
                        struct stg_err *err);
struct stg_feed_set *stg_feed_set_ref(struct stg_feed_set *set); /* NULL is allowed */
void stg_feed_set_unref(struct stg_feed_set *set);               /* NULL is allowed */

/* From the first item that is not yet pulled: serves the request. Takes the lock. */
int stg_stage_feed(struct stg_stage *stage, const struct stg_request *request,
                   uint64_t *ret_version, struct stg_err *err);

#endif
