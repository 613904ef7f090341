/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/policy.h"

#include <assert.h>

/* ---- what they share ---- */

void stg_assignments_clear(struct stg_assignments *step,
                           const struct stg_delivery_view *view)
{
    *step = (struct stg_assignments){.all = step->all,
                                     .max = step->max,
                                     .front = view->buffer->first,
                                     .gaps_counted = view->buffer->gaps_counted,
                                     .returned = STG_NO_EXTENT};
}

static struct stg_assignment *add(struct stg_assignments *step, struct stg_client *client)
{
    assert(step->n < step->max);
    struct stg_assignment *a = &step->all[step->n++];
    *a = (struct stg_assignment){.client = client,
                                 .extent = STG_NO_EXTENT,
                                 .skipped = client->skipped_seen,
                                 .cursor = client->cursor};
    return a;
}

static const struct stg_item *item_at(const struct stg_delivery_view *view,
                                      uint64_t ordinal)
{
    return &view->buffer->items[stg_buffer_at(view->buffer, ordinal)];
}

static bool in_pass(const struct stg_delivery_view *view, const struct stg_client *client)
{
    return stg_client_in_pass(view->pass, client);
}

static uint32_t credits(const struct stg_delivery_view *view,
                        const struct stg_client *client)
{
    return stg_client_credits(view->buffer, client);
}

static bool may_have(const struct stg_delivery_view *view,
                     const struct stg_client *client, uint32_t extent)
{
    return stg_client_may_have(view->partitions, client, &view->buffer->items[extent]);
}

/* ---- split: each item to one client ----
 *
 * The client with the most free credits gets the item. The pass ends for all at once,
 * when every item is acknowledged: until then one may have to be delivered again. */

/* Of the clients that can use the item (STG_NO_EXTENT: of all). Ties go to the client
 * that was served longest ago. */
static struct stg_client *neediest(const struct stg_delivery_view *view, uint32_t extent)
{
    struct stg_client *best = NULL;
    uint32_t best_credits = 0;
    for (struct stg_client *c = view->members->clients; c != NULL; c = c->next) {
        if (!in_pass(view, c) || (extent != STG_NO_EXTENT && !may_have(view, c, extent)))
            continue;
        uint32_t n = credits(view, c);
        if (n > best_credits || (best != NULL && n == best_credits &&
                                 c->last_given_ns < best->last_given_ns)) {
            best = c;
            best_credits = n;
        }
    }
    return best;
}

static bool is_any_left(const struct stg_delivery_view *view)
{
    return view->buffer->n_returned > 0 || view->buffer->first < view->buffer->next;
}

static bool can_be_used(const struct stg_delivery_view *view, uint32_t extent)
{
    bool any = view->members->n_attached == 0;
    for (const struct stg_client *c = view->members->clients; c != NULL && !any;
         c = c->next)
        any = stg_client_takes_part(c) && may_have(view, c, extent);
    return any;
}

/* Items that were given before, or deferred, in their order. */
static bool give_returned(const struct stg_delivery_view *view,
                          struct stg_assignments *ret)
{
    for (uint32_t i = 0; i < view->buffer->n_returned; i++) {
        uint32_t extent = view->buffer->returned[i];
        struct stg_client *client = neediest(view, extent);
        ret->is_lost = client == NULL && !can_be_used(view, extent);
        if (client == NULL && !ret->is_lost)
            continue;
        ret->returned = i;
        if (client != NULL)
            add(ret, client)->extent = extent;
        return true;
    }
    return false;
}

/* A client that gets the next item counts the gap before it. An item that no client with
 * credits can use waits beside the buffer: those behind it need not wait. */
