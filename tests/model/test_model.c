/* SPDX-License-Identifier: Apache-2.0
 *
 * The buffer's state machine, all of it: the daemon's own stage, runners and delivery,
 * and the client's own stager_next, in every interleaving of k runners, n trainers and
 * the loop, with kills, stops, restarts and timeouts where a scenario has them. What must
 * hold in every state is checked in every state, and the program comes to rest only where
 * it should: a lost wake-up would leave somebody asleep, a masked end somebody without
 * one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stream.h"
#include "daemon/definition.h"
#include "daemon/delivery.h"
#include "daemon/stage_priv.h"
#include "tests/check.h"
#include "tests/model/explore.h"
#include "tests/model/wrap.h"

#define MAX_TRAINERS 2
#define MAX_GOT 24

/* What happens, beside runners that make items and trainers that take them. */
struct cast {
    const char *name;
    const char *staged;
    int n_items, n_trainers, n_passes;
    int n_kills;       /* of any trainer, at any moment */
    bool may_stop;     /* the pipeline is replaced (draining) at any moment */
    bool may_abort;    /* the stage is stopped without draining at any moment */
    uint32_t timeouts; /* waits for room that may run out */
    bool tiny;         /* items are known to take no time */
    int n_tunes;       /* of one runner or two, at any moment */
    bool fine;
    uint32_t max_preemptions; /* 0: every interleaving */
    uint64_t max_states;
};

struct player {
    struct stager_stream stream;
    struct stager connection;
    struct stg_lent lents[2];
    struct stg_client *client; /* NULL: the daemon has forgotten it */
    int fiber;
    bool attached, closing, killed;
    int n_got, n_ends, end_code;
    struct {
        uint64_t number;
        bool redelivered;
    } got[MAX_GOT];
};

/* In the region. */
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
    player->got[player->n_got].number = batch->lent->number;
    player->got[player->n_got++].redelivered = batch->lent->redelivered;
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
        if (rc != -STAGER_OUT_OF_RANGE || ++player->n_ends == cast->n_passes)
            break;
        stager_rewind(&player->stream);
    }
    player->closing = true;
    return NULL;
}

/* ---- the loop ---- */

enum {
    EVENT_SWEEP,
    EVENT_STOP,
    EVENT_ABORT,
    EVENT_TUNE,
    EVENT_BELL,
    EVENT_GONE,
    EVENT_KILL,
    N_EVENTS
};

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
    case EVENT_BELL: return player->attached && wire->bell_to_daemon;
    case EVENT_GONE: return player->attached && (player->closing || wire->shut);
    case EVENT_KILL:
        return (player->attached || player->client != NULL) &&
               (player->closing || (!player->killed && play->kills_left > 0));
    }
    return false;
}

/* The process ends: by itself after it closed, or killed at any moment. */
static void end_process(struct player *player)
{
    if (!player->closing) {
        player->killed = true;
        play->kills_left--;
    }
    fiber_kill(player->fiber);
    if (player->client != NULL)
        stg_stage_dead(play->stage, player->client);
    player->client = NULL;
    player->attached = false;
    play->sweep_wanted = true;
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
    play->armed = stg_stage_sweep(play->stage) >= 0;
}

/* As a tuner does it: the other one of two runners rests, or works. */
static void tune(void)
{
    struct stg_stage *stage = play->stage;
    play->tunes_left--;
    pthread_mutex_lock(&stage->lock);
    stage->runners.n_active = 3 - stage->runners.n_active;
    stage->wake |= STG_WAKE_ROOM | STG_WAKE_PASS;
    stg_delivery_run(stage);
    pthread_mutex_unlock(&stage->lock);
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
        case EVENT_BELL:
            outside()->wires[i / N_EVENTS].bell_to_daemon = false;
            stg_stage_bell(play->stage, player->client);
            play->sweep_wanted = true;
            break;
        case EVENT_GONE: hang_up(player); break;
        case EVENT_KILL: end_process(player); break;
        }
    }
    return NULL;
}

/* ---- set-up ---- */

static void wake(void *owner)
{
    play->sweep_wanted = true;
}

