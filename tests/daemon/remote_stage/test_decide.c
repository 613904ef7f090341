/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether and of which worker a batch is asked: each rule by its numbers, and a model of
 * a stage, its workers and a trainer, in which these rules close the loop. The model has
 * a clock of its own; its batches take the time that the test gives.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/remote_stage/decide.h"
#include "tests/check.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)

/* ---- the rules ---- */

/* One batch more shortens a step. */
static const struct stg_auto_seen busy = {
    .capacity = 4, .n_busy = 2, .n_active = 2, .n_remote = 8};

static bool asks(uint64_t n_ready, uint64_t capacity, uint32_t n_asking)
{
    struct stg_auto_seen seen = busy;
    seen.n_ready = n_ready;
    seen.capacity = capacity;
    seen.n_asking = n_asking;
    return stg_auto_asks(&seen);
}

static void the_less_is_ready_the_more_is_asked_for(void)
{
    CHECK(asks(0, 4, 7) && !asks(0, 4, 8));
    CHECK(asks(1, 4, 3) && !asks(1, 4, 4));
    CHECK(!asks(2, 4, 0) && !asks(4, 4, 0));
    CHECK(asks(0, 1, 7) && !asks(0, 1, 8) && !asks(1, 1, 0));
    CHECK(asks(0, 2, 7) && !asks(1, 2, 0));
    CHECK(asks(49, 100, 0) && !asks(49, 100, 1) && !asks(50, 100, 0));
}

static void local_runners_come_first(void)
{
    struct stg_auto_seen seen = busy;
    CHECK(stg_auto_asks(&seen));
    seen.n_busy = 1;
    CHECK(!stg_auto_asks(&seen));
    seen.is_pulling = true; /* the others wait for it */
    CHECK(stg_auto_asks(&seen));
    seen.is_pulling = false;
    seen.n_busy = seen.n_active = 0;
    CHECK(stg_auto_asks(&seen));
}

static struct stg_worker_load listed(unsigned n_asked)
{
    return (struct stg_worker_load){.is_listed = true, .n_asked = n_asked};
}

static void the_worker_with_the_fewest_requests_is_asked_and_the_own_zone_first(void)
{
    struct stg_worker_load loads[] = {listed(3), listed(1), listed(2), listed(1)};
    CHECK_INT(stg_load_choose(loads, 0, 0, 0), -1);
    CHECK_INT(stg_load_choose(loads, 4, 0, 0), 1);
    CHECK_INT(stg_load_choose(loads, 4, 1u << 1, 0), 3);
    CHECK_INT(stg_load_choose(loads, 4, 15, 0), -1);
    loads[0].zone = 1;
    CHECK_INT(stg_load_choose(loads, 4, 0, 0), 0);
    loads[0].zone = -1;
    CHECK_INT(stg_load_choose(loads, 4, 14, 0), 0);
    loads[1].is_listed = false;
    CHECK_INT(stg_load_choose(loads, 4, 0, 0), 3);
    loads[3].is_out = true;
    CHECK_INT(stg_load_choose(loads, 4, 0, 0), 2);
    loads[2].until_ns = 5;
    CHECK_INT(stg_load_choose(loads, 4, 0, 4), 0);
    CHECK_INT(stg_load_choose(loads, 4, 0, 5), 2);
}

static bool has_room(const struct stg_worker_load *loads, int n, uint32_t n_asking,
                     uint64_t now_ns)
{
    return stg_load_has_room(loads, n, n_asking, &(struct stg_auto_runners){0}, now_ns);
}

