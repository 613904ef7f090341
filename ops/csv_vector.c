/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of csv.h for vectors. One body for all instruction sets: it is compiled
 * with STG_CSV_TABLE (the name of the table) and STG_CSV_LANES (64-bit lanes of a vector)
 * given, and STG_CSV_SET (its
 * name for people), and with the compiler's options for the set. Vectors are the
 * compiler's own; what it cannot say for itself is compare64 alone.
 *
 * A lane holds what starts a field, eight characters, the first one in the lowest byte.
 * What does not fit that is left to the reference, row by row.
 */
#include <assert.h>
#include <string.h>

#include "ops/csv_vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LANES STG_CSV_LANES
#define AT_ONCE STG_CSV_SLACK_FIELDS
#define INLINE static inline __attribute__((always_inline))
#define EACH(byte) (0x0101010101010101ull * (uint8_t)(byte))

static_assert(STG_CSV_ROWS % LANES == 0, "a block is full vectors");

typedef uint8_t bytes_v __attribute__((vector_size(8 * LANES)));
typedef uint16_t pairs_v __attribute__((vector_size(8 * LANES)));
typedef uint32_t quads_v __attribute__((vector_size(8 * LANES)));
typedef uint64_t words_v __attribute__((vector_size(8 * LANES)));
typedef int64_t signed_v __attribute__((vector_size(8 * LANES)));
typedef double doubles_v __attribute__((vector_size(8 * LANES)));
typedef int32_t ints_v __attribute__((vector_size(4 * LANES))); /* half as long */
typedef uint32_t counts_v __attribute__((vector_size(4 * LANES)));
typedef float floats_v __attribute__((vector_size(4 * LANES)));

INLINE uint64_t load8(const char *s)
{
    uint64_t word;
    memcpy(&word, s, sizeof(word));
    return word;
}

INLINE words_v load_words(const void *from)
{
    words_v ret;
    memcpy(&ret, from, sizeof(ret));
    return ret;
}

/* mask: all ones or all zeros in a lane. */
INLINE words_v choose(words_v mask, words_v yes, words_v no)
{
    return (yes & mask) | (no & ~mask);
}

INLINE bool any(words_v mask)
{
    uint64_t ret = 0;
    for (int i = 0; i < LANES; i++)
        ret |= mask[i];
    return ret != 0;
}

/* ---- 64 characters at once ---- */

struct looked {
    uint64_t a;    /* a bit for each character that is a */
    uint64_t odds; /* a bit for each that is b, c or d */
};

#if defined(__AVX512BW__)

INLINE uint64_t compare64(const char *s, char a)
{
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(s), _mm512_set1_epi8(a));
}

INLINE struct looked look64(const char *s, char a, char b)
{
    __m512i x = _mm512_loadu_si512(s);
    return (struct looked){
        .a = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(a)),
        .odds = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(b)) |
                _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('\n')) |
                _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('\r')),
    };
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

/* Of no bit: any number. */
INLINE uint32_t first_bit(uint64_t x)
{
#if defined(__BMI__)
    return (uint32_t)_tzcnt_u64(x);
#else
    return (uint32_t)__builtin_ctzll(x | (uint64_t)1 << 63);
#endif
}

INLINE void put_span(struct stg_span *to, uint32_t start, uint32_t end)
{
    to->start = start;
    to->bytes = end - start;
}

/* Eight fields at a time, more than there may be: what is too much is overwritten by the
 * next ones, or lies in the fields of slack. */
INLINE void index_many(uint64_t delims, uint32_t at, uint32_t start,
                       struct stg_span *spans)
{
    unsigned n = (unsigned)__builtin_popcountll(delims);
    for (unsigned k = 0; k < n; k += AT_ONCE) {
#pragma GCC unroll 16
        for (unsigned j = 0; j < AT_ONCE; j++) {
            uint32_t end = at + first_bit(delims);
            put_span(spans + (size_t)(k + j) * STG_CSV_ROWS, start, end);
            start = end + 1;
            delims &= delims - 1;
        }
    }
}

/* The first n delims. */
INLINE void index_some(uint64_t delims, uint32_t at, uint32_t start,
                       struct stg_span *spans, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t end = at + first_bit(delims);
        put_span(spans + (size_t)k * STG_CSV_ROWS, start, end);
        start = end + 1;
        delims &= delims - 1;
    }
}

/* A row that has too many fields is looked at no further: where it has them because some
 * delimiters are quoted, the first quote was seen. */
