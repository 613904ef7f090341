/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/warming.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "daemon/pipeline/warm_up.h"
#include "daemon/server/noting.h"

/* Copies what the reply borrows from the request. The boundary is filled in at the end.
 */
static int keep_reply(struct stg_warming *warming, const struct stg_reply *reply)
{
    warming->reply = *reply;
    warming->reply.boundary = (struct stg_schema){0};
    const char **advice =
        stg_bump_alloc(&warming->bump, reply->n_advice * sizeof(*advice));
    const char *reproducible = stg_bump_strdup(&warming->bump, reply->reproducible);
    if (advice == NULL || reproducible == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < reply->n_advice; i++) {
        advice[i] = stg_bump_strdup(&warming->bump, reply->advice[i]);
        if (advice[i] == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
    }
    warming->reply.advice = advice;
    warming->reply.reproducible = reproducible;
    return 0;
}

int stg_warming_begin(struct stg_session *session,
                      const struct stg_warming_config *config, struct stg_err *err)
{
    struct stg_catalog *catalog = session->server->catalog;
    if (session->warming != NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "this connection waits for a warm apply already");
    struct stg_warming *warming = calloc(1, sizeof(*warming));
    if (warming == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_bump_init(&warming->bump, 0);
    int rc = keep_reply(warming, config->reply);
    if (rc < 0)
        stg_err(err, rc, "out of memory");
    else if (config->pipeline != NULL)
        rc = stg_warm_up_replace(catalog, config->pipeline, config->definition,
                                 config->replace, &warming->warm_up, err);
    else
        rc = stg_warm_up_apply(catalog, config->definition, config->name, config->replace,
                               &warming->warm_up, err);
    if (rc < 0) {
        stg_session_end_warming(warming);
        return rc;
    }
    session->warming = warming;
    stg_server_sweep_soon(session->server);
    return 0;
}

static void answer(struct stg_session *session, struct stg_reply *reply,
                   const struct stg_pipeline *pipeline)
{
    reply->name = pipeline->name;
    reply->generation = pipeline->generation;
    reply->boundary = *stg_graph_boundary(pipeline->definition->graph);
    stg_log(STG_LOG_INFO, "pipeline %s: generation %" PRIu64 " %s by uid %u, warm",
            pipeline->name, pipeline->generation,
            reply->unchanged      ? "confirmed"
            : reply->restored > 0 ? "rolled back"
                                  : "applied",
            (unsigned)session->identity.uid);
    stg_noting_changed(session, reply);
    stg_session_reply(session, reply, NULL, 0);
}

/* Returns whether it goes on. The session drops it first: a reply may close the
 * session.
 */
static bool step(struct stg_session *session)
{
    struct stg_warming *warming = session->warming;
    struct stg_pipeline *pipeline;
    struct stg_err err = {0};
    int rc =
        stg_warm_up_step(warming->warm_up, &pipeline, &warming->reply.unchanged, &err);
    if (rc == 1)
        return true;
    session->warming = NULL;
    stg_session_hold(session);
    if (rc == 0)
        answer(session, &warming->reply, pipeline);
    else
        stg_session_fail(session, warming->reply.id, rc, err.text);
    stg_server_sweep_soon(session->server);
    stg_session_end_warming(warming);
    stg_session_release(session);
    return false;
}

bool stg_warming_sweep(struct stg_server *server)
{
    bool any = false;
    struct stg_session *next;
    for (struct stg_session *s = server->sessions; s != NULL; s = next) {
        next = s->next;
        any |= s->warming != NULL && step(s);
    }
    return any;
}
