/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/kernels/math/elementwise.h"

static const struct stg_param params[] = {
    {.name = "transpose_a",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "the first is taken transposed"},
    {.name = "transpose_b",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "the second is taken transposed"},
};

static const struct stg_param batch_params[] = {
    {.name = "adj_x",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "the first is taken transposed"},
    {.name = "adj_y",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "the second is taken transposed"},
};

/* out[m, n] = a[m, k] b[k, n], all contiguous. */
typedef void (*multiply)(const void *a, const void *b, int64_t m, int64_t k, int64_t n,
                         void *out);
/* A matrix of [rows, columns] as the kernel needs it: widened, transposed. */
typedef void (*load)(const void *in, int64_t rows, int64_t columns, bool transposed,
                     void *out);
typedef void (*store)(const void *in, int64_t n, void *out);

struct kernels {
    multiply multiply;
    load load;
    store store;       /* NULL: the product is written where it belongs */
    size_t wide_bytes; /* of an element that is multiplied */
};

struct plan {
    const struct kernels *kernels;
    bool transpose[2];
};

/* Four rows of b at a time: the row of the product is read and written less often. */
#define MULTIPLY(name, type)                                                             \
    static void multiply_##name(const void *a, const void *b, int64_t m, int64_t k,      \
                                int64_t n, void *out)                                    \
    {                                                                                    \
        const type *x = a;                                                               \
        type *restrict to = out;                                                         \
        for (int64_t i = 0; i < m; i++, x += k, to += n) {                               \
            const type *y = b;                                                           \
            int64_t p = 0;                                                               \
            memset(to, 0, (size_t)n * sizeof(type));                                     \
            for (; p + 4 <= k; p += 4, y += 4 * n) {                                     \
                for (int64_t j = 0; j < n; j++)                                          \
                    to[j] += x[p] * y[j] + x[p + 1] * y[n + j] +                         \
                             x[p + 2] * y[2 * n + j] + x[p + 3] * y[3 * n + j];          \
            }                                                                            \
            for (; p < k; p++, y += n) {                                                 \
                for (int64_t j = 0; j < n; j++)                                          \
                    to[j] += x[p] * y[j];                                                \
            }                                                                            \
        }                                                                                \
    }

MULTIPLY(float, float)
MULTIPLY(double, double)
MULTIPLY(uint32, uint32_t)
MULTIPLY(uint64, uint64_t)

#define LOAD(name, type, wide, from)                                                     \
    static void load_##name(const void *in, int64_t rows, int64_t columns,               \
                            bool transposed, void *out)                                  \
    {                                                                                    \
        const type *a = in;                                                              \
        wide *restrict to = out;                                                         \
        for (int64_t i = 0; i < rows; i++) {                                             \
            for (int64_t j = 0; transposed && j < columns; j++)                          \
                to[j * rows + i] = from(a[i * columns + j]);                             \
            for (int64_t j = 0; !transposed && j < columns; j++)                         \
                to[i * columns + j] = from(a[i * columns + j]);                          \
        }                                                                                \
    }

LOAD(uint32, uint32_t, uint32_t, )
LOAD(uint64, uint64_t, uint64_t, )
LOAD(float16, uint16_t, float, stg_f32_from_f16)
LOAD(bfloat16, uint16_t, float, stg_f32_from_bf16)

static void store_float16(const void *in, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)out)[i] = stg_f16_from_f64((double)((const float *)in)[i]);
}

static void store_bfloat16(const void *in, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)out)[i] = stg_bf16_from_f32(((const float *)in)[i]);
}

static const struct kernels all_kernels[STG_N_DTYPES] = {
    [STAGER_FLOAT32] = {multiply_float, load_uint32, NULL, 4},
    [STAGER_FLOAT64] = {multiply_double, load_uint64, NULL, 8},
    [STAGER_INT32] = {multiply_uint32, load_uint32, NULL, 4},
    [STAGER_INT64] = {multiply_uint64, load_uint64, NULL, 8},
    [STAGER_FLOAT16] = {multiply_float, load_float16, store_float16, 4},
    [STAGER_BFLOAT16] = {multiply_float, load_bfloat16, store_bfloat16, 4},
};

