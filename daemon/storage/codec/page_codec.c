/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/codec/page_codec.h"

#include <inttypes.h>
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <limits.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define LZ4_HISTORY_BYTES ((uint64_t)128 << 10)
#define LZ4_SPARE 5 /* advised size of the dataset's buffers, in sizes of the blocks */

void stg_page_codecs_finish(struct stg_page_codecs *codecs)
{
    ZSTD_freeDCtx(codecs->zstd);
    free(codecs->inflate);
    LZ4F_freeDecompressionContext(codecs->lz4);
    if (codecs->taken > 0)
        stg_quota_give(codecs->quota, codecs->taken);
    *codecs = (struct stg_page_codecs){.quota = codecs->quota};
}

static int damaged(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its data is damaged");
}

static int wrong_size(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "the size of its data differs from its header");
}

static int out_of_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static int count(struct stg_page_codecs *codecs, uint64_t bytes, struct stg_err *err)
{
    int rc = stg_quota_take(codecs->quota, bytes, "decompressing", err);
    if (rc == 0)
        codecs->taken += bytes;
    return rc;
}

static int by_snappy(const char *in, uint64_t in_bytes, char *out, uint64_t out_bytes,
                     struct stg_err *err)
{
    size_t n;
    if (snappy_uncompressed_length(in, in_bytes, &n) != SNAPPY_OK)
        return damaged(err);
    if (n != out_bytes)
        return wrong_size(err);
    return snappy_uncompress(in, in_bytes, out, &n) == SNAPPY_OK ? 0 : damaged(err);
}

static int by_zstd(struct stg_page_codecs *codecs, const char *in, uint64_t in_bytes,
                   char *out, uint64_t out_bytes, struct stg_err *err)
{
    if (codecs->zstd == NULL) {
        codecs->zstd = ZSTD_createDCtx();
        int rc = codecs->zstd != NULL ? count(codecs, ZSTD_sizeof_DCtx(codecs->zstd), err)
                                      : out_of_memory(err);
        if (rc < 0) {
            ZSTD_freeDCtx(codecs->zstd);
            codecs->zstd = NULL;
            return rc;
        }
    }
    size_t n = ZSTD_decompressDCtx(codecs->zstd, out, out_bytes, in, in_bytes);
    if (ZSTD_isError(n))
        return stg_err(err, -STAGER_DATA_LOSS, "its data is damaged: %s",
                       ZSTD_getErrorName(n));
    return n == out_bytes ? 0 : wrong_size(err);
}

static int by_lz4(const char *in, uint64_t in_bytes, char *out, uint64_t out_bytes,
                  struct stg_err *err)
{
    if (in_bytes > INT_MAX || out_bytes > INT_MAX)
        return damaged(err);
    int n = LZ4_decompress_safe(in, out, (int)in_bytes, (int)out_bytes);
    if (n < 0)
        return damaged(err);
    return (uint64_t)n == out_bytes ? 0 : wrong_size(err);
}

/* Counts what the library takes for the blocks of a frame: one as read, one decoded, and
 * the history before it. */
static int count_blocks(struct stg_page_codecs *codecs, const char *in, uint64_t in_bytes,
                        struct stg_err *err)
{
    unsigned size = in_bytes > 5 ? (unsigned char)in[5] >> 4 & 7 : 0;
    uint64_t bytes = size < 4 ? 0 : (UINT64_C(2) << (8 + 2 * size)) + LZ4_HISTORY_BYTES;
    if (bytes <= codecs->lz4_bytes)
        return 0;
    int rc = count(codecs, bytes - codecs->lz4_bytes, err);
    if (rc == 0)
        codecs->lz4_bytes = bytes;
    if (rc == 0 || !stg_quota_is_large(codecs->quota, bytes))
        return rc;
    rc =
        stg_err(err, -STAGER_DATA_LOSS,
                "its blocks take %" PRIu64 " bytes, more than a quarter of the dataset's "
                "buffers: ",
                bytes);
    stg_quota_advise(codecs->quota, LZ4_SPARE * bytes, 0, err);
    return rc;
}

