/* SPDX-License-Identifier: Apache-2.0
 *
 * What concat and stack share: several tensors side by side along one axis.
 */
#ifndef STG_OPS_BASE_JOIN_H
#define STG_OPS_BASE_JOIN_H

#include "ops/base/op.h"

/* Inputs as n_outer pieces of consecutive elements each: the output is piece 0 of every
 * input in turn, then piece 1, and so on. shape is the output's. Writes output 0. */
int stg_join(struct stg_op_run *ctx, int64_t n_outer, int ndim, const int64_t *shape,
             struct stg_err *err);

/* Same dtype, and the same rank: INVALID_ARGUMENT names the two inputs that differ. */
int stg_join_check(const struct stg_op_infer *ctx, struct stg_err *err);

/* -rank <= axis < rank becomes 0 <= axis < rank. */
int stg_join_axis(const struct stg_node *node, int rank, int *ret, struct stg_err *err);

/* *into is what is known of both: an unknown dimension takes the other's size. False when
 * they differ. */
bool stg_join_merge(int64_t *into, int64_t dim);

#endif
