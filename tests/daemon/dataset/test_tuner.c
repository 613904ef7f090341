/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuner against a stage with known times. The right number of threads follows from
 * the definition: time to make an item divided by the consumer's time, and no more
 * threads than the CPUs can serve.
 */
#include "daemon/dataset/tuner.h"

#include "tests/check.h"
#include "tests/core/random.h"

#define MS 1e6

/* A stage, its consumer, and the machine below. */
struct model {
    double make_ns, serial_ns, want_ns;
    double cpus;      /* number of CPUs */
    double cpu_share; /* of a running thread that gets a CPU at once */
    double noise;     /* the times of each window vary by up to this fraction */
    struct random random;
};

static double off(struct model *model)
{
    double unit = (double)random_below(&model->random, 2000001) / 1e6 - 1;
    return 1 + unit * model->noise;
}

/* Threads beyond the number of CPUs slow one another down. If a thread never sleeps,
 * waiting for a CPU counts as computing. */
static struct stg_tuner_sample measure(struct model *model, uint32_t n_threads)
{
    double make = model->make_ns * off(model), want = model->want_ns * off(model);
    double cpu = make * model->cpu_share;
    double crowd = n_threads * model->cpu_share / model->cpus;
    double busy = crowd > 1 ? make - cpu + cpu * crowd : make;
    double each =
        busy / n_threads > model->serial_ns ? busy / n_threads : model->serial_ns;
    double period = each > want ? each : want;
    double n = 16;
    return (struct stg_tuner_sample){
        .n_items = 16,
        .interval_ns = (uint64_t)(n * period),
        .busy_ns = (uint64_t)(n * busy),
        .serial_ns = (uint64_t)(n * model->serial_ns),
        .cpu_ns = (uint64_t)(n * (model->cpu_share < 1 ? cpu : busy)) + 1,
        .wait_ns = (uint64_t)(n * (period - want)),
        .room_ns = (uint64_t)(n * (period - each) * n_threads),
    };
}

static struct model model_of(double make_ms, double want_ms, double cpus,
                             double cpu_share)
{
    struct model ret = {.make_ns = make_ms * MS,
                        .want_ns = want_ms * MS,
                        .cpus = cpus,
                        .cpu_share = cpu_share};
    ret.random.state = 1;
    return ret;
}

static struct stg_tuner tuner_of(uint32_t start, uint32_t max, double cpus)
{
    struct stg_tuner ret;
    stg_tuner_init(&ret, start,
                   &(struct stg_tuner_limits){.min = 1, .max = max, .cpus = cpus});
    return ret;
}

/* Returns the number of changes. */
static int run(struct stg_tuner *tuner, struct model *model, int n_windows)
{
    int n_changes = 0;
    struct stg_tuner_change change;
    for (int i = 0; i < n_windows; i++) {
        struct stg_tuner_sample sample = measure(model, tuner->value);
        if (!stg_tuner_threads(tuner, &sample, &change))
            continue;
        n_changes++;
        CHECK_INT(change.to, tuner->value);
        CHECK(change.from != change.to);
        CHECK(change.why[0] != '\0');
        CHECK(tuner->value >= tuner->limits.min && tuner->value <= tuner->limits.max);
    }
    return n_changes;
}

