/* SPDX-License-Identifier: Apache-2.0
 *
 * Attaching, leaving, coming back. Who leaves in the middle of a pass under a name of its
 * own is away until rejoin_millis are over; who comes back under that name takes over its
 * place, its counts and what it had not acknowledged.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/log.h"
#include "daemon/delivery.h"

/* ---- attaching ---- */

static uint64_t millis_left(const struct stg_client *client)
{
    uint64_t now = stg_now_ns();
    return client->away_until_ns > now ? (client->away_until_ns - now) / 1000000 + 1 : 0;
}

static int refuse_full(const struct stg_stage *stage, struct stg_err *err)
{
    bool kept = stage->n_attached < stage->config.num_clients;
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "pipeline %s has num_clients %u, and %s:", stage->config.name,
            stage->config.num_clients,
            kept ? "no place is free" : "as many are attached");
    for (const struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED)
            stg_err_append(err, err->code, " %s (pid %d)", c->client_id, (int)c->pid);
        else if (c->state == STG_CLIENT_AWAY && stage->kind->together)
            stg_err_append(err, err->code,
                           " %s (its place is kept for %" PRIu64
                           " ms yet: rejoin_millis)",
                           c->client_id, millis_left(c));
    }
    return stg_err_append(err, err->code,
                          "; raise num_clients, or wait until one leaves");
}

static bool has_place(const struct stg_stage *stage, const struct stg_client *back)
{
    uint32_t taken = stage->n_attached;
    if (stage->kind->together)
        taken += stage->n_away - (back != NULL);
    return taken < stage->config.num_clients;
}

/* The memory was divided when the first one opened the pipeline; more memory would make
 * larger batches, not more of them. */
static int refuse_held(const struct stg_stage *stage, uint32_t max_held, uint64_t others,
                       uint64_t n_wanted, struct stg_err *err)
{
    const struct stg_stage_plan *plan = &stage->plan;
    uint64_t over = n_wanted - plan->n_extents;
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "max_held %u is too much: pipeline %s has room for num_clients %u x max_held "
            "%u batches in the hands of clients, by the max_held of the one that opened "
            "it first (at least 2), and others may hold %" PRIu64 ": ",
            max_held, stage->config.name, stage->config.num_clients, plan->max_held,
            others);
    if (over < max_held)
        stg_err_append(err, err->code, "open with at most %" PRIu64 ", or ",
                       max_held - over);
    return stg_err_append(err, err->code,
                          "let the one that opens it first ask for more, or raise "
                          "num_clients");
}

/* (capacity + num_threads + sum of max_held + 1) x max_batch_bytes must fit the arena;
 * and with what processes hold that have left, a batch more than all can hold, so that
 * nobody waits for memory without end. */
static int admit(const struct stg_stage *stage, const struct stg_client *back,
                 uint32_t max_held, struct stg_err *err)
{
    bool rounds = stage->config.delivery == STG_DELIVERY_ROUND_ROBIN;
    uint64_t round = rounds ? stage->config.num_clients : 1;
    uint64_t items = stage->plan.capacity * round;
    uint64_t held = max_held, kept = 0;
    for (const struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        bool counts = c->state == STG_CLIENT_ATTACHED ||
                      (c->state == STG_CLIENT_AWAY && stage->kind->together);
        held += counts && c != back ? c->max_held : 0;
        kept += c->state != STG_CLIENT_ATTACHED ? c->n_assigned : 0;
    }
    uint64_t n = items + stage->plan.num_threads + held + 1;
    if (n <= stage->plan.n_extents && held + kept + round <= stage->plan.n_extents)
        return 0;
    if (n <= stage->plan.n_extents)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "processes that left pipeline %s still hold %" PRIu64
                       " batches, and its memory has %" PRIu64
                       ": end them, or let them release",
                       stage->config.name, kept, stage->plan.n_extents);
    return refuse_held(stage, max_held, held - max_held, n, err);
}

static void unmap(struct stg_client *client)
{
    stg_segment_destroy(&client->ring_segment);
    stg_segment_destroy(&client->control_segment);
    client->has_lease = false;
}

