/* SPDX-License-Identifier: Apache-2.0
 *
 * What a namenode answers, in JSON. What is not understood is passed over; nothing in it
 * is trusted. Pure; any thread.
 */
#ifndef STG_DAEMON_HDFS_H
#define STG_DAEMON_HDFS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

struct stg_hdfs_status {
    char name[NAME_MAX + 1]; /* in its directory; "": of what was asked for itself */
    bool is_directory;
    uint64_t length, modified, id;
};

/* The answer to GETFILESTATUS. DATA_LOSS: it is none. */
int stg_hdfs_status(const char *text, size_t bytes, struct stg_hdfs_status *ret,
                    struct stg_err *err);

/* Called for each entry; a negative code ends it and is returned. */
typedef int stg_hdfs_entry(void *owner, const struct stg_hdfs_status *status,
                           struct stg_err *err);

/* The answer to LISTSTATUS. DATA_LOSS: it is none. */
int stg_hdfs_list(const char *text, size_t bytes, stg_hdfs_entry *found, void *owner,
                  struct stg_err *err);

/* What a refusal says: exception and message, truncated to the room for them, "" without
 * one. The text may end anywhere, and be no JSON. */
void stg_hdfs_refusal(const char *text, size_t bytes, char *exception,
                      size_t exception_bytes, char *message, size_t message_bytes);

#endif
