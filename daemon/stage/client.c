/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a client: attaching, coming back, leaving, being away.
 *
 * A client attaches in two steps: open keeps a place for it, join takes effect once the
 * client has mapped its pages. An open that fails on either side changes nothing. A named
 * client that leaves in the middle of a pass is away until reconnect_grace_millis are
 * over. A client that comes back under the name of one that is away takes over its place,
 * its counts and what it had not acknowledged.
 *
 * Whether a client is waited for depends on what the daemon did: it joined the client, it
 * pushed its end. A word of its control page can only give up a place, never keep one
 * from the client: it may die before any store.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/priv.h"

/* ---- opening ---- */

static uint64_t millis_left(const struct stg_client *client)
{
    uint64_t now = stg_now_ns();
    return client->away_until_ns > now ? (client->away_until_ns - now) / 1000000 + 1 : 0;
}

/* Does its place, or a place that is kept for it, count beside `back`, which comes back?
 * One that is away and its successor have one place. */
static bool has_own_place(const struct stg_stage *stage, const struct stg_client *client,
                          const struct stg_client *back)
{
    if (client->state == STG_CLIENT_AWAY)
        return stage->policy->together && client != back &&
               stg_client_successor(&stage->members, client) == NULL;
    return client->state != STG_CLIENT_DETACHED;
}

static int refuse_full(const struct stg_stage *stage, struct stg_err *err)
{
    bool retained = stage->members.n_attached < stage->config.num_clients;
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "pipeline %s has num_clients %u, and %s:", stage->config.name,
            stage->config.num_clients,
            retained ? "no place is free" : "as many are attached");
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED)
            stg_err_append(err, err->code, " %s (pid %d)", c->client_id, (int)c->pid);
        else if (c->state == STG_CLIENT_JOINING)
            stg_err_append(err, err->code, " %s (pid %d, joining)", c->client_id,
                           (int)c->pid);
        else if (c->state == STG_CLIENT_AWAY && stage->policy->together)
            stg_err_append(err, err->code,
                           " %s (its place is reserved for %" PRIu64
                           " ms: reconnect_grace_millis)",
                           c->client_id, millis_left(c));
    }
    return stg_err_append(err, err->code,
                          "; raise num_clients to %u, or wait until one leaves",
                          stage->config.num_clients + 1);
}

static bool has_place(const struct stg_stage *stage, const struct stg_client *back)
{
    uint32_t n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n += has_own_place(stage, c, back);
    return n < stage->config.num_clients;
}

/* The memory was divided when the first one opened the pipeline; more memory would make
 * larger batches, not more of them. */
static int refuse_held(const struct stg_stage *stage, uint32_t max_in_flight,
                       uint64_t others, uint64_t n_wanted, struct stg_err *err)
{
    const struct stg_stage_plan *plan = &stage->plan;
    uint64_t over = n_wanted - plan->n_extents;
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "max_in_flight %u is too large: pipeline %s has room for num_clients %u x "
            "max_in_flight %u batches in flight, by the max_in_flight of the first "
            "client (at least 2), of which other clients may hold %" PRIu64 ": ",
            max_in_flight, stage->config.name, stage->config.num_clients,
            plan->max_in_flight, others);
    uint32_t n = stage->config.num_clients, most = max_in_flight;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        most = c->max_in_flight > most ? c->max_in_flight : most;
    if (over < max_in_flight)
        stg_err_append(err, err->code, "open with at most %" PRIu64 ", or ",
                       max_in_flight - over);
    return stg_err_append(err, err->code,
                          "let the first client open it with max_in_flight %u, or raise "
                          "num_clients to %" PRIu64,
                          most,
                          n + (over + plan->max_in_flight - 1) / plan->max_in_flight);
}

/* (capacity + num_threads + sum of max_in_flight + 1) x max_batch_bytes must fit the
 * arena; and with what processes hold that have left, a batch more than all can hold, so
 * that no client waits for memory without end. */
