/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/difference.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_LINES 2  /* of each text */
#define SHOWN_BYTES 80 /* of a line */

struct line {
    const char *text;
    size_t bytes;
};

struct reader {
    const char *at, *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Reads the next line that is neither blank nor a comment, without its indentation. */
static bool next_line(struct reader *reader, struct line *ret)
{
    while (reader->at < reader->end) {
        const char *begin = reader->at;
        const char *end = memchr(begin, '\n', (size_t)(reader->end - begin));
        if (end == NULL)
            end = reader->end;
        reader->at = end < reader->end ? end + 1 : end;
        while (begin < end && is_blank(*begin))
            begin++;
        while (begin < end && is_blank(end[-1]))
            end--;
        if (begin < end && *begin != '#') {
            *ret = (struct line){.text = begin, .bytes = (size_t)(end - begin)};
            return true;
        }
    }
    return false;
}

static int compare(const void *a, const void *b)
{
    const struct line *l = a, *r = b;
    int order = memcmp(l->text, r->text, l->bytes < r->bytes ? l->bytes : r->bytes);
    return order != 0 ? order : (l->bytes > r->bytes) - (l->bytes < r->bytes);
}

struct text {
    const char *text;
    size_t bytes;
    struct line *lines; /* sorted */
    size_t n;
};

static bool text_init(struct text *text, const char *from, size_t bytes)
{
    struct reader reader = {.at = from, .end = from + bytes};
    size_t most = 1;
    for (size_t i = 0; i < bytes; i++)
        most += from[i] == '\n';
    *text = (struct text){.text = from, .bytes = bytes};
    text->lines = malloc(most * sizeof(*text->lines));
    if (text->lines == NULL)
        return false;
    while (next_line(&reader, &text->lines[text->n]))
        text->n++;
    qsort(text->lines, text->n, sizeof(*text->lines), compare);
    return true;
}

/* Appends the lines of text that the other one lacks. Returns how many there are. */
static size_t show_lines(const struct text *text, const struct text *other, char *ret,
                         size_t ret_bytes)
{
    struct reader reader = {.at = text->text, .end = text->text + text->bytes};
    struct line line;
    size_t n = 0;
    while (next_line(&reader, &line)) {
        if (bsearch(&line, other->lines, other->n, sizeof(line), compare) != NULL)
            continue;
        size_t used = strlen(ret);
        bool is_long = line.bytes > SHOWN_BYTES;
        if (n < SHOWN_LINES)
            snprintf(ret + used, ret_bytes - used, "%s\"%.*s%s\"", n > 0 ? ", " : "",
                     is_long ? SHOWN_BYTES : (int)line.bytes, line.text,
                     is_long ? "..." : "");
        n++;
    }
    if (n > SHOWN_LINES) {
        size_t used = strlen(ret);
        snprintf(ret + used, ret_bytes - used, " and %zu more", n - SHOWN_LINES);
    }
    return n;
}

static void show(const struct text *before, const struct text *after, char *ret,
                 size_t bytes)
{
    char gone[400] = "", come[400] = "";
    size_t n_gone = show_lines(before, after, gone, sizeof(gone));
    size_t n_come = show_lines(after, before, come, sizeof(come));
    if (n_gone > 0 && n_come > 0)
        snprintf(ret, bytes, "%s becomes %s", gone, come);
    else if (n_gone > 0)
        snprintf(ret, bytes, "%s goes", gone);
    else if (n_come > 0)
        snprintf(ret, bytes, "%s is new", come);
}

void stg_difference(const char *before, size_t before_bytes, const char *after,
                    size_t after_bytes, char *ret, size_t bytes)
{
    struct text from = {0}, to = {0};
    snprintf(ret, bytes, "%s", "");
    if (text_init(&from, before, before_bytes) && text_init(&to, after, after_bytes))
        show(&from, &to, ret, bytes);
    else
        snprintf(ret, bytes, "other lines (not enough memory for a comparison)");
    free(from.lines);
    free(to.lines);
}