static int by_lz4_frame(struct stg_page_codecs *codecs, const char *in, uint64_t in_bytes,
                        char *out, uint64_t out_bytes, struct stg_err *err)
{
    LZ4F_dctx *context = codecs->lz4;
    int rc = count_blocks(codecs, in, in_bytes, err);
    if (rc < 0)
        return rc;
    if (context == NULL) {
        if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
            return out_of_memory(err);
        codecs->lz4 = context;
    }
    LZ4F_resetDecompressionContext(context);
    uint64_t n_in = 0, n_out = 0;
    size_t rest = 1;
    while (rest > 0 && n_in < in_bytes) {
        size_t took = in_bytes - n_in, gave = out_bytes - n_out;
        rest = LZ4F_decompress(context, out + n_out, &gave, in + n_in, &took, NULL);
        if (LZ4F_isError(rest))
            return stg_err(err, -STAGER_DATA_LOSS, "its data is damaged: %s",
                           LZ4F_getErrorName(rest));
        if (took == 0 && gave == 0)
            return wrong_size(err);
        n_in += took;
        n_out += gave;
    }
    return rest == 0 && n_in == in_bytes && n_out == out_bytes ? 0 : wrong_size(err);
}

/* A page may be several members of gzip, one behind the other. */
static int by_gzip(struct stg_page_codecs *codecs, const char *in, uint64_t in_bytes,
                   char *out, uint64_t out_bytes, struct stg_err *err)
{
    if (in_bytes > UINT32_MAX || out_bytes > UINT32_MAX)
        return damaged(err);
    struct inflate_state *state = codecs->inflate;
    if (state == NULL) {
        int rc = count(codecs, sizeof(*state), err);
        if (rc < 0)
            return rc;
        state = codecs->inflate = malloc(sizeof(*state));
        if (state == NULL)
            return out_of_memory(err);
    }
    uint8_t *next = (uint8_t *)out;
    uint32_t room = (uint32_t)out_bytes, left = (uint32_t)in_bytes;
    while (left > 0) {
        isal_inflate_init(state);
        state->crc_flag = ISAL_GZIP;
        state->next_in = (uint8_t *)(uintptr_t)(in + in_bytes - left);
        state->avail_in = left;
        state->next_out = next;
        state->avail_out = room;
        int rc = isal_inflate(state);
        if (rc < 0 || rc == ISAL_NEED_DICT || state->block_state != ISAL_BLOCK_FINISH)
            return rc >= 0 && state->avail_out == 0 ? wrong_size(err) : damaged(err);
        next = state->next_out;
        room = state->avail_out;
        left = state->avail_in;
    }
    return room == 0 ? 0 : wrong_size(err);
}

int stg_page_decompress(struct stg_page_codecs *codecs, enum stg_page_codec codec,
                        const void *in, uint64_t in_bytes, void *out, uint64_t out_bytes,
                        struct stg_err *err)
{
    if (out_bytes == 0)
        return 0;
    switch (codec) {
    case STG_PAGE_PLAIN:
        if (in_bytes != out_bytes)
            return wrong_size(err);
        memcpy(out, in, out_bytes);
        return 0;
    case STG_PAGE_SNAPPY: return by_snappy(in, in_bytes, out, out_bytes, err);
    case STG_PAGE_ZSTD: return by_zstd(codecs, in, in_bytes, out, out_bytes, err);
    case STG_PAGE_LZ4: return by_lz4(in, in_bytes, out, out_bytes, err);
    case STG_PAGE_LZ4_FRAME:
        return by_lz4_frame(codecs, in, in_bytes, out, out_bytes, err);
    case STG_PAGE_GZIP: return by_gzip(codecs, in, in_bytes, out, out_bytes, err);
    default: return damaged(err);
    }
}

uint32_t stg_page_crc32(const void *data, uint64_t bytes)
{
    return crc32_gzip_refl(0, data, bytes);
}
