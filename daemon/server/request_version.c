/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests about earlier definitions of a pipeline.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/pipeline/rollback.h"
#include "daemon/server/draining.h"
#include "daemon/server/probing.h"
#include "daemon/server/request.h"
#include "daemon/server/warming.h"

static void shorten_versions(struct stg_reply *reply)
{
    for (size_t i = 0; i < reply->n_versions && !stg_request_fits(reply); i++)
        reply->versions[i].file = "";
}

void stg_serve_versions(struct stg_session *session, const struct stg_request *request)
{
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    struct stg_bump bump;
    struct stg_pipeline_version versions[STG_MAX_VERSIONS];
    struct stg_version_entry entries[STG_MAX_VERSIONS];
    struct stg_reply reply = stg_reply_to(request);
    stg_bump_init(&bump, 0);
    size_t n = stg_rollback_list(session->server->catalog, pipeline, &bump, versions);
    for (size_t i = 0; i < n; i++)
        entries[i] = (struct stg_version_entry){.generation = versions[i].generation,
                                                .time_ns = versions[i].time_ns,
                                                .content = versions[i].content,
                                                .uid = (uint32_t)versions[i].uid,
                                                .file = versions[i].file};
    reply.name = pipeline->name;
    reply.versions = entries;
    reply.n_versions = n;
    stg_request_finish(session, &reply, shorten_versions, 0, NULL);
    stg_bump_finish(&bump);
}

/* The text is the same; a vocabulary may have changed, or a default of stagerd. */
static void advise_on_content(const struct stg_definition *definition,
                              const struct stg_pipeline_version *version,
                              struct stg_bump *bump, struct stg_reply *reply)
{
    char text[256];
    const char **advice = stg_bump_alloc(bump, (reply->n_advice + 1) * sizeof(*advice));
    if (definition->spec->fingerprint == version->content || advice == NULL)
        return;
    snprintf(text, sizeof(text),
             "problem: the content is not that of generation %" PRIu64
             ": a vocabulary has changed since then, or it was applied to another "
             "release of stagerd",
             version->generation);
    if (reply->n_advice > 0)
        memcpy(advice, reply->advice, reply->n_advice * sizeof(*advice));
    advice[reply->n_advice] = stg_bump_strdup(bump, text);
    reply->n_advice += advice[reply->n_advice] != NULL;
    reply->advice = advice;
}

/* Applies the definition of a kept generation. */
static int roll_back(struct stg_session *session, const struct stg_request *request,
                     struct stg_pipeline *pipeline, struct stg_err *err)
{
    struct stg_catalog *catalog = session->server->catalog;
    struct stg_bump *bump = &session->probing->bump;
    struct stg_reply *reply = &session->probing->reply;
    struct stg_definition *definition = NULL;
    struct stg_pipeline_version version;
    int rc = stg_request_check_generation(session, request, pipeline->name, err);
    if (rc == 0)
        rc = stg_rollback_find(catalog, pipeline, request->generation, &session->identity,
                               &version, &definition, err);
    if (rc == 0)
        rc = stg_request_describe(session, definition, request->name, bump, reply, err);
    if (rc == 0) {
        reply->restored = version.generation;
        advise_on_content(definition, &version, bump, reply);
        rc = stg_request_change(session,
                                &(struct stg_warming_config){.definition = definition,
                                                             .pipeline = pipeline,
                                                             .replace = STG_REPLACE_ALL,
                                                             .reply = reply},
                                err);
    }
    if (rc < 0)
        stg_definition_unref(definition);
    return rc;
}

void stg_serve_rollback(struct stg_session *session, const struct stg_request *request)
{
    struct stg_pipeline *pipeline = stg_session_find_pipeline(session, request);
    if (pipeline == NULL)
        return;
    struct stg_err err = {0};
    session->probing->reply = stg_reply_to(request);
    if (stg_draining_check(session->server, &err) < 0 ||
        roll_back(session, request, pipeline, &err) < 0)
        stg_session_fail_with(session, request, &err);
}
