/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one dataset. A quota counts every byte that the readers and steps of the
 * dataset hold, against one limit. Chunks are the buffers for file data and large
 * batches. The quota keeps free chunks for reuse, so that a steady state takes nothing
 * from malloc. A chunk is reference counted, because a batch may be a view of it. A chunk
 * may outlive its dataset. Any thread.
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
    struct stg_chunk *next; /* in the list of free chunks */
    bool is_near;           /* made by stg_chunk_create_near */
};

/* The source of a quota's bytes. The quota calls both functions with its lock held. */
struct stg_fund {
    /* Returns 0, or any error and its text. */
    int (*take)(void *owner, uint64_t bytes, struct stg_err *err);
    void (*give)(void *owner, uint64_t bytes);
    void *owner;
    uint64_t taken; /* bytes taken in advance, which the quota never gives back */
};

/* Names the setting that determines a quota's limit. */
struct stg_adviser {
    /* Appends "raise SETTING to N", where N makes the limit at least limit_bytes.
     * in_hand: the most bytes of the dataset that each of its users may hold. Any thread,
     * with or without the quota's lock. */
    void (*advise)(void *owner, uint64_t limit_bytes, uint64_t in_hand,
                   struct stg_err *err);
    void *owner;
};

/* Creates a quota. limit_bytes 0: no limit. RESOURCE_EXHAUSTED if memory runs out. */
int stg_quota_create(uint64_t limit_bytes, struct stg_quota **ret);
/* Makes the quota take the bytes that it counts from `fund`, in pieces and on demand. At
 * its end, the quota gives back all of them except fund->taken. Must precede the first
 * stg_quota_take. */
void stg_quota_set_fund(struct stg_quota *quota, const struct stg_fund *fund);
/* Sets the adviser, before the first stg_quota_take. The adviser's owner must outlive
 * every refusal. */
void stg_quota_set_adviser(struct stg_quota *quota, const struct stg_adviser *adviser);
struct stg_quota *stg_quota_ref(struct stg_quota *quota);
void stg_quota_unref(struct stg_quota *quota); /* NULL is allowed */

/* Counts bytes, or refuses with RESOURCE_EXHAUSTED "WHAT needs N bytes; the dataset holds
 * U of L bytes …". The text has the setting to raise, and a value for it that makes room
 * for U + N bytes and a quarter more. */
int stg_quota_take(struct stg_quota *quota, uint64_t bytes, const char *what,
                   struct stg_err *err);
void stg_quota_give(struct stg_quota *quota, uint64_t bytes);
uint64_t stg_quota_used(const struct stg_quota *quota);
uint64_t stg_quota_limit(const struct stg_quota *quota); /* UINT64_MAX: none */

/* Returns how often the quota refused. Distinguishes a full quota from a failed malloc.
 */
uint64_t stg_quota_n_refused(const struct stg_quota *quota);

/* Appends which setting to raise, and to which value, for a limit of at least
 * limit_bytes: "raise staged.memory_budget to N". in_hand: as in stg_adviser. err may be
 * NULL. */
void stg_quota_advise(const struct stg_quota *quota, uint64_t limit_bytes,
                      uint64_t in_hand, struct stg_err *err);

/* Returns whether `bytes` is more than a quarter of the limit. If a file claims so large
 * a size and the quota refuses it, the error is that of the file: the dataset has memory
 * for other files. */
bool stg_quota_is_large(const struct stg_quota *quota, uint64_t bytes);

/* Returns a chunk of at least `capacity` bytes, with one reference. Reuses only a free
 * chunk of exactly the capacity that it would allocate. Errors: as stg_quota_take. */
int stg_chunk_create(struct stg_quota *quota, uint64_t capacity, const char *what,
                     struct stg_chunk **ret, struct stg_err *err);

/* Returns a chunk like stg_chunk_create, but also reuses one that is larger by up to an
 * eighth. For batches, whose sizes differ. A quota without a limit does not keep these
 * chunks. */
int stg_chunk_create_near(struct stg_quota *quota, uint64_t capacity, const char *what,
                          struct stg_chunk **ret, struct stg_err *err);

/* Makes *chunk one of at least that size for new data: itself, if nothing else refers to
 * it and it is not twice as large; else another one, and its reference is dropped. NULL
 * is allowed. RESOURCE_EXHAUSTED; DATA_LOSS with advice if `bytes`, which a file claims,
 * is large (stg_quota_is_large). */
int stg_chunk_renew(struct stg_quota *quota, uint64_t bytes, const char *what,
                    struct stg_chunk **chunk, struct stg_err *err);

struct stg_chunk *stg_chunk_ref(struct stg_chunk *chunk);
void stg_chunk_unref(struct stg_chunk *chunk); /* NULL is allowed */

/* Moves the chunk's bytes to the quota `to`, which must have no limit. The caller holds
 * the only reference. */
void stg_chunk_move(struct stg_chunk *chunk, struct stg_quota *to);

#endif