INLINE uint32_t index_row(const struct stg_csv_dialect *dialect, const char *s,
                          uint32_t n, struct stg_span *spans)
{
    char quote = dialect->quotes ? '"' : '\n';
    uint32_t field = 0, start = 0, n_fields = dialect->n_fields;
    uint64_t odds = 0;
    for (uint32_t at = 0; at < n && field <= n_fields; at += 64) {
        struct looked looked = look64(s + at, dialect->delim, quote);
        uint64_t keep = n - at >= 64 ? ~0ull : (1ull << (n - at)) - 1;
        uint64_t delims = looked.a & keep;
        odds |= looked.odds & keep;
        uint32_t more = (uint32_t)__builtin_popcountll(delims);
        struct stg_span *to = spans + field * (size_t)STG_CSV_ROWS;
        field += more;
        if (field > n_fields) {
            index_some(delims, at, start, to, n_fields + more - field);
        } else if (more > 0) {
            index_many(delims, at, start, to);
            start = at + 64 - (uint32_t)__builtin_clzll(delims);
        }
    }
    if (n == 0 || odds != 0)
        return STG_CSV_ODD;
    if (field > n_fields)
        return n_fields + 1;
    if (field < n_fields)
        spans[field * (size_t)STG_CSV_ROWS] =
            (struct stg_span){.start = start, .bytes = n - start};
    return field + 1;
}

static void index_rows(const struct stg_csv_dialect *dialect,
                       const struct stg_csv_block *block, const uint32_t *bytes,
                       struct stg_span *spans, uint32_t *counts)
{
    char d = dialect->delim;
    bool plain = d != '\n' && d != '\r' && d != '"';
    for (size_t i = 0; i < block->n; i++)
        counts[i] =
            plain ? index_row(dialect, block->base[i], bytes[i], spans + i) : STG_CSV_ODD;
}

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

INLINE ints_v eight_digits(words_v digits)
{
    pairs_v pairs = (pairs_v)digits;
    pairs = (pairs & 0xff) * 10 + (pairs >> 8);
    quads_v quads = (quads_v)pairs;
    quads = (quads & 0xffff) * 100 + (quads >> 16);
    words_v words = (words_v)quads;
    /* What is no digit may overflow; nobody looks at it. */
    counts_v high = __builtin_convertvector(words, counts_v);
    counts_v low = __builtin_convertvector(words >> 32, counts_v);
    return (ints_v)(high * 10000 + low);
}

/* The digits behind a point move up over it: 12.5 is 125 with one digit of fraction. A
 * second point stays where it is, and is no digit. */
INLINE words_v take_point_out(words_v word, words_v *ret_fraction, words_v *ret_has)
{
    words_v points = (words_v)((bytes_v)word == '.');
    words_v has = (words_v)(points != 0);
    words_v before = (points & -points) - 1;
    words_v behind = ~(before << 8 | 0xff) & has;
    /* One in each byte behind the point, added up. */
    words_v count = behind & EACH(1);
    count += count >> 32;
    count += count >> 16;
    *ret_fraction = (count + (count >> 8)) & 0xff;
    *ret_has = has;
    return choose(has, (word & before) << 8 | '0' | (word & behind), word);
}

INLINE struct numbers read_numbers(const uint64_t *words, const struct stg_span *spans,
                                   bool with_point)
{
    struct numbers ret;
    words_v word = load_words(words), bytes = load_words(spans) >> 32;
    ret.missing = (words_v)(bytes == 0);
    words_v too_long = (words_v)(bytes > 8);
    ret.negative = (words_v)((word & 0xff) == '-');
    bytes += ret.negative;
    word = align_right(choose(ret.negative, word >> 8, word), bytes);
    words_v bad = too_long | (words_v)(bytes == 0);
    ret.fraction = (words_v){0};
    if (with_point) {
        words_v has;
        word = take_point_out(word, &ret.fraction, &has);
        bad |= has & (words_v)(bytes == 1);
    }
    bytes_v digits = (bytes_v)word - '0';
    bad |= (words_v)((words_v)(digits > 9) != 0);
    ret.bad = bad & ~ret.missing;
    ret.value = eight_digits((words_v)digits);
    return ret;
}

/* What the columns' kernels share: the words of a block, and which rows are bad. */
struct column {
    uint64_t words[STG_CSV_ROWS];
    uint64_t bad[STG_CSV_ROWS];
    words_v any_bad, any_missing;
};

INLINE void column_begin(struct column *column, const struct stg_csv_block *block,
                         const struct stg_span *spans)
{
    for (size_t i = 0; i < block->n; i++)
        column->words[i] = load8(block->base[i] + spans[i].start);
    column->any_bad = column->any_missing = (words_v){0};
}

INLINE struct numbers column_read(struct column *column, const struct stg_span *spans,
                                  size_t i, bool with_point)
{
    struct numbers ret = read_numbers(column->words + i, spans + i, with_point);
    column->any_bad |= ret.bad;
    column->any_missing |= ret.missing;
    memcpy(column->bad + i, &ret.bad, sizeof(ret.bad));
    return ret;
}

