/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the trainer is in its stream: the state that stager_state writes. It follows
 * what stager_next returns, and not what was taken from the ring.
 */
#ifndef STG_CLIENT_STREAM_PROGRESS_H
#define STG_CLIENT_STREAM_PROGRESS_H

#include "client/stream/stream.h"

/* Checks the options of states, before the daemon is asked. INVALID_ARGUMENT. */
int stg_progress_check(const struct stager_options *options, struct stg_err *err);

/* Returns the commit that the options begin at, as the request names it; NULL: none. */
const char *stg_progress_resume(const struct stager_options *options);

/* Begins where the reply and the state of the options say. */
int stg_progress_begin(struct stager_stream *stream, const struct stg_reply *reply,
                       const struct stager_options *options, const char *client_id,
                       struct stg_err *err);

/* stager_next returns that batch. Its header is read later: by stg_progress_leave, or
 * when the state is asked for. */
void stg_progress_batch(struct stager_stream *stream, const struct stager_batch *batch);

/* The staged batch is about to leave this client. */
void stg_progress_leave(struct stager_stream *stream, const struct stg_leased *leased);

/* An error item, whose header lies at base, was taken; stager_next returns it. */
void stg_progress_note_error(struct stager_stream *stream, const void *base,
                             bool is_carried);
void stg_progress_error(struct stager_stream *stream);

/* The trainer asks for the next pass. */
void stg_progress_rewind(struct stager_stream *stream);

/* Returns the state with which the stream reconnects; *ret_has false: it has taken
 * nothing, and has no place. Errors: as stg_progress_state, but one: what stagerd wrote
 * as it ended is read as it is. */
int stg_progress_lost(struct stager_stream *stream, bool *ret_has, struct stg_state *ret,
                      struct stg_err *err);

/* Returns the state. FAILED_PRECONDITION: it is not known, or not exact. */
int stg_progress_state(struct stager_stream *stream, bool is_ahead, struct stg_state *ret,
                       struct stg_err *err);

#endif