static bool tell(void *owner)
{
    return true;
}

static void attach(int i)
{
    struct player *player = &play->players[i];
    struct stg_err err = {0};
    char client_id[16];
    snprintf(client_id, sizeof(client_id), "trainer-%d", i);
    struct stg_attach who = {
        .client_id = client_id,
        .program = "model",
        .max_held = 2,
        .pid = 1000 + i,
        .socket = SOCKET_OF(i),
    };
    struct stg_attached attached;
    CHECK_OK(stg_stage_attach(play->stage, &who, &attached, &err), err);
    const struct stg_join join = {.tell = tell};
    CHECK_OK(stg_stage_join(play->stage, attached.client, &join, &err), err);
    player->client = attached.client;
    player->attached = true;
    player->connection.fd = SOCKET_OF(i);
    struct stager_stream *stream = &player->stream;
    stream->client = &player->connection;
    stream->name = "model";
    stream->final_text = calloc(1, STG_ERR_TEXT_BYTES);
    stream->why = calloc(1, STG_ERR_TEXT_BYTES);
    stream->passes = 1;
    stream->ring.page = attached.client->ring_segment.base;
    stream->control.page = attached.client->control_segment.base;
    stream->segment.base = play->stage->arena.base;
    stream->segment.bytes = attached.segment_bytes;
    stream->lents = player->lents;
    stream->max_held = 2;
    for (int k = 0; k < 2; k++) {
        player->lents[k].next_free = stream->free_lents;
        stream->free_lents = &player->lents[k];
    }
    CHECK_OK(stg_stream_add_batches(stream, 2, &err), err);
    stg_control_want_pass(&stream->control, 1);
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
    CHECK_OK(stg_stage_plan(definition->spec, definition->cuts, config.num_clients, 2,
                            1 << 20, &plan, &err),
             err);
    CHECK_OK(stg_stage_create(&config, &plan, &play->stage, &err), err);
    if (cast->tiny)
        play->stage->runners.mean_busy_ns = 0;
    for (int i = 0; i < cast->n_trainers; i++) {
        attach(i);
        static const char *const names[] = {"trainer 0", "trainer 1"};
        play->players[i].fiber = fiber_start(names[i], trainer_main, &play->players[i]);
    }
    fiber_start("loop", loop_main, NULL);
}

/* ---- what must hold ---- */

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

/* Rounds that lost a rank for good: the others are told so, whatever is left. */
static bool is_broken_round(void)
{
    return definition->spec->staged.delivery == STG_DELIVERY_ROUND_ROBIN &&
           play->kills_left < cast->n_kills;
}

/* Each trainer sees numbers that rise, but for what comes again; split: nothing twice
 * unless it says so. */
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

/* Every trainer that lives was told an end or the reason why there is none, and the stage
 * is finished: no runner left, no lease out. */
static void at_rest(void)
{
    for (int i = 0; i < cast->n_trainers; i++) {
        const struct player *player = &play->players[i];
        if (!player->killed && !fiber_ended(player->fiber))
            explore_fail("trainer %d sleeps for ever", i);
        if (player->killed)
            continue;
        bool stopped = play->stopped || play->aborted;
        bool aborted = player->end_code == -STAGER_ABORTED && is_broken_round();
        if (player->end_code != -STAGER_OUT_OF_RANGE && !stopped && !aborted)
            explore_fail("trainer %d was told %d", i, player->end_code);
        if (is_broadcast() && !stopped && cast->timeouts == 0 &&
            player->n_got != cast->n_items * cast->n_passes)
            explore_fail("trainer %d got %d items", i, player->n_got);
    }
    if (!stg_stage_finished(play->stage))
        explore_fail("the stage does not end");
    struct stg_err err = {0};
    if (stg_lease_core_verify(play->stage->leases, &err) < 0)
        explore_fail("%s", err.text);
    struct stg_lease_usage usage;
    stg_lease_usage(play->stage->leases, &usage);
    if (usage.lent != 0 || usage.quarantined != 0)
        explore_fail("%d bytes are still lent, %d quarantined", (int)usage.lent,
                     (int)usage.quarantined);
    /* Split: as long as somebody lived to the end, every item came to somebody. */
    bool somebody = false;
    for (int i = 0; i < cast->n_trainers; i++)
        somebody |= !play->players[i].killed;
    bool all = !play->stopped && !play->aborted && cast->timeouts == 0 && somebody &&
               !is_broken_round();
    for (int number = 0; number < cast->n_items * cast->n_passes && all; number++) {
        int marked;
        if (times_got((uint64_t)number, &marked) == 0)
            explore_fail("item %d is lost", number);
    }
}

