/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/elementwise.h"

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
        .infer = infer_##op,                                                             \
        .run = stg_unary_run,                                                            \
    };

OP(negative, "The number of the other sign; the smallest integer stays; as tf.negative.",
   STG_FLOAT_KERNELS(negative), STG_SIGNED_KERNELS(negative))
    OP(abs, "The magnitude; the smallest integer stays; as tf.abs.",
       STG_FLOAT_KERNELS(abs), STG_SIGNED_KERNELS(abs))
        OP(logical_not, "True becomes false, false true; as tf.logical_not.",
           [STAGER_BOOL] = logical_not_bool)
