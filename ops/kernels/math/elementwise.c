/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/math/elementwise.h"
#include "ops/base/element.h"

#include <inttypes.h>
#include <string.h>

struct binary {
    stg_strip_kernel kernel;
    int dtype;           /* of the result */
    const char *refusal; /* what an element that cannot be is */
};

int stg_binary_infer(struct stg_op_infer *ctx, const stg_strip_kernel *kernels,
                     const int *out_dtypes, const char *what, struct stg_err *err)
{
    const struct stg_component *a = &ctx->inputs[0], *b = &ctx->inputs[1];
    struct binary *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (a->dtype != b->dtype)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, input \"%s\" is %s; cast one, or give "
                       "a constant the other's dtype",
                       a->name, stg_dtype_name(a->dtype), b->name,
                       stg_dtype_name(b->dtype));
    plan->kernel = kernels[a->dtype];
    if (plan->kernel == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "inputs are %s, which %s",
                       stg_dtype_name(a->dtype), what);
    plan->dtype = out_dtypes != NULL ? out_dtypes[a->dtype] : a->dtype;
    plan->refusal = strcmp(ctx->node->op, "pow") == 0 ? "an integer to a negative power"
                                                      : "integer division by zero";
    output->dtype = plan->dtype;
    ctx->plan = plan;
    return stg_broadcast_infer(ctx->inputs, 2, output, err);
}

struct walk {
    stg_strip_kernel kernel;
    const struct stg_broadcast *broadcast;
    const struct stg_tensor *inputs;
    int64_t bytes[STG_BROADCAST_MAX], out_bytes; /* of an element */
    struct stg_strip strip;
    char *out;
};

static int64_t run_strip(void *owner, const int64_t *inputs, int64_t output)
{
    struct walk *walk = owner;
    for (size_t k = 0; k < walk->broadcast->n_inputs; k++)
        walk->strip.in[k] =
            (const char *)walk->inputs[k].data + inputs[k] * walk->bytes[k];
    walk->strip.out = walk->out + output * walk->out_bytes;
    walk->strip.first = inputs;
    int64_t bad = walk->kernel(&walk->strip);
    return bad < 0 ? -1 : output + bad;
}

int64_t stg_strips_run(const struct stg_broadcast *broadcast,
                       const struct stg_tensor *inputs, stg_strip_kernel kernel,
                       const struct stg_tensor *output)
{
    int inner = broadcast->n_loops - 1;
    struct walk walk = {
        .kernel = kernel,
        .broadcast = broadcast,
        .inputs = inputs,
        .strip = {.n = broadcast->loops[inner].n, .inputs = inputs},
        .out = output->data,
        .out_bytes = stg_dtype_bytes(output->dtype),
    };
    for (size_t k = 0; k < broadcast->n_inputs; k++) {
        walk.bytes[k] = stg_dtype_bytes(inputs[k].dtype);
        walk.strip.step[k] = broadcast->loops[inner].stride[k];
    }
    return stg_broadcast_each(broadcast, run_strip, &walk);
}

int stg_binary_run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct binary *plan = ctx->plan;
    struct stg_broadcast broadcast;
    struct stg_tensor output;
    int rc = stg_broadcast_plan(ctx->inputs, 2, &broadcast, err);
    if (rc < 0)
        return rc;
    rc =
        ctx->alloc(ctx, 0, plan->dtype, broadcast.ndim, broadcast.shape, 0, &output, err);
    if (rc < 0)
        return rc;
    int64_t bad = stg_strips_run(&broadcast, ctx->inputs, plan->kernel, &output);
    if (bad < 0)
        return 0;
    return stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(&output, bad),
                       "%s at element %" PRId64 " of the result", plan->refusal, bad);
}

uint64_t stg_broadcast_rows(const struct stg_op_run *ctx)
{
    int ndim = 0;
    uint64_t ret = 0;
    for (size_t k = 0; k < ctx->n_inputs; k++)
        ndim = ctx->inputs[k].ndim > ndim ? ctx->inputs[k].ndim : ndim;
    for (size_t k = 0; k < ctx->n_inputs; k++) {
        if (ctx->inputs[k].ndim == ndim && ndim > 0 && ctx->inputs[k].shape[0] != 1)
            ret |= 1ull << k;
    }
    return ret;
}

/* ---- one input ---- */

struct unary {
    stg_each_kernel kernel;
};

int stg_unary_infer(struct stg_op_infer *ctx, const stg_each_kernel *kernels,
                    struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct unary *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->kernel = kernels[input->dtype];
    if (plan->kernel == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "input \"%s\" is %s; %s takes %s",
                       input->name, stg_dtype_name(input->dtype), ctx->node->op,
                       kernels[STAGER_INT32] == NULL    ? "floats: cast it"
                       : kernels[STAGER_UINT32] == NULL ? "floats and signed integers"
                                                        : "numbers");
    *output = *input;
    ctx->plan = plan;
    return 0;
}

int stg_unary_run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct unary *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, input->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    plan->kernel(input->data, output.data, stg_tensor_n(input));
    return 0;
}
