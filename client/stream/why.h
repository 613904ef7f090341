/* SPDX-License-Identifier: Apache-2.0
 *
 * What a late stream waits for.
 */
#ifndef STG_CLIENT_STREAM_WHY_H
#define STG_CLIENT_STREAM_WHY_H

#include "client/stream/stream.h"

/* The deadline of `next` has passed. DEADLINE_EXCEEDED in stream->err, with what stagerd
 * says, in 25 ms at most, that the stream waits for. 0: a descriptor came meanwhile. */
int stg_stream_say_late(struct stager_stream *stream, int64_t timeout_millis);

#endif
