/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that processes keep by batches of streams that they closed: who keeps how much,
 * and how much a user may keep. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_QUARANTINE_H
#define STG_DAEMON_SERVER_QUARANTINE_H

#include "daemon/server/session.h"

/* What processes keep of that pipeline (NULL: of all), a process once for each pipeline,
 * as far as `who` may see it. Lives in bump. Returns how many; 0 also without memory. */
size_t stg_quarantine_list(struct stg_server *server, const char *pipeline,
                           const struct stg_identity *identity, struct stg_bump *bump,
                           struct stg_quarantined **ret);

/* RESOURCE_EXHAUSTED when the processes of that user keep max_quarantined_memory: names
 * them, their bytes, and what to do. */
int stg_quarantine_check(struct stg_server *server, uid_t uid, struct stg_err *err);

#endif