/* Rows from i on, as a block. */
INLINE struct stg_csv_block rest_of(const struct stg_csv_block *block, size_t i, size_t n)
{
    return (struct stg_csv_block){.base = block->base + i, .limit = block->limit, .n = n};
}

/* Ends a column: the rows that are bad, and those behind the last full vector, go to the
 * reference. */
#define COLUMN_END(kernel, column, block, spans, rule, out, full)                        \
    do {                                                                                 \
        bool good = !rule->required || !any(column.any_missing);                         \
        for (size_t i = 0; any(column.any_bad) && i < full; i++) {                       \
            struct stg_csv_block one = rest_of(block, i, 1);                             \
            if (column.bad[i] != 0)                                                      \
                good = stg_csv_kernels_scalar.kernel(&one, spans + i, rule, out + i) &&  \
                       good;                                                             \
        }                                                                                \
        struct stg_csv_block rest = rest_of(block, full, block->n - full);               \
        if (rest.n > 0)                                                                  \
            good =                                                                       \
                stg_csv_kernels_scalar.kernel(&rest, spans + full, rule, out + full) &&  \
                good;                                                                    \
        return good;                                                                     \
    } while (0)

INLINE size_t full_vectors(const struct stg_csv_block *block)
{
    return block->n - block->n % LANES;
}

static bool int32_column(const struct stg_csv_block *block, const struct stg_span *spans,
                         const struct stg_csv_rule *rule, int32_t *out)
{
    if (rule->na_bytes != 0)
        return stg_csv_kernels_scalar.int32(block, spans, rule, out);
    struct column column;
    column_begin(&column, block, spans);
    size_t full = full_vectors(block);
    for (size_t i = 0; i < full; i += LANES) {
        struct numbers n = column_read(&column, spans, i, false);
        ints_v negative = __builtin_convertvector(n.negative, ints_v);
        ints_v missing = __builtin_convertvector(n.missing, ints_v);
        ints_v value = (n.value ^ negative) - negative;
        value = (value & ~missing) | (rule->i32 & missing);
        memcpy(out + i, &value, sizeof(value));
    }
    COLUMN_END(int32, column, block, spans, rule, out, full);
}

static bool int64_column(const struct stg_csv_block *block, const struct stg_span *spans,
                         const struct stg_csv_rule *rule, int64_t *out)
{
    if (rule->na_bytes != 0)
        return stg_csv_kernels_scalar.int64(block, spans, rule, out);
    struct column column;
    column_begin(&column, block, spans);
    size_t full = full_vectors(block);
    for (size_t i = 0; i < full; i += LANES) {
        struct numbers n = column_read(&column, spans, i, false);
        words_v value = __builtin_convertvector(n.value, words_v);
        value = (value ^ n.negative) - n.negative;
        value = choose(n.missing, (words_v){0} + (uint64_t)rule->i64, value);
        memcpy(out + i, &value, sizeof(value));
    }
    COLUMN_END(int64, column, block, spans, rule, out, full);
}

#if defined(__AVX2__) && STG_CSV_LANES >= 4

INLINE doubles_v powers_of(words_v exponents)
{
    const __m256 powers = _mm256_setr_ps(1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f);
    ints_v narrow = __builtin_convertvector(exponents, ints_v);
#if STG_CSV_LANES == 8
    floats_v ret = (floats_v)_mm256_permutevar8x32_ps(powers, (__m256i)narrow);
#else
    __m256i index = _mm256_castsi128_si256((__m128i)narrow);
    floats_v ret =
        (floats_v)_mm256_castps256_ps128(_mm256_permutevar8x32_ps(powers, index));
#endif
    return __builtin_convertvector(ret, doubles_v);
}

#else

INLINE doubles_v powers_of(words_v exponents)
{
    static const double powers[8] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
    doubles_v ret;
    for (int i = 0; i < LANES; i++)
        ret[i] = powers[exponents[i] & 7];
    return ret;
}

#endif

/* As in the reference: value and power are exact, their quotient is rounded once. */
INLINE doubles_v quotient(const struct numbers *n)
{
    doubles_v value = __builtin_convertvector(n->value, doubles_v);
    words_v sign = n->negative & ((uint64_t)1 << 63);
    return (doubles_v)((words_v)(value / powers_of(n->fraction)) ^ sign);
}

