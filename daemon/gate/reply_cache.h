/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies to changes that came through the gate: nanomsg's REQ sends a request again
 * after a while, and what was done must not be done twice. Kept by (user, request_id),
 * for a time and in a number. Belongs to the loop.
 */
#ifndef STG_DAEMON_GATE_REPLY_CACHE_H
#define STG_DAEMON_GATE_REPLY_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STG_REPLY_CACHE_SECONDS 300
#define STG_REPLY_CACHE_A_USER 256
#define STG_REPLY_CACHE_BYTES (4u << 20)

struct stg_cached_reply {
    struct stg_cached_reply *next; /* older */
    uint64_t until_ns;
    uint64_t request; /* fingerprint of what was asked */
    uid_t uid;
    size_t id_bytes, reply_bytes;
    unsigned char bytes[]; /* the id, then the reply */
};

/* A zeroed one is empty. */
struct stg_reply_cache {
    struct stg_cached_reply *newest;
};

/* The reply that was given to that user for that id; NULL: none is known. */
const struct stg_cached_reply *stg_reply_cache_find(struct stg_reply_cache *cache,
                                                    uid_t uid, const void *id,
                                                    size_t id_bytes, uint64_t now_ns);

/* Keeps a reply. The oldest go when there are more than STG_REPLY_CACHE_A_USER of a user,
 * or than STG_REPLY_CACHE_BYTES in all. Out of memory: it is not kept. */
void stg_reply_cache_add(struct stg_reply_cache *cache, uid_t uid, const void *id,
                         size_t id_bytes, uint64_t request, const void *reply,
                         size_t reply_bytes, uint64_t now_ns);

void stg_reply_cache_finish(struct stg_reply_cache *cache);

#endif
