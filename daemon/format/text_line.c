/* SPDX-License-Identifier: Apache-2.0
 *
 * A line ends at '\n', which is not part of it, nor is one '\r' right before it. The last
 * line needs no '\n'; an empty rest yields nothing. All other bytes are kept.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/format/format.h"
#include "ops/kernels/csv/csv.h"

/* The bytes [scan, fill) of the chunk are read and not yet given out; the newlines in
 * [scan, searched) are those of `lines` from next_line on. What lies before scan may
 * belong to blocks that are out: it is only moved or overwritten while nobody else holds
 * the chunk.
 *
 * While reads are planned ahead, they lie in a row behind fill: in the chunk, then in
 * chunks of their own, each behind some room for the line that is cut by the end of the
 * chunk before. */
struct text_line {
    struct stg_format_config config;
    struct stg_source *source;
    struct stg_chunk *chunk;
    uint64_t scan, searched, fill;
    struct stg_lines lines;
    size_t next_line;
    uint64_t base; /* offset in the file of data[0] */
    uint64_t line; /* number of the next line, from 0 */
    bool at_end;   /* the source has no more */

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
    r->config = *config;
    r->at_end = true;
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
    stg_ahead_cancel(r->config.ahead);
    stg_chunk_unref(r->plan_chunk);
    r->plan_chunk = NULL;
}

static void text_line_destroy(void *reader)
{
    struct text_line *r = reader;
    if (r == NULL)
        return;
    forget_plan(r);
    stg_chunk_unref(r->chunk);
    free(r->lines.at);
    free(r);
}

/* The chunk goes on to be filled: many small files share one. */
static void text_line_start(void *reader, struct stg_source *source)
{
    struct text_line *r = reader;
    forget_plan(r);
    r->source = source;
    r->scan = r->searched = r->fill;
    r->lines.n = r->next_line = 0;
    r->base = 0 - r->fill;
    r->line = 0;
    r->at_end = false;
    r->looks_ahead = r->config.ahead != NULL &&
                     source->storage->size(source, &r->size, NULL) == 0 &&
                     r->size / MIN_READS >= r->config.read_bytes;
}

static void text_line_stop(void *reader)
{
    forget_plan(reader);
}

/* The bytes of a record at [begin, end), without a '\r' before a newline. */
static uint64_t line_end(const struct text_line *r, uint64_t begin, uint64_t newline)
{
    return newline > begin && r->chunk->data[newline - 1] == '\r' ? newline - 1 : newline;
}

static void move_to_front(struct text_line *r, char *data)
{
    uint64_t rest = r->fill - r->scan;
    memmove(data, r->chunk->data + r->scan, rest);
    r->base += r->scan;
    r->searched -= r->scan;
    r->lines.origin -= r->scan;
    r->scan = 0;
    r->fill = rest;
}

static bool is_mine(const struct text_line *r)
{
    return atomic_load_explicit(&r->chunk->refs, memory_order_acquire) == 1;
}

/* Bytes of a chunk for a line that has `rest` bytes so far: twice as much, so that a long
 * line is moved a few times only, but no more than the longest line takes. */
static uint64_t chunk_bytes_for(const struct text_line *r, uint64_t rest)
{
    uint64_t want = 2 * rest;
    uint64_t most = r->config.max_record_bytes + 2 + r->config.read_bytes;
    if (want > most)
        want = most;
    return want > r->config.chunk_bytes ? want : r->config.chunk_bytes;
}

/* Room to read into, in a chunk that may be another one. */
static int make_room(struct text_line *r, struct stg_err *err)
{
    uint64_t want = chunk_bytes_for(r, r->fill - r->scan);
    if (r->chunk != NULL && is_mine(r) && r->chunk->capacity >= want &&
        r->chunk->capacity / 2 <= want) {
        move_to_front(r, r->chunk->data);
        return 0;
    }
    struct stg_chunk *chunk;
    int rc = stg_chunk_create(r->config.quota, want, "a chunk of text_line", &chunk, err);
    if (rc < 0)
        return rc;
    if (r->chunk != NULL)
        move_to_front(r, chunk->data);
    stg_chunk_unref(r->chunk);
    r->chunk = chunk;
    return 0;
}

