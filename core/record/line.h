/* SPDX-License-Identifier: Apache-2.0
 *
 * A record as one line of text between two line feeds, so that a damaged byte spoils one
 * record: "MARK SUM WORD WORD ...". SUM is the hash of what follows it. Nothing of a line
 * that is read is trusted. Pure functions; any thread.
 */
#ifndef STG_CORE_LINE_H
#define STG_CORE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STG_LINE_MARK_BYTES 3 /* with its space */
#define STG_LINE_HEAD_BYTES (STG_LINE_MARK_BYTES + 16 + 1)
/* Of a name of n bytes, with its NUL. */
#define STG_LINE_NAME_BYTES(n) (3 * (n) + 2)

/* ---- writing ---- */

/* Puts the line feeds, the mark and the sum around a payload of n bytes, which begins at
 * buf + 1 + STG_LINE_HEAD_BYTES. Returns the length of all of it. */
size_t stg_line_finish(char *buf, size_t n, const char *mark);

#define STG_ALPHANUMERIC "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* Writes the text, each byte that is not one of `stay` as in URLs ("%2f"). Returns the
 * length without the NUL. */
size_t stg_escape(const char *text, const char *stay, char *buf);

/* Writes "=" and the name, of which visible characters but "%" stay. Returns the length
 * without the NUL. */
size_t stg_line_escape(const char *name, char *buf);

/* ---- reading ---- */

/* Returns whether a line, without its line feeds, has this mark and the right sum. */
bool stg_line_is_right(const char *line, size_t n, const char *mark);

/* The words of a line that are left. */
struct stg_words {
    const char *at, *end;
    bool has_failed; /* for the reader: out of memory for a word */
};

/* Returns those of a line that is right. */
static inline struct stg_words stg_line_words(const char *line, size_t n)
{
    struct stg_words words = {.at = line + STG_LINE_HEAD_BYTES, .end = line + n};
    return words;
}

/* Returns the length of the next word; 0: there is none. */
size_t stg_words_next(struct stg_words *words, const char **ret);
/* Returns whether the next word is this one. */
bool stg_words_is(struct stg_words *words, const char *text);
/* Takes a decimal number below 10^19. */
bool stg_words_number(struct stg_words *words, uint64_t *ret);
/* Takes a number of 16 hexadecimal digits. */
bool stg_words_hex(struct stg_words *words, uint64_t *ret);
/* Takes an escaped name of less than `bytes` bytes, none of them 0. */
bool stg_words_name(struct stg_words *words, char *ret, size_t bytes);

#endif
