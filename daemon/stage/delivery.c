/* SPDX-License-Identifier: Apache-2.0
 *
 * What all deliveries share: releases and acknowledgements, giving one item to one
 * client, passes, last words, bells. DESIGN.md section 4, "Assigning and acknowledging",
 * "End". Everything here runs with the stage's lock held, on any thread.
 *
 * I3   What a client wrote is loaded once, checked, then used.
 * I6   A violation costs only its author.
 * I9   A live process's leased extents are never rewritten, whatever the timers say.
 * I12  Delivered order equals the plan's order; every gap is reported with its exact
 * count.
 */
#include "daemon/stage/delivery.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct stg_delivery_kind *stg_delivery_kind(enum stg_delivery delivery)
{
    switch (delivery) {
    case STG_DELIVERY_BROADCAST: return &stg_delivery_broadcast;
    case STG_DELIVERY_ROUND_ROBIN: return &stg_delivery_round_robin;
    case STG_DELIVERY_SPLIT: break;
    }
    return &stg_delivery_split;
}

bool stg_pass_drawn_out(const struct stg_stage *stage)
{
    return stage->pass.state == STG_PASS_DRAWN &&
           stage->pass.publish_next >= stage->pass.end_sequence;
}

/* ---- releases and acknowledgements ---- */

static void acknowledge(struct stg_stage *stage, struct stg_client *client,
                        struct stg_assigned *assigned)
{
    if (assigned->acked)
        return;
    assigned->acked = true;
    client->n_acknowledged++;
    stg_item_acknowledge(&stage->buffer, assigned->extent, &stage->effects);
}

static void forget_assigned(struct stg_client *client, uint32_t i)
{
    client->n_assigned--;
    memmove(&client->assigned[i], &client->assigned[i + 1],
            (client->n_assigned - i) * sizeof(client->assigned[0]));
}

static int take_release(struct stg_stage *stage, struct stg_client *client,
                        const struct stg_release_entry *entry, struct stg_err *err)
{
    struct stg_lease lease = {.id = entry->lease, .generation = entry->lease_generation};
    uint32_t extent;
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        if (client->assigned[i].lease.id != lease.id)
            continue;
        int rc = stg_lease_release(stage->buffer.leases, client->lease_client, lease,
                                   &extent, err);
        if (rc < 0)
            return rc;
        uint64_t number = client->assigned[i].number;
        acknowledge(stage, client, &client->assigned[i]);
        forget_assigned(client, i);
        client->n_released++;
        stage->counts.n_released++;
        stg_trace_client_item(stage, client, STG_SPAN_RELEASE, number);
        stage->effects.wake |= STG_WAKE_MEMORY;
        return 0;
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "release of a lease it does not hold");
}

/* A violation costs its author the stream. */
static void expel_violator(struct stg_stage *stage, struct stg_client *client,
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

/* Returns whether anything changed. */
static bool take_releases(struct stg_stage *stage, struct stg_client *client)
{
    bool changed = false;
    struct stg_release_entry entry;
    struct stg_err err = {0};
    int rc;
    while ((rc = stg_control_poll(&client->control, &entry)) == 1) {
        rc = take_release(stage, client, &entry, &err);
        if (rc < 0)
            break;
        changed = true;
    }
    if (rc < 0 && client->state == STG_CLIENT_ATTACHED) {
        expel_violator(stage, client,
                       err.code != 0 ? err.text : "its count of releases makes no sense");
        return true;
    }
    return changed;
}

/* Calling `next` again acknowledges what came before. The hint can only harm its author.
 */
static bool take_acks(struct stg_stage *stage, struct stg_client *client)
{
    uint64_t asked = stg_control_asked(&client->control);
    client->is_asking = stg_control_taken(&client->control) < asked;
    if (asked > client->ring.head + 1)
        asked = client->ring.head + 1;
    client->asked = asked;
    bool changed = false;
    for (uint32_t i = 0; i < client->n_assigned && !client->ack_explicit; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (!assigned->acked && asked > assigned->position + 1) {
            acknowledge(stage, client, assigned);
            changed = true;
        }
    }
    return changed;
}

/* Returns whether anything changed. */
static bool check_pass_wanted(struct stg_stage *stage, struct stg_client *client)
{
    if (stg_control_pass_wanted(&client->control) <= client->ends + 1)
        return false;
    expel_violator(stage, client, "it asks for passes ahead of the end of this one");
    return true;
}

bool stg_client_take_in(struct stg_stage *stage, struct stg_client *client)
{
    bool changed = take_releases(stage, client);
    if (client->state == STG_CLIENT_ATTACHED)
        changed |= take_acks(stage, client);
    if (client->state == STG_CLIENT_ATTACHED)
        changed |= check_pass_wanted(stage, client);
    return changed;
}

const struct stg_assigned *stg_client_unacknowledged(const struct stg_client *client)
{
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        if (!client->assigned[i].acked)
            return &client->assigned[i];
    }
    return NULL;
}

