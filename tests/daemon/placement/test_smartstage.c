/* SPDX-License-Identifier: Apache-2.0
 *
 * The controller against a simulated stage: batches are pulled, wait in a buffer, and are
 * taken one after the other. A batch takes the time of the partition that made it, with
 * noise of several kinds. What a run loses is known to the simulation, and unknown to the
 * controller.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/placement/smartstage.h"
#include "tests/check.h"
#include "tests/core/random.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define BUFFER 6u /* batches pulled but not taken */

struct noise {
    double batch;   /* relative, of each batch by itself */
    double drift;   /* relative, of all batches within 80 ms */
    double pause_s; /* mean time between pauses of the trainer, of 250 ms; 0: none */
    double quota;   /* CPUs within each period of 100 ms; 0: no limit */
};

struct item {
    uint32_t id, tag;
};

struct stage {
    struct stg_smart smart;
    struct stg_decisions decisions;
    struct stg_smart_view view;
    struct random random;
    struct noise noise;
    double pace[STG_SMART_MAX_PARTITIONS]; /* batches per second, by the id of the
                                              partition */
    double cpu[STG_SMART_MAX_PARTITIONS];  /* CPU seconds of a batch */
    double predicted[STG_SMART_MAX_PARTITIONS];
    uint32_t n_plan; /* partitions that a plan offers */
    struct item buffer[BUFFER];
    uint64_t n_pulled, n_taken;
    double drift; /* factor of the pace at this moment */
    uint64_t drift_ns, period_ns, tick_ns;
    double period_cpu;
    uint64_t began_ns, not_own_ns;
    double lost_ns; /* beyond what the same batches would have taken with partition 0 */
    unsigned n_plans, n_switches;
    uint32_t last_in_force;
};

static double uniform(struct stage *s)
{
    return (double)(random_next(&s->random) >> 11) / 9007199254740992.0;
}

/* Returns a value of roughly the normal distribution: twelve dice. */
static double normal(struct stage *s)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform(s);
    return sum;
}

static double at_least(double value, double least)
{
    return value > least ? value : least;
}

static void stage_init(struct stage *s, uint64_t seed, const double *pace,
                       uint32_t n_partitions, struct noise noise)
{
    *s = (struct stage){.random = {seed}, .n_plan = n_partitions - 1, .noise = noise};
    for (uint32_t i = 0; i < n_partitions; i++) {
        s->pace[i] = pace[i];
        s->predicted[i] = at_least(pace[i] / pace[0], 1.1);
    }
    s->view = (struct stg_smart_view){.now_ns = SECOND,
                                      .n_changes = 1,
                                      .n_ahead = BUFFER,
                                      .is_running = true,
                                      .is_measured = true,
                                      .free_cores = 1};
    s->began_ns = s->view.now_ns;
    stg_smart_init(&s->smart, &s->decisions);
}

static uint32_t id_in_force(const struct stage *s)
{
    return s->smart.partitions[s->smart.in_force].id;
}

static void plan(struct stage *s)
{
    struct stg_smart_partition partitions[STG_SMART_MAX_PARTITIONS - 1];
    uint32_t in_force = id_in_force(s);
    for (uint32_t i = 0; i < s->n_plan; i++) {
        partitions[i] = (struct stg_smart_partition){.id = i + 1,
                                                     .predicted = s->predicted[i + 1],
                                                     .is_in_force = i + 1 == in_force};
        snprintf(partitions[i].label, sizeof(partitions[i].label), "partition %u", i + 1);
    }
    stg_smart_plan(&s->smart, s->view.now_ns, partitions, s->n_plan,
                   "nothing would be faster");
    s->n_plans++;
}

