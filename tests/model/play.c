/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stream/leased.h"
#include "client/stream/stream.h"
#include "daemon/pipeline/definition.h"
#include "daemon/stage/priv.h"
#include "tests/check.h"
#include "tests/model/explore.h"
#include "tests/model/wrap.h"

#define MAX_TRAINERS 2
#define MAX_ITEMS 64

struct player {
    struct stager_stream stream;
    struct stager connection;
    struct stg_leased leases[2];
    struct stg_client *client; /* NULL: the daemon has dropped it */
    int fiber;
    bool attached, closing, killed;
    bool wants_in; /* comes_back: the loop opens it */
    int end_code;
    uint64_t next;  /* the least number that may come without a mark */
    uint64_t items; /* that it got, a bit each */
};

/* Lies in the region. */
struct play {
    struct stg_stage *stage;
    struct player players[MAX_TRAINERS];
    bool sweep_wanted, armed, stopped, aborted;
    int kills_left, tunes_left;
    uint64_t items, unmarked; /* that any got, and without a mark; a bit each */
};

static const struct cast *cast;
static struct play *play;
static struct stg_definition *definition;
static struct stg_budget budget;

/* ---- trainers ---- */

static bool is_broadcast(void)
{
    return definition->spec->staged.delivery == STG_DELIVERY_BROADCAST;
}

/* Each trainer sees rising numbers, except for redelivered items. Split: an item occurs
 * twice only if it is marked as redelivered. Checked here, so that the order in which
 * items came is no part of the state. */
static void note_batch(struct player *player, const struct stager_batch *batch)
{
    uint64_t number = batch->leased->number;
    CHECK(number < MAX_ITEMS);
    uint64_t bit = UINT64_C(1) << number;
    if (is_broadcast())
        player->items |= bit;
    play->items |= bit;
    if (batch->leased->redelivered)
        return;
    if (number < player->next)
        explore_fail("trainer %d got %d, and had got %d", (int)(player - play->players),
                     (int)number, (int)player->next - 1);
    if ((play->unmarked & bit) != 0 && !is_broadcast())
        explore_fail("item %d came twice, and was not marked", (int)number);
    player->next = number + 1;
    if (!is_broadcast())
        play->unmarked |= bit;
}

/* The process has ended, or closed its stream: nothing reads its memory again. */
static void free_stream(struct player *player)
{
    struct stager_stream *stream = &player->stream;
    if (stream->ring.page == NULL)
        return; /* it never joined */
    outside_unmap((void *)(uintptr_t)stream->ring.page);
    outside_unmap(stream->control.page);
    free(stream->final_text);
    free(stream->why);
    stream->leases = NULL; /* of the player */
    stg_leases_finish(stream);
    memset(player->leases, 0, sizeof(player->leases));
    *stream = (struct stager_stream){0};
}

static void *trainer_main(void *arg)
{
    struct player *player = arg;
    for (;;) {
        struct stager_batch *batch;
        int rc = stager_next(&player->stream, -1, &batch);
        if (rc == 0) {
            note_batch(player, batch);
            stager_release(batch);
            continue;
        }
        player->end_code = rc;
        if (rc != -STAGER_OUT_OF_RANGE)
            break;
        /* the end may be reported again */
        if ((int)player->stream.end_pass + 1 >= cast->n_passes)
            break;
        stager_rewind(&player->stream);
    }
    stg_control_part(&player->stream.control);
    free_stream(player);
    player->next = 0;
    player->closing = true;
    return NULL;
}

/* ---- attaching ---- */

static bool tell(void *owner)
{
    return true;
}

static void open_stage(int i)
{
    struct player *player = &play->players[i];
    struct stg_err err = {0};
    static const char *const client_ids[] = {"trainer-0", "trainer-1"};
    struct stg_attach params = {
        .client_id = client_ids[i],
        .program = "model",
        .named = cast->comes_back,
        .max_in_flight = 2,
        .pid = 1000 + i,
        .socket = SOCKET_OF(i),
    };
    struct stg_attached attached;
    CHECK_OK(stg_stage_attach(play->stage, &params, &attached, &err), err);
    player->client = attached.client;
    player->fiber = -1;
    player->wants_in = false;
}

