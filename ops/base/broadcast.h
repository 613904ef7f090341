/* SPDX-License-Identifier: Apache-2.0
 *
 * Two or three shapes as one, by numpy's rules: aligned at the last dimension, a
 * dimension of 1 or a missing one is repeated. Pure; any thread.
 */
#ifndef STG_OPS_BASE_BROADCAST_H
#define STG_OPS_BASE_BROADCAST_H

#include "core/batch.h"

#define STG_BROADCAST_MAX 3

/* When the pipeline is applied: sets rank and shape of ret from n inputs, -1 where it is
 * not known. INVALID_ARGUMENT names two shapes that do not go together. */
int stg_broadcast_infer(const struct stg_component *inputs, size_t n,
                        struct stg_component *ret, struct stg_err *err);

/* How to walk over all at once. Neighbouring dimensions that behave alike are one, so
 * that equal shapes, and a tensor with a scalar, are a single run. */
struct stg_broadcast {
    int ndim; /* of the result */
    int64_t shape[STG_MAX_DIMS];
    size_t n_inputs;
    int n_loops; /* at least 1; the last is the innermost */
    struct {
        int64_t n;
        int64_t stride[STG_BROADCAST_MAX]; /* in elements; 0: repeated */
    } loops[STG_MAX_DIMS + 1];
};

int stg_broadcast_plan(const struct stg_tensor *inputs, size_t n,
                       struct stg_broadcast *ret, struct stg_err *err);

/* Calls run once for each innermost loop with the number of the first element of each
 * input and of the output. Stops where run gives anything but -1, and gives that; -1 when
 * all is done. */
int64_t stg_broadcast_each(const struct stg_broadcast *plan,
                           int64_t (*run)(void *owner, const int64_t *inputs,
                                          int64_t output),
                           void *owner);

#endif
