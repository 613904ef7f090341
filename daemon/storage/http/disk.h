/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges of remote objects, kept on a disk for the next time: remote.cache_dir. A range
 * is a file. Its name is a hash of the object's URL and version and of the place in it;
 * the file holds all of them, and is used only if they are equal to what is asked for.
 * It holds a sum of its bytes, so that one that was truncated or damaged by a crash is
 * none. No locks, no index: whatever is left behind is used or thrown away. The files
 * that were not used for longest go when they are too many.
 *
 * This file does not decide which user may read an object: the server is asked before
 * anything that was kept is used. Any thread.
 */
#ifndef STG_DAEMON_DISK_H
#define STG_DAEMON_DISK_H

#include "daemon/storage/http/fetch.h"

/* dir "": nothing is kept. Makes the folder, and looks through what is in it. Errors:
 * FAILED_PRECONDITION (with the system's words); then nothing is kept. */
int stg_disk_configure(const char *dir, uint64_t most_bytes, struct stg_err *err);
void stg_disk_finish(void);

/* The range to buf, or false: it is not there. */
bool stg_disk_get(const char *url, const struct stg_version *version, uint64_t begin,
                  void *buf, uint64_t bytes);
/* What cannot be kept is not. */
void stg_disk_put(const char *url, const struct stg_version *version, uint64_t begin,
                  const void *buf, uint64_t bytes);

/* The version of which something was kept last, or false. */
bool stg_disk_version(const char *url, struct stg_version *ret);
void stg_disk_put_version(const char *url, const struct stg_version *version);

#endif