static bool split_give(const struct stg_delivery_view *view, struct stg_assignments *ret)
{
    const struct stg_buffer *buffer = view->buffer;
    if (give_returned(view, ret))
        return true;
    if (buffer->first == buffer->next)
        return false;
    uint32_t extent = stg_buffer_at(buffer, buffer->first);
    struct stg_client *client = neediest(view, extent);
    if (client == NULL) {
        ret->is_deferred = neediest(view, STG_NO_EXTENT) != NULL;
        return ret->is_deferred;
    }
    struct stg_assignment *a = add(ret, client);
    a->extent = extent;
    a->n_gaps = buffer->items[extent].skipped - buffer->gaps_counted;
    ret->gaps_counted = buffer->items[extent].skipped;
    ret->n_taken = 1;
    return true;
}

/* A client that asked for the pass gets its end as a client does that joins later. */
static bool split_end(const struct stg_delivery_view *view, struct stg_assignments *ret)
{
    if (is_any_left(view))
        return false;
    for (const struct stg_client *c = view->members->clients; c != NULL; c = c->next) {
        if (stg_client_unacknowledged(c) != NULL)
            return false;
    }
    for (struct stg_client *c = view->members->clients; c != NULL; c = c->next) {
        if (view->pass->failure.code != 0 && c->state == STG_CLIENT_ATTACHED)
            add(ret, c);
    }
    return true;
}

static bool split_has_more(const struct stg_delivery_view *view,
                           const struct stg_client *client)
{
    return is_any_left(view);
}

/* A client holds up others at the end of the pass alone, which comes when it
 * acknowledges. */
static bool split_holds_up(const struct stg_delivery_view *view,
                           const struct stg_client *client)
{
    return stg_pass_is_exhausted(view->pass) && !is_any_left(view) &&
           stg_client_unacknowledged(client) != NULL;
}

static const struct stg_policy split = {
    .name = "split",
    .give = split_give,
    .end = split_end,
    .has_more = split_has_more,
    .holds_up = split_holds_up,
};

/* ---- broadcast: each item to every client ----
 *
 * Items come in order; a fast client runs ahead by what the buffer holds. An item leaves
 * the buffer when the slowest client was given it. A client that is away and may come
 * back counts as the slowest. */

/* Passes an item by. */
static uint64_t leave_out(const struct stg_delivery_view *view, struct stg_client *client,
                          struct stg_assignments *ret)
{
    if (client->cursor >= view->buffer->next)
        return client->cursor;
    struct stg_assignment *a = add(ret, client);
    a->extent = STG_NO_EXTENT;
    a->skipped = view->buffer->items[stg_buffer_at(view->buffer, client->cursor)].skipped;
    return ++a->cursor;
}

/* The next item of one client. Returns its cursor afterwards. */
static uint64_t offer(const struct stg_delivery_view *view, struct stg_client *client,
                      struct stg_assignments *ret)
{
    if (stg_client_pass(client) > view->pass->n_ended)
        return leave_out(view, client, ret); /* it loaded a state of a later pass */
    if (!in_pass(view, client) || client->n_pending > 0 ||
        client->cursor >= view->buffer->next)
        return client->cursor;
    uint32_t extent = stg_buffer_at(view->buffer, client->cursor);
    const struct stg_item *item = &view->buffer->items[extent];
    bool is_before = client->loads && view->pass->n_ended == client->load_pass &&
                     !stg_place_is_before(&client->load_place, &item->after);
    bool is_good = !is_before && may_have(view, client, extent);
    if (is_good && credits(view, client) == 0)
        return client->cursor;
    struct stg_assignment *a = add(ret, client);
    a->extent = is_good ? extent : STG_NO_EXTENT;
    a->skipped = view->buffer->items[extent].skipped;
    a->n_gaps = is_before ? 0 : a->skipped - client->skipped_seen + !is_good;
    return ++a->cursor;
}

