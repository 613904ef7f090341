/* SPDX-License-Identifier: Apache-2.0
 *
 * The controller against a simulated stage. Batches come at the pace of the partition in
 * force, with noise, and some batches of the previous partition are always in flight.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/placement/smartstage.h"
#include "tests/check.h"
#include "tests/core/random.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define BUFFER 6u /* batches made but not taken */

struct stage {
    struct stg_smart smart;
    struct stg_decisions decisions;
    struct stg_smart_view view;
    struct random random;
    double pace[STG_SMART_MAX_PARTITIONS]; /* batches per second, by the id of the
                                              partition */
    /* relative noise of the pace, from one second to the next */
    double noise;
    double predicted[STG_SMART_MAX_PARTITIONS];
    uint32_t n_plan;     /* partitions that a plan offers */
    double drift;        /* factor of the pace at this moment */
    uint64_t drift_ns;   /* end of that moment */
    double made;         /* batches, with fractions */
    uint64_t not_own_ns; /* time in trials with a partition other than the kept one */
    uint64_t began_ns;
    unsigned n_plans, n_switches;
    uint32_t last_chosen;
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

static void stage_init(struct stage *s, uint64_t seed, const double *pace,
                       uint32_t n_partitions, double noise)
{
    *s = (struct stage){.random = {seed}, .n_plan = n_partitions - 1, .noise = noise};
    for (uint32_t i = 0; i < n_partitions; i++) {
        s->pace[i] = pace[i];
        s->predicted[i] = 1.1;
    }
    s->view = (struct stg_smart_view){.now_ns = SECOND,
                                      .n_changes = 1,
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

static uint32_t id_required(const struct stage *s)
{
    return s->smart.partitions[s->smart.chosen].id;
}

static void plan(struct stage *s)
{
    struct stg_smart_partition partitions[STG_SMART_MAX_PARTITIONS - 1];
    uint32_t chosen = id_required(s);
    for (uint32_t i = 0; i < s->n_plan; i++) {
        partitions[i] = (struct stg_smart_partition){.id = i + 1,
                                                     .predicted = s->predicted[i + 1],
                                                     .is_in_force = i + 1 == chosen};
        snprintf(partitions[i].label, sizeof(partitions[i].label), "partition %u", i + 1);
    }
    stg_smart_plan(&s->smart, s->view.now_ns, partitions, s->n_plan,
                   "nothing would be faster");
    s->n_plans++;
}

/* Batches made before a change of partition are consumed at the new pace: only the effect
 * of the partition matters here. */
static void pass_time(struct stage *s, uint64_t ns)
{
    if (s->view.now_ns >= s->drift_ns) {
        s->drift = 1 + s->noise * normal(s);
        s->drift_ns = s->view.now_ns + 80 * MS;
    }
    double pace = s->pace[id_in_force(s)] * (s->drift > 0.1 ? s->drift : 0.1);
    s->made += pace * (double)ns / 1e9;
    s->view.now_ns += ns;
    s->view.n_made = (uint64_t)s->made + BUFFER;
    s->view.n_taken = (uint64_t)s->made;
    if (id_in_force(s) != id_required(s))
        s->not_own_ns += ns;
}

static void run(struct stage *s, uint64_t ns)
{
    uint64_t end = s->view.now_ns + ns;
    while (s->view.now_ns < end) {
        int millis = stg_smart_tick(&s->smart, &s->view);
        CHECK(millis > 0 && millis <= 1000);
        if (s->smart.state == STG_SMART_PLAN) {
            plan(s);
            continue;
        }
        if (id_required(s) != s->last_chosen)
            s->n_switches++;
        s->last_chosen = id_required(s);
        pass_time(s, (uint64_t)millis * MS);
    }
}

static void a_partition_that_is_faster_is_kept(void)
{
    static const double pace[] = {1000, 1200};
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, 2, 0.05);
        run(&s, 30 * SECOND);
        CHECK_INT(s.smart.state, STG_SMART_HOLD);
        CHECK_INT(id_required(&s), 1);
        CHECK_INT(id_in_force(&s), 1);
        CHECK_INT(s.n_plans, 1);
    }
}

static void a_partition_that_is_slower_is_never_kept(void)
{
    static const double pace[] = {1000, 960, 900};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, 3, 0.05);
        run(&s, 60 * SECOND);
        CHECK_INT(s.smart.state, STG_SMART_HOLD);
        CHECK_INT(id_required(&s), 0);
    }
}

