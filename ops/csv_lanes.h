/* SPDX-License-Identifier: Apache-2.0
 *
 * What the vector kernels of decode_csv are written in, for csv_index.c and csv_vector.c
 * alone: each is compiled once for every set of instructions, with STG_CSV_SET (its name)
 * and STG_CSV_LANES (64-bit lanes of a vector) given, and with the compiler's options for
 * the set.
 */
#ifndef STG_OPS_CSV_LANES_H
#define STG_OPS_CSV_LANES_H

#include <assert.h>
#include <string.h>

#include "ops/csv_vector.h"

#ifndef STG_CSV_SET /* this file alone */
#define STG_CSV_SET any
#define STG_CSV_LANES 2
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LANES STG_CSV_LANES
#define INLINE static inline __attribute__((always_inline))
#define EACH(byte) (0x0101010101010101ull * (uint8_t)(byte))

/* This compilation's own name of something: stg_csv_index_avx2. */
#define STG_CSV_JOIN_(name, set) name##_##set
#define STG_CSV_JOIN(name, set) STG_CSV_JOIN_(name, set)
#define STG_CSV_OF(name) STG_CSV_JOIN(name, STG_CSV_SET)

/* These sets have ways of their own. */
#if defined(__AVX512VBMI2__) && STG_CSV_LANES == 8
#define STG_CSV_AVX512 1
#define STG_CSV_AVX2 0
#elif defined(__AVX2__) && STG_CSV_LANES == 4
#define STG_CSV_AVX512 0
#define STG_CSV_AVX2 1
#else
#define STG_CSV_AVX512 0
#define STG_CSV_AVX2 0
#endif

static_assert(STG_CSV_ROWS % LANES == 0, "a block is full vectors");

void STG_CSV_OF(stg_csv_index)(const struct stg_csv_dialect *dialect,
                               const struct stg_csv_block *block, const uint32_t *bytes,
                               uint32_t *room, uint32_t *ends, uint32_t *counts);
size_t STG_CSV_OF(stg_csv_newlines)(const char *data, size_t n, uint32_t *ret,
                                    size_t n_max, size_t *ret_seen);

#endif
