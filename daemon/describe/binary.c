/* SPDX-License-Identifier: Apache-2.0
 *
 * npy, tar and images, by their headers.
 */
#include <stdlib.h>
#include <string.h>

#include "core/npy_header.h"
#include "daemon/describe/records.h"
#include "daemon/format/tar_member.h"

#define TAR_BYTES ((uint64_t)16 << 20) /* of the first sample, that are looked at */

static bool begins(const struct stg_described_file *file, const char *magic, size_t n)
{
    return file->head_bytes >= n && memcmp(file->head->data, magic, n) == 0;
}

/* ---- npy ---- */

bool stg_described_is_npy(const struct stg_described_file *file)
{
    return begins(file, "\x93NUMPY", 6);
}

int stg_describe_npy(struct stg_described_file *file, struct stg_err *err)
{
    struct stg_npy_header header;
    const char *at = file->head->data;
    uint64_t bytes = stg_npy_header_bytes(at, file->head_bytes);
    if (bytes == 0 || bytes > file->head_bytes)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "header (offset 0): it is damaged, or has more than %u bytes",
                       STG_DESCRIBE_HEAD_BYTES);
    int rc = stg_npy_header_parse(at, file->head_bytes, &header, err);
    if (rc == 0 && header.ndim == 0)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "it is a scalar, without rows");
    if (rc < 0)
        return rc;
    struct stg_file_column *column = stg_describing_add(file->to, "value", 5);
    if (column != NULL) {
        column->type = stg_describing_text(file->to, "%s%s", stg_dtype_name(header.dtype),
                                           header.swapped ? ", big-endian" : "");
        column->dtype = header.dtype;
        column->ndim = header.ndim - 1;
        memcpy(column->shape, header.shape + 1,
               (size_t)column->ndim * sizeof(column->shape[0]));
    }
    file->to->schema.format = "npy";
    file->to->schema.has_rows = true;
    file->to->schema.n_rows = (uint64_t)header.shape[0];
    return 0;
}

/* ---- images ---- */

bool stg_described_is_image(const struct stg_described_file *file)
{
    return begins(file, "\xff\xd8\xff", 3) || begins(file, "\x89PNG\r\n\x1a\n", 8);
}

int stg_describe_image(struct stg_described_file *file, struct stg_err *err)
{
    struct stg_file_column *column = stg_describing_add(file->to, "bytes", 5);
    if (column != NULL) {
        column->type = begins(file, "\xff\xd8\xff", 3) ? "JPEG" : "PNG";
        column->dtype = STAGER_STRING;
    }
    file->to->schema.format = "read_file";
    return 0;
}

/* ---- tar ---- */

bool stg_described_is_tar(const struct stg_described_file *file)
{
    struct stg_tar_member *member = malloc(sizeof(*member));
    bool is_tar = false;
    if (member != NULL && file->head_bytes >= STG_TAR_BLOCK) {
        enum stg_tar_rc rc = stg_tar_member(file->head->data, file->head_bytes, member);
        is_tar =
            memcmp(file->head->data + 257, "ustar", 5) == 0 ||
            ((rc == STG_TAR_MEMBER || rc == STG_TAR_NEED) && file->head->data[0] != 0);
    }
    free(member);
    return is_tar;
}

struct sample {
    struct stg_chunk *chunk; /* the first bytes of the archive */
    uint64_t n;
    char key[STG_TAR_MAX_NAME + 1];
    bool has_key, is_done;
    struct stg_tar_member member;
};

/* Fills the chunk up to `bytes`. Returns false at the end of the archive. */
static int need(struct stg_described_file *file, struct sample *sample, uint64_t bytes,
                bool *ret_there, struct stg_err *err)
{
    while (sample->n < bytes && sample->n < TAR_BYTES) {
        uint64_t want = bytes < TAR_BYTES ? bytes - sample->n : TAR_BYTES - sample->n;
        int64_t got = stg_source_read(file->source, sample->n,
                                      sample->chunk->data + sample->n, want, err);
        if (got < 0) {
            file->is_storage = !file->source->spoiled;
            return (int)got;
        }
        if (got == 0)
            break;
        sample->n += (uint64_t)got;
    }
    *ret_there = sample->n >= bytes;
    return 0;
}

/* Takes a part of the first sample, as the format tar names it. */
static void take_member(struct stg_described_file *file, struct sample *sample)
{
    struct stg_tar_member *member = &sample->member;
    const char *slash = strrchr(member->name, '/');
    const char *base = slash != NULL ? slash + 1 : member->name;
    const char *dot = strchr(base, '.');
    if (!member->regular || dot == NULL || dot == base || dot[1] == '\0')
        return;
    size_t n = (size_t)(dot - member->name);
    if (sample->has_key &&
        (strncmp(sample->key, member->name, n) != 0 || sample->key[n] != '\0')) {
        sample->is_done = true;
        return;
    }
    memcpy(sample->key, member->name, n);
    sample->key[n] = '\0';
    sample->has_key = true;
    struct stg_file_column *column =
        stg_describing_add(file->to, dot + 1, strlen(dot + 1));
    if (column != NULL) {
        column->type = "a file";
        column->dtype = STAGER_STRING;
        column->bytes = column->plain_bytes = member->bytes;
    }
}

static int walk(struct stg_described_file *file, struct sample *sample,
                struct stg_err *err)
{
    uint64_t at = 0, wanted = STG_TAR_BLOCK;
    while (!sample->is_done) {
        bool is_there = false;
        int rc = need(file, sample, at + wanted, &is_there, err);
        if (rc < 0 || !is_there)
            return rc;
        enum stg_tar_rc got =
            stg_tar_member(sample->chunk->data + at, sample->n - at, &sample->member);
        if (got == STG_TAR_END)
            return 0;
        if (got == STG_TAR_BAD)
            return stg_err(err, -STAGER_DATA_LOSS, "offset %llu: %s",
                           (unsigned long long)at, sample->member.what);
        if (got == STG_TAR_NEED) {
            uint64_t more = sample->member.end;
            wanted = more > wanted ? more : wanted + STG_TAR_BLOCK;
            continue;
        }
        take_member(file, sample);
        if (sample->member.end > TAR_BYTES - at)
            return 0;
        at += sample->member.end;
        wanted = STG_TAR_BLOCK;
    }
    return 0;
}

int stg_describe_tar(struct stg_described_file *file, struct stg_err *err)
{
    struct sample *sample = calloc(1, sizeof(*sample));
    if (sample == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    file->is_storage = true;
    int rc = stg_described_rewind(file, err);
    if (rc == 0) {
        file->is_storage = false;
        rc = stg_chunk_create(file->quota, TAR_BYTES, "the first sample", &sample->chunk,
                              err);
    }
    if (rc == 0)
        rc = walk(file, sample, err);
    if (rc == 0 && !sample->has_key)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT,
                     "its first %llu MiB have no sample: files with a dot in their names",
                     (unsigned long long)(TAR_BYTES >> 20));
    file->to->schema.format = "tar";
    file->to->schema.note = "of the first sample";
    stg_chunk_unref(sample->chunk);
    free(sample);
    return rc;
}
