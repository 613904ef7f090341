/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer to `stagerctl schema`: opens a file, or the first one of a pattern, on
 * behalf of a user, finds its format by its first bytes, and describes its columns. A
 * thread does that (daemon/host/bounded.h). Memory is limited, and so is the time that
 * the caller waits. Any thread.
 */
#ifndef STG_DAEMON_DESCRIBE_H
#define STG_DAEMON_DESCRIBE_H

#include "core/file/schema.h"
#include "daemon/host/identity.h"

/* Copied, but for stopped. */
struct stg_describe_config {
    const char *url;                     /* or a pattern, as of the step `files` */
    uint32_t first;                      /* number of the first column that is kept */
    const struct stg_identity *identity; /* of the asking user */
    uint64_t wait_ns;
    const _Atomic int *stopped; /* not 0: CANCELLED soon; NULL: never */
};

struct stg_description;

/* Waits. Errors are those of the storage and of the format; INVALID_ARGUMENT: no format
 * that stager reads; DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED: several descriptions are made
 * already. */
int stg_describe(const struct stg_describe_config *config, struct stg_description **ret,
                 struct stg_err *err);

/* Waits for the threads that read files of other machines, after all of them were
 * stopped, so that the fetchers can be freed. At the end of the daemon. */
void stg_describe_finish(void);

/* The description, until it is freed. The caller may shorten it. */
struct stg_file_schema *stg_description_schema(struct stg_description *description);
void stg_description_free(struct stg_description *description); /* NULL is allowed */

#endif
