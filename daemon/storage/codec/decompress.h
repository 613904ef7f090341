/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer between storage and formats: a source whose bytes are another one's,
 * decompressed as they are read. It reads forward only and has no size. Its memory is
 * bounded and counted on the quota. One thread at a time.
 */
#ifndef STG_DAEMON_DECOMPRESS_H
#define STG_DAEMON_DECOMPRESS_H

#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

struct stg_decompress_config {
    const char *type;           /* "gzip", "zlib", "zstd", "lz4", "snappy", "none" or "",
                                   "auto"; in any case of letters */
    const char *path;           /* for texts; borrowed for the source's life, as are: */
    struct stg_quota *quota;    /* what it takes is counted here */
    const _Atomic int *stopped; /* not 0: CANCELLED soon; NULL: never */
};

/* INVALID_ARGUMENT names the types that there are. */
int stg_decompress_check(const char *type, struct stg_err *err);

/* Puts the layer over *source, which then belongs to it. "auto": where the first bytes of
 * *source say so, as gzip, zstd, lz4 and
 * framed snappy do. On failure *source is as it was.
 *
 * Its reads fail with DATA_LOSS where the stream is damaged or truncated, and the source
 * is spoiled (struct stg_source). Of the bytes before that, at most the last 256 KiB are
 * lost too, those that the library decodes in one call with the damage. */
int stg_decompress_open(const struct stg_decompress_config *config,
                        struct stg_source **source, struct stg_err *err);

#endif