static void tick(struct stage *s)
{
    if (s->view.now_ns < s->tick_ns)
        return;
    s->view.n_taken = s->n_taken;
    int millis = stg_smart_tick(&s->smart, &s->view);
    CHECK(millis > 0 && millis <= 1000);
    s->tick_ns = s->view.now_ns + (uint64_t)millis * MS;
    if (s->smart.state == STG_SMART_PLAN)
        plan(s);
    if (s->smart.in_force != s->last_in_force)
        s->n_switches++;
    s->last_in_force = s->smart.in_force;
}

static void pull(struct stage *s)
{
    struct item *item = &s->buffer[s->n_pulled++ % BUFFER];
    bool is_challengers = stg_smart_pull(&s->smart, s->view.now_ns, &item->tag);
    item->id = is_challengers ? s->smart.partitions[s->smart.trying].id : id_in_force(s);
}

/* Throttled until the next period once the quota of this one is used. */
static uint64_t stall(struct stage *s, double cpu)
{
    uint64_t now = s->view.now_ns;
    if (s->noise.quota <= 0)
        return 0;
    if (now - s->period_ns >= 100 * MS) {
        s->period_ns = now - now % (100 * MS);
        s->period_cpu = 0;
    }
    s->period_cpu += cpu;
    if (s->period_cpu <= s->noise.quota * 0.1)
        return 0;
    s->period_cpu = 0;
    s->period_ns += 100 * MS;
    return s->period_ns - now;
}

static void take(struct stage *s)
{
    const struct item item = s->buffer[s->n_taken % BUFFER];
    if (s->view.now_ns >= s->drift_ns) {
        s->drift = at_least(1 + s->noise.drift * normal(s), 0.1);
        s->drift_ns = s->view.now_ns + 80 * MS;
    }
    double factor = at_least(1 + s->noise.batch * normal(s), 0.05) * s->drift;
    double ns = factor * 1e9 / s->pace[item.id];
    s->lost_ns += ns - factor * 1e9 / s->pace[0];
    s->not_own_ns += item.id != 0 ? (uint64_t)ns : 0;
    if (s->noise.pause_s > 0 && uniform(s) < ns / 1e9 / s->noise.pause_s)
        ns += 250e6;
    s->view.now_ns += (uint64_t)ns;
    s->view.now_ns += stall(s, s->cpu[item.id]);
    s->n_taken++;
    stg_smart_taken(&s->smart, item.tag, s->n_taken, s->view.now_ns);
}

static void run(struct stage *s, uint64_t ns)
{
    uint64_t end = s->view.now_ns + ns;
    while (s->view.now_ns < end) {
        tick(s);
        while (s->n_pulled < s->n_taken + BUFFER)
            pull(s);
        take(s);
    }
}

static const struct noise quiet = {.batch = 0.05, .drift = 0.05};
static const struct noise busy = {.batch = 0.5, .drift = 0.3};
static const struct noise pausing = {.batch = 0.1, .drift = 0.05, .pause_s = 3};

/* ---- decisions ---- */

static unsigned count_taken(const double *pace, uint32_t n, struct noise noise,
                            unsigned n_seeds, uint64_t ns, uint32_t id)
{
    unsigned n_found = 0;
    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, n, noise);
        run(&s, ns);
        n_found += id_in_force(&s) == id;
    }
    return n_found;
}

static void a_partition_that_is_faster_by_a_twentieth_is_taken(void)
{
    static const double pace[] = {1000, 1050};
    CHECK(count_taken(pace, 2, quiet, 100, 20 * SECOND, 1) >= 98);
    CHECK(count_taken(pace, 2, pausing, 50, 60 * SECOND, 1) >= 47);
}

static void noise_as_large_as_half_a_batch_delays_that_and_does_not_prevent_it(void)
{
    static const double pace[] = {1000, 1100};
    CHECK(count_taken(pace, 2, busy, 40, 60 * SECOND, 1) >= 37);
}