static void map_pages(struct player *player)
{
    struct stager_stream *stream = &player->stream;
    struct stg_err err = {0};
    *stream = (struct stager_stream){.client = &player->connection, .name = "model"};
    stream->final_text = calloc(1, STG_ERR_TEXT_BYTES);
    stream->why = calloc(1, STG_ERR_TEXT_BYTES);
    stream->passes = 1;
    stream->ring.page = player->client->ring_segment.base;
    stream->control.page = player->client->control_segment.base;
    outside_map(player->client->ring_segment.base);
    outside_map(player->client->control_segment.base);
    stream->segment.base = play->stage->memory.arena.base;
    stream->segment.bytes = play->stage->memory.arena.bytes;
    stream->leases = player->leases;
    stream->max_in_flight = 2;
    for (int k = 0; k < 2; k++) {
        player->leases[k].next_free = stream->free_leases;
        stream->free_leases = &player->leases[k];
    }
    CHECK_OK(stg_stream_add_batches(stream, 2, &err), err);
}

/* The trainer requests nothing before it runs. */
static void join(int i)
{
    static const char *const names[] = {"trainer 0", "trainer 1"};
    struct player *player = &play->players[i];
    const struct stg_join join = {.tell = tell};
    struct stg_err err = {0};
    player->connection.fd = SOCKET_OF(i);
    map_pages(player);
    int rc = stg_stage_join(play->stage, player->client, &join, &err);
    if (rc < 0)
        explore_fail("trainer %d cannot join: %s", i, err.text);
    player->attached = true;
    player->fiber = fiber_start(names[i], trainer_main, player);
    play->sweep_wanted = true;
}

static void open_again(int i)
{
    outside()->wires[i] = (struct wire){0};
    open_stage(i);
}

/* ---- the loop ---- */

enum {
    EVENT_SWEEP,
    EVENT_STOP,
    EVENT_ABORT,
    EVENT_TUNE,
    EVENT_DOORBELL,
    EVENT_GONE,
    EVENT_KILL,
    EVENT_OPEN,
    EVENT_JOIN,
    N_EVENTS
};

/* A stage without clients ends, and the next client gets a new one: not covered here. */
static bool would_end(const struct player *player)
{
    const struct stg_stage *stage = play->stage;
    bool stays = player->attached && (stage->members.begun || !stage->policy->together);
    return cast->comes_back && !stays &&
           stage->members.n_attached + stage->members.n_away + stage->members.n_joining <
               2;
}

static bool may_be_killed(const struct player *player)
{
    return !player->killed && play->kills_left > 0 && !would_end(player);
}

static bool event_enabled(void *arg, int i)
{
    struct player *player = &play->players[i / N_EVENTS];
    struct wire *wire = &outside()->wires[i / N_EVENTS];
    bool first = i < N_EVENTS;
    switch (i % N_EVENTS) {
    case EVENT_SWEEP:
        return first && (play->sweep_wanted || (play->armed && outside()->touched));
    case EVENT_STOP: return first && cast->may_stop && !play->stopped;
    case EVENT_ABORT: return first && cast->may_abort && !play->aborted;
    case EVENT_TUNE: return first && play->tunes_left > 0;
    case EVENT_DOORBELL: return player->attached && wire->doorbell_to_daemon;
    case EVENT_GONE: return player->attached && (player->closing || wire->shut);
    case EVENT_OPEN: return player->wants_in;
    case EVENT_JOIN: return player->client != NULL && player->fiber < 0;
    case EVENT_KILL:
        return (player->attached || player->client != NULL) &&
               (player->closing || may_be_killed(player));
    }
    return false;
}

/* The process ends: it closes and exits, or is killed at any moment. */
static void end_process(struct player *player)
{
    if (!player->closing) {
        player->killed = true;
        play->kills_left--;
        player->next = cast->comes_back ? player->next : 0;
    }
    if (player->fiber >= 0)
        fiber_kill(player->fiber);
    free_stream(player);
    if (player->client != NULL)
        stg_stage_dead(play->stage, player->client);
    player->client = NULL;
    player->attached = false;
    play->sweep_wanted = true;
    if (player->killed && cast->comes_back) {
        player->killed = false;
        player->wants_in = true;
    }
}

static void hang_up(struct player *player)
{
    player->attached = false;
    if (stg_stage_detach(play->stage, player->client))
        player->client = NULL;
    play->sweep_wanted = true;
}