void stg_client_free(struct stg_client *client)
{
    unmap(client);
    stg_cut_needs_destroy(client->needs);
    free(client->assigned);
    free(client);
}

static int map_pages(struct stg_stage *stage, struct stg_client *client,
                     struct stg_err *err)
{
    int rc = stg_segment_create("stager-ring", STG_RING_BYTES, false, NULL,
                                &client->ring_segment, err);
    if (rc == 0)
        rc = stg_segment_create("stager-control", STG_CONTROL_BYTES, true, NULL,
                                &client->control_segment, err);
    if (rc < 0)
        return rc;
    rc = stg_lease_client_add(stage->leases, client->max_held, &client->lease_client);
    if (rc < 0)
        return stg_err(err, rc,
                       "too many clients that died or left with batches in hand");
    client->has_lease = true;
    stg_ring_format(client->ring_segment.base, stage->config.instance);
    stg_control_format(client->control_segment.base, stage->config.instance);
    client->ring.page = client->ring_segment.base;
    client->control.page = client->control_segment.base;
    return 0;
}

static int create(struct stg_stage *stage, const struct stg_attach *attach,
                  struct stg_client **ret, struct stg_err *err)
{
    struct stg_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    client->max_held = attach->max_held;
    client->ack_explicit = attach->ack_explicit;
    client->named = attach->named;
    client->batch_size = attach->batch_size;
    client->pid = attach->pid;
    client->uid = attach->uid;
    client->socket = attach->socket;
    snprintf(client->client_id, sizeof(client->client_id), "%s", attach->client_id);
    snprintf(client->program, sizeof(client->program), "%s", attach->program);
    client->assigned = calloc(attach->max_held, sizeof(client->assigned[0]));
    int rc = client->assigned != NULL
                 ? map_pages(stage, client, err)
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc < 0) {
        stg_client_free(client);
        return rc;
    }
    *ret = client;
    return 0;
}

/* Which pass a newcomer is in: the running one; the next one; or, under split while
 * others are still there, the one that just ended, so that it is told the end at once. */
static uint64_t pass_to_join(const struct stg_stage *stage)
{
    bool late = !stage->kind->together && stage->n_attached > 0 &&
                stage->pass_state == STG_PASS_NONE &&
                stage->passes_ended > stage->config.first_pass;
    return stage->passes_ended - late;
}

static uint32_t free_rank(const struct stg_stage *stage)
{
    uint32_t rank = 0;
    for (const struct stg_client *c = stage->clients; c != NULL;) {
        bool taken = c->state != STG_CLIENT_DETACHED && c->rank == rank;
        rank += taken;
        c = taken ? stage->clients : c->next;
    }
    return rank;
}

static void begin_anew(struct stg_stage *stage, struct stg_client *client)
{
    client->base_pass = pass_to_join(stage);
    /* Before all are there nothing is given: what lies in the buffer of a warm stage is
     * for all of them. */
    client->cursor = stage->begun ? stage->queue_next : stage->queue_first;
    client->skipped_seen = stage->n_skipped;
    client->rank = free_rank(stage);
    client->joined = stage->n_joined++;
}

/* Of its batches, than when it left. */
static bool wants_more(const struct stg_stage *stage, const struct stg_cut_needs *needs,
                       const struct stg_client *old)
{
    return stage->config.cuts != NULL &&
           !stg_cut_needs_within(stage->config.cuts, needs, old->needs);
}

static void go_on(struct stg_stage *stage, struct stg_client *client,
                  struct stg_client *old)
{
    client->base_pass = old->base_pass;
    client->cursor = old->cursor;
    client->joined =
        wants_more(stage, client->needs, old) ? stage->n_joined++ : old->joined;
    client->rank = old->rank;
    client->skipped_seen = old->skipped_seen;
    memcpy(client->owed, old->owed, old->n_owed * sizeof(old->owed[0]));
    client->n_owed = old->n_owed;
    client->last_given_ns = old->last_given_ns;
    client->taken_before = old->taken_before;
    client->n_acknowledged = old->n_acknowledged;
    client->n_released = old->n_released;
    client->n_redelivered = old->n_redelivered;
    client->n_given = old->n_given;
    client->n_gaps = old->n_gaps;
    client->n_lost = old->n_lost;
    client->wait_ns = old->wait_ns;
    client->daemon_wait_ns = old->daemon_wait_ns;
    old->n_owed = 0;
    old->adopted = true;
    old->state = STG_CLIENT_DETACHED;
    stage->n_away--;
    stg_log(STG_LOG_INFO, "pipeline %s: client %s came back (pid %d, was %d)",
            stage->config.name, client->client_id, (int)client->pid, (int)old->pid);
}

