/* SPDX-License-Identifier: Apache-2.0
 *
 * What ops of all kinds use.
 */
#include "ops/base/op.h"

struct stg_component *stg_op_outputs(struct stg_op_infer *ctx, size_t n)
{
    ctx->outputs = stg_bump_alloc(ctx->bump, n * sizeof(*ctx->outputs));
    ctx->n_outputs = ctx->outputs != NULL ? n : 0;
    return ctx->outputs;
}

bool stg_component_fits(const struct stg_component *is,
                        const struct stg_component *wanted)
{
    bool same = is->dtype == wanted->dtype && is->ndim == wanted->ndim;
    for (int d = 0; same && d < is->ndim; d++)
        same =
            is->shape[d] < 0 || wanted->shape[d] < 0 || is->shape[d] == wanted->shape[d];
    return same;
}

uint64_t stg_rows_first(const struct stg_op_run *ctx)
{
    return 1;
}

bool stg_launches_all(const void *plan, const struct stg_component *inputs,
                      size_t n_inputs, uint64_t on_host)
{
    return true;
}