static int admit(const struct stg_stage *stage, const struct stg_client *back,
                 uint32_t max_in_flight, struct stg_err *err)
{
    bool rounds = stage->config.delivery == STG_DELIVERY_ROUND_ROBIN;
    uint64_t round = rounds ? stage->config.num_clients : 1;
    uint64_t items = stage->plan.capacity * round;
    uint64_t held = max_in_flight, retained = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        held += has_own_place(stage, c, back) ? c->max_in_flight : 0;
        retained += c->state != STG_CLIENT_ATTACHED ? c->n_assigned : 0;
    }
    uint64_t n = items + stage->plan.num_threads + stage->plan.num_remote + held + 1;
    if (n <= stage->plan.n_extents && held + retained + round <= stage->plan.n_extents)
        return 0;
    if (n <= stage->plan.n_extents)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "processes that closed pipeline %s still hold %" PRIu64
                       " batches, and its memory has %" PRIu64
                       ": release the batches, or end the processes",
                       stage->config.name, retained, stage->plan.n_extents);
    return refuse_held(stage, max_in_flight, held - max_in_flight, n, err);
}

static int map_pages(struct stg_client *client, uint64_t instance, struct stg_err *err)
{
    int rc = stg_segment_create("stager-ring", STG_RING_BYTES, false, NULL,
                                &client->ring_segment, err);
    if (rc == 0)
        rc = stg_segment_create("stager-control", STG_CONTROL_BYTES, true, NULL,
                                &client->control_segment, err);
    if (rc < 0)
        return rc;
    stg_ring_format(client->ring_segment.base, instance);
    stg_control_format(client->control_segment.base, instance);
    client->ring.page = client->ring_segment.base;
    client->control.page = client->control_segment.base;
    return 0;
}

int stg_client_create(const struct stg_attach *attach, uint64_t instance,
                      struct stg_client **ret, struct stg_err *err)
{
    struct stg_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    client->max_in_flight = attach->max_in_flight;
    client->manual_ack = attach->manual_ack;
    client->named = attach->named;
    client->batch_size = attach->batch_size;
    client->names_rank = attach->world_size != 0;
    client->rank = attach->rank;
    client->member = attach->member;
    client->process = attach->process;
    client->follows = attach->follows;
    client->reconnects = attach->reconnects;
    client->base_pass = attach->pass;
    client->consumer = attach->consumer;
    client->loads = attach->state != NULL;
    if (client->loads) {
        client->load_errors = attach->state->n_delivered;
        client->load_pass = attach->state->pass;
        client->load_place = attach->state->place;
    }
    client->pid = attach->pid;
    client->uid = attach->uid;
    client->job = attach->job;
    snprintf(client->client_id, sizeof(client->client_id), "%s", attach->client_id);
    snprintf(client->program, sizeof(client->program), "%s", attach->program);
    client->endpoint = stg_endpoint_create(attach->socket);
    client->assigned = calloc(attach->max_in_flight, sizeof(client->assigned[0]));
    int rc = client->assigned != NULL && client->endpoint != NULL
                 ? map_pages(client, instance, err)
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc < 0) {
        stg_client_free(client);
        return rc;
    }
    *ret = client;
    return 0;
}

/* Which pass a newcomer is in: the running one; the next one; or, under split while
 * others are still there, the one that just ended, so that its end comes at once. */
static uint64_t pass_to_join(const struct stg_stage *stage)
{
    bool late = !stage->policy->together && stage->members.n_attached > 0 &&
                stage->pass.state == STG_PASS_NONE &&
                stage->pass.n_ended > stage->config.first_pass;
    return stage->pass.n_ended - late;
}

static uint32_t free_rank(const struct stg_stage *stage)
{
    uint32_t rank = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL;) {
        bool taken = stg_client_takes_part(c) && c->rank == rank;
        rank += taken;
        c = taken ? stage->members.clients : c->next;
    }
    return rank;
}

/* The error items after its place that a client has, and that the run makes again: it
 * leaves out those that the state at which it began has. */
static uint64_t count_errors(const struct stg_stage *stage,
                             const struct stg_client *client)
{
    const struct stg_state *start = stage->config.start;
    bool is_there = start != NULL && start->pass == client->load_pass &&
                    !stg_place_is_before(&start->place, &client->load_place);
    uint64_t n = is_there ? start->n_delivered : 0;
    return client->load_errors > n ? client->load_errors - n : 0;
}

/* A client of a split that reconnects gets the end of its pass, if it did not get it
 * before. */
static uint64_t first_pass_of(const struct stg_stage *stage,
                              const struct stg_client *client)
{
    bool is_ahead = client->loads && client->load_pass > stage->pass.n_ended;
    if (client->reconnects && !stage->policy->together)
        return client->base_pass;
    /* Broadcast: a state of a later pass waits for that pass. */
    return is_ahead ? client->load_pass : pass_to_join(stage);
}

