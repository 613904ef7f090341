/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that traces a pipeline (core/trace.h): it gets a trace page, which fills
 * up until its time is over, the connection ends or the daemon stops. The definition is
 * what is traced, so that it may be idle, and a stage of it begin meanwhile; what is
 * applied in its place is not: when the last stage of the old one has ended, the trace
 * does, too. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_TRACING_H
#define STG_DAEMON_SERVER_TRACING_H

#include "daemon/server/session.h"

#define STG_TRACE_MAX_MILLIS 600000u

/* Begins a trace, and returns the descriptor of its page, which belongs to the trace. One
 * trace of a pipeline at a time: RESOURCE_EXHAUSTED says for how long there is one yet;
 * likewise without memory. INVALID_ARGUMENT: millis. */
int stg_tracing_begin(struct stg_session *session, struct stg_pipeline *pipeline,
                      uint32_t millis, int *ret_fd, struct stg_err *err);

/* Nothing happens when there is none. */
void stg_tracing_end(struct stg_session *session);

#endif
