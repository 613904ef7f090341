/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/kernels/math/elementwise.h"

/* Sums are wider than the dtype: double, int64 or uint64, rounded or truncated once. */

static const struct stg_param params[] = {
    {.name = "axis",
     .type = STG_PARAM_VALUES,
     .help = "the dimensions to reduce, an integer or a list; negative counts from the "
             "last; default: all"},
    {.name = "keepdims",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "reduced dimensions stay, as 1"},
};

static const struct stg_param l2_params[] = {
    {.name = "axis",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "the dimensions over which squares are summed, an integer or a list; "
             "negative counts from the last"},
    {.name = "epsilon",
     .type = STG_PARAM_FLOAT,
     .preset = "1e-12",
     .help = "the least sum of squares that is divided by"},
};

/* n elements into one accumulator, or each into one of its own. */
typedef void (*reduce_row)(const void *in, int64_t n, bool into_one, void *sums);
/* sums[0 .. n) as elements; count: how many went into each (mean), or 0. */
typedef void (*store_sums)(const void *sums, int64_t n, int64_t count, void *out);
typedef void (*scale_row)(const void *in, int64_t n, bool by_one, const double *factors,
                          void *out);

struct plan {
    enum stg_kernel_reduction on_device;
    uint32_t reduced; /* bit d: dimension d */
    bool keepdims, mean, max;
    double epsilon;
    reduce_row row;
    store_sums store;
    scale_row scale; /* l2_normalize */
};

#define SUM(op, dtype, type, load, wide, term)                                           \
    static void op##_##dtype(const void *in, int64_t n, bool into_one, void *sums)       \
    {                                                                                    \
        const type *a = in;                                                              \
        wide *sum = sums, lanes[4] = {0};                                                \
        int64_t i = 0;                                                                   \
        for (; into_one && i + 4 <= n; i += 4) {                                         \
            for (int k = 0; k < 4; k++) {                                                \
                wide x = (wide)load(a[i + k]);                                           \
                lanes[k] += (term);                                                      \
            }                                                                            \
        }                                                                                \
        for (; into_one && i < n; i++) {                                                 \
            wide x = (wide)load(a[i]);                                                   \
            lanes[0] += (term);                                                          \
        }                                                                                \
        for (; i < n; i++) {                                                             \
            wide x = (wide)load(a[i]);                                                   \
            sum[i] += (term);                                                            \
        }                                                                                \
        if (into_one)                                                                    \
            sum[0] += lanes[0] + lanes[1] + (lanes[2] + lanes[3]);                       \
    }

/* NaN wins, and stays. */
#define MAX(op, dtype, type, load, wide)                                                 \
    static void op##_##dtype(const void *in, int64_t n, bool into_one, void *sums)       \
    {                                                                                    \
        const type *a = in;                                                              \
        wide *sum = sums, most = sum[0];                                                 \
        for (int64_t i = 0; into_one && i < n; i++) {                                    \
            wide x = (wide)load(a[i]);                                                   \
            most = x > most || x != x ? x : most;                                        \
        }                                                                                \
        for (int64_t i = 0; !into_one && i < n; i++) {                                   \
            wide x = (wide)load(a[i]);                                                   \
            sum[i] = x > sum[i] || x != x ? x : sum[i];                                  \
        }                                                                                \
        if (into_one)                                                                    \
            sum[0] = most;                                                               \
    }

#define FLOAT_STORE(dtype, type, value, store)                                           \
    static void store_##dtype(const void *sums, int64_t n, int64_t count, void *out)     \
    {                                                                                    \
        const double *sum = sums, by = count > 0 ? (double)count : 1;                    \
        for (int64_t i = 0; i < n; i++)                                                  \
            ((type *)out)[i] = (type)store((value)(sum[i] / by));                        \
    }
#define INT_STORE(dtype, type, wide)                                                     \
    static void store_##dtype(const void *sums, int64_t n, int64_t count, void *out)     \
    {                                                                                    \
        const wide *sum = sums, by = count > 0 ? (wide)count : 1;                        \
        for (int64_t i = 0; i < n; i++)                                                  \
            ((type *)out)[i] = (type)(sum[i] / by);                                      \
    }
#define SCALE(dtype, type, value, load, store)                                           \
    static void scale_##dtype(const void *in, int64_t n, bool by_one,                    \
                              const double *factors, void *out)                          \
    {                                                                                    \
        const type *a = in;                                                              \
        type *restrict to = out;                                                         \
        for (int64_t i = 0; i < n; i++)                                                  \
            to[i] = (type)store((value)((double)load(a[i]) * factors[by_one ? 0 : i]));  \
    }

