/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/draining.h"

#include <unistd.h>

#include "core/log.h"
#include "daemon/server/noting.h"

int stg_draining_set(struct stg_session *session, bool is_on, struct stg_err *err)
{
    struct stg_server *server = session->server;
    uid_t uid = session->identity.uid;
    if (uid != 0 && uid != geteuid())
        return stg_err(err, -STAGER_PERMISSION_DENIED,
                       "only root and the user of stagerd (uid %u) may drain it, not uid "
                       "%u: run `stagerctl drain` by sudo",
                       (unsigned)geteuid(), (unsigned)uid);
    if (server->draining != is_on) {
        stg_noting_done(session, is_on ? STG_OPERATION_DRAINED : STG_OPERATION_RESUMED,
                        NULL, 0);
        stg_log(STG_LOG_INFO,
                is_on ? "draining, by uid %u: no new clients, no applies"
                      : "not draining any more, by uid %u",
                (unsigned)uid);
    }
    server->draining = is_on;
    return 0;
}

int stg_draining_check(const struct stg_server *server, struct stg_err *err)
{
    if (!server->draining)
        return 0;
    return stg_err(err, -STAGER_UNAVAILABLE,
                   "stagerd is draining, and admits no new clients and no applies: try "
                   "again after its restart, or after `stagerctl drain --disable`");
}

uint32_t stg_draining_count(const struct stg_server *server, const char **ret_pipeline)
{
    uint32_t n = 0;
    *ret_pipeline = NULL;
    for (const struct stg_session *s = server->sessions; s != NULL; s = s->next) {
        if (s->closing || s->client == NULL)
            continue;
        *ret_pipeline = s->instance->config.name;
        n++;
    }
    return n;
}