/* What waits for it may lack what it now asks for. */
static int refuse_wider(const struct stg_client *back, const struct stg_stage *stage,
                        struct stg_err *err)
{
    return stg_err(
        err, -STAGER_FAILED_PRECONDITION,
        "client %s of pipeline %s comes back in the middle of a pass and wants "
        "fields, fetches or slices that it did not have: open it with those that it "
        "had, or wait for %" PRIu64 " ms (rejoin_millis) or under another "
        "client_id for a new place",
        back->client_id, stage->config.name, millis_left(back));
}

static struct stg_client *find_named(const struct stg_stage *stage, const char *id)
{
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (c->state != STG_CLIENT_DETACHED && c->named && strcmp(c->client_id, id) == 0)
            return c;
    }
    return NULL;
}

int stg_client_attach(struct stg_stage *stage, const struct stg_attach *attach,
                      struct stg_client **ret, struct stg_err *err)
{
    struct stg_client *client = NULL,
                      *back = attach->named ? find_named(stage, attach->client_id) : NULL;
    if (back != NULL && back->state == STG_CLIENT_ATTACHED)
        return stg_err(err, -STAGER_ALREADY_EXISTS,
                       "client %s is attached to pipeline %s already (pid %d): choose "
                       "another client_id, or end that process",
                       back->client_id, stage->config.name, (int)back->pid);
    if (back != NULL && back->uid != attach->uid)
        return stg_err(
            err, -STAGER_ALREADY_EXISTS,
            "client %s of pipeline %s is another user's (uid %u), who may come "
            "back within %" PRIu64 " ms: choose another client_id",
            back->client_id, stage->config.name, (unsigned)back->uid, millis_left(back));
    if (!has_place(stage, back))
        return refuse_full(stage, err);
    if (back != NULL && stage->kind->together && wants_more(stage, attach->needs, back))
        return refuse_wider(back, stage, err);
    int rc = stg_needs_check(stage, attach->needs, back, err);
    if (rc == 0)
        rc = admit(stage, back, attach->max_held, err);
    if (rc == 0)
        rc = create(stage, attach, &client, err);
    if (rc < 0)
        return rc;
    client->needs = attach->needs;
    if (back != NULL)
        go_on(stage, client, back);
    else
        begin_anew(stage, client);
    client->next = stage->clients;
    stage->clients = client;
    stg_account_load(stage, stg_now_ns());
    stage->n_changes++;
    if (stage->n_attached++ == 0) {
        stage->first_attach_ns = stg_now_ns();
        stage->wake |= STG_WAKE_ROOM; /* the runners' clock runs */
    }
    if (stage->n_attached == stage->config.num_clients)
        stage->begun = true;
    stg_stage_recut(stage);
    stg_tune_forget(stage);
    *ret = client;
    return 0;
}

uint64_t stg_client_next_number(const struct stg_stage *stage,
                                const struct stg_client *client)
{
    uint64_t at =
        stage->kind == &stg_delivery_broadcast ? client->cursor : stage->queue_first;
    if (client->n_owed > 0)
        return stage->items[client->owed[0]].number;
    if (at < stage->queue_next)
        return stage->items[stg_buffer_at(stage, at)].number;
    return stage->next_number;
}

/* ---- leaving ---- */

/* It was told the end of its pass, has not asked for another, and owes nothing. */
static bool is_done(const struct stg_client *client)
{
    return client->ends > 0 && client->asked > client->end_position &&
           stg_control_pass_wanted(&client->control) != client->ends + 1 &&
           stg_client_unacknowledged(client) == NULL && client->n_owed == 0;
}

