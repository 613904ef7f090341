/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that is described. One thread.
 */
#ifndef STG_DAEMON_DESCRIBE_FILE_H
#define STG_DAEMON_DESCRIBE_FILE_H

#include "daemon/format/describing.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

#define STG_DESCRIBE_HEAD_BYTES 65536u

/* The first fields are the caller's; user and quota outlive it. */
struct stg_described_file {
    const char *url;
    const struct stg_file_user *user;
    struct stg_quota *quota;
    struct stg_describing *to;

    char shown[512];           /* the url, for texts */
    struct stg_source *source; /* NULL: closed */
    bool is_compressed;
    bool is_storage;        /* the last error is one of the storage, and has the url */
    struct stg_chunk *head; /* the first bytes, decompressed */
    uint64_t head_bytes;
    bool is_whole; /* the head is all of the file */
};

/* Opens the file, decompresses it if its first bytes say so, and reads its head. The
 * caller closes it, also on failure. Errors as those of the storage. */
int stg_described_open(struct stg_described_file *file, struct stg_err *err);
void stg_described_close(struct stg_described_file *file);

/* Begins again at the start of the file: a source that decompresses reads forward only.
 */
int stg_described_rewind(struct stg_described_file *file, struct stg_err *err);

#endif
