/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks that run on clients: DESIGN.md section 4, "Every wait on a client has a
 * clock in the daemon".
 */
#include <inttypes.h>
#include <stdio.h>

#include "core/log.h"
#include "daemon/delivery.h"

static const struct stg_assigned *oldest_unacknowledged(const struct stg_client *client)
{
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        if (!client->assigned[i].acked)
            return &client->assigned[i];
    }
    return NULL;
}

/* Does somebody wait for what this client holds? It may be itself, at the end of a pass:
 * the end comes when it acknowledges, and for a batch it waits like everybody. */
static bool others_wait(const struct stg_stage *stage, const struct stg_client *holder)
{
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED && stg_control_waiting(&c->control) &&
            (c != holder || stg_pass_drawn_out(stage)))
            return true;
    }
    return false;
}

/* hold_timeout_millis: an unacknowledged lease that others wait for is expired. */
static void expire_holders(struct stg_stage *stage, uint64_t now)
{
    uint64_t limit = stage->staged->hold_timeout_millis * 1000000u;
    for (struct stg_client *c = stage->clients; limit != 0 && c != NULL; c = c->next) {
        const struct stg_assigned *held = oldest_unacknowledged(c);
        if (c->state != STG_CLIENT_ATTACHED || held == NULL ||
            now - held->assigned_ns < limit || !others_wait(stage, c))
            continue;
        char text[256];
        snprintf(text, sizeof(text),
                 "client %s held batch %" PRIu64
                 " for more than hold_timeout_millis %" PRIu64
                 " while others waited, and was detached",
                 c->client_id, stage->items[held->extent].number,
                 stage->staged->hold_timeout_millis);
        stg_log(STG_LOG_WARNING, "pipeline %s: %s", stage->config.name, text);
        stg_client_expel(stage, c, STAGER_DEADLINE_EXCEEDED, text);
    }
}

static void list_clients(const struct stg_stage *stage, bool asking, struct stg_err *err)
{
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED && stg_client_asks(stage, c) == asking)
            stg_err_append(err, err->code, " %s", c->client_id);
    }
}

/* start_timeout_millis: a broadcast that still lacks clients says who is missing to those
 * that wait for it: at the start, and when some have not asked for the next pass. */
static void expire_start(struct stg_stage *stage, uint64_t now)
{
    uint64_t millis = stage->staged->start_timeout_millis, limit = millis * 1000000u;
    uint64_t since = stage->begun ? stage->asked_ns : stage->first_attach_ns;
    uint32_t n_missing = stage->config.num_clients - stage->n_attached;
    if (stage->config.delivery == STG_DELIVERY_SPLIT || limit == 0 ||
        stage->n_attached == 0 || since == 0 || (!stage->begun && n_missing == 0) ||
        now < since || now - since < limit)
        return;
    struct stg_err err;
    if (stage->begun)
        stg_err(&err, -STAGER_DEADLINE_EXCEEDED,
                "not all asked for the next pass within start_timeout_millis %" PRIu64
                "; missing:",
                millis);
    else
        stg_err(&err, -STAGER_DEADLINE_EXCEEDED,
                "%u of num_clients %u did not come within start_timeout_millis %" PRIu64
                "; here:",
                n_missing, stage->config.num_clients, millis);
    list_clients(stage, !stage->begun, &err);
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (stg_client_asks(stage, c))
            stg_client_expel(stage, c, STAGER_DEADLINE_EXCEEDED, err.text);
    }
}

void stg_expire_clients(struct stg_stage *stage, uint64_t now_ns)
{
    expire_holders(stage, now_ns);
    expire_start(stage, now_ns);
}
