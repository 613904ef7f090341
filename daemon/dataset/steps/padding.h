/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches elements of different sizes. Pads each component with one value, to the size of
 * the largest or to a given size. For padded_batch and bucket_by_sequence_length. A
 * padding is immutable once created; any thread.
 */
#ifndef STG_DAEMON_PADDING_H
#define STG_DAEMON_PADDING_H

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"

struct stg_padding;

/* Creates a padding in bump from the step's attributes padded_shapes and padding_values,
 * for elements of schema `in`. `in` must live as long as the padding. INVALID_ARGUMENT: a
 * shape differs in rank or is smaller than a known dimension, a value does not have the
 * component's dtype, or a name is not that of a component. The text names step and
 * component. */
int stg_padding_create(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, const struct stg_padding **ret,
                       struct stg_err *err);

/* Returns the schema of a batch, in bump: a first dimension of `size`, then the padded
 * shapes. */
int stg_padding_schema(const struct stg_padding *padding, int64_t size,
                       struct stg_bump *bump, struct stg_schema *ret,
                       struct stg_err *err);

/* Checks that no record of the block is larger than its padded shape. Where the padded
 * shape is -1, `unknown` is the limit; -1: no limit. INVALID_ARGUMENT: the text names the
 * component that is too large. */
int stg_padding_check(const struct stg_padding *padding, const struct stg_block *block,
                      int64_t unknown, struct stg_err *err);

/* Returns whether the check lets records of any length pass, so that stg_padding_batch
 * takes uneven tensors. */
bool stg_padding_takes_uneven(const struct stg_padding *padding);

/* Combines the records of n blocks (n at least 1) into one record, the batch. The blocks
 * have passed stg_padding_check. A dimension of -1 becomes `unknown` or, if that is -1,
 * the size of the largest record. */
int stg_padding_batch(const struct stg_padding *padding, struct stg_quota *quota,
                      struct stg_block *const *blocks, size_t n, int64_t unknown,
                      struct stg_block **ret, struct stg_err *err);

#endif
