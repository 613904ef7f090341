/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk cache of ranges of remote objects: remote.cache_dir. Each range is a file. Its
 * name is a hash of the object's URL, its version and the offset. The file contains all
 * three, and is used only if they equal those of the request. It also contains a
 * checksum, so that a file that a crash truncated or damaged is not used. There are no
 * locks and no index: any file left behind is either used or deleted. Above the size
 * limit, the least recently used files are deleted.
 *
 * The cache does not decide which user may read an object: the caller asks the server
 * before it uses cached data. Any thread.
 */
#ifndef STG_DAEMON_DISK_H
#define STG_DAEMON_DISK_H

#include "daemon/storage/http/fetch.h"

/* Creates the directory, and scans its files. dir "": no cache. FAILED_PRECONDITION (with
 * the system's error text): then there is no cache. */
int stg_disk_configure(const char *dir, uint64_t most_bytes, struct stg_err *err);
void stg_disk_finish(void);

/* Copies a cached range to buf. Returns false if it is not in the cache. */
bool stg_disk_get(const char *url, const struct stg_version *version, uint64_t begin,
                  void *buf, uint64_t bytes);
/* Adds a range to the cache. Ignores failures. */
void stg_disk_put(const char *url, const struct stg_version *version, uint64_t begin,
                  const void *buf, uint64_t bytes);

/* Returns the version that was cached last, or false if there is none. */
bool stg_disk_version(const char *url, struct stg_version *ret);
void stg_disk_put_version(const char *url, const struct stg_version *version);

#endif