static int check_stopped(const struct text_line *r, struct stg_err *err)
{
    if (r->config.stopped != NULL &&
        atomic_load_explicit(r->config.stopped, memory_order_relaxed) != 0)
        return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
    return 0;
}

/* Appends what the source has next to the chunk, which has room. */
static int fill(struct text_line *r, struct stg_err *err)
{
    uint64_t bytes = r->chunk->capacity - r->fill;
    if (bytes > r->config.read_bytes)
        bytes = r->config.read_bytes;
    int64_t n = stg_source_read(r->source, r->base + r->fill, r->chunk->data + r->fill,
                                bytes, err);
    if (n < 0)
        return (int)n;
    r->fill += (uint64_t)n;
    r->at_end = n == 0;
    return 0;
}

static bool is_full(const struct text_line *r)
{
    return r->chunk == NULL || r->fill == r->chunk->capacity;
}

/* ---- reading ahead ---- */

/* A chunk for the next read that is planned. Where there is no memory for it, nothing is
 * read ahead. */
static bool plan_chunk(struct text_line *r)
{
    if (r->plan_chunk == NULL) {
        r->plan_chunk = stg_chunk_ref(r->chunk);
        r->plan_fill = r->fill;
        r->plan_offset = r->base + r->fill;
    }
    if (r->plan_fill < r->plan_chunk->capacity)
        return true;
    struct stg_chunk *chunk;
    if (stg_chunk_create(r->config.quota, r->config.chunk_bytes, "", &chunk, NULL) < 0)
        return false;
    stg_chunk_unref(r->plan_chunk);
    r->plan_chunk = chunk;
    r->plan_fill = chunk->capacity / HEAD_SHARE;
    return true;
}

static void plan_ahead(struct text_line *r)
{
    const struct stg_storage *storage = r->source->storage;
    if (!r->looks_ahead || r->chunk == NULL)
        return;
    uint64_t at = r->base + r->fill;
    while (!stg_ahead_is_full(r->config.ahead)) {
        uint64_t offset = r->plan_chunk != NULL ? r->plan_offset : at;
        if (offset >= r->size || offset - at >= MAX_CHUNKS * r->config.chunk_bytes ||
            !plan_chunk(r))
            break;
        uint64_t bytes = r->plan_chunk->capacity - r->plan_fill;
        if (bytes > r->config.read_bytes)
            bytes = r->config.read_bytes;
        if (storage->will_need != NULL)
            storage->will_need(r->source, offset, bytes);
        stg_ahead_plan(r->config.ahead, r->source, offset, r->plan_chunk, r->plan_fill,
                       bytes);
        r->plan_fill += bytes;
        r->plan_offset += bytes;
    }
    if (stg_ahead_is_empty(r->config.ahead))
        forget_plan(r);
}

/* Goes on in the chunk of a read, the line that is cut before it. False: it is longer
 * than the room for it. */
static bool enter_chunk(struct text_line *r, const struct stg_read *read)
{
    uint64_t rest = r->fill - r->scan;
    if (read->chunk == r->chunk)
        return true;
    if (rest > read->at)
        return false;
    memcpy(read->chunk->data + read->at - rest, r->chunk->data + r->scan, rest);
    stg_chunk_unref(r->chunk);
    r->chunk = stg_chunk_ref(read->chunk);
    r->base = read->offset - read->at;
    r->scan = read->at - rest;
    r->searched = r->fill = read->at;
    return true;
}

/* The newlines that the read found are exchanged for ours, all of which are behind. */
static void take_read(struct text_line *r, struct stg_read *read)
{
    struct stg_lines lines = r->lines;
    r->lines = read->lines;
    read->lines = lines;
    r->next_line = 0;
    r->searched = r->fill + r->lines.seen;
    r->fill += (uint64_t)read->n;
}

/* Appends the first read that is planned. A file that turns out to be shorter than it
 * was, or a line longer than the room for it, ends the plan. 1: nothing was appended. */
