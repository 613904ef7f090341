/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaving, and being away. A named client that leaves in the middle of a pass is away
 * until rejoin_millis are over.
 *
 * Whether a client is waited for depends on what the daemon knows: that it joined, that
 * its end was pushed. A word of its control page can only give up a place, never keep one
 * from the client: it may die before any store.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/delivery.h"

/* ---- leaving ---- */

/* Was it told the end of its pass, and asks for the next one? */
static bool asks_on(const struct stg_client *client)
{
    return client->ends > 0 &&
           stg_control_pass_wanted(&client->control) == client->ends + 1;
}

/* It took the end of its pass, closed the stream and owes nothing. A process that dies
 * has not acknowledged the end: whoever comes back under its name is told it again. */
static bool is_done(const struct stg_client *client)
{
    return client->ends > 0 && client->has_left && client->asked > client->end_position &&
           stg_control_taken(&client->control) > client->end_position &&
           !asks_on(client) && stg_client_unacknowledged(client) == NULL &&
           client->n_owed == 0;
}

static bool may_come_back(const struct stg_stage *stage, const struct stg_client *client)
{
    return client->named && stage->staged->rejoin_millis > 0 &&
           !stage->config.private_run && !stage->stop.is_on &&
           stage->pass.failure.code == 0 &&
           (stage->members.begun || !stage->policy->together) && !is_done(client);
}

static void lose(struct stg_stage *stage, struct stg_client *client, uint32_t extent)
{
    client->n_lost++;
    stg_item_lose(&stage->buffer, extent, &stage->effects);
}

/* What it had not acknowledged: to others under split, else to itself when it comes back.
 * What it was given is older than what it is still owed. */
static void hand_on(struct stg_stage *stage, struct stg_client *client)
{
    bool again = stage->staged->redeliver && !stage->stop.is_on;
    bool back = client->state == STG_CLIENT_AWAY;
    uint32_t owed[STG_MAX_HELD], n = 0;
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (assigned->acked)
            continue;
        assigned->acked = true;
        if (again && !stage->policy->together)
            stg_item_return(&stage->buffer, assigned->extent);
        else if (again && back)
            owed[n++] = assigned->extent;
        else
            lose(stage, client, assigned->extent);
    }
    for (uint32_t i = 0; i < client->n_owed; i++) {
        if (back)
            owed[n++] = client->owed[i];
        else
            lose(stage, client, client->owed[i]);
    }
    memcpy(client->owed, owed, n * sizeof(owed[0]));
    client->n_owed = n;
}

static void nobody_left(struct stg_stage *stage)
{
    if (stg_members_are_none(&stage->members))
        stage->members.begun = false;
}

/* A pass needs every rank. A client that leaves when nothing runs leaves a place to fill;
 * before the start, ranks are the order of joining. */
static void lose_rank(struct stg_stage *stage, const struct stg_client *client,
                      bool in_the_middle, const char *why)
{
    if (!stage->policy->is_ranked)
        return;
    if (!stage->members.begun) {
        for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
            c->rank -= stg_client_takes_part(c) && c->rank > client->rank;
        return;
    }
    if (!in_the_middle || stg_members_are_none(&stage->members))
        return;
    char text[512];
    snprintf(text, sizeof(text),
             "round_robin cannot go on without rank %u, client %s (pid %d): %s",
             client->rank, client->client_id, (int)client->pid, why);
    stg_stage_abort(stage, text);
}

/* From attached to away or detached. */
static void detach(struct stg_stage *stage, struct stg_client *client, bool back,
                   const char *why)
{
    bool middle = stg_client_in_pass(&stage->pass, client);
    uint64_t now = stg_now_ns();
    stg_clients_waited_ns(&stage->members, now);
    client->wait_ns += stg_client_waits_ns(client, now);
    client->wait_seen_ns = client->wait_ns;
    client->state = back ? STG_CLIENT_AWAY : STG_CLIENT_DETACHED;
    stage->members.n_attached--;
    stage->members.n_changes++;
    stage->members.attached_ns += now;
    stage->effects.events.has_changed = true;
    hand_on(stage, client);
    stg_lease_client_detach(stage->buffer.leases, client->lease_client);
    snprintf(client->last_error, sizeof(client->last_error), "%s", why);
    if (back) {
        bool untold = client->ends > 0 && !asks_on(client);
        client->base_pass = stg_client_pass(client) - untold;
        client->taken_before = stg_client_taken(client);
        client->asked = 0;
        client->ends = 0;
        client->away_until_ns = stg_now_ns() + stage->staged->rejoin_millis * 1000000u;
        stage->members.n_away++;
        stage->effects.asks_loop = true;
    } else {
        lose_rank(stage, client, middle && !stage->stop.is_on, why);
        nobody_left(stage);
    }
    stg_stage_recut(stage);
    stage->effects.wake |= STG_WAKE_ALL;
}

const char *stg_client_how(const struct stg_client *client)
{
    return client->has_left ? "left" : "died";
}

