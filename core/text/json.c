/* SPDX-License-Identifier: Apache-2.0 */
#include "core/text/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "core/param.h"

/* ---- floats of the small dtypes ---- */

/* Decodes a 16-bit float: the sign, the exponent, then `fraction` bits of mantissa. */
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
    /* Count units in the last place; rint rounds ties to even. A carry propagates into
     * the exponent when `bits` is summed. */
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

/* Writes decimal digits with their exponent: digits "12345", exponent 2 gives "123.45".
 * Uses exponent notation from 1e16 on and below 1e-4, as Python does. */
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

static void before_value(struct stg_json_writer *json)
{
    if (json->comma)
        fputs(", ", json->out);
    json->comma = true;
}

static void open_with(struct stg_json_writer *json, char mark)
{
    before_value(json);
    fputc(mark, json->out);
    json->comma = false;
}

static void close_with(struct stg_json_writer *json, char mark)
{
    fputc(mark, json->out);
    json->comma = true;
}

void stg_json_object_begin(struct stg_json_writer *json)
{
    unsigned version = json->schema_version;
    open_with(json, '{');
    json->schema_version = 0;
    if (version != 0)
        stg_json_put_uint(json, "schema_version", version);
}

void stg_json_object_end(struct stg_json_writer *json)
{
    close_with(json, '}');
}

void stg_json_array_begin(struct stg_json_writer *json)
{
    open_with(json, '[');
}

void stg_json_array_end(struct stg_json_writer *json)
{
    close_with(json, ']');
}

/* ---- strings ---- */

bool stg_json_is_text(const char *data, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t step = stg_utf8_bytes(data + i, n - i);
        if (step == 0)
            return false;
        i += step;
    }
    return true;
}

static void write_escaped(FILE *out, const char *data, size_t n)
{
    fputc('"', out);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (c == '\r')
            fputs("\\r", out);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void stg_json_base64(struct stg_json_writer *json, const char *data, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = (const unsigned char *)data;
    FILE *out = json->out;
    before_value(json);
    fputc('"', out);
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned word = (unsigned)s[i] << 16;
        word |= left > 1 ? (unsigned)s[i + 1] << 8 : 0;
        word |= left > 2 ? s[i + 2] : 0;
        fputc(digits[word >> 18], out);
        fputc(digits[word >> 12 & 63], out);
        fputc(left > 1 ? digits[word >> 6 & 63] : '=', out);
        fputc(left > 2 ? digits[word & 63] : '=', out);
    }
    fputc('"', out);
}

void stg_json_bytes(struct stg_json_writer *json, const char *data, size_t n)
{
    if (stg_json_is_text(data, n)) {
        before_value(json);
        write_escaped(json->out, data, n);
        return;
    }
    stg_json_object_begin(json);
    stg_json_key(json, "base64");
    stg_json_base64(json, data, n);
    stg_json_object_end(json);
}

void stg_json_string(struct stg_json_writer *json, const char *text)
{
    stg_json_bytes(json, text, strlen(text));
}

void stg_json_key(struct stg_json_writer *json, const char *key)
{
    before_value(json);
    write_escaped(json->out, key, strlen(key));
    fputs(": ", json->out);
    json->comma = false;
}

/* ---- numbers ---- */

void stg_json_int(struct stg_json_writer *json, int64_t value)
{
    before_value(json);
    fprintf(json->out, "%" PRId64, value);
}

void stg_json_uint(struct stg_json_writer *json, uint64_t value)
{
    before_value(json);
    fprintf(json->out, "%" PRIu64, value);
}

void stg_json_micros(struct stg_json_writer *json, uint64_t ns)
{
    before_value(json);
    fprintf(json->out, "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

void stg_json_bool(struct stg_json_writer *json, bool value)
{
    before_value(json);
    fputs(value ? "true" : "false", json->out);
}

void stg_json_null(struct stg_json_writer *json)
{
    before_value(json);
    fputs("null", json->out);
}

void stg_json_float(struct stg_json_writer *json, double value, int dtype)
{
    char text[STG_NUMBER_BYTES];
    before_value(json);
    fprintf(json->out, isfinite(value) ? "%s" : "\"%s\"",
            stg_number_text(value, dtype, text));
}

/* ---- members ---- */

void stg_json_put_string(struct stg_json_writer *json, const char *key, const char *text)
{
    stg_json_key(json, key);
    stg_json_string(json, text != NULL ? text : "");
}

void stg_json_put_uint(struct stg_json_writer *json, const char *key, uint64_t value)
{
    stg_json_key(json, key);
    stg_json_uint(json, value);
}

void stg_json_put_float(struct stg_json_writer *json, const char *key, double value)
{
    stg_json_key(json, key);
    stg_json_float(json, value, STAGER_FLOAT64);
}

void stg_json_put_bool(struct stg_json_writer *json, const char *key, bool value)
{
    stg_json_key(json, key);
    stg_json_bool(json, value);
}
