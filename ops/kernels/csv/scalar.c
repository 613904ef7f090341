/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of csv.h in plain C: eight bytes at a time in a 64-bit word. */
#include <string.h>

#include "ops/base/number.h"
#include "ops/kernels/csv/csv.h"

#define EACH(byte) (0x0101010101010101ull * (uint8_t)(byte))
#define HIGH EACH(0x80)

/* Little-endian: the first character is the lowest byte. */
static inline uint64_t load8(const char *s)
{
    uint64_t word;
    memcpy(&word, s, sizeof(word));
    return word;
}

/* 0x80 in each byte of word that is zero; exact. */
static inline uint64_t zero_bytes(uint64_t word)
{
    return ~(((word & ~HIGH) + ~HIGH) | word) & HIGH;
}

/* ---- index ---- */

/* 64 characters at a time: one bit a character. */
struct masks {
    uint64_t delims;
    uint64_t odd; /* not 0: a character that the index leaves to stg_csv_row */
};

/* 0x80 in each byte -> one bit each. */
static inline uint64_t gather(uint64_t high)
{
    return (high >> 7) * 0x0102040810204080ull >> 56;
}

/* Quote, CR and LF are all below 0x23: a first look finds nothing in most rows. */
static inline uint64_t maybe_odd(uint64_t word)
{
    return ~((word | HIGH) - EACH(0x23)) & ~word & HIGH;
}

static inline uint64_t surely_odd(uint64_t word, bool quotes)
{
    uint64_t odd = zero_bytes(word ^ EACH('\n')) | zero_bytes(word ^ EACH('\r'));
    return quotes ? odd | zero_bytes(word ^ EACH('"')) : odd;
}

static inline uint64_t load_tail(const char *s, size_t n, const char *limit)
{
    if (limit - s >= 8)
        return load8(s) & ((1ull << 8 * n) - 1);
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)(uint8_t)s[i] << 8 * i;
    return word;
}

/* n <= 64. Behind the end the words hold zeros, which are odd to maybe_odd and could be
 * the delimiter, so both are masked. */
__attribute__((always_inline)) static inline struct masks look(const char *s, size_t n,
                                                               const char *limit,
                                                               uint64_t delim, bool sure,
                                                               bool quotes)
{
    struct masks ret = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word = load8(s + i);
        ret.delims |= gather(zero_bytes(word ^ delim)) << i;
        ret.odd |= sure ? surely_odd(word, quotes) : maybe_odd(word);
    }
    if (i < n) {
        size_t rest = n - i;
        uint64_t word = load_tail(s + i, rest, limit), keep = (1ull << 8 * rest) - 1;
        ret.delims |= gather(zero_bytes(word ^ delim) & keep) << i;
        ret.odd |= (sure ? surely_odd(word, quotes) : maybe_odd(word)) & keep;
    }
    return ret;
}

static bool is_odd_row(const char *s, size_t n, const char *limit, bool quotes)
{
    for (size_t at = 0; at < n; at += 64) {
        size_t rest = n - at < 64 ? n - at : 64;
        if (look(s + at, rest, limit, 0, true, quotes).odd != 0)
            return true;
    }
    return false;
}

static uint32_t index_row(const struct stg_csv_dialect *dialect, const char *s, size_t n,
                          const char *limit, uint32_t *ends)
{
    uint64_t delim = EACH(dialect->delim), odd = 0;
    uint32_t field = 0, n_fields = dialect->n_fields;
    for (size_t at = 0; at < n; at += 64) {
        size_t rest = n - at;
        struct masks masks = rest >= 64 ? look(s + at, 64, limit, delim, false, false)
                                        : look(s + at, rest, limit, delim, false, false);
        odd |= masks.odd;
        for (uint64_t left = masks.delims; left != 0; left &= left - 1) {
            if (field == n_fields) {
                field++;
                goto done;
            }
            field++;
            ends[field * (size_t)STG_CSV_ROWS] =
                (uint32_t)at + (uint32_t)__builtin_ctzll(left);
        }
    }
    if (field < n_fields)
        ends[(field + 1) * (size_t)STG_CSV_ROWS] = (uint32_t)n;
    field++;
done:
    if (n == 0 || (odd != 0 && is_odd_row(s, n, limit, dialect->quotes)))
        return STG_CSV_ODD;
    return field;
}