/* ---- shapes ---- */

static int differ(int64_t a, int64_t b, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "the first has rows of %" PRId64 ", the second columns of %" PRId64, a,
                   b);
}

static int infer_with(struct stg_op_infer *ctx, const char *const names[2],
                      struct stg_err *err)
{
    const struct stg_component *a = &ctx->inputs[0], *b = &ctx->inputs[1];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (int k = 0; k < 2; k++)
        plan->transpose[k] =
            stg_attr_bool(ctx->node->attrs, ctx->node->n_attrs, names[k], false);
    plan->kernels = &all_kernels[a->dtype];
    if (plan->kernels->multiply == NULL || a->dtype != b->dtype)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, input \"%s\" is %s; both must be one float "
                       "dtype, int32 or int64",
                       a->name, stg_dtype_name(a->dtype), b->name,
                       stg_dtype_name(b->dtype));
    if (a->ndim < 2 || b->ndim < 2)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "inputs have ranks %d and %d; a matrix has at least 2", a->ndim,
                       b->ndim);
    struct stg_component batch[2] = {*a, *b};
    batch[0].ndim -= 2;
    batch[1].ndim -= 2;
    output->dtype = a->dtype;
    int rc = stg_broadcast_infer(batch, 2, output, err);
    if (rc < 0)
        return rc;
    int64_t inner_a = a->shape[a->ndim - (plan->transpose[0] ? 2 : 1)];
    int64_t inner_b = b->shape[b->ndim - (plan->transpose[1] ? 1 : 2)];
    if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b)
        return differ(inner_a, inner_b, err);
    output->shape[output->ndim++] = a->shape[a->ndim - (plan->transpose[0] ? 1 : 2)];
    output->shape[output->ndim++] = b->shape[b->ndim - (plan->transpose[1] ? 2 : 1)];
    ctx->plan = plan;
    return 0;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    static const char *const names[2] = {"transpose_a", "transpose_b"};
    return infer_with(ctx, names, err);
}

static int infer_batch(struct stg_op_infer *ctx, struct stg_err *err)
{
    static const char *const names[2] = {"adj_x", "adj_y"};
    return infer_with(ctx, names, err);
}

/* ---- when a batch flows ---- */

struct walk {
    const struct plan *plan;
    const struct stg_tensor *inputs;
    const struct stg_broadcast *broadcast;
    int64_t rows[2], columns[2]; /* as they lie */
    int64_t m, k, n, element;
    char *out;
    void *wide[2]; /* room for one matrix, where it is not used as it lies */
    void *product; /* likewise */
};

static const void *load_matrix(const struct walk *walk, int which, int64_t number)
{
    const struct plan *plan = walk->plan;
    int64_t bytes = walk->rows[which] * walk->columns[which] * walk->element;
    const char *in = (const char *)walk->inputs[which].data + number * bytes;
    if (plan->kernels->store == NULL && !plan->transpose[which])
        return in;
    plan->kernels->load(in, walk->rows[which], walk->columns[which],
                        plan->transpose[which], walk->wide[which]);
    return walk->wide[which];
}

static int64_t multiply_strip(void *owner, const int64_t *first, int64_t output)
{
    const struct walk *walk = owner;
    const struct kernels *kernels = walk->plan->kernels;
    int inner = walk->broadcast->n_loops - 1;
    const int64_t *step = walk->broadcast->loops[inner].stride;
    int64_t product = walk->m * walk->n;
    const void *a = NULL, *b = NULL;
    for (int64_t i = 0; i < walk->broadcast->loops[inner].n; i++) {
        char *to = walk->out + (output + i) * product * walk->element;
        if (i == 0 || step[0] != 0)
            a = load_matrix(walk, 0, first[0] + i * step[0]);
        if (i == 0 || step[1] != 0)
            b = load_matrix(walk, 1, first[1] + i * step[1]);
        kernels->multiply(a, b, walk->m, walk->k, walk->n,
                          kernels->store != NULL ? walk->product : to);
        if (kernels->store != NULL)
            kernels->store(walk->product, product, to);
    }
    return -1;
}

