/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/kernels/math/elementwise.h"

#define RING_KERNEL(op, dtype, type, value, ring, load, store)                           \
    static void op##_##dtype(const void *in, void *out, int64_t n)                       \
    {                                                                                    \
        STG_EACH_LOOP(type, ring, load, store(op(x)))                                    \
    }

#define VALUE_KERNEL(op, dtype, type, value, ring, load, store)                          \
    static void op##_##dtype(const void *in, void *out, int64_t n)                       \
    {                                                                                    \
        STG_EACH_LOOP(type, value, load, store(float_##op(x)))                           \
    }

#define SAME_KERNEL(op, dtype, type, value, ring, load, store)                           \
    static void op##_##dtype(const void *in, void *out, int64_t n)                       \
    {                                                                                    \
        memmove(out, in, (size_t)n * sizeof(type));                                      \
    }

#define SIGNED_ABS(op, dtype, type, value, ring, load, store)                            \
    static void op##_##dtype(const void *in, void *out, int64_t n)                       \
    {                                                                                    \
        STG_EACH_LOOP(type, value, , x < 0 ? (type)(0 - (ring)x) : x)                    \
    }

/* 0 - x would lose the sign of zero. */
#define float_negative(x) (-(x))
#define negative(x) (0 - (x))
#define float_abs(x) _Generic((x), float : fabsf, double : fabs)(x)

STG_EACH_FLOAT(VALUE_KERNEL, negative)
STG_EACH_SIGNED(RING_KERNEL, negative)
STG_EACH_FLOAT(VALUE_KERNEL, abs)
STG_EACH_SIGNED(SIGNED_ABS, abs)

#define float_exp(x) _Generic((x), float : expf, double : exp)(x)
#define float_log(x) _Generic((x), float : logf, double : log)(x)
#define float_sqrt(x) _Generic((x), float : sqrtf, double : sqrt)(x)
#define float_tanh(x) _Generic((x), float : tanhf, double : tanh)(x)
#define float_sigmoid(x) (1 / (1 + float_exp(-(x))))
/* NaN stays, and so does -0. */
#define float_relu(x) ((x) < 0 ? 0 : (x))

STG_EACH_FLOAT(VALUE_KERNEL, exp)
STG_EACH_FLOAT(VALUE_KERNEL, log)
STG_EACH_FLOAT(VALUE_KERNEL, sqrt)
STG_EACH_FLOAT(VALUE_KERNEL, tanh)
STG_EACH_FLOAT(VALUE_KERNEL, sigmoid)
STG_EACH_FLOAT(VALUE_KERNEL, relu)
STG_EACH_SIGNED(VALUE_KERNEL, relu)
STG_EACH_UNSIGNED(SAME_KERNEL, relu)

static void logical_not_bool(const void *in, void *out,
                             int64_t n){STG_EACH_LOOP(uint8_t, uint8_t, , x == 0)}

#define OP(op, text, ...)                                                                \
    static const stg_each_kernel op##_kernels[STG_N_DTYPES] = {__VA_ARGS__};             \
    static int infer_##op(struct stg_op_infer *ctx, struct stg_err *err)                 \
    {                                                                                    \
        return stg_unary_infer(ctx, op##_kernels, err);                                  \
    }                                                                                    \
    const struct stg_op stg_op_##op = {                                                  \
        .name = #op,                                                                     \
        .summary = text,                                                                 \
        .min_inputs = 1,                                                                 \
        .max_inputs = 1,                                                                 \
        .flags = STG_OP_ROW_WISE | STG_OP_IN_PLACE,                                      \
        .infer = infer_##op,                                                             \
        .run = stg_unary_run,                                                            \
        .rows = stg_rows_first,                                                          \
        .launches = stg_unary_launches,                                                  \
    }

OP(negative, "The number of the other sign; the smallest integer stays; as tf.negative.",
   STG_FLOAT_KERNELS(negative), STG_SIGNED_KERNELS(negative));
OP(abs, "The magnitude; the smallest integer stays; as tf.abs.", STG_FLOAT_KERNELS(abs),
   STG_SIGNED_KERNELS(abs));
OP(logical_not, "True becomes false, false true; as tf.logical_not.",
   [STAGER_BOOL] = logical_not_bool);

OP(exp, "e to the power of x, within two units in the last place; as tf.exp.",
   STG_FLOAT_KERNELS(exp));

OP(log, "The natural logarithm, within two units in the last place; as tf.math.log.",
   STG_FLOAT_KERNELS(log));
OP(sqrt, "The square root, rounded right; as tf.sqrt.", STG_FLOAT_KERNELS(sqrt));

OP(tanh,
   "The hyperbolic tangent, within three units in the last place; as "
   "tf.tanh.",
   STG_FLOAT_KERNELS(tanh));

OP(sigmoid, "1 / (1 + e^-x), within four units in the last place; as tf.sigmoid.",
   STG_FLOAT_KERNELS(sigmoid));

OP(relu, "What is negative becomes 0; as tf.nn.relu.", STG_NUMBER_KERNELS(relu));