static void sweep(void)
{
    play->sweep_wanted = outside()->touched = false;
    /* Does not model the limit on the effects of a failed doorbell: no doorbell fails
     * here. */
    int millis = stg_stage_sweep(play->stage);
    play->armed = millis >= 0 && millis < 1000;
}

/* Acts like a tuner: the other one of two runners rests or works. */
static void tune(void)
{
    struct stg_stage *stage = play->stage;
    play->tunes_left--;
    pthread_mutex_lock(&stage->lock);
    stage->runners.n_active = 3 - stage->runners.n_active;
    stage->effects.wake |= STG_WAKE_ROOM | STG_WAKE_PASS;
    stg_delivery_run(stage);
    stg_stage_commit(stage);
}

static void *loop_main(void *arg)
{
    for (;;) {
        int i =
            fiber_choose_afresh(N_EVENTS * cast->n_trainers, event_enabled, NULL, "loop");
        struct player *player = &play->players[i / N_EVENTS];
        switch (i % N_EVENTS) {
        case EVENT_SWEEP: sweep(); break;
        case EVENT_STOP:
            play->stopped = true;
            stg_stage_stop(play->stage, STAGER_ABORTED, "replaced", true);
            break;
        case EVENT_ABORT:
            play->aborted = true;
            stg_stage_stop(play->stage, STAGER_UNAVAILABLE, "the daemon ends", false);
            break;
        case EVENT_TUNE: tune(); break;
        case EVENT_DOORBELL:
            outside()->wires[i / N_EVENTS].doorbell_to_daemon = false;
            stg_stage_doorbell(play->stage, player->client);
            play->sweep_wanted = true;
            break;
        case EVENT_GONE: hang_up(player); break;
        case EVENT_KILL: end_process(player); break;
        case EVENT_OPEN: open_again(i / N_EVENTS); break;
        case EVENT_JOIN: join(i / N_EVENTS); break;
        }
    }
    return NULL;
}

/* ---- set-up ---- */

static void wake(void *owner)
{
    play->sweep_wanted = true;
}

static void set_up(void)
{
    struct outside *world = outside_create();
    world->timeouts_left = cast->timeouts;
    world->fine = cast->fine;
    play = calloc(1, sizeof(*play));
    play->kills_left = cast->n_kills;
    play->tunes_left = cast->n_tunes;
    struct stg_stage_config config = {
        .spec = definition->spec,
        .graph = definition->graph,
        .name = "model",
        .generation = 1,
        .delivery = definition->spec->staged.delivery,
        .num_clients = definition->spec->staged.num_clients,
        .budget = &budget,
        .wake = wake,
    };
    if (cast->asks)
        config.remote.workers = &definition->spec->staged.remote;
    struct stg_stage_plan plan;
    struct stg_err err = {0};
    struct stg_plan_asked asked =
        stg_definition_asked(definition, config.num_clients, 2, 1 << 20);
    CHECK_OK(stg_stage_plan(&asked, &plan, &err), err);
    plan.is_sparse = false; /* the arena lies in the region, the only memory of a state */
    CHECK_OK(stg_stage_create(&config, &plan, &play->stage, &err), err);
    if (cast->tiny)
        play->stage->runners.mean_busy_ns = 0;
    for (int i = 0; i < cast->n_trainers; i++) {
        open_stage(i);
        if (!cast->comes_back)
            join(i);
    }
    fiber_start("loop", loop_main, NULL);
}

/* ---- invariants ---- */

/* If rounds lost a rank for good, the other ranks get ABORTED, whatever remains. */
static bool is_broken_round(void)
{
    return definition->spec->staged.delivery == STG_DELIVERY_ROUND_ROBIN &&
           !cast->comes_back && play->kills_left < cast->n_kills;
}

/* Every live trainer received an end or the reason for its absence, and the stage is
 * finished: no runner and no lease remains. */
