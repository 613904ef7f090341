/* SPDX-License-Identifier: Apache-2.0
 *
 * A line ends at '\n', which is not part of it, nor is one '\r' right before it. The last
 * line needs no '\n'; an empty rest yields nothing. All other bytes are kept.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/format/window.h"
#include "ops/kernels/csv/csv.h"

/* Positions of newlines are offsets in the file: a window moves what is left. Those in
 * [scan, searched) are the ones of `lines` from next_line on.
 *
 * While reads are planned ahead, they lie in a row behind fill: in the chunk, then in
 * chunks of their own, each behind some room for the line that is split by the end of the
 * chunk before. The window asks for nothing meanwhile. */
struct text_line {
    struct stg_window window;
    struct stg_lines lines; /* origin: an offset in the file */
    size_t next_line;
    uint64_t searched; /* an offset in the file */
    uint64_t line;     /* number of the next line, from 0 */

    bool looks_ahead;                /* in this file */
    uint64_t size;                   /* of it, when it was opened */
    struct stg_chunk *plan_chunk;    /* of the last read that is planned; NULL: none is */
    uint64_t plan_fill, plan_offset; /* behind it */
};

/* Files of fewer reads are not read ahead. */
#define MIN_READS 2
/* As many are filled ahead: the rest of the budget is for others. */
#define MAX_CHUNKS 2
/* Of a chunk, for a line that is cut. */
#define HEAD_SHARE 16
/* Looked through for newlines at once. */
#define SEARCH_BYTES ((uint64_t)1 << 30)

static int text_line_create(const struct stg_format_config *config, void **ret)
{
    struct text_line *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_window_init(&r->window, config, "a chunk of text_line");
    r->lines.at = malloc(STG_AHEAD_LINES * sizeof(*r->lines.at));
    if (r->lines.at == NULL) {
        free(r);
        return -STAGER_RESOURCE_EXHAUSTED;
    }
    *ret = r;
    return 0;
}

/* No read is planned any more. */
static void forget_plan(struct text_line *r)
{
    if (r->plan_chunk == NULL)
        return;
    stg_ahead_cancel(r->window.config.ahead);
    stg_chunk_unref(r->plan_chunk);
    r->plan_chunk = NULL;
}

static void text_line_destroy(void *reader)
{
    struct text_line *r = reader;
    if (r == NULL)
        return;
    forget_plan(r);
    free(r->lines.at);
    stg_window_reader_destroy(r);
}

static void text_line_start(void *reader, struct stg_source *source)
{
    struct text_line *r = reader;
    forget_plan(r);
    stg_window_start(&r->window, source);
    r->searched = r->line = 0;
    r->lines.n = r->next_line = 0;
    r->looks_ahead = r->window.config.ahead != NULL &&
                     source->storage->size(source, &r->size, NULL) == 0 &&
                     r->size / MIN_READS >= r->window.config.read_bytes;
}

static void text_line_stop(void *reader)
{
    forget_plan(reader);
}

/* ---- reading ahead ---- */

/* A chunk for the next read that is planned. Where there is no memory for it, nothing is
 * read ahead. */
static bool plan_chunk(struct text_line *r)
{
    struct stg_window *window = &r->window;
    if (r->plan_chunk == NULL) {
        r->plan_chunk = stg_chunk_ref(window->chunk);
        r->plan_fill = window->fill;
        r->plan_offset = window->base + window->fill;
    }
    if (r->plan_fill < r->plan_chunk->capacity)
        return true;
    struct stg_chunk *chunk;
    if (stg_chunk_create(window->config.quota, window->config.chunk_bytes, "", &chunk,
                         NULL) < 0)
        return false;
    stg_chunk_unref(r->plan_chunk);
    r->plan_chunk = chunk;
    r->plan_fill = chunk->capacity / HEAD_SHARE;
    return true;
}

static void plan_ahead(struct text_line *r)
{
    struct stg_window *window = &r->window;
    const struct stg_format_config *config = &window->config;
    if (!r->looks_ahead || window->chunk == NULL)
        return;
    uint64_t at = window->base + window->fill;
    while (!stg_ahead_is_full(config->ahead)) {
        uint64_t offset = r->plan_chunk != NULL ? r->plan_offset : at;
        if (offset >= r->size || offset - at >= MAX_CHUNKS * config->chunk_bytes ||
            !plan_chunk(r))
            break;
        uint64_t bytes = r->plan_chunk->capacity - r->plan_fill;
        if (bytes > config->read_bytes)
            bytes = config->read_bytes;
        if (window->source->storage->will_need != NULL)
            window->source->storage->will_need(window->source, offset, bytes);
        stg_ahead_plan(config->ahead, window->source, offset, r->plan_chunk, r->plan_fill,
                       bytes);
        r->plan_fill += bytes;
        r->plan_offset += bytes;
    }
    if (stg_ahead_is_empty(config->ahead))
        forget_plan(r);
}