static void threads_are_the_time_of_the_stage_over_that_of_the_consumer(void)
{
    static const struct {
        double make_ms, want_ms, cpus, cpu_share;
        uint32_t want;
    } cases[] = {
        {40, 10, 8, 1, 4},    {40, 10, 8, 0, 4},   {10, 10, 8, 1, 1},   {10, 40, 8, 1, 1},
        {100, 10, 64, 1, 10}, {35, 10, 8, 0.5, 4}, {0.4, 0.1, 4, 1, 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model model = model_of(cases[i].make_ms, cases[i].want_ms, cases[i].cpus,
                                      cases[i].cpu_share);
        struct stg_tuner tuner = tuner_of(1, 16, cases[i].cpus);
        run(&tuner, &model, 60);
        CHECK_INT(tuner.value, cases[i].want);
    }
}

/* On average one thread is just enough, but producer and consumer wait for each other in
 * turn. */
static void an_uneven_stage_gets_one_thread_more_than_the_mean_requires(void)
{
    struct stg_tuner tuner = tuner_of(1, 16, 8);
    struct stg_tuner_change change;
    for (int i = 0; i < 60; i++) {
        uint64_t each = tuner.value == 1 ? 12000000 : 10100000;
        struct stg_tuner_sample sample = {.n_items = 16,
                                          .interval_ns = 16 * each,
                                          .busy_ns = 160000000,
                                          .cpu_ns = 1,
                                          .wait_ns = 16 * (each - 10000000),
                                          .room_ns = 16 * (each - 10000000)};
        stg_tuner_threads(&tuner, &sample, &change);
    }
    CHECK_INT(tuner.value, 2);
}

static void the_cpus_bound_threads_that_compute_and_not_those_that_sleep(void)
{
    struct model model = model_of(40, 10, 2, 1);
    struct stg_tuner tuner = tuner_of(1, 16, 2);
    run(&tuner, &model, 100);
    CHECK_INT(tuner.value, 2);

    model = model_of(40, 5, 2, 0.01);
    tuner = tuner_of(1, 16, 2);
    run(&tuner, &model, 100);
    CHECK_INT(tuner.value, 8);
}

static void a_consumer_that_does_nothing_gets_what_the_limit_allows(void)
{
    struct model model = model_of(10, 0.001, 2, 0);
    struct stg_tuner tuner = tuner_of(1, 12, 2);
    run(&tuner, &model, 100);
    CHECK_INT(tuner.value, 12);
}

static void what_only_one_thread_can_do_is_not_sped_up_by_more(void)
{
    struct model model = model_of(10, 1, 16, 1);
    model.serial_ns = 5 * MS;
    struct stg_tuner tuner = tuner_of(1, 16, 16);
    run(&tuner, &model, 100);
    CHECK_INT(tuner.value, 2);
}

static void threads_are_given_up_when_the_consumer_slows_down_and_come_back(void)
{
    struct model model = model_of(40, 10, 8, 1);
    struct stg_tuner tuner = tuner_of(1, 16, 8);
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 4);
    model.want_ns = 100 * MS;
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 1);
    model.want_ns = 10 * MS;
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 4);
}

/* The CPUs are busy with other work: threads wait for them, and more threads bring
 * nothing. */
static void what_did_not_help_is_taken_back_and_seldom_tried_again(void)
{
    struct stg_tuner tuner = tuner_of(2, 16, 16);
    struct stg_tuner_change change;
    int n_up = 0, n_back = 0;
    for (int i = 0; i < 400; i++) {
        struct stg_tuner_sample sample = {.n_items = 16,
                                          .interval_ns = 160000000,
                                          .busy_ns = 160000000ull * tuner.value,
                                          .cpu_ns = 160000000ull * tuner.value,
                                          .wait_ns = 140000000};
        if (!stg_tuner_threads(&tuner, &sample, &change))
            continue;
        n_up += change.to > change.from;
        n_back += change.to < change.from;
        if (change.to < change.from)
            CHECK_CONTAINS(change.why,
                           "taken back: 100 items a second with 4, 100 with 2");
    }
    CHECK_INT(tuner.value, 2);
    CHECK_INT(n_up, n_back);
    CHECK(n_up >= 2 && n_up <= 5);
}

static void noise_of_a_tenth_makes_no_flapping(void)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct model model = model_of(34, 10, 8, 1);
        model.noise = 0.1;
        model.random.state = seed;
        struct stg_tuner tuner = tuner_of(1, 16, 8);
        run(&tuner, &model, 60);
        CHECK(tuner.value == 4);
        CHECK(run(&tuner, &model, 1000) <= 6);
        CHECK(tuner.value == 4);
    }
}

/* A loaded machine: one window of three takes three times as long. The tuner nearly
 * always finds the number within sixty windows. */
static void a_clear_gain_is_found_among_others_that_work(void)
{
    int n_found = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct model model = model_of(40, 10, 8, 1);
        model.noise = 0.2;
        model.random.state = seed;
        struct stg_tuner tuner = tuner_of(1, 16, 8);
        struct stg_tuner_change change;
        bool found = false;
        for (int i = 0; i < 60 && !found; i++) {
            struct stg_tuner_sample sample = measure(&model, tuner.value);
            uint64_t slow = random_below(&model.random, 3) == 0 ? 3 : 1;
            sample.interval_ns *= slow;
            sample.busy_ns *= slow;
            sample.wait_ns *= slow;
            stg_tuner_threads(&tuner, &sample, &change);
            found = tuner.value >= 4 && !stg_tuner_in_trial(&tuner);
        }
        n_found += found;
    }
    CHECK(n_found >= 40);
}

/* Sixteen threads on two CPUs: most of its apparent work is waiting for a CPU. */
static void threads_that_are_in_one_anothers_way_are_given_up(void)
{
    struct model model = model_of(1, 0.5, 2, 1);
    struct stg_tuner tuner = tuner_of(16, 16, 2);
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 2);

    model.cpu_share = 0.01; /* the data read have left memory */
    model.make_ns = 4 * MS;
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 8);
    model.cpu_share = 1;
    model.make_ns = 1 * MS;
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 2);
}

/* Without threads the pulling thread makes each item itself. With any number of them the
 * whole takes a fraction of the time. */
