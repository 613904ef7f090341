/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/probing.h"

#include <stdlib.h>

#include "daemon/describe/describe.h"
#include "daemon/pipeline/probe.h"

#define WAIT_NS 200000000u      /* of a worker, for the file system */
#define DESCRIBE_NS 8000000000u /* of a worker; clients wait for 10 s */

bool stg_probing_is_change(const struct stg_request *request)
{
    return request->kind == STG_REQUEST_APPLY || request->kind == STG_REQUEST_DELETE ||
           request->kind == STG_REQUEST_ROLLBACK;
}

bool stg_probing_is_for(const struct stg_request *request)
{
    return request->kind == STG_REQUEST_CHECK || request->kind == STG_REQUEST_SCHEMA ||
           stg_probing_is_change(request);
}

static void describe(struct stg_probing *probing)
{
    struct stg_describe_config config = {.url = probing->request.url,
                                         .first = probing->request.first,
                                         .identity = &probing->identity,
                                         .wait_ns = DESCRIBE_NS,
                                         .stopped = &probing->server->stopped};
    stg_describe(&config, &probing->description, &probing->err);
}

static void try_files(uv_work_t *work)
{
    struct stg_probing *probing = work->data;
    if (probing->request.kind == STG_REQUEST_SCHEMA) {
        describe(probing);
        return;
    }
    struct stg_probe_config config = {.text = probing->request.text,
                                      .text_bytes = probing->request.text_bytes,
                                      .uid = probing->identity.uid,
                                      .gid = probing->identity.gid,
                                      .groups = probing->identity.groups,
                                      .n_groups = probing->identity.n_groups,
                                      .wait_ns = WAIT_NS};
    if (config.text != NULL)
        probing->n_problems =
            stg_probe(&config, &probing->bump, probing->problems, STG_PROBING_PROBLEMS);
}

/* ---- turns ---- */

void stg_probing_hold(struct stg_probing *probing)
{
    probing->n_refs++;
}

void stg_probing_release(struct stg_probing *probing)
{
    if (--probing->n_refs > 0)
        return;
    probing->server->n_probing--;
    probing->caller->served(probing);
    stg_server_sweep_soon(probing->server);
    stg_bump_finish(&probing->bump);
    stg_description_free(probing->description);
    free(probing);
}

static void serve(struct stg_probing *probing)
{
    probing->caller->serve(probing);
    stg_probing_release(probing);
}

void stg_probing_serve_turns(struct stg_server *server)
{
    struct stg_probing *probing;
    while ((probing = server->first_turn) != NULL &&
           !stg_catalog_changes(server->catalog, NULL)) {
        server->first_turn = probing->next;
        serve(probing);
    }
}

static void take_turn(struct stg_probing *probing)
{
    struct stg_server *server = probing->server;
    if (server->first_turn != NULL)
        server->last_turn->next = probing;
    else
        server->first_turn = probing;
    server->last_turn = probing;
    stg_probing_serve_turns(server);
}

static void tried_files(uv_work_t *work, int status)
{
    struct stg_probing *probing = work->data;
    if (stg_probing_is_change(&probing->request))
        take_turn(probing);
    else
        serve(probing);
}

int stg_probing_start(struct stg_server *server, const struct stg_identity *identity,
                      const void *message, size_t bytes,
                      const struct stg_probing_caller *caller, void *owner,
                      struct stg_probing **ret, struct stg_err *err)
{
    struct stg_probing *probing = calloc(1, sizeof(*probing));
    if (probing == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_bump_init(&probing->bump, 1u << 20);
    int rc =
        stg_wire_decode_request(message, bytes, &probing->bump, &probing->request, err);
    if (rc < 0) {
        stg_bump_finish(&probing->bump);
        free(probing);
        return rc;
    }
    probing->server = server;
    probing->identity = *identity;
    probing->caller = caller;
    probing->owner = owner;
    probing->n_refs = 1;
    probing->work.data = probing;
    server->n_probing++;
    uv_queue_work(&server->loop, &probing->work, try_files, tried_files);
    *ret = probing;
    return 0;
}
