/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/kernels/math/elementwise.h"

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *condition = &ctx->inputs[0];
    const struct stg_component *x = &ctx->inputs[1], *y = &ctx->inputs[2];
    if (condition->dtype != STAGER_BOOL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; the condition must be bool", condition->name,
                       stg_dtype_name(condition->dtype));
    if (x->dtype != y->dtype)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, input \"%s\" is %s; cast one", x->name,
                       stg_dtype_name(x->dtype), y->name, stg_dtype_name(y->dtype));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    output->dtype = x->dtype;
    return stg_broadcast_infer(ctx->inputs, 3, output, err);
}

/* Steps that are constants where it is inlined: each call is a loop of its own. */
#define KERNEL(type)                                                                     \
    static inline __attribute__((always_inline)) void loop_##type(                       \
        const struct stg_strip *s, int64_t x_step, int64_t y_step)                       \
    {                                                                                    \
        const uint8_t *condition = s->in[0];                                             \
        const type *x = s->in[1], *y = s->in[2];                                         \
        type *restrict out = s->out;                                                     \
        for (int64_t i = 0; i < s->n; i++)                                               \
            out[i] = condition[i] != 0 ? x[i * x_step] : y[i * y_step];                  \
    }                                                                                    \
    static int64_t select_##type(const struct stg_strip *s)                              \
    {                                                                                    \
        if (s->step[0] == 0) {                                                           \
            int k = *(const uint8_t *)s->in[0] != 0 ? 1 : 2;                             \
            const type *from = s->in[k];                                                 \
            for (int64_t i = 0; i < s->n; i++)                                           \
                ((type *)s->out)[i] = from[i * s->step[k]];                              \
        } else if (s->step[1] != 0 && s->step[2] != 0) {                                 \
            loop_##type(s, 1, 1);                                                        \
        } else if (s->step[1] != 0) {                                                    \
            loop_##type(s, 1, 0);                                                        \
        } else {                                                                         \
            loop_##type(s, 0, s->step[2]);                                               \
        }                                                                                \
        return -1;                                                                       \
    }

KERNEL(uint8_t)
KERNEL(uint16_t)
KERNEL(uint32_t)
KERNEL(uint64_t)

static stg_strip_kernel kernel_of(int dtype)
{
    switch (stg_dtype_bytes(dtype)) {
    case 1: return select_uint8_t;
    case 2: return select_uint16_t;
    case 4: return select_uint32_t;
    default: return select_uint64_t;
    }
}

/* ---- strings ---- */

struct text {
    const struct stg_broadcast *broadcast;
    const struct stg_tensor *inputs;
    struct stg_tensor output; /* data NULL: only count the bytes */
    int64_t bytes;
};

static int64_t select_strings(void *owner, const int64_t *first, int64_t output)
{
    struct text *text = owner;
    const struct stg_broadcast *broadcast = text->broadcast;
    int inner = broadcast->n_loops - 1;
    const int64_t *step = broadcast->loops[inner].stride;
    int64_t *end = (int64_t *)(uintptr_t)text->output.end;
    for (int64_t i = 0; i < broadcast->loops[inner].n; i++) {
        const uint8_t *condition = text->inputs[0].data;
        int k = condition[first[0] + i * step[0]] != 0 ? 1 : 2;
        const struct stg_tensor *input = &text->inputs[k];
        int64_t at = first[k] + i * step[k], bytes = input->end[at] - input->begin[at];
        if (end != NULL) {
            memcpy((char *)text->output.data + text->bytes,
                   (const char *)input->data + input->begin[at], (size_t)bytes);
            end[output + i] = text->bytes + bytes;
        }
        text->bytes += bytes;
    }
    return -1;
}

static int run_strings(struct stg_op_run *ctx, const struct stg_broadcast *broadcast,
                       struct stg_err *err)
{
    struct text text = {.broadcast = broadcast, .inputs = ctx->inputs};
    stg_broadcast_each(broadcast, select_strings, &text);
    int rc = ctx->alloc(ctx, 0, STAGER_STRING, broadcast->ndim, broadcast->shape,
                        (uint64_t)text.bytes, &text.output, err);
    if (rc < 0)
        return rc;
    text.bytes = 0;
    stg_broadcast_each(broadcast, select_strings, &text);
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    int dtype = ctx->inputs[1].dtype;
    struct stg_broadcast broadcast;
    struct stg_tensor output;
    int rc = stg_broadcast_plan(ctx->inputs, 3, &broadcast, err);
    if (rc < 0)
        return rc;
    if (dtype == STAGER_STRING)
        return run_strings(ctx, &broadcast, err);
    rc = ctx->alloc(ctx, 0, dtype, broadcast.ndim, broadcast.shape, 0, &output, err);
    if (rc < 0)
        return rc;
    stg_strips_run(&broadcast, ctx->inputs, kernel_of(dtype), &output);
    return 0;
}

const struct stg_op stg_op_where = {
    .name = "where",
    .summary = "x where the condition is true, else y, with broadcasting; as tf.where "
               "with three inputs.",
    .min_inputs = 3,
    .max_inputs = 3,
    .flags = STG_OP_ROW_WISE | STG_OP_ONE_DTYPE,
    .infer = infer,
    .run = run,
    .rows = stg_broadcast_rows,
};
