/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns of csv.h in vectors, and the table of a set of instructions (csv_lanes.h
 * says how it is compiled).
 *
 * A lane holds what starts a field, eight characters, the first one in the lowest byte.
 * What does not fit that is left to the reference, row by row.
 */
#include "ops/kernels/csv/lanes.h"

/* Vectors that are worked on together, step by step: a step takes long, and that of
 * another vector can be begun meanwhile. */
#define AT_ONCE 4
#define ROWS_AT_ONCE ((size_t)(AT_ONCE * LANES))
static_assert(STG_CSV_ROWS % (AT_ONCE * LANES) == 0, "a block is whole steps");

/* ---- numbers ---- */

/* Numbers of at most eight characters, perhaps with a point, the sign apart. */
struct numbers {
    words_v missing; /* masks */
    words_v bad;     /* of another form, and not missing */
    words_v negative;
    ints_v value;
    words_v fraction; /* digits behind the point */
};

/* Characters of each lane to its high end, zeros in front. */
INLINE words_v align_right(words_v word, words_v bytes)
{
    words_v gap = 8 * (8 - bytes) & 63;
    words_v zeros = (words_v){0} + EACH('0');
    return word << gap | (zeros >> (8 * (bytes - 1) & 63)) >> 8;
}

/* What is no digit may overflow: it is not read. */
INLINE ints_v eight_digits(words_v digits)
{
#if STG_CSV_AVX512
    __m512i pairs = _mm512_maddubs_epi16((__m512i)digits, _mm512_set1_epi16(1 << 8 | 10));
    __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi32(1 << 16 | 100));
    __m512i high = _mm512_mul_epu32(quads, _mm512_set1_epi64(10000));
    return (ints_v)_mm512_cvtepi64_epi32(
        _mm512_add_epi64(high, _mm512_srli_epi64(quads, 32)));
#elif STG_CSV_AVX2
    __m256i pairs = _mm256_maddubs_epi16((__m256i)digits, _mm256_set1_epi16(1 << 8 | 10));
    __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi32(1 << 16 | 100));
    __m256i high = _mm256_mul_epu32(quads, _mm256_set1_epi64x(10000));
    return narrow((words_v)_mm256_add_epi64(high, _mm256_srli_epi64(quads, 32)));
#else
    pairs_v pairs = (pairs_v)digits;
    pairs = (pairs & 0xff) * 10 + (pairs >> 8);
    quads_v quads = (quads_v)pairs;
    quads = (quads & 0xffff) * 100 + (quads >> 16);
    words_v words = (words_v)quads;
    counts_v high = __builtin_convertvector(words, counts_v);
    counts_v low = __builtin_convertvector(words >> 32, counts_v);
    return (ints_v)(high * 10000 + low);
#endif
}

/* The digits behind a point move up over it: 12.5 is 125 with one digit of fraction. A
 * second point stays where it is, and is no digit. */
INLINE words_v take_point_out(words_v word, words_v points, words_v *ret_fraction)
{
    words_v has = (words_v)(points != 0);
    words_v before = (points & -points) - 1;
    words_v behind = ~(before << 8 | 0xff) & has;
    /* One in each byte behind the point, added up. */
    words_v count = behind & EACH(1);
    count += count >> 32;
    count += count >> 16;
    *ret_fraction = (count + (count >> 8)) & 0xff;
    return choose(has, (word & before) << 8 | '0' | (word & behind), word);
}

/* ROWS_AT_ONCE rows from i on. */
INLINE void read_numbers(const struct stg_csv_block *block, const uint32_t *ends,
                         size_t i, bool with_point, struct numbers *ret)
{
    words_v word[AT_ONCE], bytes[AT_ONCE], bad[AT_ONCE], points[AT_ONCE];
    words_v any_point = {0};
    for (int k = 0; k < AT_ONCE; k++)
        word[k] = field_first(block, ends, i + (size_t)k * LANES);
    for (int k = 0; k < AT_ONCE; k++) {
        bytes[k] = field_bytes(ends, i + (size_t)k * LANES);
        ret[k].missing = (words_v)(bytes[k] == 0);
        bad[k] = (words_v)(bytes[k] > 8);
        ret[k].negative = (words_v)((word[k] & 0xff) == '-');
        bytes[k] += ret[k].negative;
        word[k] = align_right(choose(ret[k].negative, word[k] >> 8, word[k]), bytes[k]);
        bad[k] |= (words_v)(bytes[k] == 0);
        points[k] = (words_v)((bytes_v)word[k] == '.');
        any_point |= points[k];
        ret[k].fraction = (words_v){0};
    }
    for (int k = 0; with_point && any(any_point) && k < AT_ONCE; k++) {
        word[k] = take_point_out(word[k], points[k], &ret[k].fraction);
        bad[k] |= (words_v)(points[k] != 0) & (words_v)(bytes[k] == 1);
    }
    for (int k = 0; k < AT_ONCE; k++) {
        bytes_v digits = (bytes_v)word[k] - '0';
        bad[k] |= (words_v)((words_v)(digits > 9) != 0);
        ret[k].bad = bad[k] & ~ret[k].missing;
        ret[k].value = eight_digits((words_v)digits);
    }
}

