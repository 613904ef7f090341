/* SPDX-License-Identifier: Apache-2.0
 *
 * num_parallel_calls: auto. The work of a step sleeps, so that its time is known and uses
 * no CPU. The output and its order are always the same.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "daemon/dataset/parallelism.h"
#include "daemon/dataset/task_pool.h"
#include "daemon/dataset/tuning.h"
#include "daemon/host/cpus.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/dataset/dataset_yaml.h"

#define SLEEPING_MAP                                                                     \
    "dataset:\n- range: {stop: 1000000}\n"                                               \
    "- map: {graph: {late: {op: sleep, input: [value], sleep_microseconds: 2000}}, "     \
    "output: late, num_parallel_calls: auto}\n"

/* Emulates a trainer. */
static void spend(int64_t millis)
{
    struct timespec left = {.tv_nsec = millis * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static uint32_t most_threads(void)
{
    return 2 * stg_cpus_whole();
}

/* Pulls until the step has chosen that many threads. */
static void pull_until(struct stg_dataset *dataset, struct stg_tuning *tuning,
                       const struct stg_step *step, uint32_t want, int64_t *next,
                       int64_t millis)
{
    uint32_t found;
    int n = 0;
    do {
        CHECK(n++ < 5000);
        struct stg_block *block = stg_test_next(dataset);
        CHECK_INT(*(int64_t *)block->tensors[0].data, (*next)++);
        stg_block_unref(block);
        spend(millis);
        found = stg_tuning_recall(tuning, step);
        CHECK(found <= most_threads());
    } while (found != want);
}

static void a_map_has_more_threads_while_it_is_waited_for_and_fewer_when_not(void)
{
    struct stg_test_spec *spec = stg_test_yaml(SLEEPING_MAP);
    const struct stg_step *map = &spec->spec.steps[1];
    struct stg_dataset_env env = stg_test_env();
    env.tuning = stg_tuning_create();
    struct stg_dataset *dataset = stg_test_open(spec, &env);
    int64_t next = 0;
    pull_until(dataset, env.tuning, map, most_threads(), &next, 0);
    pull_until(dataset, env.tuning, map, 1, &next, 10);
    stg_dataset_destroy(dataset);

    struct stg_tuning_change changes[STG_TUNING_CHANGES];
    size_t n = stg_tuning_changes(env.tuning, changes);
    CHECK(n >= 2);
    CHECK_CONTAINS(changes[0].what, "step map (line ");
    CHECK_CONTAINS(changes[0].what, "num_parallel_calls");
    for (size_t i = 0; i < n; i++) {
        const struct stg_tuner_change *change = &changes[i].change;
        if (strstr(change->why, "taken back: ") == NULL)
            CHECK_CONTAINS(change->why, change->to > change->from
                                            ? "the consumer waits for "
                                            : " thread");
    }

    dataset = stg_test_open(spec, &env); /* another pass, which begins with one */
    next = 0;
    pull_until(dataset, env.tuning, map, most_threads(), &next, 0);
    stg_dataset_destroy(dataset);
    stg_tuning_destroy(env.tuning);
}

/* Each pass is too short to measure. */
static void what_was_measured_in_one_pass_counts_in_the_next_one(void)
{
    struct stg_test_spec *spec = stg_test_yaml(SLEEPING_MAP);
    const struct stg_step *map = &spec->spec.steps[1];
    struct stg_dataset_env env = stg_test_env();
    env.tuning = stg_tuning_create();
    uint64_t n_changes = 0;
    for (int pass = 0; pass < 60 && n_changes == 0; pass++) {
        struct stg_dataset *dataset = stg_test_open(spec, &env);
        for (int64_t i = 0; i < 14; i++) { /* one window, and no second one */
            struct stg_block *block = stg_test_next(dataset);
            CHECK_INT(*(int64_t *)block->tensors[0].data, i);
            stg_block_unref(block);
            spend(6);
        }
        stg_dataset_destroy(dataset);
        n_changes = stg_tuning_n_changes(env.tuning);
    }
    CHECK(n_changes > 0); /* too many threads for a trainer that takes one in 6 ms */
    CHECK(stg_tuning_recall(env.tuning, map) < stg_cpus_whole());
    CHECK_INT(stg_tuning_n_trials(env.tuning), 0); /* none runs between two passes */
    stg_tuning_destroy(env.tuning);
}

static void while_something_else_is_tried_no_thread_comes_or_goes(void)
{
    struct stg_test_spec *spec = stg_test_yaml(SLEEPING_MAP);
    const struct stg_step *map = &spec->spec.steps[1];
    struct stg_dataset_env env = stg_test_env();
    env.tuning = stg_tuning_create();
    stg_tuning_hold(env.tuning, true);
    struct stg_dataset *dataset = stg_test_open(spec, &env);
    int64_t next = 0;
    for (; next < 400; next++)
        stg_block_unref(stg_test_next(dataset));
    CHECK_INT(stg_tuning_n_changes(env.tuning), 0);
    CHECK_INT(stg_tuning_n_trials(env.tuning), 0);
    stg_tuning_hold(env.tuning, false);
    pull_until(dataset, env.tuning, map, most_threads(), &next, 0);
    stg_dataset_destroy(dataset);
    stg_tuning_destroy(env.tuning);
}

/* Threads wait for files no more than the pulling thread does. */
static void threads_that_read_ahead_of_a_slow_consumer_are_given_up(void)
{
    char text[64];
    const char *dir = stg_test_dir();
    for (int i = 0; i < 600; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%03d", i);
        snprintf(text, sizeof(text), "%d\n%d\n", 2 * i, 2 * i + 1);
        stg_test_file(name, text, strlen(text));
    }
    struct stg_test_spec *spec =
        stg_test_yaml("dataset:\n- files: {pattern: %s/f*, shuffle: false}\n"
                      "- interleave: {reader: text_line, cycle_length: 4, block_length: "
                      "2}\n",
                      dir);
    const struct stg_step *interleave = &spec->spec.steps[1];
    struct stg_dataset_env env = stg_test_env();
    env.tuning = stg_tuning_create();
    struct stg_dataset *dataset = stg_test_open(spec, &env);
    uint32_t found = 0;
    for (int i = 0; i < 1200 && found != 1; i++) {
        struct stg_block *block = stg_test_next(dataset);
        char want[16];
        snprintf(want, sizeof(want), "%d", i);
        const struct stg_tensor *record = &block->tensors[0];
        CHECK_INT(record->end[0] - record->begin[0], strlen(want));
        CHECK(memcmp((const char *)record->data + record->begin[0], want, strlen(want)) ==
              0);
        stg_block_unref(block);
        spend(2);
        found = stg_tuning_recall(env.tuning, interleave);
    }
    CHECK_INT(found, 1);
    stg_dataset_destroy(dataset);
    stg_tuning_destroy(env.tuning);
}

static atomic_bool over;

static void *compute(void *arg)
{
    while (!atomic_load(&over))
        ;
    return NULL;
}

/* Two threads on one CPU: each computes half of the time and waits the other half. */
static void to_wait_for_a_cpu_is_computing_and_to_sleep_is_not(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_INT(sched_setaffinity(0, sizeof(one), &one), 0);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, compute, NULL), 0);
    struct stg_thread_time began, spent;
    stg_thread_time_now(&began);
    uint64_t until_ns = began.wall_ns + 100000000;
    while (stg_now_ns() < until_ns)
        ;
    stg_thread_time_since(&began, &spent);
    CHECK(spent.wall_ns >= 100000000);
    CHECK_INT(spent.cpu_ns, spent.wall_ns);
    atomic_store(&over, true);
    pthread_join(thread, NULL);

    stg_thread_time_now(&began);
    spend(50);
    stg_thread_time_since(&began, &spent);
    CHECK(spent.wall_ns >= 50000000);
    CHECK(spent.cpu_ns < 25000000);
}

