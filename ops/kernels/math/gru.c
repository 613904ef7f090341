/* SPDX-License-Identifier: Apache-2.0
 *
 * Gated recurrent units over sequences. Gates stand in the order of Keras: update, reset,
 * candidate.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/math/elementwise.h"

static const struct stg_param params[] = {
    {.name = "reset_after",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "the reset gate acts on the product with the recurrent kernel, not on the "
             "state before it"},
};

/* One sequence. */
struct sequence {
    const void *x;      /* [n_steps, n_in] */
    const void *scores; /* [n_steps], or NULL */
    const void *kernel; /* [n_in, 3 n] */
    const void *back;   /* recurrent kernel, [n, 3 n] */
    const void *bias;   /* [2, 3 n] or [3 n] */
    int64_t n_steps, n_in, n;
    int64_t length; /* steps from here on leave the state as it is */
    bool reset_after;
    void *scratch; /* 7 n elements */
    void *out;     /* [n_steps, n] */
    void *state;   /* [n] */
};

typedef void (*gru_kernel)(const struct sequence *s);

struct plan {
    bool has_scores, reset_after;
    gru_kernel kernel;
};

#define EXP(x) _Generic((x), float : expf, double : exp)(x)
#define TANH(x) _Generic((x), float : tanhf, double : tanh)(x)

/* to[0 .. n) += x[0 .. n_in) times matrix [n_in, stride]. */
#define KERNEL(type)                                                                     \
    static void multiply_##type(const type *x, int64_t n_in, const type *matrix,         \
                                int64_t stride, int64_t n, type *restrict to)            \
    {                                                                                    \
        for (int64_t i = 0; i < n_in; i++, matrix += stride) {                           \
            for (int64_t k = 0; k < n; k++)                                              \
                to[k] += x[i] * matrix[k];                                               \
        }                                                                                \
    }                                                                                    \
                                                                                         \
    static void step_##type(const struct sequence *s, const type *x, type score,         \
                            type *state)                                                 \
    {                                                                                    \
        const type *bias = s->bias, *back = s->back;                                     \
        const int64_t n = s->n;                                                          \
        type *in = s->scratch, *re = in + 3 * n, *reset = re + 3 * n;                    \
        memcpy(in, bias, (size_t)(3 * n) * sizeof(type));                                \
        multiply_##type(x, s->n_in, s->kernel, 3 * n, 3 * n, in);                        \
        if (s->reset_after)                                                              \
            memcpy(re, bias + 3 * n, (size_t)(3 * n) * sizeof(type));                    \
        else                                                                             \
            memset(re, 0, (size_t)(3 * n) * sizeof(type));                               \
        multiply_##type(state, n, back, 3 * n, s->reset_after ? 3 * n : 2 * n, re);      \
        for (int64_t k = 0; k < n; k++) {                                                \
            reset[k] = 1 / (1 + EXP(-(in[n + k] + re[n + k])));                          \
            if (s->reset_after)                                                          \
                re[2 * n + k] *= reset[k];                                               \
            else                                                                         \
                reset[k] *= state[k];                                                    \
        }                                                                                \
        if (!s->reset_after)                                                             \
            multiply_##type(reset, n, back + 2 * n, 3 * n, n, re + 2 * n);               \
        for (int64_t k = 0; k < n; k++) {                                                \
            type keep = (1 - score) / (1 + EXP(-(in[k] + re[k])));                       \
            state[k] =                                                                   \
                keep * state[k] + (1 - keep) * TANH(in[2 * n + k] + re[2 * n + k]);      \
        }                                                                                \
    }                                                                                    \
                                                                                         \
    static void gru_##type(const struct sequence *s)                                     \
    {                                                                                    \
        type *state = s->state, *out = s->out;                                           \
        const type *x = s->x, *scores = s->scores;                                       \
        memset(state, 0, (size_t)s->n * sizeof(type));                                   \
        for (int64_t t = 0; t < s->n_steps; t++, x += s->n_in, out += s->n) {            \
            if (t < s->length)                                                           \
                step_##type(s, x, scores != NULL ? scores[t] : 0, state);                \
            memcpy(out, state, (size_t)s->n * sizeof(type));                             \
        }                                                                                \
    }

KERNEL(float)
KERNEL(double)

/* ---- when the pipeline is applied ---- */

