/* SPDX-License-Identifier: Apache-2.0
 *
 * Which granules of a segment belong to which extent. First fit over a bitmap; extents
 * are freed in any order. Pure bookkeeping: it never touches the memory it speaks of,
 * makes no system call, and allocates only in create. One thread at a time (the stage's
 * lock).
 *
 * Room for a batch of the largest size. Let K extents of at most M granules live in a
 * segment of T granules, all reserved with first fit.
 *   - Without slots, M free granules in one piece are certain only when
 *     T >= (2K + 1) M - K: the K extents leave K + 1 gaps, and each may be M - 1. Sizes
 *     reach that bound (reserve M, trim to M - 1, reserve M, free the first, and so on),
 * so less memory can be half free and yet have no room.
 *   - With slots of M (stg_arena_set_slot) no extent crosses a multiple of M. K extents
 *     then touch at most K slots, and T >= (K + 1) M is enough, whatever their sizes,
 * their trimming, and the order in which they are freed. Admission (capacity +
 * num_threads + sum of max_in_flight + 1 batches of max_batch_bytes) is a rule of the
 * second kind: set the slot to max_batch_bytes.
 */
#ifndef STG_CORE_ARENA_H
#define STG_CORE_ARENA_H

#include <stdint.h>

#include "core/err.h"

struct stg_arena;

/* bytes is rounded down to granules (STG_GRANULE_BYTES); at most max_extents live at
 * once. INVALID_ARGUMENT for less than one granule, more than 128 TiB, or no
 * extents; RESOURCE_EXHAUSTED without memory. */
int stg_arena_create(uint64_t bytes, uint32_t max_extents, struct stg_arena **ret,
                     struct stg_err *err);
void stg_arena_destroy(struct stg_arena *arena); /* NULL is allowed */

/* From now on no extent crosses a multiple of slot_bytes (rounded up to granules; 0: no
 * slots, as at the start). Only while no extent lives. */
void stg_arena_set_slot(struct stg_arena *arena, uint64_t slot_bytes);

/* First fit; 0 bytes take one granule. 0 and an extent id below max_extents, or
 * RESOURCE_EXHAUSTED (no text: callers wait), or INVALID_ARGUMENT for more than a slot or
 * than the whole segment: waiting would not help. */
int stg_arena_reserve(struct stg_arena *arena, uint64_t bytes, uint32_t *ret);

/* Gives back the tail beyond `bytes` (rounded up to granules, at least one). bytes is at
 * most what the extent has. */
void stg_arena_trim(struct stg_arena *arena, uint32_t extent, uint64_t bytes);

void stg_arena_free(struct stg_arena *arena, uint32_t extent);

uint64_t stg_arena_offset(const struct stg_arena *arena, uint32_t extent);
uint64_t stg_arena_bytes(const struct stg_arena *arena,
                         uint32_t extent); /* rounded to granules; 0 when it is free */
uint64_t stg_arena_free_bytes(const struct stg_arena *arena);
uint64_t stg_arena_total_bytes(const struct stg_arena *arena);

/* Compares bitmap, extents and counters. 0, or INTERNAL with what does not hold. For
 * tests: linear in both. */
int stg_arena_verify(const struct stg_arena *arena, struct stg_err *err);

#endif
