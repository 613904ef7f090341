/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/tapping.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"

#define TICK_MILLIS 10

struct stg_tapping {
    struct stg_definition *definition;
    char name[65]; /* of the pipeline */
    uint64_t id;   /* of the request */
    uint64_t until_ns;
    stg_tapping_done *done;
    struct stg_tap_wish wish;
};

/* ---- the end ---- */

static bool has_clients(const struct stg_pipeline *pipeline)
{
    const struct stg_instance *instance = pipeline->instance;
    return instance != NULL && instance->stage != NULL &&
           stg_stage_n_clients(instance->stage) > 0;
}

/* What there is to do, after no batch came. */
static void no_batch(const struct stg_tapping *tapping, struct stg_pipeline *pipeline,
                     struct stg_err *err)
{
    struct stg_pipeline_status status;
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    stg_catalog_status(pipeline, &bump, &status);
    stg_err(
        err, -STAGER_DEADLINE_EXCEEDED,
        "pipeline %s published no batch before the deadline; it is %s: %s", tapping->name,
        status.state,
        has_clients(pipeline)
            ? "`stagerctl explain` shows what it waits for"
            : "start a trainer, or print batches of a private run by `stagerctl cat`");
    stg_bump_finish(&bump);
}

void stg_tapping_end(struct stg_session *session)
{
    struct stg_tapping *tapping = session->tapping;
    if (tapping == NULL)
        return;
    uv_timer_stop(&session->deadline);
    stg_tap_withdraw(&tapping->definition->tap, &tapping->wish);
    stg_definition_unref(tapping->definition);
    free(tapping);
    session->tapping = NULL;
}

/* The pipeline that it waits for; NULL: it was replaced or deleted. */
static struct stg_pipeline *find_pipeline(const struct stg_session *session)
{
    const struct stg_tapping *tapping = session->tapping;
    struct stg_pipeline *pipeline =
        stg_catalog_find(session->server->catalog, tapping->name);
    return pipeline != NULL && pipeline->definition == tapping->definition ? pipeline
                                                                           : NULL;
}

static void on_tick(uv_timer_t *timer)
{
    struct stg_session *session = timer->data;
    struct stg_tapping *tapping = session->tapping;
    struct stg_pipeline *pipeline = find_pipeline(session);
    struct stg_err err = {0};
    bool is_granted = stg_tap_is_granted(&tapping->wish);
    if (!is_granted && pipeline != NULL && stg_now_ns() < tapping->until_ns)
        return;
    if (!is_granted && pipeline == NULL)
        stg_err(&err, -STAGER_ABORTED,
                "pipeline %s was replaced or deleted before it published a batch: run "
                "the command again",
                tapping->name);
    else if (!is_granted)
        no_batch(tapping, pipeline, &err);
    struct stg_reply reply = {.id = tapping->id,
                              .kind = STG_REQUEST_TAP,
                              .text = "",
                              .tap = tapping->wish.batch};
    tapping->done(session, &reply, &err);
    stg_tapping_end(session);
}

/* ---- the beginning ---- */

int stg_tapping_begin(struct stg_session *session, struct stg_pipeline *pipeline,
                      const struct stg_request *request, stg_tapping_done *done,
                      struct stg_err *err)
{
    if (request->millis == 0 || request->millis > STG_TAP_MAX_MILLIS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a tap waits for 1 to %u milliseconds, not %u", STG_TAP_MAX_MILLIS,
                       request->millis);
    struct stg_tapping *tapping = calloc(1, sizeof(*tapping));
    if (tapping == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    tapping->definition = stg_definition_ref(pipeline->definition);
    snprintf(tapping->name, sizeof(tapping->name), "%s", pipeline->name);
    tapping->id = request->id;
    tapping->done = done;
    tapping->until_ns = stg_now_ns() + request->millis * UINT64_C(1000000);
    session->tapping = tapping;
    stg_tap_ask(&tapping->definition->tap, &tapping->wish);
    uv_timer_start(&session->deadline, on_tick, TICK_MILLIS, TICK_MILLIS);
    return 0;
}
