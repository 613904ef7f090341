/* SPDX-License-Identifier: Apache-2.0
 *
 * Giving one item, or the end of a pass, to one client. Lock held.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/stage/delivery.h"

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

void stg_client_end(struct stg_stage *stage, struct stg_client *client)
{
    client->end_position = client->ring.head;
    stg_client_push(client, &(struct stg_descriptor){.kind = STG_DESCRIPTOR_END,
                                                     .number = stg_client_pass(client),
                                                     .assigned_ns = stg_now_ns()});
    client->ends++;
}
