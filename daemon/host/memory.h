/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that clients map (anonymous, reserved, sealed memfds), and the budget that
 * counts it. It has no name in /dev/shm, so nothing can become stale or must be unlinked.
 */
#ifndef STG_DAEMON_HOST_MEMORY_H
#define STG_DAEMON_HOST_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct stg_share;

/* The hard budget of a daemon, in bytes: batches, rings, and the buffers of datasets. Any
 * thread. */
struct stg_budget {
    pthread_mutex_t lock; /* guards used and holders */
    uint64_t total;
    uint64_t used;
    struct stg_budget_holder *holders; /* what is in use, by holder */
    /* Tries to free that many bytes. A call that finds too few free bytes calls it,
     * without the lock. May be NULL. */
    void (*reclaim)(void *owner, uint64_t bytes);
    void *owner;
    struct stg_budget *whole; /* this one is a user's part of it; NULL: it is the whole */
    struct stg_share *share;  /* of that user; borrowed */
};

/* Initialises the part of `whole` that a user takes: its quota of memory counts too. It
 * needs no stg_budget_finish. */
void stg_budget_init_part(struct stg_budget *budget, struct stg_budget *whole,
                          struct stg_share *share);

/* Returns the total of the whole. */
uint64_t stg_budget_total(const struct stg_budget *budget);

/* Initialises the budget. total 0: a quarter of the available memory of the machine and
 * the control group, at least 64 MiB. */
void stg_budget_init(struct stg_budget *budget, uint64_t total);
void stg_budget_finish(struct stg_budget *budget);

/* Takes bytes for a holder. RESOURCE_EXHAUSTED: the text has the sum, the largest
 * holders and a number that works. A holder is a text ("pipeline x"); equal texts are one
 * holder. */
int stg_budget_take(struct stg_budget *budget, uint64_t bytes, const char *holder,
                    struct stg_err *err);
/* Takes bytes without calling reclaim: for callers that hold locks. */
int stg_budget_take_free(struct stg_budget *budget, uint64_t bytes, const char *holder,
                         struct stg_err *err);
/* Gives back what the holder took. */
void stg_budget_give(struct stg_budget *budget, uint64_t bytes, const char *holder);
/* Moves bytes from one holder to another. */
void stg_budget_move(struct stg_budget *budget, uint64_t bytes, const char *from,
                     const char *to);
/* Sets the total (0: as for stg_budget_init, counting what is in use as free). Bytes in
 * use stay in use. */
void stg_budget_resize(struct stg_budget *budget, uint64_t total);
uint64_t stg_budget_used(struct stg_budget *budget);

/* Returns the bytes that the daemon could take now without exhausting the machine or the
 * control group: the minimum of MemAvailable and of memory.max minus memory.current in
 * every enclosing group (v1 and v2). */
uint64_t stg_memory_available(void);

/* One mapped object. */
struct stg_segment {
    int fd;
    void *base;
    uint64_t bytes;
};

/* Creates a segment: memfd -> size -> reserve -> map -> fault in -> seal, in this order.
 * client_writable: for the control page; otherwise F_SEAL_FUTURE_WRITE makes every later
 * mapping read-only, for all users. The memory is zeroed. RESOURCE_EXHAUSTED: the machine
 * has too little memory (checked first, because the limit of a control group kills the
 * process instead of returning an error). Takes half a second per GiB: do not call it on
 * the loop for large segments. CANCELLED soon after *cancelled becomes nonzero (NULL:
 * never). */
int stg_segment_create(const char *name, uint64_t bytes, bool client_writable,
                       const _Atomic int *cancelled, struct stg_segment *ret,
                       struct stg_err *err);
void stg_segment_destroy(
    struct stg_segment *segment); /* partly created and zeroed ones are allowed */

/* Creates a segment that clients do not write to, but whose later mappings are writable
 * until stg_segment_seal. For a helper that must page-lock it before any client has it.
 */
int stg_segment_create_open(const char *name, uint64_t bytes,
                            const _Atomic int *cancelled, struct stg_segment *ret,
                            struct stg_err *err);

/* Creates a segment without memory, which clients do not write to. A part has memory
 * after stg_segment_back. */
int stg_segment_create_sparse(const char *name, uint64_t bytes, struct stg_segment *ret,
                              struct stg_err *err);

/* Reserves memory for a page-aligned part, and faults it in. RESOURCE_EXHAUSTED
 * as stg_segment_create. Any thread. */
int stg_segment_back(const char *name, const struct stg_segment *segment, uint64_t at,
                     uint64_t bytes, struct stg_err *err);

/* Makes every later mapping read-only. RESOURCE_EXHAUSTED. */
int stg_segment_seal(const char *name, const struct stg_segment *segment,
                     struct stg_err *err);

#endif
