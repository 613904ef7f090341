/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a data file with all of its columns, which may take several replies.
 * One thread at a time.
 */
#ifndef STG_STAGERCTL_COLLECT_H
#define STG_STAGERCTL_COLLECT_H

#include "client/transport/admin.h"

/* Sends a request and waits for its reply. */
typedef int stg_collect_ask(void *owner, struct stg_request *request,
                            struct stg_reply *ret, struct stg_err *err);

/* Describes a file, or the first one of a pattern; a relative path is one of the working
 * directory. The result is in bump. Errors are those of ask; RESOURCE_EXHAUSTED;
 * ABORTED: the file changed between two replies. */
int stg_collect_schema(stg_collect_ask *ask, void *owner, const char *url,
                       struct stg_bump *bump, struct stg_file_schema *ret,
                       struct stg_err *err);

/* Returns a path as a pattern of `files`: absolute, or a url as it is. The name of a file
 * that is there is no pattern: its wildcards are escaped. NULL: out of memory, or there
 * is no working directory. */
const char *stg_collect_pattern(const char *path, struct stg_bump *bump);

#endif