static void a_worker_gets_two_requests_more_than_it_has_cpus(void)
{
    struct stg_worker_load loads[] = {listed(5), listed(9)};
    stg_load_note_cpus(&loads[0], 0);
    stg_load_note_cpus(&loads[0], 1u << 20);
    CHECK_INT(loads[0].fits, 0);
    stg_load_note_cpus(&loads[0], 4);
    CHECK_INT(stg_load_choose(loads, 1, 0, 0), 0);
    loads[0].n_asked = 6;
    CHECK_INT(stg_load_choose(loads, 1, 0, 0), -1);
    CHECK(stg_load_is_full(loads, 1, 0, 0) && !stg_load_is_full(loads, 1, 1, 0));
    CHECK(has_room(loads, 1, 5, 0) && !has_room(loads, 1, 6, 0));
    stg_load_note_cpus(&loads[1], 8);
    CHECK(!stg_load_is_full(&loads[1], 1, 0, 0));
    CHECK(has_room(loads, 2, 15, 0) && !has_room(loads, 2, 16, 0));
    loads[1].until_ns = 1;
    CHECK(!has_room(loads, 2, 6, 0));
}

/* Local runners make an item in 100 ms, and can make 10. */
static void answers_come_before_all_runners_wait(void)
{
    const struct stg_auto_runners runners = {.n_local = 10, .gap_ns = 100 * MS};
    struct stg_worker_load loads[] = {listed(0), listed(0)};
    loads[0].fits = 12; /* 10 CPUs */
    loads[0].item_ns = 1000 * MS;
    CHECK(stg_load_has_room(loads, 1, 9, &runners, SECOND));
    CHECK(!stg_load_has_room(loads, 1, 10, &runners, SECOND));
    loads[0].item_ns = 900 * MS; /* one waits for a CPU */
    CHECK(stg_load_has_room(loads, 1, 10, &runners, SECOND));
    CHECK(!stg_load_has_room(loads, 1, 11, &runners, SECOND));
    loads[1].fits = 3;
    loads[1].item_ns = 200 * MS; /* with it, 10 take 667 ms */
    CHECK(stg_load_has_room(loads, 2, 1, &runners, SECOND));
    CHECK(!stg_load_has_room(loads, 2, 2, &runners, SECOND));
    loads[1].until_ns = UINT64_MAX;
    CHECK(stg_load_has_room(loads, 2, 10, &runners, SECOND));
}

static void a_worker_that_takes_too_long_is_tried_now_and_then(void)
{
    const struct stg_auto_runners runners = {.n_local = 10, .gap_ns = 10 * MS};
    struct stg_worker_load load = listed(0);
    CHECK(stg_load_has_room(&load, 1, 100, &runners, SECOND)); /* nothing is known */
    load.item_ns = 101 * MS;
    stg_load_begin(&load, SECOND);
    CHECK_INT(load.n_asked, 1);
    CHECK(!stg_load_has_room(&load, 1, 1, &runners, 9 * SECOND));
    load.n_asked = 0;
    CHECK(!stg_load_has_room(&load, 1, 0, &runners, 3 * SECOND - 1));
    CHECK(stg_load_has_room(&load, 1, 0, &runners, 3 * SECOND));
    CHECK(!stg_load_has_room(&load, 1, 1, &runners, 3 * SECOND));
    load.item_ns = SECOND;
    CHECK(!stg_load_has_room(&load, 1, 0, &runners, 9 * SECOND - 1));
    CHECK(stg_load_has_room(&load, 1, 0, &runners, 9 * SECOND));
}

static void the_latency_of_a_request_that_waits_for_a_cpu_is_more_than_an_items(void)
{
    struct stg_worker_load load = listed(4);
    stg_load_note_latency(&load, 800);
    CHECK_INT(load.item_ns, 801);
    load.fits = 4; /* 2 CPUs */
    stg_load_note_latency(&load, 3200);
    CHECK_INT(load.item_ns, 901);
    load.n_asked = 1;
    stg_load_note_latency(&load, 901);
    CHECK_INT(load.item_ns, 901);
}

