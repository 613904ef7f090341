/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets which item, and when a pass ends: DESIGN.md section 4, "Assigning and
 * acknowledging", "Delivery", "End". Everything here runs with the stage's lock held, on
 * any thread.
 *
 * I3   What a client wrote is loaded once, checked, then used.
 * I6   A violation costs only its author.
 * I9   A live process's leased extents are never rewritten, whatever the timers say.
 * I12  Delivered order equals the plan's order; every gap is reported with its exact
 * count.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/log.h"
#include "daemon/delivery.h"

bool stg_pass_drawn_out(const struct stg_stage *stage)
{
    return stage->pass_state == STG_PASS_DRAWN &&
           stage->publish_next >= stage->end_sequence;
}

void stg_item_drop(struct stg_stage *stage, uint32_t extent)
{
    if (!stage->items[extent].lender)
        return;
    stage->items[extent].lender = false;
    stg_extent_drop(stage->leases, extent);
}

bool stg_stage_has_room(const struct stg_stage *stage)
{
    return stage->queue_next - stage->queue_first < stage->staged->capacity;
}

void stg_item_publish(struct stg_stage *stage, uint32_t extent,
                      const struct stg_item *item)
{
    stage->items[extent] = (struct stg_item){
        .number = item->number,
        .bytes = item->bytes,
        .rows = item->rows,
        .is_error = item->is_error,
        .skipped = stage->n_skipped,
        .lender = true,
    };
    stage->queue[stage->queue_next % stage->queue_size] = extent;
    stage->queue_next++;
    stage->n_published++;
    stage->n_rows += item->is_error ? 0 : item->rows;
    stage->n_bytes += item->bytes;
}

/* ---- releases and acknowledgements ---- */

/* Under split the stage keeps an item until it is acknowledged: it may have to go to
 * another. */
static void acknowledge(struct stg_stage *stage, struct stg_assigned *assigned)
{
    if (assigned->acked)
        return;
    assigned->acked = true;
    if (stage->config.delivery == STG_DELIVERY_SPLIT)
        stg_item_drop(stage, assigned->extent);
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
        int rc =
            stg_lease_release(stage->leases, client->lease_client, lease, &extent, err);
        if (rc < 0)
            return rc;
        if (client->state == STG_CLIENT_ATTACHED)
            acknowledge(stage, &client->assigned[i]);
        forget_assigned(client, i);
        client->n_released++;
        stage->n_released++;
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
    stg_log(STG_LOG_WARNING, "pipeline %s: client %s (pid %d): %s", stage->config.name,
            client->client_id, (int)client->pid, text);
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
    if (asked > client->ring.head + 1)
        asked = client->ring.head + 1;
    client->n_taken = asked > client->ring.head ? client->ring.head : asked;
    bool changed = false;
    for (uint32_t i = 0; i < client->n_assigned && !client->ack_explicit; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (!assigned->acked && asked > assigned->position + 1) {
            acknowledge(stage, assigned);
            changed = true;
        }
    }
    return changed;
}

/* ---- giving ---- */

static uint64_t client_pass(const struct stg_client *client)
{
    return client->base_pass + client->ends;
}

/* Did the client ask for the pass that it is in now? One more than it was told the end of
 * is the most it can: a client that reads no ends must not have passes run on and on. */
static bool wants_pass(const struct stg_client *client)
{
    uint64_t wanted = stg_control_pass_wanted(&client->control);
    return client->ends == 0 || wanted == client->ends + 1;
}

/* Returns whether anything changed. */
static bool check_pass_wanted(struct stg_stage *stage, struct stg_client *client)
{
    if (stg_control_pass_wanted(&client->control) <= client->ends + 1)
        return false;
    expel_violator(stage, client, "it asks for passes ahead of the end of this one");
    return true;
}

static bool in_pass(const struct stg_stage *stage, const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED && stage->pass_state != STG_PASS_NONE &&
           client_pass(client) == stage->passes_ended && wants_pass(client);
}

