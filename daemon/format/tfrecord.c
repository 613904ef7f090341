/* SPDX-License-Identifier: Apache-2.0
 *
 * TFRecord: frames of length, record and checksums (crc32c.h). A record that is damaged
 * costs itself; where a length is damaged nothing says where the next record begins, and
 * the rest of the file is lost. Records count from 0, and lie at their frame's offset.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/format/window.h"
#include "daemon/storage/codec/crc32c.h"

struct tfrecord {
    struct stg_window window;
    uint64_t record; /* number of the next one */
    bool lost;       /* nothing more can be had of this file */
};

#define FRAME_BYTES (STG_FRAME_HEAD + STG_FRAME_TAIL) /* beside the record */

static int tfrecord_create(const struct stg_format_config *config, void **ret)
{
    struct tfrecord *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_window_init(&r->window, config, "a chunk of tfrecord");
    *ret = r;
    return 0;
}

static void tfrecord_start(void *reader, struct stg_source *source)
{
    struct tfrecord *r = reader;
    stg_window_start(&r->window, source);
    r->record = 0;
    r->lost = false;
}

/* Returns the length in the header of the next record, which is all there. */
static uint64_t length_of(const struct stg_window *window)
{
    assert(window->chunk != NULL);
    const char *head = window->chunk->data + window->scan;
    uint64_t bytes = 0;
    for (int i = 7; i >= 0; i--)
        bytes = bytes << 8 | (uint8_t)head[i];
    return bytes;
}

static int64_t walk(struct tfrecord *r, int64_t n_max, int64_t *begin, int64_t *end,
                    enum stg_frame_fault *ret_fault)
{
    struct stg_window *window = &r->window;
    *ret_fault = STG_FRAME_NONE;
    if (window->chunk == NULL)
        return 0;
    struct stg_frames frames = {.data = window->chunk->data,
                                .at = window->scan,
                                .fill = window->fill,
                                .max_record_bytes = window->config.max_record_bytes,
                                .n_max = n_max};
    return stg_crc32c()->walk(&frames, begin, end, &window->scan, ret_fault);
}

static int hand_out(struct tfrecord *r, int64_t n, struct stg_records *ret)
{
    ret->chunk = r->window.chunk;
    ret->chunk_used = r->window.fill;
    ret->n = n;
    ret->base = r->window.base - STG_FRAME_HEAD;
    ret->first = r->record;
    r->record += (uint64_t)n;
    return STG_FORMAT_RECORDS;
}

/* ---- what cannot be had ---- */

