/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for many records of similar sizes that come and go in any order: slabs of 64
 * KiB, each divided into pieces of one size class, of whole cache lines (beyond that at
 * most a fifth is lost to rounding); a slab that is empty serves any class again. Larger
 * pieces have memory of their own. A piece is named by its place, four bytes; what is
 * known of a slab lies in a table, not in its memory, so that a piece is given out and
 * taken back without a wait for memory. Slabs lie in regions, large ones in huge pages
 * where the system has some. Every byte is counted on the quota. One thread.
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
    uint32_t partial[STG_SLAB_CLASSES]; /* first slab with pieces to give */
    uint32_t empty;                     /* first slab of no class now */
    uint32_t unused;                    /* first index without memory */
    uint64_t taken;                     /* bytes counted on the quota */
};

/* All memory goes back; pieces must have been freed. As before the first alloc. */
void stg_slabs_finish(struct stg_slabs *slabs);

/* The place of a piece, or 0: out of quota or memory. Aligned to 64, not zeroed. */
uint32_t stg_slabs_alloc(struct stg_slabs *slabs, uint64_t bytes);
void stg_slabs_free(struct stg_slabs *slabs, uint32_t place);

/* Valid until the piece is freed. */
static inline void *stg_slabs_at(const struct stg_slabs *slabs, uint32_t place)
{
    return slabs->memory[place / STG_SLAB_LINES] +
           (uint64_t)(place % STG_SLAB_LINES) * STG_SLAB_LINE;
}

#endif
