/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/kernels/math/elementwise.h"

#define RING_KERNEL(op, dtype, type, value, ring, load, store)                           \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        STG_STRIP_LOOPS(type, type, ring, load, store(op(x, y)));                        \
    }
#define VALUE_KERNEL(op, dtype, type, value, ring, load, store)                          \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        STG_STRIP_LOOPS(type, type, value, load, store(op(x, y)));                       \
    }

#define add(x, y) ((x) + (y))
#define subtract(x, y) ((x) - (y))
#define multiply(x, y) ((x) * (y))
#define divide(x, y) ((x) / (y))
/* NaN wins; of equals (0 and -0) the first is taken. */
#define minimum(x, y) ((y) < (x) || (y) != (y) ? (y) : (x))
#define maximum(x, y) ((x) < (y) || (y) != (y) ? (y) : (x))

STG_EACH_NUMBER(RING_KERNEL, add)
STG_EACH_NUMBER(RING_KERNEL, subtract)
STG_EACH_NUMBER(RING_KERNEL, multiply)
STG_EACH_FLOAT(VALUE_KERNEL, divide)
STG_EACH_NUMBER(VALUE_KERNEL, minimum)
STG_EACH_NUMBER(VALUE_KERNEL, maximum)

/* ---- integers divided as floats ---- */

#define TRUE_DIVIDE(from, type, wide)                                                    \
    static int64_t divide_##from(const struct stg_strip *s)                              \
    {                                                                                    \
        STG_STRIP_LOOPS(type, wide, wide, , x / y);                                      \
    }

TRUE_DIVIDE(int8, int8_t, float)
TRUE_DIVIDE(int16, int16_t, float)
TRUE_DIVIDE(uint8, uint8_t, float)
TRUE_DIVIDE(uint16, uint16_t, float)
TRUE_DIVIDE(int32, int32_t, double)
TRUE_DIVIDE(int64, int64_t, double)
TRUE_DIVIDE(uint32, uint32_t, double)
TRUE_DIVIDE(uint64, uint64_t, double)

static const int divide_dtypes[STG_N_DTYPES] = {
    [STAGER_FLOAT32] = STAGER_FLOAT32, [STAGER_FLOAT64] = STAGER_FLOAT64,
    [STAGER_FLOAT16] = STAGER_FLOAT16, [STAGER_BFLOAT16] = STAGER_BFLOAT16,
    [STAGER_INT8] = STAGER_FLOAT32,    [STAGER_INT16] = STAGER_FLOAT32,
    [STAGER_UINT8] = STAGER_FLOAT32,   [STAGER_UINT16] = STAGER_FLOAT32,
    [STAGER_INT32] = STAGER_FLOAT64,   [STAGER_INT64] = STAGER_FLOAT64,
    [STAGER_UINT32] = STAGER_FLOAT64,  [STAGER_UINT64] = STAGER_FLOAT64,
};

/* ---- division towards minus infinity ---- */

#define whole(x) _Generic((x), float : floorf, double : floor)(x)

static inline float remainder_float(float x, float y)
{
    float rest = fmodf(x, y);
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}

static inline double remainder_double(double x, double y)
{
    double rest = fmod(x, y);
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}

#define float_floormod(x, y)                                                             \
    _Generic((x), float : remainder_float, double : remainder_double)((x), (y))

/* The quotient has the width of the dtype before it is rounded down. */
#define QUOTIENT_KERNEL(op, dtype, type, value, ring, load, store)                       \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        STG_STRIP_LOOPS(type, type, value, load,                                         \
                        store(whole((value)load((type)store(x / y)))));                  \
    }
#define REST_KERNEL(op, dtype, type, value, ring, load, store)                           \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        STG_STRIP_LOOPS(type, type, value, load, store(float_floormod(x, y)));           \
    }

STG_EACH_FLOAT(QUOTIENT_KERNEL, floordiv)
STG_EACH_FLOAT(REST_KERNEL, floormod)

/* By -1: the smallest value wraps, where the machine's own division would trap. */
#define signed_floordiv(type, x, y)                                                      \
    ((y) == -1 ? (type)(0 - (uint64_t)(x))                                               \
               : (type)((x) / (y) - ((x) % (y) != 0 && ((x) < 0) != ((y) < 0))))
#define signed_floormod(type, x, y)                                                      \
    ((y) == -1                                          ? (type)0                        \
     : ((x) % (y) != 0 && ((x) % (y) < 0) != ((y) < 0)) ? (type)((x) % (y) + (y))        \
                                                        : (type)((x) % (y)))
#define unsigned_floordiv(type, x, y) ((type)((x) / (y)))
#define unsigned_floormod(type, x, y) ((type)((x) % (y)))

/* Zeros are looked for first, so that the loop has no way out. */
#define FIND_ZERO(type)                                                                  \
    const type *divisor = s->in[1];                                                      \
    int64_t n = s->step[1] == 0 ? 1 : s->n;                                              \
    bool zero = false;                                                                   \
    for (int64_t i = 0; i < n; i++)                                                      \
        zero |= divisor[i] == 0;                                                         \
    for (int64_t i = 0; zero && i < n; i++) {                                            \
        if (divisor[i] == 0)                                                             \
            return i;                                                                    \
    }