/* STG_SMART_ERROR, by a wide margin: the error is that of the least favourable gain. */
static void a_partition_that_is_slower_is_never_taken(void)
{
    static const double pace[] = {1000, 970, 900};
    CHECK_INT(count_taken(pace, 3, quiet, 200, 30 * SECOND, 0), 200);
    CHECK_INT(count_taken(pace, 3, busy, 100, 30 * SECOND, 0), 100);
    CHECK_INT(count_taken(pace, 3, pausing, 100, 30 * SECOND, 0), 100);
}

/* The gain is just what is not worth it: 400 runs, and a false switch in 2 at most is
 * expected. More than 8 come once in a thousand times. */
static void false_switches_stay_within_the_stated_error(void)
{
    static const double pace[] = {1000, 1000 * (1 + STG_SMART_LEAST)};
    unsigned n = 800 - count_taken(pace, 2, quiet, 400, 20 * SECOND, 0) -
                 count_taken(pace, 2, busy, 400, 20 * SECOND, 0);
    CHECK(n <= 11);
}

static void the_fastest_of_several_is_taken(void)
{
    static const double pace[] = {1000, 1080, 1300, 700};
    CHECK(count_taken(pace, 4, quiet, 50, 30 * SECOND, 2) >= 49);
}

/* Batches of the second one come faster until the quota is used up, and take more of it.
 */
static void under_a_quota_cpu_time_decides(void)
{
    static const double pace[] = {1000, 1250};
    struct noise noise = quiet;
    noise.quota = 0.6;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, 2, noise);
        s.cpu[0] = 0.0010;
        s.cpu[1] = 0.0012;
        run(&s, 60 * SECOND);
        CHECK_INT(id_in_force(&s), 0);
        stage_init(&s, seed, pace, 2, noise);
        s.cpu[0] = 0.0010;
        s.cpu[1] = 0.0008;
        run(&s, 60 * SECOND);
        CHECK_INT(id_in_force(&s), 1);
    }
}

/* ---- what it costs ---- */

static void check_lost(const double *pace, uint32_t n, struct noise noise)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, n, noise);
        run(&s, 5 * SECOND);
        CHECK(s.lost_ns < 0.05 * 5e9);
        run(&s, 55 * SECOND);
        CHECK(s.lost_ns < 0.01 * 60e9);
        run(&s, 540 * SECOND);
        CHECK(s.lost_ns < 0.01 * 600e9);
    }
}

static void no_run_loses_more_than_the_budget(void)
{
    static const double little[] = {1000, 950, 970, 980}, half[] = {1000, 500, 600, 400},
                        tenth[] = {1000, 100, 100, 100}, fast[] = {20000, 18000, 3000},
                        slow[] = {100, 90, 60, 50};
    check_lost(little, 4, quiet);
    check_lost(half, 4, quiet);
    check_lost(tenth, 4, quiet);
    check_lost(slow, 4, quiet);
    check_lost(little, 4, busy);
    check_lost(half, 4, busy);
    struct stage s;
    stage_init(&s, 1, fast, 3, quiet);
    run(&s, 5 * SECOND);
    CHECK(s.lost_ns < 0.02 * 5e9);
}

static void a_gain_is_found_within_seconds(void)
{
    static const double pace[] = {1000, 1300};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, 2, quiet);
        run(&s, 3 * SECOND);
        CHECK_INT(id_in_force(&s), 1);
    }
}

static void slow_batches_take_longer_blocks(void)
{
    static const double pace[] = {4, 6};
    struct stage s;
    stage_init(&s, 1, pace, 2, quiet);
    run(&s, 600 * SECOND);
    CHECK_INT(s.smart.state, STG_SMART_HOLD);
    CHECK_INT(id_in_force(&s), 1);
}

/* ---- before trials ---- */