static void run_pulled(struct stg_tuner *tuner, double part, double cpu_share,
                       int n_windows)
{
    struct stg_tuner_change change;
    for (int i = 0; i < n_windows; i++) {
        double want = 2 * MS, make = 10 * MS;
        double each = tuner->value == 0 ? make + want : (make + want) * part;
        struct stg_tuner_sample sample = {
            .n_items = 16,
            .interval_ns = (uint64_t)(16 * each),
            .busy_ns = (uint64_t)(16 * make),
            .cpu_ns = (uint64_t)(16 * make * cpu_share),
            .wait_ns = (uint64_t)(16 * (each - want)),
        };
        stg_tuner_threads(tuner, &sample, &change);
    }
}

static struct stg_tuner pulled_tuner(uint32_t start, double cpus)
{
    struct stg_tuner ret;
    stg_tuner_init(&ret, start, &(struct stg_tuner_limits){0, 8, .cpus = cpus});
    return ret;
}

static void a_pulling_thread_that_computes_needs_a_cpu_too(void)
{
    struct stg_tuner tuner = pulled_tuner(8, 2);
    run_pulled(&tuner, 0.5, 1, 60);
    CHECK_INT(tuner.value, 1);
    tuner = pulled_tuner(0, 2);
    run_pulled(&tuner, 0.5, 1, 60);
    CHECK_INT(tuner.value, 1);
}

/* Here the threads would only take the CPU from the pulling thread. */
static void on_one_cpu_the_pulling_thread_computes_alone(void)
{
    struct stg_tuner tuner = pulled_tuner(0, 1);
    run_pulled(&tuner, 1.1, 1, 60);
    CHECK_INT(tuner.value, 0);
    tuner = pulled_tuner(8, 1);
    run_pulled(&tuner, 1.1, 1, 60);
    CHECK_INT(tuner.value, 0);
}

/* With windows this long, more than one trial would take too long. */
static void where_reads_sleep_all_threads_come_at_once(void)
{
    struct stg_tuner tuner = pulled_tuner(0, 1);
    run_pulled(&tuner, 0.5, 0.01, 3);
    CHECK_INT(tuner.value, 5); /* 10 ms next to 2 ms */
    run_pulled(&tuner, 0.5, 0.01, 60);
    CHECK(tuner.value >= 5);
}

/* Earlier measurements say nothing about the effect of threads now. */
static void threads_come_at_once_when_all_turns_slow(void)
{
    struct model model = model_of(0.01, 0.01, 8, 1);
    struct stg_tuner tuner = tuner_of(1, 8, 8);
    run(&tuner, &model, 20);
    CHECK_INT(tuner.value, 1);
    model = model_of(20, 0.01, 8, 0.01);
    run(&tuner, &model, 16);
    CHECK_INT(tuner.value, 8);
}

/* A thread that sleeps is in the way of no other. */
static void threads_that_only_sleep_come_at_once(void)
{
    struct model model = model_of(20, 0.01, 2, 0.01);
    struct stg_tuner tuner = tuner_of(1, 8, 2);
    run(&tuner, &model, 3);
    CHECK_INT(tuner.value, 8);
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 8);
}

/* All turns slow in the middle of a trial: one more thread is not the reason. */
static void a_trial_that_meets_slower_times_is_not_judged(void)
{
    struct model model = model_of(2, 1, 8, 1);
    struct stg_tuner tuner = tuner_of(1, 8, 8);
    run(&tuner, &model, 3);
    CHECK(stg_tuner_in_trial(&tuner));
    model = model_of(200, 0.01, 8, 0.01);
    CHECK_INT(run(&tuner, &model, 3), 0);
    CHECK_INT(tuner.value, 2);
    CHECK(!stg_tuner_in_trial(&tuner));
    run(&tuner, &model, 3);
    CHECK_INT(tuner.value, 8);
}

static void a_number_that_was_given_stays(void)
{
    struct model model = model_of(40, 10, 8, 1);
    struct stg_tuner tuner;
    stg_tuner_init(&tuner, 3, &(struct stg_tuner_limits){.min = 3, .max = 3, .cpus = 8});
    CHECK_INT(run(&tuner, &model, 100), 0);
    CHECK_INT(tuner.value, 3);
}

static void a_trial_is_kept_when_the_consumers_have_changed(void)
{
    struct model model = model_of(40, 10, 8, 1);
    struct stg_tuner tuner = tuner_of(1, 16, 8);
    CHECK_INT(run(&tuner, &model, 3), 1);
    CHECK(stg_tuner_in_trial(&tuner));
    stg_tuner_forget(&tuner);
    CHECK(!stg_tuner_in_trial(&tuner));
    CHECK_INT(tuner.value, 2);
    run(&tuner, &model, 60);
    CHECK_INT(tuner.value, 4);
}

/* The time of a consumer that needs none is measured like any other: a useless change
 * stays useless. */
