/* SPDX-License-Identifier: Apache-2.0
 *
 * The two string hashes that TensorFlow defines buckets by. Pure functions; any thread.
 * Nothing outside [s, s + n) is read.
 */
#ifndef STG_OPS_HASH_H
#define STG_OPS_HASH_H

#include <stddef.h>
#include <stdint.h>

/* FarmHash Fingerprint64 (farmhashna::Hash64 of google/farmhash): never changes, on any
 * platform. */
uint64_t stg_fingerprint64(const char *s, size_t n);

/* TensorFlow's Hash64: MurmurHash64A with its own seed, 0xDECAFCAFFE. */
uint64_t stg_hash64(const char *s, size_t n);

/* A divisor that many numbers are taken modulo of, without a division (Granlund and
 * Montgomery: Division by invariant integers using multiplication; PLDI 1994). */
struct stg_modulus {
    uint64_t divisor;
    uint64_t magic;
    unsigned before, after; /* shifts */
};

/* divisor: at least 1. */
struct stg_modulus stg_modulus_make(uint64_t divisor);

__extension__ typedef unsigned __int128 stg_uint128;

static inline uint64_t stg_modulus(uint64_t value, const struct stg_modulus *by)
{
    uint64_t high = (uint64_t)((stg_uint128)value * by->magic >> 64);
    uint64_t quotient = (((value - high) >> by->before) + high) >> by->after;
    return value - quotient * by->divisor;
}

/* string_to_hash_bucket_fast and its plan, for who does its work. */
struct stg_op;
extern const struct stg_op stg_op_string_to_hash_bucket_fast;
struct stg_hash_plan {
    struct stg_modulus buckets;
};

#endif
