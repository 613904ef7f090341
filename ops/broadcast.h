/* SPDX-License-Identifier: Apache-2.0
 *
 * Two shapes as one, by numpy's rules: aligned at the last dimension, a dimension of 1 or
 * a missing one is repeated. Pure; any thread.
 */
#ifndef STG_OPS_BROADCAST_H
#define STG_OPS_BROADCAST_H

#include "core/batch.h"

/* When the pipeline is applied: sets rank and shape of ret, -1 where it is not known.
 * INVALID_ARGUMENT names both shapes. */
int stg_broadcast_infer(const struct stg_component *a, const struct stg_component *b,
                        struct stg_component *ret, struct stg_err *err);

/* How to walk over both at once. Neighbouring dimensions that behave alike are one, so
 * that equal shapes, and a tensor with a scalar, are a single run. */
struct stg_broadcast {
    int ndim; /* of the result */
    int64_t shape[STG_MAX_DIMS];
    int n_loops; /* at least 1; the last is the innermost */
    struct {
        int64_t n;
        int64_t a_stride, b_stride; /* in elements; 0: repeated */
    } loops[STG_MAX_DIMS + 1];
};

int stg_broadcast_plan(const struct stg_tensor *a, const struct stg_tensor *b,
                       struct stg_broadcast *ret, struct stg_err *err);

/* Calls run once for each innermost loop: first elements, strides 0 or 1, how many. */
void stg_broadcast_each(const struct stg_broadcast *plan,
                        void (*run)(void *owner, int64_t a, int64_t b, int64_t out),
                        void *owner);

#endif