/* What the columns' kernels share: which rows are bad, and whether any is. */
struct column {
    words_v bad[STG_CSV_ROWS / LANES];
    words_v any_bad, any_missing;
};

INLINE void column_begin(struct column *column)
{
    column->any_bad = column->any_missing = (words_v){0};
}

INLINE void column_note(struct column *column, size_t i, words_v bad, words_v missing)
{
    column->bad[i / LANES] = bad;
    column->any_bad |= bad;
    column->any_missing |= missing;
}

INLINE void column_read(struct column *column, const struct stg_csv_block *block,
                        const uint32_t *ends, size_t i, bool with_point,
                        struct numbers *ret)
{
    read_numbers(block, ends, i, with_point, ret);
    for (size_t k = 0; k < AT_ONCE; k++)
        column_note(column, i + k * LANES, ret[k].bad, ret[k].missing);
}

/* Rows from i on, as a block. */
INLINE struct stg_csv_block rest_of(const struct stg_csv_block *block, size_t i, size_t n)
{
    return (struct stg_csv_block){.base = block->base + i, .limit = block->limit, .n = n};
}

/* Ends a column: the rows that are bad, and those behind the last full vector, go to the
 * reference. `redo` is its call for the rows `part` from `at` on. */
#define COLUMN_END(column, block, rule, full, redo)                                      \
    do {                                                                                 \
        bool good = !rule->required || !any(column.any_missing);                         \
        for (size_t at = 0; any(column.any_bad) && at < full; at++) {                    \
            struct stg_csv_block part = rest_of(block, at, 1);                           \
            if (column.bad[at / LANES][at % LANES] != 0)                                 \
                good = (redo) && good;                                                   \
        }                                                                                \
        if (full < block->n) {                                                           \
            size_t at = full;                                                            \
            struct stg_csv_block part = rest_of(block, at, block->n - full);             \
            good = (redo) && good;                                                       \
        }                                                                                \
        return good;                                                                     \
    } while (0)

INLINE size_t whole_steps(const struct stg_csv_block *block)
{
    return block->n - block->n % ROWS_AT_ONCE;
}

static bool int32_column(const struct stg_csv_block *block, const uint32_t *ends,
                         const struct stg_csv_rule *rule, int32_t *out)
{
    if (rule->n_na != 0)
        return stg_csv_kernels_scalar.int32(block, ends, rule, out);
    struct column column;
    column_begin(&column);
    size_t full = whole_steps(block);
    for (size_t i = 0; i < full; i += ROWS_AT_ONCE) {
        struct numbers n[AT_ONCE];
        column_read(&column, block, ends, i, false, n);
        for (size_t k = 0; k < AT_ONCE; k++) {
            ints_v negative = narrow(n[k].negative);
            ints_v missing = narrow(n[k].missing);
            ints_v value = (n[k].value ^ negative) - negative;
            value = (value & ~missing) | (rule->i32 & missing);
            memcpy(out + i + k * LANES, &value, sizeof(value));
        }
    }
    COLUMN_END(column, block, rule, full,
               stg_csv_kernels_scalar.int32(&part, ends + at, rule, out + at));
}

