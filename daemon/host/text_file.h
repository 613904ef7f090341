/* SPDX-License-Identifier: Apache-2.0
 *
 * Small text files: settings, pipelines. Any thread.
 */
#ifndef STG_DAEMON_HOST_TEXT_FILE_H
#define STG_DAEMON_HOST_TEXT_FILE_H

#include <stddef.h>
#include <sys/stat.h>

#include "core/err.h"

/* Reads a file of at most `limit` bytes and ends it with NUL; the caller frees. Fills
 * ret_stat and then accepts a regular file alone; NULL: a pipe will do. NOT_FOUND,
 * PERMISSION_DENIED ... with the path and the system's reason. */
int stg_text_file_read(const char *path, size_t limit, struct stat *ret_stat, char **ret,
                       size_t *ret_bytes, struct stg_err *err);

#endif