static void the_worker_that_answers_first_is_asked(void)
{
    struct stg_worker_load loads[] = {listed(0), listed(3)};
    loads[0].fits = loads[1].fits = 4; /* 2 CPUs */
    CHECK_INT(stg_load_choose(loads, 2, 0, 0), 0);
    loads[0].item_ns = 41 * MS;
    CHECK_INT(stg_load_choose(loads, 2, 0, 0), 0);
    loads[1].item_ns = 20 * MS; /* 40 for the fourth */
    CHECK_INT(stg_load_choose(loads, 2, 0, 0), 1);
    loads[1].n_asked = 4;
    CHECK_INT(stg_load_choose(loads, 2, 0, 0), 0);
    loads[1].n_asked = 2;
    loads[0].zone = 1;
    CHECK_INT(stg_load_choose(loads, 2, 0, 0), 0);
}

static void a_worker_that_refuses_gets_fewer_and_one_more_after_1024(void)
{
    struct stg_worker_load load = listed(4);
    CHECK_INT(stg_load_note(&load, STG_OUTCOME_BUSY, 0, SECOND), STG_OUTCOME_BUSY);
    CHECK(load.n_asked == 3 && load.n_failed == 0 && stg_load_may_ask(&load, SECOND));
    CHECK_INT(stg_load_choose(&load, 1, 0, SECOND), -1);
    for (unsigned i = 0; i < 1024; i++) {
        CHECK(!has_room(&load, 1, 3, SECOND));
        load.n_asked++;
        stg_load_note(&load, i % 2 ? STG_OUTCOME_GOOD : STG_OUTCOME_ELEMENT, 0, SECOND);
    }
    CHECK(has_room(&load, 1, 3, SECOND));
    CHECK(!has_room(&load, 1, 4, SECOND));
    CHECK_INT(stg_load_choose(&load, 1, 0, SECOND), 0);
}

static void a_worker_that_refuses_its_only_request_is_away(void)
{
    struct stg_worker_load load = listed(1);
    CHECK_INT(stg_load_note(&load, STG_OUTCOME_BUSY, 0, SECOND), STG_OUTCOME_AWAY);
    CHECK(!stg_load_may_ask(&load, SECOND));
    CHECK(stg_load_may_ask(&load, SECOND + SECOND / 4));
}

/* Returns for how long the worker is not asked. */
static uint64_t rest(struct stg_worker_load *load, enum stg_outcome outcome,
                     uint64_t retry_after_ns)
{
    load->n_asked++;
    stg_load_note(load, outcome, retry_after_ns, SECOND);
    CHECK(!stg_load_may_ask(load, load->until_ns - 1));
    return load->until_ns - SECOND;
}

static void a_worker_that_fails_rests_ever_longer_up_to_thirty_seconds(void)
{
    struct stg_worker_load load = listed(0);
    for (uint64_t want = SECOND / 4; want < 30 * SECOND; want *= 2)
        CHECK_INT(rest(&load, STG_OUTCOME_AWAY, 0), want);
    for (int i = 0; i < 100; i++)
        CHECK_INT(rest(&load, STG_OUTCOME_AWAY, 0), 30 * SECOND);
    load.n_asked++;
    CHECK_INT(stg_load_note(&load, STG_OUTCOME_GOOD, 0, SECOND), STG_OUTCOME_GOOD);
    CHECK_INT(rest(&load, STG_OUTCOME_AWAY, 3 * SECOND), 3 * SECOND);
    CHECK_INT(rest(&load, STG_OUTCOME_REFUSED, 0), 10 * SECOND);
    CHECK_INT(rest(&load, STG_OUTCOME_REFUSED, 60 * SECOND), 30 * SECOND);
    CHECK(stg_load_may_ask(&load, load.until_ns));
}

static void a_worker_that_sends_garbage_is_not_asked_again(void)
{
    struct stg_worker_load load = listed(0);
    rest(&load, STG_OUTCOME_GARBAGE, 0);
    CHECK(!stg_load_may_ask(&load, UINT64_MAX));
}

static void bytes_a_second_are_paid_for_in_time(void)
{
    CHECK_INT(stg_rate_pay(0, 7, 1u << 30, SECOND), 7);
    CHECK_INT(stg_rate_pay(1000, 0, 500, SECOND), SECOND + SECOND / 2);
    CHECK_INT(stg_rate_pay(1000, 2 * SECOND, 500, SECOND), 2 * SECOND + SECOND / 2);
}