static void a_consumer_that_only_takes_is_the_same_however_little_it_takes(void)
{
    struct stg_tuner tuner = tuner_of(2, 4, 16);
    struct stg_tuner_change change;
    int n_up = 0;
    for (int i = 0; i < 60; i++) {
        struct stg_tuner_sample sample = {.n_items = 16,
                                          .interval_ns = 160000000,
                                          .busy_ns = 160000000ull * tuner.value,
                                          .cpu_ns = 1,
                                          .wait_ns = 160000000 - (i % 7 + 1) * 100000};
        n_up += stg_tuner_threads(&tuner, &sample, &change) && change.to > change.from;
    }
    CHECK(n_up >= 1 && n_up <= 3);
}

/* ---- capacity ---- */

/* A consumer that takes a burst at once, then nothing for a while. With room for less
 * than a burst, both sides wait. */
static struct stg_tuner_sample bursts(uint32_t capacity, uint32_t burst)
{
    double share = capacity < burst ? (double)capacity / burst : 1;
    uint64_t interval = (uint64_t)(16e6 / (0.6 + 0.4 * share));
    uint64_t idle = (uint64_t)(16e6 * (1 - share) / 4);
    return (struct stg_tuner_sample){
        .n_items = 16,
        .interval_ns = interval,
        .busy_ns = 16000000,
        .cpu_ns = 1,
        .wait_ns = idle,
        .room_ns = idle,
        .least = capacity > burst ? capacity - burst : 0,
    };
}

static void a_buffer_grows_while_both_sides_wait_and_no_further(void)
{
    struct stg_tuner tuner;
    struct stg_tuner_change change;
    stg_tuner_init(&tuner, 2, &(struct stg_tuner_limits){.min = 2, .max = 64});
    int n_changes = 0;
    for (int i = 0; i < 200; i++) {
        struct stg_tuner_sample sample = bursts(tuner.value, 8);
        n_changes += stg_tuner_capacity(&tuner, &sample, 1, &change);
    }
    CHECK_INT(tuner.value, 8);
    CHECK_INT(n_changes, 2);
}

static void room_that_was_never_needed_is_given_up(void)
{
    struct stg_tuner tuner;
    struct stg_tuner_change change;
    stg_tuner_init(&tuner, 32, &(struct stg_tuner_limits){.min = 2, .max = 64});
    for (int i = 0; i < 200; i++) {
        struct stg_tuner_sample sample = bursts(tuner.value, 3);
        stg_tuner_capacity(&tuner, &sample, 1, &change);
    }
    CHECK_INT(tuner.value, 4);
}

static void a_slow_source_is_not_helped_by_room(void)
{
    struct model model = model_of(10, 1, 1, 1);
    struct stg_tuner tuner;
    struct stg_tuner_change change;
    stg_tuner_init(&tuner, 2, &(struct stg_tuner_limits){.min = 2, .max = 64});
    for (int i = 0; i < 100; i++) {
        struct stg_tuner_sample sample = measure(&model, 1);
        CHECK(!stg_tuner_capacity(&tuner, &sample, 1, &change));
    }
}

static const struct stg_test tests[] = {
    TEST(threads_are_the_time_of_the_stage_over_that_of_the_consumer),
    TEST(an_uneven_stage_gets_one_thread_more_than_the_mean_requires),
    TEST(the_cpus_bound_threads_that_compute_and_not_those_that_sleep),
    TEST(a_consumer_that_does_nothing_gets_what_the_limit_allows),
    TEST(what_only_one_thread_can_do_is_not_sped_up_by_more),
    TEST(threads_are_given_up_when_the_consumer_slows_down_and_come_back),
    TEST(what_did_not_help_is_taken_back_and_seldom_tried_again),
    TEST(noise_of_a_tenth_makes_no_flapping),
    TEST(a_clear_gain_is_found_among_others_that_work),
    TEST(threads_that_are_in_one_anothers_way_are_given_up),
    TEST(a_pulling_thread_that_computes_needs_a_cpu_too),
    TEST(on_one_cpu_the_pulling_thread_computes_alone),
    TEST(where_reads_sleep_all_threads_come_at_once),
    TEST(threads_come_at_once_when_all_turns_slow),
    TEST(threads_that_only_sleep_come_at_once),
    TEST(a_trial_that_meets_slower_times_is_not_judged),
    TEST(a_number_that_was_given_stays),
    TEST(a_trial_is_kept_when_the_consumers_have_changed),
    TEST(a_consumer_that_only_takes_is_the_same_however_little_it_takes),
    TEST(a_buffer_grows_while_both_sides_wait_and_no_further),
    TEST(room_that_was_never_needed_is_given_up),
    TEST(a_slow_source_is_not_helped_by_room),
};

TEST_MAIN(tests)
