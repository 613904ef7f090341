/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gate/kept.h"

#include <stdlib.h>
#include <string.h>

static size_t size_of(const struct stg_kept_reply *reply)
{
    return sizeof(*reply) + reply->id_bytes + reply->reply_bytes;
}

/* From the newest on: what expired or is too much goes. */
static void make_room(struct stg_kept *kept, uid_t uid, size_t bytes, uint64_t now_ns)
{
    size_t of_user = 1;
    struct stg_kept_reply **at = &kept->newest;
    while (*at != NULL) {
        struct stg_kept_reply *reply = *at;
        of_user += reply->uid == uid;
        bytes += size_of(reply);
        if (reply->until_ns <= now_ns || bytes > STG_KEPT_BYTES ||
            (reply->uid == uid && of_user > STG_KEPT_A_USER)) {
            bytes -= size_of(reply);
            *at = reply->next;
            free(reply);
        } else {
            at = &reply->next;
        }
    }
}

const struct stg_kept_reply *stg_kept_find(struct stg_kept *kept, uid_t uid,
                                           const void *id, size_t id_bytes,
                                           uint64_t now_ns)
{
    for (const struct stg_kept_reply *r = kept->newest; r != NULL; r = r->next) {
        if (r->uid == uid && r->id_bytes == id_bytes && r->until_ns > now_ns &&
            memcmp(r->bytes, id, id_bytes) == 0)
            return r;
    }
    return NULL;
}

void stg_kept_add(struct stg_kept *kept, uid_t uid, const void *id, size_t id_bytes,
                  uint64_t request, const void *reply, size_t reply_bytes,
                  uint64_t now_ns)
{
    struct stg_kept_reply *fresh = malloc(sizeof(*fresh) + id_bytes + reply_bytes);
    if (fresh == NULL)
        return;
    fresh->until_ns = now_ns + STG_KEPT_SECONDS * 1000000000ull;
    fresh->request = request;
    fresh->uid = uid;
    fresh->id_bytes = id_bytes;
    fresh->reply_bytes = reply_bytes;
    memcpy(fresh->bytes, id, id_bytes);
    memcpy(fresh->bytes + id_bytes, reply, reply_bytes);
    make_room(kept, uid, size_of(fresh), now_ns);
    fresh->next = kept->newest;
    kept->newest = fresh;
}

void stg_kept_finish(struct stg_kept *kept)
{
    while (kept->newest != NULL) {
        struct stg_kept_reply *next = kept->newest->next;
        free(kept->newest);
        kept->newest = next;
    }
}