/* Items also leave when nothing is given: the slowest client may have left. */
static bool broadcast_give(const struct stg_delivery_view *view,
                           struct stg_assignments *ret)
{
    const struct stg_buffer *buffer = view->buffer;
    uint64_t slowest = buffer->next;
    if (!view->members->begun)
        return false;
    for (struct stg_client *c = view->members->clients; c != NULL; c = c->next) {
        uint64_t cursor = slowest;
        if (stg_client_takes_part(c))
            cursor = offer(view, c, ret);
        else if (c->state == STG_CLIENT_JOINING && c->loads)
            cursor = c->cursor; /* what follows its state waits for it */
        slowest = cursor < slowest ? cursor : slowest;
    }
    ret->n_taken = slowest > buffer->first ? slowest - buffer->first : 0;
    return ret->n > 0 || ret->n_taken > 0;
}

/* Each client by itself. */
static bool broadcast_end(const struct stg_delivery_view *view,
                          struct stg_assignments *ret)
{
    bool all = view->members->begun;
    for (struct stg_client *c = view->members->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_JOINING && c->loads &&
            c->load_pass == view->pass->n_ended)
            all = false; /* what follows its state waits for it */
        if (!stg_client_takes_part(c) || stg_client_pass(c) != view->pass->n_ended)
            continue;
        if (!in_pass(view, c) || c->cursor < view->buffer->next || c->n_pending > 0) {
            all = false;
            continue;
        }
        struct stg_assignment *a = add(ret, c);
        if (view->pass->failure.code == 0)
            a->skipped = view->buffer->n_skipped;
        a->n_gaps = a->skipped - c->skipped_seen;
    }
    return all;
}

static bool broadcast_has_more(const struct stg_delivery_view *view,
                               const struct stg_client *client)
{
    return view->members->begun && client->cursor < view->buffer->next;
}

/* The buffer is full of items that this client was not given yet. */
static bool broadcast_holds_up(const struct stg_delivery_view *view,
                               const struct stg_client *client)
{
    const struct stg_buffer *buffer = view->buffer;
    return view->members->begun && stg_client_takes_part(client) &&
           client->cursor == buffer->first && client->cursor < buffer->next &&
           !stg_buffer_has_room(buffer);
}

static const struct stg_policy broadcast = {
    .name = "broadcast",
    .together = true,
    .give = broadcast_give,
    .end = broadcast_end,
    .has_more = broadcast_has_more,
    .holds_up = broadcast_holds_up,
};

/* ---- round_robin: whole rounds ----
 *
 * A round is num_clients items in their order, one for each rank. It is dealt at once,
 * when all of them are published and every rank has a free credit: so no rank is ever
 * offered a round that another rank was not. An error item takes a round by itself, which
 * every rank gets. Items gathered before it stay first for the next round, so that
 * nothing is lost and no rank steps further than another. */

/* The ordinal of an error item that comes before a whole round is gathered, or of the
 * round's last item: the next round ends there. UINT64_MAX: it is not published yet. */
static uint64_t round_end(const struct stg_delivery_view *view, bool *ret_error)
{
    uint64_t n = 0;
    for (uint64_t i = view->buffer->first; i < view->buffer->next; i++) {
        *ret_error = item_at(view, i)->is_error;
        if (*ret_error || ++n == view->num_clients)
            return i;
    }
    return UINT64_MAX;
}

static bool is_round_there(const struct stg_delivery_view *view)
{
    bool is_error;
    return round_end(view, &is_error) != UINT64_MAX;
}

static bool is_ready(const struct stg_delivery_view *view,
                     const struct stg_client *client)
{
    return in_pass(view, client) && client->n_pending == 0 && credits(view, client) > 0;
}

/* A rank whose state is of a later pass waits for it; the others catch up. */
static bool is_ahead(const struct stg_delivery_view *view,
                     const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED &&
           stg_client_pass(client) > view->pass->n_ended;
}

/* Does the state of the rank have the round, or error item, that ends at that item?
 * *ret_error: it counts the error item after its place. */
