/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "ops/base/hash.h"

/* TensorFlow's 0xDECAFCAFFE. */
#define DEFAULT_KEY "956888297470"

static const struct stg_param params[] = {
    {.name = "num_buckets",
     .type = STG_PARAM_INT,
     .min = 0,
     .max = INT64_MAX,
     .required = true,
     .help = "the result is below it; 0: below 2^63 - 1"},
    {.name = "hash_key",
     .type = STG_PARAM_INT,
     .min = INT64_MIN,
     .max = INT64_MAX,
     .preset = DEFAULT_KEY,
     .help = "what the hash begins with"},
};

struct plan {
    struct stg_modulus buckets;
    uint64_t key;
};

static int check_input(const struct stg_component *input, struct stg_err *err)
{
    if ((input->dtype != STAGER_STRING && input->dtype != STAGER_INT64 &&
         input->dtype != STAGER_INT32) ||
        input->ndim < 1 || input->ndim > 2)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s of rank %d; strings, int32 or int64 of rank 1 "
                       "or 2 are crossed",
                       input->name, stg_dtype_name(input->dtype), input->ndim);
    return 0;
}

/* How many values of each record there are. */
static int64_t width(int ndim, const int64_t *shape)
{
    return ndim == 2 ? shape[1] : 1;
}

static int rows_differ(const char *name, int64_t n, int64_t other, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%s has %" PRId64 " records, the first input %" PRId64, name, n,
                   other);
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = (struct stg_component){
        .dtype = STAGER_INT64, .ndim = 1, .shape = {ctx->inputs[0].shape[0], 1}};
    for (size_t i = 0; i < ctx->n_inputs; i++) {
        const struct stg_component *input = &ctx->inputs[i];
        int rc = check_input(input, err);
        if (rc < 0)
            return rc;
        int64_t n = input->shape[0], w = width(input->ndim, input->shape);
        int64_t *rows = &output->shape[0], *all = &output->shape[1];
        if (n >= 0 && *rows >= 0 && n != *rows)
            return rows_differ(input->name, n, *rows, err);
        *rows = *rows < 0 ? n : *rows;
        if (*all < 0 || w < 0)
            *all = -1;
        else if (__builtin_mul_overflow(*all, w, all))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "the crosses of one record are too many");
        output->ndim = input->ndim > output->ndim ? input->ndim : output->ndim;
    }
    int64_t buckets = stg_attr_int(node->attrs, node->n_attrs, "num_buckets", 0);
    plan->buckets = stg_modulus_make((uint64_t)(buckets > 0 ? buckets : INT64_MAX));
    plan->key = (uint64_t)stg_attr_int(node->attrs, node->n_attrs, "hash_key",
                                       INT64_C(0xDECAFCAFFE));
    ctx->plan = plan;
    return 0;
}

static inline uint64_t shift_mix(uint64_t value)
{
    return value ^ value >> 47;
}

/* TensorFlow's FingerprintCat64. */
static inline uint64_t join(uint64_t a, uint64_t b)
{
    const uint64_t mul = 0xc6a4a7935bd1e995u;
    uint64_t ret = (a ^ mul ^ shift_mix(b * mul) * mul) * mul;
    return shift_mix(shift_mix(ret) * mul);
}

static uint64_t value_at(const struct stg_tensor *input, int64_t i)
{
    if (input->dtype == STAGER_STRING)
        return stg_fingerprint64((const char *)input->data + input->begin[i],
                                 (size_t)(input->end[i] - input->begin[i]));
    return input->dtype == STAGER_INT64
               ? (uint64_t)((const int64_t *)input->data)[i]
               : (uint64_t)(int64_t)((const int32_t *)input->data)[i];
}

/* Every hash so far with every value of this input: the last input runs fastest. In
 * place, from the back: hash i becomes w ones at i * w. */
static void cross_row(const struct stg_tensor *input, int64_t row, int64_t w,
                      int64_t n_before, uint64_t *hashes)
{
    for (int64_t i = n_before - 1; i >= 0; i--) {
        uint64_t before = hashes[i];
        for (int64_t k = w - 1; k >= 0; k--)
            hashes[i * w + k] = join(before, value_at(input, row * w + k));
    }
}

static int check_rows(const struct stg_op_run *ctx, int64_t *ret_width,
                      struct stg_err *err)
{
    const struct stg_tensor *first = &ctx->inputs[0];
    *ret_width = 1;
    for (size_t i = 0; i < ctx->n_inputs; i++) {
        const struct stg_tensor *input = &ctx->inputs[i];
        char name[32];
        snprintf(name, sizeof(name), "input %zu", i);
        if (input->shape[0] != first->shape[0])
            return rows_differ(name, input->shape[0], first->shape[0], err);
        if (__builtin_mul_overflow(*ret_width, width(input->ndim, input->shape),
                                   ret_width))
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                           "the crosses of one record are too many");
    }
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    int64_t shape[2] = {ctx->inputs[0].shape[0], 1};
    int ndim = 1;
    for (size_t i = 0; i < ctx->n_inputs; i++)
        ndim = ctx->inputs[i].ndim > ndim ? ctx->inputs[i].ndim : ndim;
    int rc = check_rows(ctx, &shape[1], err);
    struct stg_tensor output;
    if (rc == 0)
        rc = ctx->alloc(ctx, 0, STAGER_INT64, ndim, shape, 0, &output, err);
    if (rc < 0 || shape[1] == 0)
        return rc;
    uint64_t *to = output.data;
    for (int64_t row = 0; row < shape[0]; row++, to += shape[1]) {
        int64_t n = 1;
        to[0] = plan->key;
        for (size_t i = 0; i < ctx->n_inputs; i++) {
            int64_t w = width(ctx->inputs[i].ndim, ctx->inputs[i].shape);
            cross_row(&ctx->inputs[i], row, w, n, to);
            n *= w;
        }
        for (int64_t i = 0; i < n; i++)
            to[i] = stg_modulus(to[i], &plan->buckets);
    }
    return 0;
}

static uint64_t rows(const struct stg_op_run *ctx)
{
    return UINT64_MAX;
}

const struct stg_op stg_op_cross = {
    .name = "cross",
    .summary = "Every combination of the values of a record, hashed into buckets; as "
               "tf.feature_column.crossed_column.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = -1,
    .infer = infer,
    .run = run,
    .rows = rows,
};