/* What comes behind it cannot be had either. */
static int lose_rest(struct tfrecord *r, struct stg_records *ret, const char *what)
{
    stg_err(&ret->bad, -STAGER_DATA_LOSS, "record %" PRIu64 " (offset %" PRIu64 "): %s",
            r->record, stg_window_offset(&r->window), what);
    r->lost = true;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int bad_length(struct tfrecord *r, struct stg_records *ret)
{
    return lose_rest(
        r, ret,
        r->record == 0
            ? "its length does not match its checksum: the file is not a TFRecord file, "
              "is compressed (see compression_type) or is damaged; the rest of it is lost"
            : "its length does not match its checksum: the file is damaged; "
              "the rest of it is lost");
}

/* `bytes` is what the header says, when that is there. */
static int truncated(struct tfrecord *r, uint64_t left, uint64_t bytes,
                     struct stg_records *ret)
{
    char what[160];
    if (left < STG_FRAME_HEAD)
        snprintf(what, sizeof(what),
                 "the file ends after %" PRIu64 " of the %d bytes before a record", left,
                 STG_FRAME_HEAD);
    else
        snprintf(what, sizeof(what),
                 "the file ends inside this record of %" PRIu64 " bytes", bytes);
    return lose_rest(r, ret, what);
}

/* The length is good: only this record is lost. */
static int bad_data(struct tfrecord *r, struct stg_records *ret)
{
    uint64_t bytes = length_of(&r->window);
    stg_err(&ret->bad, -STAGER_DATA_LOSS,
            "record %" PRIu64 " (offset %" PRIu64 "): its %" PRIu64
            " bytes do not match their checksum: the record was skipped",
            r->record, stg_window_offset(&r->window), bytes);
    r->window.scan += bytes + FRAME_BYTES;
    r->record++;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int too_long(struct tfrecord *r, struct stg_records *ret, struct stg_err *err)
{
    const struct stg_format_config *config = &r->window.config;
    uint64_t bytes = length_of(&r->window), offset = stg_window_offset(&r->window);
    if (bytes > INT64_MAX - offset - FRAME_BYTES)
        return truncated(r, STG_FRAME_HEAD, bytes, ret);
    stg_err(&ret->bad, -STAGER_INVALID_ARGUMENT,
            "record %" PRIu64 " (offset %" PRIu64 "): the record has %" PRIu64
            " bytes, more than the limit of %" PRIu64 ": it was skipped; %s",
            r->record, offset, bytes, config->max_record_bytes,
            config->advice != NULL ? config->advice : "");
    int rc = stg_window_skip(&r->window, bytes + FRAME_BYTES, err);
    if (rc < 0)
        return rc;
    if (rc == STG_WINDOW_SHORT) {
        r->lost = true;
        stg_err(&ret->bad, -STAGER_DATA_LOSS,
                "record %" PRIu64 " (offset %" PRIu64
                "): the file ends inside this record of %" PRIu64 " bytes",
                r->record, offset, bytes);
    }
    r->record++;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int tell(struct tfrecord *r, enum stg_frame_fault fault, struct stg_records *ret,
                struct stg_err *err)
{
    switch (fault) {
    case STG_FRAME_BAD_LENGTH: return bad_length(r, ret);
    case STG_FRAME_BAD_DATA: return bad_data(r, ret);
    default: return too_long(r, ret, err);
    }
}

/* ---- next ---- */

/* After the walk found no record, and nothing wrong: the next one is not all there. */
static int need_frame(struct tfrecord *r, bool same_chunk, struct stg_records *ret,
                      struct stg_err *err)
{
    uint64_t left = stg_window_left(&r->window), bytes = 0, need = STG_FRAME_HEAD;
    if (left >= STG_FRAME_HEAD) {
        bytes = length_of(&r->window);
        need = bytes + FRAME_BYTES;
    }
    int rc = stg_window_need(&r->window, need, same_chunk, err);
    if (rc == STG_WINDOW_THERE || rc < 0)
        return rc;
    if (rc == STG_WINDOW_FULL)
        return STG_FORMAT_FULL;
    left = stg_window_left(&r->window);
    if (left == 0)
        return STG_FORMAT_END;
    return same_chunk ? STG_FORMAT_FULL : truncated(r, left, bytes, ret);
}

static int tfrecord_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                         int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct tfrecord *r = reader;
    ret->bad.code = 0;
    if (r->lost)
        return STG_FORMAT_END;
    int rc = same_chunk ? 0 : stg_window_compact(&r->window, err);
    while (rc == 0) {
        enum stg_frame_fault fault;
        int64_t n = walk(r, n_max, begin, end, &fault);
        if (n > 0)
            return hand_out(r, n, ret);
        if (fault != STG_FRAME_NONE)
            return same_chunk ? STG_FORMAT_FULL : tell(r, fault, ret, err);
        rc = need_frame(r, same_chunk, ret, err);
        if (ret->bad.code != 0)
            break;
    }
    return rc;
}

static void tfrecord_describe(const void *reader, FILE *to)
{
    fputs("tfrecord", to);
}

static void tfrecord_seek(void *reader, uint64_t offset, uint64_t record)
{
    struct tfrecord *r = reader;
    stg_window_seek(&r->window, offset);
    r->record = record;
}

const struct stg_format stg_format_tfrecord = {
    .name = "tfrecord",
    .create = tfrecord_create,
    .destroy = stg_window_reader_destroy,
    .start = tfrecord_start,
    .stop = stg_window_reader_stop,
    .next = tfrecord_next,
    .describe = tfrecord_describe,
    .seek = tfrecord_seek,
};
