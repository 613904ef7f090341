/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/braces.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define MAX_BYTES 8192
#define MAX_DEPTH 64 /* groups behind or in one another */
#define MAX_DIGITS 9

struct braces {
    const char *pattern;
    int (*each)(void *owner, const char *pattern, struct stg_err *err);
    void *owner;
    uint32_t n;
    unsigned depth;
    char text[MAX_BYTES]; /* what is expanded so far */
};

/* ---- a group: what stands from '{' to '}' ---- */

struct group {
    const char *begin, *end; /* between the braces */
    bool has_comma;
    size_t digits; /* of a range: at least so many; 0: it is none */
    uint32_t first, last;
};

/* The bytes of a number at `at`, up to MAX_DIGITS; 0: there is none. */
static size_t read_number(const char *at, const char *end, uint32_t *ret)
{
    size_t n = 0;
    *ret = 0;
    while (at + n < end && isdigit((unsigned char)at[n]) && n < MAX_DIGITS)
        *ret = *ret * 10 + (uint32_t)(at[n++] - '0');
    return n;
}

static void read_range(struct group *group)
{
    size_t n = read_number(group->begin, group->end, &group->first);
    const char *dots = group->begin + n;
    if (n == 0 || group->end - dots < 3 || memcmp(dots, "..", 2) != 0)
        return;
    size_t m = read_number(dots + 2, group->end, &group->last);
    if (m == 0 || dots + 2 + m != group->end)
        return;
    bool padded = (n > 1 && group->begin[0] == '0') || (m > 1 && dots[2] == '0');
    group->digits = padded ? (n > m ? n : m) : 1;
}

/* The group that begins at `at`, a '{'. False: it is a character. */
static bool find_group(const char *at, struct group *ret)
{
    unsigned depth = 0;
    *ret = (struct group){.begin = at + 1};
    for (; *at != '\0'; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
            continue;
        }
        depth += *at == '{';
        ret->has_comma |= *at == ',' && depth == 1;
        if (*at == '}' && --depth == 0)
            break;
    }
    if (*at == '\0')
        return false;
    ret->end = at;
    if (!ret->has_comma)
        read_range(ret);
    return ret->has_comma || ret->digits > 0;
}

/* ---- all that it stands for ---- */

static int walk(struct braces *braces, size_t used, const char *rest,
                struct stg_err *err);

static int fail_long(const struct braces *braces, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%.60s… stands for names that are too long, or has more than %d "
                   "braces",
                   braces->pattern, MAX_DEPTH);
}

static int take(struct braces *braces, struct stg_err *err)
{
    if (braces->n++ == STG_BRACES_MAX)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%.200s: its braces stand for more than %u names", braces->pattern,
                       STG_BRACES_MAX);
    return braces->each(braces->owner, braces->text, err);
}

static int walk_range(struct braces *braces, size_t used, const struct group *group,
                      struct stg_err *err)
{
    int step = group->first <= group->last ? 1 : -1, rc = 0;
    for (int64_t i = group->first; rc == 0; i += step) {
        size_t room = sizeof(braces->text) - used;
        int n = snprintf(braces->text + used, room, "%0*lld", (int)group->digits,
                         (long long)i);
        rc = (size_t)n < room ? walk(braces, used + (size_t)n, group->end + 1, err)
                              : fail_long(braces, err);
        if (i == group->last)
            break;
    }
    return rc;
}

/* An entry of a list, with all that follows the group. */
static int walk_entry(struct braces *braces, size_t used, const char *begin,
                      const char *end, const char *rest, struct stg_err *err)
{
    size_t n = (size_t)(end - begin), bytes = n + strlen(rest) + 1;
    char *text = malloc(bytes);
    if (text == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    memcpy(text, begin, n);
    memcpy(text + n, rest, bytes - n);
    int rc = walk(braces, used, text, err);
    free(text);
    return rc;
}

static int walk_list(struct braces *braces, size_t used, const struct group *group,
                     struct stg_err *err)
{
    const char *begin = group->begin;
    unsigned depth = 0;
    int rc = 0;
    for (const char *at = begin; rc == 0 && at <= group->end; at++) {
        if (*at == '\\' && at + 1 < group->end) {
            at++;
            continue;
        }
        if (at == group->end || (*at == ',' && depth == 0)) {
            rc = walk_entry(braces, used, begin, at, group->end + 1, err);
            begin = at + 1;
        }
        depth += *at == '{';
        depth -= *at == '}' && at < group->end;
    }
    return rc;
}

static int walk_group(struct braces *braces, size_t used, const struct group *group,
                      struct stg_err *err)
{
    if (braces->depth == MAX_DEPTH)
        return fail_long(braces, err);
    braces->depth++;
    int rc = group->has_comma ? walk_list(braces, used, group, err)
                              : walk_range(braces, used, group, err);
    braces->depth--;
    return rc;
}

/* text[0 .. used) is expanded, and `rest` is not. */
static int walk(struct braces *braces, size_t used, const char *rest, struct stg_err *err)
{
    struct group group;
    for (; *rest != '\0'; rest++) {
        if (*rest == '{' && find_group(rest, &group))
            return walk_group(braces, used, &group, err);
        if (used + 2 >= sizeof(braces->text))
            return fail_long(braces, err);
        if (*rest == '\\' && rest[1] != '\0')
            braces->text[used++] = *rest++;
        braces->text[used++] = *rest;
    }
    braces->text[used] = '\0';
    return take(braces, err);
}

int stg_braces_each(const char *pattern,
                    int (*each)(void *owner, const char *pattern, struct stg_err *err),
                    void *owner, struct stg_err *err)
{
    if (strchr(pattern, '{') == NULL)
        return each(owner, pattern, err);
    struct braces *braces = malloc(sizeof(*braces));
    if (braces == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    braces->pattern = pattern;
    braces->each = each;
    braces->owner = owner;
    braces->n = braces->depth = 0;
    int rc = walk(braces, 0, pattern, err);
    free(braces);
    return rc;
}

char *stg_braces_escape(const char *path)
{
    char *pattern = malloc(2 * strlen(path) + 1), *to = pattern;
    for (; pattern != NULL && *path != '\0'; path++) {
        if (strchr("*?[\\{", *path) != NULL)
            *to++ = '\\';
        *to++ = *path;
    }
    if (pattern != NULL)
        *to = '\0';
    return pattern;
}