static int fill_from_plan(struct text_line *r, struct stg_err *err)
{
    struct stg_read *read = stg_ahead_first(r->config.ahead);
    int64_t n = read->n;
    bool whole = n == (int64_t)read->bytes;
    if (!enter_chunk(r, read)) {
        whole = false;
        n = 0;
    } else if (n > 0) {
        take_read(r, read);
    } else if (n < 0 && err != NULL) {
        *err = read->err;
    }
    stg_ahead_drop(r->config.ahead);
    if (!whole || stg_ahead_is_empty(r->config.ahead))
        forget_plan(r);
    if (n < 0)
        return (int)n;
    return n == 0;
}

static int fill_somewhere(struct text_line *r, struct stg_err *err)
{
    int rc = check_stopped(r, err);
    if (rc < 0)
        return rc;
    if (r->plan_chunk != NULL) {
        rc = fill_from_plan(r, err);
        if (rc <= 0)
            return rc;
    }
    rc = is_full(r) ? make_room(r, err) : 0;
    return rc == 0 ? fill(r, err) : rc;
}

/* ---- lines ---- */

/* Position of the next newline, which stays the next one. */
static bool next_newline(struct text_line *r, uint64_t *ret)
{
    while (r->next_line == r->lines.n) {
        if (r->searched == r->fill)
            return false;
        uint64_t left = r->fill - r->searched;
        r->lines.origin = r->searched;
        r->lines.n = stg_csv_kernels()->newlines(
            r->chunk->data + r->searched, left < SEARCH_BYTES ? left : SEARCH_BYTES,
            r->lines.at, STG_AHEAD_LINES, &r->lines.seen);
        r->searched += r->lines.seen;
        r->next_line = 0;
    }
    *ret = r->lines.origin + r->lines.at[r->next_line];
    return true;
}

/* Whether the line [scan, stop) is to be passed over. */
static bool is_blank(const struct text_line *r, uint64_t stop)
{
    uint64_t at = r->scan;
    if (!r->config.skip_blank_lines)
        return false;
    while (at < stop && (r->chunk->data[at] == ' ' || r->chunk->data[at] == '\t'))
        at++;
    return at == stop;
}

/* Records for every newline in the chunk, up to n_max; up to a line that is too long, or
 * to a blank one behind others: records of a call have numbers in a row. */
static int64_t split(struct text_line *r, int64_t n_max, int64_t *begin, int64_t *end)
{
    int64_t n = 0;
    uint64_t newline;
    while (n < n_max && next_newline(r, &newline)) {
        uint64_t stop = line_end(r, r->scan, newline);
        if (stop - r->scan > r->config.max_record_bytes)
            break;
        if (is_blank(r, stop)) {
            if (n > 0)
                break;
            r->scan = newline + 1;
            r->next_line++;
            r->line++;
            continue;
        }
        begin[n] = (int64_t)r->scan;
        end[n++] = (int64_t)stop;
        r->scan = newline + 1;
        r->next_line++;
    }
    return n;
}

/* After split found no record: there is no newline, or it ends a line that is too long.
 * A last byte may yet turn out to be the '\r' of a line end. */
static bool too_long(struct text_line *r)
{
    uint64_t most = r->config.max_record_bytes + (r->at_end ? 0 : 1), newline;
    return r->fill - r->scan > most || next_newline(r, &newline);
}

/* Goes on to behind the next newline or to the end, in the memory of one chunk. Returns
 * the length of the line. */
static int skip_line(struct text_line *r, uint64_t *ret_bytes, struct stg_err *err)
{
    uint64_t start = r->base + r->scan;
    char last = '\0';
    for (;;) {
        const char *data = r->chunk != NULL ? r->chunk->data : NULL;
        uint64_t at;
        if (next_newline(r, &at)) {
            if (at > r->scan)
                last = data[at - 1];
            *ret_bytes = r->base + at - start - (last == '\r');
            r->scan = at + 1;
            r->next_line++;
            r->line++;
            return 0;
        }
        if (r->fill > r->scan)
            last = data[r->fill - 1];
        r->scan = r->fill;
        if (r->at_end) {
            *ret_bytes = r->base + r->fill - start;
            r->line += *ret_bytes > 0;
            return 0;
        }
        if (r->chunk != NULL && r->plan_chunk == NULL && is_mine(r))
            move_to_front(r, r->chunk->data);
        int rc = fill_somewhere(r, err);
        if (rc < 0)
            return rc;
    }
}