/* The other candidates are judged first, but not for ever. */
static void partitions_are_tried_when_no_number_of_auto_is(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 1, pace, 2, quiet);
    s.view.is_tuning = true;
    run(&s, 3 * SECOND);
    CHECK_INT(s.n_plans, 1);
    CHECK(stg_smart_in_trial(&s.smart)); /* so that no other number is tried */
    CHECK_INT(id_in_force(&s), 0);
    CHECK_INT(s.not_own_ns, 0);
    s.view.is_tuning = false;
    run(&s, SECOND);
    CHECK(s.not_own_ns > 0);
    run(&s, 10 * SECOND);
    CHECK_INT(id_in_force(&s), 1);
    CHECK(!stg_smart_in_trial(&s.smart));

    stage_init(&s, 1, pace, 2, quiet);
    s.view.is_tuning = true;
    run(&s, 10 * SECOND);
    CHECK(s.not_own_ns > 0);
}

static void without_a_plan_nothing_is_tried(void)
{
    static const double pace[] = {1000};
    struct stage s;
    stage_init(&s, 1, pace, 1, quiet);
    run(&s, 600 * SECOND);
    CHECK_INT(id_in_force(&s), 0);
    CHECK_INT(s.n_plans, 1);
    CHECK_INT(stg_decisions_n(&s.decisions), 1);
    CHECK_CONTAINS(stg_decisions_at(&s.decisions, 0)->text, "nothing would be faster");
}

static void nothing_happens_before_enough_is_measured(void)
{
    static const double pace[] = {1000, 2000};
    struct stage s;
    stage_init(&s, 1, pace, 2, quiet);
    s.view.is_measured = false;
    run(&s, 60 * SECOND);
    CHECK_INT(s.n_plans, 0);
    CHECK_INT(id_in_force(&s), 0);
    CHECK_INT(stg_decisions_n(&s.decisions), 1);
    CHECK_CONTAINS(stg_decisions_at(&s.decisions, 0)->text,
                   "that needs trainers which call stager_run");
    s.view.is_measured = true;
    run(&s, 10 * SECOND);
    CHECK_INT(id_in_force(&s), 1);
}

/* ---- what an earlier run took ---- */

static void begin_with(struct stage *s, uint64_t seed, const double *pace)
{
    stage_init(s, seed, pace, 2, quiet);
    stg_smart_begin_with(&s->smart, "moving what an earlier run moved", 0.2);
    s->smart.partitions[1].id = 1;
}

static void a_prior_is_in_force_from_the_first_batch_on(void)
{
    static const double pace[] = {1000, 1200};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct stage s;
        begin_with(&s, seed, pace);
        run(&s, 500 * MS);
        CHECK_INT(id_in_force(&s), 1);
        run(&s, 20 * SECOND);
        CHECK_INT(s.smart.state, STG_SMART_HOLD);
        CHECK_INT(id_in_force(&s), 1);
        CHECK(fabs(s.smart.gain - 0.2) < 0.05);
        CHECK(s.lost_ns < 0);
    }
}

static void a_prior_that_is_slower_now_is_given_up(void)
{
    static const double pace[] = {1000, 900};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct stage s;
        begin_with(&s, seed, pace);
        run(&s, 5 * SECOND);
        CHECK_INT(id_in_force(&s), 0);
        CHECK(s.lost_ns < 0.05 * 5e9);
        CHECK(s.smart.gain == 0);
    }
}

/* ---- another load ---- */

static void a_partition_that_became_slower_is_given_up(void)
{
    static const double pace[] = {1000, 1300};
    struct stage s;
    stage_init(&s, 5, pace, 2, quiet);
    run(&s, 30 * SECOND);
    CHECK_INT(id_in_force(&s), 1);
    s.pace[1] = 500; /* other programs took the daemon's cores */
    s.view.free_cores = 0;
    run(&s, 60 * SECOND);
    CHECK_INT(id_in_force(&s), 0);
    CHECK_INT(s.n_switches, 2);
}

