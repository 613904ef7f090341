/* SPDX-License-Identifier: Apache-2.0
 *
 * split: each item to exactly one client, the one with the most free credits. The pass
 * ends for all at once, when every item is acknowledged: until then one may have to be
 * delivered again.
 */
#include <inttypes.h>

#include "daemon/stage/delivery.h"

/* Of those that the item is good for (STG_NO_EXTENT: of all). Ties to who was served
 * longest ago. */
static struct stg_client *neediest(struct stg_stage *stage, uint32_t extent)
{
    struct stg_client *best = NULL;
    uint32_t best_credits = 0;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!stg_client_in_pass(stage, c) ||
            (extent != STG_NO_EXTENT && !stg_client_may_have(stage, c, extent)))
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
    return stage->buffer.n_returned > 0 || stage->buffer.first < stage->buffer.next;
}

/* Who gets the next item counts the gap before it: it might have been its own. */
static void pop(struct stg_stage *stage, struct stg_client *client)
{
    uint64_t skipped =
        stage->buffer.items[stg_buffer_at(&stage->buffer, stage->buffer.first)].skipped;
    client->n_gaps += skipped - stage->counts.gaps_counted;
    stage->counts.gaps_counted = skipped;
    stg_buffer_pop(&stage->buffer, &stage->effects);
}

/* An item that is good for nobody any more: who it was made for has left. */
static void lose(struct stg_stage *stage, uint32_t extent)
{
    stg_stage_log(stage, STG_LOG_WARNING,
                  "pipeline %s: item %" PRIu64
                  " is lost: it lacks fields that the clients need "
                  "which came after it was made, and those before them have left",
                  stage->config.name, stage->buffer.items[extent].number);
    stg_item_lose(&stage->buffer, extent, &stage->effects);
}

/* What was given before, or put aside, in its order. */
static bool give_returned(struct stg_stage *stage)
{
    for (uint32_t i = 0; i < stage->buffer.n_returned; i++) {
        uint32_t extent = stage->buffer.returned[i];
        struct stg_client *client = neediest(stage, extent);
        if (client != NULL && stg_client_give(stage, client, extent, true)) {
            stg_item_take_returned(&stage->buffer, i);
            return true;
        }
        if (!stg_item_is_for_somebody(stage, extent)) {
            stg_item_take_returned(&stage->buffer, i);
            lose(stage, extent);
            return true;
        }
    }
    return false;
}

/* An item that is not good for who asks waits beside the buffer for one that it is good
 * for: what is behind it need not. */
static bool give_next(struct stg_stage *stage)
{
    if (stage->buffer.first == stage->buffer.next)
        return false;
    uint32_t extent = stg_buffer_at(&stage->buffer, stage->buffer.first);
    struct stg_client *client = neediest(stage, extent);
    if (client != NULL) {
        bool given = stg_client_give(stage, client, extent, false);
        if (given)
            pop(stage, client);
        return given;
    }
    if (neediest(stage, STG_NO_EXTENT) == NULL)
        return false;
    stg_item_put_aside(&stage->buffer, &stage->effects);
    return true;
}

static bool give(struct stg_stage *stage)
{
    bool changed = false;
    while (give_returned(stage) || give_next(stage))
        changed = true;
    return changed;
}

static bool all_acknowledged(const struct stg_stage *stage)
{
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (stg_client_unacknowledged(c) != NULL)
            return false;
    }
    return true;
}

static bool end(struct stg_stage *stage, bool *changed)
{
    if (any_left(stage) || !all_acknowledged(stage))
        return false;
    if (stage->pass.failure.code == 0)
        return true; /* who asked for the pass gets its end as who comes late does */
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED)
            *changed |= stg_client_last_words(c, &stage->pass.failure);
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
