/* SPDX-License-Identifier: Apache-2.0
 *
 * Which granules of a segment belong to which extent. First fit over a bitmap; extents
 * are freed in any order. Pure bookkeeping: it never touches the memory it speaks of,
 * makes no system call, and allocates only in create. One thread at a time (the stage's
 * lock).
 */
#ifndef STG_CORE_ARENA_H
#define STG_CORE_ARENA_H

#include <stdint.h>

#include "core/err.h"

struct stg_arena;

/* bytes is rounded down to granules (STG_GRANULE_BYTES); at most max_extents live at
 * once. */
int stg_arena_create(uint64_t bytes, uint32_t max_extents, struct stg_arena **ret,
                     struct stg_err *err);
void stg_arena_destroy(struct stg_arena *arena);

/* First fit. 0 and an extent id below max_extents, or RESOURCE_EXHAUSTED (no text:
 * callers wait). */
int stg_arena_reserve(struct stg_arena *arena, uint64_t bytes, uint32_t *ret);

/* Gives back the tail beyond `bytes` (rounded up to granules). */
void stg_arena_trim(struct stg_arena *arena, uint32_t extent, uint64_t bytes);

void stg_arena_free(struct stg_arena *arena, uint32_t extent);

uint64_t stg_arena_offset(const struct stg_arena *arena, uint32_t extent);
uint64_t stg_arena_bytes(const struct stg_arena *arena,
                         uint32_t extent); /* rounded to granules */
uint64_t stg_arena_free_bytes(const struct stg_arena *arena);
uint64_t stg_arena_total_bytes(const struct stg_arena *arena);

#endif