static void index_rows(const struct stg_csv_dialect *dialect,
                       const struct stg_csv_block *block, const uint32_t *bytes,
                       uint32_t *room, uint32_t *ends, uint32_t *counts)
{
    char d = dialect->delim;
    bool plain = d != '\n' && d != '\r' && d != '"';
    for (size_t i = 0; i < block->n; i++)
        counts[i] =
            plain ? index_row(dialect, block->base[i], bytes[i], block->limit, ends + i)
                  : STG_CSV_ODD;
}

/* ---- numbers ---- */

/* Eight digits, right-aligned with '0' in front: their value. */
static inline uint64_t eight_digits(uint64_t word)
{
    word -= EACH('0');
    word = word * 10 + (word >> 8);
    uint64_t low = (word & 0x000000ff000000ffull) * 0x000f424000000064ull;
    uint64_t high = (word >> 16 & 0x000000ff000000ffull) * 0x0000271000000001ull;
    return (low + high) >> 32;
}

static inline bool all_digits(uint64_t word)
{
    return (((word + EACH(0x46)) | (word - EACH('0'))) & HIGH) == 0;
}

/* A field of at most eight characters after its sign: digits, perhaps one point. */
struct short_number {
    uint64_t value;
    unsigned fraction; /* digits behind the point */
    bool negative;
};

/* False: not of that form, or no 8 bytes may be read there; says nothing about validity.
 */
static inline bool read_short(const char *s, uint32_t bytes, const char *limit,
                              bool with_point, struct short_number *ret)
{
    if (limit - s < 9)
        return false;
    bool negative = *s == '-';
    s += negative;
    bytes -= negative;
    if (bytes - 1 > 7)
        return false;
    /* To the high end, zeros in front. */
    unsigned shift = 64 - 8 * bytes;
    uint64_t word = load8(s) << shift;
    if (shift != 0)
        word |= EACH('0') >> (64 - shift);
    unsigned fraction = 0;
    if (with_point) {
        uint64_t point = zero_bytes(word ^ EACH('.'));
        if (point != 0) {
            unsigned at = (unsigned)__builtin_ctzll(point) - 7;
            uint64_t below = (1ull << at) - 1;
            fraction = (56 - at) / 8;
            word = (word & below) << 8 | '0' | (word & ~(below << 8 | 0xff));
            if (bytes == 1)
                return false;
        }
    }
    if (!all_digits(word))
        return false;
    *ret = (struct short_number){
        .value = eight_digits(word), .fraction = fraction, .negative = negative};
    return true;
}

static inline bool is_missing(const char *s, struct stg_span span,
                              const struct stg_csv_rule *rule)
{
    return stg_csv_is_missing(rule, s, span.bytes);
}

/* Value and powers are exact and their quotient has one rounding. Rounding that to float
 * is exact too: with at most 8 digits a quotient that is not half-way between two floats
 * is further than 2^-49 of itself from there. */
static const double inverse_powers[8] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};

static inline double short_double(const struct short_number *number)
{
    double value = (double)(int64_t)number->value / inverse_powers[number->fraction];
    return number->negative ? -value : value;
}

static inline int64_t short_int(const struct short_number *number)
{
    int64_t value = (int64_t)number->value;
    return number->negative ? -value : value;
}

/* name, type, the rule's default, whether it has a fraction, of a short number. */
#define NUMBER_COLUMN(name, type, preset, fraction, of_short)                            \
    static bool name##_column(const struct stg_csv_block *block, const uint32_t *ends,   \
                              const struct stg_csv_rule *rule, type *out)                \
    {                                                                                    \
        bool good = true;                                                                \
        for (size_t i = 0; i < block->n; i++) {                                          \
            struct stg_span span = stg_csv_field(ends, i);                               \
            const char *s = block->base[i] + span.start;                                 \
            struct short_number number;                                                  \
            if (is_missing(s, span, rule)) {                                             \
                out[i] = rule->preset;                                                   \
                good = good && !rule->required;                                          \
            } else if (read_short(s, span.bytes, block->limit, fraction, &number)) {     \
                out[i] = (type)of_short(&number);                                        \
            } else {                                                                     \
                good = stg_parse_##name(s, span.bytes, &out[i]) && good;                 \
            }                                                                            \
        }                                                                                \
        return good;                                                                     \
    }

