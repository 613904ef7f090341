/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a block from parts of several blocks: one after another (gather), or side by side
 * (join). One thread until emitted.
 */
#ifndef STG_DAEMON_SLICE_H
#define STG_DAEMON_SLICE_H

#include "daemon/dataset/block.h"

/* Some records of a block. */
struct stg_slice {
    struct stg_block *block;
    int64_t first, n; /* n at least 1 */
};

/* Copies the records of n slices (n at least 1) with equal component shapes, one after
 * another, to a new block. The epoch is that of the first slice. The caller keeps the
 * blocks. */
int stg_slices_gather(struct stg_quota *quota, const struct stg_slice *slices, size_t n,
                      const char *what, struct stg_block **ret, struct stg_err *err);

/* Joins the components of n slices (n at least 1) with equal numbers of records, without
 * a copy. The rows are those of the first slice that has provenance; the epoch is that of
 * the first slice. Takes references on the blocks. */
int stg_slices_join(struct stg_quota *quota, const struct stg_slice *slices, size_t n,
                    const char *what, struct stg_block **ret, struct stg_err *err);

#endif
