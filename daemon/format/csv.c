/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV, as far as where records end: at '\n', '\r\n' or '\r' outside of quotes. A quote
 * opens a field only at its start, as in TensorFlow's CsvDataset. Fields are taken apart
 * by decode_csv.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/format/csv_header.h"
#include "daemon/format/window.h"
#include "ops/base/hash.h"

enum state {
    AT_START,     /* of a field */
    IN_FIELD,     /* without quotes, or after what closed them */
    IN_QUOTES,    /* of a field that began with one */
    BEHIND_QUOTE, /* it closes the field, or is the first of two */
};

/* Of the next record the first `seen` bytes were looked at, and left us in `state`. */
struct csv {
    struct stg_window window;
    struct stg_csv_reader_options options;
    uint64_t seen;
    enum state state;
    uint64_t record; /* number of the next one */
    bool in_header;  /* it is still to be left out */
    bool lost;       /* nothing more can be had of this file */

    /* With names. The header is read before a seek. */
    struct stg_csv_header header;
    bool needs_header; /* of this file */
    bool has_goal;     /* of a seek */
    uint64_t goal_offset, goal_record;
};

static int csv_create(const struct stg_format_config *config, void **ret)
{
    struct csv *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_window_init(&r->window, config, "a chunk of csv");
    r->options = *(const struct stg_csv_reader_options *)config->options;
    *ret = r;
    return 0;
}

static void csv_start(void *reader, struct stg_source *source)
{
    struct csv *r = reader;
    stg_window_start(&r->window, source);
    r->seen = r->record = 0;
    r->state = AT_START;
    r->in_header = r->options.header && r->options.n_names == 0;
    r->needs_header = r->options.n_names > 0;
    r->has_goal = false;
    r->lost = false;
}

/* ---- where a record ends ---- */

/* What [p, p + n) has to be looked at byte by byte for. */
static bool is_odd(const struct csv *r, const char *p, uint64_t n)
{
    return (r->options.quotes && memchr(p, '"', n) != NULL) || memchr(p, '\r', n) != NULL;
}

static enum state step(const struct csv *r, char c)
{
    bool quote = c == '"' && r->options.quotes;
    switch (r->state) {
    case IN_QUOTES: return quote ? BEHIND_QUOTE : IN_QUOTES;
    case BEHIND_QUOTE:
        if (quote)
            return IN_QUOTES;
        break;
    case AT_START:
        if (quote)
            return IN_QUOTES;
        break;
    case IN_FIELD: break;
    }
    return c == r->options.delim ? AT_START : IN_FIELD;
}

struct record_end {
    uint64_t bytes; /* of the record */
    uint64_t next;  /* and of what ends it, too */
};

/* Byte by byte from `seen` on, up to n bytes of the record. */
static bool find_slowly(struct csv *r, const char *data, uint64_t n,
                        struct record_end *ret)
{
    uint64_t left = stg_window_left(&r->window);
    for (; r->seen < n; r->seen++) {
        char c = data[r->seen];
        if (r->state == IN_QUOTES) {
            const char *quote = memchr(data + r->seen, '"', n - r->seen);
            if (quote == NULL) {
                r->seen = n;
                return false;
            }
            r->seen = (uint64_t)(quote - data);
            c = '"';
        } else if (c == '\n') {
            *ret = (struct record_end){r->seen, r->seen + 1};
            return true;
        } else if (c == '\r') {
            /* Only the next byte says whether it belongs to this end. */
            if (r->seen + 1 == left && !r->window.at_end)
                return false;
            bool both = r->seen + 1 < left && data[r->seen + 1] == '\n';
            *ret = (struct record_end){r->seen, r->seen + 1 + both};
            return true;
        }
        r->state = step(r, c);
    }
    return false;
}

/* The end of the next record, if it is in the window. */
static bool find_end(struct csv *r, struct record_end *ret)
{
    const char *data = stg_window_at(&r->window);
    uint64_t left = stg_window_left(&r->window);
    while (r->seen < left) {
        const char *at = data + r->seen;
        const char *newline = memchr(at, '\n', left - r->seen);
        uint64_t n = newline != NULL ? (uint64_t)(newline - data) : left;
        bool quoted = r->state == IN_QUOTES || r->state == BEHIND_QUOTE;
        if (!quoted && newline != NULL) {
            uint64_t bytes = n - r->seen;
            bool cr = bytes > 0 && newline[-1] == '\r';
            if (!is_odd(r, at, bytes - cr)) {
                *ret = (struct record_end){n - cr, n + 1};
                return true;
            }
        }
        /* With the newline itself, which may lie in quotes. */
        if (find_slowly(r, data, newline != NULL ? n + 1 : n, ret))
            return true;
        if (r->seen + 1 == left && data[r->seen] == '\r')
            return false;
    }
    return false;
}

static void take_record(struct csv *r, const struct record_end *at)
{
    r->window.scan += at->next;
    r->seen = 0;
    r->state = AT_START;
}