/* Broadcast: a client with a state begins there; the buffer has it (check_place). */
static uint64_t first_ordinal(const struct stg_stage *stage,
                              const struct stg_client *client)
{
    const struct stg_buffer *buffer = &stage->buffer;
    uint64_t i = buffer->first;
    while (i < buffer->next &&
           !stg_place_is_before(&client->load_place,
                                &buffer->items[stg_buffer_at(buffer, i)].after))
        i++;
    return i;
}

/* A run that begins at a state waits until all clients have loaded it. */
static bool have_loaded(const struct stg_stage *stage)
{
    bool all = true;
    for (const struct stg_client *c = stage->members.clients; c != NULL && all;
         c = c->next)
        all = c->state != STG_CLIENT_ATTACHED || c->loads;
    return all || stage->config.start == NULL;
}

static void begin_anew(struct stg_stage *stage, struct stg_client *client)
{
    client->base_pass = first_pass_of(stage, client);
    client->load_errors = count_errors(stage, client);
    /* Before all are there nothing is given: what lies in the buffer of a warm stage is
     * for all of them. */
    client->cursor = client->loads          ? first_ordinal(stage, client)
                     : stage->members.begun ? stage->buffer.next
                                            : stage->buffer.first;
    client->skipped_seen = stage->buffer.n_skipped;
    if (!client->names_rank)
        client->rank = free_rank(stage);
    client->joined = stage->members.n_joined++;
}

/* Of its batches, than when it left. */
static bool wants_more(const struct stg_stage *stage,
                       const struct stg_partition_needs *needs,
                       const struct stg_client *old)
{
    return stage->config.partitions != NULL &&
           !stg_partition_needs_within(stage->config.partitions, needs, old->needs);
}

static bool is_broadcast(const struct stg_stage *stage)
{
    return stage->policy->together && !stage->policy->is_ranked;
}

/* The client begins at the state that it loaded: items before it, which wait for the
 * client, are acknowledged by the state. */
static void drop_loaded(struct stg_stage *stage, struct stg_client *client)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < client->n_pending; i++) {
        uint32_t extent = client->pending[i];
        if (client->load_pass == stage->pass.n_ended &&
            stg_place_is_before(&client->load_place, &stage->buffer.items[extent].after))
            client->pending[n++] = extent;
        else
            stg_item_acknowledge(&stage->buffer, extent, &stage->effects);
    }
    client->n_pending = n;
    client->base_pass = client->load_pass;
}

static void go_on(struct stg_stage *stage, struct stg_client *client,
                  struct stg_client *old)
{
    client->base_pass = old->base_pass;
    client->cursor = old->cursor;
    client->joined =
        wants_more(stage, client->needs, old) ? stage->members.n_joined++ : old->joined;
    client->rank = old->rank;
    client->skipped_seen = old->skipped_seen;
    memcpy(client->pending, old->pending, old->n_pending * sizeof(old->pending[0]));
    client->n_pending = old->n_pending;
    client->last_given_ns = old->last_given_ns;
    client->taken_before = old->taken_before;
    client->n_acknowledged = old->n_acknowledged;
    client->n_released = old->n_released;
    client->n_redelivered = old->n_redelivered;
    client->n_given = old->n_given;
    client->n_gaps = old->n_gaps;
    client->n_lost = old->n_lost;
    client->wait_ns = old->wait_ns;
    client->wait_seen_ns = old->wait_seen_ns;
    client->daemon_wait_ns = old->daemon_wait_ns;
    if (client->loads && is_broadcast(stage)) {
        drop_loaded(stage, client);
    } else if (!client->loads) {
        client->loads = old->loads;
        client->load_pass = old->load_pass;
        client->load_place = old->load_place;
        client->load_errors = old->load_errors;
    }
    client->took_over = true;
    old->n_pending = 0;
    stage->members.n_takers_left -= old->n_acknowledged > 0;
    old->adopted = true;
    old->state = STG_CLIENT_DETACHED;
    stage->members.n_away--;
    stg_stage_log(stage, STG_LOG_INFO,
                  "pipeline %s: client %s reconnected (pid %d, was %d)",
                  stage->config.name, client->client_id, (int)client->pid, (int)old->pid);
}

