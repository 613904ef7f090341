/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs that begin at a state, and clients that load one: which run a client may attach
 * to, and where it begins. Lock held, except in the functions of stage.h.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/stage/priv.h"

/* ---- the place ---- */

int stg_stage_sought(struct stg_stage *stage, struct stg_err *err)
{
    pthread_mutex_lock(&stage->lock);
    int rc = stage->start.state == STG_START_PENDING  ? 0
             : stage->start.state == STG_START_FAILED ? stage->start.err.code
                                                      : 1;
    if (rc < 0)
        *err = stage->start.err;
    pthread_mutex_unlock(&stage->lock);
    return rc;
}

static bool is_same(const struct stg_state *a, const struct stg_state *b)
{
    return a->pass == b->pass && !stg_place_is_before(&a->place, &b->place) &&
           !stg_place_is_before(&b->place, &a->place) && a->rows == b->rows &&
           a->n_delivered == b->n_delivered && a->run == b->run &&
           strcmp(a->taken, b->taken) == 0;
}

/* The place before the item with that ordinal, which the buffer has, or will have next.
 */
static struct stg_pass_place place_before(const struct stg_stage *stage, uint64_t ordinal)
{
    const struct stg_buffer *buffer = &stage->buffer;
    return ordinal < buffer->next ? buffer->items[stg_buffer_at(buffer, ordinal)].before
                                  : stage->last_place;
}

/* The place before the first item that a client of a broadcast can get. back: NULL, or
 * the same client, which is away: what waits for it counts, up to a gap. */
static struct stg_pass_place first_place(const struct stg_stage *stage,
                                         const struct stg_client *back)
{
    if (back == NULL)
        return place_before(stage, stage->buffer.first);
    struct stg_pass_place place = place_before(stage, back->cursor);
    for (uint32_t i = back->n_pending; i-- > 0;) {
        const struct stg_item *item = &stage->buffer.items[back->pending[i]];
        if (stg_place_is_before(&item->after, &place) ||
            stg_place_is_before(&place, &item->after))
            break;
        place = item->before;
    }
    return place;
}

/* ---- clients ---- */

/* It asked for a batch since it opened. */
static bool has_begun(const struct stg_client *client)
{
    return client->state == STG_CLIENT_ATTACHED &&
           stg_control_asked(&client->control) > 0;
}

static void name(const struct stg_stage *stage,
                 bool (*is_meant)(const struct stg_client *client), struct stg_err *err)
{
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (is_meant(c))
            stg_err_append(err, err->code, " %s (pid %d)", c->client_id, (int)c->pid);
    }
}

static bool has_loaded(const struct stg_client *client)
{
    return stg_client_is_there(client) && client->loads;
}

static uint32_t count(const struct stg_stage *stage,
                      bool (*is_meant)(const struct stg_client *client))
{
    uint32_t n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n += is_meant(c);
    return n;
}

/* ---- may a client with a state attach? ---- */

int stg_stage_check_place(const struct stg_stage *stage, const struct stg_client *back,
                          uint64_t pass, const struct stg_pass_place *place,
                          struct stg_err *err)
{
    struct stg_pass_place first = first_place(stage, back);
    if (stage->pass.n_ended < pass ||
        (stage->pass.n_ended == pass && !stg_place_is_before(place, &first)))
        return 0;
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "pipeline %s is in pass %" PRIu64 " at position %" PRIu64
            ", and the state is of pass %" PRIu64 ", position %" PRIu64
            ": that batch is not in the buffer any more, and other clients would be "
            "rewound:",
            stage->config.name, stage->pass.n_ended, first.elements, pass,
            place->elements);
    name(stage, stg_client_is_there, err);
    return stg_err_append(err, err->code,
                          "; open the client with the earliest state first");
}

static int refuse_digest(const struct stg_stage *stage, const struct stg_state *state,
                         struct stg_err *err)
{
    stg_err(err, -STAGER_FAILED_PRECONDITION,
            "the clients of pipeline %s loaded a state of pass %" PRIu64
            ", position %" PRIu64 ", and this state is of pass %" PRIu64
            ", position %" PRIu64
            ": all clients must load the state of one step; loaded:",
            stage->config.name, stage->config.start->pass,
            stage->config.start->place.elements, state->pass, state->place.elements);
    name(stage, has_loaded, err);
    return err->code;
}

/* A run that has not begun waits for this client: it cannot have one apart. */
static int admit_broadcast(const struct stg_stage *stage, const struct stg_client *back,
                           const struct stg_state *state, struct stg_err *err)
{
    int rc = stg_stage_check_place(stage, back, state->pass, &state->place, err);
    if (rc == 0)
        return 0;
    if (count(stage, has_begun) == 0 && count(stage, has_loaded) == 0)
        return 1;
    return stage->members.begun ? 2 : rc;
}

