/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to decompress.c: each compression format has one file and one line in its
 * table. A codec converts bytes to bytes, in pieces of any size; it does no I/O. One
 * thread.
 */
#ifndef STG_DAEMON_CODEC_H
#define STG_DAEMON_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/storage/chunk.h"

/* The input and the output buffer; decode advances both. At the end of a stream, `in` may
 * also move back, by at most STG_CODEC_BACK bytes of earlier input. */
#define STG_CODEC_BACK 8

struct stg_coding {
    const uint8_t *in;
    uint64_t in_bytes;
    uint8_t *out;
    uint64_t out_bytes;
};

enum stg_codec_rc {
    STG_CODEC_MORE = 0, /* it needs more input or more room */
    STG_CODEC_END = 1   /* a stream has ended; another may follow */
};

struct stg_codec {
    const char *name;
    uint8_t magic[4]; /* the first bytes of its streams */
    uint8_t n_magic;  /* 0: text could begin with the same bytes */
    bool zeros;       /* zero bytes after a stream are padding */

    int (*create)(struct stg_quota *quota, void **ret, struct stg_err *err);
    void (*destroy)(void *state); /* NULL is allowed */
    /* Returns an enum stg_codec_rc; DATA_LOSS with the fault of the stream; or
     * RESOURCE_EXHAUSTED. After an error the caller may only call destroy. */
    int (*decode)(void *state, struct stg_coding *io, struct stg_err *err);
};

extern const struct stg_codec stg_codec_gzip, stg_codec_zlib, stg_codec_zstd,
    stg_codec_lz4, stg_codec_snappy;

/* Returns all codecs (decompress.c). */
const struct stg_codec *const *stg_codecs(size_t *ret_n);

#endif
