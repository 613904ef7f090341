/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the JSON answers of a WebHDFS namenode. Unknown members are skipped, and the
 * input is not trusted. Pure; any thread.
 */
#ifndef STG_DAEMON_HDFS_H
#define STG_DAEMON_HDFS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

struct stg_hdfs_status {
    char name[NAME_MAX + 1]; /* in its directory; "": the requested path itself */
    bool is_directory;
    uint64_t length, modified, id;
};

/* Parses the answer to GETFILESTATUS. DATA_LOSS: the text is not such an answer. */
int stg_hdfs_status(const char *text, size_t bytes, struct stg_hdfs_status *ret,
                    struct stg_err *err);

/* Called for each entry. A negative code ends the list, and stg_hdfs_list returns it. */
typedef int stg_hdfs_entry(void *owner, const struct stg_hdfs_status *status,
                           struct stg_err *err);

/* Parses the answer to LISTSTATUS. DATA_LOSS: the text is not such an answer. */
int stg_hdfs_list(const char *text, size_t bytes, stg_hdfs_entry *found, void *owner,
                  struct stg_err *err);

/* Extracts the exception and the message of an error answer, truncated to their buffers;
 * "" if there is none. The text may be cut off anywhere, or not be JSON. */
void stg_hdfs_refusal(const char *text, size_t bytes, char *exception,
                      size_t exception_bytes, char *message, size_t message_bytes);

#endif
