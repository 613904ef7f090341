/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of delivery: releases, assignments, passes, terminal status, doorbells. The
 * stage's lock is held, on any thread.
 */
#include "daemon/stage/priv.h"

#include <inttypes.h>

/* ---- passes ---- */

static bool end_pass(struct stg_stage *stage)
{
    bool changed = false;
    if (!stg_pass_is_exhausted(&stage->pass))
        return false;
    bool all = stg_stage_assign_ends(stage, &changed);
    if (stage->pass.failure.code != 0 || !all)
        return changed;
    stage->pass.state = STG_PASS_NONE;
    stage->effects.events.has_turned = true;
    stage->members.n_items = stage->last_place.items;
    stage->last_place = (struct stg_pass_place){0};
    if (stage->pass.n_ended == stage->config.first_pass &&
        stage->buffer.n_published == 0 && stage->config.start == NULL)
        stg_stage_log(stage, STG_LOG_WARNING,
                      "pipeline %s: pass %" PRIu64
                      " ended without a batch: no rows, or fewer than "
                      "one batch with drop_remainder",
                      stage->config.name, stage->pass.n_ended);
    stage->pass.n_ended++;
    stage->effects.asks_loop |= stage->config.keeps_record;
    return true;
}

/* A client that asked for a pass that is over gets its end, also if it joined too late.
 */
static bool end_for_late(struct stg_stage *stage)
{
    bool changed = false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        while (c->state == STG_CLIENT_ATTACHED && c->n_pending == 0 &&
               stg_client_pass(c) < stage->pass.n_ended && stg_client_wants_pass(c)) {
            stg_client_end(stage, c);
            changed = true;
        }
    }
    return changed;
}

/* May the next pass begin? The first one of a warm stage: at once. Split: the first
 * client that asks begins it; else all clients must ask. */
static bool may_begin(const struct stg_stage *stage, bool *ret_any)
{
    bool all = true;
    *ret_any =
        stg_stage_is_warm(stage) && stage->pass.n_ended == stage->config.first_pass;
    if (*ret_any)
        return true;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        bool asks = stg_client_asks(&stage->pass, c);
        *ret_any = *ret_any || asks;
        all = all && (asks || !stg_client_takes_part(c) ||
                      stg_client_pass(c) > stage->pass.n_ended);
    }
    if (!stage->policy->together)
        return *ret_any;
    if (stage->policy->is_ranked)
        all = all && stage->members.n_attached == stage->config.num_clients;
    return stage->members.begun && *ret_any && all;
}

static bool begin_pass(struct stg_stage *stage)
{
    if (stage->pass.state != STG_PASS_NONE || stage->stop.is_on ||
        stage->pass.failure.code != 0)
        return false;
    bool any;
    if (!may_begin(stage, &any)) {
        stage->timeouts.asked_ns = !any ? 0
                                   : stage->timeouts.asked_ns != 0
                                       ? stage->timeouts.asked_ns
                                       : stg_now_ns();
        return false;
    }
    stage->timeouts.asked_ns = 0;
    stage->pass.state = STG_PASS_RUNNING;
    stg_consumers_begin(stage);
    stage->effects.events.has_turned = true;
    stage->effects.wake |= STG_WAKE_PASS;
    return true;
}

/* After a stop, what is published is still delivered when draining; then comes the
 * terminal status. */
static bool end_streams(struct stg_stage *stage)
{
    if (!stage->stop.is_on)
        return false;
    bool changed = false, all = true;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED || c->ring.finished)
            continue;
        if (stage->stop.drains && stg_client_in_pass(&stage->pass, c) &&
            (c->n_pending > 0 || stg_stage_has_more(stage, c))) {
            all = false;
            continue;
        }
        changed |= stg_client_finish(c, &stage->stop.words);
    }
    if (all)
        stg_stage_discard(stage);
    return changed;
}

/* ---- doorbells ---- */

static void ring_doorbells(struct stg_stage *stage)
{
    bool any_waits = false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED)
            continue;
        bool waits = stg_control_waiting(&c->control);
        if (waits && c->pushed)
            stg_stage_ring(stage, c);
        any_waits |= waits && !c->pushed;
        c->pushed = false;
    }
    if (any_waits && stg_awaits_clients(stage))
        stg_stage_sweep_on(stage);
}

bool stg_awaits_clients(const struct stg_stage *stage)
{
    if (stage->pass.state != STG_PASS_RUNNING || stage->stop.is_on ||
        stage->runners.n_waiting > 0)
        return true;
    bool any = false;
    for (const struct stg_client *c = stage->members.clients; c != NULL && !any;
         c = c->next)
        any = c->state == STG_CLIENT_ATTACHED &&
              (c->n_pending > 0 || stg_stage_has_more(stage, c));
    return any;
}

/* Returns whether any client was asked anew: then its control page is looked at once
 * more. */
static bool want_doorbells(struct stg_stage *stage)
{
    bool asked = false;
    if (!stg_awaits_clients(stage))
        return false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED || c->doorbell_wanted)
            continue;
        stg_client_want_doorbell(c);
        asked = true;
    }
    return asked;
}

static void take_all(struct stg_stage *stage)
{
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!c->has_lease || c->state == STG_CLIENT_JOINING)
            continue;
        struct stg_err err = {0};
        stg_client_trace(stage, c);
        if (stg_client_drain(stage, c, &err) < 0)
            stg_client_disconnect_violator(stage, c, err.text);
    }
}

/* Disconnects clients of a run that begins at a state which ask for a batch without
 * having loaded it. */
static void refuse_unloaded(struct stg_stage *stage)
{
    if (stage->config.start == NULL || stage->members.begun || !stage->policy->together)
        return;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED && !c->loads &&
            stg_control_asked(&c->control) > 0)
            stg_client_disconnect(
                stage, c, STAGER_FAILED_PRECONDITION,
                "another client of this pipeline loaded a state, and this client asks "
                "for a batch without having loaded it: load the same state in every "
                "client");
    }
}

static bool give_all(struct stg_stage *stage)
{
    bool changed = begin_pass(stage);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        changed |= c->n_pending > 0 && stg_client_redeliver(stage, c);
    while (stg_stage_assign(stage))
        changed = true;
    changed |= end_pass(stage);
    changed |= end_for_late(stage);
    changed |= end_streams(stage);
    return changed;
}

/* ---- waits that one client causes ---- */

/* The one client that all wait for, if there is exactly one. */
static struct stg_client *find_alone(const struct stg_stage *stage)
{
    struct stg_client *found = NULL;
    if (stage->stop.is_on || stage->pass.state == STG_PASS_NONE)
        return NULL;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!stg_stage_holds_up(stage, c))
            continue;
        if (found != NULL)
            return NULL;
        found = c;
    }
    return found;
}

static void account_waits(struct stg_stage *stage)
{
    struct stg_client *alone = find_alone(stage);
    if (alone == stage->members.alone)
        return;
    uint64_t now = stg_now_ns();
    if (stage->members.alone != NULL) {
        stage->members.alone->daemon_wait_ns += now - stage->members.alone_ns;
        stg_rank_of(stage, stage->members.alone)->held_up_ns +=
            now - stage->members.alone_ns;
    }
    stage->members.alone = alone;
    stage->members.alone_ns = now;
}

void stg_delivery_run(struct stg_stage *stage)
{
    do {
        take_all(stage);
        refuse_unloaded(stage);
        while (give_all(stage)) {
        }
    } while (want_doorbells(stage));
    ring_doorbells(stage);
    account_waits(stage);
    stg_clients_reap(stage);
}