static void push(struct stg_client *client, const struct stg_descriptor *descriptor)
{
    stg_ring_push(&client->ring, descriptor);
    client->pushed = true;
}

static bool give(struct stg_stage *stage, struct stg_client *client, uint32_t extent)
{
    struct stg_lease lease;
    if (stg_lease_lend(stage->leases, extent, client->lease_client, &lease) < 0)
        return false;
    const struct stg_item *item = &stage->items[extent];
    uint64_t now = stg_now_ns();
    client->assigned[client->n_assigned++] = (struct stg_assigned){
        .lease = lease,
        .extent = extent,
        .position = client->ring.head,
        .assigned_ns = now,
    };
    push(client, &(struct stg_descriptor){
                     .number = item->number,
                     .lease = lease.id,
                     .lease_generation = lease.generation,
                     .kind = item->is_error ? STG_DESCRIPTOR_ERROR : STG_DESCRIPTOR_BATCH,
                     .offset = stg_extent_offset(stage->leases, extent),
                     .length = item->bytes,
                     .assigned_ns = now,
                     .flags = item->redelivered ? STG_DESCRIPTOR_REDELIVERED : 0,
                 });
    client->last_given_ns = now;
    if (client->waiting_since_ns != 0)
        client->wait_ns += now - client->waiting_since_ns;
    client->waiting_since_ns = 0;
    client->n_given++;
    client->n_redelivered += item->redelivered;
    stage->n_assigned++;
    return true;
}

/* The client with the most free credits; ties to who was served longest ago. */
static struct stg_client *neediest(struct stg_stage *stage)
{
    struct stg_client *best = NULL;
    uint32_t best_credits = 0;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (!in_pass(stage, c))
            continue;
        uint32_t credits = stg_lease_client_credits(stage->leases, c->lease_client);
        if (credits > best_credits || (best != NULL && credits == best_credits &&
                                       c->last_given_ns < best->last_given_ns)) {
            best = c;
            best_credits = credits;
        }
    }
    return best;
}

static bool give_split(struct stg_stage *stage)
{
    bool changed = false;
    while (stage->n_returned > 0 || stage->queue_first < stage->queue_next) {
        bool again = stage->n_returned > 0;
        uint32_t extent = again ? stage->returned[0]
                                : stage->queue[stage->queue_first % stage->queue_size];
        struct stg_client *client = neediest(stage);
        if (client == NULL || !give(stage, client, extent))
            break;
        if (again) {
            stage->n_returned--;
            memmove(&stage->returned[0], &stage->returned[1],
                    stage->n_returned * sizeof(stage->returned[0]));
        } else {
            stage->queue_first++;
        }
        changed = true;
    }
    return changed;
}

/* An item leaves the buffer when the slowest attached client was assigned it. */
static bool give_broadcast(struct stg_stage *stage)
{
    bool changed = false;
    uint64_t slowest = stage->queue_next;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED)
            continue;
        while (in_pass(stage, c) && c->cursor < stage->queue_next &&
               give(stage, c, stage->queue[c->cursor % stage->queue_size])) {
            c->cursor++;
            changed = true;
        }
        if (c->cursor < slowest)
            slowest = c->cursor;
    }
    for (; stage->queue_first < slowest; stage->queue_first++) {
        stg_item_drop(stage, stage->queue[stage->queue_first % stage->queue_size]);
        changed = true; /* also when nothing was given: who was slowest may have left */
    }
    return changed;
}

/* ---- passes ---- */

static bool all_acknowledged(const struct stg_stage *stage)
{
    for (const struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        for (uint32_t i = 0; c->state == STG_CLIENT_ATTACHED && i < c->n_assigned; i++) {
            if (!c->assigned[i].acked)
                return false;
        }
    }
    return true;
}

static void push_end(struct stg_client *client)
{
    push(client, &(struct stg_descriptor){.kind = STG_DESCRIPTOR_END,
                                          .number = client_pass(client),
                                          .assigned_ns = stg_now_ns()});
    client->ends++;
}

