/* SPDX-License-Identifier: Apache-2.0
 *
 * The two string hashes that TensorFlow defines buckets by, and what the ops that use
 * hashes share. Pure functions; any thread. Nothing outside [s, s + n) is read.
 */
#ifndef STG_OPS_BASE_HASH_H
#define STG_OPS_BASE_HASH_H

#include "core/fingerprint.h"
#include "ops/base/op.h"

/* FarmHash Fingerprint64: core/fingerprint.h, as a call. */
uint64_t stg_fingerprint64(const char *s, size_t n);

/* Returns one sum over several pieces of data, in order: `sum` is that of the pieces
 * before, or 0. */
static inline uint64_t stg_fingerprint64_join(uint64_t sum, const void *data, uint64_t n)
{
    return (sum ^ stg_fingerprint64(data, n)) * 0x9e3779b97f4a7c15ull + n;
}

/* TensorFlow's Hash64: MurmurHash64A with its own seed, 0xDECAFCAFFE. */
uint64_t stg_hash64(const char *s, size_t n);

/* SipHash-2-4 (Aumasson, Bernstein 2012): without the key, no collision
 * can be found. */
uint64_t stg_siphash(const uint64_t key[2], const void *data, size_t n);

/* A divisor that many numbers are taken modulo of, without a division: magic is its
 * inverse rounded down, so that the quotient is right or one too small. */
struct stg_modulus {
    uint64_t divisor; /* at least 1 */
    uint64_t magic;   /* floor((2^64 - 1) / divisor) */
};

__extension__ typedef unsigned __int128 stg_uint128;

static inline struct stg_modulus stg_modulus_make(uint64_t divisor)
{
    return (struct stg_modulus){.divisor = divisor, .magic = UINT64_MAX / divisor};
}

static inline uint64_t stg_modulus(uint64_t value, const struct stg_modulus *by)
{
    uint64_t quotient = (uint64_t)((stg_uint128)value * by->magic >> 64);
    uint64_t rest = value - quotient * by->divisor;
    return rest - (by->divisor & -(uint64_t)(rest >= by->divisor));
}

/* string_to_hash_bucket_fast and its plan, for ops that do its work. A plan that begins
 * with this one may have more. */
extern const struct stg_op stg_op_string_to_hash_bucket_fast;
struct stg_hash_plan {
    struct stg_modulus buckets;
};

/* The run of an op whose plan begins with a stg_hash_plan: input 0, strings, to buckets.
 */
int stg_hash_run(struct stg_op_run *ctx,
                 uint64_t (*hash)(const struct stg_hash_plan *plan, const char *s,
                                  size_t n),
                 struct stg_err *err);

#endif