static bool int64_column(const struct stg_csv_block *block, const uint32_t *ends,
                         const struct stg_csv_rule *rule, int64_t *out)
{
    if (rule->n_na != 0)
        return stg_csv_kernels_scalar.int64(block, ends, rule, out);
    struct column column;
    column_begin(&column);
    size_t full = whole_steps(block);
    for (size_t i = 0; i < full; i += ROWS_AT_ONCE) {
        struct numbers n[AT_ONCE];
        column_read(&column, block, ends, i, false, n);
        for (size_t k = 0; k < AT_ONCE; k++) {
            words_v value = __builtin_convertvector(n[k].value, words_v);
            value = (value ^ n[k].negative) - n[k].negative;
            value = choose(n[k].missing, (words_v){0} + (uint64_t)rule->i64, value);
            memcpy(out + i + k * LANES, &value, sizeof(value));
        }
    }
    COLUMN_END(column, block, rule, full,
               stg_csv_kernels_scalar.int64(&part, ends + at, rule, out + at));
}

#if defined(__AVX2__) && STG_CSV_LANES >= 4

INLINE doubles_v powers_of(words_v exponents)
{
    const __m256 powers = _mm256_setr_ps(1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f);
    ints_v which = narrow(exponents);
#if STG_CSV_LANES == 8
    floats_v ret = (floats_v)_mm256_permutevar8x32_ps(powers, (__m256i)which);
#else
    __m256i index = _mm256_castsi128_si256((__m128i)which);
    floats_v ret =
        (floats_v)_mm256_castps256_ps128(_mm256_permutevar8x32_ps(powers, index));
#endif
    return __builtin_convertvector(ret, doubles_v);
}

#else

INLINE doubles_v powers_of(words_v exponents)
{
    static const double powers[8] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
    doubles_v ret = {0}; /* gcc 12 at -O1 does not see that all are set */
    for (int i = 0; i < LANES; i++)
        ret[i] = powers[exponents[i] & 7];
    return ret;
}

#endif

/* As in the reference: value and power are exact, their quotient is rounded once. */
INLINE doubles_v quotient(const struct numbers *n)
{
    doubles_v value = __builtin_convertvector(n->value, doubles_v);
    if (any(n->fraction))
        value /= powers_of(n->fraction);
    return (doubles_v)((words_v)value ^ (n->negative & ((uint64_t)1 << 63)));
}

static bool float32_column(const struct stg_csv_block *block, const uint32_t *ends,
                           const struct stg_csv_rule *rule, float *out)
{
    if (rule->n_na != 0)
        return stg_csv_kernels_scalar.float32(block, ends, rule, out);
    struct column column;
    column_begin(&column);
    uint32_t otherwise;
    memcpy(&otherwise, &rule->f32, sizeof(otherwise));
    size_t full = whole_steps(block);
    for (size_t i = 0; i < full; i += ROWS_AT_ONCE) {
        struct numbers n[AT_ONCE];
        column_read(&column, block, ends, i, true, n);
        for (size_t k = 0; k < AT_ONCE; k++) {
            ints_v missing = narrow(n[k].missing);
            ints_v value = (ints_v) __builtin_convertvector(quotient(&n[k]), floats_v);
            value = (value & ~missing) | ((int32_t)otherwise & missing);
            memcpy(out + i + k * LANES, &value, sizeof(value));
        }
    }
    COLUMN_END(column, block, rule, full,
               stg_csv_kernels_scalar.float32(&part, ends + at, rule, out + at));
}

static bool float64_column(const struct stg_csv_block *block, const uint32_t *ends,
                           const struct stg_csv_rule *rule, double *out)
{
    if (rule->n_na != 0)
        return stg_csv_kernels_scalar.float64(block, ends, rule, out);
    struct column column;
    column_begin(&column);
    uint64_t otherwise;
    memcpy(&otherwise, &rule->f64, sizeof(otherwise));
    size_t full = whole_steps(block);
    for (size_t i = 0; i < full; i += ROWS_AT_ONCE) {
        struct numbers n[AT_ONCE];
        column_read(&column, block, ends, i, true, n);
        for (size_t k = 0; k < AT_ONCE; k++) {
            words_v value =
                choose(n[k].missing, (words_v){0} + otherwise, (words_v)quotient(&n[k]));
            memcpy(out + i + k * LANES, &value, sizeof(value));
        }
    }
    COLUMN_END(column, block, rule, full,
               stg_csv_kernels_scalar.float64(&part, ends + at, rule, out + at));
}

/* ---- strings ---- */

/* Without products of 32 bits in four lanes or more, a row at a time is as fast. */
#if defined(__aarch64__)

static bool hash_column(const struct stg_csv_block *block, const uint32_t *ends,
                        const struct stg_csv_rule *rule, const struct stg_csv_hash *hash,
                        int64_t *out)
{
    return stg_csv_kernels_scalar.hash(block, ends, rule, hash, out);
}

