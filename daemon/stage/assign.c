/* SPDX-License-Identifier: Apache-2.0
 *
 * Items to clients and back: applies the steps of the policy, and drains what a client
 * posted. Lock held.
 *
 * I3   What a client wrote is loaded once, checked, then used.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/stage/priv.h"

/* The item's own words, which lie in its extent. */
static void note_error(const struct stg_stage *stage, struct stg_client *client,
                       uint32_t extent)
{
    const struct stg_batch_header *header = stg_stage_extent(stage, extent);
    const char *base = (const void *)header;
    snprintf(client->last_error, sizeof(client->last_error), "%s: item %" PRIu64 ": %.*s",
             stg_status_name((int)header->error_code), header->number,
             (int)header->error_bytes, base + header->error_offset);
}

/* Requires a credit of the client. again: the item was given before, and is already
 * counted as pending, of a client or of the returned items. */
static void give(struct stg_stage *stage, struct stg_client *client, uint32_t extent,
                 bool again)
{
    struct stg_lease lease;
    int rc = stg_lease_grant(stage->buffer.leases, extent, client->lease_client, &lease);
    assert(rc == 0);
    struct stg_item *item = &stage->buffer.items[extent];
    bool is_redelivered = again && !item->is_deferred;
    item->is_deferred = false;
    uint64_t now = stg_now_ns();
    client->assigned[client->n_assigned++] = (struct stg_assigned){
        .lease = lease,
        .extent = extent,
        .number = item->number,
        .position = client->ring.head,
        .assigned_ns = now,
    };
    stg_client_push(
        client,
        &(struct stg_descriptor){
            .number = item->number,
            .lease = lease.id,
            .lease_generation = lease.generation,
            .kind = item->is_error ? STG_DESCRIPTOR_ERROR : STG_DESCRIPTOR_BATCH,
            .offset = stg_extent_offset(stage->buffer.leases, extent),
            .length = item->bytes,
            .assigned_ns = now,
            .flags = (is_redelivered ? STG_DESCRIPTOR_REDELIVERED : 0) |
                     (item->is_carried ? STG_DESCRIPTOR_CARRIED : 0),
            .device = item->device,
            .elements = item->after.elements,
        },
        &(struct stg_stream_place){item->pass, item->after}, &item->data);
    item->n_pending += !again;
    if (item->is_error)
        note_error(stage, client, extent);
    uint64_t waited_ns = stg_client_waits_ns(client, now);
    client->wait_ns += waited_ns;
    stg_waits_add(&stg_rank_of(stage, client)->waits, waited_ns);
    client->last_given_ns = now;
    client->n_given++;
    stg_audit_delivered(stage, client, item, is_redelivered);
    stg_audit_tick(stage, now);
    client->n_redelivered += is_redelivered;
    stg_trace_client_item(stage, client, STG_SPAN_ASSIGN, item->number);
    stage->counts.n_assigned++;
    stage->counts.n_assigned_rows += item->is_error ? 0 : item->rows;
    stage->counts.n_assigned_bytes += item->bytes;
    stage->counts.n_redelivered += is_redelivered;
}

bool stg_client_redeliver(struct stg_stage *stage, struct stg_client *client)
{
    uint32_t n = 0;
    while (n < client->n_pending && stg_client_credits(&stage->buffer, client) > 0)
        give(stage, client, client->pending[n++], true);
    client->n_pending -= n;
    memmove(&client->pending[0], &client->pending[n],
            client->n_pending * sizeof(client->pending[0]));
    return n > 0;
}

void stg_client_end(struct stg_stage *stage, struct stg_client *client)
{
    client->end_position = client->ring.head;
    stg_client_push(client,
                    &(struct stg_descriptor){.kind = STG_DESCRIPTOR_END,
                                             .number = stg_client_pass(client),
                                             .assigned_ns = stg_now_ns()},
                    &(struct stg_stream_place){0}, NULL);
    client->ends++;
}

/* ---- steps ---- */

/* No client can use the item any more: those that it was made for have left. */
static void lose(struct stg_stage *stage, uint32_t extent)
{
    stg_stage_log(stage, STG_LOG_WARNING,
                  "pipeline %s: item %" PRIu64
                  " is lost: it lacks fields that later clients need, and the earlier "
                  "clients have left",
                  stage->config.name, stage->buffer.items[extent].number);
    stg_item_lose(&stage->buffer, extent, &stage->effects);
}

static void count_gaps(const struct stg_assignment *a)
{
    a->client->n_gaps += a->n_gaps;
    a->client->skipped_seen = a->skipped;
}

/* A stream stands behind a whole round, or before it: all ranks at one step at the same
 * place. */
static void place_round(struct stg_stage *stage, const struct stg_assignments *step)
{
    struct stg_buffer *buffer = &stage->buffer;
    if (!stage->policy->is_ranked || step->n_taken != stage->config.num_clients ||
        step->front != buffer->first)
        return;
    uint32_t last = stg_buffer_at(buffer, buffer->first + step->n_taken - 1);
    struct stg_pass_place after = buffer->items[last].after;
    for (uint32_t i = 0; i < step->n; i++) {
        if (step->all[i].extent != STG_NO_EXTENT)
            buffer->items[step->all[i].extent].after = after;
    }
}

