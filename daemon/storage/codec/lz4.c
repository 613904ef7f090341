/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes LZ4 frames with liblz4.
 */
#include <inttypes.h>
#include <lz4frame.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/codec/codec.h"

#define FLAG_BYTES 6  /* of a frame, up to and including its flags and block size */
#define HEAD_BYTES 19 /* of a frame header with its checksum, at most */
#define SPARE 5       /* advised size of the dataset's buffers, in sizes of the blocks */
#define HISTORY_BYTES ((uint64_t)128 << 10)
static const uint8_t magic[4] = {0x04, 0x22, 0x4d, 0x18};

struct lz4 {
    LZ4F_dctx *context;
    struct stg_quota *quota;
    uint64_t taken; /* bytes taken from quota */
    uint8_t head[HEAD_BYTES];
    unsigned n_head; /* bytes in head */
};

static void lz4_destroy(void *state)
{
    struct lz4 *lz4 = state;
    if (lz4 == NULL)
        return;
    LZ4F_freeDecompressionContext(lz4->context);
    stg_quota_give(lz4->quota, lz4->taken);
    free(lz4);
}

static int lz4_create(struct stg_quota *quota, void **ret, struct stg_err *err)
{
    struct lz4 *lz4 = calloc(1, sizeof(*lz4));
    if (lz4 == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    lz4->quota = quota;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&lz4->context, LZ4F_VERSION))) {
        free(lz4);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    *ret = lz4;
    return 0;
}

static bool is_frame(const struct lz4 *lz4)
{
    return lz4->n_head >= FLAG_BYTES && memcmp(lz4->head, magic, sizeof(magic)) == 0;
}

/* Returns the size of the frame header with its checksum; FLAG_BYTES if it is not the
 * header of a data frame. */
static unsigned head_bytes(const struct lz4 *lz4)
{
    unsigned flags = lz4->head[4];
    if (!is_frame(lz4))
        return FLAG_BYTES;
    return FLAG_BYTES + 1 + ((flags & 8) != 0 ? 8 : 0) + ((flags & 1) != 0 ? 4 : 0);
}

static int too_large(const struct lz4 *lz4, uint64_t bytes, struct stg_err *err)
{
    int rc = stg_err(err, -STAGER_DATA_LOSS,
                     "its blocks take %" PRIu64 " bytes, more than a quarter of the "
                     "dataset's buffers: ",
                     bytes);
    stg_quota_advise(lz4->quota, SPARE * bytes, 0, err);
    return rc;
}

/* Counts the memory of the library on the quota: one block as read, one decoded block,
 * and the history before it. Blocks of 4 MiB are usual. A dataset without room for them
 * cannot read the file. */
static int count(struct lz4 *lz4, struct stg_err *err)
{
    unsigned size = lz4->head[5] >> 4 & 7;
    if (!is_frame(lz4) || size < 4)
        return 0;
    uint64_t bytes = (UINT64_C(2) << (8 + 2 * size)) + HISTORY_BYTES;
    if (bytes <= lz4->taken)
        return 0;
    int rc = stg_quota_take(lz4->quota, bytes - lz4->taken, "decompressing", err);
    if (rc < 0 && stg_quota_is_large(lz4->quota, bytes))
        return too_large(lz4, bytes, err);
    if (rc == 0)
        lz4->taken = bytes;
    return rc;
}

/* Takes one byte of the frame header, and returns false once the header is complete or
 * the input is empty. The decoder goes byte by byte until it has checked the size of the
 * blocks. */
static bool take_head(struct lz4 *lz4, const struct stg_coding *io)
{
    if (io->in_bytes == 0 ||
        (lz4->n_head >= FLAG_BYTES && lz4->n_head == head_bytes(lz4)))
        return false;
    lz4->head[lz4->n_head++] = io->in[0];
    return true;
}

/* Returns the message for an error name of the library. */
static const char *words_of(const char *name)
{
    static const char *const words[][2] = {
        {"ERROR_frameType_unknown", "it does not begin with the header of such a stream"},
        {"ERROR_headerVersion_wrong", "the version of its header is not supported"},
        {"ERROR_headerChecksum_invalid", "its header does not match its checksum"},
        {"ERROR_blockChecksum_invalid", "its data does not match its checksum"},
        {"ERROR_contentChecksum_invalid", "its data does not match its checksum"},
        {"ERROR_frameSize_wrong", "the size of its data differs from its header"},
        {"ERROR_maxBlockSize_invalid", "its header is damaged"},
        {"ERROR_blockMode_invalid", "its header is damaged"},
        {"ERROR_contentChecksumFlag_invalid", "its header is damaged"},
        {"ERROR_reservedFlag_set", "its header is damaged"},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i][0], name) == 0)
            return words[i][1];
    }
    return "its data is damaged";
}

static int refuse(size_t rc, struct stg_err *err)
{
    const char *name = LZ4F_getErrorName(rc);
    if (strcmp(name, "ERROR_allocation_failed") == 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return stg_err(err, -STAGER_DATA_LOSS, "%s", words_of(name));
}

static int lz4_decode(void *state, struct stg_coding *io, struct stg_err *err)
{
    struct lz4 *lz4 = state;
    bool in_head = take_head(lz4, io);
    size_t in_bytes = in_head ? 1 : io->in_bytes, out_bytes = io->out_bytes;
    size_t want =
        LZ4F_decompress(lz4->context, io->out, &out_bytes, io->in, &in_bytes, NULL);
    if (LZ4F_isError(want))
        return refuse(want, err);
    int rc = in_head && lz4->n_head == head_bytes(lz4) ? count(lz4, err) : 0;
    if (rc < 0)
        return rc;
    io->in += in_bytes;
    io->in_bytes -= in_bytes;
    io->out += out_bytes;
    io->out_bytes -= out_bytes;
    if (want != 0)
        return STG_CODEC_MORE;
    lz4->n_head = 0;
    return STG_CODEC_END;
}

const struct stg_codec stg_codec_lz4 = {.name = "lz4",
                                        .magic = {0x04, 0x22, 0x4d, 0x18},
                                        .n_magic = 4,
                                        .create = lz4_create,
                                        .destroy = lz4_destroy,
                                        .decode = lz4_decode};