#define FLOATS(op, dtype, type, value, ring, load, store)                                \
    SUM(sum, dtype, type, load, double, x)                                               \
    SUM(square, dtype, type, load, double, x *x)                                         \
    MAX(max, dtype, type, load, double)                                                  \
    FLOAT_STORE(dtype, type, value, store)                                               \
    SCALE(dtype, type, value, load, store)
#define SIGNED(op, dtype, type, value, ring, load, store)                                \
    SUM(sum, dtype, type, (uint64_t), uint64_t, x)                                       \
    MAX(max, dtype, type, , int64_t)                                                     \
    INT_STORE(dtype, type, int64_t)
#define UNSIGNED(op, dtype, type, value, ring, load, store)                              \
    SUM(sum, dtype, type, , uint64_t, x)                                                 \
    MAX(max, dtype, type, , uint64_t)                                                    \
    INT_STORE(dtype, type, uint64_t)

STG_EACH_FLOAT(FLOATS, )
STG_EACH_SIGNED(SIGNED, )
STG_EACH_UNSIGNED(UNSIGNED, )

/* ---- when the pipeline is applied ---- */

static int read_axes(const struct stg_node *node, int rank, uint32_t *ret,
                     struct stg_err *err)
{
    const struct stg_attr *axis = stg_attr_find(node->attrs, node->n_attrs, "axis");
    *ret = axis == NULL ? (1u << rank) - 1 : 0;
    for (size_t i = 0; axis != NULL && i < axis->n_values; i++) {
        int64_t d = axis->values[i].i;
        if (axis->values[i].kind != STG_VALUE_INT || axis->ndim > 1 || d < -rank ||
            d >= rank)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "axis must hold integers in [%d, %d)", -rank, rank);
        uint32_t bit = 1u << (d < 0 ? d + rank : d);
        if ((*ret & bit) != 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "axis names a dimension twice");
        *ret |= bit;
    }
    return 0;
}

static int shape_of(const struct plan *plan, const int64_t *from, int ndim, int64_t *ret)
{
    int n = 0;
    for (int d = 0; d < ndim; d++) {
        bool reduced = (plan->reduced >> d & 1) != 0;
        if (!reduced || plan->keepdims)
            ret[n++] = reduced ? 1 : from[d];
    }
    return n;
}

static int infer_with(struct stg_op_infer *ctx, struct plan **ret, struct stg_err *err)
{
    static const store_sums stores[STG_N_DTYPES] = {STG_NUMBER_KERNELS(store)};
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->store = stores[input->dtype];
    if (plan->store == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, which is not numeric", input->name,
                       stg_dtype_name(input->dtype));
    plan->keepdims =
        stg_attr_bool(ctx->node->attrs, ctx->node->n_attrs, "keepdims", false);
    int rc = read_axes(ctx->node, input->ndim, &plan->reduced, err);
    if (rc < 0)
        return rc;
    output->dtype = input->dtype;
    output->ndim = shape_of(plan, input->shape, input->ndim, output->shape);
    ctx->plan = *ret = plan;
    return 0;
}

static const reduce_row sums[STG_N_DTYPES] = {STG_NUMBER_KERNELS(sum)};
static const reduce_row maxima[STG_N_DTYPES] = {STG_NUMBER_KERNELS(max)};
static const reduce_row squares[STG_N_DTYPES] = {STG_FLOAT_KERNELS(square)};
static const scale_row scales[STG_N_DTYPES] = {STG_FLOAT_KERNELS(scale)};

static int infer_sum(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct plan *plan;
    int rc = infer_with(ctx, &plan, err);
    if (rc == 0) {
        plan->row = sums[ctx->inputs[0].dtype];
        plan->on_device = STG_KERNEL_REDUCE_SUM;
    }
    return rc;
}

static int infer_mean(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct plan *plan;
    int rc = infer_with(ctx, &plan, err);
    if (rc == 0) {
        plan->row = sums[ctx->inputs[0].dtype];
        plan->mean = true;
        plan->on_device = STG_KERNEL_REDUCE_MEAN;
    }
    return rc;
}

