/* SPDX-License-Identifier: Apache-2.0
 *
 * Small text files: settings, pipelines. Any thread.
 */
#ifndef STG_DAEMON_HOST_TEXT_FILE_H
#define STG_DAEMON_HOST_TEXT_FILE_H

#include <stddef.h>
#include <sys/stat.h>

#include "core/err.h"

struct stg_text_part {
    const char *bytes;
    size_t n;
};

/* Replaces the content of a file by these parts: written beside as `temporary`, synced,
 * renamed. A reader sees the old content or the new one, also after a power failure.
 * Returns 0, or -1 with errno; *ret_failed is the path of the call that failed. */
int stg_text_file_replace(const char *path, const char *temporary,
                          const struct stg_text_part *parts, size_t n_parts,
                          const char **ret_failed);

/* The same without a wait for the disk: after a power failure the file may be empty or
 * cut, which its reader has to notice. */
int stg_text_file_replace_soon(const char *path, const char *temporary,
                               const struct stg_text_part *parts, size_t n_parts,
                               const char **ret_failed);

/* Reads a file of at most `limit` bytes and ends it with NUL; the caller frees. Fills
 * ret_stat and then accepts a regular file alone; NULL: a pipe will do. NOT_FOUND,
 * PERMISSION_DENIED ... with the path and the system's reason. */
int stg_text_file_read(const char *path, size_t limit, struct stat *ret_stat, char **ret,
                       size_t *ret_bytes, struct stg_err *err);

#endif