/* The other candidates are judged first, but not for ever. */
static void partitions_are_tried_when_no_number_of_auto_is(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 1, pace, 2, 0.05);
    s.view.is_tuning = true;
    run(&s, 3 * SECOND);
    CHECK_INT(s.n_plans, 1);
    CHECK(stg_smart_in_trial(&s.smart)); /* so that no other number is tried */
    CHECK_INT(id_in_force(&s), 0);
    CHECK_INT(s.not_own_ns, 0);
    s.view.is_tuning = false;
    run(&s, SECOND);
    CHECK(s.not_own_ns > 0);
    run(&s, 30 * SECOND);
    CHECK_INT(id_required(&s), 1);
    CHECK(!stg_smart_in_trial(&s.smart));

    stage_init(&s, 1, pace, 2, 0.05);
    s.view.is_tuning = true;
    run(&s, 10 * SECOND);
    CHECK(s.not_own_ns > 0);
}

/* A change would do no harm, and no good either. */
static void a_partition_that_is_as_fast_is_hardly_ever_kept(void)
{
    static const double pace[] = {1000, 1000};
    unsigned n = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, 2, 0.10);
        run(&s, 60 * SECOND);
        CHECK_INT(s.smart.state, STG_SMART_HOLD);
        n += id_required(&s) != 0;
    }
    CHECK(n <= 8);
}

static void the_fastest_of_several_is_kept(void)
{
    static const double pace[] = {1000, 1080, 1300, 700};
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct stage s;
        stage_init(&s, seed, pace, 4, 0.03);
        s.predicted[1] = s.predicted[2] = s.predicted[3] = 1.3;
        run(&s, 60 * SECOND);
        CHECK_INT(id_required(&s), 2);
    }
}

static void slow_batches_take_longer_windows(void)
{
    static const double pace[] = {4, 6};
    struct stage s;
    stage_init(&s, 1, pace, 2, 0.02);
    run(&s, 300 * SECOND);
    CHECK_INT(s.smart.state, STG_SMART_HOLD);
    CHECK_INT(id_required(&s), 1);
}

static void without_a_plan_nothing_is_tried(void)
{
    static const double pace[] = {1000};
    struct stage s;
    stage_init(&s, 1, pace, 1, 0.05);
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
    stage_init(&s, 1, pace, 2, 0.05);
    s.view.is_measured = false;
    run(&s, 60 * SECOND);
    CHECK_INT(s.n_plans, 0);
    CHECK_INT(id_in_force(&s), 0);
    CHECK_INT(stg_decisions_n(&s.decisions), 1);
    CHECK_CONTAINS(stg_decisions_at(&s.decisions, 0)->text,
                   "that needs trainers which call stager_run");
    s.view.is_measured = true;
    run(&s, 30 * SECOND);
    CHECK_INT(id_required(&s), 1);
}

/* ---- another load ---- */

static void a_partition_that_became_slower_is_given_up(void)
{
    static const double pace[] = {1000, 1300};
    struct stage s;
    stage_init(&s, 5, pace, 2, 0.03);
    run(&s, 30 * SECOND);
    CHECK_INT(id_required(&s), 1);
    s.pace[1] = 500; /* other programs took the daemon's cores */
    s.view.free_cores = 0;
    run(&s, 600 * SECOND);
    CHECK_INT(id_required(&s), 0);
    CHECK_INT(id_in_force(&s), 0);
    CHECK_INT(s.n_switches, 2);
}

static void a_partition_that_is_kept_is_not_given_up_for_noise(void)
{
    static const double pace[] = {1000, 1100};
    struct stage s;
    stage_init(&s, 9, pace, 2, 0.03);
    run(&s, 30 * SECOND);
    CHECK_INT(id_required(&s), 1);
    for (int i = 0; i < 20; i++) { /* another load, and the partition is equally good */
        double factor = i % 2 == 0 ? 2 : 0.5;
        s.pace[0] *= factor;
        s.pace[1] *= factor;
        run(&s, 300 * SECOND);
        CHECK_INT(id_required(&s), 1);
    }
    CHECK_INT(s.n_switches, 1);
}