/* What waits for it may lack what it now asks for. */
static int refuse_wider(const struct stg_client *back, const struct stg_stage *stage,
                        struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "client %s of pipeline %s reconnects during a pass with other fields, "
                   "fetches or slices: open it with the earlier ones, wait for %" PRIu64
                   " ms (reconnect_grace_millis), or use another client_id",
                   back->client_id, stage->config.name, millis_left(back));
}

static struct stg_client *find_named(const struct stg_stage *stage, const char *id,
                                     bool away)
{
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_DETACHED && (c->state == STG_CLIENT_AWAY) == away &&
            c->named && strcmp(c->client_id, id) == 0)
            return c;
    }
    return NULL;
}

/* A rank that a client names is of this pipeline, and no other client's. */
static int check_rank(const struct stg_stage *stage, const struct stg_attach *attach,
                      const struct stg_client *back, struct stg_err *err)
{
    uint32_t n = stage->config.num_clients;
    bool divides = stage->config.deal.n_hosts > 0 && !is_broadcast(stage);
    if ((!stage->policy->is_ranked && !divides) || attach->world_size == 0)
        return 0;
    if (attach->world_size != n || attach->rank >= n)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "rank %u of world_size %u: pipeline %s has num_clients %u, and "
                       "ranks from 0 to %u",
                       attach->rank, attach->world_size, stage->config.name, n, n - 1);
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        bool has_rank =
            c->state == STG_CLIENT_JOINING ? c->names_rank : stg_client_takes_part(c);
        if (c != back && has_rank && c->rank == attach->rank)
            return stg_err(err, -STAGER_ALREADY_EXISTS,
                           "rank %u of pipeline %s is client %s (pid %d): each client "
                           "needs another rank",
                           attach->rank, stage->config.name, c->client_id, (int)c->pid);
    }
    return 0;
}

static int check_open(const struct stg_stage *stage, const struct stg_attach *attach,
                      struct stg_err *err)
{
    const struct stg_client *back = NULL, *same = NULL;
    if (attach->named) {
        back = find_named(stage, attach->client_id, true);
        same = find_named(stage, attach->client_id, false);
    }
    if (same != NULL)
        return stg_err(err, -STAGER_ALREADY_EXISTS,
                       "client %s is attached to pipeline %s already (pid %d): choose "
                       "another client_id, or end that process",
                       same->client_id, stage->config.name, (int)same->pid);
    if (back != NULL && back->uid != attach->uid)
        return stg_err(err, -STAGER_ALREADY_EXISTS,
                       "client %s of pipeline %s belongs to another user (uid %u), and "
                       "may reconnect within %" PRIu64 " ms: choose another client_id",
                       back->client_id, stage->config.name, (unsigned)back->uid,
                       millis_left(back));
    int rc = check_rank(stage, attach, back, err);
    if (rc < 0)
        return rc;
    if (!has_place(stage, back))
        return refuse_full(stage, err);
    if (back != NULL && stage->policy->together && wants_more(stage, attach->needs, back))
        return refuse_wider(back, stage, err);
    rc = stg_needs_check(stage, attach->needs, back, err);
    return rc == 0 ? admit(stage, back, attach->max_in_flight, err) : rc;
}

int stg_client_open(struct stg_stage *stage, const struct stg_attach *attach,
                    struct stg_client *client, struct stg_err *err)
{
    int rc = check_open(stage, attach, err);
    if (rc < 0)
        return rc;
    rc = stg_lease_client_add(stage->buffer.leases, client->max_in_flight,
                              &client->lease_client);
    if (rc < 0)
        return stg_err(err, rc, "too many disconnected clients still hold batches");
    client->has_lease = true;
    client->needs = attach->needs;
    client->state = STG_CLIENT_JOINING;
    client->next = stage->members.clients;
    stage->members.clients = client;
    stage->members.n_joining++;
    if (client->loads)
        client->cursor = first_ordinal(stage, client);
    stg_consumer_join(stage, client);
    return 0;
}

/* The others may have gone on since the open. */
static int check_place(const struct stg_stage *stage, const struct stg_client *client,
                       const struct stg_client *back, struct stg_err *err)
{
    return client->loads && is_broadcast(stage)
               ? stg_stage_check_place(stage, back, client->load_pass,
                                       &client->load_place, err)
               : 0;
}

