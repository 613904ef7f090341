/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that clients map: anonymous, reserved, sealed memfds; and the budget that all of
 * it is counted on. Never a name in /dev/shm, nothing to go stale, nothing to unlink.
 */
#ifndef STG_DAEMON_HOST_MEMORY_H
#define STG_DAEMON_HOST_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* The hard budget of a daemon, in bytes: batches, rings, and the buffers of datasets. Any
 * thread. */
struct stg_budget {
    pthread_mutex_t lock; /* guards used and holders */
    uint64_t total;
    uint64_t used;
    struct stg_budget_holder *holders; /* what is in use, by holder */
    /* NULL, or tries to have so many bytes given back. A taker that finds too few calls
     * it without the lock. */
    void (*reclaim)(void *owner, uint64_t bytes);
    void *owner;
};

/* total 0: a quarter of what the machine and the control group leave, at least 64 MiB. */
void stg_budget_init(struct stg_budget *budget, uint64_t total);
void stg_budget_finish(struct stg_budget *budget);

/* Takes bytes for a holder. RESOURCE_EXHAUSTED names the arithmetic, the largest holders
 * and a number that works. A holder is a text ("pipeline x"); equal texts are one
 * holder. */
int stg_budget_take(struct stg_budget *budget, uint64_t bytes, const char *holder,
                    struct stg_err *err);
/* Takes bytes without a call of reclaim: for callers that hold locks. */
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

/* Bytes that could be taken now without the machine or the control group running out: the
 * least of MemAvailable and of memory.max less memory.current in every group above us (v1
 * and v2). */
uint64_t stg_memory_available(void);

/* One mapped object. */
struct stg_segment {
    int fd;
    void *base;
    uint64_t bytes;
};

/* memfd -> size -> reserve -> map -> fault in -> seal, in this order. client_writable:
 * the control page; else F_SEAL_FUTURE_WRITE keeps every later mapping read-only, for
 * all users. Memory is zeroed. RESOURCE_EXHAUSTED when the machine has not got it (looked
 * up first: a control group's limit kills instead of answering). Takes time (half a
 * second a GiB): not on the loop when large. CANCELLED soon after *cancelled is no longer
 * 0 (NULL: it can not be). */
int stg_segment_create(const char *name, uint64_t bytes, bool client_writable,
                       const _Atomic int *cancelled, struct stg_segment *ret,
                       struct stg_err *err);
void stg_segment_destroy(
    struct stg_segment *segment); /* half-made and zeroed ones are fine */

/* As one that clients do not write, and later mappings may: until it is sealed. For a
 * helper that has to page-lock it, and before any client has it. */
int stg_segment_create_open(const char *name, uint64_t bytes,
                            const _Atomic int *cancelled, struct stg_segment *ret,
                            struct stg_err *err);

/* Creates a segment as stg_segment_create, but without memory; clients do not write it. A
 * part has memory once stg_segment_back reserved it. */
int stg_segment_create_sparse(const char *name, uint64_t bytes, struct stg_segment *ret,
                              struct stg_err *err);

/* Reserves memory for a part that is on whole pages, and faults it in. RESOURCE_EXHAUSTED
 * as stg_segment_create. Any thread. */
int stg_segment_back(const char *name, const struct stg_segment *segment, uint64_t at,
                     uint64_t bytes, struct stg_err *err);

/* Every later mapping is read-only. RESOURCE_EXHAUSTED. */
int stg_segment_seal(const char *name, const struct stg_segment *segment,
                     struct stg_err *err);

#endif