/* The newlines that the read found are exchanged for ours, all of which are behind. */
static void take_lines(struct text_line *r, struct stg_read *read)
{
    struct stg_lines lines = r->lines;
    r->lines = read->lines;
    read->lines = lines;
    r->lines.origin = read->offset;
    r->next_line = 0;
    r->searched = read->offset + r->lines.seen;
}

/* Appends the first read that is planned. A file that turns out to be shorter than it
 * was, or a line longer than the room for it, ends the plan. 1: nothing was appended. */
static int fill_from_plan(struct text_line *r, struct stg_err *err)
{
    struct stg_ahead *ahead = r->window.config.ahead;
    struct stg_read *read = stg_ahead_first(ahead);
    int64_t n = read->n;
    bool whole = n == (int64_t)read->bytes;
    if (n < 0 && err != NULL)
        *err = read->err;
    if (n > 0 && stg_window_append(&r->window, read->chunk, read->at, (uint64_t)n))
        take_lines(r, read);
    else if (n > 0)
        n = whole = 0;
    stg_ahead_drop(ahead);
    if (!whole || stg_ahead_is_empty(ahead))
        forget_plan(r);
    return n < 0 ? (int)n : n == 0;
}

/* Appends to the window. As stg_window_need. */
static int append(struct text_line *r, bool same_chunk, struct stg_err *err)
{
    struct stg_window *window = &r->window;
    if (r->plan_chunk != NULL) {
        if (same_chunk && window->fill == window->chunk->capacity)
            return STG_WINDOW_FULL;
        int rc = stg_window_check_stopped(window, err);
        if (rc == 0)
            rc = fill_from_plan(r, err);
        if (rc <= 0)
            return rc;
    }
    return stg_window_need(window, stg_window_left(window) + 1, same_chunk, err);
}

/* With a plan, what is behind fill belongs to the reads. */
static int compact(struct text_line *r, struct stg_err *err)
{
    return r->plan_chunk == NULL ? stg_window_compact(&r->window, err) : 0;
}

/* ---- lines ---- */

/* All newlines that were found are behind: finds some more. False: there are none. */
static bool find_newlines(struct text_line *r)
{
    const struct stg_window *window = &r->window;
    r->next_line = r->lines.n = 0;
    while (r->lines.n == 0) {
        uint64_t left = window->base + window->fill - r->searched;
        if (left == 0)
            return false;
        r->lines.origin = r->searched;
        r->lines.n =
            stg_csv_kernels()->newlines(window->chunk->data + window->fill - left,
                                        left < SEARCH_BYTES ? left : SEARCH_BYTES,
                                        r->lines.at, STG_AHEAD_LINES, &r->lines.seen);
        r->searched += r->lines.seen;
    }
    return true;
}

/* Position in the chunk of the next newline, which stays the next one. */
static inline bool next_newline(struct text_line *r, uint64_t *ret)
{
    if (r->next_line == r->lines.n && !find_newlines(r))
        return false;
    *ret = r->lines.origin - r->window.base + r->lines.at[r->next_line];
    return true;
}

static void go_behind(struct text_line *r, uint64_t newline)
{
    r->window.scan = newline + 1;
    r->next_line++;
}

/* Where the line at scan ends: before a '\r' that is right before its newline. */
static uint64_t line_end(const struct stg_window *window, uint64_t newline)
{
    bool cr = newline > window->scan && window->chunk->data[newline - 1] == '\r';
    return newline - cr;
}

/* Whether the line [scan, stop) is to be passed over. */
static bool is_blank(const struct stg_window *window, uint64_t stop)
{
    uint64_t at = window->scan;
    if (!window->config.skip_blank_lines)
        return false;
    while (at < stop &&
           (window->chunk->data[at] == ' ' || window->chunk->data[at] == '\t'))
        at++;
    return at == stop;
}

/* Records for every newline in the chunk, up to n_max; up to a line that is too long, or
 * to a blank one behind others: records of a call have numbers in a row. */
static int64_t split(struct text_line *r, int64_t n_max, int64_t *begin, int64_t *end)
{
    const struct stg_window *window = &r->window;
    int64_t n = 0;
    uint64_t newline;
    while (n < n_max && next_newline(r, &newline)) {
        uint64_t stop = line_end(window, newline);
        if (stop - window->scan > window->config.max_record_bytes)
            break;
        if (is_blank(window, stop)) {
            if (n > 0)
                break;
            r->line++;
        } else {
            begin[n] = (int64_t)window->scan;
            end[n++] = (int64_t)stop;
        }
        go_behind(r, newline);
    }
    return n;
}

/* After split found no record: there is no newline, or it ends a line that is too long.
 * A last byte may yet turn out to be the '\r' of a line end. */
static bool too_long(struct text_line *r)
{
    const struct stg_window *window = &r->window;
    uint64_t most = window->config.max_record_bytes + (window->at_end ? 0 : 1), newline;
    return stg_window_left(window) > most || next_newline(r, &newline);
}

