/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/param.h"

#define DIGIT_LIMIT 50000000
#define HEX_DIGIT_LIMIT (DIGIT_LIMIT / 4)
#define EXPONENT_LIMIT 1000000000
/* 767 digits decide any double; one more says whether something follows. */
#define KEEP_DIGITS 800

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void strip(const char **s, const char **end)
{
    while (*s < *end && is_space(**s))
        (*s)++;
    while (*s < *end && is_space((*end)[-1]))
        (*end)--;
}

/* ---- integers ---- */

/* The magnitude is collected negatively: it has one value more. */
static bool parse_int(const char *s, const char *end, int64_t min, int64_t *ret)
{
    strip(&s, &end);
    bool negative = s < end && *s == '-';
    if (s < end && (*s == '-' || *s == '+'))
        s++;
    if (s == end)
        return false;
    int64_t value = 0;
    for (; s < end; s++) {
        if (*s < '0' || *s > '9')
            return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, *s - '0', &value) || value < min)
            return false;
    }
    if (!negative && value == min)
        return false;
    *ret = negative ? value : -value;
    return true;
}

bool stg_parse_int32(const char *s, size_t n, int32_t *ret)
{
    int64_t value;
    if (!parse_int(s, s + n, INT32_MIN, &value))
        return false;
    *ret = (int32_t)value;
    return true;
}

bool stg_parse_int64(const char *s, size_t n, int64_t *ret)
{
    return parse_int(s, s + n, INT64_MIN, ret);
}

/* A minus is refused, before a zero too. */
static bool parse_uint(const char *s, const char *end, uint64_t max, uint64_t *ret)
{
    strip(&s, &end);
    if (s < end && *s == '+')
        s++;
    if (s == end)
        return false;
    uint64_t value = 0;
    for (; s < end; s++) {
        if (*s < '0' || *s > '9')
            return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value) || value > max)
            return false;
    }
    *ret = value;
    return true;
}

bool stg_parse_uint32(const char *s, size_t n, uint32_t *ret)
{
    uint64_t value;
    if (!parse_uint(s, s + n, UINT32_MAX, &value))
        return false;
    *ret = (uint32_t)value;
    return true;
}

bool stg_parse_uint64(const char *s, size_t n, uint64_t *ret)
{
    return parse_uint(s, s + n, UINT64_MAX, ret);
}

/* ---- floats: what was read ---- */

enum kind { KIND_DECIMAL, KIND_HEX, KIND_INFINITY, KIND_NAN };

struct scanned {
    enum kind kind;
    bool negative;
    const char *first, *last; /* DECIMAL, HEX: first digit or point, end of the digits */
    int64_t exponent;         /* as written, limited */
    const char *tag;          /* NAN: what is between the parentheses */
    size_t tag_bytes;
};

static bool is_digit(char c, bool hex)
{
    return hex ? stg_hex_digit(c) >= 0 : c >= '0' && c <= '9';
}

static bool has_prefix(const char *s, const char *end, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(end - s) < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((s[i] | 0x20) != word[i])
            return false;
    }
    return true;
}

static bool scan_word(const char *s, const char *end, struct scanned *ret)
{
    if (has_prefix(s, end, "inf")) {
        ret->kind = KIND_INFINITY;
        return end - s == 3 || (end - s == 8 && has_prefix(s, end, "infinity"));
    }
    if (!has_prefix(s, end, "nan"))
        return false;
    ret->kind = KIND_NAN;
    ret->tag = s;
    ret->tag_bytes = 0;
    if (end - s == 3)
        return true;
    if (s[3] != '(' || end[-1] != ')' || end - s < 5)
        return false;
    ret->tag = s + 4;
    ret->tag_bytes = (size_t)(end - 1 - ret->tag);
    for (size_t i = 0; i < ret->tag_bytes; i++) {
        char c = ret->tag[i];
        char lower = (char)(c | 0x20);
        if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'z') && c != '_')
            return false;
    }
    return true;
}

static bool scan_exponent(const char *s, const char *end, int64_t *ret)
{
    bool negative = s < end && *s == '-';
    if (s < end && (*s == '-' || *s == '+'))
        s++;
    if (s == end)
        return false;
    int64_t exponent = 0;
    for (; s < end; s++) {
        if (*s < '0' || *s > '9')
            return false;
        if (exponent < EXPONENT_LIMIT)
            exponent = exponent * 10 + (*s - '0');
    }
    *ret = negative ? -exponent : exponent;
    return true;
}

static bool scan_digits(const char *s, const char *end, struct scanned *ret)
{
    bool hex = ret->kind == KIND_HEX;
    int64_t limit = hex ? HEX_DIGIT_LIMIT : DIGIT_LIMIT, before = 0, after = 0;
    ret->first = s;
    while (s < end && *s == '0')
        s++;
    bool zeros = s > ret->first;
    while (s < end && is_digit(*s, hex))
        s++, before++;
    if (s < end && *s == '.') {
        s++;
        while (s < end && is_digit(*s, hex))
            s++, after++;
    }
    ret->last = s;
    ret->exponent = 0;
    if ((before + after == 0 && !zeros) || before >= limit || after >= limit)
        return false;
    if (s == end)
        return true;
    if ((*s | 0x20) != (hex ? 'p' : 'e'))
        return false;
    return scan_exponent(s + 1, end, &ret->exponent);
}

