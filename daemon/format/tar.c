/* SPDX-License-Identifier: Apache-2.0
 *
 * A tar archive as a WebDataset: members that follow one another and share a name up to
 * the first dot behind the last slash are a sample; what follows that dot is the name of
 * a part. A record is a sample: its name, then the parts that were asked for. Samples
 * count from 0, and lie at their first header's offset.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/format/tar_member.h"
#include "daemon/format/window.h"

enum fault { NONE, TWICE, TOO_LONG };

/* Of the sample that is being collected, the bytes [scan, scan + at) of the window were
 * looked at. Positions count from scan. */
struct tar {
    struct stg_window window;
    uint32_t n_parts;
    const char **parts;
    bool *optional;
    struct stg_tar_member member;
    uint64_t at;
    bool has_sample;
    char key[STG_TAR_MAX_NAME];
    uint64_t key_bytes;
    uint64_t offset; /* in the file, of the sample */
    uint64_t *data, *bytes;
    bool *has_part;
    enum fault fault;
    uint32_t fault_part;
    uint64_t record; /* number of the next sample */
    bool lost;       /* nothing more can be had of this file */
};

static void tar_destroy(void *reader)
{
    struct tar *r = reader;
    if (r == NULL)
        return;
    stg_window_finish(&r->window);
    free(r->parts);
    free(r->optional);
    free(r->data);
    free(r->bytes);
    free(r->has_part);
    free(r);
}

static int tar_create(const struct stg_format_config *config, void **ret)
{
    const struct stg_tar_options *options = config->options;
    struct tar *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    r->n_parts = options->n_parts;
    r->parts = calloc(r->n_parts, sizeof(*r->parts));
    r->optional = calloc(r->n_parts, sizeof(*r->optional));
    r->data = calloc(r->n_parts, sizeof(*r->data));
    r->bytes = calloc(r->n_parts, sizeof(*r->bytes));
    r->has_part = calloc(r->n_parts, sizeof(*r->has_part));
    if (r->parts == NULL || r->optional == NULL || r->data == NULL || r->bytes == NULL ||
        r->has_part == NULL) {
        tar_destroy(r);
        return -STAGER_RESOURCE_EXHAUSTED;
    }
    memcpy(r->parts, options->parts, r->n_parts * sizeof(*r->parts));
    for (uint32_t i = 0; options->optional != NULL && i < r->n_parts; i++)
        r->optional[i] = options->optional[i];
    stg_window_init(&r->window, config, "a chunk of tar");
    *ret = r;
    return 0;
}

static void tar_start(void *reader, struct stg_source *source)
{
    struct tar *r = reader;
    stg_window_start(&r->window, source);
    r->at = r->record = 0;
    r->has_sample = r->lost = false;
}

/* ---- names ---- */

/* "a/b/0001.seg.png" is part "seg.png" of sample "a/b/0001". What has no dot, or begins
 * with one, is no part. */
static bool split_name(const struct stg_tar_member *member, uint64_t *ret_key_bytes)
{
    const char *slash = strrchr(member->name, '/');
    const char *base = slash != NULL ? slash + 1 : member->name;
    const char *dot = strchr(base, '.');
    if (!member->regular || dot == NULL || dot == base)
        return false;
    *ret_key_bytes = (uint64_t)(dot - member->name);
    return true;
}

/* n_parts when it is none of those asked for. */
static uint32_t find_part(const struct tar *r, const char *name)
{
    uint32_t i = 0;
    while (i < r->n_parts && strcasecmp(r->parts[i], name) != 0)
        i++;
    return i;
}

/* ---- a sample ---- */

static void begin_sample(struct tar *r, uint64_t offset, uint64_t key_bytes)
{
    r->has_sample = true;
    r->fault = NONE;
    r->offset = offset;
    r->key_bytes = key_bytes;
    memcpy(r->key, r->member.name, key_bytes);
    memset(r->has_part, 0, r->n_parts * sizeof(*r->has_part));
}

static void add_part(struct tar *r, uint64_t key_bytes)
{
    uint32_t part = find_part(r, r->member.name + key_bytes + 1);
    if (part == r->n_parts)
        return;
    if (r->has_part[part] && r->fault == NONE) {
        r->fault = TWICE;
        r->fault_part = part;
    }
    r->has_part[part] = true;
    r->data[part] = r->at + r->member.data;
    r->bytes[part] = r->member.bytes;
}

/* The first part that the sample must have and lacks; n_parts when there is none. */
static uint32_t missing_part(const struct tar *r)
{
    uint32_t i = 0;
    while (i < r->n_parts && (r->has_part[i] || r->optional[i]))
        i++;
    return i;
}

