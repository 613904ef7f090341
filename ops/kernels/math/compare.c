/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/kernels/math/elementwise.h"

#define KERNEL(op, dtype, type, value, ring, load, store)                                \
    static int64_t op##_##dtype(const struct stg_strip *s)                               \
    {                                                                                    \
        STG_STRIP_LOOPS(type, uint8_t, value, load, op(x, y));                           \
    }

#define equal(x, y) ((x) == (y))
#define not_equal(x, y) ((x) != (y))
#define less(x, y) ((x) < (y))
#define less_equal(x, y) ((x) <= (y))
#define greater(x, y) ((x) > (y))
#define greater_equal(x, y) ((x) >= (y))
#define logical_and(x, y) ((x) & (y))
#define logical_or(x, y) ((x) | (y))
#define truth(x) ((x) != 0)

STG_EACH_NUMBER(KERNEL, equal)
STG_EACH_NUMBER(KERNEL, not_equal)
STG_EACH_NUMBER(KERNEL, less)
STG_EACH_NUMBER(KERNEL, less_equal)
STG_EACH_NUMBER(KERNEL, greater)
STG_EACH_NUMBER(KERNEL, greater_equal)
KERNEL(equal, bool, uint8_t, uint8_t, , truth, )
KERNEL(not_equal, bool, uint8_t, uint8_t, , truth, )
KERNEL(logical_and, bool, uint8_t, uint8_t, , truth, )
KERNEL(logical_or, bool, uint8_t, uint8_t, , truth, )

/* ---- strings ---- */

static inline bool same_string(const struct stg_strip *s, int64_t i)
{
    const struct stg_tensor *a = &s->inputs[0], *b = &s->inputs[1];
    int64_t x = s->first[0] + i * s->step[0], y = s->first[1] + i * s->step[1];
    int64_t bytes = a->end[x] - a->begin[x];
    return bytes == b->end[y] - b->begin[y] &&
           memcmp((const char *)a->data + a->begin[x],
                  (const char *)b->data + b->begin[y], (size_t)bytes) == 0;
}

static int64_t equal_string(const struct stg_strip *s)
{
    for (int64_t i = 0; i < s->n; i++)
        ((uint8_t *)s->out)[i] = same_string(s, i);
    return -1;
}

static int64_t not_equal_string(const struct stg_strip *s)
{
    for (int64_t i = 0; i < s->n; i++)
        ((uint8_t *)s->out)[i] = !same_string(s, i);
    return -1;
}

/* ---- the ops ---- */

static const int bools[STG_N_DTYPES] = {
    [STAGER_FLOAT32] = STAGER_BOOL, [STAGER_FLOAT64] = STAGER_BOOL,
    [STAGER_FLOAT16] = STAGER_BOOL, [STAGER_BFLOAT16] = STAGER_BOOL,
    [STAGER_INT8] = STAGER_BOOL,    [STAGER_INT16] = STAGER_BOOL,
    [STAGER_INT32] = STAGER_BOOL,   [STAGER_INT64] = STAGER_BOOL,
    [STAGER_UINT8] = STAGER_BOOL,   [STAGER_UINT16] = STAGER_BOOL,
    [STAGER_UINT32] = STAGER_BOOL,  [STAGER_UINT64] = STAGER_BOOL,
    [STAGER_BOOL] = STAGER_BOOL,    [STAGER_STRING] = STAGER_BOOL};

#define OP(op, more, what, text, ...)                                                    \
    static const stg_strip_kernel op##_kernels[STG_N_DTYPES] = {__VA_ARGS__};            \
    static int infer_##op(struct stg_op_infer *ctx, struct stg_err *err)                 \
    {                                                                                    \
        return stg_binary_infer(ctx, op##_kernels, bools, what, err);                    \
    }                                                                                    \
    const struct stg_op stg_op_##op = {                                                  \
        .name = #op,                                                                     \
        .summary = text,                                                                 \
        .min_inputs = 2,                                                                 \
        .max_inputs = 2,                                                                 \
        .flags = STG_OP_ROW_WISE | STG_OP_ONE_DTYPE | more,                              \
        .infer = infer_##op,                                                             \
        .run = stg_binary_run,                                                           \
        .rows = stg_broadcast_rows,                                                      \
        .launches = stg_binary_launches,                                                 \
    }

OP(equal, STG_OP_BY_STRING, "cannot be compared",
   "Which elements are equal, with broadcasting; as tf.equal.",
   STG_NUMBER_KERNELS(equal), [STAGER_BOOL] = equal_bool, [STAGER_STRING] = equal_string);

OP(not_equal, STG_OP_BY_STRING, "cannot be compared",
   "Which elements differ, with broadcasting; as tf.not_equal.",
   STG_NUMBER_KERNELS(not_equal), [STAGER_BOOL] = not_equal_bool,
   [STAGER_STRING] = not_equal_string);

OP(less, 0, "has no order here",
   "Where the first is less, with broadcasting; as tf.less.", STG_NUMBER_KERNELS(less));

OP(less_equal, 0, "has no order here",
   "Where the first is less or equal, with broadcasting; as tf.less_equal.",
   STG_NUMBER_KERNELS(less_equal));

OP(greater, 0, "has no order here",
   "Where the first is greater, with broadcasting; as tf.greater.",
   STG_NUMBER_KERNELS(greater));

OP(greater_equal, 0, "has no order here",
   "Where the first is greater or equal, with broadcasting; as tf.greater_equal.",
   STG_NUMBER_KERNELS(greater_equal));

OP(logical_and, 0, "is not bool; compare it with something",
   "Where both are true, with broadcasting; as tf.logical_and.",
   [STAGER_BOOL] = logical_and_bool);

OP(logical_or, 0, "is not bool; compare it with something",
   "Where one is true, with broadcasting; as tf.logical_or.",
   [STAGER_BOOL] = logical_or_bool);
