/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer over a file that is read past the page cache (O_DIRECT): whole pages, into
 * its own memory, so that a reader may ask for any bytes. What is read once does not
 * evict other pages from the cache; nothing is read twice from memory either, and the
 * kernel reads nothing ahead.
 */
#ifndef STG_DAEMON_DIRECT_H
#define STG_DAEMON_DIRECT_H

#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

/* Puts the layer over *source, which then belongs to it. Each read takes 512 KiB of the
 * quota, borrowed for the source's life as is path, for as long as it lasts. On failure
 * *source is as it was: INVALID_ARGUMENT where its storage, or the file system, cannot;
 * RESOURCE_EXHAUSTED. Threads as any source. */
int stg_direct_open(struct stg_quota *quota, const char *path, struct stg_source **source,
                    struct stg_err *err);

#endif