/* Goes on to behind the next newline or to the end, in the memory of one chunk. Returns
 * the length of the line. */
static int skip_line(struct text_line *r, uint64_t *ret_bytes, struct stg_err *err)
{
    struct stg_window *window = &r->window;
    uint64_t start = stg_window_offset(window), newline = 0;
    char last = '\0';
    int rc = 0;
    while (rc == 0 && !next_newline(r, &newline)) {
        if (stg_window_left(window) > 0)
            last = window->chunk->data[window->fill - 1];
        window->scan = window->fill;
        rc = compact(r, err);
        if (rc == 0)
            rc = append(r, false, err);
    }
    if (rc < 0)
        return rc;
    if (rc == STG_WINDOW_SHORT) {
        *ret_bytes = stg_window_offset(window) - start;
        r->line += *ret_bytes > 0;
        return 0;
    }
    if (newline > window->scan)
        last = window->chunk->data[newline - 1];
    *ret_bytes = window->base + newline - start - (last == '\r');
    go_behind(r, newline);
    r->line++;
    return 0;
}

static int bad_line(struct text_line *r, struct stg_records *ret, struct stg_err *err)
{
    const struct stg_format_config *config = &r->window.config;
    uint64_t offset = stg_window_offset(&r->window), line = r->line, bytes;
    int rc = skip_line(r, &bytes, err);
    if (rc < 0)
        return rc;
    stg_err(&ret->bad, -STAGER_INVALID_ARGUMENT,
            "line %" PRIu64 " (offset %" PRIu64 "): the line has %" PRIu64
            " bytes, more than the limit of %" PRIu64 ": it was skipped; %s",
            line + 1, offset, bytes, config->max_record_bytes,
            config->advice != NULL ? config->advice : "");
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int skip_header(struct text_line *r, struct stg_err *err)
{
    while (r->line < r->window.config.skip_header_lines) {
        uint64_t before = r->line, bytes;
        int rc = skip_line(r, &bytes, err);
        if (rc < 0)
            return rc;
        if (r->line == before)
            break;
    }
    return 0;
}

static int hand_out(struct text_line *r, int64_t n, struct stg_records *ret)
{
    ret->chunk = r->window.chunk;
    ret->chunk_used = r->window.fill;
    ret->n = n;
    ret->base = r->window.base;
    ret->first = r->line;
    r->line += (uint64_t)n;
    plan_ahead(r);
    return STG_FORMAT_RECORDS;
}

/* What is left after the last newline is a line, unless it is empty. */
static int last_line(struct text_line *r, int64_t *begin, int64_t *end,
                     struct stg_records *ret)
{
    struct stg_window *window = &r->window;
    if (stg_window_left(window) == 0 || is_blank(window, window->fill))
        return STG_FORMAT_END;
    begin[0] = (int64_t)window->scan;
    end[0] = (int64_t)window->fill;
    window->scan = window->fill;
    return hand_out(r, 1, ret);
}

static int text_line_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                          int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct text_line *r = reader;
    ret->bad.code = 0;
    if (r->line < r->window.config.skip_header_lines && same_chunk)
        return STG_FORMAT_FULL;
    int rc = same_chunk ? 0 : compact(r, err);
    if (rc == 0)
        rc = skip_header(r, err);
    while (rc >= 0) {
        int64_t n = split(r, n_max, begin, end);
        if (n > 0)
            return hand_out(r, n, ret);
        if (too_long(r))
            return same_chunk ? STG_FORMAT_FULL : bad_line(r, ret, err);
        if (rc == STG_WINDOW_FULL)
            return STG_FORMAT_FULL;
        if (rc == STG_WINDOW_SHORT)
            return last_line(r, begin, end, ret);
        rc = append(r, same_chunk, err);
    }
    return rc;
}

/* ---- places ---- */

/* A blank line that is too long is an error where blank lines are passed over. */
static void text_line_describe(const void *reader, FILE *to)
{
    const struct stg_format_config *config =
        &((const struct text_line *)reader)->window.config;
    fprintf(to, "text_line header=%" PRIu64, config->skip_header_lines);
    if (config->skip_blank_lines)
        fprintf(to, " blank max=%" PRIu64, config->max_record_bytes);
}

static void text_line_seek(void *reader, uint64_t offset, uint64_t record)
{
    struct text_line *r = reader;
    forget_plan(r);
    stg_window_seek(&r->window, offset);
    r->lines.n = r->next_line = 0;
    r->searched = offset;
    r->line = record;
}

const struct stg_format stg_format_text_line = {
    .name = "text_line",
    .create = text_line_create,
    .destroy = text_line_destroy,
    .start = text_line_start,
    .stop = text_line_stop,
    .next = text_line_next,
    .describe = text_line_describe,
    .seek = text_line_seek,
};
