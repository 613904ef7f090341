/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one dataset: every byte that its readers and steps hold is counted on one
 * limit, and chunks (what files are read into, large batches) are kept for reuse, so that
 * a steady state takes nothing from malloc. Chunks are reference counted, because a batch
 * may be a view of one, and keep their memory alive by themselves: a block may outlive
 * its dataset. Any thread.
 */
#ifndef STG_DAEMON_CHUNK_H
#define STG_DAEMON_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct stg_quota;

struct stg_chunk {
    _Atomic uint32_t refs;
    uint64_t capacity; /* of data, bytes */
    char *data;        /* aligned to 64; not zeroed */
    struct stg_quota *quota;
    struct stg_chunk *next; /* among the free ones */
    bool is_near;           /* made by stg_chunk_create_near */
};

/* Where a quota has its bytes from. Both are called with the quota's lock held. */
struct stg_fund {
    /* Any error, with its text. */
    int (*take)(void *owner, uint64_t bytes, struct stg_err *err);
    void (*give)(void *owner, uint64_t bytes);
    void *owner;
    uint64_t taken; /* before: the quota does not give less than that back */
};

/* Knows the setting that a quota's limit follows from. */
struct stg_adviser {
    /* Appends "raise SETTING to N", by which the limit is at least so many bytes;
     * in_hand: bytes that each user of the dataset may hold of it, at the most. Any
     * thread, with the quota's lock or without. */
    void (*advise)(void *owner, uint64_t limit_bytes, uint64_t in_hand,
                   struct stg_err *err);
    void *owner;
};

/* limit_bytes 0: no limit. RESOURCE_EXHAUSTED when out of memory. */
int stg_quota_create(uint64_t limit_bytes, struct stg_quota **ret);
/* From now on what the quota counts comes from there, in pieces, as it is needed; all of
 * it but fund->taken goes back with the quota. Before the first take. */
void stg_quota_set_fund(struct stg_quota *quota, const struct stg_fund *fund);
/* Before the first take. The adviser's owner outlives every refusal. */
void stg_quota_set_adviser(struct stg_quota *quota, const struct stg_adviser *adviser);
struct stg_quota *stg_quota_ref(struct stg_quota *quota);
void stg_quota_unref(struct stg_quota *quota); /* NULL is allowed */

/* Counts bytes, or refuses: RESOURCE_EXHAUSTED "WHAT needs N bytes; the dataset holds U
 * of L bytes …" with the setting to raise, and a number by which as much more as is
 * missing, and a quarter, fits. */
int stg_quota_take(struct stg_quota *quota, uint64_t bytes, const char *what,
                   struct stg_err *err);
void stg_quota_give(struct stg_quota *quota, uint64_t bytes);
uint64_t stg_quota_used(const struct stg_quota *quota);
uint64_t stg_quota_limit(const struct stg_quota *quota); /* UINT64_MAX: none */

/* How often the quota had no room: tells that from malloc's want of memory. */
uint64_t stg_quota_n_refused(const struct stg_quota *quota);

/* Appends what to raise, and to what, for a limit of at least so many bytes, and in_hand
 * as in stg_adviser: "raise staged.memory_budget to N". Err may be NULL. */
void stg_quota_advise(const struct stg_quota *quota, uint64_t limit_bytes,
                      uint64_t in_hand, struct stg_err *err);

/* Whether so many bytes at once are more than a quarter of the limit. A size that a file
 * claims, that large, which cannot be had, is an error of the file: the dataset has
 * memory for others. */
bool stg_quota_is_large(const struct stg_quota *quota, uint64_t bytes);

/* At least capacity bytes, one reference. A chunk of exactly that capacity that came back
 * is used again. Errors as stg_quota_take. */
int stg_chunk_create(struct stg_quota *quota, uint64_t capacity, const char *what,
                     struct stg_chunk **ret, struct stg_err *err);

/* As that, but one is used again that is larger by up to an eighth: for batches, of which
 * each has another size. A quota without a limit does not keep them. */
int stg_chunk_create_near(struct stg_quota *quota, uint64_t capacity, const char *what,
                          struct stg_chunk **ret, struct stg_err *err);

struct stg_chunk *stg_chunk_ref(struct stg_chunk *chunk);
void stg_chunk_unref(struct stg_chunk *chunk); /* NULL is allowed */

/* It counts on that quota from now on, which has no limit. The caller has the one
 * reference. */
void stg_chunk_move(struct stg_chunk *chunk, struct stg_quota *to);

#endif