static void a_partition_that_is_taken_is_not_given_up_for_noise(void)
{
    static const double pace[] = {1000, 1100};
    struct stage s;
    stage_init(&s, 9, pace, 2, quiet);
    run(&s, 30 * SECOND);
    CHECK_INT(id_in_force(&s), 1);
    for (int i = 0; i < 20; i++) { /* another load, and the partition is equally good */
        double factor = i % 2 == 0 ? 2 : 0.5;
        s.pace[0] *= factor;
        s.pace[1] *= factor;
        run(&s, 100 * SECOND);
        CHECK_INT(id_in_force(&s), 1);
    }
    CHECK_INT(s.n_switches, 1);
}

static void trials_that_change_nothing_become_rare(void)
{
    static const double pace[] = {1000, 1000, 990, 1010};
    struct stage s;
    stage_init(&s, 11, pace, 4, quiet);
    for (int i = 0; i < 400; i++) { /* always another load */
        double factor = i % 2 == 0 ? 2 : 0.5;
        for (int k = 0; k < 4; k++)
            s.pace[k] *= factor;
        run(&s, 5 * SECOND);
    }
    CHECK(s.not_own_ns * 20 < s.view.now_ns - s.began_ns);
    CHECK(s.n_plans >= 2 && s.n_plans <= 10);
}

static void a_change_of_membership_begins_trials_anew(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 2, pace, 2, quiet);
    for (int i = 0; i < 40; i++) {
        run(&s, 700 * MS);
        s.view.n_changes++;
    }
    CHECK_INT(id_in_force(&s), 0);
    run(&s, 20 * SECOND);
    CHECK_INT(id_in_force(&s), 1);
}

/* As fast as those before them, though they may fetch something else. */
static void other_trainers_are_a_reason_to_look_again(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 2, pace, 1, quiet);
    run(&s, 60 * SECOND);
    CHECK_INT(s.n_plans, 1);
    s.pace[1] = pace[1];
    s.predicted[1] = 1.2;
    s.n_plan = 1;
    s.view.n_changes++;
    run(&s, 30 * SECOND);
    CHECK_INT(s.n_plans, 2);
    CHECK_INT(id_in_force(&s), 1);
    CHECK_CONTAINS(stg_decisions_at(&s.decisions, 1)->text, "trainers came or went");
    run(&s, 300 * SECOND);
    CHECK_INT(s.n_plans, 2);
}

static void a_pause_is_no_pair(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 2, pace, 2, quiet);
    run(&s, 900 * MS);
    s.view.is_running = false;
    for (int i = 0; i < 100; i++) {
        CHECK(stg_smart_tick(&s.smart, &s.view) >= 250);
        s.view.now_ns += SECOND;
    }
    s.view.is_running = true;
    run(&s, 10 * SECOND);
    CHECK_INT(id_in_force(&s), 1);
}

static const struct stg_test tests[] = {
    TEST(a_partition_that_is_faster_by_a_twentieth_is_taken),
    TEST(noise_as_large_as_half_a_batch_delays_that_and_does_not_prevent_it),
    TEST(a_partition_that_is_slower_is_never_taken),
    TEST(false_switches_stay_within_the_stated_error),
    TEST(the_fastest_of_several_is_taken),
    TEST(under_a_quota_cpu_time_decides),
    TEST(no_run_loses_more_than_the_budget),
    TEST(a_gain_is_found_within_seconds),
    TEST(slow_batches_take_longer_blocks),
    TEST(partitions_are_tried_when_no_number_of_auto_is),
    TEST(without_a_plan_nothing_is_tried),
    TEST(nothing_happens_before_enough_is_measured),
    TEST(a_prior_is_in_force_from_the_first_batch_on),
    TEST(a_prior_that_is_slower_now_is_given_up),
    TEST(a_partition_that_became_slower_is_given_up),
    TEST(a_partition_that_is_taken_is_not_given_up_for_noise),
    TEST(trials_that_change_nothing_become_rare),
    TEST(a_change_of_membership_begins_trials_anew),
    TEST(other_trainers_are_a_reason_to_look_again),
    TEST(a_pause_is_no_pair),
};
TEST_MAIN(tests)
