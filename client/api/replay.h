/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream that measures what a perfect loader would give its trainer
 * (stager_options.replay_batches): batches of a private run, then some of them again and
 * again, from memory. Keeps their leases. None of its batches is training data: it has no
 * state, commits nothing, and does not reconnect.
 */
#ifndef STG_CLIENT_API_REPLAY_H
#define STG_CLIENT_API_REPLAY_H

#include "client/stream/stream.h"

/* Completes the options of a stream that replays; changes no others. INVALID_ARGUMENT:
 * another option excludes replay_batches. */
int stg_replay_options(struct stager_options *options, struct stg_err *err);

/* Makes stream->replay if the options ask for it. RESOURCE_EXHAUSTED. */
int stg_replay_create(struct stager_stream *stream, const struct stager_options *options,
                      struct stg_err *err);

/* Returns whether the next batch is one that the trainer had before. */
static inline bool stg_replay_is_on(const struct stager_stream *stream)
{
    return stream->replay != NULL && stream->replay->is_on;
}

/* rc and *ret: what was taken from the ring, before the replay; then they are not read.
 * Returns as stager_next. */
int stg_replay_next(struct stager_stream *stream, int rc, struct stager_batch **ret);

/* Returns 0, or FAILED_PRECONDITION for a stream that replays. what: "has no state". */
int stg_replay_refuses(struct stager_stream *stream, const char *what);

/* The stream closes: leases that the trainer does not hold go back, or are forgotten. */
void stg_replay_leave(struct stager_stream *stream, bool parted);

/* Writes the counters. */
void stg_replay_info(const struct stager_stream *stream, struct stager_stream_info *ret);

void stg_replay_destroy(struct stg_replay *replay);

#endif
