/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars by YAML 1.2's core schema (https://yaml.org/spec/1.2.2/#103-core-schema).
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load_text.h"

static bool is_one_of(const char *s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(s, words[i]) == 0)
            return true;
    }
    return false;
}

#define IS_ONE_OF(s, ...)                                                                \
    is_one_of(s, (const char *const[]){__VA_ARGS__},                                     \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

bool stg_text_is_null(const struct stg_text_node *node)
{
    return node->kind == STG_TEXT_SCALAR && node->plain &&
           IS_ONE_OF(node->s, "", "~", "null", "Null", "NULL");
}

static const char *skip_sign(const char *s)
{
    return *s == '+' || *s == '-' ? s + 1 : s;
}

static const char *skip_digits(const char *s)
{
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

/* The base of an integer, or 0 when it is none. */
static int integer_base(const char *s)
{
    if (s[0] == '0' && s[1] == 'x' && s[2] != '\0')
        return s[2 + strspn(s + 2, "0123456789abcdefABCDEF")] == '\0' ? 16 : 0;
    if (s[0] == '0' && s[1] == 'o' && s[2] != '\0')
        return s[2 + strspn(s + 2, "01234567")] == '\0' ? 8 : 0;
    s = skip_sign(s);
    return *s != '\0' && *skip_digits(s) == '\0' ? 10 : 0;
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_decimal(const char *s)
{
    s = skip_sign(s);
    const char *whole = s;
    s = skip_digits(s);
    bool has_whole = s != whole;
    if (*s == '.') {
        const char *fraction = ++s;
        s = skip_digits(s);
        if (!has_whole && s == fraction)
            return false;
    } else if (!has_whole) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        const char *digits = skip_sign(s + 1);
        s = skip_digits(digits);
        if (s == digits)
            return false;
    }
    return *s == '\0';
}

static bool parse_float(const char *s, double *ret)
{
    if (IS_ONE_OF(s, ".nan", ".NaN", ".NAN", "nan", "NaN", "NAN")) {
        *ret = NAN;
        return true;
    }
    /* Without the dot as C, Python and Python's JSON write them. */
    if (IS_ONE_OF(skip_sign(s), ".inf", ".Inf", ".INF", "inf", "Inf", "INF",
                  "Infinity")) {
        *ret = *s == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (!is_decimal(s))
        return false;
    *ret = strtod(s, NULL);
    return true;
}

bool stg_text_value(const struct stg_text_node *node, struct stg_value *ret)
{
    const char *s = node->s;
    struct stg_value value = {.kind = STG_VALUE_STRING, .s = s, .s_bytes = node->s_bytes};
    int base = node->plain ? integer_base(s) : 0;
    double number;
    if (!node->plain) {
        *ret = value;
    } else if (stg_text_is_null(node)) {
        *ret = (struct stg_value){.kind = STG_VALUE_NULL};
    } else if (IS_ONE_OF(s, "true", "True", "TRUE", "false", "False", "FALSE")) {
        *ret = (struct stg_value){.kind = STG_VALUE_BOOL, .i = *s == 't' || *s == 'T'};
    } else if (base != 0) {
        errno = 0;
        long long i = strtoll(base == 10 ? s : s + 2, NULL, base);
        if (errno == ERANGE)
            return false;
        *ret = (struct stg_value){.kind = STG_VALUE_INT, .i = i, .f = (double)i};
    } else if (parse_float(s, &number)) {
        *ret = (struct stg_value){.kind = STG_VALUE_FLOAT, .f = number};
    } else {
        *ret = value;
    }
    return true;
}

const char *stg_text_printable(const char *s, size_t n, char *buf, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        bool escape = c < 0x20 || c == 0x7f;
        bool continues = (c & 0xc0) == 0x80;
        if (used + (continues ? 5 : 12) > bytes) {
            used += (size_t)snprintf(buf + used, bytes - used, "...");
            break;
        }
        if (escape)
            used += (size_t)snprintf(buf + used, bytes - used, "\\x%02x", c);
        else
            buf[used++] = (char)c;
    }
    buf[used] = '\0';
    return buf;
}

const char *stg_text_found(const struct stg_text_node *node, char *buf, size_t bytes)
{
    char shown[48];
    if (node->kind == STG_TEXT_LIST) {
        snprintf(buf, bytes, "a list");
    } else if (node->kind == STG_TEXT_MAPPING) {
        snprintf(buf, bytes, "a mapping");
    } else if (node->plain && node->s_bytes == 0) {
        snprintf(buf, bytes, "nothing");
    } else {
        stg_text_printable(node->s, node->s_bytes, shown, sizeof(shown));
        snprintf(buf, bytes, node->plain ? "%s" : "the string \"%s\"", shown);
    }
    return buf;
}
