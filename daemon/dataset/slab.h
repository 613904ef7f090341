/* SPDX-License-Identifier: Apache-2.0
 *
 * A slab allocator for many records of similar sizes that come and go in any order. Slabs
 * have 64 KiB, and each is divided into pieces of one size class, in whole cache lines
 * (beyond that, rounding wastes at most a fifth). An empty slab can serve any class
 * again. Larger pieces are separate allocations. A piece is identified by its place, a
 * 4-byte number. The metadata of a slab is in a table, not in the slab, so that alloc and
 * free need not touch its memory. Slabs are in regions; large regions use huge
 * pages if the system has them. Every byte is counted on the quota. One thread.
 */
#ifndef STG_DAEMON_SLAB_H
#define STG_DAEMON_SLAB_H

#include "daemon/storage/chunk.h"

#define STG_SLAB_CLASSES 28
#define STG_SLAB_LINE 64u    /* bytes */
#define STG_SLAB_LINES 1024u /* of a slab */

struct stg_slab;

/* A zeroed struct with `quota` set is initialised. Slabs are named by their index in the
 * tables, 0 is none: so is place 0. */
struct stg_slabs {
    struct stg_quota *quota;
    char **memory; /* of each slab */
    struct stg_slab *table;
    uint32_t n, size;                   /* of both, in use and allocated */
    uint32_t partial[STG_SLAB_CLASSES]; /* first slab with free pieces */
    uint32_t empty;                     /* first slab without a class */
    uint32_t unused;                    /* first index without memory */
    uint64_t taken;                     /* bytes counted on the quota */
};

/* Frees all memory; every piece must be free. The struct is then as initialised. */
void stg_slabs_finish(struct stg_slabs *slabs);

/* Returns the place of a new piece, aligned to 64 and not zeroed, or 0 if the quota or
 * the memory is exhausted. */
uint32_t stg_slabs_alloc(struct stg_slabs *slabs, uint64_t bytes);
void stg_slabs_free(struct stg_slabs *slabs, uint32_t place);

/* Returns the address of a piece; valid until it is freed. */
static inline void *stg_slabs_at(const struct stg_slabs *slabs, uint32_t place)
{
    return slabs->memory[place / STG_SLAB_LINES] +
           (uint64_t)(place % STG_SLAB_LINES) * STG_SLAB_LINE;
}

#endif
