/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking in what a client posted: releases, acknowledgements, the passes that it asks
 * for. Lock held.
 *
 * I3   What a client wrote is loaded once, checked, then used.
 */
#include <string.h>

#include "daemon/stage/delivery.h"

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
    return rc < 0 ? stg_err(err, rc, "its count of releases makes no sense") : 0;
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
    for (uint32_t i = 0; i < client->n_assigned && !client->ack_explicit; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (!assigned->acked && asked > assigned->position + 1)
            acknowledge(stage, client, assigned);
    }
}

int stg_client_take_in(struct stg_stage *stage, struct stg_client *client,
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
                   "it asks for passes ahead of the end of this one");
}
