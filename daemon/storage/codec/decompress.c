/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/codec/decompress.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/storage/codec/codec.h"

#define INPUT_BYTES ((uint64_t)256 << 10)
#define INPUT_SHARE 16 /* of the quota, at most */
/* Decoded at once, between checks for a request to stop. */
#define PIECE_BYTES ((uint64_t)256 << 10)

static const struct stg_codec *const codecs[] = {
    &stg_codec_gzip, &stg_codec_zlib, &stg_codec_zstd, &stg_codec_lz4, &stg_codec_snappy,
};
#define N_CODECS (sizeof(codecs) / sizeof(codecs[0]))

struct decompress {
    struct stg_source source;
    struct stg_source *inner;
    struct stg_decompress_config config;
    const struct stg_codec *codec;
    void *state;
    /* The bytes [at, fill) of input are read and not decoded; data[0] is at `base` of the
     * file. Before `at` there are as many as a codec may want back. */
    struct stg_chunk *input;
    uint64_t at, fill, base;
    bool at_end;       /* of the file */
    bool inside;       /* of a stream */
    uint64_t position; /* bytes decoded */
    int failed;        /* sticky */
    struct stg_err failure;
};

/* ---- types ---- */

const struct stg_codec *const *stg_codecs(size_t *ret_n)
{
    *ret_n = N_CODECS;
    return codecs;
}

static const struct stg_codec *find(const char *type)
{
    for (size_t i = 0; i < N_CODECS; i++) {
        if (strcasecmp(type, codecs[i]->name) == 0)
            return codecs[i];
    }
    return NULL;
}

static bool is_none(const char *type)
{
    return type[0] == '\0' || strcasecmp(type, "none") == 0;
}

static bool is_auto(const char *type)
{
    return strcasecmp(type, "auto") == 0;
}

int stg_decompress_check(const char *type, struct stg_err *err)
{
    if (is_none(type) || is_auto(type) || find(type) != NULL)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "compression_type is \"%.64s\"; it must be auto, none, gzip, zlib, "
                   "zstd, lz4 or snappy",
                   type);
}

/* NULL: the file is taken as it is. */
static int detect(struct stg_source *source, const struct stg_codec **ret,
                  struct stg_err *err)
{
    uint8_t head[sizeof(codecs[0]->magic)];
    int64_t n = stg_source_read(source, 0, head, sizeof(head), err);
    if (n < 0)
        return (int)n;
    *ret = NULL;
    for (size_t i = 0; i < N_CODECS; i++) {
        const struct stg_codec *codec = codecs[i];
        if (codec->n_magic > 0 && n >= codec->n_magic &&
            memcmp(head, codec->magic, codec->n_magic) == 0)
            *ret = codec;
    }
    return 0;
}

/* ---- reading ---- */

static int refill(struct decompress *d, struct stg_err *err)
{
    if (d->at < d->fill || d->at_end)
        return 0;
    uint64_t keep = d->fill < STG_CODEC_BACK ? d->fill : STG_CODEC_BACK;
    memmove(d->input->data, d->input->data + d->fill - keep, keep);
    d->base += d->fill - keep;
    d->at = d->fill = keep;
    int64_t n = stg_source_read(d->inner, d->base + keep, d->input->data + keep,
                                d->input->capacity - keep, err);
    if (n < 0) {
        d->source.spoiled = d->inner->spoiled;
        return (int)n;
    }
    d->fill += (uint64_t)n;
    d->at_end = n == 0;
    return 0;
}

static int spoiled(struct decompress *d, const char *what, struct stg_err *err)
{
    d->source.spoiled = true;
    return stg_err(err, -STAGER_DATA_LOSS,
                   "%s: the %s stream at offset %" PRIu64 ", after %" PRIu64
                   " bytes of data: %s; the rest of the file is lost",
                   d->config.path, d->codec->name, d->base + d->at, d->position, what);
}

static void skip_zeros(struct decompress *d)
{
    if (!d->codec->zeros || d->position == 0)
        return;
    while (d->at < d->fill && d->input->data[d->at] == 0)
        d->at++;
}

