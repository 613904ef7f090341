/* SPDX-License-Identifier: Apache-2.0
 *
 * Decompresses pages: pieces of a file whose size is known before, and that are whole.
 * One thread at a time.
 */
#ifndef STG_DAEMON_PAGE_CODEC_H
#define STG_DAEMON_PAGE_CODEC_H

#include "daemon/storage/chunk.h"

enum stg_page_codec {
    STG_PAGE_PLAIN = 0,
    STG_PAGE_SNAPPY,
    STG_PAGE_GZIP,
    STG_PAGE_ZSTD,
    STG_PAGE_LZ4, /* a block, without a frame */
    STG_PAGE_LZ4_FRAME
};

/* What codecs keep between pages. A zeroed one is initialised, but for quota. */
struct stg_page_codecs {
    struct stg_quota *quota;    /* borrowed */
    void *zstd, *inflate, *lz4; /* NULL: not needed yet */
    uint64_t lz4_bytes;         /* blocks of lz4 */
    uint64_t taken;             /* of the quota */
};

void stg_page_codecs_finish(struct stg_page_codecs *codecs);

/* Fills `out` with exactly out_bytes. DATA_LOSS with the reason; RESOURCE_EXHAUSTED. */
int stg_page_decompress(struct stg_page_codecs *codecs, enum stg_page_codec codec,
                        const void *in, uint64_t in_bytes, void *out, uint64_t out_bytes,
                        struct stg_err *err);

/* Returns the CRC-32 of gzip. */
uint32_t stg_page_crc32(const void *data, uint64_t bytes);

#endif