/* The place was kept; what else an open looked at may have changed since. */
int stg_client_may_join(const struct stg_stage *stage, const struct stg_client *client,
                        struct stg_err *err)
{
    const struct stg_client *back =
        client->named ? find_named(stage, client->client_id, true) : NULL;
    if (stage->stop.is_on)
        return stg_err(err, stage->stop.words.code, "%s", stage->stop.words.text);
    int rc = check_place(stage, client, back, err);
    return rc == 0 ? stg_needs_check(stage, client->needs, back, err) : rc;
}

bool stg_client_foresee(const struct stg_stage *stage, const struct stg_client *client,
                        uint32_t *ret_rank, bool *ret_takes_over)
{
    const struct stg_client *back =
        client->named ? find_named(stage, client->client_id, true) : NULL;
    *ret_takes_over = back != NULL;
    *ret_rank = back != NULL         ? back->rank
                : client->names_rank ? client->rank
                                     : free_rank(stage);
    bool has_loaded = client->loads || stage->config.start == NULL;
    return stage->members.begun ||
           (stage->members.n_attached + 1 >= stage->members.n_begin && has_loaded &&
            have_loaded(stage));
}

void stg_stage_begin_together(struct stg_stage *stage)
{
    if (stage->members.n_attached >= stage->members.n_begin && have_loaded(stage))
        stage->members.begun = true;
}

void stg_client_join(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_client *back =
        client->named ? find_named(stage, client->client_id, true) : NULL;
    struct stg_err err = {0};
    int rc = check_place(stage, client, back, &err);
    stage->members.n_joining--;
    stage->members.n_attaches++;
    stage->members.n_reconnected += back != NULL || client->reconnects;
    if (back != NULL)
        go_on(stage, client, back);
    else
        begin_anew(stage, client);
    client->state = STG_CLIENT_ATTACHED;
    uint64_t now = stg_now_ns();
    stage->members.n_changes++;
    stage->members.attached_ns -= now;
    if (stage->members.n_attached++ == 0) {
        stage->timeouts.first_attach_ns = now;
        stage->effects.wake |= STG_WAKE_ROOM; /* the runners' clock runs */
    }
    stg_stage_begin_together(stage);
    stg_stage_recut(stage);
    stage->effects.events.has_changed = true;
    if (rc < 0)
        stg_client_disconnect(stage, client, -rc, err.text);
}

/* ---- leaving ---- */

/* Did the client get the end of its pass, and asks for the next one? */
static bool asks_on(const struct stg_client *client)
{
    return client->ends > 0 &&
           stg_control_pass_wanted(&client->control) == client->ends + 1;
}

/* The client took the end of its pass, closed the stream and holds no batch. A process
 * that dies has not acknowledged the end: a client that reconnects under its name gets it
 * again. */
static bool is_done(const struct stg_client *client)
{
    return client->ends > 0 && client->has_left && client->asked > client->end_position &&
           stg_control_taken(&client->control) > client->end_position &&
           !asks_on(client) && stg_client_unacknowledged(client) == NULL &&
           client->n_pending == 0;
}

static bool may_come_back(const struct stg_stage *stage, const struct stg_client *client)
{
    return client->named && stage->staged->reconnect_grace_millis > 0 &&
           !stage->config.private_run && !stage->stop.is_on &&
           stage->pass.failure.code == 0 &&
           (stage->members.begun || !stage->policy->together) && !is_done(client);
}

static void lose(struct stg_stage *stage, struct stg_client *client, uint32_t extent)
{
    client->n_lost++;
    stg_item_lose(&stage->buffer, extent, &stage->effects);
}

/* What it had not acknowledged: to others under split, else to itself when it comes back.
 * Items that it was given are older than those that wait for it. */
static void requeue(struct stg_stage *stage, struct stg_client *client)
{
    bool again = stage->staged->redeliver && !stage->stop.is_on;
    bool back = client->state == STG_CLIENT_AWAY;
    uint32_t pending[STG_MAX_IN_FLIGHT], n = 0;
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (assigned->acked)
            continue;
        assigned->acked = true;
        if (again && !stage->policy->together)
            stg_item_return(&stage->buffer, assigned->extent);
        else if (again && back)
            pending[n++] = assigned->extent;
        else
            lose(stage, client, assigned->extent);
    }
    for (uint32_t i = 0; i < client->n_pending; i++) {
        if (back)
            pending[n++] = client->pending[i];
        else
            lose(stage, client, client->pending[i]);
    }
    memcpy(client->pending, pending, n * sizeof(pending[0]));
    client->n_pending = n;
}

