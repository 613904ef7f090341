/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/tracing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

/* How often clients are asked for their spans, and how long a thread that waits has at
 * the end to report its wait. */
#define TRACE_HOLDER "a trace"
#define TICK_MILLIS 10

struct stg_tracing {
    struct stg_definition *definition;
    struct stg_segment segment;
    uint64_t until_ns;
    bool is_last; /* waiting threads know that it ends */
};

/* ---- what is traced ---- */

static void name_node(void *owner, uint32_t node, char *buf, size_t bytes)
{
    const struct stg_definition *definition = owner;
    const struct stg_node *spec = &definition->spec->nodes[node];
    snprintf(buf, bytes, "%s (%s)", spec->name, spec->op);
}

static void on_tick(uv_timer_t *timer)
{
    struct stg_session *session = timer->data;
    struct stg_tracing *tracing = session->tracing;
    struct stg_catalog *catalog = session->server->catalog;
    if (tracing->is_last || !stg_catalog_has(catalog, tracing->definition)) {
        stg_tracing_end(session);
        return;
    }
    tracing->is_last = stg_now_ns() >= tracing->until_ns;
    stg_catalog_trace(catalog, tracing->definition, tracing->is_last);
}

/* ---- begin and end ---- */

static int check(const struct stg_pipeline *pipeline, uint32_t millis,
                 struct stg_err *err)
{
    const struct stg_trace *trace = &pipeline->definition->trace;
    if (millis == 0 || millis > STG_TRACE_MAX_MILLIS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a trace takes 1 to %u milliseconds, not %u", STG_TRACE_MAX_MILLIS,
                       millis);
    if (!stg_trace_is_on(trace))
        return 0;
    uint64_t now = stg_now_ns(), until = trace->page->until_ns;
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "pipeline %s is being traced, for %" PRIu64
                   " ms more: a pipeline has one trace at a time",
                   pipeline->name, until > now ? (until - now) / 1000000 + 1 : 0);
}

static int take_memory(struct stg_session *session, struct stg_segment *ret,
                       struct stg_err *err)
{
    struct stg_budget *budget = &session->server->budget;
    uint64_t bytes = sizeof(struct stg_trace_page);
    int rc = stg_budget_take(budget, bytes, TRACE_HOLDER, err);
    if (rc < 0)
        return rc;
    rc = stg_segment_create("stager-trace", bytes, false, NULL, ret, err);
    if (rc < 0)
        stg_budget_give(budget, bytes, TRACE_HOLDER);
    return rc;
}

int stg_tracing_begin(struct stg_session *session, struct stg_pipeline *pipeline,
                      uint32_t millis, int *ret_fd, struct stg_err *err)
{
    int rc = check(pipeline, millis, err);
    if (rc < 0)
        return rc;
    struct stg_tracing *tracing = calloc(1, sizeof(*tracing));
    if (tracing == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    rc = take_memory(session, &tracing->segment, err);
    if (rc < 0) {
        free(tracing);
        return rc;
    }
    tracing->definition = stg_definition_ref(pipeline->definition);
    tracing->until_ns = stg_now_ns() + millis * UINT64_C(1000000);
    struct stg_trace_plan plan = {
        .pipeline = pipeline->name,
        .generation = pipeline->generation,
        .instance = session->server->instance,
        .until_ns = tracing->until_ns,
        .name = name_node,
        .owner = tracing->definition,
        .n_nodes = (uint32_t)tracing->definition->spec->n_nodes,
    };
    stg_trace_start(&tracing->definition->trace, tracing->segment.base, &plan);
    session->tracing = tracing;
    stg_catalog_trace(session->server->catalog, tracing->definition, false);
    uv_timer_start(&session->deadline, on_tick, TICK_MILLIS, TICK_MILLIS);
    stg_log(STG_LOG_INFO, "pipeline %s: traced for %u ms by pid %d", pipeline->name,
            millis, (int)session->pid);
    *ret_fd = tracing->segment.fd;
    return 0;
}

/* What clients left until now is taken in, and they are asked no more. */
void stg_tracing_end(struct stg_session *session)
{
    struct stg_tracing *tracing = session->tracing;
    if (tracing == NULL)
        return;
    struct stg_catalog *catalog = session->server->catalog;
    uv_timer_stop(&session->deadline);
    stg_catalog_trace(catalog, tracing->definition, false);
    stg_trace_stop(&tracing->definition->trace);
    stg_catalog_trace(catalog, tracing->definition, false);
    stg_segment_destroy(&tracing->segment);
    stg_budget_give(&session->server->budget, sizeof(struct stg_trace_page),
                    TRACE_HOLDER);
    stg_definition_unref(tracing->definition);
    free(tracing);
    session->tracing = NULL;
}
