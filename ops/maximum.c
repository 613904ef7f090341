/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/broadcast.h"
#include "ops/element.h"
#include "ops/op.h"

/* One innermost loop; a step of 0 repeats the element. */
struct strip {
    const char *a, *b;
    char *out;
    int64_t a_step, b_step, n;
};

/* NaN wins; of equals (0 and -0) the first is taken. */
#define KERNEL(name, type, value)                                                        \
    static void name(const struct strip *s)                                              \
    {                                                                                    \
        const type *a = (const type *)(const void *)s->a;                                \
        const type *b = (const type *)(const void *)s->b;                                \
        type *out = (type *)(void *)s->out;                                              \
        for (int64_t i = 0; i < s->n; i++) {                                             \
            type x = a[i * s->a_step], y = b[i * s->b_step];                             \
            out[i] = value(x) < value(y) || value(y) != value(y) ? y : x;                \
        }                                                                                \
    }

KERNEL(max_float32, float, )
KERNEL(max_float64, double, )
KERNEL(max_float16, uint16_t, stg_f32_from_f16)
KERNEL(max_bfloat16, uint16_t, stg_f32_from_bf16)
KERNEL(max_int8, int8_t, )
KERNEL(max_int16, int16_t, )
KERNEL(max_int32, int32_t, )
KERNEL(max_int64, int64_t, )
KERNEL(max_uint8, uint8_t, )
KERNEL(max_uint16, uint16_t, )
KERNEL(max_uint32, uint32_t, )
KERNEL(max_uint64, uint64_t, )

static const struct {
    int dtype;
    void (*kernel)(const struct strip *strip);
} kernels[] = {
    {STAGER_FLOAT32, max_float32}, {STAGER_FLOAT64, max_float64},
    {STAGER_FLOAT16, max_float16}, {STAGER_BFLOAT16, max_bfloat16},
    {STAGER_INT8, max_int8},       {STAGER_INT16, max_int16},
    {STAGER_INT32, max_int32},     {STAGER_INT64, max_int64},
    {STAGER_UINT8, max_uint8},     {STAGER_UINT16, max_uint16},
    {STAGER_UINT32, max_uint32},   {STAGER_UINT64, max_uint64},
};

struct plan {
    void (*kernel)(const struct strip *strip);
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *a = &ctx->inputs[0], *b = &ctx->inputs[1];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (a->dtype != b->dtype)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, input \"%s\" is %s; cast one", a->name,
                       stg_dtype_name(a->dtype), b->name, stg_dtype_name(b->dtype));
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        if (kernels[i].dtype == a->dtype)
            plan->kernel = kernels[i].kernel;
    }
    if (plan->kernel == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "inputs are %s, which has no order here",
                       stg_dtype_name(a->dtype));
    output->dtype = a->dtype;
    ctx->plan = plan;
    return stg_broadcast_infer(a, b, output, err);
}

struct walk {
    const struct plan *plan;
    const struct stg_broadcast *broadcast;
    const char *a, *b;
    char *out;
    int64_t element;
};

static void run_strip(void *owner, int64_t a, int64_t b, int64_t out)
{
    const struct walk *walk = owner;
    const struct stg_broadcast *broadcast = walk->broadcast;
    int inner = broadcast->n_loops - 1;
    struct strip strip = {
        .a = walk->a + a * walk->element,
        .b = walk->b + b * walk->element,
        .out = walk->out + out * walk->element,
        .a_step = broadcast->loops[inner].a_stride,
        .b_step = broadcast->loops[inner].b_stride,
        .n = broadcast->loops[inner].n,
    };
    walk->plan->kernel(&strip);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *a = &ctx->inputs[0], *b = &ctx->inputs[1];
    struct stg_broadcast broadcast;
    int rc = stg_broadcast_plan(a, b, &broadcast, err);
    if (rc < 0)
        return rc;
    struct stg_tensor output;
    rc = ctx->alloc(ctx, 0, a->dtype, broadcast.ndim, broadcast.shape, 0, &output, err);
    if (rc < 0)
        return rc;
    struct walk walk = {
        .plan = ctx->plan,
        .broadcast = &broadcast,
        .a = a->data,
        .b = b->data,
        .out = output.data,
        .element = stg_dtype_bytes(a->dtype),
    };
    stg_broadcast_each(&broadcast, run_strip, &walk);
    return 0;
}

const struct stg_op stg_op_maximum = {
    .name = "maximum",
    .summary = "The larger of two, element by element, with broadcasting; NaN wins; as "
               "tf.maximum.",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .run = run,
};