static void note_empty(struct stg_stage *stage)
{
    if (!stg_members_are_none(&stage->members))
        return;
    stage->members.begun = stage->members.had_begun = false;
    stage->members.n_begin = stage->config.num_clients;
}

/* A pass needs every rank. A client that leaves when nothing runs leaves a place to fill;
 * before the start, ranks are the order of joining. */
static void lose_rank(struct stg_stage *stage, const struct stg_client *client,
                      bool in_the_middle, const char *why)
{
    if (!stage->policy->is_ranked)
        return;
    if (!stage->members.begun) {
        for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
            c->rank -= stg_client_takes_part(c) && !c->names_rank &&
                       !client->names_rank && c->rank > client->rank;
        return;
    }
    if (!in_the_middle || stg_members_are_none(&stage->members))
        return;
    char text[512];
    snprintf(text, sizeof(text),
             "round_robin cannot go on without rank %u, client %s (pid %d): %s",
             client->rank, client->client_id, (int)client->pid, why);
    stg_stage_abort(stage, text);
}

/* From attached to away or detached. */
static void detach(struct stg_stage *stage, struct stg_client *client, bool back,
                   const char *why)
{
    bool middle = stg_client_in_pass(&stage->pass, client);
    uint64_t now = stg_now_ns();
    stg_clients_waited_ns(&stage->members, now);
    client->wait_ns += stg_client_waits_ns(client, now);
    client->wait_seen_ns = client->wait_ns;
    client->state = back ? STG_CLIENT_AWAY : STG_CLIENT_DETACHED;
    stage->members.n_attached--;
    stage->members.n_changes++;
    stage->members.attached_ns += now;
    stage->effects.events.has_changed = true;
    requeue(stage, client);
    stg_consumer_part(stage, client);
    stage->members.n_takers_left += client->n_acknowledged > 0;
    stg_consumer_leave(stage, client);
    stg_lease_client_detach(stage->buffer.leases, client->lease_client);
    stg_audit_hurry(stage);
    snprintf(client->last_error, sizeof(client->last_error), "%s", why);
    if (back) {
        bool untold = client->ends > 0 && !asks_on(client);
        client->base_pass = stg_client_pass(client) - untold;
        client->taken_before = stg_client_taken(client);
        client->asked = 0;
        client->ends = 0;
        client->away_until_ns =
            stg_now_ns() + stage->staged->reconnect_grace_millis * 1000000u;
        stage->members.n_away++;
        stage->effects.asks_loop = true;
    } else {
        lose_rank(stage, client, middle && !stage->stop.is_on, why);
        note_empty(stage);
    }
    stg_stage_recut(stage);
    stage->effects.wake |= STG_WAKE_ALL;
}

const char *stg_client_how(const struct stg_client *client)
{
    return client->has_left ? "left" : "died";
}

void stg_client_leave(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_err err = {0};
    if (client->has_lease) {
        stg_client_trace(stage, client);
        if (stg_client_drain(stage, client, &err) < 0)
            stg_client_disconnect_violator(stage, client, err.text);
    }
    if (client->state != STG_CLIENT_ATTACHED)
        return; /* before, or for its last releases */
    client->has_left = client->has_lease && stg_control_parting(&client->control);
    const char *how = stg_client_how(client);
    bool back = may_come_back(stage, client);
    char why[64];
    snprintf(why, sizeof(why), "%s%s", how,
             is_done(client) ? " at the end of its pass" : "");
    if (back)
        stg_stage_log(
            stage, STG_LOG_INFO,
            "pipeline %s: client %s (pid %d) %s %s, and may reconnect within %" PRIu64
            " ms",
            stage->config.name, client->client_id, (int)client->pid, how,
            client->ends > 0 && !asks_on(client) ? "at the end of its pass"
                                                 : "in the middle",
            stage->staged->reconnect_grace_millis);
    detach(stage, client, back, why);
}

void stg_client_forget(struct stg_stage *stage, struct stg_client *client,
                       const char *why)
{
    bool middle = client->n_pending > 0 || client->base_pass >= stage->pass.n_ended;
    client->state = STG_CLIENT_DETACHED;
    stage->members.n_away--;
    stage->members.n_changes++;
    requeue(stage, client);
    snprintf(client->last_error, sizeof(client->last_error), "%s", why);
    lose_rank(stage, client, middle && !stage->stop.is_on, why);
    note_empty(stage);
    stg_stage_recut(stage);
    stage->effects.wake |= STG_WAKE_ALL;
}

