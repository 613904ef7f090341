/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks in a file, for `cache`: written once, in order, and valid only when whole. The
 * writer works on PATH.part, which it has locked, and gives it its name when every byte
 * is on the disk: a crash leaves a .part without a lock, which the next writer takes
 * over. The path has the key of the content in it (stg_cache_path), so that entries of
 * several contents lie side by side. A reader trusts nothing: it refuses a file that is
 * no cache, has another key or version, or is truncated or damaged. The error has the
 * path and what to do. No file is ever replaced.
 *
 * The file is the daemon's own, in a folder where the applier may write. One thread at a
 * time.
 */
#ifndef STG_DAEMON_CACHE_FILE_H
#define STG_DAEMON_CACHE_FILE_H

#include "daemon/dataset/dataset.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Raised when blocks are written otherwise. */
#define STG_CACHE_VERSION 2

/* Identifies the content. */
struct stg_cache_key {
    uint64_t steps; /* before the cache, with their parameters */
    uint64_t files; /* of the pass, with their versions */
    uint32_t uid;   /* of the applier */
    uint32_t reserved;
};

/* "FILENAME.0123456789abcdef": where the entry of that key lies. NULL: out of memory. The
 * caller frees it. */
char *stg_cache_path(const char *filename, const struct stg_cache_key *key);

struct stg_cache_reader;
struct stg_cache_writer;

/* 1: there is no such file. FAILED_PRECONDITION: it is another one's; DATA_LOSS: it is
 * damaged; PERMISSION_DENIED. */
int stg_cache_open(const char *path, const struct stg_file_user *identity,
                   const struct stg_cache_key *key, struct stg_cache_reader **ret,
                   struct stg_err *err);
/* The next block; 1 at the end. DATA_LOSS, or as stg_block_create. */
int stg_cache_read(struct stg_cache_reader *reader, struct stg_quota *quota,
                   const struct stg_schema *schema, struct stg_block **ret,
                   struct stg_err *err);
void stg_cache_close(struct stg_cache_reader *reader); /* NULL is allowed */

/* 1: another dataset is writing it now. */
int stg_cache_create(const char *path, const struct stg_file_user *identity,
                     const struct stg_cache_key *key, struct stg_cache_writer **ret,
                     struct stg_err *err);
/* Nothing of the block is kept. It must be compact (of stg_block_gather): all the bytes
 * that its strings lie in are written. No error block. */
int stg_cache_write(struct stg_cache_writer *writer, const struct stg_block *block,
                    struct stg_err *err);
/* Puts it on the disk and gives it its name; ends the writer, also on failure. */
int stg_cache_commit(struct stg_cache_writer *writer, struct stg_err *err);
/* Ends the writer, and what it wrote. NULL is allowed. */
void stg_cache_abandon(struct stg_cache_writer *writer);

#endif
