/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a `cache` step: blocks, written once, in order, and valid only if complete.
 * The writer locks and writes PATH.part, and renames it once every byte is on the disk. A
 * crash leaves an unlocked .part, which the next writer takes over. The path contains the
 * key of the content (stg_cache_path), so that entries of different content can coexist.
 * A reader trusts nothing: it refuses a file that is not a cache, has another key or
 * version, or is truncated or damaged. The error has the path and the remedy. No file is
 * ever replaced.
 *
 * The file belongs to the daemon, in a directory that the applier may write to. One
 * thread at a time.
 */
#ifndef STG_DAEMON_CACHE_FILE_H
#define STG_DAEMON_CACHE_FILE_H

#include "daemon/dataset/dataset.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Incremented when the format changes. */
#define STG_CACHE_VERSION 2

/* Identifies the content. */
struct stg_cache_key {
    uint64_t steps; /* the steps before the cache, with their parameters */
    uint64_t files; /* of the pass, with their versions */
    uint32_t uid;   /* of the applier */
    uint32_t reserved;
};

/* Returns the path of the entry of that key, "FILENAME.0123456789abcdef", or NULL if
 * memory runs out. The caller frees it. */
char *stg_cache_path(const char *filename, const struct stg_cache_key *key);

struct stg_cache_reader;
struct stg_cache_writer;

/* Opens an entry. Returns 1 if the file does not exist. FAILED_PRECONDITION: it belongs
 * to other content; DATA_LOSS: it is damaged; PERMISSION_DENIED. */
int stg_cache_open(const char *path, const struct stg_file_user *identity,
                   const struct stg_cache_key *key, struct stg_cache_reader **ret,
                   struct stg_err *err);
/* Reads the next block. Returns 1 at the end. DATA_LOSS, or as stg_block_create. */
int stg_cache_read(struct stg_cache_reader *reader, struct stg_quota *quota,
                   const struct stg_schema *schema, struct stg_block **ret,
                   struct stg_err *err);
void stg_cache_close(struct stg_cache_reader *reader); /* NULL is allowed */

/* Begins an entry. Returns 1 if another dataset is writing it now. */
int stg_cache_create(const char *path, const struct stg_file_user *identity,
                     const struct stg_cache_key *key, struct stg_cache_writer **ret,
                     struct stg_err *err);
/* Writes a block, without a reference to it afterwards. It must not be an error block,
 * and must be compact (from stg_block_gather), because all of its string data is written.
 */
int stg_cache_write(struct stg_cache_writer *writer, const struct stg_block *block,
                    struct stg_err *err);
/* Syncs and renames the file. Destroys the writer, also on failure. */
int stg_cache_commit(struct stg_cache_writer *writer, struct stg_err *err);
/* Destroys the writer and deletes its file. NULL is allowed. */
void stg_cache_abandon(struct stg_cache_writer *writer);

#endif
