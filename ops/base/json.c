/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/json.h"

#include <stdint.h>
#include <string.h>

#include "core/param.h"

static bool fail(struct stg_json *at, const char *p, const char *text)
{
    at->p = p;
    at->fault = text;
    return false;
}

static void skip_space(struct stg_json *at)
{
    while (at->p < at->end &&
           (*at->p == ' ' || *at->p == '\t' || *at->p == '\n' || *at->p == '\r'))
        at->p++;
}

bool stg_json_take(struct stg_json *at, char c)
{
    skip_space(at);
    if (at->p == at->end || *at->p != c)
        return false;
    at->p++;
    return true;
}

bool stg_json_ends(struct stg_json *at)
{
    skip_space(at);
    return at->p == at->end;
}

/* ---- strings ---- */

/* Four hexadecimal digits, or -1. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t ret = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = stg_hex_digit(p[i]);
        if (digit < 0)
            return -1;
        ret = ret * 16 + digit;
    }
    return ret;
}

/* Behind the backslash: bytes of the escape, and its character; 0: there is no such. */
static size_t read_escape(const char *p, const char *end, uint32_t *ret)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p == end || *p == '\0')
        return 0;
    const char *found = strchr(names, *p);
    if (found != NULL) {
        *ret = (uint32_t)values[found - names];
        return 1;
    }
    int32_t unit = *p == 'u' ? hex4(p + 1, end) : -1;
    if (unit < 0 || (unit >= 0xdc00 && unit < 0xe000))
        return 0;
    *ret = (uint32_t)unit;
    if (unit < 0xd800 || unit >= 0xe000)
        return 5;
    /* The first half of a pair. */
    int32_t low = end - p >= 11 && p[5] == '\\' && p[6] == 'u' ? hex4(p + 7, end) : -1;
    if (low < 0xdc00 || low >= 0xe000)
        return 0;
    *ret = 0x10000u + (((uint32_t)unit - 0xd800u) << 10) + ((uint32_t)low - 0xdc00u);
    return 11;
}

static bool read_string(struct stg_json *at, struct stg_json_token *ret)
{
    const char *p = at->p + 1;
    *ret = (struct stg_json_token){.kind = '"', .s = p};
    while (p < at->end && *p != '"') {
        if ((unsigned char)*p < 0x20)
            return fail(at, p, "a control character in a string must be escaped");
        if (*p++ != '\\')
            continue;
        uint32_t c = 0;
        size_t n = read_escape(p, at->end, &c);
        if (n == 0)
            return fail(at, p - 1, "unknown escape sequence");
        ret->is_escaped = true;
        p += n;
    }
    if (p == at->end)
        return fail(at, at->p, "a string is not closed");
    ret->bytes = (size_t)(p - ret->s);
    at->p = p + 1;
    return true;
}

static size_t put_utf8(uint32_t c, char *to)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(first[n] | c);
    return n;
}

size_t stg_json_unescape(const struct stg_json_token *token, char *to)
{
    if (!token->is_escaped) {
        memcpy(to, token->s, token->bytes);
        return token->bytes;
    }
    const char *p = token->s, *end = p + token->bytes;
    size_t n = 0;
    while (p < end) {
        uint32_t c = 0;
        if (*p != '\\') {
            to[n++] = *p++;
            continue;
        }
        p += 1 + read_escape(p + 1, end, &c);
        n += put_utf8(c, to + n);
    }
    return n;
}

/* ---- the others ---- */

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static bool read_number(struct stg_json *at, struct stg_json_token *ret)
{
    const char *p = at->p + (*at->p == '-'), *from = p;
    p = digits(p, at->end);
    bool good = p > from && (*from != '0' || p == from + 1);
    if (good && p < at->end && *p == '.') {
        from = p + 1;
        p = digits(from, at->end);
        good = p > from;
    }
    if (good && p < at->end && (*p == 'e' || *p == 'E')) {
        from = p + 1;
        from += from < at->end && (*from == '+' || *from == '-');
        p = digits(from, at->end);
        good = p > from;
    }
    if (!good)
        return fail(at, at->p, "not a valid number");
    *ret = (struct stg_json_token){.kind = '0', .s = at->p, .bytes = (size_t)(p - at->p)};
    at->p = p;
    return true;
}

static bool read_word(struct stg_json *at, struct stg_json_token *ret)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(at->end - at->p) < n || memcmp(at->p, words[i], n) != 0)
            continue;
        *ret = (struct stg_json_token){.kind = *words[i], .s = at->p, .bytes = n};
        at->p += n;
        return true;
    }
    return fail(at, at->p, "expected a value");
}

bool stg_json_next(struct stg_json *at, struct stg_json_token *ret)
{
    skip_space(at);
    if (at->p == at->end)
        return fail(at, at->p, "the record ends, expected a value");
    char c = *at->p;
    if (c == '"')
        return read_string(at, ret);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(at, ret);
    if (c != '[' && c != '{')
        return read_word(at, ret);
    *ret = (struct stg_json_token){.kind = c, .s = at->p++, .bytes = 1};
    return true;
}

/* ---- what is not requested ---- */

static bool skip_name(struct stg_json *at)
{
    struct stg_json_token token;
    if (!stg_json_next(at, &token))
        return false;
    if (token.kind != '"')
        return fail(at, at->p, "expected the name of a member, as in \"name\": value");
    return stg_json_take(at, ':') ||
           fail(at, at->p, "expected ':' after the name of a member");
}

/* open: the brackets that are not closed, from the outermost. Behind a value: closes
 * those that end here, and takes the ',' before the next one. False: fault, or all are
 * closed (*depth is 0). */
static bool next_inside(struct stg_json *at, char *open, int *depth)
{
    while (*depth > 0) {
        char kind = open[*depth - 1];
        if (stg_json_take(at, ','))
            return kind != '{' || skip_name(at);
        if (!stg_json_take(at, kind == '{' ? '}' : ']'))
            return fail(at, at->p, "expected ',' or the end of the list or object");
        --*depth;
    }
    return false;
}

bool stg_json_skip(struct stg_json *at)
{
    char open[STG_JSON_MAX_DEPTH];
    int depth = 0;
    at->fault = NULL;
    for (;;) {
        struct stg_json_token token;
        if (!stg_json_next(at, &token))
            return false;
        bool opens = token.kind == '[' || token.kind == '{';
        if (opens && depth == STG_JSON_MAX_DEPTH)
            return fail(at, at->p, "lists and objects are nested deeper than 64");
        if (opens && !stg_json_take(at, token.kind == '{' ? '}' : ']')) {
            open[depth++] = token.kind;
            if (token.kind == '{' && !skip_name(at))
                return false;
            continue;
        }
        if (!next_inside(at, open, &depth))
            return at->fault == NULL;
    }
}