static void patience_follows_the_latencies(void)
{
    uint64_t ring[STG_N_LATENCIES], hedge, limit;
    for (size_t i = 0; i < STG_N_LATENCIES; i++)
        ring[i] = 2 * SECOND;
    stg_patience(ring, 7, &hedge, &limit);
    CHECK(hedge == SECOND && limit == 10 * SECOND);
    stg_patience(ring, 8, &hedge, &limit);
    CHECK(hedge == 2 * SECOND && limit == 8 * SECOND);
    stg_patience(ring, 1000, &hedge, &limit);
    CHECK(hedge == 2 * SECOND && limit == 8 * SECOND);
    for (size_t i = 0; i < STG_N_LATENCIES; i++)
        ring[i] = i < 61 ? MS : 100 * SECOND;
    stg_patience(ring, 64, &hedge, &limit);
    CHECK(hedge == 20 * MS && limit == SECOND);
    ring[60] = 100 * SECOND;
    stg_patience(ring, 64, &hedge, &limit);
    CHECK(hedge == 100 * SECOND && limit == 60 * SECOND);
}

/* ---- the model ---- */

#define STEP (MS / 4)
#define MAX_RUNNERS 32
#define MAX_WORKERS 2
#define MAX_CPUS 4

enum state { IDLE, WORKS, ASKS, WAITS, IS_MADE };

struct runner {
    enum state state;
    uint64_t sequence, began_ns, end_ns, limit_ns, tried;
    int worker;
    enum stg_outcome outcome;
};

struct worker {
    unsigned n_cpus, max_queued;
    uint64_t make_ns, network_ns;
    bool is_lost;
    uint64_t free_ns[MAX_CPUS];
    uint64_t n_made; /* answers */
};

static struct {
    uint64_t now, local_ns, trainer_ns, rate, bytes;
    unsigned capacity, n_local, n_remote, n_workers;
    double jitter; /* a batch takes from 1 - jitter to 1 + jitter times as long */
    struct worker workers[MAX_WORKERS];

    struct runner runners[MAX_RUNNERS]; /* the local ones first */
    struct stg_worker_load loads[MAX_WORKERS];
    uint64_t ring[STG_N_LATENCIES], n_latencies, paid_ns;
    uint64_t next, publish_next;
    unsigned n_ready; /* in the buffer */
    uint64_t trainer_free_ns, random;
    uint64_t n_taken, n_asked, n_local_made;
} sim;

static uint64_t jittered(uint64_t ns)
{
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u;
    double at = (double)(sim.random >> 40) / (1 << 23) - 1;
    return (uint64_t)((double)ns * (1 + sim.jitter * at));
}

static unsigned count(enum state state, bool is_remote)
{
    unsigned n = 0, first = is_remote ? sim.n_local : 0;
    unsigned end = is_remote ? sim.n_local + sim.n_remote : sim.n_local;
    for (unsigned i = first; i < end; i++)
        n += sim.runners[i].state == state;
    return n;
}

static bool has_extent(void)
{
    unsigned n = sim.n_local + sim.n_remote;
    unsigned idle = count(IDLE, false) + count(IDLE, true);
    return sim.n_ready + n - idle < sim.capacity + n;
}

static void make_here(struct runner *runner)
{
    runner->state = WORKS;
    runner->end_ns = sim.now + jittered(sim.local_ns);
    sim.n_local_made++;
}