/* The best partition changes every 20 s, for three hours. */
static void it_does_not_run_after_a_load_that_flaps(void)
{
    static const double pace[] = {1000, 1500};
    struct stage s;
    stage_init(&s, 3, pace, 2, 0.03);
    for (int i = 0; i < 540; i++) {
        s.pace[1] = i % 2 == 0 ? 1500 : 600;
        run(&s, 20 * SECOND);
    }
    CHECK(s.n_switches <= 60);
    CHECK(s.not_own_ns < 540 * SECOND); /* a twentieth */
}

static void trials_take_a_twentieth_of_the_time_at_most(void)
{
    static const double pace[] = {1000, 1000, 990, 1010};
    struct stage s;
    stage_init(&s, 11, pace, 4, 0.10);
    for (int i = 0; i < 400; i++) { /* always another load */
        double factor = i % 2 == 0 ? 2 : 0.5;
        for (int k = 0; k < 4; k++)
            s.pace[k] *= factor;
        run(&s, 10 * SECOND);
    }
    CHECK(s.not_own_ns * 20 < s.view.now_ns - s.began_ns);
    CHECK(s.n_plans >= 2);
}

static void a_change_of_membership_restarts_the_window(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 2, pace, 2, 0.02);
    for (int i = 0; i < 40; i++) { /* windows are longer than that */
        run(&s, 100 * MS);
        s.view.n_changes++;
    }
    CHECK(s.smart.n_pairs == 0);
    run(&s, 60 * SECOND);
    CHECK_INT(id_required(&s), 1);
}

/* As fast as those before them, though they may fetch something else. */
static void other_trainers_are_a_reason_to_look_again(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 2, pace, 1, 0.02);
    run(&s, 60 * SECOND);
    CHECK_INT(s.n_plans, 1);
    s.pace[1] = pace[1];
    s.predicted[1] = 1.2;
    s.n_plan = 1;
    s.view.n_changes++;
    run(&s, 30 * SECOND);
    CHECK_INT(s.n_plans, 2);
    CHECK_INT(id_required(&s), 1);
    CHECK_CONTAINS(stg_decisions_at(&s.decisions, 1)->text, "trainers came or went");
    run(&s, 300 * SECOND);
    CHECK_INT(s.n_plans, 2);
}

static void a_pause_is_no_window(void)
{
    static const double pace[] = {1000, 1200};
    struct stage s;
    stage_init(&s, 2, pace, 2, 0.02);
    run(&s, 1500 * MS);
    s.view.is_running = false;
    for (int i = 0; i < 100; i++) {
        CHECK(stg_smart_tick(&s.smart, &s.view) >= 250);
        s.view.now_ns += SECOND;
    }
    s.view.is_running = true;
    run(&s, 30 * SECOND);
    CHECK_INT(id_required(&s), 1);
}

static const struct stg_test tests[] = {
    TEST(a_partition_that_is_faster_is_kept),
    TEST(a_partition_that_is_slower_is_never_kept),
    TEST(partitions_are_tried_when_no_number_of_auto_is),
    TEST(a_partition_that_is_as_fast_is_hardly_ever_kept),
    TEST(the_fastest_of_several_is_kept),
    TEST(slow_batches_take_longer_windows),
    TEST(without_a_plan_nothing_is_tried),
    TEST(nothing_happens_before_enough_is_measured),
    TEST(a_partition_that_became_slower_is_given_up),
    TEST(a_partition_that_is_kept_is_not_given_up_for_noise),
    TEST(it_does_not_run_after_a_load_that_flaps),
    TEST(trials_take_a_twentieth_of_the_time_at_most),
    TEST(a_change_of_membership_restarts_the_window),
    TEST(other_trainers_are_a_reason_to_look_again),
    TEST(a_pause_is_no_window),
};
TEST_MAIN(tests)
