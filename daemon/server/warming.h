/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection whose apply or rollback is warm: its reply comes when the new version has
 * filled its buffer. The warm-up ends with the connection. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_WARMING_H
#define STG_DAEMON_SERVER_WARMING_H

#include "daemon/server/session.h"

/* What a request asks for. */
struct stg_warming_config {
    struct stg_definition *definition; /* its reference is taken on success */
    struct stg_pipeline *pipeline;     /* that it replaces; NULL: found by `name` */
    const char *name;                  /* NULL: the definition's */
    enum stg_replace replace;
    const struct stg_reply *reply; /* all of it but the generation */
};

/* Begins it. The reply follows by itself. FAILED_PRECONDITION: the connection waits for
 * one already; others as stg_warm_up_apply. */
int stg_warming_begin(struct stg_session *session,
                      const struct stg_warming_config *config, struct stg_err *err);

/* Looks at those of all sessions, and answers those that are done. Returns whether any
 * goes on. */
bool stg_warming_sweep(struct stg_server *server);

#endif