static void at_rest(void)
{
    for (int i = 0; i < cast->n_trainers; i++) {
        const struct player *player = &play->players[i];
        if (!player->killed && (player->fiber < 0 || !fiber_ended(player->fiber)))
            explore_fail("trainer %d sleeps for ever", i);
        if (player->killed)
            continue;
        bool stopped = play->stopped || play->aborted;
        bool aborted = player->end_code == -STAGER_ABORTED && is_broken_round();
        if (player->end_code != -STAGER_OUT_OF_RANGE && !stopped && !aborted)
            explore_fail("trainer %d got code %d", i, player->end_code);
        if (is_broadcast() && !stopped && cast->timeouts == 0 &&
            __builtin_popcountll(player->items) != cast->n_items * cast->n_passes)
            explore_fail("trainer %d got %d items", i,
                         __builtin_popcountll(player->items));
    }
    if (!stg_stage_finished(play->stage))
        explore_fail("the stage does not end");
    struct stg_err err = {0};
    if (stg_lease_core_verify(play->stage->buffer.leases, &err) < 0)
        explore_fail("%s", err.text);
    struct stg_lease_usage usage;
    stg_lease_usage(play->stage->buffer.leases, &usage);
    if (usage.leased != 0 || usage.quarantined != 0)
        explore_fail("%d bytes are still leased, %d quarantined", (int)usage.leased,
                     (int)usage.quarantined);
    /* Split: if any trainer lived to the end, some trainer received every item. */
    bool any_lived = false;
    for (int i = 0; i < cast->n_trainers; i++)
        any_lived |= !play->players[i].killed;
    bool all = !play->stopped && !play->aborted && cast->timeouts == 0 && any_lived &&
               !is_broken_round();
    for (int number = 0; number < cast->n_items * cast->n_passes && all; number++) {
        if ((play->items >> number & 1) == 0)
            explore_fail("item %d is lost", number);
    }
}

/* ---- what is no part of a state ---- */

#define MAX_EVENED 128

/* What was in a field that is evened out while the state is hashed. */
static struct evened {
    void *at;
    size_t n;
    unsigned char was[sizeof(((struct stg_counts *)0)->last_error)];
} evened[MAX_EVENED];
static unsigned n_evened;

/* Writes only what differs: a page of set_up that is written to varies from then on. */
static void even_to(void *field, size_t n, const void *value)
{
    if (memcmp(field, value, n) == 0)
        return;
    CHECK(n_evened < MAX_EVENED);
    struct evened *e = &evened[n_evened++];
    CHECK(n <= sizeof(e->was));
    e->at = field;
    e->n = n;
    memcpy(e->was, field, n);
    memcpy(field, value, n);
}

static const unsigned char zeros[sizeof(evened[0].was)];

#define EVEN_TO(field, value) even_to(&(field), sizeof(field), &(value))
#define IGNORE(field) even_to(&(field), sizeof(field), zeros)

/* Counters for reports, and when things happened: nothing is decided by them. n_in_hand,
 * and those by which a line is logged, are left. */
static void ignore_reports(struct stg_stage *stage)
{
    struct stg_counts *counts = &stage->counts;
    IGNORE(counts->n_made);
    IGNORE(counts->n_discarded);
    IGNORE(counts->n_incomplete);
    IGNORE(counts->n_assigned);
    IGNORE(counts->n_released);
    IGNORE(counts->n_redelivered);
    IGNORE(counts->n_evicted);
    IGNORE(counts->published_ns);
    IGNORE(counts->wait_ns);
    IGNORE(counts->last_error);
    IGNORE(stage->runners.n_pulls); /* which pull is timed */
    IGNORE(stage->runners.remote.n_published);
    IGNORE(stage->runners.remote.n_local);
    IGNORE(stage->members.attached_ns);
    IGNORE(stage->members.waited_ns);
    IGNORE(stage->members.alone_ns); /* for daemon_wait_ns */
    IGNORE(stage->buffer.n_acknowledged);
    IGNORE(stage->buffer.n_lost);
    IGNORE(stage->buffer.n_discarded);
    IGNORE(stage->observers.measure->load);
    IGNORE(stage->observers.measure->marks);
    IGNORE(stage->observers.measure->is_over);
}

static void ignore_reports_of(struct stg_client *client)
{
    IGNORE(client->n_acknowledged);
    IGNORE(client->n_released);
    IGNORE(client->n_redelivered);
    IGNORE(client->n_given);
    IGNORE(client->n_lost);
    IGNORE(client->taken_before);
    IGNORE(client->wait_ns);
    IGNORE(client->daemon_wait_ns);
    IGNORE(client->wait_seen_ns);
    IGNORE(client->last_error);
    struct stg_control_page *page = client->control_segment.base;
    if (page != NULL)
        IGNORE(page->waiting_since_ns);
}

