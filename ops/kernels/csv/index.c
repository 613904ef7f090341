/* SPDX-License-Identifier: Apache-2.0
 *
 * Where records have their delimiters and chunks their newlines: the part of the vector
 * kernels that looks at 64 characters at a time. Compiled as csv_vector.c is.
 */
#include "ops/kernels/csv/lanes.h"

#define AT_ONCE 8 /* fields that are indexed at a time */

/* ---- 64 characters at once ---- */

struct looked {
    uint64_t a;    /* a bit for each character that is a */
    uint64_t odds; /* a bit for each that is b, c or d */
};

#if STG_CSV_AVX512

INLINE uint64_t compare64(const char *s, char a)
{
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(s), _mm512_set1_epi8(a));
}

#elif defined(__AVX2__)

INLINE __m256i equal32(__m256i x, char a)
{
    return _mm256_cmpeq_epi8(x, _mm256_set1_epi8(a));
}

INLINE uint64_t bits(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

INLINE uint64_t compare64(const char *s, char a)
{
    return bits(equal32(_mm256_loadu_si256((const void *)s), a),
                equal32(_mm256_loadu_si256((const void *)(s + 32)), a));
}

INLINE __m256i odd32(__m256i x, char b)
{
    return _mm256_or_si256(_mm256_or_si256(equal32(x, b), equal32(x, '\n')),
                           equal32(x, '\r'));
}

INLINE struct looked look64(const char *s, char a, char b)
{
    __m256i low = _mm256_loadu_si256((const void *)s);
    __m256i high = _mm256_loadu_si256((const void *)(s + 32));
    return (struct looked){.a = bits(equal32(low, a), equal32(high, a)),
                           .odds = bits(odd32(low, b), odd32(high, b))};
}

#else

#if defined(__aarch64__)

INLINE uint64_t bits(const uint8x16_t x[4])
{
    static const uint8_t powers[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                       1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t bit = vld1q_u8(powers);
    uint8x16_t low = vpaddq_u8(vandq_u8(x[0], bit), vandq_u8(x[1], bit));
    uint8x16_t high = vpaddq_u8(vandq_u8(x[2], bit), vandq_u8(x[3], bit));
    uint8x16_t all = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

INLINE uint64_t compare64(const char *s, char a)
{
    uint8x16_t x[4];
    for (int i = 0; i < 4; i++)
        x[i] = vceqq_u8(vld1q_u8((const uint8_t *)s + 16 * i), vdupq_n_u8((uint8_t)a));
    return bits(x);
}

#else

/* Any machine: slow, and there so that the rest can be tested everywhere. */
INLINE uint64_t compare64(const char *s, char a)
{
    uint64_t ret = 0;
    for (int i = 0; i < 64; i++)
        ret |= (uint64_t)(s[i] == a) << i;
    return ret;
}

#endif

INLINE struct looked look64(const char *s, char a, char b)
{
    return (struct looked){.a = compare64(s, a),
                           .odds =
                               compare64(s, b) | compare64(s, '\n') | compare64(s, '\r')};
}

#endif

/* ---- index ---- */

#if STG_CSV_AVX512

/* The positions of the delimiters, packed; those that are not there are written too.
 * Control characters and what is below '#' are all odd at first sight. */
INLINE uint64_t index_64(__m512i x, __m512i delim, uint64_t keep, uint32_t at,
                         uint32_t *ends, uint64_t *odds)
{
    const __m512i places =
        _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48,
                        47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37, 36, 35, 34, 33, 32,
                        31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
                        15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    uint64_t delims = _mm512_mask_cmpeq_epi8_mask(keep, x, delim);
    *odds |= _mm512_mask_cmplt_epu8_mask(keep & ~delims, x, _mm512_set1_epi8('#'));
    __m512i found = _mm512_maskz_compress_epi8(delims, places);
    __m512i from = _mm512_set1_epi32((int)at);
    uint64_t n = (uint64_t)__builtin_popcountll(delims);
    _mm512_storeu_si512(
        ends,
        _mm512_add_epi32(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(found)), from));
    for (uint64_t k = 16; k < n; k += 16) {
        __m128i more = _mm_loadu_si128((const __m128i *)((const char *)&found + k));
        _mm512_storeu_si512(ends + k, _mm512_add_epi32(_mm512_cvtepu8_epi32(more), from));
    }
    return n;
}

/* Whether a record that seemed odd is. */
static bool is_odd(const char *s, uint32_t n, bool quotes)
{
    for (uint32_t at = 0; at < n; at += 64) {
        uint64_t keep = n - at >= 64 ? ~0ull : (1ull << (n - at)) - 1;
        uint64_t odds = compare64(s + at, '\n') | compare64(s + at, '\r');
        if (quotes)
            odds |= compare64(s + at, '"');
        if ((odds & keep) != 0)
            return true;
    }
    return false;
}

/* The ends of a record's fields, one after the other. */
INLINE uint32_t index_row(const struct stg_csv_dialect *dialect, const char *s,
                          uint32_t n, uint32_t *ends)
{
    const __m512i delim = _mm512_set1_epi8(dialect->delim);
    uint64_t field = 0, odds = 0;
    uint32_t at = 0;
    for (; n - at >= 64 && field <= dialect->n_fields; at += 64)
        field +=
            index_64(_mm512_loadu_si512(s + at), delim, ~0ull, at, ends + field, &odds);
    if (n - at < 64 && field <= dialect->n_fields)
        field += index_64(_mm512_loadu_si512(s + at), delim, (1ull << (n - at)) - 1, at,
                          ends + field, &odds);
    ends[field] = n;
    if (n == 0 || (odds != 0 && is_odd(s, n, dialect->quotes)))
        return STG_CSV_ODD;
    return field > dialect->n_fields ? dialect->n_fields + 1 : (uint32_t)field + 1;
}

/* Sixteen numbers of each of sixteen rows, turned: rows of STG_CSV_ROWS. */
INLINE void turn_16(const uint32_t *from, size_t stride, uint32_t *to)
{
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        __m512i even = _mm512_loadu_si512(from + (size_t)i * stride);
        __m512i odd = _mm512_loadu_si512(from + (size_t)(i + 1) * stride);
        a[i] = _mm512_unpacklo_epi32(even, odd);
        a[i + 1] = _mm512_unpackhi_epi32(even, odd);
    }
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    /* Quarter q of b[4 * i + k] is number 4 * q + k of rows 4 * i to 4 * i + 3. */
    for (int k = 0; k < 4; k++) {
        __m512i even_0 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x88);
        __m512i even_1 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x88);
        __m512i odd_0 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xdd);
        __m512i odd_1 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xdd);
        uint32_t *at = to + (size_t)k * STG_CSV_ROWS;
        _mm512_storeu_si512(at, _mm512_shuffle_i32x4(even_0, even_1, 0x88));
        _mm512_storeu_si512(at + 4 * STG_CSV_ROWS,
                            _mm512_shuffle_i32x4(odd_0, odd_1, 0x88));
        _mm512_storeu_si512(at + 8 * STG_CSV_ROWS,
                            _mm512_shuffle_i32x4(even_0, even_1, 0xdd));
        _mm512_storeu_si512(at + 12 * STG_CSV_ROWS,
                            _mm512_shuffle_i32x4(odd_0, odd_1, 0xdd));
    }
}

