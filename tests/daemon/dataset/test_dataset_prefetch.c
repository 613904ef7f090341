/* SPDX-License-Identifier: Apache-2.0
 *
 * prefetch: it works ahead, and its effects on other threads and the budget.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/step.h"
#include "daemon/dataset/tuning.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static void step(struct stg_test_spec *spec, const char *name, const char *attr,
                 int64_t value)
{
    stg_test_step(spec, name);
    stg_test_int(spec, attr, value);
}

/* Batches of 1000 numbers are made between calls, as many as fit the buffer. */
static void it_works_ahead_between_calls(void)
{
    enum { BATCH_BYTES = 8000, AHEAD = 8 };
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 1000000);
    step(&spec, "batch", "batch_size", 1000);
    step(&spec, "prefetch", "buffer_size", AHEAD);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    CHECK_INT(stg_quota_used(dataset->quota), 0);
    stg_block_unref(stg_test_next(dataset));
    while (stg_quota_used(dataset->quota) < AHEAD * BATCH_BYTES)
        sched_yield();
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(*(int64_t *)block->tensors[0].data, 1000);
    CHECK(stg_quota_used(dataset->quota) < (AHEAD + 3) * (BATCH_BYTES + 4096));
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

/* Steps that succeed without it in some budget succeed with it in one and a half times
 * that budget. */
static int run_in(const struct stg_test_spec *spec, uint64_t bytes, uint64_t *ret_sum)
{
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = bytes;
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    int rc = stg_dataset_create(&spec->spec, &env, &dataset, &err);
    if (rc < 0)
        return rc;
    struct stg_block *block;
    *ret_sum = 0;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        for (int64_t i = 0; i < block->tensors[0].shape[0]; i++)
            *ret_sum = *ret_sum * 31 +
                       (uint64_t)(block->tensors[0].end[i] - block->tensors[0].begin[i]);
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    return rc;
}

static void make_steps(struct stg_test_spec *spec, const char *path, int64_t ahead)
{
    stg_test_lines(spec, path);
    stg_test_int(spec, "buffer_size", 1000);
    step(spec, "shuffle", "buffer_size", 100);
    if (ahead > 0)
        step(spec, "prefetch", "buffer_size", ahead);
    step(spec, "batch", "batch_size", 20);
    if (ahead > 0)
        step(spec, "prefetch", "buffer_size", ahead);
}

static void a_buffer_of_a_million_fits_half_more_than_the_budget_without_it(void)
{
    static char text[100000];
    memset(text, 'x', sizeof(text));
    for (size_t at = 30; at < sizeof(text); at += 17 + at % 101)
        text[at] = '\n';
    const char *path = stg_test_file("a", text, sizeof(text));
    struct stg_test_spec plain = {0}, ahead = {0};
    make_steps(&plain, path, 0);
    make_steps(&ahead, path, 1000000);
    int n_good = 0, n_more = 0;
    for (uint64_t bytes = 50000; bytes < 3000000; bytes += bytes / 4) {
        uint64_t want = 0, got = 0;
        if (run_in(&plain, bytes, &want) != 1)
            continue;
        n_good++;
        if (run_in(&ahead, bytes + bytes / 2, &got) == 1)
            CHECK_INT(got, want);
        else
            n_more++;
    }
    CHECK(n_good >= 5);
    CHECK_INT(n_more, 0);
}

/* Like tf.data: the buffer holds one element at first, and twice as many each time it is
 * empty after it was full. */
