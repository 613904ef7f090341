/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast: every client gets every item, in order; who is fast runs ahead by what the
 * buffer holds. An item leaves the buffer when the slowest was given it; who is away and
 * may come back counts as the slowest.
 */
#include "daemon/stage/delivery.h"

/* The gaps before what it is given next would have been items of its own. */
static void count_gaps(struct stg_client *client, uint64_t skipped)
{
    client->n_gaps += skipped - client->skipped_seen;
    client->skipped_seen = skipped;
}

static bool give(struct stg_stage *stage)
{
    if (!stage->members.begun)
        return false;
    bool changed = false;
    uint64_t slowest = stage->buffer.next;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!stg_client_takes_part(c))
            continue;
        while (stg_client_in_pass(stage, c) && c->n_owed == 0 &&
               c->cursor < stage->buffer.next) {
            uint32_t extent = stg_buffer_at(&stage->buffer, c->cursor);
            bool is_good = stg_client_may_have(stage, c, extent);
            if (is_good && !stg_client_give(stage, c, extent, false))
                break;
            count_gaps(c, stage->buffer.items[extent].skipped);
            c->n_gaps += !is_good;
            c->cursor++;
            changed = true;
        }
        if (c->cursor < slowest)
            slowest = c->cursor;
    }
    for (; stage->buffer.first < slowest; changed = true)
        stg_buffer_pop(&stage->buffer, &stage->effects); /* also when nothing was given:
                                  the slowest client may have left */
    return changed;
}

/* Each client by itself. */
static bool end(struct stg_stage *stage, bool *changed)
{
    bool all = stage->members.begun;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!stg_client_takes_part(c) || stg_client_pass(c) != stage->pass.n_ended)
            continue;
        if (!stg_client_in_pass(stage, c) || c->cursor < stage->buffer.next ||
            c->n_owed > 0) {
            all = false;
        } else if (stage->pass.failure.code != 0) {
            *changed |= stg_client_last_words(c, &stage->pass.failure);
        } else {
            count_gaps(c, stage->counts.n_skipped);
            stg_client_end(stage, c);
            *changed = true;
        }
    }
    return all;
}

static bool has_more(const struct stg_stage *stage, const struct stg_client *client)
{
    return stage->members.begun && client->cursor < stage->buffer.next;
}

/* The buffer is full of what this one was not given yet. */
static bool holds_up(const struct stg_stage *stage, const struct stg_client *client)
{
    return stage->members.begun && stg_client_takes_part(client) &&
           client->cursor == stage->buffer.first && client->cursor < stage->buffer.next &&
           !stg_buffer_has_room(&stage->buffer);
}

const struct stg_delivery_kind stg_delivery_broadcast = {
    .together = true,
    .give = give,
    .end = end,
    .has_more = has_more,
    .holds_up = holds_up,
};
