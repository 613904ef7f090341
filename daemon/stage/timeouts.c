/* SPDX-License-Identifier: Apache-2.0
 *
 * The time limits of clients (docs/delivery.md): every wait for a client ends.
 */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/stage/priv.h"

/* Under split the holder itself may wait for the end, which comes when it acknowledges.
 */
static bool others_wait(const struct stg_stage *stage, const struct stg_client *holder)
{
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED && stg_control_waiting(&c->control) &&
            (c != holder || !stage->policy->together))
            return true;
    }
    return false;
}

/* The lease whose clock runs: the oldest that is not acknowledged; of a client that says
 * that it is done with all of them and gives none back, the last one. */
static const struct stg_assigned *holds(const struct stg_stage *stage,
                                        const struct stg_client *client)
{
    const struct stg_assigned *held = stg_client_unacknowledged(client);
    if (held == NULL && client->n_assigned > 0 &&
        stg_client_credits(&stage->buffer, client) == 0)
        held = &client->assigned[client->n_assigned - 1];
    return held;
}

/* lease_timeout_millis: an unacknowledged lease that others wait for is expired. */
static bool expire_holders(struct stg_stage *stage, uint64_t now)
{
    bool any = false;
    uint64_t millis = stage->staged->lease_timeout_millis, limit = millis * 1000000u;
    for (struct stg_client *c = stage->members.clients; limit != 0 && c != NULL;
         c = c->next) {
        const struct stg_assigned *held = holds(stage, c);
        if (c->state != STG_CLIENT_ATTACHED || held == NULL ||
            now - held->assigned_ns < limit || !stg_stage_holds_up(stage, c) ||
            !others_wait(stage, c))
            continue;
        char text[256];
        snprintf(text, sizeof(text),
                 "client %.100s held batch %" PRIu64
                 " for more than lease_timeout_millis %" PRIu64
                 " while others waited, and was detached",
                 c->client_id, held->number, millis);
        stg_stage_log(stage, STG_LOG_WARNING, "pipeline %s: %s", stage->config.name,
                      text);
        stage->counts.n_evicted++;
        stg_client_disconnect(stage, c, STAGER_DEADLINE_EXCEEDED, text);
        any = true;
    }
    return any;
}

/* reconnect_grace_millis: a client that is away for longer loses its place. */
static bool expire_away(struct stg_stage *stage, uint64_t now)
{
    bool any = false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_AWAY || now < c->away_until_ns ||
            stg_client_successor(&stage->members, c) != NULL)
            continue;
        char text[128];
        snprintf(text, sizeof(text),
                 "%s and did not reconnect within reconnect_grace_millis %" PRIu64,
                 stg_client_how(c), stage->staged->reconnect_grace_millis);
        stg_stage_log(stage, STG_LOG_WARNING, "pipeline %s: client %s (pid %d) %s",
                      stage->config.name, c->client_id, (int)c->pid, text);
        stage->counts.n_evicted += stage->policy->together;
        stg_client_forget(stage, c, text);
        any = true;
    }
    return any;
}

static void list_clients(const struct stg_stage *stage, bool asking, struct stg_err *err)
{
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED && stg_client_asks(&stage->pass, c) == asking)
            stg_err_append(err, err->code, " %s", c->client_id);
        else if (c->state == STG_CLIENT_AWAY && !asking)
            stg_err_append(err, err->code, " %s (away)", c->client_id);
    }
}

static void say_missing(const struct stg_stage *stage, struct stg_err *err)
{
    uint64_t millis = stage->staged->start_timeout_millis;
    uint32_t n = stage->config.num_clients - stage->members.n_attached;
    if (stage->members.begun) {
        stg_err(
            err, -STAGER_DEADLINE_EXCEEDED,
            "not all clients requested the next pass within start_timeout_millis %" PRIu64
            "; missing:",
            millis);
        list_clients(stage, false, err);
        if (n > stage->members.n_away &&
            stage->config.delivery == STG_DELIVERY_ROUND_ROBIN)
            stg_err_append(err, err->code, " %u of num_clients %u left",
                           n - stage->members.n_away, stage->config.num_clients);
    } else {
        stg_err(err, -STAGER_DEADLINE_EXCEEDED,
                "%u of num_clients %u did not attach within start_timeout_millis %" PRIu64
                "; attached:",
                n, stage->config.num_clients, millis);
        list_clients(stage, true, err);
    }
}

/* start_timeout_millis: when not all are there, or not all asked for the next pass, those
 * that wait are disconnected with the names of the missing ones. */
static bool expire_start(struct stg_stage *stage, uint64_t now)
{
    uint64_t limit = stage->staged->start_timeout_millis * 1000000u;
    uint64_t since =
        stage->members.begun ? stage->timeouts.asked_ns : stage->timeouts.first_attach_ns;
    if (!stage->policy->together || stage->members.n_attached == 0 || since == 0 ||
        stage->stop.is_on || now < since || now - since < limit)
        return false;
    struct stg_err err;
    say_missing(stage, &err);
    bool any = false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!stg_client_asks(&stage->pass, c))
            continue;
        stage->counts.n_evicted++;
        stg_client_disconnect(stage, c, STAGER_DEADLINE_EXCEEDED, err.text);
        any = true;
    }
    return any;
}

bool stg_expire_clients(struct stg_stage *stage, uint64_t now_ns)
{
    bool any = expire_holders(stage, now_ns);
    any |= expire_away(stage, now_ns);
    any |= expire_start(stage, now_ns);
    return any;
}

uint64_t stg_expire_next_ns(const struct stg_stage *stage)
{
    uint64_t next = UINT64_MAX;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_AWAY && c->away_until_ns < next &&
            stg_client_successor(&stage->members, c) == NULL)
            next = c->away_until_ns;
    }
    return next;
}

/* ---- evicting ---- */

/* Of the clients that hold up the others, the one that was given an item longest ago. */
static struct stg_client *slowest(const struct stg_stage *stage)
{
    struct stg_client *found = NULL;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (stg_stage_holds_up(stage, c) &&
            (found == NULL || c->last_given_ns < found->last_given_ns))
            found = c;
    }
    return found;
}

bool stg_stage_evict_slowest(struct stg_stage *stage, const char *why)
{
    struct stg_client *client = stage->policy->together ? slowest(stage) : NULL;
    if (client == NULL)
        return false;
    stg_stage_log(stage, STG_LOG_WARNING,
                  "pipeline %s: client %s (pid %d) is evicted: %s", stage->config.name,
                  client->client_id, (int)client->pid, why);
    stage->counts.n_evicted++;
    stg_client_disconnect(stage, client, STAGER_DEADLINE_EXCEEDED, why);
    stg_stage_stop_when_left(stage);
    stg_delivery_run(stage);
    return true;
}
