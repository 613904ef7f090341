/* SPDX-License-Identifier: Apache-2.0
 *
 * Snappy, by libsnappy, in its two wraps: blocks as TensorFlow writes TFRecords with
 * them (u32be bytes of a block, the block, and so on), and the framing format
 * (framing_format.txt: chunks with a type, u24le bytes, a masked CRC-32C of the data). No
 * length of a block begins as that format does. What ends with a block or a chunk is
 * whole: neither has a mark at its end.
 */
#include <inttypes.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/codec/codec.h"
#include "daemon/storage/codec/crc32c.h"

#define HEAD_BYTES 4
#define CRC_BYTES 4
#define FRAME_BYTES 65536 /* of data, in a chunk of the framing format */
/* Of a chunk of the framing format that holds so much. */
#define MAX_CHUNK (CRC_BYTES + 32 + FRAME_BYTES + FRAME_BYTES / 6)
/* A block is 256 KiB where TensorFlow writes it. A length, which has no checksum, is
 * believed up to here, and up to a share of the quota. */
#define MAX_BLOCK ((uint64_t)64 << 20)
#define BLOCK_SHARE 8

static const uint8_t identifier[] = {0xff, 6, 0, 0, 's', 'N', 'a', 'P', 'p', 'Y'};

enum wrap { UNKNOWN, BLOCKS, FRAMES };

struct buffer {
    uint8_t *data;
    uint64_t size;
};

struct snappy {
    struct stg_quota *quota;
    uint64_t taken; /* of it */
    enum wrap wrap;
    uint8_t head[HEAD_BYTES]; /* of the block or chunk */
    unsigned n_head;
    struct buffer in, out;
    uint64_t want, n_in;    /* bytes of the block, and those that are in `in` */
    uint64_t n_out, at_out; /* decoded and not delivered: from at_out on */
};

static void snappy_destroy(void *state)
{
    struct snappy *snappy = state;
    if (snappy == NULL)
        return;
    free(snappy->in.data);
    free(snappy->out.data);
    stg_quota_give(snappy->quota, snappy->taken);
    free(snappy);
}

