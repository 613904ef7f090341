/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a NumPy array, along its first axis: views of the file's bytes, dense.
 * Rows count from 0, and lie at their first byte's offset.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/npy_header.h"
#include "daemon/format/window.h"

struct npy {
    struct stg_window window;
    struct stg_npy_options options;
    bool in_header;
    struct stg_npy_header header;
    struct stg_component row; /* of this file */
    uint64_t row_bytes;
    uint64_t record, n_rows; /* the next one, of how many */
    bool lost;               /* nothing more can be had of this file */
};

static int npy_create(const struct stg_format_config *config, void **ret)
{
    struct npy *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_window_init(&r->window, config, "a chunk of npy");
    r->options = *(const struct stg_npy_options *)config->options;
    *ret = r;
    return 0;
}

static void npy_start(void *reader, struct stg_source *source)
{
    struct npy *r = reader;
    stg_window_start(&r->window, source);
    r->in_header = true;
    r->record = 0;
    r->lost = false;
}

/* ---- what cannot be had ---- */

/* ret->bad is filled. */
static int lost(struct npy *r, struct stg_records *ret)
{
    r->lost = true;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int lose(struct npy *r, int code, const char *what, struct stg_records *ret)
{
    stg_err(&ret->bad, code, "%s", what);
    return lost(r, ret);
}

static int truncated(struct npy *r, struct stg_records *ret)
{
    stg_err(&ret->bad, -STAGER_DATA_LOSS,
            "record %" PRIu64 " (offset %" PRIu64
            "): the file ends inside this row, one of %" PRIu64,
            r->record, stg_window_offset(&r->window), r->n_rows);
    return lost(r, ret);
}

/* ---- the header ---- */

static int check_row(struct npy *r, struct stg_err *err)
{
    const struct stg_component *want = &r->options.row;
    const struct stg_npy_header *header = &r->header;
    char have_text[128], want_text[128];
    bool same = header->ndim == want->ndim + 1;
    for (int i = 0; same && i < want->ndim; i++)
        same = want->shape[i] < 0 || want->shape[i] == header->shape[i + 1];
    if (same && header->dtype == want->dtype)
        return 0;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT, "its rows are %s of shape %s, not %s of shape %s",
        stg_dtype_name(header->dtype),
        stg_shape_text(header->shape + 1, header->ndim - 1, have_text, sizeof(have_text)),
        stg_dtype_name(want->dtype),
        stg_shape_text(want->shape, want->ndim, want_text, sizeof(want_text)));
}

static int set_row(struct npy *r, struct stg_err *err)
{
    const struct stg_npy_header *header = &r->header;
    r->row = r->options.row;
    r->n_rows = (uint64_t)header->shape[0];
    r->row_bytes = stg_dtype_bytes(header->dtype);
    for (int i = 0; i < r->row.ndim; i++) {
        r->row.shape[i] = header->shape[i + 1];
        if (__builtin_mul_overflow(r->row_bytes, (uint64_t)header->shape[i + 1],
                                   &r->row_bytes))
            r->row_bytes = UINT64_MAX;
    }
    if (r->row_bytes == 0 && r->n_rows > 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "its rows are empty");
    uint64_t most = r->window.config.max_record_bytes;
    const char *advice = r->window.config.advice;
    if (r->row_bytes > most)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "its rows have %" PRIu64 " bytes, more than the limit of %" PRIu64
                       "; %s",
                       r->row_bytes, most, advice != NULL ? advice : "");
    return 0;
}

static int parse_header(struct npy *r, uint64_t bytes, struct stg_err *err)
{
    int rc = stg_npy_header_parse(stg_window_at(&r->window), bytes, &r->header, err);
    if (rc < 0)
        return rc;
    rc = check_row(r, err);
    if (rc == 0)
        rc = set_row(r, err);
    return rc == 0 ? 0 : stg_err_prefix(err, rc, "header (offset 0)");
}

/* 0; bad.code is set when the file is not what it should be; or a negative code. */
static int need_header(struct npy *r, uint64_t *ret_bytes, struct stg_records *ret,
                       struct stg_err *err)
{
    for (uint64_t bytes = 1;;) {
        int rc = stg_window_need(&r->window, bytes, false, err);
        if (rc < 0)
            return rc;
        if (rc == STG_WINDOW_SHORT)
            return lose(r, -STAGER_DATA_LOSS,
                        "header (offset 0): the file ends inside of it", ret);
        bytes =
            stg_npy_header_bytes(stg_window_at(&r->window), stg_window_left(&r->window));
        if (bytes == 0)
            return lose(r, -STAGER_DATA_LOSS,
                        "header (offset 0): it is not a NumPy file of version 1, 2 or 3, "
                        "or it is compressed (see compression_type)",
                        ret);
        if (bytes > STG_NPY_MAX_HEADER)
            return lose(r, -STAGER_DATA_LOSS,
                        "header (offset 0): it has more than 65536 bytes", ret);
        if (bytes <= stg_window_left(&r->window)) {
            *ret_bytes = bytes;
            return 0;
        }
    }
}

