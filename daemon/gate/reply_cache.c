/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gate/reply_cache.h"

#include <stdlib.h>
#include <string.h>

static size_t size_of(const struct stg_cached_reply *reply)
{
    return sizeof(*reply) + reply->id_bytes + reply->reply_bytes;
}

/* From the newest on: what expired or is too much goes. */
static void make_room(struct stg_reply_cache *cache, uid_t uid, size_t bytes,
                      uint64_t now_ns)
{
    size_t of_user = 1;
    struct stg_cached_reply **at = &cache->newest;
    while (*at != NULL) {
        struct stg_cached_reply *reply = *at;
        of_user += reply->uid == uid;
        bytes += size_of(reply);
        if (reply->until_ns <= now_ns || bytes > STG_REPLY_CACHE_BYTES ||
            (reply->uid == uid && of_user > STG_REPLY_CACHE_A_USER)) {
            bytes -= size_of(reply);
            *at = reply->next;
            free(reply);
        } else {
            at = &reply->next;
        }
    }
}

const struct stg_cached_reply *stg_reply_cache_find(struct stg_reply_cache *cache,
                                                    uid_t uid, const void *id,
                                                    size_t id_bytes, uint64_t now_ns)
{
    for (const struct stg_cached_reply *r = cache->newest; r != NULL; r = r->next) {
        if (r->uid == uid && r->id_bytes == id_bytes && r->until_ns > now_ns &&
            memcmp(r->bytes, id, id_bytes) == 0)
            return r;
    }
    return NULL;
}

void stg_reply_cache_add(struct stg_reply_cache *cache, uid_t uid, const void *id,
                         size_t id_bytes, uint64_t request, const void *reply,
                         size_t reply_bytes, uint64_t now_ns)
{
    struct stg_cached_reply *fresh = malloc(sizeof(*fresh) + id_bytes + reply_bytes);
    if (fresh == NULL)
        return;
    fresh->until_ns = now_ns + STG_REPLY_CACHE_SECONDS * 1000000000ull;
    fresh->request = request;
    fresh->uid = uid;
    fresh->id_bytes = id_bytes;
    fresh->reply_bytes = reply_bytes;
    memcpy(fresh->bytes, id, id_bytes);
    memcpy(fresh->bytes + id_bytes, reply, reply_bytes);
    make_room(cache, uid, size_of(fresh), now_ns);
    fresh->next = cache->newest;
    cache->newest = fresh;
}

void stg_reply_cache_finish(struct stg_reply_cache *cache)
{
    while (cache->newest != NULL) {
        struct stg_cached_reply *next = cache->newest->next;
        free(cache->newest);
        cache->newest = next;
    }
}