static bool has_round(const struct stg_delivery_view *view,
                      const struct stg_client *client, const struct stg_item *item,
                      bool *ret_error)
{
    *ret_error = false;
    if (!client->loads || client->load_pass != view->pass->n_ended)
        return false;
    if (!item->is_carried)
        return !stg_place_is_before(&client->load_place, &item->after);
    if (stg_place_is_before(&item->before, &client->load_place))
        return true;
    *ret_error = client->load_errors > 0 &&
                 !stg_place_is_before(&client->load_place, &item->before);
    return *ret_error;
}

static bool are_all_ready(const struct stg_delivery_view *view)
{
    uint32_t n = 0;
    for (const struct stg_client *c = view->members->clients; c != NULL; c = c->next)
        n += is_ready(view, c) || is_ahead(view, c);
    return view->members->begun && n == view->num_clients;
}

/* Numbers skipped up to the item before that ordinal. */
static uint64_t skipped_before(const struct stg_delivery_view *view, uint64_t ordinal)
{
    return ordinal > view->buffer->first ? item_at(view, ordinal - 1)->skipped
                                         : view->buffer->gaps_counted;
}

/* What was skipped before an item of the round would have been for that rank. */
static bool round_robin_give(const struct stg_delivery_view *view,
                             struct stg_assignments *ret)
{
    const struct stg_buffer *buffer = view->buffer;
    bool is_error;
    uint64_t last = round_end(view, &is_error);
    if (last == UINT64_MAX || !are_all_ready(view))
        return false;
    for (struct stg_client *c = view->members->clients; c != NULL; c = c->next) {
        if (!is_ready(view, c))
            continue;
        uint64_t ordinal = is_error ? last : buffer->first + c->rank;
        struct stg_assignment *a = add(ret, c);
        if (has_round(view, c, item_at(view, last), &a->skips_error))
            continue;
        a->extent = stg_buffer_at(buffer, ordinal);
        if (!is_error)
            a->n_gaps = item_at(view, ordinal)->skipped - skipped_before(view, ordinal);
    }
    ret->n_taken = is_error ? 1 : view->num_clients;
    if (is_error)
        ret->front = last;
    else
        ret->gaps_counted = item_at(view, last)->skipped;
    return true;
}

/* To all at once: no rank may end its pass while another waits for one that is away. The
 * last round is not whole, and no client gets it. */
static bool round_robin_end(const struct stg_delivery_view *view,
                            struct stg_assignments *ret)
{
    if (!view->members->begun || is_round_there(view))
        return false;
    bool has_failed = view->pass->failure.code != 0;
    uint32_t n_ahead = 0;
    for (struct stg_client *c = view->members->clients; c != NULL; c = c->next) {
        bool ahead = is_ahead(view, c);
        n_ahead += ahead;
        if ((in_pass(view, c) && c->n_pending == 0) || (has_failed && ahead))
            add(ret, c);
    }
    ret->discards = has_failed || ret->n + n_ahead >= view->num_clients;
    if (!ret->discards)
        ret->n = 0;
    return ret->discards;
}

static bool round_robin_has_more(const struct stg_delivery_view *view,
                                 const struct stg_client *client)
{
    return view->members->begun && view->members->n_attached == view->num_clients &&
           is_round_there(view);
}

/* A round is there, and this rank cannot be dealt to. */
static bool round_robin_holds_up(const struct stg_delivery_view *view,
                                 const struct stg_client *client)
{
    return view->members->begun && stg_client_takes_part(client) &&
           !is_ready(view, client) && !is_ahead(view, client) && is_round_there(view);
}

static const struct stg_policy round_robin = {
    .name = "round_robin",
    .together = true,
    .is_ranked = true,
    .give = round_robin_give,
    .end = round_robin_end,
    .has_more = round_robin_has_more,
    .holds_up = round_robin_holds_up,
};

const struct stg_policy *stg_policy(enum stg_delivery delivery)
{
    switch (delivery) {
    case STG_DELIVERY_BROADCAST: return &broadcast;
    case STG_DELIVERY_ROUND_ROBIN: return &round_robin;
    case STG_DELIVERY_SPLIT: break;
    }
    return &split;
}
