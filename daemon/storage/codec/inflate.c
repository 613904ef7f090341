/* SPDX-License-Identifier: Apache-2.0
 *
 * gzip (RFC 1952) and zlib (RFC 1950), by isa-l.
 */
#include <assert.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>

#include "daemon/storage/codec/codec.h"

enum place { IN_HEAD, IN_DATA, IN_TAIL }; /* zlib only; gzip's are isa-l's business */

#define HEAD_BYTES 2
#define TAIL_BYTES 4

struct inflate {
    struct inflate_state state;
    struct stg_quota *quota;
    bool zlib;
    bool ended;
    enum place place;
    uint8_t bytes[TAIL_BYTES]; /* of head or tail */
    unsigned n_bytes;
    uint32_t adler;
};

/* isa-l 2.30 takes bytes behind a zlib stream for part of it: of zlib it does what lies
 * between head and tail. */
static void begin(struct inflate *inflate)
{
    isal_inflate_init(&inflate->state);
    inflate->state.crc_flag = inflate->zlib ? ISAL_DEFLATE : ISAL_GZIP;
    inflate->ended = false;
    inflate->place = IN_HEAD;
    inflate->n_bytes = 0;
    inflate->adler = 1;
}

static int create(bool zlib, struct stg_quota *quota, void **ret, struct stg_err *err)
{
    int rc = stg_quota_take(quota, sizeof(struct inflate), "decompressing", err);
    if (rc < 0)
        return rc;
    struct inflate *inflate = malloc(sizeof(*inflate));
    if (inflate == NULL) {
        stg_quota_give(quota, sizeof(*inflate));
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    inflate->quota = quota;
    inflate->zlib = zlib;
    begin(inflate);
    *ret = inflate;
    return 0;
}

static int gzip_create(struct stg_quota *quota, void **ret, struct stg_err *err)
{
    return create(false, quota, ret, err);
}

static int zlib_create(struct stg_quota *quota, void **ret, struct stg_err *err)
{
    return create(true, quota, ret, err);
}

static void destroy(void *state)
{
    struct inflate *inflate = state;
    if (inflate == NULL)
        return;
    stg_quota_give(inflate->quota, sizeof(*inflate));
    free(inflate);
}

static const char *reason(int rc)
{
    switch (rc) {
    case ISAL_INVALID_WRAPPER:
        return "it does not begin with the header of such a stream";
    case ISAL_UNSUPPORTED_METHOD: return "its method is not deflate";
    case ISAL_INCORRECT_CHECKSUM: return "its data does not match its checksum";
    case ISAL_NEED_DICT: return "it needs a dictionary, which is not supported";
    default: return "it is damaged";
    }
}

static int inflate_piece(struct inflate_state *s, struct stg_coding *io,
                         struct stg_err *err)
{
    s->next_in = (uint8_t *)io->in;
    s->avail_in = (uint32_t)io->in_bytes;
    s->next_out = io->out;
    s->avail_out = (uint32_t)io->out_bytes;
    int rc = isal_inflate(s);
    if (rc < 0 || rc == ISAL_NEED_DICT)
        return stg_err(err, -STAGER_DATA_LOSS, "%s", reason(rc));
    io->in = s->next_in;
    io->in_bytes = s->avail_in;
    io->out = s->next_out;
    io->out_bytes = s->avail_out;
    return s->block_state == ISAL_BLOCK_FINISH ? STG_CODEC_END : STG_CODEC_MORE;
}

static int gzip_decode(void *state, struct stg_coding *io, struct stg_err *err)
{
    struct inflate *inflate = state;
    if (inflate->ended)
        begin(inflate);
    int rc = inflate_piece(&inflate->state, io, err);
    inflate->ended = rc == STG_CODEC_END;
    return rc;
}

/* ---- zlib ---- */

/* Takes bytes until there are n. */
static bool collect(struct inflate *inflate, unsigned n, struct stg_coding *io)
{
    for (; inflate->n_bytes < n && io->in_bytes > 0; io->in_bytes--)
        inflate->bytes[inflate->n_bytes++] = *io->in++;
    return inflate->n_bytes == n;
}

static int check_head(struct inflate *inflate, struct stg_err *err)
{
    unsigned method = inflate->bytes[0], flags = inflate->bytes[1];
    if ((method << 8 | flags) % 31 != 0 || method >> 4 > 7)
        return stg_err(err, -STAGER_DATA_LOSS, "%s", reason(ISAL_INVALID_WRAPPER));
    if ((method & 15) != 8)
        return stg_err(err, -STAGER_DATA_LOSS, "%s", reason(ISAL_UNSUPPORTED_METHOD));
    if ((flags & 32) != 0)
        return stg_err(err, -STAGER_DATA_LOSS, "%s", reason(ISAL_NEED_DICT));
    inflate->place = IN_DATA;
    return 0;
}

/* Whole bytes that were taken in and not used are not part of the data. */
static void enter_tail(struct inflate *inflate, struct stg_coding *io)
{
    unsigned unused = (unsigned)inflate->state.read_in_length / 8;
    assert(unused <= STG_CODEC_BACK);
    io->in -= unused;
    io->in_bytes += unused;
    inflate->n_bytes = 0;
    inflate->place = IN_TAIL;
}

static int check_tail(struct inflate *inflate, struct stg_err *err)
{
    uint32_t want = 0;
    for (int i = 0; i < TAIL_BYTES; i++)
        want = want << 8 | inflate->bytes[i];
    if (want != inflate->adler)
        return stg_err(err, -STAGER_DATA_LOSS, "%s", reason(ISAL_INCORRECT_CHECKSUM));
    inflate->ended = true;
    return STG_CODEC_END;
}

static int zlib_decode(void *state, struct stg_coding *io, struct stg_err *err)
{
    struct inflate *inflate = state;
    int rc = 0;
    if (inflate->ended)
        begin(inflate);
    if (inflate->place == IN_HEAD && collect(inflate, HEAD_BYTES, io))
        rc = check_head(inflate, err);
    if (rc == 0 && inflate->place == IN_DATA) {
        uint8_t *out = io->out;
        rc = inflate_piece(&inflate->state, io, err);
        if (rc >= 0)
            inflate->adler = isal_adler32(inflate->adler, out, (uint64_t)(io->out - out));
        if (rc == STG_CODEC_END)
            enter_tail(inflate, io);
    }
    if (rc >= 0 && inflate->place == IN_TAIL && collect(inflate, TAIL_BYTES, io))
        return check_tail(inflate, err);
    return rc < 0 ? rc : STG_CODEC_MORE;
}

const struct stg_codec stg_codec_gzip = {.name = "gzip",
                                         .magic = {0x1f, 0x8b, 0x08},
                                         .n_magic = 3,
                                         .zeros = true,
                                         .create = gzip_create,
                                         .destroy = destroy,
                                         .decode = gzip_decode};

const struct stg_codec stg_codec_zlib = {
    .name = "zlib", .create = zlib_create, .destroy = destroy, .decode = zlib_decode};
