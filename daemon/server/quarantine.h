/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a process keeps by batches of a stream that it closed: how much each
 * process keeps, and how much a user may keep. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_QUARANTINE_H
#define STG_DAEMON_SERVER_QUARANTINE_H

#include "daemon/server/session.h"

/* Lists the memory that processes keep of a pipeline (NULL: of all), with an entry for
 * each process and pipeline that `identity` may see. Entries live in bump.
 * RESOURCE_EXHAUSTED without memory. */
int stg_quarantine_list(struct stg_server *server, const char *pipeline,
                        const struct stg_identity *identity, struct stg_bump *bump,
                        struct stg_quarantined **ret, size_t *ret_n, struct stg_err *err);

/* Checks that the processes of a user keep less than max_quarantined_memory.
 * RESOURCE_EXHAUSTED names them, their bytes, and the remedy. */
int stg_quarantine_check(struct stg_server *server, uid_t uid, struct stg_err *err);

#endif
