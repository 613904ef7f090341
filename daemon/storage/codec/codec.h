/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of decompress.c: one kind of compression, one file, one line in its table. A
 * codec takes bytes and makes bytes, in pieces of any size; it opens and reads nothing.
 * One thread.
 */
#ifndef STG_DAEMON_CODEC_H
#define STG_DAEMON_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/storage/chunk.h"

/* What there is to read and room to write; both move on. When a stream ends, `in` may
 * also go back, by up to STG_CODEC_BACK bytes of what was given before. */
#define STG_CODEC_BACK 8

struct stg_coding {
    const uint8_t *in;
    uint64_t in_bytes;
    uint8_t *out;
    uint64_t out_bytes;
};

enum stg_codec_rc {
    STG_CODEC_MORE = 0, /* it wants more of either */
    STG_CODEC_END = 1   /* a stream ended; another one may follow */
};

struct stg_codec {
    const char *name;
    uint8_t magic[4]; /* what its streams begin with */
    uint8_t n_magic;  /* 0: nothing that text could not begin with, too */
    bool zeros;       /* behind a stream, zero bytes are no stream */

    int (*create)(struct stg_quota *quota, void **ret, struct stg_err *err);
    void (*destroy)(void *state); /* NULL is allowed */
    /* An enum stg_codec_rc; DATA_LOSS says what is wrong with the stream;
     * RESOURCE_EXHAUSTED. After an error only destroy. */
    int (*decode)(void *state, struct stg_coding *io, struct stg_err *err);
};

extern const struct stg_codec stg_codec_gzip, stg_codec_zlib, stg_codec_zstd,
    stg_codec_lz4, stg_codec_snappy;

/* All of them (decompress.c). */
const struct stg_codec *const *stg_codecs(size_t *ret_n);

#endif
