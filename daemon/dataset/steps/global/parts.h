/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks of a global shuffle over files that keep records together, such as row
 * groups: blocks begin and end where these do, so that each is read once, and windows
 * have as many of them as fit. One thread.
 */
#ifndef STG_DAEMON_GLOBAL_PARTS_H
#define STG_DAEMON_GLOBAL_PARTS_H

#include "daemon/dataset/step.h"
#include "daemon/dataset/steps/global/permutation.h"
#include "daemon/storage/chunk.h"

struct stg_global_parts {
    uint64_t *ends; /* the number of records up to the end of each block; NULL: none */
    uint64_t n_blocks;
    /* Of each window, and behind the last: the place of its first record, and in the
     * order of the blocks its first block. */
    uint64_t *begins, *firsts;
    uint64_t n_windows;
    uint64_t most; /* records of a window */
    struct stg_quota *quota;
    uint64_t taken;
};

/* Divides the records of an extent with ends. block: records to read at once, at least; a
 * row group of which two do not fit a window of `window` records is divided into equal
 * blocks of at most `piece`. RESOURCE_EXHAUSTED. */
int stg_global_parts_init(struct stg_global_parts *parts, struct stg_quota *quota,
                          const struct stg_extent *extent, uint64_t block, uint64_t piece,
                          uint64_t window, struct stg_err *err);
void stg_global_parts_finish(struct stg_global_parts *parts);

/* Makes windows of at most that many records, but at least one block, of the blocks in
 * this order. */
void stg_global_parts_order(struct stg_global_parts *parts,
                            const struct stg_permutation *order, uint64_t window);

/* Returns the window that has a place. */
uint64_t stg_global_parts_find(const struct stg_global_parts *parts, uint64_t place);

static inline uint64_t stg_global_parts_first(const struct stg_global_parts *parts,
                                              uint64_t block)
{
    return block > 0 ? parts->ends[block - 1] : 0;
}

#endif
