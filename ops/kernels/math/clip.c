/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/kernels/math/elementwise.h"

/* ---- clip_by_value ---- */

static const struct stg_param clip_params[] = {
    {.name = "clip_value_min",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "what is less becomes this"},
    {.name = "clip_value_max",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "what is more becomes this"},
};

struct clip {
    void (*kernel)(const struct clip *plan, const void *in, void *out, int64_t n);
    uint64_t low, high; /* elements */
};

/* The upper bound first, as TensorFlow: the lower wins where they cross. NaN stays. */
#define CLIP(op, dtype, type, value, ring, load, store)                                  \
    static void op##_##dtype(const struct clip *plan, const void *in, void *out,         \
                             int64_t n)                                                  \
    {                                                                                    \
        type low_bits, high_bits;                                                        \
        memcpy(&low_bits, &plan->low, sizeof(type));                                     \
        memcpy(&high_bits, &plan->high, sizeof(type));                                   \
        value low = load(low_bits), high = load(high_bits);                              \
        const type *from = in;                                                           \
        type *to = out;                                                                  \
        STG_SAME_OR_APART                                                                \
        for (int64_t i = 0; i < n; i++) {                                                \
            value x = load(from[i]), y = high < x ? high : x;                            \
            to[i] = (type)store((y < low ? low : y));                                    \
        }                                                                                \
    }

STG_EACH_NUMBER(CLIP, clip)

static int infer_clip(struct stg_op_infer *ctx, struct stg_err *err)
{
    static void (*const kernels[STG_N_DTYPES])(const struct clip *, const void *, void *,
                                               int64_t) = {STG_NUMBER_KERNELS(clip)};
    static const char *const names[] = {"clip_value_min", "clip_value_max"};
    const struct stg_component *input = &ctx->inputs[0];
    struct clip *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->kernel = kernels[input->dtype];
    if (plan->kernel == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s, which is not numeric", input->name,
                       stg_dtype_name(input->dtype));
    for (int k = 0; k < 2; k++) {
        const struct stg_attr *attr =
            stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, names[k]);
        if (attr->n_values != 1)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s must be one number",
                           names[k]);
        int rc = stg_literal_store(attr->values, input->dtype,
                                   k == 0 ? &plan->low : &plan->high, 0, err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "%s", names[k]);
    }
    *output = *input;
    ctx->plan = plan;
    return 0;
}

static int run_clip(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct clip *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, input->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    plan->kernel(plan, input->data, output.data, stg_tensor_n(input));
    return 0;
}

/* ---- normalize ---- */

static const struct stg_param normalize_params[] = {
    {.name = "mean",
     .type = STG_PARAM_VALUES,
     .help = "one number, or one for each element of the last dimension"},
    {.name = "std", .type = STG_PARAM_VALUES, .help = "likewise; not 0"},
    {.name = "variance",
     .type = STG_PARAM_VALUES,
     .help = "instead of std: its square; above 0"},
    {.name = "min",
     .type = STG_PARAM_VALUES,
     .help = "instead of mean, with max: what becomes 0"},
    {.name = "max",
     .type = STG_PARAM_VALUES,
     .help = "instead of std, with min: what becomes 1; above min"},
};

struct normalize {
    void (*kernel)(const struct normalize *plan, const void *in, void *out, int64_t n);
    int dtype;
    int64_t n; /* of mean and std */
    double *mean, *std;
    float *mean_f, *std_f; /* the same as float32 */
};

static void normalize_float64(const struct normalize *plan, const void *in, void *out,
                              int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ((double *)out)[i] =
            (((const double *)in)[i] - plan->mean[i % plan->n]) / plan->std[i % plan->n];
}

/* A row of the last dimension at a time, so that the inner loop has no remainder. */
#define NORMALIZE(dtype, type, out_type, load, store)                                    \
    static void normalize_##dtype(const struct normalize *plan, const void *in,          \
                                  void *out, int64_t n)                                  \
    {                                                                                    \
        const type *from = in;                                                           \
        out_type *restrict to = out;                                                     \
        if (plan->n == 1) {                                                              \
            float mean = plan->mean_f[0], std = plan->std_f[0];                          \
            for (int64_t i = 0; i < n; i++)                                              \
                to[i] = (out_type)store((((float)load(from[i]) - mean) / std));          \
            return;                                                                      \
        }                                                                                \
        for (int64_t row = 0; row < n; row += plan->n) {                                 \
            for (int64_t i = 0; i < plan->n; i++)                                        \
                to[row + i] = (out_type)store(                                           \
                    (((float)load(from[row + i]) - plan->mean_f[i]) / plan->std_f[i]));  \
        }                                                                                \
    }

NORMALIZE(float32, float, float, , )
NORMALIZE(float16, uint16_t, uint16_t, stg_f32_from_f16, stg_f16_from_f64)
NORMALIZE(bfloat16, uint16_t, uint16_t, stg_f32_from_bf16, stg_bf16_from_f32)
NORMALIZE(int8, int8_t, float, , )
NORMALIZE(int16, int16_t, float, , )
NORMALIZE(int32, int32_t, float, , )
NORMALIZE(int64, int64_t, float, , )
NORMALIZE(uint8, uint8_t, float, , )
NORMALIZE(uint16, uint16_t, float, , )
NORMALIZE(uint32, uint32_t, float, , )
NORMALIZE(uint64, uint64_t, float, , )