static bool is_complete(const struct tar *r)
{
    return missing_part(r) == r->n_parts && r->fault == NONE;
}

/* What was looked at is behind us; a file may lack what fills its last block. */
static void take(struct tar *r)
{
    uint64_t left = stg_window_left(&r->window);
    r->window.scan += r->at < left ? r->at : left;
    r->at = 0;
    r->has_sample = false;
    r->record++;
}

static int tell_sample(struct tar *r, struct stg_records *ret)
{
    const struct stg_format_config *config = &r->window.config;
    struct stg_err *bad = &ret->bad;
    if (r->fault == TOO_LONG)
        stg_err(bad, -STAGER_INVALID_ARGUMENT,
                "the sample takes more than the limit of %" PRIu64
                " bytes: it was skipped; %s",
                config->max_record_bytes, config->advice != NULL ? config->advice : "");
    else if (r->fault == TWICE)
        stg_err(bad, -STAGER_INVALID_ARGUMENT,
                "the sample has two parts \"%s\": it was skipped",
                r->parts[r->fault_part]);
    else
        stg_err(bad, -STAGER_INVALID_ARGUMENT,
                "the sample has no part \"%s\": it was skipped",
                r->parts[missing_part(r)]);
    stg_err_prefix(bad, bad->code, "record %" PRIu64 " (offset %" PRIu64 "), \"%.*s\"",
                   r->record, r->offset, (int)(r->key_bytes < 200 ? r->key_bytes : 200),
                   r->key);
    take(r);
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static void put_sample(struct tar *r, int64_t *begin, int64_t *end)
{
    int64_t scan = (int64_t)r->window.scan;
    begin[0] = scan;
    end[0] = scan + (int64_t)r->key_bytes;
    for (uint32_t i = 0; i < r->n_parts; i++) {
        begin[i + 1] = scan + (r->has_part[i] ? (int64_t)r->data[i] : 0);
        end[i + 1] = begin[i + 1] + (r->has_part[i] ? (int64_t)r->bytes[i] : 0);
    }
    take(r);
}

/* ---- members ---- */

enum found {
    GOING_ON = 0,
    SAMPLE,   /* there is one, whole */
    SPOILT,   /* there is one, to be reported */
    NOTHING,  /* the archive has no more */
    DAMAGED,  /* it is damaged or truncated behind what was looked at: member.what */
    ELSEWHERE /* the next sample is not in this chunk */
};

static int found_of(int rc)
{
    if (rc < 0)
        return rc;
    return rc == STG_WINDOW_THERE  ? GOING_ON
           : rc == STG_WINDOW_FULL ? ELSEWHERE
                                   : DAMAGED;
}

/* A member that is held in no memory: before a sample, or of one that is too long. */
static int pass_over(struct tar *r, bool same_chunk, struct stg_err *err)
{
    uint64_t bytes = r->at + r->member.end;
    if (same_chunk && bytes > stg_window_left(&r->window))
        return STG_WINDOW_FULL;
    int rc = stg_window_skip(&r->window, bytes, err);
    if (rc == STG_WINDOW_THERE)
        r->at = 0;
    return rc;
}

static int lengthen(struct tar *r, uint64_t key_bytes, bool same_chunk,
                    struct stg_err *err)
{
    uint64_t offset = stg_window_offset(&r->window);
    int rc = pass_over(r, same_chunk, err);
    if (rc == STG_WINDOW_THERE && !r->has_sample)
        begin_sample(r, offset, key_bytes);
    if (rc == STG_WINDOW_THERE)
        r->fault = TOO_LONG;
    return rc;
}

/* A member that belongs to the sample, or lies inside of it. The sample's name goes to
 * where its first header was, once that is not needed any more. */
static int take_member(struct tar *r, bool is_part, uint64_t key_bytes, bool same_chunk,
                       struct stg_err *err)
{
    uint64_t need = r->at + r->member.data + r->member.bytes;
    if (need > r->window.config.max_record_bytes ||
        (r->has_sample && r->fault == TOO_LONG))
        return lengthen(r, key_bytes, same_chunk, err);
    int rc = stg_window_need(&r->window, need, same_chunk, err);
    if (rc != STG_WINDOW_THERE)
        return rc;
    if (!r->has_sample) {
        begin_sample(r, stg_window_offset(&r->window), key_bytes);
        memcpy(r->window.chunk->data + r->window.scan, r->key, key_bytes);
    }
    if (is_part)
        add_part(r, key_bytes);
    r->at += r->member.end;
    return rc;
}

static int end_of_sample(const struct tar *r)
{
    return is_complete(r) ? SAMPLE : SPOILT;
}

static int need_header(struct tar *r, bool same_chunk, struct stg_err *err)
{
    int rc = stg_window_need(&r->window, r->at + r->member.end, same_chunk, err);
    r->member.what = stg_window_left(&r->window) <= r->at
                         ? "the file ends without the end-of-archive mark"
                         : "the file ends inside a header";
    return rc;
}

/* One member further: an enum found, or a negative code. */
static int one_member(struct tar *r, bool same_chunk, struct stg_err *err)
{
    uint64_t left = stg_window_left(&r->window), key_bytes = 0;
    uint64_t n = left > r->at ? left - r->at : 0;
    enum stg_tar_rc rc =
        stg_tar_member(stg_window_at(&r->window) + (left - n), n, &r->member);
    if (rc == STG_TAR_BAD)
        return DAMAGED;
    if (rc == STG_TAR_END)
        return r->has_sample ? end_of_sample(r) : NOTHING;
    if (rc == STG_TAR_NEED)
        return found_of(need_header(r, same_chunk, err));
    r->member.what = "the file ends inside a member";
    bool is_part = split_name(&r->member, &key_bytes);
    if (!is_part && !r->has_sample)
        return found_of(pass_over(r, same_chunk, err));
    if (is_part && r->has_sample &&
        (key_bytes != r->key_bytes || memcmp(r->member.name, r->key, key_bytes) != 0))
        return end_of_sample(r);
    return found_of(take_member(r, is_part, key_bytes, same_chunk, err));
}

/* A sample that is whole is had, also when what comes behind it is damaged. */
static int find_sample(struct tar *r, bool same_chunk, struct stg_err *err)
{
    int found;
    do
        found = one_member(r, same_chunk, err);
    while (found == GOING_ON);
    return found == DAMAGED && r->has_sample && is_complete(r) ? SAMPLE : found;
}

/* ---- next ---- */

static int tell_damage(struct tar *r, struct stg_records *ret)
{
    stg_err(&ret->bad, -STAGER_DATA_LOSS,
            "record %" PRIu64 " (offset %" PRIu64
            "): %s: it is truncated, damaged or not a tar archive; the rest of the file "
            "is lost",
            r->record, stg_window_offset(&r->window) + r->at, r->member.what);
    r->lost = true;
    ret->n = 0;
    return STG_FORMAT_RECORDS;
}

static int without_sample(struct tar *r, int found, bool same_chunk,
                          struct stg_records *ret)
{
    if (found < 0)
        return found;
    if (found == NOTHING) {
        r->lost = true;
        return STG_FORMAT_END;
    }
    if (same_chunk || found == ELSEWHERE)
        return STG_FORMAT_FULL;
    return found == SPOILT ? tell_sample(r, ret) : tell_damage(r, ret);
}

static int tar_next(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                    int64_t *end, struct stg_records *ret, struct stg_err *err)
{
    struct tar *r = reader;
    int64_t n = 0, n_spans = r->n_parts + 1;
    ret->bad.code = 0;
    if (r->lost)
        return STG_FORMAT_END;
    int rc = same_chunk ? 0 : stg_window_compact(&r->window, err);
    if (rc < 0)
        return rc;
    ret->first = r->record;
    while (n < n_max) {
        int found = find_sample(r, same_chunk || n > 0, err);
        if (found != SAMPLE && n == 0)
            return without_sample(r, found, same_chunk, ret);
        if (found != SAMPLE)
            break;
        put_sample(r, begin + n * n_spans, end + n * n_spans);
        n++;
    }
    ret->chunk = r->window.chunk;
    ret->chunk_used = r->window.fill;
    ret->n = n;
    ret->base = r->window.base;
    return STG_FORMAT_RECORDS;
}

/* Of an archive that is truncated, the parts and the limit decide what its last sample
 * is. */
static void tar_describe(const void *reader, FILE *to)
{
    const struct tar *r = reader;
    fprintf(to, "tar max=%" PRIu64, r->window.config.max_record_bytes);
    for (uint32_t i = 0; i < r->n_parts; i++)
        fprintf(to, " %s%s", r->parts[i], r->optional[i] ? "?" : "");
}

static void tar_seek(void *reader, uint64_t offset, uint64_t record)
{
    struct tar *r = reader;
    stg_window_seek(&r->window, offset);
    r->at = 0;
    r->has_sample = false;
    r->record = record;
}

const struct stg_format stg_format_tar = {
    .name = "tar",
    .create = tar_create,
    .destroy = tar_destroy,
    .start = tar_start,
    .stop = stg_window_reader_stop,
    .next = tar_next,
    .describe = tar_describe,
    .seek = tar_seek,
};