static void auto_doubles_when_it_was_full_and_is_empty(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 2000000000);
    step(&spec, "batch", "batch_size", 1000);
    step(&spec, "prefetch", "buffer_size", 0);
    struct stg_dataset_env env = stg_test_env();
    env.tuning = stg_tuning_create();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    stg_block_unref(stg_test_next(dataset));
    int64_t next = 1;
    uint32_t size = 1;
    while (size < 16) {
        CHECK(next < 1000000);
        while (stg_quota_used(dataset->quota) < size * 8000)
            sched_yield();
        CHECK(stg_quota_used(dataset->quota) < (size + 3) * (8000 + 4096));
        for (uint32_t i = 0; i < 4 * size; i++) {
            struct stg_block *block = stg_test_next(dataset);
            CHECK_INT(*(int64_t *)block->tensors[0].data, 1000 * next++);
            stg_block_unref(block);
        }
        uint32_t found = stg_tuning_recall(env.tuning, &spec.spec.steps[2]);
        size = found > size ? found : size;
    }
    struct stg_tuning_change changes[STG_TUNING_CHANGES];
    size_t n = stg_tuning_changes(env.tuning, changes);
    CHECK(n >= 4);
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(changes[i].change.from, 1 << i);
        CHECK_INT(changes[i].change.to, 2 << i);
    }
    CHECK_CONTAINS(changes[0].what, "step prefetch");
    CHECK_CONTAINS(changes[0].what, "buffer_size");
    stg_dataset_destroy(dataset);
    dataset = stg_test_open(&spec, &env);
    stg_block_unref(stg_test_next(dataset));
    while (stg_quota_used(dataset->quota) < 16 * 8000) /* the thread continues with it */
        sched_yield();
    stg_dataset_destroy(dataset);
    stg_tuning_destroy(env.tuning);
}

/* Three quarters of 100 KB are 9 batches of 8000 bytes. */
static void auto_does_not_outgrow_the_memory(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 2000000);
    step(&spec, "batch", "batch_size", 1000);
    step(&spec, "prefetch", "buffer_size", 0);
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 100000;
    env.tuning = stg_tuning_create();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    for (int i = 0; i < 2000; i++) {
        stg_block_unref(stg_test_next(dataset));
        for (int k = 0; i % 50 == 0 && k < 20; k++)
            sched_yield(); /* it fills up, or not */
        CHECK(stg_quota_used(dataset->quota) <= 100000);
    }
    CHECK(stg_tuning_recall(env.tuning, &spec.spec.steps[2]) <= 9);
    stg_dataset_destroy(dataset);
    stg_tuning_destroy(env.tuning);
}

static void *stop(void *owner)
{
    atomic_store((_Atomic int *)owner, 1);
    return NULL;
}

/* The shuffle never yields an element: the caller waits for the thread. */
static void a_waiting_caller_sees_a_stop(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, INT64_MAX);
    step(&spec, "skip", "count", INT64_MAX);
    step(&spec, "prefetch", "buffer_size", 10);
    _Atomic int stopped = 0;
    struct stg_dataset_env env = stg_test_env();
    env.stopped = &stopped;
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, stop, &stopped), 0);
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_CANCELLED);
    CHECK_INT(err.code, -STAGER_CANCELLED);
    pthread_join(thread, NULL);
    stg_dataset_destroy(dataset);
}

/* TFD-M1, TFD-M2: its buffer is full, or empty. */
static void it_may_go_at_any_time(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, INT64_MAX);
    step(&spec, "prefetch", "buffer_size", 100);
    step(&spec, "batch", "batch_size", 10);
    step(&spec, "prefetch", "buffer_size", 7);
    for (int n = 0; n < 50; n++) {
        struct stg_dataset_env env = stg_test_env();
        struct stg_dataset *dataset = stg_test_open(&spec, &env);
        for (int i = 0; i < n; i++)
            stg_block_unref(stg_test_next(dataset));
        stg_dataset_destroy(dataset);
    }
}

static const struct stg_test tests[] = {
    TEST(it_works_ahead_between_calls),
    TEST(a_buffer_of_a_million_fits_half_more_than_the_budget_without_it),
    TEST(auto_doubles_when_it_was_full_and_is_empty),
    TEST(auto_does_not_outgrow_the_memory),
    TEST(a_waiting_caller_sees_a_stop),
    TEST(it_may_go_at_any_time),
};

TEST_MAIN(tests)