static int bad_line(struct text_line *r, struct stg_records *ret, struct stg_err *err)
{
    uint64_t offset = r->base + r->scan, line = r->line, bytes;
    int rc = skip_line(r, &bytes, err);
    if (rc < 0)
        return rc;
    stg_err(&ret->bad, -STAGER_INVALID_ARGUMENT,
            "line %" PRIu64 " (offset %" PRIu64 "): the line has %" PRIu64
            " bytes, more than the %" PRIu64 " that a line may have: it was skipped; %s",
            line + 1, offset, bytes, r->config.max_record_bytes,
            r->config.advice != NULL ? r->config.advice : "");
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int skip_header(struct text_line *r, struct stg_err *err)
{
    while (r->line < r->config.skip_header_lines) {
        uint64_t before = r->line, bytes;
        int rc = skip_line(r, &bytes, err);
        if (rc < 0)
            return rc;
        if (r->line == before)
            break;
    }
    return 0;
}

/* What is left after the last newline is a line, unless it is empty. */
static int64_t last_line(struct text_line *r, int64_t *begin, int64_t *end)
{
    if (r->scan == r->fill || is_blank(r, r->fill))
        return 0;
    begin[0] = (int64_t)r->scan;
    end[0] = (int64_t)r->fill;
    r->scan = r->fill;
    return 1;
}

static int hand_out(struct text_line *r, int64_t n, struct stg_records *ret)
{
    ret->chunk = r->chunk;
    ret->chunk_used = r->fill;
    ret->n = n;
    ret->base = r->base;
    ret->first = r->line;
    r->line += (uint64_t)n;
    plan_ahead(r);
    return STG_FORMAT_RECORDS;
}

/* Starts over in a chunk that nobody else holds while little is left in it: what is read
 * next then lies in memory that is still in the cache. A chunk that was made for a long
 * line is left as soon as what remains fits a usual one. */
static int settle_chunk(struct text_line *r, struct stg_err *err)
{
    if (r->chunk == NULL || r->plan_chunk != NULL)
        return 0;
    uint64_t rest = r->fill - r->scan;
    if (r->chunk->capacity / 2 > chunk_bytes_for(r, rest))
        return make_room(r, err);
    if (rest <= r->scan / 4 && is_mine(r))
        move_to_front(r, r->chunk->data);
    return 0;
}

static int text_line_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                          int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct text_line *r = reader;
    ret->bad.code = 0;
    int rc = same_chunk ? 0 : settle_chunk(r, err);
    if (rc < 0)
        return rc;
    if (r->line < r->config.skip_header_lines) {
        if (same_chunk)
            return STG_FORMAT_FULL;
        rc = skip_header(r, err);
        if (rc < 0)
            return rc;
    }
    for (;;) {
        int64_t n = split(r, n_max, begin, end);
        if (n > 0)
            return hand_out(r, n, ret);
        if (too_long(r))
            return same_chunk ? STG_FORMAT_FULL : bad_line(r, ret, err);
        if (r->at_end) {
            n = last_line(r, begin, end);
            return n > 0 ? hand_out(r, n, ret) : STG_FORMAT_END;
        }
        if (same_chunk && is_full(r))
            return STG_FORMAT_FULL;
        rc = fill_somewhere(r, err);
        if (rc < 0)
            return rc;
    }
}

const struct stg_format stg_format_text_line = {
    .name = "text_line",
    .create = text_line_create,
    .destroy = text_line_destroy,
    .start = text_line_start,
    .stop = text_line_stop,
    .next = text_line_next,
};