static bool may_come_back(const struct stg_stage *stage, const struct stg_client *client)
{
    return client->named && stage->staged->rejoin_millis > 0 &&
           stg_control_pass_wanted(&client->control) != 0 && !stage->config.private_run &&
           !stage->stopping && stage->failure.code == 0 &&
           (stage->begun || !stage->kind->together) && !is_done(client);
}

static void lose(struct stg_stage *stage, struct stg_client *client, uint32_t extent)
{
    client->n_lost++;
    stg_item_lose(stage, extent);
}

/* What it had not acknowledged: to others under split, else to itself when it comes back.
 * What it was given is older than what it is still owed. */
static void hand_on(struct stg_stage *stage, struct stg_client *client)
{
    bool again = stage->staged->redeliver && !stage->stopping;
    bool back = client->state == STG_CLIENT_AWAY;
    uint32_t owed[STG_MAX_HELD], n = 0;
    for (uint32_t i = 0; i < client->n_assigned; i++) {
        struct stg_assigned *assigned = &client->assigned[i];
        if (assigned->acked)
            continue;
        assigned->acked = true;
        if (again && !stage->kind->together)
            stg_item_return(stage, assigned->extent);
        else if (again && back)
            owed[n++] = assigned->extent;
        else
            lose(stage, client, assigned->extent);
    }
    for (uint32_t i = 0; i < client->n_owed; i++) {
        if (back)
            owed[n++] = client->owed[i];
        else
            lose(stage, client, client->owed[i]);
    }
    memcpy(client->owed, owed, n * sizeof(owed[0]));
    client->n_owed = n;
}

static void nobody_left(struct stg_stage *stage)
{
    if (stage->n_attached + stage->n_away == 0)
        stage->begun = false;
}

/* From attached to away or detached. */
static void detach(struct stg_stage *stage, struct stg_client *client, bool back,
                   const char *why)
{
    bool middle = stg_client_in_pass(stage, client);
    client->wait_ns += stg_client_waits_ns(client, stg_now_ns());
    client->state = back ? STG_CLIENT_AWAY : STG_CLIENT_DETACHED;
    client->socket = -1;
    stg_account_load(stage, stg_now_ns());
    stage->n_attached--;
    stage->n_changes++;
    stg_tune_forget(stage);
    hand_on(stage, client);
    stg_lease_client_detach(stage->leases, client->lease_client);
    snprintf(client->last_error, sizeof(client->last_error), "%s", why);
    if (back) {
        bool untold = client->ends > 0 && client->asked <= client->end_position;
        client->base_pass = stg_client_pass(client) - untold;
        client->taken_before = stg_client_taken(client);
        client->asked = 0;
        client->ends = 0;
        client->away_until_ns = stg_now_ns() + stage->staged->rejoin_millis * 1000000u;
        stage->n_away++;
        stage->config.wake(stage->config.owner);
    } else {
        if (stage->kind->gone != NULL)
            stage->kind->gone(stage, client, middle && !stage->stopping, why);
        nobody_left(stage);
    }
    stg_stage_recut(stage);
    stage->wake |= STG_WAKE_ALL;
}

const char *stg_client_how(const struct stg_client *client)
{
    return client->has_left ? "left" : "died";
}

