/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/report/mask.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define TOKEN_BYTES 24 /* a word of letters and digits as long as this is a token */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '+' || c == '=' || c == '%';
}

static size_t word_bytes(const char *s, const char *end)
{
    size_t n = 0;
    while (s + n < end && is_word(s[n]))
        n++;
    return n;
}

/* A name has digits or capitals at most; a token has letters and digits. */
static bool is_token(const char *s, size_t n)
{
    bool letters = false, digits = false;
    for (size_t i = 0; i < n; i++) {
        letters |= isalpha((unsigned char)s[i]) != 0;
        digits |= isdigit((unsigned char)s[i]) != 0;
    }
    return n >= TOKEN_BYTES && letters && digits;
}

/* "NAME: " or "NAME=" at s: the bytes up to the value. 0: it is none of a secret. */
static size_t secret_key(const char *s, const char *end)
{
    static const char *const names[] = {"token",         "password",   "passwd",
                                        "secret",        "cookie",     "credential",
                                        "authorization", "access_key", "signature"};
    size_t n = 0;
    bool found = false;
    while (s + n < end && (isalnum((unsigned char)s[n]) || s[n] == '_' || s[n] == '-'))
        n++;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t m = strlen(names[i]);
        for (size_t k = 0; k + m <= n && !found; k++)
            found = strncasecmp(s + k, names[i], m) == 0;
    }
    if (!found || s + n >= end || (s[n] != ':' && s[n] != '='))
        return 0;
    for (n++; s + n < end && s[n] == ' ';)
        n++;
    return n;
}

/* After "://": the bytes of "user:password@", and 0 if there is no user. */
static size_t user_bytes(const char *s, const char *end)
{
    size_t n = 0;
    while (s + n < end && !isspace((unsigned char)s[n]) && s[n] != '/' && s[n] != '@')
        n++;
    return s + n < end && s[n] == '@' ? n : 0;
}

static size_t query_bytes(const char *s, const char *end)
{
    size_t n = 0;
    while (s + n < end && !isspace((unsigned char)s[n]) && s[n] != ',')
        n++;
    return n;
}

/* Within quotes: up to the closing one, or the end of the line. */
static size_t quoted_bytes(const char *s, const char *end)
{
    size_t n = 0;
    while (s + n < end && s[n] != '"')
        n += s[n] == '\\' && s + n + 1 < end ? 2 : 1;
    return n;
}

static void put(FILE *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fputc(iscntrl((unsigned char)s[i]) ? '?' : s[i], out);
}

/* Of what begins at s: ret_keep bytes are written, then ret_drop are masked. */
static void look_at(const char *s, const char *end, bool starts, size_t *ret_keep,
                    size_t *ret_drop)
{
    size_t word = starts ? word_bytes(s, end) : 0;
    *ret_keep = starts ? secret_key(s, end) : 0;
    *ret_drop = 0;
    if (*ret_keep > 0) {
        *ret_drop = (size_t)(end - s) - *ret_keep;
    } else if (end - s > 3 && strncmp(s, "://", 3) == 0) {
        *ret_keep = 3;
        *ret_drop = user_bytes(s + 3, end);
    } else if (*s == '?' && s + 1 < end && isalnum((unsigned char)s[1])) {
        *ret_keep = 1;
        *ret_drop = query_bytes(s + 1, end);
    } else if (is_token(s, word)) {
        *ret_drop = word;
    } else {
        *ret_keep = word > 0 ? word : 1;
    }
}

void stg_mask_line(FILE *out, const char *line, size_t n)
{
    const char *s = line, *end = line + n;
    while (s < end) {
        size_t keep, drop;
        bool starts = s == line || !(isalnum((unsigned char)s[-1]) || s[-1] == '_');
        if (*s == '"') {
            size_t inside = quoted_bytes(s + 1, end);
            bool is_closed = s + 1 + inside < end;
            fputs(is_closed ? "\"***\"" : "\"***", out);
            s += 1 + inside + is_closed;
            continue;
        }
        look_at(s, end, starts, &keep, &drop);
        put(out, s, keep);
        if (drop > 0)
            fputs("***", out);
        s += keep + drop;
    }
    fputc('\n', out);
}
