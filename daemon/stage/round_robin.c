/* SPDX-License-Identifier: Apache-2.0
 *
 * round_robin: whole rounds. A round is num_clients items in their order, one for each
 * rank, dealt at once when all of them are published and every rank has a free credit: so
 * no rank is ever offered a round that another was not. An error item takes a round of
 * its own, which every rank gets; what was gathered of a round before it stays first for
 * the next one, so that nothing is lost and nobody steps further than another.
 */
#include <stdio.h>

#include "daemon/stage/delivery.h"

/* The ordinal of an error item that comes before a whole round is gathered, or of the
 * round's last item: the next round ends there. UINT64_MAX: it is not published yet. */
static uint64_t round_end(const struct stg_stage *stage, bool *ret_error)
{
    uint64_t n = 0;
    for (uint64_t i = stage->buffer.first; i < stage->buffer.next; i++) {
        *ret_error = stage->buffer.items[stg_buffer_at(&stage->buffer, i)].is_error;
        if (*ret_error || ++n == stage->config.num_clients)
            return i;
    }
    return UINT64_MAX;
}

static bool is_ready(const struct stg_stage *stage, const struct stg_client *client)
{
    return stg_client_in_pass(stage, client) && client->n_owed == 0 &&
           stg_client_credits(stage, client) > 0;
}

static bool all_ready(const struct stg_stage *stage)
{
    uint32_t n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n += is_ready(stage, c);
    return stage->members.begun && n == stage->config.num_clients;
}

static void deal_error(struct stg_stage *stage, uint64_t at)
{
    uint32_t extent = stg_buffer_at(&stage->buffer, at);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (is_ready(stage, c))
            (void)stg_client_give(stage, c, extent, false);
    }
    stg_buffer_advance(&stage->buffer, at);
    stg_buffer_pop(&stage->buffer, &stage->effects);
}

/* What was skipped before an item of the round would have been for that rank. */
static uint64_t gaps_before(const struct stg_stage *stage, uint64_t ordinal)
{
    return ordinal > stage->buffer.first
               ? stage->buffer.items[stg_buffer_at(&stage->buffer, ordinal - 1)].skipped
               : stage->counts.gaps_counted;
}

static void deal_round(struct stg_stage *stage)
{
    uint64_t first = stage->buffer.first, last = first + stage->config.num_clients - 1;
    uint64_t gaps = stage->buffer.items[stg_buffer_at(&stage->buffer, last)].skipped;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (!is_ready(stage, c))
            continue;
        uint32_t extent = stg_buffer_at(&stage->buffer, first + c->rank);
        (void)stg_client_give(stage, c, extent, false);
        c->n_gaps +=
            stage->buffer.items[extent].skipped - gaps_before(stage, first + c->rank);
    }
    stage->counts.gaps_counted = gaps;
    for (uint32_t i = 0; i < stage->config.num_clients; i++)
        stg_buffer_pop(&stage->buffer, &stage->effects);
}

static bool give(struct stg_stage *stage)
{
    bool changed = false, is_error;
    uint64_t last;
    while ((last = round_end(stage, &is_error)) != UINT64_MAX && all_ready(stage)) {
        if (is_error)
            deal_error(stage, last);
        else
            deal_round(stage);
        changed = true;
    }
    return changed;
}

/* The last round is not whole: it is for nobody. */
static void discard_incomplete(struct stg_stage *stage)
{
    stage->counts.n_incomplete += stage->buffer.next - stage->buffer.first;
    stg_stage_discard(stage);
}

static bool tell_failure(struct stg_stage *stage)
{
    bool changed = false;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (stg_client_in_pass(stage, c) && c->n_owed == 0)
            changed |= stg_client_last_words(c, &stage->pass.failure);
    }
    return changed;
}

/* To all at once: no rank may believe that it is done while another still waits for one
 * that is away. */
static bool end(struct stg_stage *stage, bool *changed)
{
    bool is_error;
    if (!stage->members.begun || round_end(stage, &is_error) != UINT64_MAX)
        return false;
    if (stage->pass.failure.code != 0) {
        discard_incomplete(stage);
        *changed |= tell_failure(stage);
        return true;
    }
    uint32_t n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n += stg_client_in_pass(stage, c) && c->n_owed == 0;
    if (n < stage->config.num_clients)
        return false;
    discard_incomplete(stage);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (stg_client_in_pass(stage, c))
            stg_client_end(stage, c);
    }
    *changed = true;
    return true;
}

static bool has_more(const struct stg_stage *stage, const struct stg_client *client)
{
    bool is_error;
    return stage->members.begun &&
           stage->members.n_attached == stage->config.num_clients &&
           round_end(stage, &is_error) != UINT64_MAX;
}

/* A round is there, and this rank cannot be dealt to. */
static bool holds_up(const struct stg_stage *stage, const struct stg_client *client)
{
    bool is_error;
    return stage->members.begun && stg_client_takes_part(client) &&
           !is_ready(stage, client) && round_end(stage, &is_error) != UINT64_MAX;
}

/* Without it no round is whole. Who went when nothing ran leaves a place to fill. */
static void gone(struct stg_stage *stage, const struct stg_client *client,
                 bool in_the_middle, const char *why)
{
    if (!stage->members.begun) { /* ranks are the order of joining at the start */
        for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
            c->rank -= stg_client_takes_part(c) && c->rank > client->rank;
        return;
    }
    if (!in_the_middle || stg_stage_is_empty(stage))
        return;
    char text[512];
    snprintf(text, sizeof(text),
             "round_robin cannot go on without rank %u, client %s (pid %d): %s",
             client->rank, client->client_id, (int)client->pid, why);
    stg_stage_abort(stage, text);
}

const struct stg_delivery_kind stg_delivery_round_robin = {
    .together = true,
    .give = give,
    .end = end,
    .has_more = has_more,
    .holds_up = holds_up,
    .gone = gone,
};
