/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes what comes next from the ring.
 */
#ifndef STG_CLIENT_STREAM_TAKE_H
#define STG_CLIENT_STREAM_TAKE_H

#include "client/stream/stream.h"

/* stager_next as it is without a device, and uncounted. */
int stg_stream_take(struct stager_stream *stream, int64_t timeout_millis,
                    struct stager_batch **ret);

/* Hands out a batch of this lease, or its next slice, once more: sets stream->current as
 * long as slices are left. Reads nothing from the ring. FAILED_PRECONDITION: all handles
 * are in hand. */
int stg_stream_take_again(struct stager_stream *stream, struct stg_leased *leased,
                          struct stager_batch **ret);

#endif
