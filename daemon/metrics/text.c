/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/param.h"

#define FIRST_BYTES 65536

/* ---- the buffer ---- */

static void flush(struct stg_metrics_text *text)
{
    size_t done = 0;
    ssize_t n = 1;
    while (n > 0 && done < text->n) {
        n = write(text->fd, text->data + done, text->n - done);
        done += n > 0 ? (size_t)n : 0;
    }
    text->has_failed = text->has_failed || done < text->n;
    text->n = 0;
}

/* Returns room for n bytes, or NULL. */
static char *reserve(struct stg_metrics_text *text, size_t n)
{
    size_t capacity = text->capacity > 0 ? text->capacity : FIRST_BYTES;
    if (text->has_file && text->n + n > FIRST_BYTES)
        flush(text);
    if (text->has_failed)
        return NULL;
    while (capacity - text->n < n)
        capacity *= 2;
    if (capacity > text->capacity) {
        char *data = realloc(text->data, capacity);
        text->has_failed = data == NULL;
        if (data == NULL)
            return NULL;
        text->data = data;
        text->capacity = capacity;
    }
    return text->data + text->n;
}

static char *add(char *to, const char *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

static void add_all(struct stg_metrics_text *text, const char *from, size_t n)
{
    char *to = reserve(text, n);
    if (to != NULL)
        text->n = (size_t)(add(to, from, n) - text->data);
}

static void add_text(struct stg_metrics_text *text, const char *from)
{
    add_all(text, from, strlen(from));
}

/* ---- numbers ---- */

/* Writes at least `digits` digits; returns their end. */
static char *add_number(char *to, uint64_t value, unsigned digits)
{
    char reverse[24];
    unsigned n = 0;
    while (value > 0 || n < digits) {
        reverse[n++] = (char)('0' + value % 10);
        value /= 10;
    }
    while (n > 0)
        *to++ = reverse[--n];
    return to;
}

char *stg_metrics_seconds(uint64_t ns, char *buf)
{
    char *at = add_number(buf, ns / 1000000000u, 1);
    *at++ = '.';
    at = add_number(at, ns % 1000000000u, 9);
    while (at[-1] == '0' && at[-2] != '.')
        at--;
    *at = '\0';
    return buf;
}

/* ---- labels ---- */

/* Writes one character of a value, escaped, to ret (4 bytes); returns how many. */
static size_t escape(const char *at, size_t n, char *ret)
{
    const char *escaped = *at == '\\' ? "\\\\" : *at == '"' ? "\\\"" : "\\n";
    if (n == 0) {
        ret[0] = '?';
        return 1;
    }
    if (*at != '\\' && *at != '"' && *at != '\n') {
        memcpy(ret, at, n);
        return n;
    }
    memcpy(ret, escaped, 2);
    return 2;
}

char *stg_metrics_label(const char *name, const char *value, char *buf, size_t bytes)
{
    size_t n = strlen(name);
    char *to = add(add(buf, name, n), "=\"", 2);
    const char *end = buf + bytes - 2; /* for the quote and the NUL */
    while (*value != '\0') {
        char one[4];
        size_t width = stg_utf8_bytes(value, strnlen(value, 4));
        size_t n_escaped = escape(value, width, one);
        if (to + n_escaped > end)
            break;
        to = add(to, one, n_escaped);
        value += width > 0 ? width : 1;
    }
    add(to, "\"", 2);
    return buf;
}

/* ---- families and samples ---- */

/* OpenMetrics calls the family of a counter, or an info, by the name without suffix. */
static size_t family_bytes(const struct stg_metrics_text *text, const char *name,
                           enum stg_metric_type type)
{
    size_t n = strlen(name);
    if (text->is_open && type == STG_METRIC_COUNTER)
        n -= strlen("_total");
    if (text->is_open && type == STG_METRIC_INFO)
        n -= strlen("_info");
    return n;
}

void stg_metrics_family(struct stg_metrics_text *text, const char *name,
                        enum stg_metric_type type, const char *help)
{
    static const char *const types[] = {"counter", "gauge", "histogram", "info"};
    bool is_plain_info = type == STG_METRIC_INFO && !text->is_open;
    size_t n = family_bytes(text, name, type);
    text->name = name;
    text->n_name = strlen(name);
    add_text(text, "# HELP ");
    add_all(text, name, n);
    add_text(text, " ");
    add_text(text, help);
    add_text(text, "\n# TYPE ");
    add_all(text, name, n);
    add_text(text, " ");
    add_text(text, is_plain_info ? "gauge" : types[type]);
    add_text(text, "\n");
}

/* suffix: of the name. */
static void put(struct stg_metrics_text *text, const char *suffix, const char *labels,
                const char *more, const char *value, size_t n_value)
{
    size_t n_suffix = strlen(suffix), n_labels = strlen(labels), n_more = strlen(more);
    char *to = reserve(text, text->n_name + n_suffix + n_labels + n_more + n_value + 5);
    if (to == NULL)
        return;
    to = add(add(to, text->name, text->n_name), suffix, n_suffix);
    if (n_labels + n_more > 0) {
        *to++ = '{';
        to = add(to, labels, n_labels);
        if (n_labels > 0 && n_more > 0)
            *to++ = ',';
        to = add(to, more, n_more);
        *to++ = '}';
    }
    *to++ = ' ';
    to = add(to, value, n_value);
    *to++ = '\n';
    text->n = (size_t)(to - text->data);
}

static void put_number(struct stg_metrics_text *text, const char *suffix,
                       const char *labels, const char *more, uint64_t value)
{
    char number[STG_METRICS_NUMBER_BYTES];
    size_t n = (size_t)(add_number(number, value, 1) - number);
    put(text, suffix, labels, more, number, n);
}

static void put_seconds(struct stg_metrics_text *text, const char *suffix,
                        const char *labels, const char *more, uint64_t ns)
{
    char number[STG_METRICS_NUMBER_BYTES];
    stg_metrics_seconds(ns, number);
    put(text, suffix, labels, more, number, strlen(number));
}

void stg_metrics_put(struct stg_metrics_text *text, const char *labels, const char *more,
                     uint64_t value)
{
    put_number(text, "", labels, more, value);
}

void stg_metrics_put_ns(struct stg_metrics_text *text, const char *labels,
                        const char *more, uint64_t ns)
{
    put_seconds(text, "", labels, more, ns);
}

/* Most lines of a text are of histograms: the line before is copied, up to its bound, and
 * of the same number as before also the number. */
void stg_metrics_put_histogram(struct stg_metrics_text *text, const char *labels,
                               const char *more, char (*bounds)[STG_METRICS_BOUND_BYTES],
                               size_t n_bounds, const uint64_t *counts, uint64_t sum_ns)
{
    size_t n_labels = strlen(labels), n_more = strlen(more);
    size_t n_start = text->n_name + strlen("_bucket{") + n_labels + n_more + strlen(",,");
    size_t line_bytes = n_start + STG_METRICS_BOUND_BYTES + STG_METRICS_NUMBER_BYTES;
    const char *start = reserve(text, (n_bounds + 1) * line_bytes);
    if (start == NULL)
        return;
    char *to = add(add(text->data + text->n, text->name, text->n_name), "_bucket{", 8);
    to = add(add(to, labels, n_labels), ",", 1);
    to = add(add(to, more, n_more), ",", 1);
    char number[STG_METRICS_NUMBER_BYTES];
    uint64_t n = 0;
    size_t n_number = (size_t)(add_number(number, n, 1) - number);
    for (size_t i = 0; i <= n_bounds; i++) {
        const char *bound = i < n_bounds ? bounds[i] : "le=\"+Inf\"";
        if (i > 0)
            to = add(to, start, n_start);
        to = add(add(to, bound, strlen(bound)), "} ", 2);
        n += counts[i];
        if (counts[i] > 0)
            n_number = (size_t)(add_number(number, n, 1) - number);
        to = add(to, number, n_number);
        *to++ = '\n';
    }
    text->n = (size_t)(to - text->data);
    put_seconds(text, "_sum", labels, more, sum_ns);
    put_number(text, "_count", labels, more, n);
}

void stg_metrics_end(struct stg_metrics_text *text)
{
    if (text->is_open)
        add_text(text, "# EOF\n");
    if (text->has_file)
        flush(text);
}