/* Up to n_max records, up to one that is too long. */
static int64_t split(struct csv *r, int64_t n_max, int64_t *begin, int64_t *end,
                     bool *ret_too_long)
{
    int64_t n = 0;
    struct record_end at;
    *ret_too_long = false;
    while (n < n_max && find_end(r, &at)) {
        *ret_too_long = at.bytes > r->window.config.max_record_bytes;
        if (*ret_too_long)
            break;
        begin[n] = (int64_t)r->window.scan;
        end[n] = begin[n] + (int64_t)at.bytes;
        take_record(r, &at);
        if (r->in_header) {
            r->in_header = false;
            r->record++;
        } else {
            n++;
        }
    }
    return n;
}

/* ---- what cannot be had ---- */

static int tell(struct csv *r, int code, uint64_t offset, const char *what,
                struct stg_records *ret)
{
    stg_err(&ret->bad, code, "record %" PRIu64 " (offset %" PRIu64 "): %s", r->record,
            offset, what);
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int unclosed(struct csv *r, uint64_t offset, struct stg_records *ret)
{
    r->lost = true;
    return tell(r, -STAGER_INVALID_ARGUMENT, offset,
                "the file ends inside a quoted field: a quote is not closed, or belongs "
                "to the data (see use_quote_delim)",
                ret);
}

/* Goes on to the end of a record in the memory of one chunk. */
static int skip_record(struct csv *r, uint64_t *ret_bytes, struct stg_err *err)
{
    struct record_end at;
    *ret_bytes = 0;
    while (!find_end(r, &at)) {
        if (r->window.at_end) {
            *ret_bytes += stg_window_left(&r->window);
            r->window.scan = r->window.fill;
            r->seen = 0;
            return 0;
        }
        *ret_bytes += r->seen;
        r->window.scan += r->seen;
        r->seen = 0;
        int rc = stg_window_need(&r->window, stg_window_left(&r->window) + 1, false, err);
        if (rc < 0)
            return rc;
    }
    *ret_bytes += at.bytes;
    take_record(r, &at);
    return 0;
}

static int too_long(struct csv *r, struct stg_records *ret, struct stg_err *err)
{
    const struct stg_format_config *config = &r->window.config;
    uint64_t offset = stg_window_offset(&r->window), bytes;
    int rc = skip_record(r, &bytes, err);
    if (rc < 0)
        return rc;
    bool inside = r->window.at_end && r->state == IN_QUOTES;
    stg_err(&ret->bad, -STAGER_INVALID_ARGUMENT,
            "record %" PRIu64 " (offset %" PRIu64 "): the record has %" PRIu64
            " bytes%s, more than the limit of %" PRIu64 ": it was skipped; %s",
            r->record, offset, bytes,
            inside ? ", the last of them inside a quoted field" : "",
            config->max_record_bytes, config->advice != NULL ? config->advice : "");
    r->state = AT_START;
    r->record++;
    r->in_header = false;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

/* ---- a header with names ---- */

enum header_end {
    HEADER_ENDS = 0,
    HEADER_MISSING, /* the file is empty */
    HEADER_OPEN,    /* the file ends inside quotes */
    HEADER_LONG
};

/* Returns an enum header_end, or a negative code of the source. */
static int find_header(struct csv *r, struct record_end *ret, struct stg_err *err)
{
    uint64_t most = r->window.config.max_record_bytes;
    while (!find_end(r, ret)) {
        uint64_t left = stg_window_left(&r->window);
        if (left > most + 1)
            return HEADER_LONG;
        int rc = stg_window_need(&r->window, left + 1, false, err);
        if (rc < 0)
            return rc;
        if (rc == STG_WINDOW_SHORT && !find_end(r, ret)) {
            *ret = (struct record_end){left, left};
            if (left == 0 || r->state == IN_QUOTES)
                return left == 0 ? HEADER_MISSING : HEADER_OPEN;
            break;
        }
        if (rc == STG_WINDOW_SHORT)
            break;
    }
    return ret->bytes > most ? HEADER_LONG : HEADER_ENDS;
}

static int read_header(struct csv *r, const struct record_end *end, struct stg_err *err)
{
    return stg_csv_header_read(&r->header, r->options.names, r->options.n_names,
                               r->options.delim, r->options.quotes,
                               stg_window_at(&r->window), end->bytes, err);
}

/* Nothing can be had of a file with this header. */
static int lose(struct csv *r, int code, const char *what, struct stg_records *ret)
{
    r->lost = true;
    return tell(r, code, stg_window_offset(&r->window), what, ret);
}

/* Reads the header, and goes where a seek wanted. ret->bad is set if nothing can be had
 * of the file. */
static int pass_header(struct csv *r, struct stg_records *ret, struct stg_err *err)
{
    struct record_end end;
    struct stg_err why = {0};
    int rc = find_header(r, &end, err);
    if (rc == HEADER_MISSING)
        return lose(r, -STAGER_INVALID_ARGUMENT,
                    "the header is missing: the file is empty", ret);
    if (rc == HEADER_OPEN)
        return unclosed(r, stg_window_offset(&r->window), ret);
    if (rc == HEADER_LONG)
        return lose(r, -STAGER_INVALID_ARGUMENT,
                    "the header has more bytes than max_record_bytes", ret);
    if (rc < 0)
        return rc;
    rc = read_header(r, &end, &why);
    if (rc == -STAGER_RESOURCE_EXHAUSTED) {
        *err = why;
        return rc;
    }
    if (rc < 0)
        return lose(r, rc, why.text, ret);
    take_record(r, &end);
    r->record++;
    r->needs_header = false;
    if (r->has_goal) {
        stg_window_seek(&r->window, r->goal_offset);
        r->record = r->goal_record;
        r->has_goal = false;
    }
    return 0;
}

const struct stg_csv_header *stg_csv_header_of(const void *reader)
{
    return &((const struct csv *)reader)->header;
}

/* ---- next ---- */

static int hand_out(struct csv *r, int64_t n, struct stg_records *ret)
{
    ret->chunk = r->window.chunk;
    ret->chunk_used = r->window.fill;
    ret->n = n;
    ret->base = r->window.base;
    ret->first = r->record;
    r->record += (uint64_t)n;
    return STG_FORMAT_RECORDS;
}

/* The file ends: what is left is a record, unless it is empty. */
static int last_record(struct csv *r, int64_t *begin, int64_t *end,
                       struct stg_records *ret)
{
    uint64_t left = stg_window_left(&r->window), offset = stg_window_offset(&r->window);
    if (r->in_header && left == 0)
        return lose(r, -STAGER_INVALID_ARGUMENT,
                    "the header is missing: the file is empty", ret);
    if (left == 0)
        return STG_FORMAT_END;
    if (r->state == IN_QUOTES)
        return unclosed(r, offset, ret);
    begin[0] = (int64_t)r->window.scan;
    end[0] = (int64_t)r->window.fill;
    take_record(r, &(struct record_end){.next = left});
    return r->in_header ? STG_FORMAT_END : hand_out(r, 1, ret);
}

static int csv_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                    int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct csv *r = reader;
    ret->bad.code = 0;
    if (r->lost)
        return STG_FORMAT_END;
    if (r->needs_header && same_chunk)
        return STG_FORMAT_FULL;
    int rc = same_chunk ? 0 : stg_window_compact(&r->window, err);
    if (rc == 0 && r->needs_header)
        rc = pass_header(r, ret, err);
    if (ret->bad.code != 0)
        return rc;
    while (rc == 0) {
        bool long_one;
        int64_t n = split(r, n_max, begin, end, &long_one);
        if (n > 0)
            return hand_out(r, n, ret);
        if (long_one || r->seen > r->window.config.max_record_bytes + 1)
            return same_chunk ? STG_FORMAT_FULL : too_long(r, ret, err);
        rc =
            stg_window_need(&r->window, stg_window_left(&r->window) + 1, same_chunk, err);
        if (rc != STG_WINDOW_SHORT)
            continue;
        rc = 0;
        n = split(r, n_max, begin, end, &long_one);
        if (n > 0)
            return hand_out(r, n, ret);
        if (same_chunk && (stg_window_left(&r->window) > 0 || r->in_header))
            return STG_FORMAT_FULL;
        if (long_one || stg_window_left(&r->window) > r->window.config.max_record_bytes)
            return too_long(r, ret, err);
        return last_record(r, begin, end, ret);
    }
    return rc == STG_WINDOW_FULL ? STG_FORMAT_FULL : rc;
}

/* A header that is too long is an error. */
static void csv_describe(const void *reader, FILE *to)
{
    const struct csv *r = reader;
    fprintf(to, "csv delim=%d quotes=%d header=%d", r->options.delim, r->options.quotes,
            r->options.header);
    if (r->options.header)
        fprintf(to, " max=%" PRIu64, r->window.config.max_record_bytes);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->options.n_names; i++) {
        const struct stg_csv_name *name = &r->options.names[i];
        sum = stg_fingerprint64_join(2 * sum + name->may_lack, name->name, name->bytes);
    }
    if (r->options.n_names > 0)
        fprintf(to, " names=%016" PRIx64, sum);
}

static void csv_seek(void *reader, uint64_t offset, uint64_t record)
{
    struct csv *r = reader;
    if (r->needs_header) {
        r->has_goal = true;
        r->goal_offset = offset;
        r->goal_record = record;
        return;
    }
    stg_window_seek(&r->window, offset);
    r->seen = 0;
    r->state = AT_START;
    r->record = record;
    r->in_header = false;
}

static void csv_destroy(void *reader)
{
    struct csv *r = reader;
    if (r != NULL)
        stg_csv_header_finish(&r->header);
    stg_window_reader_destroy(reader);
}

const struct stg_format stg_format_csv = {
    .name = "csv",
    .create = csv_create,
    .destroy = csv_destroy,
    .start = csv_start,
    .stop = stg_window_reader_stop,
    .next = csv_next,
    .describe = csv_describe,
    .seek = csv_seek,
};
