/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/difference.h"

#include <stdbool.h>
#include <stdio.h>
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

/* The next line that says something, without its indentation. */
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

static bool has_line(const char *text, size_t bytes, const struct line *line)
{
    struct reader reader = {.at = text, .end = text + bytes};
    struct line other;
    while (next_line(&reader, &other)) {
        if (other.bytes == line->bytes &&
            memcmp(other.text, line->text, line->bytes) == 0)
            return true;
    }
    return false;
}

/* Appends the lines of text that the other one lacks. Returns how many there are. */
static size_t show_lines(const char *text, size_t bytes, const char *other,
                         size_t other_bytes, char *ret, size_t ret_bytes)
{
    struct reader reader = {.at = text, .end = text + bytes};
    struct line line;
    size_t n = 0;
    while (next_line(&reader, &line)) {
        if (has_line(other, other_bytes, &line))
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

void stg_difference(const char *before, size_t before_bytes, const char *after,
                    size_t after_bytes, char *ret, size_t bytes)
{
    char gone[400] = "", come[400] = "";
    size_t n_gone =
        show_lines(before, before_bytes, after, after_bytes, gone, sizeof(gone));
    size_t n_come =
        show_lines(after, after_bytes, before, before_bytes, come, sizeof(come));
    if (n_gone > 0 && n_come > 0)
        snprintf(ret, bytes, "%s becomes %s", gone, come);
    else if (n_gone > 0)
        snprintf(ret, bytes, "%s goes", gone);
    else if (n_come > 0)
        snprintf(ret, bytes, "%s is new", come);
    else
        snprintf(ret, bytes, "%s", "");
}
