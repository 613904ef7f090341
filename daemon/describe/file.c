/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/describe/file.h"

#include <string.h>

#include "daemon/storage/codec/decompress.h"

static const char *compression_of(const char *head, uint64_t n)
{
    static const struct {
        const char *name, *magic;
        size_t bytes;
    } known[] = {{"gzip", "\x1f\x8b\x08", 3},
                 {"zstd", "\x28\xb5\x2f\xfd", 4},
                 {"lz4", "\x04\x22\x4d\x18", 4},
                 {"snappy", "\xff\x06\x00\x00", 4}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (n >= known[i].bytes && memcmp(head, known[i].magic, known[i].bytes) == 0)
            return known[i].name;
    }
    return NULL;
}

static void close_source(struct stg_described_file *file)
{
    if (file->source != NULL)
        file->source->storage->close(file->source);
    file->source = NULL;
}

/* Fills the head. Returns its bytes, or a negative code. */
static int64_t read_head(struct stg_described_file *file, struct stg_err *err)
{
    uint64_t n = 0;
    while (n < STG_DESCRIBE_HEAD_BYTES) {
        int64_t got = stg_source_read(file->source, n, file->head->data + n,
                                      STG_DESCRIBE_HEAD_BYTES - n, err);
        if (got < 0 && file->source->spoiled && n > 0)
            break; /* what lies before the damage is described */
        if (got < 0)
            return got;
        if (got == 0)
            break;
        n += (uint64_t)got;
    }
    file->is_whole = n < STG_DESCRIBE_HEAD_BYTES;
    return (int64_t)n;
}

static int decompress(struct stg_described_file *file, struct stg_err *err)
{
    struct stg_decompress_config config = {.type = file->to->schema.compression,
                                           .path = file->shown,
                                           .quota = file->quota,
                                           .stopped = file->user->stopped};
    return stg_decompress_open(&config, &file->source, err);
}

int stg_described_rewind(struct stg_described_file *file, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    close_source(file);
    file->is_storage = true;
    int rc = stg_storage_find(file->url, &storage, &path, err);
    if (rc == 0)
        rc = storage->open(path, file->user, &file->source, err);
    if (rc == 0 && file->is_compressed)
        rc = decompress(file, err);
    return rc;
}

int stg_described_open(struct stg_described_file *file, struct stg_err *err)
{
    const char *shown = stg_storage_shown(file->url, file->shown, sizeof(file->shown));
    if (shown != file->shown) {
        size_t n = strnlen(shown, sizeof(file->shown) - 1);
        memcpy(file->shown, shown, n);
        file->shown[n] = '\0';
    }
    int rc = stg_described_rewind(file, err);
    if (rc == 0)
        rc = stg_chunk_create(file->quota, STG_DESCRIBE_HEAD_BYTES,
                              "the first bytes of a file", &file->head, err);
    int64_t n = rc == 0 ? read_head(file, err) : rc;
    const char *compression =
        n >= 0 ? compression_of(file->head->data, (uint64_t)n) : NULL;
    if (compression != NULL) {
        file->to->schema.compression = compression;
        file->is_compressed = true;
        rc = stg_described_rewind(file, err);
        n = rc == 0 ? read_head(file, err) : rc;
    }
    if (n < 0)
        return (int)n;
    file->head_bytes = (uint64_t)n;
    return 0;
}

void stg_described_close(struct stg_described_file *file)
{
    close_source(file);
    stg_chunk_unref(file->head);
    file->head = NULL;
}