/* The worker's queue is full, or a CPU takes the batch when it is free. */
static void send_to(struct runner *runner, struct worker *worker)
{
    unsigned cpu = 0, n_queued = 0;
    for (unsigned i = 0; i < worker->n_cpus; i++)
        cpu = worker->free_ns[i] < worker->free_ns[cpu] ? i : cpu;
    for (unsigned i = sim.n_local; i < sim.n_local + sim.n_remote; i++)
        n_queued +=
            sim.runners[i].state == ASKS && &sim.workers[sim.runners[i].worker] == worker;
    runner->outcome = n_queued > worker->max_queued ? STG_OUTCOME_BUSY : STG_OUTCOME_GOOD;
    runner->end_ns = sim.now + worker->network_ns;
    if (runner->outcome == STG_OUTCOME_BUSY)
        return;
    uint64_t from = worker->free_ns[cpu] > sim.now ? worker->free_ns[cpu] : sim.now;
    worker->free_ns[cpu] = from + jittered(worker->make_ns);
    runner->end_ns = worker->free_ns[cpu] + worker->network_ns;
}

/* As stg_remote_ask: another worker, a place in a queue later, or here. */
static void ask(struct runner *runner)
{
    int worker = stg_load_choose(sim.loads, (int)sim.n_workers, runner->tried, sim.now);
    uint64_t hedge_ns;
    if (worker < 0) {
        runner->state = WAITS;
        if (!stg_load_is_full(sim.loads, (int)sim.n_workers, runner->tried, sim.now))
            make_here(runner);
        return;
    }
    sim.n_asked++;
    stg_load_begin(&sim.loads[worker], sim.now);
    runner->state = ASKS;
    runner->worker = worker;
    runner->tried |= UINT64_C(1) << worker;
    runner->began_ns = sim.now;
    stg_patience(sim.ring, sim.n_latencies, &hedge_ns, &runner->limit_ns);
    send_to(runner, &sim.workers[worker]);
}

static void take_answer(struct runner *runner)
{
    struct worker *worker = &sim.workers[runner->worker];
    bool is_late = sim.now - runner->began_ns > runner->limit_ns;
    if (!is_late && (worker->is_lost || runner->end_ns > sim.now))
        return;
    struct stg_worker_load *load = &sim.loads[runner->worker];
    if (!is_late && runner->outcome == STG_OUTCOME_GOOD)
        stg_load_note_latency(load, sim.now - runner->began_ns);
    enum stg_outcome outcome =
        stg_load_note(load, is_late ? STG_OUTCOME_AWAY : runner->outcome, 0, sim.now);
    if (outcome == STG_OUTCOME_GOOD) {
        uint64_t ns = sim.now - runner->began_ns;
        stg_load_note_cpus(load, worker->n_cpus);
        sim.ring[sim.n_latencies++ % STG_N_LATENCIES] = ns;
        sim.paid_ns = stg_rate_pay(sim.rate, sim.paid_ns, sim.bytes, sim.now);
        runner->state = IS_MADE;
        worker->n_made++;
        return;
    }
    if (outcome == STG_OUTCOME_BUSY)
        runner->tried &= ~(UINT64_C(1) << runner->worker);
    ask(runner);
}

static void look(struct runner *runner)
{
    uint32_t n_asking = count(ASKS, true) + count(WAITS, true) + count(WORKS, true);
    const struct stg_auto_seen seen = {.n_ready = sim.n_ready,
                                       .capacity = sim.capacity,
                                       .n_busy = sim.n_local - count(IDLE, false),
                                       .n_active = sim.n_local,
                                       .n_asking = n_asking,
                                       .n_remote = sim.n_remote};
    const struct stg_auto_runners runners = {.n_local = sim.n_local,
                                             .n_remote = sim.n_remote,
                                             .gap_ns = sim.local_ns / sim.n_local};
    if (!stg_auto_asks(&seen) || sim.paid_ns > sim.now || !has_extent() ||
        !stg_load_has_room(sim.loads, (int)sim.n_workers, n_asking, &runners, sim.now))
        return;
    runner->sequence = sim.next++;
    runner->tried = 0;
    ask(runner);
}

/* In order, as far as the buffer has room. */
static void publish(void)
{
    unsigned n = sim.n_local + sim.n_remote;
    for (unsigned i = 0; i < n && sim.n_ready < sim.capacity; i++) {
        struct runner *runner = &sim.runners[i];
        if (runner->state != IS_MADE || runner->sequence != sim.publish_next)
            continue;
        sim.publish_next++;
        sim.n_ready++;
        runner->state = IDLE;
        i = UINT32_MAX; /* the next one may be any */
    }
}

