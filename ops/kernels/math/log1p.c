/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/base/element.h"
#include "ops/base/op.h"

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    int dtype = ctx->inputs[0].dtype;
    if (dtype != STAGER_FLOAT32 && dtype != STAGER_FLOAT64 && dtype != STAGER_FLOAT16 &&
        dtype != STAGER_BFLOAT16)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; cast it to a float", ctx->inputs[0].name,
                       stg_dtype_name(dtype));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = ctx->inputs[0];
    return 0;
}

/* 1 + x is exact in double from 2^-29 on, and glibc's log is faster than its log1pf;
 * below, the first two terms of the series are exact to a float. */
static inline float log1p_float(float x)
{
    double d = x;
    return (float)(fabs(d) < 0x1p-28 ? d - d * d * 0.5 : log(1.0 + d));
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, input->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    size_t n = (size_t)stg_tensor_n(input);
    if (ctx->device != NULL)
        return ctx->device->kernels->log1p(ctx->device->stream, input->dtype, output.data,
                                           input->data, n, err);
    const void *in = input->data;
    void *out = output.data;
    switch (input->dtype) {
    case STAGER_FLOAT32:
        for (size_t i = 0; i < n; i++)
            ((float *)out)[i] = log1p_float(((const float *)in)[i]);
        break;
    case STAGER_FLOAT64:
        for (size_t i = 0; i < n; i++)
            ((double *)out)[i] = log1p(((const double *)in)[i]);
        break;
    case STAGER_FLOAT16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = stg_f16_from_f64(
                log1p_float(stg_f32_from_f16(((const uint16_t *)in)[i])));
        break;
    default:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = stg_bf16_from_f32(
                log1p_float(stg_f32_from_bf16(((const uint16_t *)in)[i])));
        break;
    }
    return 0;
}

const struct stg_op stg_op_log1p = {
    .name = "log1p",
    .summary = "The natural logarithm of 1 + x, within one unit in the last place; as "
               "tf.math.log1p.",
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_IN_PLACE,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
    .launches = stg_launches_all,
};