static bool float32_column(const struct stg_csv_block *block,
                           const struct stg_span *spans, const struct stg_csv_rule *rule,
                           float *out)
{
    if (rule->na_bytes != 0)
        return stg_csv_kernels_scalar.float32(block, spans, rule, out);
    struct column column;
    column_begin(&column, block, spans);
    uint32_t otherwise;
    memcpy(&otherwise, &rule->f32, sizeof(otherwise));
    size_t full = full_vectors(block);
    for (size_t i = 0; i < full; i += LANES) {
        struct numbers n = column_read(&column, spans, i, true);
        ints_v missing = __builtin_convertvector(n.missing, ints_v);
        ints_v value = (ints_v) __builtin_convertvector(quotient(&n), floats_v);
        value = (value & ~missing) | ((int32_t)otherwise & missing);
        memcpy(out + i, &value, sizeof(value));
    }
    COLUMN_END(float32, column, block, spans, rule, out, full);
}

static bool float64_column(const struct stg_csv_block *block,
                           const struct stg_span *spans, const struct stg_csv_rule *rule,
                           double *out)
{
    if (rule->na_bytes != 0)
        return stg_csv_kernels_scalar.float64(block, spans, rule, out);
    struct column column;
    column_begin(&column, block, spans);
    uint64_t otherwise;
    memcpy(&otherwise, &rule->f64, sizeof(otherwise));
    size_t full = full_vectors(block);
    for (size_t i = 0; i < full; i += LANES) {
        struct numbers n = column_read(&column, spans, i, true);
        words_v value =
            choose(n.missing, (words_v){0} + otherwise, (words_v)quotient(&n));
        memcpy(out + i, &value, sizeof(value));
    }
    COLUMN_END(float64, column, block, spans, rule, out, full);
}

/* ---- strings ---- */

/* Fingerprint64 of 8 to 16 bytes, whose first and last eight are given. */
INLINE uint64_t mix_8_to_16(uint64_t first, uint64_t last, uint64_t bytes)
{
    const uint64_t k = 0x9ae16a3b2f90404full;
    uint64_t mul = bytes * 2 + k, a = first + k;
    uint64_t u = (last >> 37 | last << 27) * mul + a;
    uint64_t v = ((a >> 25 | a << 39) + last) * mul;
    a = (u ^ v) * mul;
    a ^= a >> 47;
    v = (v ^ a) * mul;
    v ^= v >> 47;
    return v * mul;
}

/* The length that all strings have, 8 to 16, but for the missing ones; else 0. */
INLINE uint32_t common_length(const struct stg_span *spans, size_t n, bool *ret_missing)
{
    uint32_t length = 0, other = 0, missing = 0;
    for (size_t i = 0; i < n; i++)
        length = spans[i].bytes > length ? spans[i].bytes : length;
    for (size_t i = 0; i < n; i++) {
        missing |= spans[i].bytes == 0;
        other |= (spans[i].bytes != length) & (spans[i].bytes != 0);
    }
    *ret_missing = missing != 0;
    return other == 0 && length >= 8 && length <= 16 ? length : 0;
}

static bool hash_column(const struct stg_csv_block *block, const struct stg_span *spans,
                        const struct stg_csv_rule *rule, const struct stg_csv_hash *hash,
                        int64_t *out)
{
    const struct stg_modulus buckets = hash->buckets;
    const int64_t otherwise = hash->missing;
    bool missing;
    uint32_t length = common_length(spans, block->n, &missing);
    if (rule->na_bytes != 0 || length == 0)
        return stg_csv_kernels_scalar.hash(block, spans, rule, hash, out);
    for (size_t i = 0; i < block->n; i++) {
        const char *s = block->base[i] + spans[i].start;
        uint64_t value = mix_8_to_16(load8(s), load8(s + length - 8), length);
        int64_t bucket = (int64_t)stg_modulus(value, &buckets);
        out[i] = spans[i].bytes != 0 ? bucket : otherwise;
    }
    return !missing || !rule->required;
}

static bool string_bytes(const struct stg_csv_block *block, const struct stg_span *spans,
                         const struct stg_csv_rule *rule, uint64_t *ret)
{
    return stg_csv_kernels_scalar.string_bytes(block, spans, rule, ret);
}

static void string_column(const struct stg_csv_block *block, const struct stg_span *spans,
                          const struct stg_csv_rule *rule, char *data, int64_t *offsets)
{
    stg_csv_kernels_scalar.string(block, spans, rule, data, offsets);
}

/* ---- lines ---- */

static size_t newlines(const char *data, size_t n, uint32_t *ret, size_t n_max,
                       size_t *ret_seen)
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

#define NAME_(x) #x
#define NAME(x) NAME_(x)

extern const struct stg_csv_kernels STG_CSV_TABLE;
const struct stg_csv_kernels STG_CSV_TABLE = {
    .name = NAME(STG_CSV_SET),
    .needs_slack = true,
    .index = index_rows,
    .int32 = int32_column,
    .int64 = int64_column,
    .float32 = float32_column,
    .float64 = float64_column,
    .hash = hash_column,
    .string_bytes = string_bytes,
    .string = string_column,
    .newlines = newlines,
};
