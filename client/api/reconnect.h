/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream whose stagerd has ended waits for it, and goes on where the trainer is. It
 * opens another stream with its state, and exchanges the contents of the two. What it had
 * of the stagerd before retires: batches in hand stay readable. A stream that follows its
 * pipeline does the same when that was replaced.
 *
 * No step waits, so that stager_next with timeout 0 does not either:
 *
 *     connect ──► hello ──► open ──► join ──► exchange
 *        ▲          └────────┴────────┘ the socket ends, UNAVAILABLE
 *        └──────────────────────────── again after 10 to 200 ms
 */
#ifndef STG_CLIENT_API_RECONNECT_H
#define STG_CLIENT_API_RECONNECT_H

#include "client/stream/stream.h"

/* Keeps what a later open of the same stream needs, if stagerd takes it up again
 * (rejoin), or the stream follows. RESOURCE_EXHAUSTED. */
int stg_reconnect_keep(struct stager_stream *stream, const char *name,
                       const struct stager_options *options,
                       const struct stg_rejoin *rejoin, struct stg_err *err);

/* Returns whether rc, of stager_next, is an end after which the stream goes on. */
static inline bool stg_reconnect_is_due(const struct stager_stream *stream, int rc)
{
    return rc < 0 && rc == stream->finished && stg_stream_goes_on(stream);
}

/* Waits until the stream is connected again. DEADLINE_EXCEEDED: not yet; `late` is set.
 * RESOURCE_EXHAUSTED: call it again. Otherwise the stream is over, with that code:
 *   UNAVAILABLE: stagerd did not come back within daemon_reconnect_millis.
 *   ABORTED, FAILED_PRECONDITION, NOT_FOUND: it does not take the stream up; the text has
 *     the reason.
 *   Any code of an open: the stream cannot go on with the next version. */
int stg_reconnect_until(struct stager_stream *stream, int64_t deadline_ns);

/* Commits for a stream whose stagerd has ended, at the one after it, and waits for that
 * as stg_reconnect_until does. The stream stays as it is: its run waits for all clients,
 * and they may wait for this commit. limit_ns: for the answer. Errors: as stager_commit.
 */
int stg_reconnect_commit(struct stager_stream *stream, const char *state, const char *tag,
                         int64_t limit_ns);

/* Returns what a wait for the stream watches: a descriptor, or -1: only the time *ret_ns,
 * after which stager_next is to be called in any case. */
int stg_reconnect_watched(const struct stager_stream *stream, int64_t *ret_ns);

#endif