/* The last step of the policy was applied at once, and the next one begins empty. */
static void ignore_step(struct stg_assignments *step)
{
    for (uint32_t i = 0; i < step->max; i++)
        IGNORE(step->all[i]);
    IGNORE(step->n);
    IGNORE(step->n_taken);
    IGNORE(step->front);
    IGNORE(step->gaps_counted);
    IGNORE(step->returned);
    IGNORE(step->is_lost);
    IGNORE(step->is_deferred);
    IGNORE(step->discards);
}

/* A doorbell request is answered or not. The number of requests does not matter, nor a
 * request to a trainer that has ended. */
static void even_out_doorbells(struct stg_client *client)
{
    struct stg_ring_page *page = client->ring_segment.base;
    uint32_t wanted = 0;
    for (int i = 0; i < cast->n_trainers; i++) {
        struct stg_ring_reader *ring = &play->players[i].stream.ring;
        if (ring->page != page)
            continue;
        wanted = atomic_load(&page->doorbell_wanted) != ring->doorbell_rung;
        IGNORE(ring->doorbell_rung);
    }
    if (page != NULL)
        EVEN_TO(page->doorbell_wanted, wanted);
}

/* A wire matters while the end that a doorbell goes to is open. */
static void even_out_wire(int i)
{
    struct player *player = &play->players[i];
    struct wire *wire = &outside()->wires[i];
    if (player->fiber >= 0 ? fiber_ended(player->fiber) : player->client == NULL)
        IGNORE(wire->doorbell_to_client);
    if (!player->attached)
        IGNORE(wire->doorbell_to_daemon);
    IGNORE(player->stream.n_sleeps); /* a counter for reports */
}

/* The next sweep finds out anew what these say. */
static void even_out_sweep(void)
{
    bool sweeps = play->sweep_wanted || (play->armed && outside()->touched);
    EVEN_TO(play->sweep_wanted, sweeps);
    if (sweeps)
        IGNORE(play->armed);
    IGNORE(outside()->touched);
}

static void canonical(bool before)
{
    while (!before && n_evened > 0) {
        const struct evened *e = &evened[--n_evened];
        memcpy(e->at, e->was, e->n);
    }
    if (!before)
        return;
    ignore_reports(play->stage);
    ignore_step(&play->stage->step);
    for (struct stg_client *c = play->stage->members.clients; c != NULL; c = c->next) {
        ignore_reports_of(c);
        even_out_doorbells(c);
    }
    for (int i = 0; i < cast->n_trainers; i++)
        even_out_wire(i);
    even_out_sweep();
}

void play_run(const struct cast *the_cast)
{
#ifdef STG_SANITIZED
    SKIP("sanitizers do not follow fibers");
#endif
    cast = the_cast;
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: model\ndataset:\n  - range: {stop: %d}\n"
             "  - batch: {batch_size: 1, drop_remainder: true}\n"
             "staged: {num_clients: %d, %s}\n",
             cast->n_items, cast->n_trainers, cast->staged);
    static const struct stg_identity applier = {.uid = 65534, .gid = 65534};
    struct stg_err err = {0};
    CHECK_OK(stg_definition_create(yaml, strlen(yaml), "model", &applier, NULL,
                                   &definition, &err),
             err);
    stg_budget_init(&budget, 1u << 30);
    struct scenario scenario = {
        .name = cast->name,
        .set_up = set_up,
        .at_rest = at_rest,
        .canonical = canonical,
        .time_left = outside_time_left,
        .max_preemptions = cast->max_preemptions,
        .max_states = cast->max_states != 0 ? cast->max_states : 4000000,
    };
    struct explored explored;
    explore(&scenario, &explored);
    printf("    %s: %llu states, %llu steps, at rest in %llu, %u deep\n", cast->name,
           (unsigned long long)explored.states, (unsigned long long)explored.steps,
           (unsigned long long)explored.rests, explored.depth);
    budget.holders = NULL; /* they lay in the region */
    stg_budget_finish(&budget);
    stg_definition_unref(definition);
}
