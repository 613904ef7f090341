/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/element.h"
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .required = true,
     .help = "any but string"},
};

struct plan {
    int dtype;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    int from = ctx->inputs[0].dtype;
    int to = stg_dtype_from_name(
        stg_attr_string(ctx->node->attrs, ctx->node->n_attrs, "dtype", ""));
    if (from != to && (from == STAGER_STRING || to == STAGER_STRING))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s cannot be cast to %s; as_string and decode_csv turn numbers "
                       "into text and text into numbers",
                       stg_dtype_name(from), stg_dtype_name(to));
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->dtype = to;
    *output = ctx->inputs[0];
    output->dtype = to;
    ctx->plan = plan;
    return 0;
}

/* Every dtype goes through one of three wide types that hold all its values, a chunk at a
 * time. */
#define CHUNK 256

union wide {
    int64_t i[CHUNK];
    uint64_t u[CHUNK];
    double f[CHUNK];
};

enum width { WIDE_INT, WIDE_UINT, WIDE_FLOAT };

#define LOAD(member, type, expression)                                                   \
    for (size_t k = 0; k < n; k++) {                                                     \
        type x = ((const type *)data)[first + k];                                        \
        wide->member[k] = (expression);                                                  \
    }                                                                                    \
    break

static enum width load(int dtype, const void *data, size_t first, size_t n,
                       union wide *wide)
{
    switch (dtype) {
    case STAGER_INT8: LOAD(i, int8_t, x);
    case STAGER_INT16: LOAD(i, int16_t, x);
    case STAGER_INT32: LOAD(i, int32_t, x);
    case STAGER_INT64: LOAD(i, int64_t, x);
    case STAGER_UINT8: LOAD(i, uint8_t, x);
    case STAGER_UINT16: LOAD(i, uint16_t, x);
    case STAGER_UINT32: LOAD(i, uint32_t, x);
    case STAGER_BOOL: LOAD(i, uint8_t, x != 0);
    case STAGER_UINT64: LOAD(u, uint64_t, x);
    case STAGER_FLOAT64: LOAD(f, double, x);
    case STAGER_FLOAT32: LOAD(f, float, (double)x);
    case STAGER_FLOAT16: LOAD(f, uint16_t, (double)stg_f32_from_f16(x));
    default: LOAD(f, uint16_t, (double)stg_f32_from_bf16(x));
    }
    switch (dtype) {
    case STAGER_UINT64: return WIDE_UINT;
    case STAGER_FLOAT64:
    case STAGER_FLOAT32:
    case STAGER_FLOAT16:
    case STAGER_BFLOAT16: return WIDE_FLOAT;
    default: return WIDE_INT;
    }
}

/* Truncation; what does not fit is the smallest value, as x86's conversion and so
 * TensorFlow on it. */
static inline int32_t int32_of(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}

static inline int64_t int64_of(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

static inline uint64_t uint64_of(double x)
{
    return x >= 0x1p63 && x < 0x1p64 ? (uint64_t)x : (uint64_t)int64_of(x);
}

#define STORE(member, type, expression)                                                  \
    for (size_t k = 0; k < n; k++) {                                                     \
        type *to = (type *)data + first + k;                                             \
        __typeof__(wide->member[0]) x = wide->member[k];                                 \
        *to = (type)(expression);                                                        \
    }                                                                                    \
    break

static void store_float(int dtype, const union wide *wide, size_t n, void *data,
                        size_t first)
{
    switch (dtype) {
    case STAGER_INT8: STORE(f, int8_t, int32_of(x));
    case STAGER_INT16: STORE(f, int16_t, int32_of(x));
    case STAGER_INT32: STORE(f, int32_t, int32_of(x));
    case STAGER_INT64: STORE(f, int64_t, int64_of(x));
    case STAGER_UINT8: STORE(f, uint8_t, int32_of(x));
    case STAGER_UINT16: STORE(f, uint16_t, int32_of(x));
    case STAGER_UINT32: STORE(f, uint32_t, int64_of(x));
    case STAGER_UINT64: STORE(f, uint64_t, uint64_of(x));
    case STAGER_BOOL: STORE(f, uint8_t, x != 0);
    case STAGER_FLOAT32: STORE(f, float, x);
    case STAGER_FLOAT64: STORE(f, double, x);
    case STAGER_FLOAT16: STORE(f, uint16_t, stg_f16_from_f64((float)x));
    default: STORE(f, uint16_t, stg_bf16_from_f32((float)x));
    }
}

static void store_int(int dtype, const union wide *wide, size_t n, void *data,
                      size_t first)
{
    switch (dtype) {
    case STAGER_INT8:
    case STAGER_UINT8: STORE(i, uint8_t, x);
    case STAGER_INT16:
    case STAGER_UINT16: STORE(i, uint16_t, x);
    case STAGER_INT32:
    case STAGER_UINT32: STORE(i, uint32_t, x);
    case STAGER_INT64:
    case STAGER_UINT64: STORE(i, uint64_t, x);
    case STAGER_BOOL: STORE(i, uint8_t, x != 0);
    case STAGER_FLOAT32: STORE(i, float, x);
    case STAGER_FLOAT64: STORE(i, double, x);
    case STAGER_FLOAT16: STORE(i, uint16_t, stg_f16_from_f64((float)x));
    default: STORE(i, uint16_t, stg_bf16_from_f32((float)x));
    }
}

static void store_uint(int dtype, const union wide *wide, size_t n, void *data,
                       size_t first)
{
    switch (dtype) {
    case STAGER_FLOAT32: STORE(u, float, x);
    case STAGER_FLOAT64: STORE(u, double, x);
    case STAGER_FLOAT16: STORE(u, uint16_t, stg_f16_from_f64((float)x));
    case STAGER_BFLOAT16: STORE(u, uint16_t, stg_bf16_from_f32((float)x));
    default: store_int(dtype, wide, n, data, first); break;
    }
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    if (input->dtype == plan->dtype)
        return ctx->view(ctx, 0, input, err);
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    size_t n = (size_t)stg_tensor_n(input);
    if (ctx->device != NULL)
        return ctx->device->kernels->cast(ctx->device->stream, plan->dtype, output.data,
                                          input->dtype, input->data, n, err);
    union wide wide;
    for (size_t first = 0; first < n; first += CHUNK) {
        size_t chunk = n - first < CHUNK ? n - first : CHUNK;
        switch (load(input->dtype, input->data, first, chunk, &wide)) {
        case WIDE_INT: store_int(plan->dtype, &wide, chunk, output.data, first); break;
        case WIDE_UINT: store_uint(plan->dtype, &wide, chunk, output.data, first); break;
        case WIDE_FLOAT:
            store_float(plan->dtype, &wide, chunk, output.data, first);
            break;
        }
    }
    return 0;
}

/* Of the same dtype it is a view. */
static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return ctx->inputs[0].dtype != plan->dtype;
}

const struct stg_op stg_op_cast = {
    .name = "cast",
    .summary = "Numbers of another dtype: integers wrap, floats are truncated towards "
               "zero; as tf.cast.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_VIEWS,
    .infer = infer,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};