void stg_client_leave(struct stg_stage *stage, struct stg_client *client)
{
    if (client->has_lease) {
        stg_client_trace(stage, client);
        stg_client_take_in(stage, client);
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
        stg_log(STG_LOG_INFO,
                "pipeline %s: client %s (pid %d) %s in the middle, and may come back "
                "within %" PRIu64 " ms",
                stage->config.name, client->client_id, (int)client->pid, how,
                stage->staged->rejoin_millis);
    detach(stage, client, back, why);
}

void stg_client_forget(struct stg_stage *stage, struct stg_client *client,
                       const char *why)
{
    client->state = STG_CLIENT_DETACHED;
    stage->n_away--;
    hand_on(stage, client);
    snprintf(client->last_error, sizeof(client->last_error), "%s", why);
    if (stage->kind->gone != NULL)
        stage->kind->gone(stage, client, !stage->stopping, why);
    nobody_left(stage);
    stg_stage_recut(stage);
    stage->wake |= STG_WAKE_ALL;
}

/* cut: what lies in its ring is not for it any more. */
static void expel(struct stg_stage *stage, struct stg_client *client, bool cut, int code,
                  const char *text)
{
    if (client->state == STG_CLIENT_AWAY)
        stg_client_forget(stage, client, text);
    if (client->state == STG_CLIENT_DETACHED)
        return;
    struct stg_err words = {.code = -code};
    snprintf(words.text, sizeof(words.text), "%s", text);
    stg_client_last_words(client, &words);
    int socket = client->socket;
    detach(stage, client, false, text);
    if (cut)
        stg_ring_cut(&client->ring);
    (void)!send(socket, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(socket, SHUT_RD); /* the loop sees the end of it and closes */
}

void stg_client_expel(struct stg_stage *stage, struct stg_client *client, int code,
                      const char *text)
{
    expel(stage, client, true, code, text);
}

void stg_stage_abort(struct stg_stage *stage, const char *text)
{
    stage->last_words.code = -STAGER_ABORTED;
    snprintf(stage->last_words.text, sizeof(stage->last_words.text), "%s", text);
    if (stage->failure.code != 0) /* no error is masked by a later one */
        stage->last_words = stage->failure;
    stage->stopping = true;
    atomic_store(&stage->stopped, 1);
    stg_log(STG_LOG_WARNING, "pipeline %s: %s", stage->config.name, text);
    snprintf(stage->last_error, sizeof(stage->last_error), "%s: %.400s",
             stg_status_name(stage->last_words.code), stage->last_words.text);
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next)
        expel(stage, c, false, -stage->last_words.code, stage->last_words.text);
    stg_buffer_discard(stage);
    stage->wake |= STG_WAKE_ALL;
    stage->config.wake(stage->config.owner);
}

void stg_client_reap(struct stg_stage *stage, struct stg_client *client)
{
    client->forgotten = true;
    client->n_assigned = 0;
    if (!client->has_lease)
        return;
    stg_lease_client_dead(stage->leases, client->lease_client, NULL, NULL);
    unmap(client);
    stage->wake |= STG_WAKE_MEMORY;
}

void stg_clients_bury(struct stg_stage *stage)
{
    struct stg_client **at = &stage->clients;
    while (*at != NULL) {
        struct stg_client *client = *at;
        if (client->state != STG_CLIENT_DETACHED || !client->forgotten) {
            at = &client->next;
            continue;
        }
        *at = client->next;
        if (!client->adopted)
            stg_account_gone(stage, client);
        stg_client_free(client);
    }
}

void stg_stage_stop_when_left(struct stg_stage *stage)
{
    bool warm = stage->staged->keep_warm && !stage->config.private_run &&
                stage->failure.code == 0;
    if (stage->n_attached + stage->n_away > 0 || (warm && !stage->stopping))
        return;
    if (!stage->stopping) {
        stage->stopping = true;
        stage->last_words.code = -STAGER_CANCELLED;
        atomic_store(&stage->stopped, 1);
    }
    stg_buffer_discard(stage);
    stage->wake |= STG_WAKE_ALL;
    stage->config.wake(stage->config.owner);
}

/* ---- evicting ---- */

/* Of those that hold up the others, who was given something longest ago. */
static struct stg_client *slowest(const struct stg_stage *stage)
{
    struct stg_client *found = NULL;
    for (struct stg_client *c = stage->clients; c != NULL; c = c->next) {
        if (stage->kind->holds_up(stage, c) &&
            (found == NULL || c->last_given_ns < found->last_given_ns))
            found = c;
    }
    return found;
}

bool stg_stage_evict_slowest(struct stg_stage *stage, const char *why)
{
    struct stg_client *client = stage->kind->together ? slowest(stage) : NULL;
    if (client == NULL)
        return false;
    stg_log(STG_LOG_WARNING, "pipeline %s: client %s (pid %d) is evicted: %s",
            stage->config.name, client->client_id, (int)client->pid, why);
    stage->n_evicted++;
    stg_client_expel(stage, client, STAGER_DEADLINE_EXCEEDED, why);
    stg_stage_stop_when_left(stage);
    stg_delivery_run(stage);
    return true;
}