#else

#if STG_CSV_AVX512

/* Their last eight characters, of those that have as many. */
INLINE words_v field_last(const struct stg_csv_block *block, const uint32_t *ends,
                          size_t i, words_v bytes)
{
    __m256i end = _mm256_loadu_si256((const void *)(ends + STG_CSV_ROWS + i));
    words_v at = load_words(block->base + i) + widen((counts_v)end) - 8;
    __mmask8 has = _mm512_cmpge_epu64_mask((__m512i)bytes, _mm512_set1_epi64(8));
    return (words_v)_mm512_mask_i64gather_epi64(_mm512_setzero_si512(), has, (__m512i)at,
                                                NULL, 1);
}

INLINE words_v multiply_low_halves(words_v a, words_v b)
{
    return (words_v)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}

INLINE words_v multiply(words_v a, words_v b)
{
    return a * b;
}

#else

INLINE words_v field_last(const struct stg_csv_block *block, const uint32_t *ends,
                          size_t i, words_v bytes)
{
    words_v ret;
    for (size_t k = 0; k < LANES; k++)
        ret[k] =
            bytes[k] < 8 ? 0 : load8(block->base[i + k] + ends[STG_CSV_ROWS + i + k] - 8);
    return ret;
}

INLINE words_v multiply_low_halves(words_v a, words_v b)
{
#if STG_CSV_AVX2
    return (words_v)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}

INLINE words_v multiply(words_v a, words_v b)
{
    words_v cross = multiply_low_halves(a >> 32, b) + multiply_low_halves(a, b >> 32);
    return multiply_low_halves(a, b) + (cross << 32);
}

#endif

#define MAX_SMALL_DIVISOR ((uint64_t)1 << 30)

/* The upper 64 bits of the products. */
INLINE words_v multiply_high(words_v a, words_v b)
{
    words_v a_high = a >> 32, b_high = b >> 32;
    words_v middle = multiply_low_halves(a_high, b) + (multiply_low_halves(a, b) >> 32);
    words_v other = multiply_low_halves(a, b_high) + (middle & UINT32_MAX);
    return multiply_low_halves(a_high, b_high) + (middle >> 32) + (other >> 32);
}

/* The lesser one in each 32 bits. */
INLINE words_v lesser_halves(words_v a, words_v b)
{
#if STG_CSV_AVX512
    return (words_v)_mm512_min_epu32((__m512i)a, (__m512i)b);
#elif STG_CSV_AVX2
    return (words_v)_mm256_min_epu32((__m256i)a, (__m256i)b);
#else
    quads_v x = (quads_v)a, y = (quads_v)b, less = (quads_v)(x < y);
    return (words_v)((x & less) | (y & ~less));
#endif
}

/* modulus_of for a divisor of at most 2^30. Of the product with the magic number all that
 * counts for less than 1 is left out, thrice at most, so the quotient is too small by 3
 * or less, and what is left is below four times the divisor: 32 bits hold it. */
INLINE words_v small_modulus_of(words_v value, const struct stg_modulus *by)
{
    words_v divisor = (words_v){0} + by->divisor, magic = (words_v){0} + by->magic;
    words_v high = value >> 32, magic_high = magic >> 32;
    words_v quotient = multiply_low_halves(high, magic_high) +
                       (multiply_low_halves(high, magic) >> 32) +
                       (multiply_low_halves(value, magic_high) >> 32);
    words_v rest = value - multiply_low_halves(quotient, divisor);
    rest = lesser_halves(rest, rest - 2 * divisor);
    return lesser_halves(rest, rest - divisor) & UINT32_MAX;
}

/* stg_modulus of each lane, for a divisor below 2^63. */
INLINE words_v modulus_of(words_v value, const struct stg_modulus *by)
{
    if (by->divisor <= MAX_SMALL_DIVISOR)
        return small_modulus_of(value, by);
    words_v divisor = (words_v){0} + by->divisor, magic = (words_v){0} + by->magic;
    words_v rest = value - multiply(multiply_high(value, magic), divisor);
    words_v less = rest - divisor;
    return choose((words_v)((signed_v)less < 0), rest, less);
}

