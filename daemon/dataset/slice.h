/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks out of parts of several blocks: one behind another, or side by side. One thread
 * until emitted.
 */
#ifndef STG_DAEMON_SLICE_H
#define STG_DAEMON_SLICE_H

#include "daemon/dataset/block.h"

/* Some records of a block. */
struct stg_slice {
    struct stg_block *block;
    int64_t first, n; /* n at least 1 */
};

/* The records of n slices (n at least 1) with equal component shapes, one behind another
 * in memory of their own. Epoch is the first one's. The blocks stay the caller's. */
int stg_slices_gather(struct stg_quota *quota, const struct stg_slice *slices, size_t n,
                      const char *what, struct stg_block **ret, struct stg_err *err);

/* The components of n (at least 1) slices of equally many records side by side: nothing
 * is copied. Rows are those of the first slice that has some, the epoch is the first
 * one's. Takes references on the blocks. */
int stg_slices_join(struct stg_quota *quota, const struct stg_slice *slices, size_t n,
                    const char *what, struct stg_block **ret, struct stg_err *err);

#endif
