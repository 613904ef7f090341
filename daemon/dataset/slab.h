/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for many records of similar sizes that come and go in any order: slabs of 64
 * KiB, each cut into pieces of one size class (at most a quarter is lost to rounding); a
 * slab that is empty serves any class again. Larger pieces come from malloc. Every byte
 * is counted on the quota. One thread.
 */
#ifndef STG_DAEMON_SLAB_H
#define STG_DAEMON_SLAB_H

#include "daemon/storage/chunk.h"

#define STG_SLAB_CLASSES 40

struct stg_slab;

/* A zeroed struct with `quota` set is initialised. */
struct stg_slabs {
    struct stg_quota *quota;
    struct stg_slab *partial[STG_SLAB_CLASSES]; /* with pieces to give */
    struct stg_slab *empty;                     /* of no class now */
    uint32_t n_empty;
    uint64_t taken; /* bytes counted on the quota */
};

/* Pieces must have been freed. */
void stg_slabs_finish(struct stg_slabs *slabs);

/* Aligned to 8, not zeroed. NULL: out of quota or memory. */
void *stg_slabs_alloc(struct stg_slabs *slabs, uint64_t bytes);

/* bytes: as in alloc. */
void stg_slabs_free(struct stg_slabs *slabs, void *piece, uint64_t bytes);

#endif