/* Items of a round that their ranks had before stagerd was started again. */
static void skip_had(struct stg_stage *stage, uint64_t n)
{
    const struct stg_buffer *buffer = &stage->buffer;
    for (uint64_t i = buffer->first; i < buffer->first + n; i++) {
        const struct stg_item *item = &buffer->items[stg_buffer_at(buffer, i)];
        if (item->n_pending == 0)
            stg_audit_skipped(stage, item->pass, item->place);
    }
}

bool stg_stage_assign(struct stg_stage *stage)
{
    struct stg_assignments *step = &stage->step;
    struct stg_buffer *buffer = &stage->buffer;
    const struct stg_delivery_view view = stg_view_of(stage);
    stg_assignments_clear(step, &view);
    if (!stage->policy->give(&view, step))
        return false;
    bool again = step->returned != STG_NO_EXTENT;
    place_round(stage, step);
    for (uint32_t i = 0; i < step->n; i++) {
        const struct stg_assignment *a = &step->all[i];
        if (a->extent != STG_NO_EXTENT)
            give(stage, a->client, a->extent, again);
        count_gaps(a);
        a->client->cursor = a->cursor;
        a->client->load_errors -= a->skips_error;
    }
    uint32_t extent = again ? stg_item_take_returned(buffer, step->returned) : 0;
    if (step->is_lost)
        lose(stage, extent);
    if (step->front != buffer->first)
        stg_buffer_advance(buffer, step->front);
    if (step->is_deferred)
        stg_item_defer(buffer, &stage->effects);
    buffer->gaps_counted = step->gaps_counted;
    if (stage->policy->is_ranked)
        skip_had(stage, step->n_taken);
    for (uint64_t i = 0; i < step->n_taken; i++)
        stg_buffer_pop(buffer, &stage->effects);
    return true;
}

/* No client gets what is left of a round. */
static void skip_round(struct stg_stage *stage)
{
    const struct stg_buffer *buffer = &stage->buffer;
    for (uint64_t i = buffer->first; i < buffer->next; i++) {
        const struct stg_item *item = &buffer->items[stg_buffer_at(buffer, i)];
        stg_audit_skipped(stage, item->pass, item->place);
    }
}

bool stg_stage_assign_ends(struct stg_stage *stage, bool *changed)
{
    struct stg_assignments *step = &stage->step;
    const struct stg_delivery_view view = stg_view_of(stage);
    const struct stg_err *failure = &stage->pass.failure;
    stg_assignments_clear(step, &view);
    bool all = stage->policy->end(&view, step);
    if (step->discards) {
        skip_round(stage);
        stage->counts.n_incomplete += stage->buffer.next - stage->buffer.first;
        stg_stage_discard(stage);
    }
    for (uint32_t i = 0; i < step->n; i++) {
        const struct stg_assignment *a = &step->all[i];
        count_gaps(a);
        if (failure->code != 0) {
            *changed |= stg_client_finish(a->client, failure);
        } else {
            stg_client_end(stage, a->client);
            *changed = true;
        }
    }
    return all;
}

void stg_stage_discard(struct stg_stage *stage)
{
    stg_buffer_discard(&stage->buffer, &stage->effects);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        c->cursor = stage->buffer.next; /* earlier items are gone */
}

/* ---- releases, acknowledgements ---- */

static void acknowledge(struct stg_stage *stage, struct stg_client *client,
                        struct stg_assigned *assigned)
{
    if (assigned->acked)
        return;
    assigned->acked = true;
    client->n_acknowledged++;
    stg_rank_of(stage, client)->n_acknowledged++;
    stg_audit_acknowledged(stage, client, &stage->buffer.items[assigned->extent]);
    stg_consumer_acknowledged(stage, client, &stage->buffer.items[assigned->extent]);
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

static int take_releases(struct stg_stage *stage, struct stg_client *client,
                         struct stg_err *err)
{
    struct stg_release_entry entry;
    int rc;
    while ((rc = stg_control_poll(&client->control, &entry)) == 1) {
        rc = take_release(stage, client, &entry, err);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? stg_err(err, rc, "its count of releases is not valid") : 0;
}

/* Calling `next` again acknowledges what came before. The hint can only harm its author.
 */
static void take_acks(struct stg_stage *stage, struct stg_client *client)
{
    uint64_t asked = stg_control_asked(&client->control);
    client->is_asking = stg_control_taken(&client->control) < asked;
    if (asked > client->ring.head + 1)
        asked = client->ring.head + 1;
    client->asked = asked;
    for (uint32_t i = 0; i < client->n_assigned && !client->manual_ack; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (!assigned->acked && asked > assigned->position + 1)
            acknowledge(stage, client, assigned);
    }
}

int stg_client_drain(struct stg_stage *stage, struct stg_client *client,
                     struct stg_err *err)
{
    int rc = take_releases(stage, client, err);
    if (client->state != STG_CLIENT_ATTACHED)
        return 0; /* no thread listens to it any more */
    if (rc < 0)
        return rc;
    take_acks(stage, client);
    if (stg_control_pass_wanted(&client->control) <= client->ends + 1)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "it requested further passes before the end of this one");
}
