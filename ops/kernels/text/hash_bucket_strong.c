/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/base/hash.h"
#include "ops/kernels/text/text.h"

static const struct stg_param params[] = {
    {.name = "num_buckets",
     .type = STG_PARAM_INT,
     .required = true,
     .min = 1,
     .max = INT64_MAX,
     .help = "the result is below it"},
    {.name = "key",
     .type = STG_PARAM_INTS,
     .required = true,
     .help = "two integers: the key of the hash"},
};

struct plan {
    struct stg_hash_plan hash; /* first: stg_hash_run */
    uint64_t key[2];
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    int rc = stg_text_check(ctx, err);
    if (rc < 0)
        return rc;
    const struct stg_attr *key =
        stg_attr_find(ctx->node->attrs, ctx->node->n_attrs, "key");
    if (key->n_values != 2)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "key has %zu elements, not 2",
                       key->n_values);
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->hash.buckets = stg_modulus_make(
        (uint64_t)stg_attr_int(ctx->node->attrs, ctx->node->n_attrs, "num_buckets", 1));
    plan->key[0] = (uint64_t)key->values[0].i;
    plan->key[1] = (uint64_t)key->values[1].i;
    *output = ctx->inputs[0];
    output->dtype = STAGER_INT64;
    ctx->plan = plan;
    return 0;
}

/* ---- SipHash-2-4 (Aumasson, Bernstein 2012) ---- */

static inline uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turn(v[1], 13) ^ v[0];
    v[3] = turn(v[3], 16) ^ v[2];
    v[0] = turn(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = turn(v[1], 17) ^ v[2];
    v[3] = turn(v[3], 21) ^ v[0];
    v[2] = turn(v[2], 32);
}

static inline void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

uint64_t stg_siphash(const uint64_t key[2], const void *data, size_t n)
{
    const char *s = data;
    uint64_t v[4] = {
        key[0] ^ 0x736f6d6570736575,
        key[1] ^ 0x646f72616e646f6d,
        key[0] ^ 0x6c7967656e657261,
        key[1] ^ 0x7465646279746573,
    };
    uint64_t last = (uint64_t)n << 56;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, s + i, 8);
        absorb(v, word);
    }
    for (size_t i = 0; i < n % 8; i++)
        last |= (uint64_t)(uint8_t)s[n - n % 8 + i] << (8 * i);
    absorb(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t hash_strong(const struct stg_hash_plan *plan, const char *s, size_t n)
{
    return stg_siphash(((const struct plan *)plan)->key, s, n);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    return stg_hash_run(ctx, hash_strong, err);
}

const struct stg_op stg_op_string_to_hash_bucket_strong = {
    .name = "string_to_hash_bucket_strong",
    .summary = "SipHash-2-4 under a key, modulo num_buckets; as "
               "tf.strings.to_hash_bucket_strong.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_BY_STRING,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
};
