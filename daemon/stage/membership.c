/* SPDX-License-Identifier: Apache-2.0
 *
 * What the state of a client says: pure functions of the stage's parts. Lock held.
 */
#include <string.h>

#include "daemon/stage/delivery.h"

bool stg_client_takes_part(const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED || client->state == STG_CLIENT_AWAY;
}

const struct stg_client *stg_client_successor(const struct stg_stage *stage,
                                              const struct stg_client *away)
{
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_JOINING && c->named &&
            strcmp(c->client_id, away->client_id) == 0)
            return c;
    }
    return NULL;
}

bool stg_stage_is_empty(const struct stg_stage *stage)
{
    return stage->members.n_attached + stage->members.n_away + stage->members.n_joining ==
           0;
}

bool stg_pass_drawn_out(const struct stg_stage *stage)
{
    return stage->pass.state == STG_PASS_DRAWN &&
           stage->pass.publish_next >= stage->pass.end_sequence;
}

const struct stg_assigned *stg_client_unacknowledged(const struct stg_client *client)
{
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        if (!client->assigned[i].acked)
            return &client->assigned[i];
    }
    return NULL;
}

uint64_t stg_client_pass(const struct stg_client *client)
{
    return client->base_pass + client->ends;
}

bool stg_client_wants_pass(const struct stg_client *client)
{
    return client->ends == 0 ||
           stg_control_pass_wanted(&client->control) == client->ends + 1;
}

bool stg_client_asks(const struct stg_stage *stage, const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED &&
           stg_client_pass(client) == stage->pass.n_ended &&
           stg_client_wants_pass(client);
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

uint64_t stg_client_taken(const struct stg_client *client)
{
    uint64_t taken = client->asked - (client->asked > 0 && client->is_asking);
    if (taken > client->ring.head)
        taken = client->ring.head;
    uint64_t n_ends = client->ends;
    if (client->ends > 0 && taken <= client->end_position)
        n_ends--; /* pushed, not taken */
    n_ends += client->ring.finished && taken == client->ring.head;
    return client->taken_before + taken - n_ends;
}