/* revoke: what lies in its ring is not for it any more. */
static void disconnect(struct stg_stage *stage, struct stg_client *client, bool revoke,
                       int code, const char *text)
{
    if (client->state == STG_CLIENT_AWAY)
        stg_client_forget(stage, client, text);
    if (client->state != STG_CLIENT_ATTACHED)
        return;
    struct stg_err words = {.code = -code};
    snprintf(words.text, sizeof(words.text), "%s", text);
    stg_client_finish(client, &words);
    detach(stage, client, false, text);
    if (revoke)
        stg_client_revoke(client);
    stg_stage_disconnect(stage, client);
}

void stg_client_disconnect(struct stg_stage *stage, struct stg_client *client, int code,
                           const char *text)
{
    disconnect(stage, client, true, code, text);
}

/* A violation costs its author the stream. */
void stg_client_disconnect_violator(struct stg_stage *stage, struct stg_client *client,
                                    const char *why)
{
    client->n_violations++;
    char text[256];
    snprintf(text, sizeof(text),
             "stagerd detached this client: its control page is damaged (%.100s)", why);
    stg_stage_log(stage, STG_LOG_WARNING, "pipeline %s: client %s (pid %d): %s",
                  stage->config.name, client->client_id, (int)client->pid, text);
    stg_client_disconnect(stage, client, STAGER_INVALID_ARGUMENT, text);
}

void stg_stage_abort(struct stg_stage *stage, const char *text)
{
    stage->stop.words.code = -STAGER_ABORTED;
    snprintf(stage->stop.words.text, sizeof(stage->stop.words.text), "%s", text);
    if (stage->pass.failure.code != 0) /* no error is masked by a later one */
        stage->stop.words = stage->pass.failure;
    stg_stage_begin_stop(stage);
    stg_stage_log(stage, STG_LOG_WARNING, "pipeline %s: %s", stage->config.name, text);
    snprintf(stage->counts.last_error, sizeof(stage->counts.last_error), "%s: %.400s",
             stg_status_name(stage->stop.words.code), stage->stop.words.text);
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        disconnect(stage, c, false, -stage->stop.words.code, stage->stop.words.text);
    stg_stage_discard(stage);
    stage->effects.wake |= STG_WAKE_ALL;
    stage->effects.asks_loop = true;
}

void stg_client_reap(struct stg_stage *stage, struct stg_client *client)
{
    client->forgotten = true;
    client->n_assigned = 0;
    if (!client->has_lease)
        return;
    stg_lease_client_dead(stage->buffer.leases, client->lease_client, NULL, NULL);
    client->has_lease = false;
    stage->effects.wake |= STG_WAKE_MEMORY;
}

void stg_client_cancel(struct stg_stage *stage, struct stg_client *client)
{
    struct stg_client **at = &stage->members.clients;
    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    stage->members.n_joining--;
    stg_consumer_leave(stage, client);
    stg_lease_client_dead(stage->buffer.leases, client->lease_client, NULL, NULL);
    stg_stage_free_client(stage, client);
    note_empty(stage);
}

void stg_clients_reap(struct stg_stage *stage)
{
    struct stg_client **at = &stage->members.clients;
    while (*at != NULL) {
        struct stg_client *client = *at;
        if (client->state != STG_CLIENT_DETACHED || !client->forgotten) {
            at = &client->next;
            continue;
        }
        *at = client->next;
        if (!client->adopted)
            stg_gone_note(&stage->members, client);
        stg_stage_free_client(stage, client);
    }
}

void stg_stage_stop_when_left(struct stg_stage *stage)
{
    bool warm = stg_stage_is_warm(stage) ||
                (stage->staged->keep_warm && !stage->config.private_run &&
                 stage->pass.failure.code == 0 && stage->members.n_joined > 0);
    if (!stg_members_are_none(&stage->members) || (warm && !stage->stop.is_on))
        return;
    if (!stage->stop.is_on) {
        stage->stop.words.code = -STAGER_CANCELLED;
        stg_stage_begin_stop(stage);
    }
    stg_stage_discard(stage);
    stage->effects.wake |= STG_WAKE_ALL;
    stage->effects.asks_loop = true;
}
