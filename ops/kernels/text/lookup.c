/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/hash.h"
#include "ops/kernels/text/vocabulary.h"

static const struct stg_param params[] = {
    {.name = "num_oov_buckets",
     .type = STG_PARAM_INT,
     .min = 0,
     .max = INT64_MAX,
     .preset = "0",
     .help = "words that are not there: so many ids behind the vocabulary's, by hash"},
    {.name = "default_value",
     .type = STG_PARAM_INT,
     .min = INT64_MIN,
     .max = INT64_MAX,
     .preset = "-1",
     .help = "without num_oov_buckets: the id of words that are not there"},
};

struct plan {
    int64_t n_oov, default_value;
    struct stg_modulus oov;
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *table = &ctx->inputs[0], *words = &ctx->inputs[1];
    const struct stg_node *node = ctx->node;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (table->dtype != STAGER_UINT8 || table->ndim != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is not a vocabulary; the inputs must be a "
                       "vocabulary node and words",
                       table->name);
    if (words->dtype != STAGER_STRING)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "input \"%s\" is %s; words must be strings (as_string converts numbers)",
            words->name, stg_dtype_name(words->dtype));
    plan->n_oov = stg_attr_int(node->attrs, node->n_attrs, "num_oov_buckets", 0);
    plan->default_value = stg_attr_int(node->attrs, node->n_attrs, "default_value", -1);
    if (plan->n_oov > 0 && stg_attr_find(node->attrs, node->n_attrs, "default_value"))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "default_value cannot be combined with num_oov_buckets above 0");
    plan->oov = stg_modulus_make(plan->n_oov > 0 ? (uint64_t)plan->n_oov : 1);
    *output = *words;
    output->dtype = STAGER_INT64;
    ctx->plan = plan;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *words = &ctx->inputs[1];
    struct stg_vocabulary v;
    struct stg_tensor output;
    if (!stg_vocabulary_open(&ctx->inputs[0], &v))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "input 0 is not a vocabulary");
    int rc = ctx->alloc(ctx, 0, STAGER_INT64, words->ndim, words->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    int64_t *to = output.data, n = stg_tensor_n(words);
    for (int64_t i = 0; i < n; i++) {
        const char *s = (const char *)words->data + words->begin[i];
        size_t bytes = (size_t)(words->end[i] - words->begin[i]);
        uint64_t fingerprint = stg_fingerprint64(s, bytes);
        int64_t id = stg_vocabulary_find(&v, s, bytes, fingerprint);
        if (id < 0)
            id = plan->n_oov > 0 ? (int64_t)(v.n + stg_modulus(fingerprint, &plan->oov))
                                 : plan->default_value;
        to[i] = id;
    }
    return 0;
}

/* The words alone. */
static uint64_t rows(const struct stg_op_run *ctx)
{
    return ctx->inputs[1].ndim > 0 ? 2 : 0;
}

const struct stg_op stg_op_lookup = {
    .name = "lookup",
    .summary = "The number of each word in a vocabulary; as "
               "tf.lookup.StaticVocabularyTable.",
    STG_PARAMS(params),
    .min_inputs = 2,
    .max_inputs = 2,
    .flags = STG_OP_ROW_WISE | STG_OP_BY_STRING,
    .infer = infer,
    .run = run,
    .rows = rows,
};
