/* SPDX-License-Identifier: Apache-2.0
 *
 * A file is one record, all of it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/format/window.h"

struct read_file {
    struct stg_window window;
    bool knows_size; /* when it was opened */
    uint64_t size;
    bool done;
};

static int read_file_create(const struct stg_format_config *config, void **ret)
{
    struct read_file *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_window_init(&r->window, config, "a chunk of read_file");
    *ret = r;
    return 0;
}

static void read_file_start(void *reader, struct stg_source *source)
{
    struct read_file *r = reader;
    stg_window_start(&r->window, source);
    r->knows_size = source->storage->size(source, &r->size, NULL) == 0;
    r->done = false;
}

static int too_long(struct read_file *r, struct stg_records *ret)
{
    const struct stg_format_config *config = &r->window.config;
    char size[32] = "";
    if (r->knows_size)
        snprintf(size, sizeof(size), "%" PRIu64 " bytes, ", r->size);
    stg_err(&ret->bad, -STAGER_INVALID_ARGUMENT,
            "the file has %smore than the limit of %" PRIu64 " bytes: it was skipped; %s",
            size, config->max_record_bytes, config->advice != NULL ? config->advice : "");
    r->done = true;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

/* Of a file whose size is known no more is asked for, so that the chunk is no larger. */
static int read_all(struct read_file *r, bool same_chunk, struct stg_err *err)
{
    uint64_t most = r->window.config.max_record_bytes;
    /* Also an empty record is somewhere. */
    uint64_t need = r->knows_size && r->size > 0 ? r->size : 1;
    int rc = stg_window_need(&r->window, need, same_chunk, err);
    while (rc == STG_WINDOW_THERE && !r->knows_size &&
           stg_window_left(&r->window) <= most)
        rc =
            stg_window_need(&r->window, stg_window_left(&r->window) + 1, same_chunk, err);
    return rc;
}

static int read_file_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                          int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct read_file *r = reader;
    uint64_t most = r->window.config.max_record_bytes;
    ret->bad.code = 0;
    if (r->done)
        return STG_FORMAT_END;
    if (r->knows_size && r->size > most)
        return same_chunk ? STG_FORMAT_FULL : too_long(r, ret);
    int rc = same_chunk ? 0 : stg_window_compact(&r->window, err);
    if (rc == 0)
        rc = read_all(r, same_chunk, err);
    if (rc < 0 || rc == STG_WINDOW_FULL)
        return rc < 0 ? rc : STG_FORMAT_FULL;
    uint64_t left = stg_window_left(&r->window);
    if (r->knows_size && left > r->size)
        left = r->size;
    if (left > most)
        return same_chunk ? STG_FORMAT_FULL : too_long(r, ret);
    begin[0] = (int64_t)r->window.scan;
    end[0] = begin[0] + (int64_t)left;
    r->window.scan += left;
    r->done = true;
    ret->chunk = r->window.chunk;
    ret->chunk_used = r->window.fill;
    ret->n = 1;
    ret->base = r->window.base;
    ret->first = 0;
    return STG_FORMAT_RECORDS;
}

static int read_file_skip(void *reader, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    struct read_file *r = reader;
    *ret = n > 0 && !r->done;
    r->done |= *ret;
    return 0;
}

const struct stg_format stg_format_read_file = {
    .name = "read_file",
    .create = read_file_create,
    .destroy = stg_window_reader_destroy,
    .start = read_file_start,
    .stop = stg_window_reader_stop,
    .next = read_file_next,
    .skip = read_file_skip,
    .is_one_record = true,
};