static int infer_max(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct plan *plan;
    int rc = infer_with(ctx, &plan, err);
    if (rc == 0) {
        plan->row = maxima[ctx->inputs[0].dtype];
        plan->max = true;
        plan->on_device = STG_KERNEL_REDUCE_MAX;
    }
    return rc;
}

static int infer_l2(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct plan *plan;
    int rc = infer_with(ctx, &plan, err);
    if (rc < 0)
        return rc;
    plan->on_device = STG_KERNEL_L2_NORMALIZE;
    plan->row = squares[ctx->inputs[0].dtype];
    plan->scale = scales[ctx->inputs[0].dtype];
    plan->epsilon =
        stg_attr_float(ctx->node->attrs, ctx->node->n_attrs, "epsilon", 1e-12);
    if (plan->row == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; cast it to a float", ctx->inputs[0].name,
                       stg_dtype_name(ctx->inputs[0].dtype));
    ctx->outputs[0] = ctx->inputs[0];
    return 0;
}

/* ---- when a batch flows ---- */

/* Neighbouring dimensions that are alike are one; at least one at the end. */
struct walk {
    const struct plan *plan;
    int ndim;
    struct {
        int64_t n, in_stride, sum_stride; /* sum_stride 0: reduced */
    } dims[STG_MAX_DIMS];
    int64_t n_sums, n_each;
    const char *in;
    char *out; /* scale */
    char *sums;
    int64_t bytes; /* of an input's element */
};

static void plan_walk(const struct stg_tensor *input, const struct plan *plan,
                      struct walk *ret)
{
    *ret = (struct walk){.plan = plan, .n_sums = 1, .n_each = 1, .in = input->data};
    int64_t in_stride = 1;
    ret->bytes = stg_dtype_bytes(input->dtype);
    for (int d = input->ndim - 1; d >= 0; d--) {
        int64_t n = input->shape[d];
        bool reduced = (plan->reduced >> d & 1) != 0;
        int64_t sum_stride = reduced ? 0 : ret->n_sums;
        *(reduced ? &ret->n_each : &ret->n_sums) *= n;
        int last = ret->ndim - 1;
        if (ret->ndim > 0 && (ret->dims[last].sum_stride == 0) == reduced)
            ret->dims[last].n *= n;
        else {
            ret->dims[ret->ndim].n = n;
            ret->dims[ret->ndim].in_stride = in_stride;
            ret->dims[ret->ndim++].sum_stride = sum_stride;
        }
        in_stride *= n;
    }
    if (ret->ndim == 0) {
        ret->dims[0].n = 1;
        ret->ndim = 1;
    }
}

/* dims[0] is the innermost. */
static void walk_dim(const struct walk *walk, int d, int64_t in, int64_t sum)
{
    int64_t n = walk->dims[d].n;
    bool reduced = walk->dims[d].sum_stride == 0;
    if (d > 0) {
        for (int64_t i = 0; i < n; i++)
            walk_dim(walk, d - 1, in + i * walk->dims[d].in_stride,
                     sum + i * walk->dims[d].sum_stride);
    } else if (walk->out != NULL) {
        walk->plan->scale(walk->in + in * walk->bytes, n, reduced,
                          (const double *)(const void *)walk->sums + sum,
                          walk->out + in * walk->bytes);
    } else {
        walk->plan->row(walk->in + in * walk->bytes, n, reduced, walk->sums + sum * 8);
    }
}

/* What is less than, or as little as, everything. */
static uint64_t least(int dtype)
{
    double infinity = -INFINITY;
    uint64_t bits;
    memcpy(&bits, &infinity, sizeof(bits));
    switch (dtype) {
    case STAGER_INT8: return (uint64_t)INT8_MIN;
    case STAGER_INT16: return (uint64_t)INT16_MIN;
    case STAGER_INT32: return (uint64_t)INT32_MIN;
    case STAGER_INT64: return (uint64_t)INT64_MIN;
    case STAGER_UINT8:
    case STAGER_UINT16:
    case STAGER_UINT32:
    case STAGER_UINT64: return 0;
    default: return bits;
    }
}

