/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/base/join.h"

static const struct stg_param params[] = {
    {.name = "axis",
     .type = STG_PARAM_INT,
     .preset = "0",
     .help = "where the new dimension goes; negative counts from the last"},
};

struct plan {
    int axis;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    int rc = stg_join_check(ctx, err);
    if (rc < 0)
        return rc;
    int rank = ctx->inputs[0].ndim;
    if (rank == STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the result would have more than %d dimensions", STG_MAX_DIMS);
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    rc = stg_join_axis(ctx->node, rank + 1, &plan->axis, err);
    if (rc < 0)
        return rc;
    struct stg_component merged = ctx->inputs[0];
    for (size_t i = 1; i < ctx->n_inputs; i++) {
        const struct stg_component *other = &ctx->inputs[i];
        for (int d = 0; d < rank; d++) {
            if (!stg_join_merge(&merged.shape[d], other->shape[d]))
                return stg_err(err, -STAGER_INVALID_ARGUMENT,
                               "input \"%s\" has %lld in dimension %d, others have %lld",
                               other->name, (long long)other->shape[d], d,
                               (long long)merged.shape[d]);
        }
    }
    *output = merged;
    output->ndim = rank + 1;
    output->shape[plan->axis] = (int64_t)ctx->n_inputs;
    for (int d = plan->axis; d < rank; d++)
        output->shape[d + 1] = merged.shape[d];
    ctx->plan = plan;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *first = &ctx->inputs[0];
    for (size_t i = 1; i < ctx->n_inputs; i++) {
        char a[128], b[128];
        if (memcmp(ctx->inputs[i].shape, first->shape,
                   (size_t)first->ndim * sizeof(first->shape[0])) != 0)
            return stg_err(
                err, -STAGER_INVALID_ARGUMENT, "input %zu has shape %s, input 0 has %s",
                i, stg_shape_text(ctx->inputs[i].shape, first->ndim, a, sizeof(a)),
                stg_shape_text(first->shape, first->ndim, b, sizeof(b)));
    }
    int64_t shape[STG_MAX_DIMS], n_outer = 1;
    for (int d = 0; d < plan->axis; d++) {
        shape[d] = first->shape[d];
        n_outer *= shape[d];
    }
    shape[plan->axis] = (int64_t)ctx->n_inputs;
    for (int d = plan->axis; d < first->ndim; d++)
        shape[d + 1] = first->shape[d];
    return stg_join(ctx, n_outer, first->ndim + 1, shape, err);
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return plan->axis > 0 ? UINT64_MAX : 0;
}

const struct stg_op stg_op_stack = {
    .name = "stack",
    .summary = "Tensors of one shape joined along a new dimension; as tf.stack.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = -1,
    .flags = STG_OP_ONE_DTYPE,
    .infer = infer,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};
