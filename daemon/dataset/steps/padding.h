/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of different sizes as one batch: each component is made as large as the
 * largest, or as large as was said, and filled up with one value. For padded_batch and
 * bucket_by_sequence_length. Immutable once made; any thread.
 */
#ifndef STG_DAEMON_PADDING_H
#define STG_DAEMON_PADDING_H

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"

struct stg_padding;

/* Of the step's attributes padded_shapes and padding_values, for elements of schema `in`,
 * which must live as long; in bump. INVALID_ARGUMENT names step and component: a shape of
 * another rank, or smaller than what is known; a value that is not of the component's
 * dtype; a name that is no component's. */
int stg_padding_create(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, const struct stg_padding **ret,
                       struct stg_err *err);

/* What a batch is: padded shapes behind a dimension of `size`. In bump. */
int stg_padding_schema(const struct stg_padding *padding, int64_t size,
                       struct stg_bump *bump, struct stg_schema *ret,
                       struct stg_err *err);

/* May the records of this block be padded? Dimensions that are -1 are at most `unknown`,
 * unless that is -1. Else INVALID_ARGUMENT says which component is too large. */
int stg_padding_check(const struct stg_padding *padding, const struct stg_block *block,
                      int64_t unknown, struct stg_err *err);

/* The records of n blocks (n at least 1), which were checked, as one record: a batch.
 * Dimensions that are -1 become `unknown`, or, when that is -1, those of the largest. */
int stg_padding_batch(const struct stg_padding *padding, struct stg_quota *quota,
                      struct stg_block *const *blocks, size_t n, int64_t unknown,
                      struct stg_block **ret, struct stg_err *err);

#endif
