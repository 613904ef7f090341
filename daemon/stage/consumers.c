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

const struct stg_state *stg_stage_origin(const struct stg_stage *stage)
{
    const struct stg_resumed *resumed = stage->config.resumed;
    return resumed != NULL ? resumed->origin : stage->config.start;
}

bool stg_stage_inherits(struct stg_stage *stage)
{
    const struct stg_state *start = stg_stage_origin(stage);
    pthread_mutex_lock(&stage->lock);
    bool inherits = stg_stage_is_shared(stage) && start != NULL &&
                    start->pass == stage->members.n_passes;
    pthread_mutex_unlock(&stage->lock);
    return inherits;
}

static void share(struct stg_stage *stage)
{
    const struct stg_state *start = stg_stage_origin(stage);
    struct stg_sharing sharing = {.run = stg_stage_run_id(&stage->config),
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

/* Returns whether the pass goes on that was there before stagerd was started again. */
static bool is_resumed(const struct stg_stage *stage)
{
    return stage->config.resumed != NULL && stage->config.start != NULL &&
           stage->pass.n_ended == stage->config.first_pass;
}

void stg_consumer_join(struct stg_stage *stage, struct stg_client *client)
{
    if (!stg_stage_is_shared(stage))
        return;
    if (client->consumer == 0 || !is_resumed(stage))
        client->consumer = take_number(&stage->members);
    share(stage);
}

/* What clients acknowledged was of the pass before. */
static void clear_acknowledged(struct stg_stage *stage)
{
    stg_taken_clear(&stage->members.left);
    stage->members.left_is_full = false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        stg_taken_clear(&c->acknowledged);
}

/* Their order stays. */
void stg_consumers_begin(struct stg_stage *stage)
{
    if (is_resumed(stage))
        return;
    clear_acknowledged(stage);
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
        (client->reconnects && is_resumed(stage)) ||
        members->n_vacant == stage->config.num_clients)
        return;
    give_number(members, client->consumer);
    drop_last(members);
    share(stage);
}

static bool notes_items(const struct stg_stage *stage)
{
    return stage->config.keeps_record && stage->config.delivery == STG_DELIVERY_SPLIT;
}

/* As its state has the item: with those before it that were dropped or ignored. */
void stg_consumer_acknowledged(struct stg_stage *stage, struct stg_client *client,
                               const struct stg_item *item)
{
    uint64_t begin = item->before.items, end = item->after.items;
    if (!notes_items(stage))
        return;
    if (begin >= end)
        begin = end - (end > 0);
    if (stg_taken_add(&client->acknowledged, begin, end, NULL) < 0)
        stage->members.left_is_full = true;
}

void stg_consumer_part(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_taken all, sets[2] = {stage->members.left, client->acknowledged};
    if (!notes_items(stage) || client->acknowledged.n == 0)
        return;
    if (stg_taken_unite(sets, 2, &all, NULL) < 0) {
        stage->members.left_is_full = true;
        return;
    }
    stg_taken_finish(&stage->members.left);
    stage->members.left = all;
    stg_taken_clear(&client->acknowledged);
}

int stg_consumers_resume(struct stg_stage *stage, struct stg_err *err)
{
    const struct stg_resumed *resumed = stage->config.resumed;
    struct stg_membership *members = &stage->members;
    if (resumed == NULL || !is_resumed(stage))
        return 0;
    members->n_before = stage->config.start->n_before;
    members->n_consumers = resumed->consumers;
    for (size_t i = 0; i < resumed->n_vacant && i < stage->config.num_clients; i++)
        members->vacant[members->n_vacant++] = resumed->vacant[i];
    return stage->config.start->consumers > 0
               ? stg_taken_read(stage->config.start->taken, &members->left, err)
               : stg_taken_add(&members->left, 0, stage->config.start->place.items, err);
}
