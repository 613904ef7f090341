/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/move.h"

static const struct stg_param params[] = {
    {.name = "axis",
     .type = STG_PARAM_INT,
     .preset = "batch_dims",
     .help = "the dimension of params that indices count in; negative counts from the "
             "last"},
    {.name = "batch_dims",
     .type = STG_PARAM_INT,
     .preset = "0",
     .help = "how many dimensions params and indices have in common; negative counts "
             "from the rank of indices"},
};

struct plan {
    int axis, batch_dims;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *from = &ctx->inputs[0], *indices = &ctx->inputs[1];
    const struct stg_node *node = ctx->node;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (indices->dtype != STAGER_INT32 && indices->dtype != STAGER_INT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; indices must be int32 or int64",
                       indices->name, stg_dtype_name(indices->dtype));
    int64_t batch = stg_attr_int(node->attrs, node->n_attrs, "batch_dims", 0);
    if (batch < -indices->ndim || batch > indices->ndim)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "batch_dims %" PRId64 " is not in [%d, %d]", batch, -indices->ndim,
                       indices->ndim);
    plan->batch_dims = (int)(batch < 0 ? batch + indices->ndim : batch);
    int rc = stg_move_axis(node, "axis", plan->batch_dims, from->ndim, &plan->axis, err);
    if (rc < 0)
        return rc;
    if (plan->batch_dims > plan->axis)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "batch_dims %d is above axis %d",
                       plan->batch_dims, plan->axis);
    if (from->ndim - 1 + indices->ndim - plan->batch_dims > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the result would have more than %d dimensions", STG_MAX_DIMS);
    output->dtype = from->dtype;
    for (int d = 0; d < plan->axis; d++)
        output->shape[output->ndim++] = from->shape[d];
    for (int d = plan->batch_dims; d < indices->ndim; d++)
        output->shape[output->ndim++] = indices->shape[d];
    for (int d = plan->axis + 1; d < from->ndim; d++)
        output->shape[output->ndim++] = from->shape[d];
    for (int d = 0; d < plan->batch_dims; d++) {
        if (from->shape[d] >= 0 && indices->shape[d] >= 0 &&
            from->shape[d] != indices->shape[d])
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "params has %" PRId64
                           " in dimension %d, indices have %" PRId64,
                           from->shape[d], d, indices->shape[d]);
        if (output->shape[d] < 0)
            output->shape[d] = indices->shape[d];
    }
    ctx->plan = plan;
    return 0;
}

/* params as [batch, outer, dim, inner], indices as [batch, n]. */
struct sizes {
    int64_t batch, outer, dim, inner, n;
    int ndim;
    int64_t shape[STG_MAX_DIMS];
};

static int measure(const struct stg_op_run *ctx, struct sizes *ret, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *from = &ctx->inputs[0], *indices = &ctx->inputs[1];
    *ret = (struct sizes){.batch = 1, .outer = 1, .inner = 1, .n = 1};
    for (int d = 0; d < plan->axis; d++) {
        if (d < plan->batch_dims && from->shape[d] != indices->shape[d])
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "params has %" PRId64
                           " in dimension %d, indices have %" PRId64,
                           from->shape[d], d, indices->shape[d]);
        *(d < plan->batch_dims ? &ret->batch : &ret->outer) *= from->shape[d];
        ret->shape[ret->ndim++] = from->shape[d];
    }
    for (int d = plan->batch_dims; d < indices->ndim; d++) {
        ret->n *= indices->shape[d];
        ret->shape[ret->ndim++] = indices->shape[d];
    }
    ret->dim = from->shape[plan->axis];
    for (int d = plan->axis + 1; d < from->ndim; d++) {
        ret->inner *= from->shape[d];
        ret->shape[ret->ndim++] = from->shape[d];
    }
    return 0;
}

/* Widens the indices, and checks each. */
static int read_indices(struct stg_op_run *ctx, const struct sizes *sizes, int64_t **ret,
                        struct stg_err *err)
{
    const struct stg_tensor *indices = &ctx->inputs[1];
    int64_t n = stg_tensor_n(indices);
    int64_t *wide = stg_bump_alloc_raw(ctx->scratch, (size_t)n * sizeof(*wide));
    if (wide == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    bool bad = false, empty = sizes->batch * sizes->outer * sizes->inner == 0;
    for (int64_t i = 0; i < n; i++) {
        wide[i] = stg_tensor_index(indices, i);
        bad |= (uint64_t)wide[i] >= (uint64_t)sizes->dim;
    }
    for (int64_t i = 0; bad && !empty && i < n; i++) {
        if (wide[i] < 0 || wide[i] >= sizes->dim)
            return stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(indices, i),
                               "index %" PRId64 " (element %" PRId64
                               " of the indices) is not in [0, %" PRId64 ")",
                               wide[i], i, sizes->dim);
    }
    *ret = wide;
    return 0;
}