/* A request for a bell is answered or not; how many there were does not matter, nor how
 * often a trainer slept. */
static void canonical(bool before)
{
    static uint32_t wanted[MAX_TRAINERS], rung[MAX_TRAINERS];
    static uint64_t sleeps[MAX_TRAINERS];
    for (int i = 0; i < cast->n_trainers; i++) {
        struct stg_ring_reader *ring = &play->players[i].stream.ring;
        struct stg_ring_page *page = (void *)(uintptr_t)ring->page;
        if (before) {
            wanted[i] = atomic_load(&page->bell_wanted);
            rung[i] = ring->bell_rung;
            atomic_store(&page->bell_wanted, wanted[i] != rung[i]);
            ring->bell_rung = 0;
            sleeps[i] = play->players[i].stream.n_sleeps;
            play->players[i].stream.n_sleeps = 0;
        } else {
            atomic_store(&page->bell_wanted, wanted[i]);
            ring->bell_rung = rung[i];
            play->players[i].stream.n_sleeps = sleeps[i];
        }
    }
}

static void run(const struct cast *the_cast)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("sanitizers do not follow fibers");
#endif
    cast = the_cast;
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: model\ndataset:\n  - range: {stop: %d}\n"
             "  - batch: {batch_size: 1, drop_remainder: true}\n"
             "staged: {num_clients: %d, %s}\n",
             cast->n_items, cast->n_trainers, cast->staged);
    static const struct stg_identity nobody = {.uid = 65534, .gid = 65534};
    struct stg_err err = {0};
    CHECK_OK(stg_definition_create(yaml, strlen(yaml), "model", &nobody, NULL,
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
    stg_budget_finish(&budget);
    stg_definition_unref(definition);
}

/* ---- every interleaving ---- */

static void a_bell_is_never_lost_between_two_looks_at_shared_memory(void)
{
    run(&(struct cast){.name = "1 runner, 1 trainer, every look at shared memory",
                       .staged = "capacity: 1",
                       .n_items = 1,
                       .n_trainers = 1,
                       .n_passes = 1,
                       .fine = true});
}

static void one_runner_and_one_trainer_end_pass_after_pass(void)
{
    run(&(struct cast){.name = "1 runner, 1 trainer, 2 passes",
                       .staged = "capacity: 1",
                       .n_items = 1,
                       .n_trainers = 1,
                       .n_passes = 2});
}

static void two_runners_wake_each_other_and_end_once(void)
{
    run(&(struct cast){.name = "2 runners, 1 trainer",
                       .staged = "capacity: 1, num_threads: 2",
                       .n_items = 1,
                       .n_trainers = 1,
                       .n_passes = 1});
}

static void two_trainers_share_and_both_are_told_the_end(void)
{
    run(&(struct cast){.name = "1 runner, 2 trainers",
                       .staged = "capacity: 1",
                       .n_items = 1,
                       .n_trainers = 2,
                       .n_passes = 1});
}

static void a_trainer_killed_at_any_moment_holds_up_nothing(void)
{
    run(&(struct cast){.name = "1 runner, 1 trainer, 1 kill",
                       .staged = "capacity: 1",
                       .n_items = 2,
                       .n_trainers = 1,
                       .n_passes = 1,
                       .n_kills = 1});
}

static void a_stop_at_any_moment_reaches_everybody(void)
{
    run(&(struct cast){.name = "1 runner, 1 trainer, replaced and stopped",
                       .staged = "capacity: 1",
                       .n_items = 1,
                       .n_trainers = 1,
                       .n_passes = 1,
                       .may_stop = true,
                       .may_abort = true});
}

static void a_wait_for_room_may_run_out_at_any_moment(void)
{
    run(&(struct cast){.name = "1 runner, 1 trainer, timeouts",
                       .staged = "capacity: 1, timeout_millis: 10, on_timeout: drop",
                       .n_items = 2,
                       .n_trainers = 1,
                       .n_passes = 1,
                       .timeouts = 1});
}

/* ---- larger ones, with so many interruptions ---- */

static void two_runners_and_two_trainers_lose_nothing(void)
{
    run(&(struct cast){.name = "2 runners, 2 trainers, 1 kill",
                       .staged = "capacity: 1, num_threads: 2",
                       .n_items = 1,
                       .n_trainers = 2,
                       .n_passes = 1,
                       .n_kills = 1,
                       .max_preemptions = 1});
}

static void of_two_runners_of_tiny_items_one_always_goes_on(void)
{
    run(&(struct cast){.name = "2 runners of tiny items, 1 trainer, stopped",
                       .staged = "capacity: 1, num_threads: 2",
                       .n_items = 3,
                       .n_trainers = 1,
                       .n_passes = 1,
                       .may_abort = true,
                       .tiny = true,
                       .max_preemptions = 1});
}

static void a_runner_that_rests_or_works_again_holds_up_nothing(void)
{
    run(&(struct cast){.name = "2 runners, tuned, 1 trainer",
                       .staged = "capacity: 1, num_threads: 2",
                       .n_items = 2,
                       .n_trainers = 1,
                       .n_passes = 1,
                       .n_tunes = 1,
                       .max_preemptions = 2});
    run(&(struct cast){.name = "2 runners of tiny items, tuned, 1 trainer",
                       .staged = "capacity: 1, num_threads: 2",
                       .n_items = 2,
                       .n_trainers = 1,
                       .n_passes = 1,
                       .n_tunes = 1,
                       .tiny = true,
                       .max_preemptions = 2});
}

static void broadcast_to_two_goes_on_when_one_is_killed(void)
{
    run(&(struct cast){.name = "2 runners, broadcast to 2 trainers, 1 kill",
                       .staged = "capacity: 1, num_threads: 2, delivery: broadcast",
                       .n_items = 1,
                       .n_trainers = 2,
                       .n_passes = 1,
                       .n_kills = 1,
                       .max_preemptions = 1});
}

static void round_robin_deals_whole_rounds_or_says_why_not(void)
{
    run(&(struct cast){.name = "1 runner, round_robin to 2 trainers, 1 kill",
                       .staged = "capacity: 1, delivery: round_robin",
                       .n_items = 2,
                       .n_trainers = 2,
                       .n_passes = 1,
                       .n_kills = 1,
                       .max_preemptions = 1});
}

#define SECONDS 280
static const struct stg_test tests[] = {
    TEST_SLOW(a_bell_is_never_lost_between_two_looks_at_shared_memory, SECONDS),
    TEST_SLOW(one_runner_and_one_trainer_end_pass_after_pass, SECONDS),
    TEST_SLOW(two_runners_wake_each_other_and_end_once, SECONDS),
    TEST_SLOW(two_trainers_share_and_both_are_told_the_end, SECONDS),
    TEST_SLOW(a_trainer_killed_at_any_moment_holds_up_nothing, SECONDS),
    TEST_SLOW(a_stop_at_any_moment_reaches_everybody, SECONDS),
    TEST_SLOW(a_wait_for_room_may_run_out_at_any_moment, SECONDS),
    TEST_SLOW(two_runners_and_two_trainers_lose_nothing, SECONDS),
    TEST_SLOW(of_two_runners_of_tiny_items_one_always_goes_on, SECONDS),
    TEST_SLOW(a_runner_that_rests_or_works_again_holds_up_nothing, SECONDS),
    TEST_SLOW(broadcast_to_two_goes_on_when_one_is_killed, SECONDS),
    TEST_SLOW(round_robin_deals_whole_rounds_or_says_why_not, SECONDS),
};

TEST_MAIN(tests)
