/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of an op on many threads: parts of the rows at once, each with tensors that are
 * slices of the whole ones. Outputs are written where they belong; strings, whose place
 * is known only when all are there, are written beside and then copied. The result has
 * the bytes that the op gives whole, for any number of threads.
 *
 * What belongs to an executor, and to its thread.
 */
#ifndef STG_OPS_EXEC_SPLIT_H
#define STG_OPS_EXEC_SPLIT_H

#include "ops/base/op.h"
#include "ops/base/parallel.h"

struct stg_split;

/* parallel is borrowed. NULL when out of memory. */
struct stg_split *stg_split_create(const struct stg_parallel *parallel);

/* NULL is allowed. */
void stg_split_destroy(struct stg_split *split);

/* Runs op, which has n_outputs, as op->run(whole) does. False: it did not, the caller
 * runs it whole, and gets from whole->alloc once more what was allocated already. That is
 * so where the op has no rows or too few bytes, and where a part failed: the whole run
 * finds what is wrong, and in which row first. */
bool stg_split_run(struct stg_split *split, const struct stg_op *op,
                   struct stg_op_run *whole, size_t n_outputs);

#endif
