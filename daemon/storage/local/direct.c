/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/local/direct.h"

#include <stdlib.h>
#include <string.h>

#define PAGE ((uint64_t)4096) /* no known device needs more */
#define READ_BYTES ((uint64_t)512 << 10)

struct direct {
    struct stg_source source;
    struct stg_source *inner;
    struct stg_quota *quota;
    const char *path;
};

static uint64_t page_of(uint64_t offset)
{
    return offset & ~(PAGE - 1);
}

/* Up to `bytes` from offset on, through the room of whole pages. Fewer than asked for: at
 * the end, or where a read fell short; 0: the end. */
static int64_t read_some(struct direct *direct, char *room, uint64_t offset, void *buf,
                         uint64_t bytes, struct stg_err *err)
{
    uint64_t begin = page_of(offset), skip = offset - begin;
    uint64_t want = bytes < READ_BYTES - skip ? skip + bytes : READ_BYTES;
    int64_t n =
        stg_source_read(direct->inner, begin, room, page_of(want + PAGE - 1), err);
    if (n < 0 || (uint64_t)n <= skip)
        return n < 0 ? n : 0;
    uint64_t got = (uint64_t)n - skip;
    if (got > bytes)
        got = bytes;
    memcpy(buf, room + skip, got);
    return (int64_t)got;
}

static int64_t direct_read(struct stg_source *source, uint64_t offset, void *buf,
                           size_t bytes, struct stg_err *err)
{
    struct direct *direct = (struct direct *)source;
    struct stg_chunk *chunk;
    uint64_t done = 0;
    int64_t n =
        stg_chunk_create(direct->quota, READ_BYTES + PAGE, "a direct read", &chunk, err);
    if (n < 0)
        return stg_err_prefix(err, (int)n, "%s", direct->path);
    char *room = (char *)page_of((uintptr_t)chunk->data + PAGE - 1);
    do {
        n = read_some(direct, room, offset + done, (char *)buf + done, bytes - done, err);
        done += n > 0 ? (uint64_t)n : 0;
    } while (n > 0 && done < bytes);
    stg_chunk_unref(chunk);
    return n < 0 && done == 0 ? n : (int64_t)done;
}

static int direct_size(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    struct direct *direct = (struct direct *)source;
    return direct->inner->storage->size(direct->inner, ret, err);
}

static void direct_close(struct stg_source *source)
{
    struct direct *direct = (struct direct *)source;
    if (direct == NULL)
        return;
    direct->inner->storage->close(direct->inner);
    free(direct);
}

static const struct stg_storage direct_storage = {
    .scheme = "direct", .read = direct_read, .size = direct_size, .close = direct_close};

int stg_direct_open(struct stg_quota *quota, const char *path, struct stg_source **source,
                    struct stg_err *err)
{
    if ((*source)->storage->direct == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s: direct_io applies to local files only: remove it", path);
    struct direct *direct = calloc(1, sizeof(*direct));
    if (direct == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    int rc = (*source)->storage->direct(*source, err);
    if (rc < 0) {
        free(direct);
        return rc;
    }
    direct->source.storage = &direct_storage;
    direct->inner = *source;
    direct->quota = quota;
    direct->path = path;
    *source = &direct->source;
    return 0;
}