static void step(void)
{
    sim.now += STEP;
    if (sim.n_ready > 0 && sim.trainer_free_ns <= sim.now) {
        sim.n_ready--;
        sim.n_taken++;
        sim.trainer_free_ns = sim.now + jittered(sim.trainer_ns);
    }
    for (unsigned i = 0; i < sim.n_local + sim.n_remote; i++) {
        struct runner *runner = &sim.runners[i];
        if (runner->state == WORKS && runner->end_ns <= sim.now)
            runner->state = IS_MADE;
        else if (runner->state == ASKS)
            take_answer(runner);
        else if (runner->state == WAITS)
            ask(runner);
    }
    publish();
    for (unsigned i = 0; i < sim.n_local; i++) {
        if (sim.runners[i].state == IDLE && has_extent()) {
            sim.runners[i].sequence = sim.next++;
            make_here(&sim.runners[i]);
        }
    }
    for (unsigned i = sim.n_local; i < sim.n_local + sim.n_remote; i++) {
        if (sim.runners[i].state == IDLE)
            look(&sim.runners[i]);
    }
}

/* What a time came to. */
struct seen {
    double taken, asked, made[MAX_WORKERS]; /* a second */
};

static struct seen run_for(double seconds)
{
    uint64_t end = sim.now + (uint64_t)(seconds * (double)SECOND);
    uint64_t taken = sim.n_taken, asked = sim.n_asked;
    uint64_t made[MAX_WORKERS] = {sim.workers[0].n_made, sim.workers[1].n_made};
    while (sim.now < end)
        step();
    struct seen seen = {.taken = (double)(sim.n_taken - taken) / seconds,
                        .asked = (double)(sim.n_asked - asked) / seconds};
    for (int i = 0; i < MAX_WORKERS; i++)
        seen.made[i] = (double)(sim.workers[i].n_made - made[i]) / seconds;
    fprintf(stderr, "%.1f s: %.1f taken a second, %.1f asked, %.1f and %.1f made\n",
            (double)sim.now / 1e9, seen.taken, seen.asked, seen.made[0], seen.made[1]);
    return seen;
}

/* Two local runners make 100 batches a second, and each worker as many. */
static void begin(unsigned n_workers, uint64_t trainer_ns)
{
    memset(&sim, 0, sizeof(sim));
    sim.now = 10 * SECOND;
    sim.local_ns = 20 * MS;
    sim.trainer_ns = trainer_ns;
    sim.capacity = 4;
    sim.n_local = 2;
    sim.n_remote = 8;
    sim.n_workers = n_workers;
    sim.bytes = 1000;
    for (unsigned i = 0; i < n_workers; i++) {
        sim.workers[i] = (struct worker){
            .n_cpus = 2, .max_queued = 8, .make_ns = 20 * MS, .network_ns = 2 * MS};
        sim.loads[i].is_listed = true;
    }
}

static void check_about(double got, double least, double most)
{
    if (got < least || got > most)
        FAIL("%.2f is not from %.2f to %.2f", got, least, most);
}

/* Each second is like the others. */
static void check_steady(double least, double most)
{
    for (int i = 0; i < 10; i++)
        check_about(run_for(1).taken, least, most);
}

static void a_worker_makes_what_local_runners_lack(void)
{
    begin(1, MS);
    run_for(1);
    check_steady(190, 202);
    sim.jitter = 0.5;
    check_steady(150, 205);
}

static void nothing_is_asked_where_the_trainer_is_slower_than_local_runners(void)
{
    begin(1, 12 * MS);
    run_for(1);
    check_about(run_for(10).asked, 0, 0);
    sim.jitter = 0.5;
    check_about(run_for(10).asked, 0, 6);
    begin(1, MS);
    run_for(5);
    sim.trainer_ns = 12 * MS;
    run_for(0.5);
    check_about(run_for(5).asked, 0, 0);
    sim.trainer_ns = MS;
    run_for(0.5);
    check_steady(190, 202);
}

