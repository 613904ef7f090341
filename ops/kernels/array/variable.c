/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "core/random.h"
#include "ops/base/element.h"
#include "ops/base/hash.h"
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "shape",
     .type = STG_PARAM_SHAPE,
     .required = true,
     .help = "every dimension is known"},
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .preset = "float32",
     .help = "any but string"},
    {.name = "initializer",
     .type = STG_PARAM_VALUES,
     .preset = "zeros",
     .help = "ones, zeros, a number, as many numbers as the shape has elements, "
             "random_uniform, random_normal, or npy"},
    {.name = "seed",
     .type = STG_PARAM_INT,
     .preset = "of the node's name",
     .help = "what is drawn depends on it alone"},
    {.name = "minval",
     .type = STG_PARAM_FLOAT,
     .preset = "-0.05",
     .help = "random_uniform: the least"},
    {.name = "maxval",
     .type = STG_PARAM_FLOAT,
     .preset = "0.05",
     .help = "random_uniform: what all are below"},
    {.name = "mean", .type = STG_PARAM_FLOAT, .preset = "0", .help = "random_normal"},
    {.name = "stddev",
     .type = STG_PARAM_FLOAT,
     .preset = "0.05",
     .help = "random_normal: 0 or more"},
    {.name = "file",
     .type = STG_PARAM_STRING,
     .help = "npy: whole path, on the trainer's machine"},
};

enum kind { LITERAL, UNIFORM, NORMAL };

struct plan {
    enum kind kind;
    const void *elements; /* LITERAL: one, or all */
    uint64_t n_elements;
    uint64_t seed;
    double first, second; /* bounds, or mean and deviation */
};

/* ---- what is written ---- */

static const char *word_of(const struct stg_node *node)
{
    const struct stg_attr *attr =
        stg_attr_find(node->attrs, node->n_attrs, "initializer");
    return attr != NULL && attr->n_values == 1 && attr->values[0].kind == STG_VALUE_STRING
               ? attr->values[0].s
               : NULL;
}

/* Each of the attributes belongs to one initializer. */
static int check_belongs(const struct stg_node *node, const char *word,
                         struct stg_err *err)
{
    static const struct {
        const char *attr, *word;
    } rows[] = {{"minval", "random_uniform"},
                {"maxval", "random_uniform"},
                {"mean", "random_normal"},
                {"stddev", "random_normal"},
                {"file", "npy"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (stg_attr_find(node->attrs, node->n_attrs, rows[i].attr) != NULL &&
            (word == NULL || strcmp(word, rows[i].word) != 0))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "%s belongs to the initializer %s", rows[i].attr,
                           rows[i].word);
    }
    if (word != NULL && strcmp(word, "npy") == 0) {
        const char *file = stg_attr_string(node->attrs, node->n_attrs, "file", "");
        if (file[0] != '/')
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "the initializer npy needs an absolute path in file");
    }
    return 0;
}

static int read_random(const struct stg_node *node, int dtype, struct plan *plan,
                       struct stg_err *err)
{
    bool uniform = plan->kind == UNIFORM;
    plan->seed = (uint64_t)stg_attr_int(
        node->attrs, node->n_attrs, "seed",
        (int64_t)stg_fingerprint64(node->name, strlen(node->name)));
    plan->first = stg_attr_float(node->attrs, node->n_attrs, uniform ? "minval" : "mean",
                                 uniform ? -0.05 : 0);
    plan->second =
        stg_attr_float(node->attrs, node->n_attrs, uniform ? "maxval" : "stddev", 0.05);
    if (dtype != STAGER_FLOAT32 && dtype != STAGER_FLOAT64 && dtype != STAGER_FLOAT16 &&
        dtype != STAGER_BFLOAT16)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "initializer: random values must be floats, not %s",
                       stg_dtype_name(dtype));
    if (uniform && !(plan->first <= plan->second))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "minval is above maxval");
    if (!uniform && !(plan->second >= 0))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "stddev is negative");
    return 0;
}

/* ones, zeros and numbers, as elements. */
static int read_literal(struct stg_op_infer *ctx, const char *word, int dtype,
                        uint64_t n_wanted, struct plan *plan, struct stg_err *err)
{
    const struct stg_attr *attr =
        stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, "initializer");
    bool is_one = word != NULL && strcmp(word, "ones") == 0;
    struct stg_value value = {.kind =
                                  dtype == STAGER_BOOL ? STG_VALUE_BOOL : STG_VALUE_INT,
                              .i = is_one,
                              .f = is_one};
    bool written = attr != NULL && word == NULL;
    const struct stg_value *values = written ? attr->values : &value;
    plan->n_elements = written ? attr->n_values : 1;
    if (plan->n_elements != 1 && plan->n_elements != n_wanted)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "initializer has %llu numbers, the shape %llu elements",
                       (unsigned long long)plan->n_elements,
                       (unsigned long long)n_wanted);
    char *elements = stg_bump_alloc(ctx->bump, plan->n_elements * stg_dtype_bytes(dtype));
    if (elements == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < plan->n_elements; i++) {
        int rc = stg_literal_store(&values[i], dtype, elements, i, err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "initializer");
    }
    plan->elements = elements;
    return 0;
}

