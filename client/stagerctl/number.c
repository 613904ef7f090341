/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/number.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stager.h"

/* A small binary float: sign, exponent, `fraction` bits. */
static double from_bits(uint16_t bits, int fraction, int exponent_max, int bias)
{
    int exponent = bits >> fraction & exponent_max;
    int mantissa = bits & ((1 << fraction) - 1);
    double value;
    if (exponent == exponent_max)
        value = mantissa != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - fraction);
    else
        value = ldexp(mantissa + (1 << fraction), exponent - bias - fraction);
    return (bits & 0x8000) != 0 ? -value : value;
}

static uint16_t to_bits(double value, int fraction, int exponent_max, int bias)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(exponent_max << fraction);
    if (isnan(value))
        return (uint16_t)(sign | infinity | 1 << (fraction - 1));
    double size = fabs(value);
    if (size == 0)
        return sign;
    int exponent;
    frexp(size, &exponent);
    exponent--; /* size = 1.x * 2^exponent */
    if (exponent < 1 - bias)
        exponent = 1 - bias; /* denormal */
    /* An integer number of the last place; rint rounds ties to even. A carry walks into
     * the exponent by itself. */
    double units = isinf(size) ? INFINITY : rint(ldexp(size, fraction - exponent));
    if (isinf(units) || exponent > exponent_max)
        return sign | infinity;
    long bits = ((long)(exponent + bias - 1) << fraction) + (long)units;
    return bits >= infinity ? sign | infinity : (uint16_t)(sign | bits);
}

double stg_number_from_float16(uint16_t bits)
{
    return from_bits(bits, 10, 31, 15);
}

double stg_number_from_bfloat16(uint16_t bits)
{
    return from_bits(bits, 7, 255, 127);
}

uint16_t stg_number_to_float16(double value)
{
    return to_bits(value, 10, 31, 15);
}

uint16_t stg_number_to_bfloat16(double value)
{
    return to_bits(value, 7, 255, 127);
}

static bool reads_back(const char *text, double value, int dtype)
{
    switch (dtype) {
    case STAGER_FLOAT16:
        return stg_number_to_float16(strtod(text, NULL)) == stg_number_to_float16(value);
    case STAGER_BFLOAT16:
        return stg_number_to_bfloat16(strtod(text, NULL)) ==
               stg_number_to_bfloat16(value);
    case STAGER_FLOAT32: return strtof(text, NULL) == (float)value;
    }
    return strtod(text, NULL) == value;
}

static int max_digits(int dtype)
{
    switch (dtype) {
    case STAGER_FLOAT16: return 5;
    case STAGER_BFLOAT16: return 4;
    case STAGER_FLOAT32: return 9;
    }
    return 17;
}

/* digits "12345", exponent 2: "123.45". Exponents are written out from 1e16 on, as Python
 * does.
 */
static void lay_out(const char *digits, int exponent, bool negative, char *buf)
{
    int n = (int)strlen(digits);
    char *p = buf;
    if (negative)
        *p++ = '-';
    if (exponent < -4 || exponent >= 16) {
        p += sprintf(p, n > 1 ? "%c.%s" : "%c%s", digits[0], digits + 1);
        sprintf(p, "e%+03d", exponent);
    } else if (exponent < 0) {
        sprintf(p, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else if (n <= exponent + 1) {
        sprintf(p, "%s%.*s.0", digits, exponent + 1 - n, "0000000000000000");
    } else {
        sprintf(p, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
    }
}

char *stg_number_text(double value, int dtype, char *buf)
{
    if (!isfinite(value)) {
        snprintf(buf, STG_NUMBER_BYTES, "%s",
                 isnan(value) ? "nan"
                 : value > 0  ? "inf"
                              : "-inf");
        return buf;
    }
    char text[STG_NUMBER_BYTES];
    int most = max_digits(dtype), n = 0;
    do {
        snprintf(text, sizeof(text), "%.*e", n, fabs(value));
    } while (++n < most && !reads_back(text, fabs(value), dtype));

    /* "d.ddde±xx": the digits without the point and without zeros at the end. */
    char digits[STG_NUMBER_BYTES];
    int n_digits = 0;
    const char *p = text;
    for (; *p != 'e'; p++) {
        if (*p != '.')
            digits[n_digits++] = *p;
    }
    while (n_digits > 1 && digits[n_digits - 1] == '0')
        n_digits--;
    digits[n_digits] = '\0';
    lay_out(digits, atoi(p + 1), signbit(value) != 0, buf);
    return buf;
}
