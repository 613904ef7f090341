/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON (RFC 8259) token by token, where it lies: nothing is copied. Strings may hold any
 * bytes but control characters; whether they are UTF-8 is not looked at. Pure; any
 * thread.
 */
#ifndef STG_OPS_BASE_JSON_H
#define STG_OPS_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* Lists and objects inside of one another. */
#define STG_JSON_MAX_DEPTH 64

struct stg_json {
    const char *p, *end;
    const char *fault; /* what is wrong at p; set where a function gives false */
};

struct stg_json_token {
    char kind;       /* '"' string, '0' number, 't' 'f' 'n', '[' ']' '{' '}' */
    bool is_escaped; /* string: holds a backslash */
    const char *s;   /* string: between its quotes; else the token */
    size_t bytes;
};

/* The next value, or the bracket that begins one. */
bool stg_json_next(struct stg_json *at, struct stg_json_token *ret);

/* Takes that character, if it is next behind white space. */
bool stg_json_take(struct stg_json *at, char c);

/* The next value, whatever it is. */
bool stg_json_skip(struct stg_json *at);

/* Nothing but white space is left. */
bool stg_json_ends(struct stg_json *at);

/* The string in UTF-8, at most token->bytes of it; returns how many. */
size_t stg_json_unescape(const struct stg_json_token *token, char *to);

#endif