/* ---- giving ---- */

uint64_t stg_client_pass(const struct stg_client *client)
{
    return client->base_pass + client->ends;
}

/* Did the client ask for the pass that it is in now? One more than it was told the end of
 * is the most it can: a client that reads no ends must not have passes run on and on. */
static bool wants_pass(const struct stg_client *client)
{
    return client->ends == 0 ||
           stg_control_pass_wanted(&client->control) == client->ends + 1;
}

bool stg_client_asks(const struct stg_stage *stage, const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED &&
           stg_client_pass(client) == stage->pass.n_ended && wants_pass(client);
}

bool stg_client_in_pass(const struct stg_stage *stage, const struct stg_client *client)
{
    return stage->pass.state != STG_PASS_NONE && stg_client_asks(stage, client);
}

uint32_t stg_client_credits(const struct stg_stage *stage,
                            const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED
               ? stg_lease_client_credits(stage->buffer.leases, client->lease_client)
               : 0;
}

/* A sleep that began before the last item came is that item's. */
uint64_t stg_client_waits_ns(const struct stg_client *client, uint64_t now_ns)
{
    if (client->state != STG_CLIENT_ATTACHED)
        return 0;
    uint64_t since = stg_control_waiting_since(&client->control);
    return since > client->last_given_ns && since < now_ns ? now_ns - since : 0;
}

/* The item's own words, which lie in its extent. */
static void note_error(const struct stg_stage *stage, struct stg_client *client,
                       uint32_t extent)
{
    const char *base = (const char *)stage->memory.arena.base +
                       stg_extent_offset(stage->buffer.leases, extent);
    const struct stg_batch_header *header = (const void *)base;
    snprintf(client->last_error, sizeof(client->last_error), "%s: item %" PRIu64 ": %.*s",
             stg_status_name((int)header->error_code), header->number,
             (int)header->error_bytes, base + header->error_offset);
}

bool stg_client_give(struct stg_stage *stage, struct stg_client *client, uint32_t extent,
                     bool again)
{
    struct stg_lease lease;
    if (stg_lease_lend(stage->buffer.leases, extent, client->lease_client, &lease) < 0)
        return false;
    struct stg_item *item = &stage->buffer.items[extent];
    bool is_redelivered = again && !item->is_aside;
    item->is_aside = false;
    uint64_t now = stg_now_ns();
    client->assigned[client->n_assigned++] = (struct stg_assigned){
        .lease = lease,
        .extent = extent,
        .number = item->number,
        .position = client->ring.head,
        .assigned_ns = now,
    };
    stg_client_push(
        client, &(struct stg_descriptor){
                    .number = item->number,
                    .lease = lease.id,
                    .lease_generation = lease.generation,
                    .kind = item->is_error ? STG_DESCRIPTOR_ERROR : STG_DESCRIPTOR_BATCH,
                    .offset = stg_extent_offset(stage->buffer.leases, extent),
                    .length = item->bytes,
                    .assigned_ns = now,
                    .flags = is_redelivered ? STG_DESCRIPTOR_REDELIVERED : 0,
                    .device = item->device,
                });
    item->n_owed += !again;
    if (item->is_error)
        note_error(stage, client, extent);
    client->wait_ns += stg_client_waits_ns(client, now);
    client->last_given_ns = now;
    client->n_given++;
    client->n_redelivered += is_redelivered;
    stg_trace_client_item(stage, client, STG_SPAN_ASSIGN, item->number);
    stage->counts.n_assigned++;
    stage->counts.n_redelivered += is_redelivered;
    return true;
}