#define SIGNED_KERNEL(op, dtype, type, value, ring, load, store)                         \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        FIND_ZERO(type)                                                                  \
        STG_STRIP_LOOPS(type, type, value, , signed_##op(type, x, y));                   \
    }
#define UNSIGNED_KERNEL(op, dtype, type, value, ring, load, store)                       \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        FIND_ZERO(type)                                                                  \
        STG_STRIP_LOOPS(type, type, value, , unsigned_##op(type, x, y));                 \
    }

STG_EACH_SIGNED(SIGNED_KERNEL, floordiv)
STG_EACH_SIGNED(SIGNED_KERNEL, floormod)
STG_EACH_UNSIGNED(UNSIGNED_KERNEL, floordiv)
STG_EACH_UNSIGNED(UNSIGNED_KERNEL, floormod)

/* ---- powers ---- */

#define POWER_KERNEL(op, dtype, type, value, ring, load, store)                          \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        STG_STRIP_LOOPS(type, type, value, load,                                         \
                        store((_Generic((x), float                                       \
                                        : powf, double                                   \
                                        : pow)(x, y))));                                 \
    }

static inline uint64_t power(uint64_t x, uint64_t y)
{
    uint64_t ret = 1;
    for (; y > 0; y >>= 1, x *= x)
        ret *= (y & 1) != 0 ? x : 1;
    return ret;
}

#define INT_POWER_KERNEL(op, dtype, type, value, ring, load, store)                      \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        const type *exponent = s->in[1];                                                 \
        for (int64_t i = 0; i < (s->step[1] == 0 ? 1 : s->n); i++) {                     \
            if (exponent[i] < 0)                                                         \
                return i;                                                                \
        }                                                                                \
        STG_STRIP_LOOPS(type, type, value, , power((uint64_t)x, (uint64_t)y));           \
    }

STG_EACH_FLOAT(POWER_KERNEL, pow)
STG_EACH_SIGNED(INT_POWER_KERNEL, pow)

static const stg_strip_kernel pow_kernels[STG_N_DTYPES] = {STG_FLOAT_KERNELS(pow),
                                                           STG_SIGNED_KERNELS(pow)};

static int infer_pow(struct stg_op_infer *ctx, struct stg_err *err)
{
    return stg_binary_infer(ctx, pow_kernels, NULL,
                            "is neither a float nor a signed integer", err);
}

const struct stg_op stg_op_pow = {
    .name = "pow",
    .summary = "The first to the power of the second, with broadcasting; as tf.pow.",
    .min_inputs = 2,
    .max_inputs = 2,
    .flags = STG_OP_ROW_WISE | STG_OP_ONE_DTYPE,
    .infer = infer_pow,
    .run = stg_binary_run,
    .rows = stg_broadcast_rows,
};

/* ---- the ops ---- */

#define OP(op, out_dtypes, more_flags, text)                                             \
    static const stg_strip_kernel op##_kernels[STG_N_DTYPES] = {STG_NUMBER_KERNELS(op)}; \
    static int infer_##op(struct stg_op_infer *ctx, struct stg_err *err)                 \
    {                                                                                    \
        return stg_binary_infer(ctx, op##_kernels, out_dtypes, "is not numeric", err);   \
    }                                                                                    \
    const struct stg_op stg_op_##op = {                                                  \
        .name = #op,                                                                     \
        .summary = text,                                                                 \
        .min_inputs = 2,                                                                 \
        .max_inputs = 2,                                                                 \
        .flags = STG_OP_ROW_WISE | STG_OP_ONE_DTYPE | (more_flags),                      \
        .infer = infer_##op,                                                             \
        .run = stg_binary_run,                                                           \
        .rows = stg_broadcast_rows,                                                      \
        .launches = stg_binary_launches,                                                 \
    }

OP(add, NULL, STG_OP_IN_PLACE,
   "The sum of two, with broadcasting; integers wrap; as tf.add of numbers.");

OP(subtract, NULL, STG_OP_IN_PLACE,
   "The difference of two, with broadcasting; integers wrap; as "
   "tf.subtract.");

OP(multiply, NULL, STG_OP_IN_PLACE,
   "The product of two, with broadcasting; integers wrap; as "
   "tf.multiply.");

OP(divide, divide_dtypes, 0,
   "The quotient of two, with broadcasting; of integers a float; "
   "as tf.math.divide.");

OP(floordiv, NULL, 0,
   "The quotient of two rounded towards minus infinity, with "
   "broadcasting; as tf.math.floordiv.");

OP(floormod, NULL, 0,
   "What floordiv leaves, with the sign of the divisor; as "
   "tf.math.floormod.");

OP(minimum, NULL, STG_OP_IN_PLACE,
   "The smaller of two, element by element, with broadcasting; NaN wins; "
   "as tf.minimum.");

OP(maximum, NULL, STG_OP_IN_PLACE,
   "The larger of two, element by element, with broadcasting; NaN wins; "
   "as tf.maximum.");