static int check(const struct stg_component *is, int dtype, int ndim,
                 const int64_t *shape, const char *what, struct stg_err *err)
{
    struct stg_component wanted = {.dtype = dtype, .ndim = ndim};
    char got[128], want[128];
    memcpy(wanted.shape, shape, (size_t)ndim * sizeof(*shape));
    if (stg_component_fits(is, &wanted))
        return 0;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT, "input \"%s\", %s, is %s %s; %s %s is needed",
        is->name, what, stg_dtype_name(is->dtype),
        stg_shape_text(is->shape, is->ndim, got, sizeof(got)), stg_dtype_name(dtype),
        stg_shape_text(shape, ndim, want, sizeof(want)));
}

static int check_weights(const struct stg_op_infer *ctx, const struct plan *plan,
                         int64_t *ret_n, struct stg_err *err)
{
    const struct stg_component *x = &ctx->inputs[0],
                               *w = &ctx->inputs[plan->has_scores ? 2 : 1];
    int dtype = x->dtype;
    int64_t n = w[1].ndim == 2 ? w[1].shape[0] : -1, gates = n < 0 ? -1 : 3 * n;
    int rc = check(&w[0], dtype, 2, (int64_t[]){x->shape[2], gates}, "the kernel", err);
    if (rc == 0)
        rc = check(&w[1], dtype, 2, (int64_t[]){n, gates}, "the recurrent kernel", err);
    if (rc == 0 && plan->reset_after)
        rc = check(&w[2], dtype, 2, (int64_t[]){2, gates}, "the bias", err);
    else if (rc == 0)
        rc = check(&w[2], dtype, 1, (int64_t[]){gates}, "the bias", err);
    *ret_n = n;
    return rc;
}

static int check_lengths(const struct stg_op_infer *ctx, size_t at, struct stg_err *err)
{
    if (ctx->n_inputs <= at)
        return 0;
    const struct stg_component *lengths = &ctx->inputs[at];
    int dtype = lengths->dtype == STAGER_INT64 ? STAGER_INT64 : STAGER_INT32;
    return check(lengths, dtype, 1, ctx->inputs[0].shape, "the lengths", err);
}

static int infer(struct stg_op_infer *ctx, bool has_scores, struct stg_err *err)
{
    const struct stg_component *x = &ctx->inputs[0];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *outputs = stg_op_outputs(ctx, 2);
    if (plan == NULL || outputs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->has_scores = has_scores;
    plan->reset_after =
        stg_attr_bool(ctx->node->attrs, ctx->node->n_attrs, "reset_after", true);
    plan->kernel = x->dtype == STAGER_FLOAT64 ? gru_double : gru_float;
    if ((x->dtype != STAGER_FLOAT32 && x->dtype != STAGER_FLOAT64) || x->ndim != 3)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s of rank %d; sequences must be float32 or "
                       "float64, [batch, steps, features]",
                       x->name, stg_dtype_name(x->dtype), x->ndim);
    int64_t n = -1;
    int rc =
        has_scores ? check(&ctx->inputs[1], x->dtype, 2, x->shape, "the scores", err) : 0;
    if (rc == 0)
        rc = check_weights(ctx, plan, &n, err);
    if (rc == 0)
        rc = check_lengths(ctx, has_scores ? 5 : 4, err);
    if (rc < 0)
        return rc;
    outputs[0] = *x;
    outputs[0].shape[2] = n;
    outputs[1] = *x;
    outputs[1].ndim = 2;
    outputs[1].shape[1] = n;
    ctx->plan = plan;
    return 0;
}

static int infer_gru(struct stg_op_infer *ctx, struct stg_err *err)
{
    return infer(ctx, false, err);
}

static int infer_augru(struct stg_op_infer *ctx, struct stg_err *err)
{
    return infer(ctx, true, err);
}

/* ---- when a batch flows ---- */

/* Dimensions that were not known when the pipeline was applied. */
static int check_shapes(const struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *x = &ctx->inputs[0], *scores = &ctx->inputs[1],
                            *w = &ctx->inputs[plan->has_scores ? 2 : 1];
    const struct stg_tensor *lengths =
        ctx->n_inputs > (plan->has_scores ? 5u : 4u) ? &w[3] : NULL;
    int64_t gates = 3 * w[1].shape[0];
    bool fit = w[0].shape[0] == x->shape[2] && w[0].shape[1] == gates &&
               w[1].shape[1] == gates && w[2].shape[w[2].ndim - 1] == gates &&
               (w[2].ndim == 1 || w[2].shape[0] == 2) &&
               (!plan->has_scores ||
                (scores->shape[0] == x->shape[0] && scores->shape[1] == x->shape[1])) &&
               (lengths == NULL || lengths->shape[0] == x->shape[0]);
    return fit ? 0
               : stg_err(err, -STAGER_INVALID_ARGUMENT,
                         "scores, weights or lengths do not have the shapes that "
                         "sequences [%" PRId64 ", %" PRId64 ", %" PRId64 "] need",
                         x->shape[0], x->shape[1], x->shape[2]);
}