/* Rows that are not there are transposed with the others, and not read. */
static void index_plain(const struct stg_csv_dialect *dialect,
                        const struct stg_csv_block *block, const uint32_t *bytes,
                        uint32_t *room, uint32_t *ends, uint32_t *counts)
{
    size_t stride = stg_csv_stride(dialect->n_fields);
    for (size_t first = 0; first < block->n; first += 16) {
        for (size_t i = first; i < block->n && i < first + 16; i++)
            counts[i] =
                index_row(dialect, block->base[i], bytes[i], room + (i - first) * stride);
        for (size_t f = 0; f < dialect->n_fields; f += 16)
            turn_16(room + f, stride, ends + (f + 1) * STG_CSV_ROWS + first);
    }
}

#else

/* Of no bit: any number. */
INLINE uint32_t first_bit(uint64_t x)
{
#if defined(__BMI__)
    return (uint32_t)_tzcnt_u64(x);
#else
    return (uint32_t)__builtin_ctzll(x | (uint64_t)1 << 63);
#endif
}

/* Eight fields at a time, more than there may be: what is too much is overwritten by the
 * next ones, or lies in the fields of slack. */
INLINE void index_many(uint64_t delims, uint32_t at, uint32_t *ends)
{
    unsigned n = (unsigned)__builtin_popcountll(delims);
    for (unsigned k = 0; k < n; k += AT_ONCE) {
#pragma GCC unroll 16
        for (unsigned j = 0; j < AT_ONCE; j++) {
            ends[(size_t)(k + j) * STG_CSV_ROWS] = at + first_bit(delims);
            delims &= delims - 1;
        }
    }
}

