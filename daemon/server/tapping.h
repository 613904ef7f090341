/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that waits for a summary of the next batch of a pipeline
 * (daemon/stage/tap.h): until there is one, its time is over, the definition is replaced
 * or deleted, the connection ends or the daemon stops. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_TAPPING_H
#define STG_DAEMON_SERVER_TAPPING_H

#include "daemon/server/session.h"

#define STG_TAP_MAX_MILLIS 8000u /* a client waits 10 s for a reply */

/* Sends the reply, or the error if its code is not 0. May close the session. */
typedef void stg_tapping_done(struct stg_session *session, const struct stg_reply *reply,
                              const struct stg_err *err);

/* Begins to wait; `done` is called once, later, unless stg_tapping_end comes first.
 * INVALID_ARGUMENT: millis. RESOURCE_EXHAUSTED: out of memory. */
int stg_tapping_begin(struct stg_session *session, struct stg_pipeline *pipeline,
                      const struct stg_request *request, stg_tapping_done *done,
                      struct stg_err *err);

/* Nothing happens when it does not wait. */
void stg_tapping_end(struct stg_session *session);

#endif