static bool scan(const char *s, const char *end, struct scanned *ret)
{
    strip(&s, &end);
    ret->negative = s < end && *s == '-';
    if (s < end && (*s == '-' || *s == '+'))
        s++;
    if (s == end)
        return false;
    if (*s != '.' && (*s < '0' || *s > '9'))
        return scan_word(s, end, ret);
    ret->kind = KIND_DECIMAL;
    if (end - s > 2 && s[0] == '0' && (s[1] | 0x20) == 'x') {
        ret->kind = KIND_HEX;
        s += 2;
    }
    return scan_digits(s, end, ret);
}

/* ---- floats: the value ---- */

/* Digits without point and leading zeros, the exponent that goes with them. */
struct digits {
    uint64_t mantissa; /* the first 19 */
    int n;             /* digits in mantissa */
    int64_t exponent;  /* of the last digit in mantissa */
    bool more;         /* digits other than 0 were left out */
};

static void collect(const struct scanned *scanned, struct digits *ret)
{
    struct digits d = {.exponent = scanned->exponent};
    bool point = false;
    for (const char *p = scanned->first; p < scanned->last; p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (d.n < 19) {
            d.mantissa = d.mantissa * 10 + (uint64_t)(*p - '0');
            d.n += d.mantissa != 0;
            d.exponent -= point;
        } else {
            d.more |= *p != '0';
            d.exponent += !point;
        }
    }
    *ret = d;
}

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Both operands exact, so one rounding. */
static bool small_double(const struct digits *d, double *ret)
{
    if (d->more || d->mantissa > 1ull << 53 || d->exponent < -22 || d->exponent > 22)
        return false;
    double m = (double)d->mantissa;
    *ret = d->exponent < 0 ? m / powers[-d->exponent] : m * powers[d->exponent];
    return true;
}

/* Rounding the rounded double again differs from rounding once only where the double is
 * exactly half-way between two floats. */
static bool small_float(const struct digits *d, float *ret)
{
    double value;
    if (!small_double(d, &value))
        return false;
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x1fffffff) == 0x10000000 || (value != 0 && value < 0x1p-126))
        return false;
    *ret = (float)value;
    return true;
}

/* The number again, short enough for strtod whatever its length was: leading zeros and
 * the digits that cannot matter are left out. */
static void rewrite(const struct scanned *scanned, char buf[KEEP_DIGITS + 40])
{
    bool hex = scanned->kind == KIND_HEX, point = false, more = false;
    int per_digit = hex ? 4 : 1;
    int64_t exponent = scanned->exponent;
    size_t at = 0, n = 0;
    if (hex) {
        buf[at++] = '0';
        buf[at++] = 'x';
    }
    for (const char *p = scanned->first; p < scanned->last; p++) {
        if (*p == '.') {
            point = true;
        } else if (n < KEEP_DIGITS) {
            if (n > 0 || *p != '0')
                n++, buf[at++] = *p;
            exponent -= point ? per_digit : 0;
        } else {
            more |= *p != '0';
            exponent += point ? 0 : per_digit;
        }
    }
    if (n == 0)
        buf[at++] = '0';
    if (more) {
        buf[at++] = '1';
        exponent -= per_digit;
    }
    snprintf(buf + at, 32, "%c%lld", hex ? 'p' : 'e', (long long)exponent);
}

/* glibc gives the same object for "C" each time and allocates nothing. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* strtod interprets the characters between the parentheses; the first 127 count. */
static void rewrite_nan(const struct scanned *scanned, char buf[KEEP_DIGITS + 40])
{
    int n = scanned->tag_bytes < 127 ? (int)scanned->tag_bytes : 127;
    snprintf(buf, KEEP_DIGITS + 40, "nan(%.*s)", n, scanned->tag);
}

bool stg_parse_float32(const char *s, size_t n, float *ret)
{
    struct scanned scanned;
    if (!scan(s, s + n, &scanned))
        return false;
    struct digits digits;
    char buf[KEEP_DIGITS + 40];
    float value;
    switch (scanned.kind) {
    case KIND_INFINITY: value = INFINITY; break;
    case KIND_NAN:
        rewrite_nan(&scanned, buf);
        value = strtof_l(buf, NULL, c_locale());
        break;
    case KIND_DECIMAL:
        collect(&scanned, &digits);
        if (small_float(&digits, &value))
            break;
        __attribute__((fallthrough));
    default:
        rewrite(&scanned, buf);
        value = strtof_l(buf, NULL, c_locale());
        break;
    }
    *ret = scanned.negative ? -value : value;
    return true;
}

bool stg_parse_float64(const char *s, size_t n, double *ret)
{
    struct scanned scanned;
    if (!scan(s, s + n, &scanned))
        return false;
    struct digits digits;
    char buf[KEEP_DIGITS + 40];
    double value;
    switch (scanned.kind) {
    case KIND_INFINITY: value = INFINITY; break;
    case KIND_NAN:
        rewrite_nan(&scanned, buf);
        value = strtod_l(buf, NULL, c_locale());
        break;
    case KIND_DECIMAL:
        collect(&scanned, &digits);
        if (small_double(&digits, &value))
            break;
        __attribute__((fallthrough));
    default:
        rewrite(&scanned, buf);
        value = strtod_l(buf, NULL, c_locale());
        break;
    }
    *ret = scanned.negative ? -value : value;
    return true;
}