/* A window ends after 300 ms, however few results were taken in it: three windows make a
 * decision. */
static void slow_results_get_another_thread_before_many_were_taken(void)
{
    struct stg_test_spec *spec = stg_test_yaml(SLEEPING_MAP);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(spec, &env);
    struct stg_parallelism parallelism;
    stg_parallelism_init(&parallelism, dataset, &spec->spec.steps[1], 1, 1, 8);
    int n = 0;
    bool changed = false;
    while (!changed) {
        CHECK(n++ < 15);
        uint64_t began_ns = stg_now_ns();
        spend(70);
        struct stg_thread_time spent = {.wall_ns = stg_now_ns() - began_ns};
        stg_parallelism_worked(&parallelism, &spent);
        stg_parallelism_waited(&parallelism, spent.wall_ns);
        changed = stg_parallelism_took(&parallelism, 1);
    }
    CHECK_INT(parallelism.tuner.value, 2);
    stg_dataset_destroy(dataset);
}

struct note {
    struct stg_task task;
    _Atomic unsigned worker;
};

static void note_worker(struct stg_task *task, unsigned worker)
{
    atomic_store(&((struct note *)task)->worker, worker);
}

static void of_a_pool_only_the_active_ones_begin_tasks(void)
{
    enum { N = 1000 };
    static struct note notes[N];
    struct stg_task_pool *pool;
    struct stg_err err = {0};
    CHECK_OK(stg_task_pool_create(4, "pool", &pool, &err), err);
    uint64_t n_done = 0;
    for (unsigned n = 1; n < 40; n++) {
        unsigned n_active = n * 7 % 4 + 1;
        stg_task_pool_set_active(pool, n_active);
        for (int i = 0; i < N; i++) {
            notes[i].task.run = note_worker;
            stg_task_pool_submit(pool, &notes[i].task);
        }
        n_done += N;
        for (uint64_t seen; (seen = stg_task_pool_n_done(pool)) < n_done;)
            stg_task_pool_wait(pool, seen);
        for (int i = 0; i < N; i++)
            CHECK(atomic_load(&notes[i].worker) < n_active);
    }
    stg_task_pool_destroy(pool);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_map_has_more_threads_while_it_is_waited_for_and_fewer_when_not, 60),
    TEST_SLOW(what_was_measured_in_one_pass_counts_in_the_next_one, 60),
    TEST_SLOW(while_something_else_is_tried_no_thread_comes_or_goes, 60),
    TEST_SLOW(threads_that_read_ahead_of_a_slow_consumer_are_given_up, 60),
    TEST(slow_results_get_another_thread_before_many_were_taken),
    TEST(to_wait_for_a_cpu_is_computing_and_to_sleep_is_not),
    TEST(of_a_pool_only_the_active_ones_begin_tasks),
};

TEST_MAIN(tests)
