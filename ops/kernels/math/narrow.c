/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/math/elementwise.h"

static const struct stg_param params[] = {
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .required = true,
     .help = "half as wide as the input's"},
};

/* -1, or the first element that does not fit. */
typedef int64_t (*narrow_kernel)(const void *in, void *out, int64_t n);

#define INTEGERS(narrow, wide)                                                           \
    static int64_t to_##narrow(const void *in, void *out, int64_t n)                     \
    {                                                                                    \
        const wide *from = in;                                                           \
        narrow *to = out;                                                                \
        wide lost = 0;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                \
            to[i] = (narrow)from[i];                                                     \
            lost |= from[i] ^ (wide)to[i];                                               \
        }                                                                                \
        for (int64_t i = 0; lost != 0 && i < n; i++) {                                   \
            if (from[i] != (wide)to[i])                                                  \
                return i;                                                                \
        }                                                                                \
        return -1;                                                                       \
    }

INTEGERS(int8_t, int16_t)
INTEGERS(int16_t, int32_t)
INTEGERS(int32_t, int64_t)
INTEGERS(uint8_t, uint16_t)
INTEGERS(uint16_t, uint32_t)
INTEGERS(uint32_t, uint64_t)

#define FLOATS(name, narrow, wide, store)                                                \
    static int64_t to_##name(const void *in, void *out, int64_t n)                       \
    {                                                                                    \
        const wide *from = in;                                                           \
        narrow *to = out;                                                                \
        for (int64_t i = 0; i < n; i++)                                                  \
            to[i] = store(from[i]);                                                      \
        return -1;                                                                       \
    }

FLOATS(bfloat16, uint16_t, float, stg_bf16_from_f32)
FLOATS(float16, uint16_t, float, stg_f16_from_f64)
FLOATS(float32, float, double, (float))

static const struct {
    int narrow;
    narrow_kernel kernel;
} kernels[] = {
    {STAGER_INT8, to_int8_t},       {STAGER_INT16, to_int16_t},
    {STAGER_INT32, to_int32_t},     {STAGER_UINT8, to_uint8_t},
    {STAGER_UINT16, to_uint16_t},   {STAGER_UINT32, to_uint32_t},
    {STAGER_BFLOAT16, to_bfloat16}, {STAGER_FLOAT16, to_float16},
    {STAGER_FLOAT32, to_float32},
};

struct plan {
    int dtype;
    narrow_kernel kernel;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->dtype = stg_dtype_from_name(
        stg_attr_string(ctx->node->attrs, ctx->node->n_attrs, "dtype", ""));
    bool is_half = stg_dtype_widened(plan->dtype) == input->dtype;
    for (size_t i = 0; is_half && i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        if (kernels[i].narrow == plan->dtype)
            plan->kernel = kernels[i].kernel;
    }
    if (plan->kernel == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, which cannot be narrowed to %s", input->name,
                       stg_dtype_name(input->dtype), stg_dtype_name(plan->dtype));
    *output = *input;
    output->dtype = plan->dtype;
    ctx->plan = plan;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    int64_t bad = plan->kernel(input->data, output.data, stg_tensor_n(input));
    return bad < 0
               ? 0
               : stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(input, bad),
                             "element %" PRId64 " does not fit %s", bad,
                             stg_dtype_name(plan->dtype));
}

const struct stg_op stg_op_narrow = {
    .name = "narrow",
    .summary =
        "Numbers in half the width: floats rounded to nearest, integers as they are.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
};
