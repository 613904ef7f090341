/* SPDX-License-Identifier: Apache-2.0
 *
 * What the vector kernels of decode_csv are written in, for index.c and vector.c
 * alone: each is compiled once for every set of instructions, with STG_CSV_SET (its name)
 * and STG_CSV_LANES (64-bit lanes of a vector) given, and with the compiler's options for
 * the set.
 */
#ifndef STG_OPS_KERNELS_CSV_LANES_H
#define STG_OPS_KERNELS_CSV_LANES_H

#include <assert.h>
#include <string.h>

#include "ops/kernels/csv/csv.h"

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

/* ---- vectors: the compiler's own; what it cannot say for itself has versions ---- */

typedef uint8_t bytes_v __attribute__((vector_size(8 * LANES)));
typedef uint16_t pairs_v __attribute__((vector_size(8 * LANES)));
typedef uint32_t quads_v __attribute__((vector_size(8 * LANES)));
typedef uint64_t words_v __attribute__((vector_size(8 * LANES)));
typedef int64_t signed_v __attribute__((vector_size(8 * LANES)));
typedef double doubles_v __attribute__((vector_size(8 * LANES)));
typedef int32_t ints_v __attribute__((vector_size(4 * LANES))); /* half as long */
typedef uint32_t counts_v __attribute__((vector_size(4 * LANES)));
typedef float floats_v __attribute__((vector_size(4 * LANES)));

/* mask: all ones or all zeros in a lane. */
INLINE words_v choose(words_v mask, words_v yes, words_v no)
{
    return (yes & mask) | (no & ~mask);
}

INLINE words_v widen(counts_v x)
{
#if STG_CSV_AVX512
    return (words_v)_mm512_cvtepu32_epi64((__m256i)x);
#elif STG_CSV_AVX2
    return (words_v)_mm256_cvtepu32_epi64((__m128i)x);
#else
    return __builtin_convertvector(x, words_v);
#endif
}

/* The lower halves. */
INLINE ints_v narrow(words_v x)
{
#if STG_CSV_AVX2
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return (ints_v)_mm256_castsi256_si128(_mm256_permutevar8x32_epi32((__m256i)x, even));
#else
    return __builtin_convertvector(x, ints_v);
#endif
}

#if STG_CSV_AVX512

INLINE words_v load_words(const void *from)
{
    words_v ret;
    memcpy(&ret, from, sizeof(ret));
    return ret;
}

INLINE bool any(words_v mask)
{
    return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
}

/* How long the fields of rows i on are. */
INLINE words_v field_bytes(const uint32_t *ends, size_t i)
{
    __m256i before = _mm256_loadu_si256((const void *)(ends + i));
    __m256i end = _mm256_loadu_si256((const void *)(ends + STG_CSV_ROWS + i));
    return widen(
        (counts_v)_mm256_add_epi32(_mm256_sub_epi32(end, before), _mm256_set1_epi32(-1)));
}

/* Their first eight characters, and what is behind. */
INLINE words_v field_first(const struct stg_csv_block *block, const uint32_t *ends,
                           size_t i)
{
    __m256i before = _mm256_loadu_si256((const void *)(ends + i));
    words_v start = widen((counts_v)_mm256_add_epi32(before, _mm256_set1_epi32(1)));
    words_v at = load_words(block->base + i) + start;
    return (words_v)_mm512_i64gather_epi64((__m512i)at, NULL, 1);
}

#else

INLINE bool any(words_v mask)
{
#if STG_CSV_AVX2
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
    uint64_t ret = 0;
    for (int i = 0; i < LANES; i++)
        ret |= mask[i];
    return ret != 0;
#endif
}

INLINE uint64_t load8(const char *s)
{
    uint64_t word;
    memcpy(&word, s, sizeof(word));
    return word;
}

INLINE words_v field_bytes(const uint32_t *ends, size_t i)
{
    counts_v before, end;
    memcpy(&before, ends + i, sizeof(before));
    memcpy(&end, ends + STG_CSV_ROWS + i, sizeof(end));
    return widen(end - before - 1);
}

INLINE words_v field_first(const struct stg_csv_block *block, const uint32_t *ends,
                           size_t i)
{
    words_v ret = {0};
    for (size_t k = 0; k < LANES; k++)
        ret[k] = load8(block->base[i + k] + (uint32_t)(ends[i + k] + 1));
    return ret;
}

#endif

#endif
