/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/hash.h"
#include "ops/base/op.h"

static const struct stg_param params[] = {
    {.name = "num_buckets",
     .type = STG_PARAM_INT,
     .required = true,
     .min = 1,
     .max = INT64_MAX,
     .help = "the result is below it"},
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    if (ctx->inputs[0].dtype != STAGER_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s; only strings are hashed", ctx->inputs[0].name,
                       stg_dtype_name(ctx->inputs[0].dtype));
    struct stg_hash_plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->buckets = stg_modulus_make(
        (uint64_t)stg_attr_int(ctx->node->attrs, ctx->node->n_attrs, "num_buckets", 1));
    *output = ctx->inputs[0];
    output->dtype = STAGER_INT64;
    ctx->plan = plan;
    return 0;
}

int stg_hash_run(struct stg_op_run *ctx,
                 uint64_t (*hash)(const struct stg_hash_plan *plan, const char *s,
                                  size_t n),
                 struct stg_err *err)
{
    const struct stg_hash_plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, STAGER_INT64, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    int64_t *out = output.data, n = stg_tensor_n(input);
    const char *data = input->data;
    for (int64_t i = 0; i < n; i++) {
        size_t bytes = (size_t)(input->end[i] - input->begin[i]);
        out[i] = (int64_t)stg_modulus(hash(plan, data + input->begin[i], bytes),
                                      &plan->buckets);
    }
    return 0;
}

static uint64_t hash_fast(const struct stg_hash_plan *plan, const char *s, size_t n)
{
    return n <= 16 ? stg_farm_0_to_16(s, n) : stg_fingerprint64(s, n);
}

static uint64_t hash_legacy(const struct stg_hash_plan *plan, const char *s, size_t n)
{
    return stg_hash64(s, n);
}

static int run_fast(struct stg_op_run *ctx, struct stg_err *err)
{
    return stg_hash_run(ctx, hash_fast, err);
}

static int run_legacy(struct stg_op_run *ctx, struct stg_err *err)
{
    return stg_hash_run(ctx, hash_legacy, err);
}

const struct stg_op stg_op_string_to_hash_bucket_fast = {
    .name = "string_to_hash_bucket_fast",
    .summary = "FarmHash Fingerprint64 modulo num_buckets; as "
               "tf.strings.to_hash_bucket_fast.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_BY_STRING,
    .infer = infer,
    .run = run_fast,
    .rows = stg_rows_first,
};

const struct stg_op stg_op_string_to_hash_bucket = {
    .name = "string_to_hash_bucket",
    .summary = "TensorFlow's legacy Hash64 modulo num_buckets; as "
               "tf.compat.v1.string_to_hash_bucket.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_BY_STRING,
    .infer = infer,
    .run = run_legacy,
    .rows = stg_rows_first,
};
