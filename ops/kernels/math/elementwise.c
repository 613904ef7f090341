/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/math/elementwise.h"
#include "ops/base/element.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* The number of the name, or n. */
static size_t number_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    return n;
}

/* ---- two inputs ---- */

struct binary {
    stg_strip_kernel kernel;
    int dtype;           /* of the result */
    size_t on_device;    /* enum stg_kernel_binary; its end: no kernel */
    const char *refusal; /* what an element that cannot be is */
};

static size_t binary_on_device(const char *op, bool is_closed)
{
    static const char *const names[STG_KERNEL_N_BINARY] = {
        [STG_KERNEL_ADD] = "add",
        [STG_KERNEL_SUBTRACT] = "subtract",
        [STG_KERNEL_MULTIPLY] = "multiply",
        [STG_KERNEL_DIVIDE] = "divide",
        [STG_KERNEL_MINIMUM] = "minimum",
        [STG_KERNEL_MAXIMUM] = "maximum",
        [STG_KERNEL_EQUAL] = "equal",
        [STG_KERNEL_NOT_EQUAL] = "not_equal",
        [STG_KERNEL_LESS] = "less",
        [STG_KERNEL_LESS_EQUAL] = "less_equal",
        [STG_KERNEL_GREATER] = "greater",
        [STG_KERNEL_GREATER_EQUAL] = "greater_equal",
        [STG_KERNEL_LOGICAL_AND] = "logical_and",
        [STG_KERNEL_LOGICAL_OR] = "logical_or",
    };
    size_t ret = number_of(op, names, STG_KERNEL_N_BINARY);
    /* Integers are divided as floats, which the kernel does not do. */
    return ret == STG_KERNEL_DIVIDE && !is_closed ? STG_KERNEL_N_BINARY : ret;
}

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
    plan->on_device = binary_on_device(ctx->node->op, plan->dtype == a->dtype);
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

struct stg_kernel_loops stg_broadcast_loops(const struct stg_broadcast *broadcast)
{
    struct stg_kernel_loops ret = {.n = broadcast->n_loops};
    static_assert(STG_KERNEL_LOOPS == STG_MAX_DIMS + 1, "room for all loops");
    for (int d = 0; d < ret.n; d++) {
        ret.size[d] = broadcast->loops[d].n;
        ret.stride[0][d] = broadcast->loops[d].stride[0];
        ret.stride[1][d] = broadcast->loops[d].stride[1];
    }
    return ret;
}

bool stg_binary_launches(const void *plan, const struct stg_component *inputs,
                         size_t n_inputs, uint64_t on_host)
{
    return ((const struct binary *)plan)->on_device < STG_KERNEL_N_BINARY;
}

static int launch_binary(struct stg_op_run *ctx, const struct stg_broadcast *broadcast,
                         void *y, struct stg_err *err)
{
    const struct binary *plan = ctx->plan;
    struct stg_kernel_pair how = {.op = (enum stg_kernel_binary)plan->on_device,
                                  .dtype = ctx->inputs[0].dtype,
                                  .loops = stg_broadcast_loops(broadcast),
                                  .y = y,
                                  .x = {ctx->inputs[0].data, ctx->inputs[1].data}};
    return ctx->device->kernels->binary(ctx->device->stream, &how, err);
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
    if (ctx->device != NULL)
        return launch_binary(ctx, &broadcast, output.data, err);
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
    size_t on_device; /* enum stg_kernel_unary; its end: no kernel */
};

static size_t unary_on_device(const char *op)
{
    static const char *const names[STG_KERNEL_N_UNARY] = {
        [STG_KERNEL_NEGATIVE] = "negative", [STG_KERNEL_ABS] = "abs",
        [STG_KERNEL_RELU] = "relu",         [STG_KERNEL_LOGICAL_NOT] = "logical_not",
        [STG_KERNEL_EXP] = "exp",           [STG_KERNEL_LOG] = "log",
        [STG_KERNEL_SQRT] = "sqrt",         [STG_KERNEL_TANH] = "tanh",
        [STG_KERNEL_SIGMOID] = "sigmoid",
    };
    return number_of(op, names, STG_KERNEL_N_UNARY);
}

bool stg_unary_launches(const void *plan, const struct stg_component *inputs,
                        size_t n_inputs, uint64_t on_host)
{
    return ((const struct unary *)plan)->on_device < STG_KERNEL_N_UNARY;
}

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
    plan->on_device = unary_on_device(ctx->node->op);
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
    if (ctx->device != NULL)
        return ctx->device->kernels->unary(
            ctx->device->stream, (enum stg_kernel_unary)plan->on_device, input->dtype,
            output.data, input->data, (size_t)stg_tensor_n(input), err);
    plan->kernel(input->data, output.data, stg_tensor_n(input));
    return 0;
}
