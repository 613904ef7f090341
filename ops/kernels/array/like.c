/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "dtype", .type = STG_PARAM_DTYPE, .help = "default: that of the input"},
};

struct plan {
    int dtype;
    bool one;
};

static int infer(struct stg_op_infer *ctx, bool one, struct stg_err *err)
{
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    const char *name =
        stg_attr_string(ctx->node->attrs, ctx->node->n_attrs, "dtype", NULL);
    *output = ctx->inputs[0];
    if (name != NULL)
        output->dtype = stg_dtype_from_name(name);
    if (one && output->dtype == STAGER_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "strings have no value 1");
    plan->dtype = output->dtype;
    plan->one = one;
    ctx->plan = plan;
    return 0;
}

static int infer_zeros(struct stg_op_infer *ctx, struct stg_err *err)
{
    return infer(ctx, false, err);
}

static int infer_ones(struct stg_op_infer *ctx, struct stg_err *err)
{
    return infer(ctx, true, err);
}

static void store_one(int dtype, void *to)
{
    static const struct stg_value one = {.kind = STG_VALUE_INT, .i = 1, .f = 1.0};
    if (dtype == STAGER_BOOL)
        *(uint8_t *)to = 1;
    else
        stg_literal_store(&one, dtype, to, 0, NULL);
}

static void fill_ones(const struct stg_tensor *output, size_t n)
{
    size_t bytes = stg_dtype_bytes(output->dtype), done = 1;
    char *to = output->data;
    if (n == 0)
        return;
    store_one(output->dtype, to);
    for (; done < n; done *= 2)
        memcpy(to + done * bytes, to, (done < n - done ? done : n - done) * bytes);
}

static bool launches(const void *plan, const struct stg_component *inputs,
                     size_t n_inputs, uint64_t on_host)
{
    return ((const struct plan *)plan)->dtype != STAGER_STRING;
}

static int launch(struct stg_op_run *ctx, const struct stg_tensor *output, size_t n,
                  struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    uint64_t value = 0;
    if (plan->one)
        store_one(plan->dtype, &value);
    return ctx->device->kernels->fill(ctx->device->stream, output->data,
                                      stg_dtype_bytes(plan->dtype), &value, n, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    size_t n = (size_t)stg_tensor_n(input);
    if (ctx->device != NULL)
        return launch(ctx, &output, n, err);
    if (plan->dtype == STAGER_STRING)
        memset((void *)(uintptr_t)output.begin, 0, (n + 1) * sizeof(*output.begin));
    else if (plan->one)
        fill_ones(&output, n);
    else
        memset(output.data, 0, n * stg_dtype_bytes(plan->dtype));
    return 0;
}

const struct stg_op stg_op_zeros_like = {
    .name = "zeros_like",
    .summary = "Zeros (false, empty strings) of the input's shape; as tf.zeros_like.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer_zeros,
    .run = run,
    .launches = launches,
};

const struct stg_op stg_op_ones_like = {
    .name = "ones_like",
    .summary = "Ones (true) of the input's shape; as tf.ones_like.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer_ones,
    .run = run,
    .launches = launches,
};
