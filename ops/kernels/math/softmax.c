/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/base/move.h"
#include "ops/kernels/math/elementwise.h"

static const struct stg_param params[] = {
    {.name = "axis",
     .type = STG_PARAM_INT,
     .preset = "-1",
     .help = "the dimension that sums up to 1; negative counts from the last"},
};

/* Logits as [n_outer, n, n_inner]; row has room for n. Those whose mask (NULL: none) is 0
 * are left out. */
struct sizes {
    int64_t n_outer, n, n_inner;
};

typedef void (*softmax_kernel)(const struct sizes *sizes, const void *in,
                               const uint8_t *mask, void *out, void *row);

struct plan {
    int axis;
    softmax_kernel kernel;
};

#define LARGEST(x, y) ((y) > (x) || (y) != (y) ? (y) : (x))
#define EXP(x) _Generic((x), float : expf, double : exp)(x)

#define KERNEL(op, dtype, type, value, ring, load, store)                                \
    static void op##_##dtype(const struct sizes *s, const void *in, const uint8_t *mask, \
                             void *out, void *scratch)                                   \
    {                                                                                    \
        value *row = scratch;                                                            \
        for (int64_t k = 0; k < s->n_outer * s->n_inner; k++) {                          \
            int64_t first = k / s->n_inner * s->n * s->n_inner + k % s->n_inner;         \
            const type *from = (const type *)in + first;                                 \
            type *to = (type *)out + first;                                              \
            value most = -(value)INFINITY, sum = 0;                                      \
            bool is_empty = mask != NULL;                                                \
            for (int64_t i = 0; i < s->n; i++) {                                         \
                bool is_in = mask == NULL || mask[first + i * s->n_inner] != 0;          \
                row[i] = is_in ? (value)load(from[i * s->n_inner]) : -(value)INFINITY;   \
                most = LARGEST(most, row[i]);                                            \
                is_empty = is_empty && !is_in;                                           \
            }                                                                            \
            for (int64_t i = 0; i < s->n; i++) {                                         \
                row[i] = EXP(row[i] - most);                                             \
                sum += row[i];                                                           \
            }                                                                            \
            for (int64_t i = 0; i < s->n; i++)                                           \
                to[i * s->n_inner] = (type)store((is_empty ? 0 : row[i] / sum));         \
        }                                                                                \
    }

STG_EACH_FLOAT(KERNEL, softmax)

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    static const softmax_kernel kernels[STG_N_DTYPES] = {STG_FLOAT_KERNELS(softmax)};
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->kernel = kernels[input->dtype];
    if (plan->kernel == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; cast it to a float", input->name,
                       stg_dtype_name(input->dtype));
    *output = *input;
    ctx->plan = plan;
    if (ctx->n_inputs == 2) {
        struct stg_component wanted = *input;
        wanted.dtype = STAGER_BOOL;
        if (!stg_component_fits(&ctx->inputs[1], &wanted))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "input \"%s\" must be bool, of the shape of the logits",
                           ctx->inputs[1].name);
    }
    return stg_move_axis(ctx->node, "axis", -1, input->ndim, &plan->axis, err);
}

static int launch(struct stg_op_run *ctx, const struct sizes *sizes, void *y,
                  struct stg_err *err)
{
    struct stg_kernel_softmax how = {.dtype = ctx->inputs[0].dtype,
                                     .n_outer = sizes->n_outer,
                                     .n = sizes->n,
                                     .n_inner = sizes->n_inner,
                                     .y = y,
                                     .x = ctx->inputs[0].data,
                                     .mask =
                                         ctx->n_inputs == 2 ? ctx->inputs[1].data : NULL};
    return ctx->device->kernels->softmax(ctx->device->stream, &how, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct sizes sizes = {.n_outer = 1, .n = input->shape[plan->axis], .n_inner = 1};
    for (int d = 0; d < input->ndim; d++) {
        if (d != plan->axis)
            *(d < plan->axis ? &sizes.n_outer : &sizes.n_inner) *= input->shape[d];
    }
    const struct stg_tensor *mask = ctx->n_inputs == 2 ? &ctx->inputs[1] : NULL;
    if (mask != NULL &&
        memcmp(mask->shape, input->shape, (size_t)input->ndim * sizeof(int64_t)) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the mask has another shape than the logits");
    void *row = stg_bump_alloc_raw(ctx->scratch, (size_t)sizes.n * sizeof(double));
    if (row == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, input->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc == 0 && ctx->device != NULL)
        return launch(ctx, &sizes, output.data, err);
    if (rc == 0 && stg_tensor_n(input) > 0)
        plan->kernel(&sizes, input->data, mask != NULL ? mask->data : NULL, output.data,
                     row);
    return rc;
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return plan->axis > 0 ? (UINT64_C(1) << ctx->n_inputs) - 1 : 0;
}

const struct stg_op stg_op_softmax = {
    .name = "softmax",
    .summary =
        "e^x, scaled so that each row sums up to 1; as tf.nn.softmax, with a mask as "
        "tf.keras.layers.Softmax.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 2,
    .infer = infer,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};
