/* SPDX-License-Identifier: Apache-2.0
 *
 * split: each item to exactly one client, the one with the most free credits. The pass
 * ends for all at once, when every item is acknowledged: until then one may have to be
 * delivered again.
 */
#include "daemon/delivery.h"

/* Ties to who was served longest ago. */
static struct stg_client *neediest(struct stg_stage *stage)
{
    struct stg_client *best = NULL;
    uint32_t best_credits = 0;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (!stg_client_in_pass(stage, c))
            continue;
        uint32_t credits = stg_client_credits(stage, c);
        if (credits > best_credits || (best != NULL && credits == best_credits &&
                                       c->last_given_ns < best->last_given_ns)) {
            best = c;
            best_credits = credits;
        }
    }
    return best;
}

static bool any_left(const struct stg_stage *stage)
{
    return stage->n_returned > 0 || stage->queue_first < stage->queue_next;
}

/* Who gets the next item counts the gap before it: it might have been its own. */
static void pop(struct stg_stage *stage, struct stg_client *client)
{
    uint64_t skipped = stage->items[stg_buffer_at(stage, stage->queue_first)].skipped;
    client->n_gaps += skipped - stage->gaps_counted;
    stage->gaps_counted = skipped;
    stg_buffer_pop(stage);
}

static bool give(struct stg_stage *stage)
{
    bool changed = false;
    while (any_left(stage)) {
        bool again = stage->n_returned > 0;
        uint32_t extent =
            again ? stage->returned[0] : stg_buffer_at(stage, stage->queue_first);
        struct stg_client *client = neediest(stage);
        if (client == NULL || !stg_client_give(stage, client, extent, again))
            break;
        if (again)
            stg_item_take_returned(stage);
        else
            pop(stage, client);
        changed = true;
    }
    return changed;
}

static bool all_acknowledged(const struct stg_stage *stage)
{
    for (const struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (stg_client_unacknowledged(c) != NULL)
            return false;
    }
    return true;
}

static bool end(struct stg_stage *stage, bool *changed)
{
    if (any_left(stage) || !all_acknowledged(stage))
        return false;
    if (stage->failure.code == 0)
        return true; /* who asked for the pass gets its end as who comes late does */
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED)
            *changed |= stg_client_last_words(c, &stage->failure);
    }
    return true;
}

static bool has_more(const struct stg_stage *stage, const struct stg_client *client)
{
    return any_left(stage);
}

/* Nobody but at the end of the pass, which comes when it acknowledges. */
static bool holds_up(const struct stg_stage *stage, const struct stg_client *client)
{
    return stg_pass_drawn_out(stage) && !any_left(stage) &&
           stg_client_unacknowledged(client) != NULL;
}

const struct stg_delivery_kind stg_delivery_split = {
    .together = false,
    .give = give,
    .end = end,
    .has_more = has_more,
    .holds_up = holds_up,
};
