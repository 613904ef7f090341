/* SPDX-License-Identifier: Apache-2.0
 *
 * The descriptor of stager_pollfd: it stays the same one when the stream reconnects, also
 * for an event loop that keeps a registration of it.
 */
#ifndef STG_CLIENT_API_POLL_H
#define STG_CLIENT_API_POLL_H

#include "client/stream/stream.h"

/* Opens it at the first call. Returns the descriptor, or RESOURCE_EXHAUSTED. */
int stg_poll_open(struct stager_stream *stream);

/* It wakes when `fd` is readable; -1: at at_ns. Does nothing before stg_poll_open. */
void stg_poll_watch(struct stg_poll *poll, int fd, int64_t at_ns);

/* NULL is allowed. */
void stg_poll_destroy(struct stg_poll *poll);

#endif