static void a_trainer_gets_what_it_takes_and_workers_make_the_difference_alone(void)
{
    begin(1, 20 * MS / 3); /* 150 a second */
    run_for(2);
    struct seen seen = run_for(10);
    check_about(seen.taken, 145, 151);
    check_about(seen.made[0], 45, 60);
}

static void a_worker_that_is_lost_costs_its_share_and_comes_back(void)
{
    begin(2, MS);
    run_for(2);
    check_steady(280, 302);
    sim.workers[0].is_lost = true;
    run_for(3);
    check_about(run_for(20).taken, 150, 202);
    sim.workers[0].is_lost = false;
    run_for(31);
    check_steady(280, 302);
}

/* The slow one is left alone where all runners would wait for its answers. */
static void two_workers_of_different_speed_do_not_slow_each_other(void)
{
    begin(2, MS);
    sim.workers[1].make_ns = 80 * MS; /* 25 a second */
    run_for(2);
    struct seen seen = run_for(20);
    check_about(seen.taken, 190, 227);
    check_about(seen.made[0], 90, 101);
    CHECK(seen.made[1] > 0);
    begin(2, MS);
    sim.workers[1].make_ns = 40 * MS; /* 50 a second */
    run_for(2);
    seen = run_for(20);
    check_about(seen.taken, 195, 252);
    check_about(seen.made[0], 90, 101);
}

static void a_worker_that_is_too_far_away_does_not_stop_local_runners(void)
{
    begin(1, MS);
    sim.workers[0].network_ns = 3 * SECOND;
    run_for(10);
    struct seen seen = run_for(40);
    check_about(seen.taken, 85, 101);
    check_about(seen.asked, 0.02, 0.5);
}

static void a_worker_that_refuses_gets_as_many_as_it_takes(void)
{
    begin(1, MS);
    sim.workers[0].max_queued = 3;
    run_for(2);
    check_steady(190, 202);
    CHECK_INT(sim.loads[0].n_failed, 0);
}

static void max_bytes_per_s_is_kept(void)
{
    begin(1, MS);
    sim.rate = 30 * sim.bytes;
    run_for(2);
    check_about(run_for(20).made[0], 25, 31);
}

static const struct stg_test tests[] = {
    TEST(the_less_is_ready_the_more_is_asked_for),
    TEST(local_runners_come_first),
    TEST(answers_come_before_all_runners_wait),
    TEST(a_worker_that_takes_too_long_is_tried_now_and_then),
    TEST(the_latency_of_a_request_that_waits_for_a_cpu_is_more_than_an_items),
    TEST(the_worker_that_answers_first_is_asked),
    TEST(the_worker_with_the_fewest_requests_is_asked_and_the_own_zone_first),
    TEST(a_worker_gets_two_requests_more_than_it_has_cpus),
    TEST(a_worker_that_refuses_gets_fewer_and_one_more_after_1024),
    TEST(a_worker_that_refuses_its_only_request_is_away),
    TEST(a_worker_that_fails_rests_ever_longer_up_to_thirty_seconds),
    TEST(a_worker_that_sends_garbage_is_not_asked_again),
    TEST(bytes_a_second_are_paid_for_in_time),
    TEST(patience_follows_the_latencies),
    TEST(a_worker_makes_what_local_runners_lack),
    TEST(nothing_is_asked_where_the_trainer_is_slower_than_local_runners),
    TEST(a_trainer_gets_what_it_takes_and_workers_make_the_difference_alone),
    TEST(a_worker_that_is_lost_costs_its_share_and_comes_back),
    TEST(two_workers_of_different_speed_do_not_slow_each_other),
    TEST(a_worker_that_is_too_far_away_does_not_stop_local_runners),
    TEST(a_worker_that_refuses_gets_as_many_as_it_takes),
    TEST(max_bytes_per_s_is_kept),
};
TEST_MAIN(tests)
