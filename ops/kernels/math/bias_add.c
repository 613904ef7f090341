/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/kernels/math/elementwise.h"

static const struct stg_param params[] = {
    {.name = "data_format",
     .type = STG_PARAM_STRING,
     .preset = "N...C",
     .help = "what begins with NC: the bias belongs to dimension 1; N...C and NHWC: to "
             "the last"},
};

/* value as [n_outer, n, n_inner]. */
struct sizes {
    int64_t n_outer, n, n_inner;
};

typedef void (*bias_kernel)(const struct sizes *s, const void *in, const void *bias,
                            void *out);

struct plan {
    bias_kernel kernel;
    bool second;
};

#define KERNEL(op, dtype, type, value, ring, load, store)                                \
    static void op##_##dtype(const struct sizes *s, const void *in, const void *bias,    \
                             void *out)                                                  \
    {                                                                                    \
        const type *from = in, *b = bias;                                                \
        type *to = out;                                                                  \
        int64_t n_rows = s->n_inner == 1 ? s->n_outer : s->n_outer * s->n;               \
        int64_t n = s->n_inner == 1 ? s->n : s->n_inner;                                 \
        for (int64_t row = 0; row < n_rows; row++, from += n, to += n) {                 \
            ring y = (ring)load(b[s->n_inner == 1 ? 0 : row % s->n]);                    \
            if (s->n_inner == 1) {                                                       \
                STG_SAME_OR_APART                                                        \
                for (int64_t i = 0; i < n; i++)                                          \
                    to[i] = (type)store(((ring)load(from[i]) + (ring)load(b[i])));       \
            } else {                                                                     \
                STG_SAME_OR_APART                                                        \
                for (int64_t i = 0; i < n; i++)                                          \
                    to[i] = (type)store(((ring)load(from[i]) + y));                      \
            }                                                                            \
        }                                                                                \
    }

STG_EACH_NUMBER(KERNEL, bias)

static int differ(int64_t bias, int64_t dim, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "the bias has %" PRId64 " elements, the dimension %" PRId64, bias,
                   dim);
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    static const bias_kernel kernels[STG_N_DTYPES] = {STG_NUMBER_KERNELS(bias)};
    const struct stg_component *value = &ctx->inputs[0], *bias = &ctx->inputs[1];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    const char *format =
        stg_attr_string(ctx->node->attrs, ctx->node->n_attrs, "data_format", "N...C");
    plan->second = strncmp(format, "NC", 2) == 0;
    plan->kernel = kernels[value->dtype];
    if (!plan->second && (format[0] != 'N' || format[strlen(format) - 1] != 'C'))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "data_format must begin with NC, or begin with N and end with C; "
                       "it is \"%.64s\"",
                       format);
    if (plan->kernel == NULL || value->dtype != bias->dtype)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, input \"%s\" is %s; both must be one number "
                       "dtype",
                       value->name, stg_dtype_name(value->dtype), bias->name,
                       stg_dtype_name(bias->dtype));
    if (value->ndim < 2 || bias->ndim != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the value has rank %d, the bias %d; at least 2 and exactly 1 are "
                       "taken",
                       value->ndim, bias->ndim);
    *output = *value;
    int64_t *dim = &output->shape[plan->second ? 1 : value->ndim - 1];
    if (*dim >= 0 && bias->shape[0] >= 0 && *dim != bias->shape[0])
        return differ(bias->shape[0], *dim, err);
    *dim = *dim < 0 ? bias->shape[0] : *dim;
    ctx->plan = plan;
    return 0;
}

/* An addition of [n_outer, n, n_inner] and of n, which is repeated. */
static int launch(struct stg_op_run *ctx, const struct sizes *sizes, void *y,
                  struct stg_err *err)
{
    struct stg_kernel_pair how = {
        .op = STG_KERNEL_ADD,
        .dtype = ctx->inputs[0].dtype,
        .loops = {.n = 3,
                  .size = {sizes->n_outer, sizes->n, sizes->n_inner},
                  .stride = {{sizes->n * sizes->n_inner, sizes->n_inner, 1}, {0, 1, 0}}},
        .y = y,
        .x = {ctx->inputs[0].data, ctx->inputs[1].data}};
    return ctx->device->kernels->binary(ctx->device->stream, &how, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *value = &ctx->inputs[0], *bias = &ctx->inputs[1];
    int axis = plan->second ? 1 : value->ndim - 1;
    struct sizes sizes = {.n_outer = 1, .n = value->shape[axis], .n_inner = 1};
    if (sizes.n != bias->shape[0])
        return differ(bias->shape[0], sizes.n, err);
    for (int d = 0; d < value->ndim; d++) {
        if (d != axis)
            *(d < axis ? &sizes.n_outer : &sizes.n_inner) *= value->shape[d];
    }
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, value->dtype, value->ndim, value->shape, 0, &output, err);
    if (rc == 0 && ctx->device != NULL)
        return launch(ctx, &sizes, output.data, err);
    if (rc == 0 && stg_tensor_n(value) > 0)
        plan->kernel(&sizes, value->data, bias->data, output.data);
    return rc;
}

const struct stg_op stg_op_bias_add = {
    .name = "bias_add",
    .summary = "One number added to each channel; as tf.nn.bias_add.",
    STG_PARAMS(params),
    .min_inputs = 2,
    .max_inputs = 2,
    .flags = STG_OP_IN_PLACE,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
    .launches = stg_launches_all,
};