static int launch(struct stg_op_run *ctx, const struct sequence *s, void *out,
                  void *state, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *x = &ctx->inputs[0];
    struct stg_kernel_gru how = {.dtype = x->dtype,
                                 .reset_after = plan->reset_after,
                                 .n_rows = x->shape[0],
                                 .n_steps = s->n_steps,
                                 .n_in = s->n_in,
                                 .n = s->n,
                                 .x = x->data,
                                 .scores = plan->has_scores ? ctx->inputs[1].data : NULL,
                                 .kernel = s->kernel,
                                 .back = s->back,
                                 .bias = s->bias,
                                 .out = out,
                                 .state = state};
    size_t n = (size_t)(how.n_rows * how.n) * stg_dtype_bytes(x->dtype);
    if (ctx->n_inputs > (plan->has_scores ? 5u : 4u)) {
        how.lengths = ctx->inputs[ctx->n_inputs - 1].data;
        how.lengths_dtype = ctx->inputs[ctx->n_inputs - 1].dtype;
    }
    int rc = plan->reset_after ? 0 : ctx->device->room(ctx, 2 * n, &how.scratch, err);
    return rc < 0 ? rc : ctx->device->kernels->gru(ctx->device->stream, &how, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *x = &ctx->inputs[0],
                            *w = &ctx->inputs[plan->has_scores ? 2 : 1];
    int rc = check_shapes(ctx, err);
    if (rc < 0)
        return rc;
    const int64_t n = w[1].shape[0], n_steps = x->shape[1];
    size_t bytes = stg_dtype_bytes(x->dtype);
    struct sequence s = {.kernel = w[0].data,
                         .back = w[1].data,
                         .bias = w[2].data,
                         .n_steps = n_steps,
                         .n_in = x->shape[2],
                         .n = n,
                         .length = n_steps,
                         .reset_after = plan->reset_after,
                         .scratch =
                             stg_bump_alloc_raw(ctx->scratch, 7 * (size_t)n * bytes)};
    if (s.scratch == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_tensor out, state;
    rc = ctx->alloc(ctx, 0, x->dtype, 3, (int64_t[]){x->shape[0], n_steps, n}, 0, &out,
                    err);
    if (rc == 0)
        rc = ctx->alloc(ctx, 1, x->dtype, 2, (int64_t[]){x->shape[0], n}, 0, &state, err);
    if (rc == 0 && ctx->device != NULL)
        return launch(ctx, &s, out.data, state.data, err);
    bool has_lengths = ctx->n_inputs > (plan->has_scores ? 5u : 4u);
    for (int64_t i = 0; rc == 0 && i < x->shape[0]; i++) {
        s.x = (const char *)x->data + (size_t)(i * n_steps * s.n_in) * bytes;
        if (plan->has_scores)
            s.scores = (const char *)ctx->inputs[1].data + (size_t)(i * n_steps) * bytes;
        if (has_lengths)
            s.length = stg_tensor_index(&w[3], i);
        s.out = (char *)out.data + (size_t)(i * n_steps * n) * bytes;
        s.state = (char *)state.data + (size_t)(i * n) * bytes;
        plan->kernel(&s);
    }
    return rc;
}

/* The sequences, their scores and their lengths. */
static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return plan->has_scores ? (ctx->n_inputs > 5 ? 0x23u : 0x3u)
                            : (ctx->n_inputs > 4 ? 0x11u : 0x1u);
}

const struct stg_op stg_op_gru = {
    .name = "gru",
    .summary = "A gated recurrent unit over sequences, from a state of 0; as "
               "tf.keras.layers.GRU.",
    STG_PARAMS(params),
    .min_inputs = 4,
    .max_inputs = 5,
    .infer = infer_gru,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};

const struct stg_op stg_op_augru = {
    .name = "augru",
    .summary = "gru whose update gate is scaled by 1 - score in each step; as "
               "VecAttGRUCell of DIEN (arXiv 1809.03672).",
    STG_PARAMS(params),
    .min_inputs = 5,
    .max_inputs = 6,
    .infer = infer_augru,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};