/* The first n delims. */
INLINE void index_some(uint64_t delims, uint32_t at, uint32_t *ends, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        ends[(size_t)k * STG_CSV_ROWS] = at + first_bit(delims);
        delims &= delims - 1;
    }
}

/* A row that has too many fields is looked at no further: where it has them because some
 * delimiters are quoted, the first quote was seen. */
INLINE uint32_t index_row(const struct stg_csv_dialect *dialect, const char *s,
                          uint32_t n, uint32_t *ends)
{
    char quote = dialect->quotes ? '"' : '\n';
    uint32_t field = 0, n_fields = dialect->n_fields;
    uint64_t odds = 0;
    for (uint32_t at = 0; at < n && field <= n_fields; at += 64) {
        struct looked looked = look64(s + at, dialect->delim, quote);
        uint64_t keep = n - at >= 64 ? ~0ull : (1ull << (n - at)) - 1;
        uint64_t delims = looked.a & keep;
        odds |= looked.odds & keep;
        uint32_t more = (uint32_t)__builtin_popcountll(delims);
        uint32_t *to = ends + (field + 1) * (size_t)STG_CSV_ROWS;
        field += more;
        if (field > n_fields) {
            index_some(delims, at, to, n_fields + more - field);
        } else {
            index_many(delims, at, to);
        }
    }
    if (n == 0 || odds != 0)
        return STG_CSV_ODD;
    if (field > n_fields)
        return n_fields + 1;
    if (field < n_fields)
        ends[(field + 1) * (size_t)STG_CSV_ROWS] = n;
    return field + 1;
}

static void index_plain(const struct stg_csv_dialect *dialect,
                        const struct stg_csv_block *block, const uint32_t *bytes,
                        uint32_t *room, uint32_t *ends, uint32_t *counts)
{
    for (size_t i = 0; i < block->n; i++)
        counts[i] = index_row(dialect, block->base[i], bytes[i], ends + i);
}

#endif

void STG_CSV_OF(stg_csv_index)(const struct stg_csv_dialect *dialect,
                               const struct stg_csv_block *block, const uint32_t *bytes,
                               uint32_t *room, uint32_t *ends, uint32_t *counts)
{
    char d = dialect->delim;
    if (d != '\n' && d != '\r' && d != '"') {
        index_plain(dialect, block, bytes, room, ends, counts);
        return;
    }
    for (size_t i = 0; i < block->n; i++)
        counts[i] = STG_CSV_ODD;
}

/* ---- lines ---- */

size_t STG_CSV_OF(stg_csv_newlines)(const char *data, size_t n, uint32_t *ret,
                                    size_t n_max, size_t *ret_seen)
{
    size_t n_found = 0, at = 0;
    for (; n - at >= 64 && n_max - n_found >= 64; at += 64) {
        for (uint64_t left = compare64(data + at, '\n'); left != 0; left &= left - 1)
            ret[n_found++] = (uint32_t)at + (uint32_t)__builtin_ctzll(left);
    }
    size_t n_more = stg_csv_kernels_scalar.newlines(data + at, n - at, ret + n_found,
                                                    n_max - n_found, ret_seen);
    for (size_t i = 0; i < n_more; i++)
        ret[n_found + i] += (uint32_t)at;
    *ret_seen += at;
    return n_found + n_more;
}
