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

/* The bytes [scan, fill) of the chunk are read and not yet given out; there is no newline
 * in [scan, searched). What lies before scan may belong to blocks that are out: it is
 * only moved or overwritten while nobody else holds the chunk. */
struct text_line {
    struct stg_format_config config;
    struct stg_source *source;
    struct stg_chunk *chunk;
    uint64_t scan, searched, fill;
    uint64_t base; /* offset in the file of data[0] */
    uint64_t line; /* number of the next line, from 0 */
    bool at_end;   /* the source has no more */
};

static int text_line_create(const struct stg_format_config *config, void **ret)
{
    struct text_line *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    r->config = *config;
    r->at_end = true;
    *ret = r;
    return 0;
}

static void text_line_destroy(void *reader)
{
    struct text_line *r = reader;
    if (r == NULL)
        return;
    stg_chunk_unref(r->chunk);
    free(r);
}

/* The chunk goes on to be filled: many small files share one. */
static void text_line_start(void *reader, struct stg_source *source)
{
    struct text_line *r = reader;
    r->source = source;
    r->scan = r->searched = r->fill;
    r->base = 0 - r->fill;
    r->line = 0;
    r->at_end = false;
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

/* Appends what the source has next to the chunk, which has room. */
static int fill(struct text_line *r, struct stg_err *err)
{
    if (r->config.stopped != NULL &&
        atomic_load_explicit(r->config.stopped, memory_order_relaxed) != 0)
        return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
    uint64_t bytes = r->chunk->capacity - r->fill;
    if (bytes > r->config.read_bytes)
        bytes = r->config.read_bytes;
    int64_t n = r->source->storage->read(r->source, r->base + r->fill,
                                         r->chunk->data + r->fill, bytes, err);
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

static int fill_somewhere(struct text_line *r, struct stg_err *err)
{
    int rc = is_full(r) ? make_room(r, err) : 0;
    return rc == 0 ? fill(r, err) : rc;
}

/* Records for every newline in the chunk, up to n_max. */
static int64_t split(struct text_line *r, int64_t n_max, int64_t *begin, int64_t *end)
{
    if (r->chunk == NULL)
        return 0;
    int64_t n = 0;
    const char *data = r->chunk->data;
    uint64_t scan = r->scan, from = r->searched;
    while (n < n_max) {
        const char *newline = memchr(data + from, '\n', r->fill - from);
        if (newline == NULL) {
            from = r->fill;
            break;
        }
        uint64_t at = (uint64_t)(newline - data);
        uint64_t stop = line_end(r, scan, at);
        if (stop - scan > r->config.max_record_bytes) {
            from = at;
            break;
        }
        begin[n] = (int64_t)scan;
        end[n++] = (int64_t)stop;
        scan = from = at + 1;
    }
    r->scan = scan;
    r->searched = from;
    return n;
}

/* After split found no record: there is no newline, or it is at `searched`. A last byte
 * may yet turn out to be the '\r' of a line end. */
static bool too_long(const struct text_line *r)
{
    uint64_t most = r->config.max_record_bytes + (r->at_end ? 0 : 1);
    return r->fill - r->scan > most || r->searched < r->fill;
}

/* Goes on to behind the next newline or to the end, in the memory of one chunk. Returns
 * the length of the line. */
static int skip_line(struct text_line *r, uint64_t *ret_bytes, struct stg_err *err)
{
    uint64_t start = r->base + r->scan;
    char last = '\0';
    for (;;) {
        const char *data = r->chunk != NULL ? r->chunk->data : NULL;
        const char *newline =
            data != NULL ? memchr(data + r->searched, '\n', r->fill - r->searched) : NULL;
        if (newline != NULL) {
            uint64_t at = (uint64_t)(newline - data);
            if (at > r->scan)
                last = data[at - 1];
            *ret_bytes = r->base + at - start - (last == '\r');
            r->scan = r->searched = at + 1;
            r->line++;
            return 0;
        }
        if (r->fill > r->scan)
            last = data[r->fill - 1];
        r->scan = r->searched = r->fill;
        if (r->at_end) {
            *ret_bytes = r->base + r->fill - start;
            r->line += *ret_bytes > 0;
            return 0;
        }
        if (r->chunk != NULL && is_mine(r))
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
    if (r->scan == r->fill)
        return 0;
    begin[0] = (int64_t)r->scan;
    end[0] = (int64_t)r->fill;
    r->scan = r->searched = r->fill;
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
    return STG_FORMAT_RECORDS;
}

/* Starts over in a chunk that nobody else holds while little is left in it: what is read
 * next then lies in memory that is still in the cache. A chunk that was made for a long
 * line is left as soon as what remains fits a usual one. */
static int settle_chunk(struct text_line *r, struct stg_err *err)
{
    if (r->chunk == NULL)
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
    .next = text_line_next,
};
