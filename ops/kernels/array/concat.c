/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/base/join.h"

static const struct stg_param params[] = {
    {.name = "axis",
     .type = STG_PARAM_INT,
     .preset = "0",
     .help = "the dimension along which to join; negative counts from the last"},
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
    /* TensorFlow lets a single input through, a scalar too. */
    if (rank == 0 && ctx->n_inputs > 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "scalars cannot be concatenated; use stack");
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = ctx->inputs[0];
    ctx->plan = plan;
    if (rank == 0)
        return 0;
    rc = stg_join_axis(ctx->node, rank, &plan->axis, err);
    if (rc < 0)
        return rc;
    for (size_t i = 1; i < ctx->n_inputs; i++) {
        const struct stg_component *other = &ctx->inputs[i];
        for (int d = 0; d < rank; d++) {
            int64_t *dim = &output->shape[d];
            if (d == plan->axis)
                *dim = *dim < 0 || other->shape[d] < 0 ? -1 : *dim + other->shape[d];
            else if (!stg_join_merge(dim, other->shape[d]))
                return stg_err(err, -STAGER_INVALID_ARGUMENT,
                               "input \"%s\" has %lld in dimension %d, others have %lld",
                               other->name, (long long)other->shape[d], d,
                               (long long)*dim);
        }
    }
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    if (ctx->n_inputs == 1)
        return ctx->view(ctx, 0, &ctx->inputs[0], err);
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *first = &ctx->inputs[0];
    int64_t shape[STG_MAX_DIMS], n_outer = 1;
    memcpy(shape, first->shape, sizeof(shape));
    for (int d = 0; d < plan->axis; d++)
        n_outer *= shape[d];
    for (size_t i = 1; i < ctx->n_inputs; i++) {
        for (int d = 0; d < first->ndim; d++) {
            if (d == plan->axis)
                shape[d] += ctx->inputs[i].shape[d];
            else if (shape[d] != ctx->inputs[i].shape[d])
                return stg_err(err, -STAGER_INVALID_ARGUMENT,
                               "input %zu has %lld in dimension %d, input 0 has %lld", i,
                               (long long)ctx->inputs[i].shape[d], d,
                               (long long)shape[d]);
        }
    }
    return stg_join(ctx, n_outer, first->ndim, shape, err);
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return ctx->n_inputs > 1 && plan->axis > 0 ? UINT64_MAX : 0;
}

const struct stg_op stg_op_concat = {
    .name = "concat",
    .summary = "Tensors joined along a dimension that they have; as tf.concat.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = -1,
    .flags = STG_OP_VIEWS | STG_OP_ONE_DTYPE,
    .infer = infer,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};
