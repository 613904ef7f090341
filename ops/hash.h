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

#endif