#define TAKE(type)                                                                       \
    static void take_##type(const struct sizes *s, const int64_t *at, const void *in,    \
                            void *out)                                                   \
    {                                                                                    \
        const type *from = in;                                                           \
        type *restrict to = out;                                                         \
        for (int64_t b = 0; b < s->batch * s->outer; b++, from += s->dim * s->inner) {   \
            const int64_t *index = at + b / s->outer * s->n;                             \
            for (int64_t i = 0; s->inner == 1 && i < s->n; i++)                          \
                *to++ = from[index[i]];                                                  \
            for (int64_t i = 0; s->inner != 1 && i < s->n; i++, to += s->inner)          \
                memcpy(to, from + index[i] * s->inner, (size_t)s->inner * sizeof(type)); \
        }                                                                                \
    }

TAKE(uint8_t)
TAKE(uint16_t)
TAKE(uint32_t)
TAKE(uint64_t)

static int take_strings(struct stg_op_run *ctx, const struct sizes *s, const int64_t *at,
                        struct stg_err *err)
{
    size_t n = (size_t)(s->batch * s->outer * s->n * s->inner);
    int64_t *picks = stg_bump_alloc_raw(ctx->scratch, n * sizeof(*picks)), *to = picks;
    if (picks == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (int64_t b = 0; b < s->batch * s->outer; b++) {
        for (int64_t i = 0; i < s->n; i++) {
            int64_t index = b * s->dim + at[b / s->outer * s->n + i];
            for (int64_t k = 0; k < s->inner; k++)
                *to++ = index * s->inner + k;
        }
    }
    return stg_move_strings(ctx, 0, &ctx->inputs[0], picks, s->ndim, s->shape, NULL, 0,
                            err);
}

static int launch(struct stg_op_run *ctx, const struct sizes *sizes, struct stg_err *err)
{
    const struct stg_tensor *from = &ctx->inputs[0], *indices = &ctx->inputs[1];
    struct stg_tensor output;
    struct stg_kernel_gather how = {.unit = stg_dtype_bytes(from->dtype),
                                    .indices_dtype = indices->dtype,
                                    .batch = sizes->batch,
                                    .outer = sizes->outer,
                                    .dim = sizes->dim,
                                    .inner = sizes->inner,
                                    .n = sizes->n,
                                    .x = from->data,
                                    .indices = indices->data,
                                    .bad = ctx->device->bad};
    int rc = ctx->alloc(ctx, 0, from->dtype, sizes->ndim, sizes->shape, 0, &output, err);
    how.y = rc == 0 ? output.data : NULL;
    return rc < 0 ? rc : ctx->device->kernels->gather(ctx->device->stream, &how, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *from = &ctx->inputs[0];
    struct sizes sizes;
    struct stg_tensor output;
    int64_t *at = NULL;
    int rc = measure(ctx, &sizes, err);
    if (rc == 0 && ctx->device != NULL)
        return launch(ctx, &sizes, err);
    if (rc == 0)
        rc = read_indices(ctx, &sizes, &at, err);
    if (rc == 0 && from->dtype == STAGER_STRING)
        return take_strings(ctx, &sizes, at, err);
    if (rc == 0)
        rc = ctx->alloc(ctx, 0, from->dtype, sizes.ndim, sizes.shape, 0, &output, err);
    if (rc < 0)
        return rc;
    switch (stg_dtype_bytes(from->dtype)) {
    case 1: take_uint8_t(&sizes, at, from->data, output.data); break;
    case 2: take_uint16_t(&sizes, at, from->data, output.data); break;
    case 4: take_uint32_t(&sizes, at, from->data, output.data); break;
    default: take_uint64_t(&sizes, at, from->data, output.data); break;
    }
    return 0;
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    if (plan->batch_dims > 0)
        return 3;
    return plan->axis == 0 ? 2 : 1;
}

const struct stg_op stg_op_gather = {
    .name = "gather",
    .summary = "Slices of a tensor by their numbers; as tf.gather.",
    STG_PARAMS(params),
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};