static bool push_last_words(struct stg_client *client, const struct stg_err *words)
{
    if (client->ring.finished)
        return false;
    stg_ring_finish(&client->ring, -words->code, words->text);
    client->pushed = true;
    return true;
}

/* Broadcast ends a pass for each client by itself, split for all at once, when every item
 * is acknowledged: until then one may have to be delivered again. */
static bool end_pass(struct stg_stage *stage)
{
    bool split = stage->config.delivery == STG_DELIVERY_SPLIT;
    if (!stg_pass_drawn_out(stage))
        return false;
    if (split && (stage->n_returned > 0 || stage->queue_first < stage->queue_next ||
                  !all_acknowledged(stage)))
        return false;

    bool changed = false, all = true;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED)
            continue;
        bool inside = client_pass(c) == stage->passes_ended;
        if (!split && inside && c->cursor < stage->queue_next) {
            all = false;
        } else if (stage->failure.code != 0) {
            changed |= push_last_words(c, &stage->failure);
        } else if (!split && inside) {
            push_end(c);
            changed = true;
        }
    }
    if (stage->failure.code != 0 || !all)
        return changed;
    stage->pass_state = STG_PASS_NONE;
    stage->passes_ended++;
    return true;
}

/* Split: who asked for a pass that is over gets its end, also who came too late for it.
 */
static bool end_for_late(struct stg_stage *stage)
{
    bool changed = false;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        while (c->state == STG_CLIENT_ATTACHED && client_pass(c) < stage->passes_ended &&
               wants_pass(c)) {
            push_end(c);
            changed = true;
        }
    }
    return changed;
}

bool stg_client_asks(const struct stg_stage *stage, const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED &&
           client_pass(client) == stage->passes_ended && wants_pass(client);
}

static bool begin_pass(struct stg_stage *stage)
{
    if (stage->pass_state != STG_PASS_NONE || stage->stopping || stage->failure.code != 0)
        return false;
    bool broadcast = stage->config.delivery != STG_DELIVERY_SPLIT;
    if (broadcast && !stage->begun && stage->n_attached < stage->config.num_clients)
        return false;
    bool any = false, all = true;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED)
            continue;
        bool asks = stg_client_asks(stage, c);
        any = any || asks;
        all = all && asks;
    }
    if (!any || (broadcast && !all)) {
        stage->asked_ns = !any                   ? 0
                          : stage->asked_ns != 0 ? stage->asked_ns
                                                 : stg_now_ns();
        return false;
    }
    stage->asked_ns = 0;
    stage->begun = true;
    stage->pass_state = STG_PASS_RUNNING;
    return true;
}

static bool has_more_for(const struct stg_stage *stage, const struct stg_client *client)
{
    if (stage->config.delivery == STG_DELIVERY_SPLIT)
        return stage->n_returned > 0 || stage->queue_first < stage->queue_next;
    return client->cursor < stage->queue_next;
}

/* After a stop, what is published is still delivered when draining; then come the last
 * words. */
static bool say_last_words(struct stg_stage *stage)
{
    if (!stage->stopping)
        return false;
    bool changed = false;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED || c->ring.finished)
            continue;
        if (stage->draining && in_pass(stage, c) && has_more_for(stage, c))
            continue;
        push_last_words(c, &stage->last_words);
        changed = true;
    }
    return changed;
}

/* ---- bells ---- */

/* I4: the doorbell is non-blocking by call; a full socket means that a bell is there
 * already. What else fails is tried again by the next sweep. */
static void ring_bells(struct stg_stage *stage)
{
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED)
            continue;
        bool waiting = stg_control_waiting(&c->control);
        if (waiting && c->pushed &&
            send(c->socket, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN)
            continue;
        if (waiting && !c->pushed && c->waiting_since_ns == 0)
            c->waiting_since_ns = stg_now_ns();
        c->pushed = false;
    }
}

/* Returns whether any client was asked anew: then its control page is looked at once
 * more. */
