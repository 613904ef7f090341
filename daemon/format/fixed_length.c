/* SPDX-License-Identifier: Apache-2.0
 *
 * A header, records of one length, a footer. Whether what is left is a record or the
 * footer is known once there are as many bytes as both take, so that no size is needed.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "daemon/format/window.h"

struct fixed_length {
    struct stg_window window;
    struct stg_fixed_length_options options;
    uint64_t record; /* number of the next one */
    bool in_header;  /* it is still to be skipped */
    bool lost;       /* nothing more can be had of this file */
};

static int fixed_length_create(const struct stg_format_config *config, void **ret)
{
    struct fixed_length *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_window_init(&r->window, config, "a chunk of fixed_length_record");
    r->options = *(const struct stg_fixed_length_options *)config->options;
    *ret = r;
    return 0;
}

static void fixed_length_start(void *reader, struct stg_source *source)
{
    struct fixed_length *r = reader;
    stg_window_start(&r->window, source);
    r->record = 0;
    r->in_header = r->options.header_bytes > 0;
    r->lost = false;
}

/* `over`: bytes that are too many, or too few (for header and footer alone). */
static int ragged(struct fixed_length *r, struct stg_records *ret)
{
    const struct stg_fixed_length_options *options = &r->options;
    uint64_t offset = stg_window_offset(&r->window);
    uint64_t bytes = r->window.base + r->window.fill;
    stg_err(&ret->bad, -STAGER_DATA_LOSS,
            "record %" PRIu64 " (offset %" PRIu64 "): the file has %" PRIu64
            " bytes, which is not a header of %" PRIu64 ", records of %" PRIu64
            " and a footer of %" PRIu64
            ": it is truncated, or record_bytes, header_bytes or footer_bytes is wrong",
            r->record, offset, bytes, options->header_bytes, options->record_bytes,
            options->footer_bytes);
    r->lost = true;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

/* 0, STG_FORMAT_RECORDS with bad.code, or a negative code. */
static int skip_header(struct fixed_length *r, struct stg_records *ret,
                       struct stg_err *err)
{
    int rc = stg_window_skip(&r->window, r->options.header_bytes, err);
    r->in_header = false;
    return rc == STG_WINDOW_SHORT ? ragged(r, ret) : rc;
}

static int64_t take(struct fixed_length *r, int64_t n_max, int64_t *begin, int64_t *end)
{
    uint64_t left = stg_window_left(&r->window), bytes = r->options.record_bytes;
    uint64_t n =
        left > r->options.footer_bytes ? (left - r->options.footer_bytes) / bytes : 0;
    if (n > (uint64_t)n_max)
        n = (uint64_t)n_max;
    for (uint64_t i = 0; i < n; i++) {
        begin[i] = (int64_t)(r->window.scan + i * bytes);
        end[i] = begin[i] + (int64_t)bytes;
    }
    r->window.scan += n * bytes;
    return (int64_t)n;
}

static int hand_out(struct fixed_length *r, int64_t n, struct stg_records *ret)
{
    ret->chunk = r->window.chunk;
    ret->chunk_used = r->window.fill;
    ret->n = n;
    ret->base = r->window.base;
    ret->first = r->record;
    r->record += (uint64_t)n;
    return STG_FORMAT_RECORDS;
}

static int need_record(struct fixed_length *r, bool same_chunk, struct stg_records *ret,
                       struct stg_err *err)
{
    uint64_t footer = r->options.footer_bytes;
    int rc =
        stg_window_need(&r->window, r->options.record_bytes + footer, same_chunk, err);
    if (rc == STG_WINDOW_THERE || rc < 0)
        return rc;
    if (rc == STG_WINDOW_FULL)
        return STG_FORMAT_FULL;
    if (stg_window_left(&r->window) == footer)
        return STG_FORMAT_END;
    return same_chunk ? STG_FORMAT_FULL : ragged(r, ret);
}

static int fixed_length_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                             int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct fixed_length *r = reader;
    ret->bad.code = 0;
    if (r->lost)
        return STG_FORMAT_END;
    if (r->in_header && same_chunk)
        return STG_FORMAT_FULL;
    int rc = same_chunk ? 0 : stg_window_compact(&r->window, err);
    if (rc == 0 && r->in_header)
        rc = skip_header(r, ret, err);
    while (rc == 0 && ret->bad.code == 0) {
        int64_t n = take(r, n_max, begin, end);
        if (n > 0)
            return hand_out(r, n, ret);
        rc = need_record(r, same_chunk, ret, err);
    }
    return rc;
}

static int fixed_length_skip(void *reader, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    struct fixed_length *r = reader;
    const struct stg_fixed_length_options *options = &r->options;
    struct stg_source *source = r->window.source;
    uint64_t size, rest;
    *ret = 0;
    if (r->lost || source->storage->size(source, &size, NULL) < 0 ||
        size < options->header_bytes ||
        size - options->header_bytes < options->footer_bytes)
        return 0;
    rest = (size - options->header_bytes - options->footer_bytes) / options->record_bytes;
    rest = rest > r->record ? rest - r->record : 0;
    *ret = n < rest ? n : rest;
    if (*ret == 0)
        return 0;
    r->record += *ret;
    r->in_header = false;
    stg_window_seek(&r->window,
                    options->header_bytes + r->record * options->record_bytes);
    return 0;
}

const struct stg_format stg_format_fixed_length = {
    .name = "fixed_length_record",
    .create = fixed_length_create,
    .destroy = stg_window_reader_destroy,
    .start = fixed_length_start,
    .stop = stg_window_reader_stop,
    .next = fixed_length_next,
    .skip = fixed_length_skip,
};
