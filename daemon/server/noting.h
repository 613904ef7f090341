/* SPDX-License-Identifier: Apache-2.0
 *
 * What sessions report to the operations log. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_NOTING_H
#define STG_DAEMON_SERVER_NOTING_H

#include "daemon/operations/record.h"
#include "daemon/server/session.h"

/* Remembers which request the session makes. */
void stg_noting_begin(struct stg_session *session, const struct stg_request *request);

/* Remembers the pipeline that the request is about. NULL is allowed. */
void stg_noting_name(struct stg_session *session, const char *pipeline);

/* Notes an operation of the session's user. pipeline: a name, or NULL. */
void stg_noting_done(const struct stg_session *session, enum stg_operation_kind kind,
                     const char *pipeline, uint64_t generation);

/* Notes an apply, or a rollback (reply->restored). */
void stg_noting_changed(const struct stg_session *session, const struct stg_reply *reply);

/* Notes a request that failed because of a rule, a quota or a limit; others are not
 * noted. */
void stg_noting_failed(const struct stg_session *session, int code, const char *reason);

#endif