static int sum_up(struct stg_op_run *ctx, struct walk *walk, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    plan_walk(input, plan, walk);
    uint64_t *accumulators =
        stg_bump_alloc_raw(ctx->scratch, ((size_t)walk->n_sums + 1) * 8);
    if (accumulators == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    uint64_t first = plan->max ? least(input->dtype) : 0;
    for (int64_t i = 0; i < walk->n_sums; i++)
        accumulators[i] = first;
    walk->sums = (char *)accumulators;
    if (stg_tensor_n(input) > 0)
        walk_dim(walk, walk->ndim - 1, 0, 0);
    return 0;
}

/* Dimensions that are merged, the last is the innermost. */
static int launch(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    bool is_scaled = plan->on_device == STG_KERNEL_L2_NORMALIZE;
    struct walk walk;
    struct stg_tensor output;
    int64_t shape[STG_MAX_DIMS];
    plan_walk(input, plan, &walk);
    struct stg_kernel_reduce how = {.op = plan->on_device,
                                    .dtype = input->dtype,
                                    .n_dims = walk.ndim,
                                    .epsilon = plan->epsilon,
                                    .x = input->data};
    for (int d = 0; d < walk.ndim; d++) {
        how.size[walk.ndim - 1 - d] = walk.dims[d].n;
        how.is_reduced[walk.ndim - 1 - d] = walk.dims[d].sum_stride == 0;
    }
    int ndim = is_scaled ? input->ndim : shape_of(plan, input->shape, input->ndim, shape);
    int rc = ctx->alloc(ctx, 0, input->dtype, ndim, is_scaled ? input->shape : shape, 0,
                        &output, err);
    if (rc == 0)
        rc = ctx->device->room(ctx, stg_kernel_reduce_scratch(walk.n_sums, walk.n_each),
                               &how.scratch, err);
    how.y = rc == 0 ? output.data : NULL;
    return rc < 0 ? rc : ctx->device->kernels->reduce(ctx->device->stream, &how, err);
}

static bool is_float(int dtype)
{
    return dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64 ||
           dtype == STAGER_FLOAT16 || dtype == STAGER_BFLOAT16;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct walk walk;
    struct stg_tensor output;
    int64_t shape[STG_MAX_DIMS];
    if (ctx->device != NULL)
        return launch(ctx, err);
    int rc = sum_up(ctx, &walk, err);
    if (rc < 0)
        return rc;
    int ndim = shape_of(plan, input->shape, input->ndim, shape);
    rc = ctx->alloc(ctx, 0, input->dtype, ndim, shape, 0, &output, err);
    if (rc < 0)
        return rc;
    /* The mean of nothing is 0/0, of integers 0. */
    double *wide = (double *)(void *)walk.sums;
    for (int64_t i = 0;
         plan->mean && walk.n_each == 0 && is_float(input->dtype) && i < walk.n_sums; i++)
        wide[i] = NAN;
    plan->store(walk.sums, walk.n_sums, plan->mean ? walk.n_each : 0, output.data);
    return 0;
}

static int run_l2(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct walk walk;
    struct stg_tensor output;
    if (ctx->device != NULL)
        return launch(ctx, err);
    int rc = sum_up(ctx, &walk, err);
    if (rc == 0)
        rc = ctx->alloc(ctx, 0, input->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    double *sum = (double *)(void *)walk.sums;
    for (int64_t i = 0; i < walk.n_sums; i++)
        sum[i] = 1 / sqrt(sum[i] < plan->epsilon ? plan->epsilon : sum[i]);
    walk.out = output.data;
    if (stg_tensor_n(input) > 0)
        walk_dim(&walk, walk.ndim - 1, 0, 0);
    return 0;
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    const struct plan *plan = ctx->plan;
    return (plan->reduced & 1) == 0;
}

#define OP(op, text, table, infer_op, run_op)                                            \
    const struct stg_op stg_op_##op = {                                                  \
        .name = #op,                                                                     \
        .summary = text,                                                                 \
        .params = table,                                                                 \
        .n_params = sizeof(table) / sizeof(table[0]),                                    \
        .min_inputs = 1,                                                                 \
        .max_inputs = 1,                                                                 \
        .infer = infer_op,                                                               \
        .run = run_op,                                                                   \
        .rows = rows,                                                                    \
        .launches = stg_launches_all,                                                    \
    }

OP(reduce_sum, "Sums over dimensions; integers wrap; as tf.reduce_sum.", params,
   infer_sum, run);

OP(reduce_mean, "Means over dimensions; as tf.reduce_mean.", params, infer_mean, run);

OP(reduce_max, "The largest over dimensions; NaN wins; as tf.reduce_max.", params,
   infer_max, run);

OP(l2_normalize, "Divided by the root of the sum of squares; as tf.math.l2_normalize.",
   l2_params, infer_l2, run_l2);
