/* SPDX-License-Identifier: Apache-2.0
 *
 * Zstandard frames (RFC 8878), by libzstd.
 */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "daemon/storage/codec/codec.h"

/* A window takes at most this share of the quota. */
#define WINDOW_SHARE 8
#define MIN_WINDOW_LOG 10
#define MAX_WINDOW_LOG 31

struct zstd {
    ZSTD_DStream *stream;
    struct stg_quota *quota;
    uint64_t taken; /* of it */
};

static int window_log(const struct stg_quota *quota)
{
    uint64_t share = stg_quota_limit(quota) / WINDOW_SHARE;
    int log = MIN_WINDOW_LOG;
    while (log < MAX_WINDOW_LOG && UINT64_C(2) << log <= share)
        log++;
    return log;
}

/* A frame may take more than the one before; never less is held. */
static int count(struct zstd *zstd, struct stg_err *err)
{
    uint64_t bytes = ZSTD_sizeof_DStream(zstd->stream);
    if (bytes <= zstd->taken)
        return 0;
    int rc = stg_quota_take(zstd->quota, bytes - zstd->taken, "decompressing", err);
    if (rc == 0)
        zstd->taken = bytes;
    return rc;
}

static void zstd_destroy(void *state)
{
    struct zstd *zstd = state;
    if (zstd == NULL)
        return;
    ZSTD_freeDStream(zstd->stream);
    stg_quota_give(zstd->quota, zstd->taken);
    free(zstd);
}

static int zstd_create(struct stg_quota *quota, void **ret, struct stg_err *err)
{
    struct zstd *zstd = calloc(1, sizeof(*zstd));
    if (zstd == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    zstd->quota = quota;
    zstd->stream = ZSTD_createDStream();
    int rc = zstd->stream == NULL
                 ? stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory")
                 : count(zstd, err);
    if (rc < 0) {
        zstd_destroy(zstd);
        return rc;
    }
    ZSTD_DCtx_setParameter(zstd->stream, ZSTD_d_windowLogMax, window_log(quota));
    *ret = zstd;
    return 0;
}

/* The window that a frame's head asks for; 0: these bytes are not its whole head. */
static uint64_t window_of(const uint8_t *head, uint64_t n)
{
    static const uint8_t n_id[4] = {0, 1, 2, 4}, n_size[4] = {0, 2, 4, 8};
    if (n < 6 || memcmp(head, stg_codec_zstd.magic, 4) != 0)
        return 0;
    unsigned flags = head[4];
    if ((flags & 32) == 0) { /* no single segment: a byte says it */
        unsigned log = 10 + (head[5] >> 3);
        return (UINT64_C(1) << log) + ((UINT64_C(1) << log) / 8) * (head[5] & 7);
    }
    unsigned at = 5 + n_id[flags & 3], bytes = flags >> 6 == 0 ? 1 : n_size[flags >> 6];
    uint64_t size = flags >> 6 == 1 ? 256 : 0;
    for (unsigned i = 0; i < bytes; i++)
        size += at + i < n ? (uint64_t)head[at + i] << (8 * i) : 0;
    return at + bytes <= n ? size : 0;
}

/* A head that came in two pieces is not there any more: twice the window that may be. */
static int too_wide(const struct zstd *zstd, const struct stg_coding *io,
                    struct stg_err *err)
{
    uint64_t most = UINT64_C(1) << window_log(zstd->quota);
    uint64_t window = window_of((const uint8_t *)io->in, io->in_bytes);
    int rc = stg_err(err, -STAGER_DATA_LOSS,
                     "its window is larger than an eighth of the dataset's buffers: ");
    uint64_t wanted = window > most ? window : 2 * most;
    while (most < wanted)
        most *= 2;
    if (most <= UINT64_C(1) << MAX_WINDOW_LOG)
        stg_quota_advise(zstd->quota, WINDOW_SHARE * most, 0, err);
    else
        stg_err_append(err, rc, "windows above 2 GiB are not supported");
    return rc;
}

static int refuse(const struct zstd *zstd, const struct stg_coding *io, size_t rc,
                  struct stg_err *err)
{
    switch (ZSTD_getErrorCode(rc)) {
    case ZSTD_error_memory_allocation:
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    case ZSTD_error_frameParameter_windowTooLarge: return too_wide(zstd, io, err);
    default: return stg_err(err, -STAGER_DATA_LOSS, "%s", ZSTD_getErrorName(rc));
    }
}

static int zstd_decode(void *state, struct stg_coding *io, struct stg_err *err)
{
    struct zstd *zstd = state;
    ZSTD_inBuffer in = {.src = io->in, .size = io->in_bytes};
    ZSTD_outBuffer out = {.dst = io->out, .size = io->out_bytes};
    size_t rc = ZSTD_decompressStream(zstd->stream, &out, &in);
    if (ZSTD_isError(rc))
        return refuse(zstd, io, rc, err);
    int counted = count(zstd, err);
    if (counted < 0)
        return counted;
    io->in += in.pos;
    io->in_bytes -= in.pos;
    io->out += out.pos;
    io->out_bytes -= out.pos;
    return rc == 0 ? STG_CODEC_END : STG_CODEC_MORE;
}

const struct stg_codec stg_codec_zstd = {.name = "zstd",
                                         .magic = {0x28, 0xb5, 0x2f, 0xfd},
                                         .n_magic = 4,
                                         .create = zstd_create,
                                         .destroy = zstd_destroy,
                                         .decode = zstd_decode};