NUMBER_COLUMN(int32, int32_t, i32, false, short_int)
NUMBER_COLUMN(int64, int64_t, i64, false, short_int)
NUMBER_COLUMN(float32, float, f32, true, short_double)
NUMBER_COLUMN(float64, double, f64, true, short_double)

/* ---- strings ---- */

static bool hash_column(const struct stg_csv_block *block, const uint32_t *ends,
                        const struct stg_csv_rule *rule, const struct stg_csv_hash *hash,
                        int64_t *out)
{
    bool good = true;
    for (size_t i = 0; i < block->n; i++) {
        struct stg_span span = stg_csv_field(ends, i);
        const char *s = block->base[i] + span.start;
        if (is_missing(s, span, rule)) {
            out[i] = hash->missing;
            good = good && !rule->required;
        } else {
            out[i] =
                (int64_t)stg_modulus(stg_fingerprint64(s, span.bytes), &hash->buckets);
        }
    }
    return good;
}

static bool string_spans(const struct stg_csv_block *block, const uint32_t *ends,
                         const struct stg_csv_rule *rule, struct stg_span *ret,
                         uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    size_t n_missing = 0;
    for (size_t i = 0; i < block->n; i++) {
        ret[i] = stg_csv_field(ends, i);
        bytes += ret[i].bytes;
        n_missing += ret[i].bytes == 0;
    }
    for (size_t i = 0; rule->n_na != 0 && i < block->n; i++) {
        if (ret[i].bytes != 0 &&
            is_missing(block->base[i] + ret[i].start, ret[i], rule)) {
            bytes -= ret[i].bytes;
            n_missing++;
        }
    }
    *ret_bytes = bytes + n_missing * rule->s_bytes;
    return n_missing == 0 || !rule->required;
}

/* Two loads that overlap, so that no byte outside is touched. */
static inline void copy_bytes(char *to, const char *from, size_t n)
{
    if (n > 16) {
        memcpy(to, from, n);
    } else if (n >= 8) {
        uint64_t first = load8(from), last = load8(from + n - 8);
        memcpy(to, &first, 8);
        memcpy(to + n - 8, &last, 8);
    } else if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4);
        memcpy(&last, from + n - 4, 4);
        memcpy(to, &first, 4);
        memcpy(to + n - 4, &last, 4);
    } else {
        for (size_t i = 0; i < n; i++)
            to[i] = from[i];
    }
}

static void string_column(const struct stg_csv_block *block, const struct stg_span *spans,
                          const struct stg_csv_rule *rule, char *data, int64_t *offsets)
{
    int64_t at = offsets[0];
    for (size_t i = 0; i < block->n; i++) {
        const char *s = block->base[i] + spans[i].start;
        size_t bytes = spans[i].bytes;
        if (is_missing(s, spans[i], rule)) {
            s = rule->s;
            bytes = rule->s_bytes;
        }
        copy_bytes(data + at, s, bytes);
        at += (int64_t)bytes;
        offsets[i + 1] = at;
    }
}

/* ---- lines ---- */

static size_t newlines(const char *data, size_t n, uint32_t *ret, size_t n_max,
                       size_t *ret_seen)
{
    size_t n_found = 0, at = 0;
    while (n_found < n_max) {
        const char *newline = memchr(data + at, '\n', n - at);
        if (newline == NULL) {
            at = n;
            break;
        }
        ret[n_found++] = (uint32_t)(newline - data);
        at = (size_t)(newline - data) + 1;
    }
    *ret_seen = at;
    return n_found;
}

const struct stg_csv_kernels stg_csv_kernels_scalar = {
    .name = "scalar",
    .index = index_rows,
    .int32 = int32_column,
    .int64 = int64_column,
    .float32 = float32_column,
    .float64 = float64_column,
    .hash = hash_column,
    .spans = string_spans,
    .string = string_column,
    .newlines = newlines,
};