static bool want_bells(struct stg_stage *stage)
{
    bool asked = false;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_ATTACHED || c->bell_wanted)
            continue;
        stg_ring_want_bell(&c->ring);
        c->bell_wanted = true;
        asked = true;
    }
    return asked;
}

static bool take_all(struct stg_stage *stage)
{
    bool changed = false;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        changed |= take_releases(stage, c);
        if (c->state == STG_CLIENT_ATTACHED)
            changed |= take_acks(stage, c);
        if (c->state == STG_CLIENT_ATTACHED)
            changed |= check_pass_wanted(stage, c);
    }
    return changed;
}

static bool give_all(struct stg_stage *stage)
{
    bool changed = begin_pass(stage);
    changed |= stage->config.delivery == STG_DELIVERY_SPLIT ? give_split(stage)
                                                            : give_broadcast(stage);
    changed |= end_pass(stage);
    changed |= end_for_late(stage);
    changed |= say_last_words(stage);
    return changed;
}

void stg_delivery_run(struct stg_stage *stage)
{
    bool changed = false;
    do {
        changed |= take_all(stage);
        while (give_all(stage))
            changed = true;
    } while (want_bells(stage));
    ring_bells(stage);
    if (changed)
        stg_wake_runners(stage, STG_WAKE_ALL);
}

/* ---- clients ---- */

static void give_back(struct stg_stage *stage, uint32_t extent)
{
    uint32_t at = stage->n_returned;
    while (at > 0 &&
           stage->items[stage->returned[at - 1]].number > stage->items[extent].number) {
        stage->returned[at] = stage->returned[at - 1];
        at--;
    }
    stage->returned[at] = extent;
    stage->n_returned++;
    stage->items[extent].redelivered = true;
    stage->n_redelivered++;
}

static void detach(struct stg_stage *stage, struct stg_client *client)
{
    bool split = stage->config.delivery == STG_DELIVERY_SPLIT;
    client->state = STG_CLIENT_DETACHED;
    client->socket = -1;
    stage->n_attached--;
    for (uint32_t i = 0; split && i < client->n_assigned; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (assigned->acked)
            continue;
        assigned->acked = true;
        if (stage->staged->redeliver && !stage->stopping) {
            give_back(stage, assigned->extent);
        } else {
            stage->n_lost++;
            stg_item_drop(stage, assigned->extent);
        }
    }
    stg_lease_client_detach(stage->leases, client->lease_client);
    stg_wake_runners(stage, STG_WAKE_ALL);
}

void stg_client_detach(struct stg_stage *stage, struct stg_client *client)
{
    take_releases(stage, client);
    if (client->state == STG_CLIENT_DETACHED)
        return; /* before, or for its last releases */
    take_acks(stage, client);
    detach(stage, client);
}

void stg_client_expel(struct stg_stage *stage, struct stg_client *client, int code,
                      const char *text)
{
    if (client->state == STG_CLIENT_DETACHED)
        return;
    struct stg_err words = {.code = -code};
    snprintf(words.text, sizeof(words.text), "%s", text);
    push_last_words(client, &words);
    (void)!send(client->socket, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(client->socket, SHUT_RD); /* the loop sees the end of it and closes */
    detach(stage, client);
}

static struct stg_client *slowest(const struct stg_stage *stage)
{
    struct stg_client *found = NULL;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED &&
            (found == NULL || c->cursor < found->cursor ||
             (c->cursor == found->cursor && c->last_given_ns < found->last_given_ns)))
            found = c;
    }
    return found;
}

bool stg_stage_evict_slowest(struct stg_stage *stage, const char *why)
{
    struct stg_client *client =
        stage->config.delivery != STG_DELIVERY_SPLIT ? slowest(stage) : NULL;
    if (client == NULL)
        return false;
    stg_log(STG_LOG_WARNING, "pipeline %s: client %s (pid %d) is evicted: %s",
            stage->config.name, client->client_id, (int)client->pid, why);
    stage->n_evicted++;
    stg_client_expel(stage, client, STAGER_DEADLINE_EXCEEDED, why);
    stg_delivery_run(stage);
    return true;
}
