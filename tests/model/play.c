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
#define MAX_GOT 24

struct player {
    struct stager_stream stream;
    struct stager connection;
    struct stg_leased leases[2];
    struct stg_client *client; /* NULL: the daemon has dropped it */
    int fiber;
    bool attached, closing, killed;
    bool wants_in; /* comes_back: the loop opens it */
    int n_got, n_ends, end_code;
    struct {
        uint64_t number;
        bool redelivered;
    } got[MAX_GOT];
};

/* Lies in the region. */
struct play {
    struct stg_stage *stage;
    struct player players[MAX_TRAINERS];
    bool sweep_wanted, armed, stopped, aborted;
    int kills_left, tunes_left;
};

static const struct cast *cast;
static struct play *play;
static struct stg_definition *definition;
static struct stg_budget budget;

/* ---- trainers ---- */

static void note_batch(struct player *player, const struct stager_batch *batch)
{
    CHECK(player->n_got < MAX_GOT);
    player->got[player->n_got].number = batch->leased->number;
    player->got[player->n_got++].redelivered = batch->leased->redelivered;
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
        player->n_ends = (int)player->stream.end_pass + 1;
        if (player->n_ends >= cast->n_passes)
            break;
        stager_rewind(&player->stream);
    }
    stg_control_part(&player->stream.control);
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
    }
    if (player->fiber >= 0)
        fiber_kill(player->fiber);
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
        int i = fiber_choose(N_EVENTS * cast->n_trainers, event_enabled, NULL, "loop");
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

static int times_got(uint64_t number, int *ret_marked)
{
    int n = 0;
    *ret_marked = 0;
    for (int i = 0; i < cast->n_trainers; i++) {
        const struct player *player = &play->players[i];
        for (int k = 0; k < player->n_got; k++) {
            n += player->got[k].number == number;
            *ret_marked += player->got[k].number == number && player->got[k].redelivered;
        }
    }
    return n;
}

static bool is_broadcast(void)
{
    return definition->spec->staged.delivery == STG_DELIVERY_BROADCAST;
}

/* If rounds lost a rank for good, the other ranks get ABORTED, whatever remains. */
static bool is_broken_round(void)
{
    return definition->spec->staged.delivery == STG_DELIVERY_ROUND_ROBIN &&
           !cast->comes_back && play->kills_left < cast->n_kills;
}

/* Each trainer sees rising numbers, except for redelivered items. Split: an item occurs
 * twice only if it is marked as redelivered. */
static void check_order(void)
{
    for (int i = 0; i < cast->n_trainers; i++) {
        const struct player *player = &play->players[i];
        uint64_t last = 0;
        for (int k = 0; k < player->n_got; k++) {
            uint64_t number = player->got[k].number;
            if (k > 0 && number <= last && !player->got[k].redelivered)
                explore_fail("trainer %d got %d after %d", i, (int)number, (int)last);
            if (!player->got[k].redelivered)
                last = number;
        }
    }
    for (uint64_t number = 0; number < MAX_GOT && !is_broadcast(); number++) {
        int marked, n = times_got(number, &marked);
        if (n - marked > 1)
            explore_fail("item %d came %d times, %d of them marked", (int)number, n,
                         marked);
    }
}

static void check(void)
{
    check_order();
}

static int n_different(const struct player *player)
{
    uint32_t seen = 0;
    for (int k = 0; k < player->n_got; k++)
        seen |= 1u << player->got[k].number;
    return __builtin_popcount(seen);
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
            n_different(player) != cast->n_items * cast->n_passes)
            explore_fail("trainer %d got %d items", i, n_different(player));
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
        int marked;
        if (times_got((uint64_t)number, &marked) == 0)
            explore_fail("item %d is lost", number);
    }
}

/* A doorbell request is answered or not. The number of requests does not matter, nor how
 * often a trainer slept. */
static void canonical(bool before)
{
    static uint32_t wanted[MAX_TRAINERS], rung[MAX_TRAINERS];
    static uint64_t sleeps[MAX_TRAINERS];
    for (int i = 0; i < cast->n_trainers; i++) {
        struct stg_ring_reader *ring = &play->players[i].stream.ring;
        struct stg_ring_page *page = (void *)(uintptr_t)ring->page;
        if (page == NULL)
            continue; /* it never joined */
        if (before) {
            wanted[i] = atomic_load(&page->doorbell_wanted);
            rung[i] = ring->doorbell_rung;
            atomic_store(&page->doorbell_wanted, wanted[i] != rung[i]);
            ring->doorbell_rung = 0;
            sleeps[i] = play->players[i].stream.n_sleeps;
            play->players[i].stream.n_sleeps = 0;
        } else {
            atomic_store(&page->doorbell_wanted, wanted[i]);
            ring->doorbell_rung = rung[i];
            play->players[i].stream.n_sleeps = sleeps[i];
        }
    }
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
        .check = check,
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