/* Decodes up to `bytes` into buf. *ret 0: the end. */
static int decode(struct decompress *d, void *buf, uint64_t bytes, uint64_t *ret,
                  struct stg_err *err)
{
    for (;;) {
        int rc = refill(d, err);
        if (rc < 0)
            return rc;
        if (!d->inside) {
            skip_zeros(d);
            if (d->at == d->fill && d->at_end) {
                *ret = 0;
                return 0;
            }
            if (d->at == d->fill)
                continue;
            d->inside = true;
        }
        struct stg_coding io = {.in = (const uint8_t *)d->input->data + d->at,
                                .in_bytes = d->fill - d->at,
                                .out = buf,
                                .out_bytes = bytes};
        struct stg_err why;
        rc = d->codec->decode(d->state, &io, &why);
        uint64_t taken = d->fill - d->at - io.in_bytes, made = bytes - io.out_bytes;
        if (rc == -STAGER_DATA_LOSS)
            return spoiled(d, why.text, err);
        if (rc < 0)
            return stg_err(err, rc, "%s: %s", d->config.path, why.text);
        d->at += taken;
        d->position += made;
        d->inside = rc != STG_CODEC_END;
        if (made > 0) {
            *ret = made;
            return 0;
        }
        if (d->inside && taken == 0 && d->at_end)
            return spoiled(d, "the file ends inside it", err);
    }
}

static int check_stopped(const struct decompress *d, struct stg_err *err)
{
    const _Atomic int *stopped = d->config.stopped;
    if (stopped != NULL && atomic_load_explicit(stopped, memory_order_relaxed) != 0)
        return stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
    return 0;
}

static int decode_piece(struct decompress *d, void *buf, uint64_t bytes, uint64_t *ret)
{
    int rc = d->failed;
    if (rc == 0)
        rc = check_stopped(d, &d->failure);
    if (rc == 0)
        rc = decode(d, buf, bytes < PIECE_BYTES ? bytes : PIECE_BYTES, ret, &d->failure);
    d->failed = rc;
    return rc;
}

/* What comes before `offset` is decoded into buf and forgotten. */
static int64_t decompress_read(struct stg_source *source, uint64_t offset, void *buf,
                               size_t bytes, struct stg_err *err)
{
    struct decompress *d = (struct decompress *)source;
    uint64_t done = 0, n = 1;
    int rc = 0;
    assert(offset >= d->position);
    while (rc == 0 && n > 0 && d->position < offset) {
        uint64_t most = offset - d->position;
        rc = decode_piece(d, buf, most < bytes ? most : bytes, &n);
    }
    while (rc == 0 && n > 0 && done < bytes) {
        rc = decode_piece(d, (char *)buf + done, bytes - done, &n);
        done += rc == 0 ? n : 0;
    }
    if (rc < 0 && done == 0) {
        if (err != NULL)
            *err = d->failure;
        return rc;
    }
    return (int64_t)done;
}

static int decompress_size(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    const struct decompress *d = (struct decompress *)source;
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "%s: the size of compressed data is not known", d->config.path);
}

static void decompress_close(struct stg_source *source)
{
    struct decompress *d = (struct decompress *)source;
    if (d == NULL)
        return;
    d->codec->destroy(d->state);
    stg_chunk_unref(d->input);
    if (d->inner != NULL)
        d->inner->storage->close(d->inner);
    free(d);
}

static const struct stg_storage decompress_storage = {.scheme = "decompress",
                                                      .read = decompress_read,
                                                      .size = decompress_size,
                                                      .close = decompress_close};

/* ---- opening ---- */

static uint64_t input_bytes(const struct stg_quota *quota)
{
    uint64_t share = stg_quota_limit(quota) / INPUT_SHARE;
    return share < INPUT_BYTES ? share : INPUT_BYTES;
}

static int open_codec(const struct stg_decompress_config *config,
                      const struct stg_codec *codec, struct stg_source **source,
                      struct stg_err *err)
{
    struct decompress *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory",
                       config->path);
    d->source.storage = &decompress_storage;
    d->config = *config;
    d->codec = codec;
    int rc = codec->create(config->quota, &d->state, err);
    if (rc == 0)
        rc = stg_chunk_create(config->quota, input_bytes(config->quota),
                              "what is read of a compressed file", &d->input, err);
    if (rc < 0) {
        decompress_close(&d->source);
        return stg_err_prefix(err, rc, "%s", config->path);
    }
    d->inner = *source;
    *source = &d->source;
    return 0;
}

int stg_decompress_open(const struct stg_decompress_config *config,
                        struct stg_source **source, struct stg_err *err)
{
    if (is_none(config->type))
        return 0;
    const struct stg_codec *codec = NULL;
    int rc = 0;
    if (is_auto(config->type))
        rc = detect(*source, &codec, err);
    else
        codec = find(config->type);
    return rc < 0 || codec == NULL ? rc : open_codec(config, codec, source, err);
}
