/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/element.h"
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "boundaries",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "a rising list of numbers, taken as float32"},
};

struct plan {
    size_t n;
    const float *boundaries;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    const struct stg_attr *attr =
        stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, "boundaries");
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    float *boundaries =
        stg_bump_alloc(ctx->bump, (attr->n_values + 1) * sizeof(*boundaries));
    if (plan == NULL || output == NULL || boundaries == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (input->dtype != STAGER_INT32 && input->dtype != STAGER_INT64 &&
        input->dtype != STAGER_FLOAT32 && input->dtype != STAGER_FLOAT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, not int32, int64, float32 or float64",
                       input->name, stg_dtype_name(input->dtype));
    for (size_t i = 0; i < attr->n_values; i++) {
        int rc = stg_literal_store(&attr->values[i], STAGER_FLOAT32, boundaries, i, err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "boundaries");
        if (i > 0 && !(boundaries[i - 1] <= boundaries[i]))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "boundaries must increase; number %zu does not", i);
    }
    plan->n = attr->n_values;
    plan->boundaries = boundaries;
    *output = *input;
    output->dtype = STAGER_INT32;
    ctx->plan = plan;
    return 0;
}

static int launch(struct stg_op_run *ctx, const struct stg_tensor *output,
                  struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    const void *boundaries = NULL;
    int rc = ctx->device->keep(ctx, plan->boundaries, plan->n * sizeof(*plan->boundaries),
                               &boundaries, err);
    if (rc < 0)
        return rc;
    return ctx->device->kernels->bucketize(
        ctx->device->stream, output->data, input->dtype, input->data,
        (size_t)stg_tensor_n(input), boundaries, plan->n, err);
}

/* How many boundaries are not above x: of NaN all. Halves the range without a branch. */
#define SEARCH(name, type, wide)                                                         \
    static void search_##name(const struct plan *plan, const void *in, int32_t *out,     \
                              int64_t n)                                                 \
    {                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                \
            wide x = (wide)((const type *)in)[i];                                        \
            const float *at = plan->boundaries;                                          \
            for (size_t left = plan->n; left > 0;) {                                     \
                size_t half = (left + 1) / 2;                                            \
                at += x < (wide)at[half - 1] ? 0 : half;                                 \
                left -= half;                                                            \
            }                                                                            \
            out[i] = (int32_t)(at - plan->boundaries);                                   \
        }                                                                                \
    }

SEARCH(int32, int32_t, float)
SEARCH(int64, int64_t, float)
SEARCH(float32, float, float)
SEARCH(float64, double, double)

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, STAGER_INT32, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    if (ctx->device != NULL)
        return launch(ctx, &output, err);
    int64_t n = stg_tensor_n(input);
    switch (input->dtype) {
    case STAGER_INT32: search_int32(ctx->plan, input->data, output.data, n); break;
    case STAGER_INT64: search_int64(ctx->plan, input->data, output.data, n); break;
    case STAGER_FLOAT32: search_float32(ctx->plan, input->data, output.data, n); break;
    default: search_float64(ctx->plan, input->data, output.data, n); break;
    }
    return 0;
}

const struct stg_op stg_op_bucketize = {
    .name = "bucketize",
    .summary = "Between which boundaries each number lies; as tf.raw_ops.Bucketize.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
    .launches = stg_launches_all,
};
