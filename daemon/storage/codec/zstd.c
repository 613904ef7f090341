/* SPDX-License-Identifier: Apache-2.0
 *
 * Zstandard frames (RFC 8878), by libzstd.
 */
#include <stdlib.h>
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

static int refuse(size_t rc, struct stg_err *err)
{
    switch (ZSTD_getErrorCode(rc)) {
    case ZSTD_error_memory_allocation:
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    case ZSTD_error_frameParameter_windowTooLarge:
        return stg_err(err, -STAGER_DATA_LOSS,
                       "its window is larger than an eighth of the dataset's buffers: "
                       "raise staged.memory_budget");
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
        return refuse(rc, err);
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
