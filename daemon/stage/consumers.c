/* SPDX-License-Identifier: Apache-2.0
 *
 * The consumers of a split: the numbers that clients have in a pass, and what its
 * states contain. Lock held.
 */
#include <string.h>

#include "daemon/stage/priv.h"

bool stg_stage_is_shared(const struct stg_stage *stage)
{
    return stage->config.delivery == STG_DELIVERY_SPLIT && stage->config.num_clients > 1;
}

bool stg_stage_inherits(struct stg_stage *stage)
{
    const struct stg_state *start = stage->config.start;
    pthread_mutex_lock(&stage->lock);
    bool inherits = stg_stage_is_shared(stage) && start != NULL &&
                    start->pass == stage->members.n_passes;
    pthread_mutex_unlock(&stage->lock);
    return inherits;
}

static void share(struct stg_stage *stage)
{
    const struct stg_state *start = stage->config.start;
    struct stg_sharing sharing = {.run = stage->config.run_id,
                                  .pass = stage->members.n_passes,
                                  .consumers = stage->members.n_consumers,
                                  .batch = stage->config.batch_size,
                                  .before = stage->members.n_before};
    if (start != NULL && start->pass == sharing.pass)
        sharing.start = start->place;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        sharing.consumer = c->consumer;
        if (stg_client_is_there(c))
            stg_ring_share(&c->ring, &sharing);
    }
}

/* Returns the lowest number that is vacant, else the next one. */
static uint32_t take_number(struct stg_membership *members)
{
    if (members->n_vacant == 0)
        return ++members->n_consumers;
    uint32_t number = members->vacant[--members->n_vacant];
    members->vacant[members->n_vacant] = 0;
    return number;
}

void stg_consumer_join(struct stg_stage *stage, struct stg_client *client)
{
    if (!stg_stage_is_shared(stage))
        return;
    client->consumer = take_number(&stage->members);
    share(stage);
}

/* Their order stays. */
void stg_consumers_begin(struct stg_stage *stage)
{
    uint32_t n = 0, before = 0;
    for (bool more = stg_stage_is_shared(stage); more;) {
        struct stg_client *next = NULL;
        for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
            if (stg_client_is_there(c) && c->consumer > before &&
                (next == NULL || c->consumer < next->consumer))
                next = c;
        }
        more = next != NULL;
        if (more) {
            before = next->consumer;
            next->consumer = ++n;
        }
    }
    while (stage->members.n_vacant > 0)
        stage->members.vacant[--stage->members.n_vacant] = 0;
    stage->members.n_consumers = n;
    stage->members.n_passes = stage->pass.n_ended;
    stage->members.n_before = stage->members.n_items;
    if (stg_stage_is_shared(stage))
        share(stage);
}

/* Did it take an item of the pass that the numbers are of? */
static bool has_taken(const struct stg_stage *stage, const struct stg_client *client)
{
    uint64_t before = client->ends > 0 && stage->pass.state != STG_PASS_NONE
                          ? client->end_position + 1
                          : 0;
    return stg_control_taken(&client->control) > before;
}

static void give_number(struct stg_membership *members, uint32_t number)
{
    uint32_t i = members->n_vacant++;
    for (; i > 0 && members->vacant[i - 1] < number; i--)
        members->vacant[i] = members->vacant[i - 1];
    members->vacant[i] = number;
}

/* Numbers that are vacant do not count if no other number is behind them. */
static void drop_last(struct stg_membership *members)
{
    while (members->n_vacant > 0 && members->vacant[0] == members->n_consumers) {
        members->n_consumers--;
        members->n_vacant--;
        memmove(&members->vacant[0], &members->vacant[1],
                members->n_vacant * sizeof(members->vacant[0]));
        members->vacant[members->n_vacant] = 0;
    }
}

void stg_consumer_leave(struct stg_stage *stage, const struct stg_client *client)
{
    struct stg_membership *members = &stage->members;
    if (!stg_stage_is_shared(stage) || has_taken(stage, client) ||
        members->n_vacant == stage->config.num_clients)
        return;
    give_number(members, client->consumer);
    drop_last(members);
    share(stage);
}