void stg_client_leave(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_err err = {0};
    if (client->has_lease) {
        stg_client_trace(stage, client);
        if (stg_client_take_in(stage, client, &err) < 0)
            stg_client_expel_violator(stage, client, err.text);
    }
    if (client->state != STG_CLIENT_ATTACHED)
        return; /* before, or for its last releases */
    client->has_left = client->has_lease && stg_control_parting(&client->control);
    const char *how = stg_client_how(client);
    bool back = may_come_back(stage, client);
    char why[64];
    snprintf(why, sizeof(why), "%s%s", how,
             is_done(client) ? " at the end of its pass" : "");
    if (back)
        stg_stage_log(stage, STG_LOG_INFO,
                      "pipeline %s: client %s (pid %d) %s %s, and may come back within "
                      "%" PRIu64 " ms",
                      stage->config.name, client->client_id, (int)client->pid, how,
                      client->ends > 0 && !asks_on(client) ? "at the end of its pass"
                                                           : "in the middle",
                      stage->staged->rejoin_millis);
    detach(stage, client, back, why);
}

void stg_client_forget(struct stg_stage *stage, struct stg_client *client,
                       const char *why)
{
    bool middle = client->n_owed > 0 || client->base_pass >= stage->pass.n_ended;
    client->state = STG_CLIENT_DETACHED;
    stage->members.n_away--;
    hand_on(stage, client);
    snprintf(client->last_error, sizeof(client->last_error), "%s", why);
    lose_rank(stage, client, middle && !stage->stop.is_on, why);
    nobody_left(stage);
    stg_stage_recut(stage);
    stage->effects.wake |= STG_WAKE_ALL;
}

/* cut: what lies in its ring is not for it any more. */
static void expel(struct stg_stage *stage, struct stg_client *client, bool cut, int code,
                  const char *text)
{
    if (client->state == STG_CLIENT_AWAY)
        stg_client_forget(stage, client, text);
    if (client->state != STG_CLIENT_ATTACHED)
        return;
    struct stg_err words = {.code = -code};
    snprintf(words.text, sizeof(words.text), "%s", text);
    stg_client_last_words(client, &words);
    detach(stage, client, false, text);
    if (cut)
        stg_client_revoke(client);
    stg_stage_disconnect(stage, client);
}

void stg_client_expel(struct stg_stage *stage, struct stg_client *client, int code,
                      const char *text)
{
    expel(stage, client, true, code, text);
}

/* A violation costs its author the stream. */
void stg_client_expel_violator(struct stg_stage *stage, struct stg_client *client,
                               const char *why)
{
    client->n_violations++;
    char text[256];
    snprintf(text, sizeof(text),
             "stagerd detached this client: its control page is broken (%.100s)", why);
    stg_stage_log(stage, STG_LOG_WARNING, "pipeline %s: client %s (pid %d): %s",
                  stage->config.name, client->client_id, (int)client->pid, text);
    stg_client_expel(stage, client, STAGER_INVALID_ARGUMENT, text);
}

void stg_stage_discard(struct stg_stage *stage)
{
    stg_buffer_discard(&stage->buffer, &stage->effects);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        c->cursor = stage->buffer.next; /* earlier items are gone */
}

void stg_stage_abort(struct stg_stage *stage, const char *text)
{
    stage->stop.words.code = -STAGER_ABORTED;
    snprintf(stage->stop.words.text, sizeof(stage->stop.words.text), "%s", text);
    if (stage->pass.failure.code != 0) /* no error is masked by a later one */
        stage->stop.words = stage->pass.failure;
    stage->stop.is_on = true;
    atomic_store(&stage->stop.flag, 1);
    stg_stage_log(stage, STG_LOG_WARNING, "pipeline %s: %s", stage->config.name, text);
    snprintf(stage->counts.last_error, sizeof(stage->counts.last_error), "%s: %.400s",
             stg_status_name(stage->stop.words.code), stage->stop.words.text);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        expel(stage, c, false, -stage->stop.words.code, stage->stop.words.text);
    stg_stage_discard(stage);
    stage->effects.wake |= STG_WAKE_ALL;
    stage->effects.asks_loop = true;
}

void stg_client_reap(struct stg_stage *stage, struct stg_client *client)
{
    client->forgotten = true;
    client->n_assigned = 0;
    if (!client->has_lease)
        return;
    stg_lease_client_dead(stage->buffer.leases, client->lease_client, NULL, NULL);
    client->has_lease = false;
    stage->effects.wake |= STG_WAKE_MEMORY;
}

void stg_client_cancel(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_client **at = &stage->members.clients;
    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    stage->members.n_joining--;
    stg_lease_client_dead(stage->buffer.leases, client->lease_client, NULL, NULL);
    stg_stage_bury(stage, client);
    nobody_left(stage);
}

void stg_clients_bury(struct stg_stage *stage)
{
    struct stg_client **at = &stage->members.clients;
    while (*at != NULL) {
        struct stg_client *client = *at;
        if (client->state != STG_CLIENT_DETACHED || !client->forgotten) {
            at = &client->next;
            continue;
        }
        *at = client->next;
        if (!client->adopted)
            stg_gone_note(&stage->members, client);
        stg_stage_bury(stage, client);
    }
}

void stg_stage_stop_when_left(struct stg_stage *stage)
{
    bool warm = stage->staged->keep_warm && !stage->config.private_run &&
                stage->pass.failure.code == 0 && stage->members.n_joined > 0;
    if (!stg_members_are_none(&stage->members) || (warm && !stage->stop.is_on))
        return;
    if (!stage->stop.is_on) {
        stage->stop.is_on = true;
        stage->stop.words.code = -STAGER_CANCELLED;
        atomic_store(&stage->stop.flag, 1);
    }
    stg_stage_discard(stage);
    stage->effects.wake |= STG_WAKE_ALL;
    stage->effects.asks_loop = true;
}