static int snappy_create(struct stg_quota *quota, void **ret, struct stg_err *err)
{
    struct snappy *snappy = calloc(1, sizeof(*snappy));
    if (snappy == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    snappy->quota = quota;
    *ret = snappy;
    return 0;
}

static int grow(struct snappy *snappy, struct buffer *buffer, uint64_t size,
                struct stg_err *err)
{
    if (size <= buffer->size)
        return 0;
    int rc = stg_quota_take(snappy->quota, size - buffer->size, "decompressing", err);
    if (rc < 0)
        return rc;
    snappy->taken += size - buffer->size;
    uint8_t *data = realloc(buffer->data, size);
    if (data == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    buffer->data = data;
    buffer->size = size;
    return 0;
}

static int lost(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "%s", what);
}

static uint64_t most_of_block(const struct snappy *snappy)
{
    uint64_t share = stg_quota_limit(snappy->quota) / BLOCK_SHARE;
    return share < MAX_BLOCK ? share : MAX_BLOCK;
}

static int too_long(const struct snappy *snappy, uint64_t bytes, struct stg_err *err)
{
    int rc = stg_err(err, -STAGER_DATA_LOSS,
                     "a block claims %" PRIu64 " bytes, more than the limit of %" PRIu64
                     " (64 MiB, and an eighth of the dataset's buffers): it is damaged, "
                     "or not a snappy stream",
                     bytes, most_of_block(snappy));
    if (bytes <= MAX_BLOCK && err != NULL) {
        stg_err_append(err, rc, "; if it is data, ");
        stg_quota_advise(snappy->quota, 4 * BLOCK_SHARE * bytes, 0, err);
    }
    return rc;
}

/* ---- a block ---- */

static int uncompress(struct snappy *snappy, const uint8_t *in, uint64_t bytes,
                      uint64_t most, struct stg_err *err)
{
    size_t n;
    if (snappy_uncompressed_length((const char *)in, bytes, &n) != SNAPPY_OK)
        return lost(err, "a block has no length");
    if (n > most)
        return snappy->wrap == FRAMES ? lost(err, "a chunk is longer than 65536 bytes")
                                      : too_long(snappy, n, err);
    int rc = grow(snappy, &snappy->out, n, err);
    if (rc < 0)
        return rc;
    if (n > 0 && snappy_uncompress((const char *)in, bytes, (char *)snappy->out.data,
                                   &n) != SNAPPY_OK)
        return lost(err, "a block is damaged");
    snappy->n_out = n;
    return 0;
}

static int take_plain(struct snappy *snappy, const uint8_t *in, uint64_t bytes,
                      struct stg_err *err)
{
    if (bytes > FRAME_BYTES)
        return lost(err, "a chunk is longer than 65536 bytes");
    int rc = grow(snappy, &snappy->out, bytes, err);
    if (rc < 0)
        return rc;
    if (bytes > 0)
        memcpy(snappy->out.data, in, bytes);
    snappy->n_out = bytes;
    return 0;
}

static uint32_t read32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

static int check_crc(const struct snappy *snappy, uint32_t want, struct stg_err *err)
{
    uint32_t crc = stg_crc32c()->extend(0, snappy->out.data, snappy->n_out);
    return stg_crc32c_mask(crc) == want
               ? 0
               : lost(err, "its data does not match its checksum");
}

static int take_chunk(struct snappy *snappy, const uint8_t *in, struct stg_err *err)
{
    uint8_t type = snappy->head[0];
    uint64_t bytes = snappy->want;
    if (type == identifier[0])
        return memcmp(in, identifier + HEAD_BYTES, sizeof(identifier) - HEAD_BYTES) == 0
                   ? 0
                   : lost(err, "it does not begin with the header of such a stream");
    if (type >= 0x80)
        return 0; /* to be passed over */
    int rc = type == 0
                 ? uncompress(snappy, in + CRC_BYTES, bytes - CRC_BYTES, FRAME_BYTES, err)
                 : take_plain(snappy, in + CRC_BYTES, bytes - CRC_BYTES, err);
    return rc < 0 ? rc : check_crc(snappy, read32(in), err);
}

static int take_block(struct snappy *snappy, const uint8_t *in, struct stg_err *err)
{
    snappy->n_head = 0;
    snappy->n_in = snappy->n_out = snappy->at_out = 0;
    return snappy->wrap == FRAMES
               ? take_chunk(snappy, in, err)
               : uncompress(snappy, in, snappy->want, most_of_block(snappy), err);
}

/* ---- its head ---- */

static int check_chunk(const struct snappy *snappy, struct stg_err *err)
{
    uint8_t type = snappy->head[0];
    if (type == identifier[0] && snappy->want != sizeof(identifier) - HEAD_BYTES)
        return lost(err, "it does not begin with the header of such a stream");
    if (type < 2 && snappy->want < CRC_BYTES)
        return lost(err, "a chunk is shorter than its checksum");
    if (type < 2 && snappy->want > MAX_CHUNK)
        return lost(err, "a chunk is longer than 65536 bytes");
    if (type >= 2 && type < 0x80)
        return lost(err, "a chunk is of an unknown type");
    return 0;
}

static int read_head(struct snappy *snappy, struct stg_err *err)
{
    const uint8_t *head = snappy->head;
    if (snappy->wrap == UNKNOWN)
        snappy->wrap = memcmp(head, identifier, HEAD_BYTES) == 0 ? FRAMES : BLOCKS;
    if (snappy->wrap == FRAMES) {
        snappy->want = read32(head) >> 8;
        return check_chunk(snappy, err);
    }
    snappy->want = (uint64_t)head[0] << 24 | (uint64_t)head[1] << 16 |
                   (uint64_t)head[2] << 8 | head[3];
    if (snappy->want == 0)
        return lost(err, "it does not begin with the header of such a stream");
    return snappy->want <= most_of_block(snappy) ? 0
                                                 : too_long(snappy, snappy->want, err);
}

/* ---- pieces ---- */

static void consume(struct stg_coding *io, uint64_t n)
{
    io->in += n;
    io->in_bytes -= n;
}

/* True once the head is there. */
static bool collect_head(struct snappy *snappy, struct stg_coding *io)
{
    while (snappy->n_head < HEAD_BYTES && io->in_bytes > 0) {
        snappy->head[snappy->n_head++] = io->in[0];
        consume(io, 1);
    }
    return snappy->n_head == HEAD_BYTES;
}

/* A chunk that is to be passed over is held in no memory. */
static bool is_passed_over(const struct snappy *snappy)
{
    return snappy->wrap == FRAMES && snappy->head[0] >= 0x80 &&
           snappy->head[0] != identifier[0];
}

/* Memory for the bytes that are there, not for all that the head claims. */
static int append(struct snappy *snappy, const uint8_t *in, uint64_t n,
                  struct stg_err *err)
{
    uint64_t size = snappy->in.size;
    if (snappy->n_in + n > size)
        size = 2 * size > snappy->n_in + n ? 2 * size : snappy->n_in + n;
    if (size > snappy->want && snappy->in.size < snappy->want)
        size = snappy->want;
    int rc = grow(snappy, &snappy->in, size, err);
    if (rc == 0 && n > 0)
        memcpy(snappy->in.data + snappy->n_in, in, n);
    return rc;
}

/* The block where it is whole, else NULL; one that came at once is not copied. */
static int collect(struct snappy *snappy, struct stg_coding *io, const uint8_t **ret,
                   struct stg_err *err)
{
    uint64_t n = snappy->want - snappy->n_in;
    bool in_place = snappy->n_in == 0 || is_passed_over(snappy);
    *ret = io->in;
    if (in_place && n <= io->in_bytes) {
        consume(io, n);
        return 0;
    }
    n = n < io->in_bytes ? n : io->in_bytes;
    int rc = is_passed_over(snappy) ? 0 : append(snappy, io->in, n, err);
    if (rc < 0)
        return rc;
    consume(io, n);
    snappy->n_in += n;
    *ret = snappy->n_in == snappy->want ? snappy->in.data : NULL;
    return 0;
}

static void deliver(struct snappy *snappy, struct stg_coding *io)
{
    uint64_t n = snappy->n_out - snappy->at_out;
    n = n < io->out_bytes ? n : io->out_bytes;
    if (n == 0)
        return;
    memcpy(io->out, snappy->out.data + snappy->at_out, n);
    snappy->at_out += n;
    io->out += n;
    io->out_bytes -= n;
}

static int snappy_decode(void *state, struct stg_coding *io, struct stg_err *err)
{
    struct snappy *snappy = state;
    if (snappy->at_out == snappy->n_out) {
        unsigned before = snappy->n_head;
        if (!collect_head(snappy, io))
            return STG_CODEC_MORE;
        const uint8_t *block;
        int rc = before < HEAD_BYTES ? read_head(snappy, err) : 0;
        if (rc == 0)
            rc = collect(snappy, io, &block, err);
        if (rc == 0 && block == NULL)
            return STG_CODEC_MORE;
        if (rc == 0)
            rc = take_block(snappy, block, err);
        if (rc < 0)
            return rc;
    }
    deliver(snappy, io);
    return snappy->at_out == snappy->n_out ? STG_CODEC_END : STG_CODEC_MORE;
}

const struct stg_codec stg_codec_snappy = {.name = "snappy",
                                           .magic = {0xff, 6, 0, 0},
                                           .n_magic = 4,
                                           .create = snappy_create,
                                           .destroy = snappy_destroy,
                                           .decode = snappy_decode};