static int admit_together(const struct stg_stage *stage, const struct stg_client *back,
                          const struct stg_state *state, struct stg_err *err)
{
    const struct stg_state *start = stage->config.start;
    uint32_t n = stage->members.n_attached + stage->members.n_joining;
    bool same = start != NULL && is_same(start, state);
    if (same && stage->counts.n_assigned == 0)
        return 0; /* others that wait for this client may have asked already */
    if (n >= stage->config.num_clients)
        return 0; /* attaching refuses it, with the names of all */
    if (!stage->policy->is_ranked)
        return admit_broadcast(stage, back, state, err);
    if (start != NULL && !same && count(stage, has_loaded) > 0 &&
        count(stage, has_begun) == 0)
        return refuse_digest(stage, state, err);
    return 1;
}

static int refuse_running(const struct stg_stage *stage, struct stg_err *err)
{
    stg_err(err, -STAGER_FAILED_PRECONDITION,
            "the run of pipeline %s has begun, and its clients would not go back to the "
            "state: close the streams of all, then load the merged state in each; "
            "attached:",
            stage->config.name);
    name(stage, stg_client_is_there, err);
    return err->code;
}

/* Split: a client that loads the state of the run attaches while the run has all items
 * after it, since no client that has left acknowledged any, and while states merge, since
 * each consumer is there, or took nothing. */
static int admit_shared(const struct stg_stage *stage, const struct stg_state *state,
                        struct stg_err *err)
{
    const struct stg_state *start = stage->config.start;
    const struct stg_membership *members = &stage->members;
    bool same = start != NULL && is_same(start, state);
    uint32_t n_clients = stage->config.num_clients;
    uint32_t n = members->n_attached + members->n_joining;
    if (n >= n_clients)
        return 0; /* attaching refuses it, with the names of all */
    if (same && members->n_takers_left == 0 &&
        members->n_consumers - members->n_vacant == n)
        return 0;
    if (!same && start != NULL && count(stage, has_loaded) > 0)
        return refuse_digest(stage, state, err);
    return count(stage, has_begun) == 0 ? 1 : refuse_running(stage, err);
}

/* Returns the client that is away under that name; NULL: none is. */
static const struct stg_client *find_away(const struct stg_stage *stage, const char *name)
{
    const struct stg_client *c = name != NULL ? stage->members.clients : NULL;
    while (c != NULL && !(c->state == STG_CLIENT_AWAY && strcmp(c->client_id, name) == 0))
        c = c->next;
    return c;
}

int stg_stage_admit(struct stg_stage *stage, const char *name,
                    const struct stg_state *state, struct stg_err *err)
{
    pthread_mutex_lock(&stage->lock);
    const struct stg_state *start = stage->config.start;
    int rc = 0;
    if (stage->members.n_attached + stage->members.n_joining == 0)
        rc = start == NULL || !is_same(start, state) || stage->counts.n_assigned > 0 ||
             stage->members.n_consumers > 0 || stage->pass.n_ended > start->pass;
    else if (stage->policy->together)
        rc = admit_together(stage, find_away(stage, name), state, err);
    else if (stg_stage_is_shared(stage))
        rc = admit_shared(stage, state, err);
    pthread_mutex_unlock(&stage->lock);
    return rc;
}

static bool asks(const struct stg_stage *stage)
{
    const struct stg_client *c = stage->members.clients;
    while (c != NULL && !stg_client_asks(&stage->pass, c))
        c = c->next;
    return c != NULL;
}

/* A rank of a split that has not joined yet comes late, to a pass that others took. */
static bool is_between(const struct stg_stage *stage, const char *name)
{
    return stage->pass.state == STG_PASS_NONE &&
           stage->pass.n_ended > stage->config.first_pass &&
           stage->members.n_joined >= stage->config.num_clients && !asks(stage) &&
           find_away(stage, name) == NULL;
}

bool stg_stage_is_over(struct stg_stage *stage, const char *name)
{
    pthread_mutex_lock(&stage->lock);
    bool is_used = stage->members.n_attached + stage->members.n_joining > 0;
    bool is_over = is_used ? is_between(stage, name) : stage->members.n_joined > 0;
    pthread_mutex_unlock(&stage->lock);
    return is_over;
}

uint64_t stg_stage_begins_pass(struct stg_stage *stage, const struct stg_client *client)
{
    pthread_mutex_lock(&stage->lock);
    bool back = find_away(stage, client->named ? client->client_id : NULL) != NULL;
    bool at_start = stage->pass.state == STG_PASS_NONE || stage->counts.n_assigned == 0;
    uint64_t pass =
        !back && at_start && stage->config.start == NULL ? stage->pass.n_ended + 1 : 0;
    pthread_mutex_unlock(&stage->lock);
    return pass;
}