static int read_initializer(struct stg_op_infer *ctx, int dtype, uint64_t n,
                            struct plan *plan, struct stg_err *err)
{
    static const char *const words[] = {"zeros", "ones", "npy", "random_uniform",
                                        "random_normal"};
    const char *word = word_of(ctx->node);
    bool known = word == NULL;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        known = known || strcmp(word, words[i]) == 0;
    if (!known)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "initializer must be ones, zeros, numbers, random_uniform, "
                       "random_normal or npy, not \"%.64s\"",
                       word);
    int rc = check_belongs(ctx->node, word, err);
    if (rc < 0)
        return rc;
    if (word != NULL && strncmp(word, "random_", 7) == 0) {
        plan->kind = strcmp(word, "random_uniform") == 0 ? UNIFORM : NORMAL;
        return read_random(ctx->node, dtype, plan, err);
    }
    return read_literal(ctx, word, dtype, n, plan, err);
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    const struct stg_attr *shape = stg_attr_find(node->attrs, node->n_attrs, "shape");
    int dtype = stg_dtype_from_name(
        stg_attr_string(node->attrs, node->n_attrs, "dtype", "float32"));
    if (stg_dtype_bytes(dtype) == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "dtype: a variable cannot be %s",
                       stg_dtype_name(dtype));
    if (shape->n_values > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "shape has more than %d dimensions",
                       STG_MAX_DIMS);
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    output->dtype = dtype;
    output->ndim = (int)shape->n_values;
    for (int d = 0; d < output->ndim; d++)
        output->shape[d] = shape->values[d].i;
    /* What is too large for any memory is so when it is made. */
    uint64_t n = 0, bytes;
    if (!stg_tensor_size(dtype, output->ndim, output->shape, 0, &n, &bytes))
        n = UINT64_MAX;
    ctx->plan = plan;
    return read_initializer(ctx, dtype, n, plan, err);
}

/* ---- what is in memory ---- */

static double uniform(uint64_t word)
{
    return (double)(word >> 11) * 0x1p-53;
}

/* Box and Muller: two words give the values 2 k and 2 k + 1. */
static double normal(struct stg_random *random, uint64_t i)
{
    double radius = sqrt(-2 * log(1 - uniform(stg_random_at(random, i & ~UINT64_C(1)))));
    double angle = 2 * 0x1.921fb54442d18p+1 * uniform(stg_random_at(random, i | 1));
    return radius * ((i & 1) == 0 ? cos(angle) : sin(angle));
}

static void store(void *data, uint64_t i, int dtype, double value)
{
    switch (dtype) {
    case STAGER_FLOAT64: ((double *)data)[i] = value; break;
    case STAGER_FLOAT16: ((uint16_t *)data)[i] = stg_f16_from_f64(value); break;
    case STAGER_BFLOAT16: ((uint16_t *)data)[i] = stg_bf16_from_f32((float)value); break;
    default: ((float *)data)[i] = (float)value; break;
    }
}

static void fill_random(const struct plan *plan, struct stg_tensor *variable, uint64_t n)
{
    struct stg_random random;
    stg_random_init(&random, plan->seed, STG_RANDOM_VARIABLE, 0, 0);
    for (uint64_t i = 0; i < n; i++) {
        double value =
            plan->kind == UNIFORM
                ? uniform(stg_random_at(&random, i)) * (plan->second - plan->first) +
                      plan->first
                : normal(&random, i) * plan->second + plan->first;
        store(variable->data, i, variable->dtype, value);
    }
}

static int initialize(const void *arg, struct stg_tensor *variable, struct stg_err *err)
{
    const struct plan *plan = arg;
    size_t bytes = stg_dtype_bytes(variable->dtype);
    if (plan->kind != LITERAL) {
        fill_random(plan, variable, variable->data_bytes / bytes);
        return 0;
    }
    bytes *= plan->n_elements;
    for (uint64_t at = 0; bytes > 0 && at < variable->data_bytes; at += bytes)
        memcpy((char *)variable->data + at, plan->elements, bytes);
    return 0;
}

const struct stg_op stg_op_variable = {
    .name = "variable",
    .summary = "Memory of the process that runs the graph, made once; as "
               "tf.compat.v1.get_variable.",
    STG_PARAMS(params),
    .flags = STG_OP_VARIABLE,
    .infer = infer,
    .initialize = initialize,
};