static int take_room(struct stg_op_run *ctx, struct walk *walk, struct stg_err *err)
{
    size_t wide = walk->plan->kernels->wide_bytes;
    for (int k = 0; k < 2; k++) {
        bool used = walk->plan->kernels->store != NULL || walk->plan->transpose[k];
        size_t n = used ? (size_t)(walk->rows[k] * walk->columns[k]) : 0;
        walk->wide[k] = stg_bump_alloc_raw(ctx->scratch, n * wide);
    }
    walk->product = stg_bump_alloc_raw(
        ctx->scratch,
        walk->plan->kernels->store == NULL ? 0 : (size_t)(walk->m * walk->n) * wide);
    if (walk->wide[0] == NULL || walk->wide[1] == NULL || walk->product == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

static int launch(struct stg_op_run *ctx, const struct walk *walk,
                  const struct stg_broadcast *broadcast, void *y, struct stg_err *err)
{
    const bool *transpose = walk->plan->transpose;
    struct stg_kernel_matmul how = {.dtype = ctx->inputs[0].dtype,
                                    .transpose = {transpose[0], transpose[1]},
                                    .m = walk->m,
                                    .k = walk->k,
                                    .n = walk->n,
                                    .loops = stg_broadcast_loops(broadcast),
                                    .y = y,
                                    .x = {ctx->inputs[0].data, ctx->inputs[1].data}};
    return ctx->device->kernels->matmul(ctx->device->stream, &how, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    struct walk walk = {.plan = ctx->plan, .inputs = ctx->inputs};
    struct stg_tensor batch[2] = {ctx->inputs[0], ctx->inputs[1]}, output;
    struct stg_broadcast broadcast;
    for (int k = 0; k < 2; k++) {
        batch[k].ndim -= 2;
        walk.rows[k] = ctx->inputs[k].shape[batch[k].ndim];
        walk.columns[k] = ctx->inputs[k].shape[batch[k].ndim + 1];
    }
    const bool *transpose = walk.plan->transpose;
    int64_t inner = transpose[1] ? walk.columns[1] : walk.rows[1];
    walk.m = transpose[0] ? walk.columns[0] : walk.rows[0];
    walk.k = transpose[0] ? walk.rows[0] : walk.columns[0];
    walk.n = transpose[1] ? walk.rows[1] : walk.columns[1];
    walk.element = stg_dtype_bytes(ctx->inputs[0].dtype);
    if (walk.k != inner)
        return differ(walk.k, inner, err);
    int rc = stg_broadcast_plan(batch, 2, &broadcast, err);
    if (rc < 0)
        return rc;
    int64_t shape[STG_MAX_DIMS + 2];
    memcpy(shape, broadcast.shape, sizeof(broadcast.shape));
    shape[broadcast.ndim] = walk.m;
    shape[broadcast.ndim + 1] = walk.n;
    rc = ctx->alloc(ctx, 0, ctx->inputs[0].dtype, broadcast.ndim + 2, shape, 0, &output,
                    err);
    if (rc == 0 && ctx->device != NULL)
        return launch(ctx, &walk, &broadcast, output.data, err);
    if (rc == 0)
        rc = take_room(ctx, &walk, err);
    if (rc < 0 || stg_tensor_n(&output) == 0)
        return rc;
    walk.broadcast = &broadcast;
    walk.out = output.data;
    stg_broadcast_each(&broadcast, multiply_strip, &walk);
    return 0;
}

/* Of the first matrix, or of the dimension before matrices. */
static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    if (ctx->inputs[0].ndim == 2 && ctx->inputs[1].ndim == 2)
        return !plan->transpose[0];
    return stg_broadcast_rows(ctx);
}

const struct stg_op stg_op_matmul = {
    .name = "matmul",
    .summary =
        "The product of matrices, with broadcasting of what is before the last two "
        "dimensions; as tf.matmul.",
    STG_PARAMS(params),
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};

const struct stg_op stg_op_batch_matmul = {
    .name = "batch_matmul",
    .summary = "matmul under its older name; as tf.raw_ops.BatchMatMulV2.",
    STG_PARAMS(batch_params),
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer_batch,
    .run = run,
    .rows = rows,
    .launches = stg_launches_all,
};
