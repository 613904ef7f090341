/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/quarantine.h"

#include <inttypes.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)
#define NAMED 4 /* processes in the text of a refusal */

static bool may_see(struct stg_session *session, const struct stg_identity *identity)
{
    struct stg_catalog *catalog = session->server->catalog;
    struct stg_pipeline *pipeline =
        stg_catalog_find(catalog, session->instance->config.name);
    return identity->uid == 0 || identity->uid == session->identity.uid ||
           (pipeline != NULL && stg_catalog_allowed(catalog, pipeline, identity));
}

/* Fills in the memory that the session's client keeps after its end. Returns false if it
 * keeps none. */
static bool look(struct stg_session *session, struct stg_quarantined *ret)
{
    if (!session->closing || session->client == NULL)
        return false;
    uint64_t bytes;
    uint32_t n = stg_stage_retained(session->instance->stage, session->client, &bytes);
    *ret = (struct stg_quarantined){.program = session->program,
                                    .pipeline = session->instance->config.name,
                                    .pid = (uint32_t)session->pid,
                                    .uid = (uint32_t)session->identity.uid,
                                    .n_batches = n,
                                    .bytes = bytes};
    return n > 0;
}

static void add(struct stg_quarantined *all, size_t *n, const struct stg_quarantined *one)
{
    size_t i = 0;
    while (i < *n && (all[i].pid != one->pid || strcmp(all[i].pipeline, one->pipeline)))
        i++;
    if (i == *n) {
        all[(*n)++] = *one;
    } else {
        all[i].n_batches += one->n_batches;
        all[i].bytes += one->bytes;
    }
}

int stg_quarantine_list(struct stg_server *server, const char *pipeline,
                        const struct stg_identity *identity, struct stg_bump *bump,
                        struct stg_quarantined **ret, size_t *ret_n, struct stg_err *err)
{
    struct stg_quarantined one;
    size_t n = 0, most = 0;
    for (struct stg_session *s = server->sessions; s != NULL; s = s->next)
        most += s->closing && s->client != NULL;
    struct stg_quarantined *all = stg_bump_alloc(bump, most * sizeof(*all));
    if (all == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "out of memory for a list of the memory of %zu clients", most);
    for (struct stg_session *s = server->sessions; s != NULL; s = s->next) {
        if (look(s, &one) && may_see(s, identity) &&
            (pipeline == NULL || strcmp(pipeline, one.pipeline) == 0))
            add(all, &n, &one);
    }
    *ret = all;
    *ret_n = n;
    return 0;
}

static uint64_t limit_of(const struct stg_server *server)
{
    uint64_t limit = server->settings->max_quarantined_memory;
    return limit != 0 ? limit : server->budget.total / 4;
}

int stg_quarantine_check(struct stg_server *server, uid_t uid, struct stg_err *err)
{
    struct stg_quarantined *all;
    struct stg_bump bump;
    struct stg_identity root = {0};
    uint64_t bytes = 0, limit = limit_of(server);
    size_t n = 0, n_named = 0;
    stg_bump_init(&bump, 0);
    int rc = stg_quarantine_list(server, NULL, &root, &bump, &all, &n, err);
    bool listed = rc == 0;
    for (size_t i = 0; i < n; i++)
        bytes += all[i].uid == uid ? all[i].bytes : 0;
    if (bytes >= limit && bytes > 0)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                     "processes of uid %u hold %.1f MiB in batches of closed streams; "
                     "max_quarantined_memory is %.1f MiB:",
                     (unsigned)uid, (double)bytes / MIB, (double)limit / MIB);
    for (size_t i = 0; i < n && rc < 0 && n_named < NAMED; i++) {
        if (all[i].uid != uid)
            continue;
        stg_err_append(err, rc, "%s process %u (%.40s) %.1f MiB by %u of pipeline %s",
                       n_named > 0 ? "," : "", all[i].pid, all[i].program,
                       (double)all[i].bytes / MIB, all[i].n_batches, all[i].pipeline);
        n_named++;
    }
    if (rc < 0 && listed)
        stg_err_append(err, rc,
                       ": release those batches, end the processes, or raise "
                       "max_quarantined_memory in stagerd.yaml to at least %" PRIu64
                       "MiB and reload stagerd",
                       (bytes >> 20) + 1);
    stg_bump_finish(&bump);
    return rc;
}