/* Fingerprint64 of 8 to 16 bytes, whose first and last eight are given. */
INLINE void fingerprints(const words_v *first, const words_v *last, const words_v *bytes,
                         words_v *ret)
{
    const uint64_t seed = 0x9ae16a3b2f90404full;
    words_v mul[AT_ONCE], a[AT_ONCE], b[AT_ONCE];
    for (int k = 0; k < AT_ONCE; k++) {
        words_v from = first[k] + seed, to = last[k];
        mul[k] = bytes[k] + bytes[k] + seed;
        a[k] = multiply(to >> 37 | to << 27, mul[k]) + from;
        b[k] = multiply((from >> 25 | from << 39) + to, mul[k]);
    }
    for (int k = 0; k < AT_ONCE; k++)
        a[k] = multiply(a[k] ^ b[k], mul[k]);
    for (int k = 0; k < AT_ONCE; k++)
        b[k] = multiply(b[k] ^ a[k] ^ a[k] >> 47, mul[k]);
    for (int k = 0; k < AT_ONCE; k++)
        ret[k] = multiply(b[k] ^ b[k] >> 47, mul[k]);
}

/* ROWS_AT_ONCE rows from i on. */
INLINE void hash_some(struct column *column, const struct stg_csv_block *block,
                      const uint32_t *ends, const struct stg_csv_hash *hash, size_t i,
                      int64_t *out)
{
    const words_v otherwise = (words_v){0} + (uint64_t)hash->missing;
    words_v bytes[AT_ONCE], first[AT_ONCE], last[AT_ONCE], value[AT_ONCE], other = {0};
    for (size_t k = 0; k < AT_ONCE; k++) {
        bytes[k] = field_bytes(ends, i + k * LANES);
        first[k] = last[k] = field_first(block, ends, i + k * LANES);
        other |= bytes[k] ^ 8;
        column->bad[i / LANES + k] = (words_v){0};
    }
    for (size_t k = 0; any(other) && k < AT_ONCE; k++) {
        words_v missing = (words_v)(bytes[k] == 0), fits = (words_v)(bytes[k] - 8 <= 8);
        last[k] = field_last(block, ends, i + k * LANES, bytes[k]);
        column_note(column, i + k * LANES, ~(fits | missing), missing);
    }
    fingerprints(first, last, bytes, value);
    for (int k = 0; k < AT_ONCE; k++)
        value[k] = modulus_of(value[k], &hash->buckets);
    for (size_t k = 0; k < AT_ONCE; k++) {
        words_v bucket = choose((words_v)(bytes[k] == 0), otherwise, value[k]);
        memcpy(out + i + k * LANES, &bucket, sizeof(bucket));
    }
}

static bool hash_column(const struct stg_csv_block *block, const uint32_t *ends,
                        const struct stg_csv_rule *rule, const struct stg_csv_hash *hash,
                        int64_t *out)
{
    if (rule->n_na != 0)
        return stg_csv_kernels_scalar.hash(block, ends, rule, hash, out);
    struct column column;
    column_begin(&column);
    size_t full = whole_steps(block);
    for (size_t i = 0; i < full; i += ROWS_AT_ONCE)
        hash_some(&column, block, ends, hash, i, out);
    COLUMN_END(column, block, rule, full,
               stg_csv_kernels_scalar.hash(&part, ends + at, rule, hash, out + at));
}

#endif

static bool string_spans(const struct stg_csv_block *block, const uint32_t *ends,
                         const struct stg_csv_rule *rule, struct stg_span *ret,
                         uint64_t *ret_bytes)
{
    return stg_csv_kernels_scalar.spans(block, ends, rule, ret, ret_bytes);
}

static void string_column(const struct stg_csv_block *block, const struct stg_span *spans,
                          const struct stg_csv_rule *rule, char *data, int64_t *offsets)
{
    stg_csv_kernels_scalar.string(block, spans, rule, data, offsets);
}

/* ---- the table ---- */

#define NAME_(x) #x
#define NAME(x) NAME_(x)

extern const struct stg_csv_kernels STG_CSV_OF(stg_csv_kernels);
const struct stg_csv_kernels STG_CSV_OF(stg_csv_kernels) = {
    .name = NAME(STG_CSV_SET),
    .needs_slack = true,
    .index = STG_CSV_OF(stg_csv_index),
    .int32 = int32_column,
    .int64 = int64_column,
    .float32 = float32_column,
    .float64 = float64_column,
    .hash = hash_column,
    .spans = string_spans,
    .string = string_column,
    .newlines = STG_CSV_OF(stg_csv_newlines),
};