bool stg_client_give_owed(struct stg_stage *stage, struct stg_client *client)
{
    uint32_t n = 0;
    while (client->state == STG_CLIENT_ATTACHED && n < client->n_owed &&
           stg_client_give(stage, client, client->owed[n], true))
        n++;
    client->n_owed -= n;
    memmove(&client->owed[0], &client->owed[n], client->n_owed * sizeof(client->owed[0]));
    return n > 0;
}

/* ---- passes ---- */

void stg_client_end(struct stg_stage *stage, struct stg_client *client)
{
    client->end_position = client->ring.head;
    stg_client_push(client, &(struct stg_descriptor){.kind = STG_DESCRIPTOR_END,
                                                     .number = stg_client_pass(client),
                                                     .assigned_ns = stg_now_ns()});
    client->ends++;
}

static bool end_pass(struct stg_stage *stage)
{
    bool changed = false;
    if (!stg_pass_drawn_out(stage))
        return false;
    bool all = stage->kind->end(stage, &changed);
    if (stage->pass.failure.code != 0 || !all)
        return changed;
    stage->pass.state = STG_PASS_NONE;
    if (stage->pass.n_ended == stage->config.first_pass && stage->buffer.n_published == 0)
        stg_stage_log(stage, STG_LOG_WARNING,
                      "pipeline %s: pass %" PRIu64
                      " ended without a batch: no rows, or fewer than "
                      "one batch with drop_remainder",
                      stage->config.name, stage->pass.n_ended);
    stage->pass.n_ended++;
    return true;
}

/* Who asked for a pass that is over gets its end, also who came too late for it. */
static bool end_for_late(struct stg_stage *stage)
{
    bool changed = false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        while (c->state == STG_CLIENT_ATTACHED && c->n_owed == 0 &&
               stg_client_pass(c) < stage->pass.n_ended && wants_pass(c)) {
            stg_client_end(stage, c);
            changed = true;
        }
    }
    return changed;
}

/* May the next pass begin? Split: the first who asks begins it; the others: all must. */
static bool may_begin(const struct stg_stage *stage, bool *ret_any)
{
    bool all = true;
    *ret_any = false;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        bool asks = stg_client_asks(stage, c);
        *ret_any = *ret_any || asks;
        all = all && (asks || !stg_client_takes_part(c));
    }
    if (!stage->kind->together)
        return *ret_any;
    if (stage->config.delivery == STG_DELIVERY_ROUND_ROBIN)
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
    stage->effects.wake |= STG_WAKE_PASS;
    return true;
}

/* After a stop, what is published is still delivered when draining; then come the last
 * words. */
static bool say_last_words(struct stg_stage *stage)
{
    if (!stage->stop.is_on)
        return false;
    bool changed = false, all = true;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED || c->ring.finished)
            continue;
        if (stage->stop.drains && stg_client_in_pass(stage, c) &&
            (c->n_owed > 0 || stage->kind->has_more(stage, c))) {
            all = false;
            continue;
        }
        changed |= stg_client_last_words(c, &stage->stop.words);
    }
    if (all)
        stg_stage_discard(stage);
    return changed;
}

/* ---- bells ---- */

static void ring_bells(struct stg_stage *stage)
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
              (c->n_owed > 0 || stage->kind->has_more(stage, c));
    return any;
}

/* Returns whether any client was asked anew: then its control page is looked at once
 * more. */
static bool want_bells(struct stg_stage *stage)
{
    bool asked = false;
    if (!stg_awaits_clients(stage))
        return false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED || c->bell_wanted)
            continue;
        stg_client_want_bell(c);
        asked = true;
    }
    return asked;
}

static void take_all(struct stg_stage *stage)
{
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!c->has_lease || c->state == STG_CLIENT_JOINING)
            continue;
        stg_client_trace(stage, c);
        stg_client_take_in(stage, c);
    }
}

static bool give_all(struct stg_stage *stage)
{
    bool changed = begin_pass(stage);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        changed |= c->n_owed > 0 && stg_client_give_owed(stage, c);
    changed |= stage->kind->give(stage);
    changed |= end_pass(stage);
    changed |= end_for_late(stage);
    changed |= say_last_words(stage);
    return changed;
}

void stg_delivery_run(struct stg_stage *stage)
{
    do {
        take_all(stage);
        while (give_all(stage)) {
        }
    } while (want_bells(stage));
    ring_bells(stage);
    stg_account_waits(stage);
    stg_clients_bury(stage);
}
