/* SPDX-License-Identifier: Apache-2.0
 *
 * A daemon that drains admits no new client and no new definition; what runs goes on. The
 * end of the process ends it. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_DRAINING_H
#define STG_DAEMON_SERVER_DRAINING_H

#include "daemon/server/session.h"

/* Begins or ends to drain. PERMISSION_DENIED: only root and the user of the daemon may.
 */
int stg_draining_set(struct stg_session *session, bool is_on, struct stg_err *err);

/* UNAVAILABLE: the daemon drains. */
int stg_draining_check(const struct stg_server *server, struct stg_err *err);

/* Returns the number of clients that are attached or joining, and the pipeline of one of
 * them, or NULL. */
uint32_t stg_draining_count(const struct stg_server *server, const char **ret_pipeline);

#endif
