/* SPDX-License-Identifier: Apache-2.0
 *
 * The metadata of remote files that are read in places (footers, and all other ranges
 * that no reader announced), kept in memory for the next time that a file is opened: the
 * next pass, or the reader that counts its rows. At most 16 MiB for the whole process;
 * the least recently used go first. As in disk.h, the caller asks the server before it
 * uses them. Any thread.
 */
#ifndef STG_DAEMON_RECENT_H
#define STG_DAEMON_RECENT_H

#include "daemon/storage/http/fetch.h"

/* Copies `bytes` from begin on to buf. Returns false if they are not there. */
bool stg_recent_get(const char *url, const struct stg_version *version, uint64_t begin,
                    void *buf, uint64_t bytes);
/* Adds bytes. Ignores those of a version that the server does not name, more than 1 MiB,
 * and failures. */
void stg_recent_put(const char *url, const struct stg_version *version, uint64_t begin,
                    const void *buf, uint64_t bytes);
void stg_recent_finish(void);

#endif