static int read_header(struct npy *r, struct stg_records *ret, struct stg_err *err)
{
    uint64_t bytes = 0;
    int rc = need_header(r, &bytes, ret, err);
    if (rc < 0 || ret->bad.code != 0)
        return rc;
    rc = parse_header(r, bytes, &ret->bad);
    if (rc < 0)
        return lost(r, ret);
    ret->bad.code = 0;
    r->window.scan += bytes;
    r->in_header = false;
    return stg_window_align(&r->window, err);
}

/* ---- rows ---- */

static void swap_bytes(char *data, uint64_t n, unsigned bytes)
{
    for (char *at = data; at < data + n; at += bytes) {
        for (unsigned i = 0; i < bytes / 2; i++) {
            char byte = at[i];
            at[i] = at[bytes - 1 - i];
            at[bytes - 1 - i] = byte;
        }
    }
}

/* In place: no reader has seen these bytes yet. A boolean is 0 or 1, whatever the file
 * says.
 */
static void make_native(struct npy *r, char *data, uint64_t n)
{
    if (r->header.swapped)
        swap_bytes(data, n, stg_dtype_bytes(r->header.dtype));
    if (r->header.dtype == STAGER_BOOL) {
        for (uint64_t i = 0; i < n; i++)
            data[i] = data[i] != 0;
    }
}

static int hand_out(struct npy *r, int64_t n_max, int64_t *begin, int64_t *end,
                    struct stg_records *ret)
{
    uint64_t n = stg_window_left(&r->window) / r->row_bytes;
    if (n > (uint64_t)n_max)
        n = (uint64_t)n_max;
    if (n > r->n_rows - r->record)
        n = r->n_rows - r->record;
    for (uint64_t i = 0; i < n; i++) {
        begin[i] = (int64_t)(r->window.scan + i * r->row_bytes);
        end[i] = begin[i] + (int64_t)r->row_bytes;
    }
    make_native(r, r->window.chunk->data + r->window.scan, n * r->row_bytes);
    ret->chunk = r->window.chunk;
    ret->chunk_used = r->window.fill;
    ret->n = (int64_t)n;
    ret->base = r->window.base;
    ret->first = r->record;
    ret->row = &r->row;
    r->window.scan += n * r->row_bytes;
    r->record += n;
    return STG_FORMAT_RECORDS;
}

/* Behind the last row. */
static int finish(struct npy *r, bool same_chunk, struct stg_records *ret,
                  struct stg_err *err)
{
    int rc = stg_window_need(&r->window, 1, same_chunk, err);
    if (rc < 0 || rc == STG_WINDOW_SHORT)
        return rc < 0 ? rc : STG_FORMAT_END;
    if (same_chunk)
        return STG_FORMAT_FULL;
    stg_err(&ret->bad, -STAGER_DATA_LOSS,
            "record %" PRIu64 " (offset %" PRIu64
            "): the file continues after its last row: it holds several arrays, which is "
            "not supported, or its header is damaged",
            r->record, stg_window_offset(&r->window));
    return lost(r, ret);
}

/* Rows of two files are not in one block: they need not follow one another in memory. */
static int npy_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                    int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct npy *r = reader;
    ret->bad.code = 0;
    if (r->lost)
        return STG_FORMAT_END;
    if (r->in_header && same_chunk)
        return STG_FORMAT_FULL;
    int rc = same_chunk ? 0 : stg_window_compact(&r->window, err);
    if (rc == 0 && r->in_header)
        rc = read_header(r, ret, err);
    if (rc < 0 || ret->bad.code != 0)
        return rc;
    if (r->record == r->n_rows)
        return finish(r, same_chunk, ret, err);
    rc = stg_window_need(&r->window, r->row_bytes, same_chunk, err);
    if (rc == STG_WINDOW_THERE)
        return hand_out(r, n_max, begin, end, ret);
    if (rc < 0)
        return rc;
    return same_chunk || rc == STG_WINDOW_FULL ? STG_FORMAT_FULL : truncated(r, ret);
}

/* Rows begin at a multiple of 64 in memory, or follow one that does. */
static int npy_skip(void *reader, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    struct npy *r = reader;
    struct stg_window *window = &r->window;
    uint64_t size, offset = stg_window_offset(window), rest;
    *ret = 0;
    if (r->lost || r->in_header || r->record == r->n_rows ||
        window->source->storage->size(window->source, &size, NULL) < 0 || size < offset)
        return 0;
    rest = (size - offset) / r->row_bytes;
    if (rest > r->n_rows - r->record)
        rest = r->n_rows - r->record;
    *ret = n < rest ? n : rest;
    r->record += *ret;
    stg_window_seek(window, offset + *ret * r->row_bytes);
    return stg_window_left(window) == 0 ? stg_window_align(window, err) : 0;
}

const struct stg_format stg_format_npy = {
    .name = "npy",
    .create = npy_create,
    .destroy = stg_window_reader_destroy,
    .start = npy_start,
    .stop = stg_window_reader_stop,
    .next = npy_next,
    .skip = npy_skip,
};