/* The two attributes that are given: mean with std or variance, or min with max. */
struct moments {
    const struct stg_attr *center, *scale;
};

static int find_moments(const struct stg_node *node, struct moments *ret,
                        struct stg_err *err)
{
    static const char *const pairs[][2] = {
        {"mean", "std"}, {"mean", "variance"}, {"min", "max"}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        ret->center = stg_attr_find(node->attrs, node->n_attrs, pairs[i][0]);
        ret->scale = stg_attr_find(node->attrs, node->n_attrs, pairs[i][1]);
        if (ret->center != NULL && ret->scale != NULL && node->n_attrs == 2)
            return 0;
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "two attributes are needed: mean and std, mean and variance, or min "
                   "and max");
}

static int read_moments(struct stg_op_infer *ctx, const struct stg_attr *attr, int64_t n,
                        double **ret, float **ret_float, struct stg_err *err)
{
    *ret = stg_bump_alloc(ctx->bump, (size_t)n * sizeof(**ret));
    *ret_float = stg_bump_alloc(ctx->bump, (size_t)n * sizeof(**ret_float));
    if (*ret == NULL || *ret_float == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (attr->n_values != 1 && (int64_t)attr->n_values != n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s has %zu numbers, not %lld",
                       attr->name, attr->n_values, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const struct stg_value *value = &attr->values[attr->n_values == 1 ? 0 : i];
        int rc = stg_literal_store(value, STAGER_FLOAT64, *ret, (size_t)i, err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "%s", attr->name);
        (*ret_float)[i] = (float)(*ret)[i];
    }
    return 0;
}

/* variance and max become what is divided by. */
static int scale_moments(struct normalize *plan, const char *scale, struct stg_err *err)
{
    bool variance = strcmp(scale, "variance") == 0, max = strcmp(scale, "max") == 0;
    for (int64_t i = 0; i < plan->n; i++) {
        double *std = &plan->std[i];
        if (variance)
            *std = sqrt(*std);
        if (max)
            *std -= plan->mean[i];
        plan->std_f[i] = (float)*std;
        if (plan->std_f[i] == 0 || ((variance || max) && !(*std > 0)))
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s",
                           max        ? "max is not above min"
                           : variance ? "variance holds a number that is not above 0"
                                      : "std contains a 0");
    }
    return 0;
}

static int infer_normalize(struct stg_op_infer *ctx, struct stg_err *err)
{
    static void (*const kernels[STG_N_DTYPES])(const struct normalize *, const void *,
                                               void *,
                                               int64_t) = {STG_NUMBER_KERNELS(normalize)};
    const struct stg_component *input = &ctx->inputs[0];
    const struct stg_node *node = ctx->node;
    struct normalize *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct moments moments;
    int rc = find_moments(node, &moments, err);
    if (rc < 0)
        return rc;
    size_t n_mean = moments.center->n_values, n_std = moments.scale->n_values;
    plan->n = (int64_t)(n_mean > n_std ? n_mean : n_std);
    plan->kernel = kernels[input->dtype];
    if (plan->kernel == NULL || plan->n == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; a number is normalized by numbers",
                       input->name, stg_dtype_name(input->dtype));
    rc = read_moments(ctx, moments.center, plan->n, &plan->mean, &plan->mean_f, err);
    if (rc == 0)
        rc = read_moments(ctx, moments.scale, plan->n, &plan->std, &plan->std_f, err);
    if (rc == 0)
        rc = scale_moments(plan, moments.scale->name, err);
    if (rc < 0)
        return rc;
    int64_t last = input->ndim > 0 ? input->shape[input->ndim - 1] : 1;
    if (plan->n > 1 && last >= 0 && last != plan->n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "there are %lld numbers, and the last dimension is %lld",
                       (long long)plan->n, (long long)last);
    *output = *input;
    if (input->dtype != STAGER_FLOAT64 && input->dtype != STAGER_FLOAT16 &&
        input->dtype != STAGER_BFLOAT16)
        output->dtype = STAGER_FLOAT32;
    if (plan->n > 1)
        output->shape[output->ndim - 1] = plan->n;
    plan->dtype = output->dtype;
    ctx->plan = plan;
    return 0;
}

static int run_normalize(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct normalize *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    if (plan->n > 1 && input->shape[input->ndim - 1] != plan->n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "there are %" PRId64
                       " numbers, and the last dimension is %" PRId64,
                       plan->n, input->shape[input->ndim - 1]);
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    plan->kernel(plan, input->data, output.data, stg_tensor_n(input));
    return 0;
}

static uint64_t rows_normalize(const struct stg_op_run *ctx)
{
    const struct normalize *plan = ctx->plan;
    return plan->n == 1 || ctx->inputs[0].ndim > 1;
}

const struct stg_op stg_op_clip_by_value = {
    .name = "clip_by_value",
    .summary = "Numbers kept between two bounds; as tf.clip_by_value.",
    STG_PARAMS(clip_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_IN_PLACE,
    .infer = infer_clip,
    .run = run_clip,
    .rows = stg_rows_first,
};

const struct stg_op stg_op_normalize = {
    .name = "normalize",
    .summary = "(x - mean) / std, or (x - min) / (max - min); as tf.cast, tf.subtract "
               "and tf.divide do.",
    STG_PARAMS(normalize_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer_normalize,
    .run = run_normalize,
    .rows = rows_normalize,
};
