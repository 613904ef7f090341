/* SPDX-License-Identifier: Apache-2.0
 *
 * num_threads: auto and capacity: auto of a running pipeline. The stage sleeps, so that
 * its time is known and uses no CPU. The tests compare the number of items taken side by
 * side in the same period.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define STAGE_MILLIS 8

/* Batches of one number, its place in the source; each takes STAGE_MILLIS. */
static void apply(struct fixture *fixture, const char *name, int n, const char *staged)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: %s\n"
             "dataset:\n  - range: {stop: %d}\n  - batch: {batch_size: 1, "
             "drop_remainder: true}\n"
             "graph:\n  - {name: v, op: sleep, input: [value], sleep_microseconds: %d}\n"
             "staged: {features: {v: v}, %s}\n",
             name, n, STAGE_MILLIS * 1000, staged);
    fixture_apply(fixture, yaml);
}

static void sleep_millis(int64_t millis)
{
    struct timespec left = {.tv_sec = millis / 1000, .tv_nsec = millis % 1000 * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static int64_t take(struct stager_stream *stream)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "v", &tensor), 0);
    int64_t value = *(const int64_t *)tensor.data;
    stager_release(batch);
    return value;
}

/* Takes n in order, and trains for that long with each. */
static void train(struct stager_stream *stream, int64_t first, int n, int64_t millis)
{
    for (int i = 0; i < n; i++) {
        CHECK_INT(take(stream), first + i);
        sleep_millis(millis);
    }
}

static struct fixture_status status_of(struct fixture *fixture, const char *name)
{
    struct fixture_status status;
    fixture_status(fixture, name, &status);
    return status;
}

/* ---- as good as values set by hand ---- */

/* Trains for 2 ms with each item; counts the items of each period that the test starts
 * and ends, and reports the count. */
static void count(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, arg, NULL, 2);
    int64_t next = 0, millis;
    for (int i = 0; i < 200; i++, next++)
        train(stream, next, 1, 2);
    trainer_send(fd, 0);
    while ((millis = trainer_recv(fd)) > 0) {
        int64_t end = now_millis() + millis, n = 0;
        for (; now_millis() < end; n++, next++)
            train(stream, next, 1, 2);
        trainer_send(fd, n);
    }
    stager_close(stream);
}

#define N_GIVEN 4

/* The number of items with auto, which is the first, and the largest number of the
 * others, in the same period. */
static int64_t compare(struct trainer trainers[1 + N_GIVEN], int64_t *ret_best)
{
    for (int i = 0; i <= N_GIVEN; i++)
        trainer_send(trainers[i].fd, 1000);
    int64_t automatic = trainer_recv(trainers[0].fd);
    *ret_best = 0;
    for (int i = 1; i <= N_GIVEN; i++) {
        int64_t n = trainer_recv(trainers[i].fd);
        *ret_best = n > *ret_best ? n : *ret_best;
    }
    return automatic;
}

/* Once in ten periods is enough: a period may contain a trial. */
static void auto_brings_what_the_best_of_the_given_numbers_does(void)
{
    static const char *const names[] = {"auto", "one", "two", "four", "eight"};
    static const char *const numbers[] = {"auto", "1", "2", "4", "8"};
    struct fixture fixture;
    struct trainer trainers[1 + N_GIVEN];
    fixture_start(&fixture, "");
    for (int i = 0; i <= N_GIVEN; i++) {
        char staged[128];
        snprintf(staged, sizeof(staged), "capacity: %s, num_threads: %s",
                 i == 0 ? "auto" : "4", numbers[i]);
        apply(&fixture, names[i], 1000000, staged);
        trainer_start(&trainers[i], count, &fixture, (void *)(uintptr_t)names[i]);
    }
    for (int i = 0; i <= N_GIVEN; i++)
        trainer_recv(trainers[i].fd);
    int64_t automatic, best;
    int n_tries = 0;
    do
        automatic = compare(trainers, &best);
    while (10 * automatic < 9 * best && ++n_tries < 10);
    struct fixture_status status = status_of(&fixture, "auto");
    printf("    %lld items with auto (%u threads), %lld with the best\n",
           (long long)automatic, status.num_threads, (long long)best);
    CHECK(10 * automatic >= 9 * best);
    CHECK(status.num_threads_auto && status.capacity_auto);
    CHECK(status.num_threads >= 3);
    for (int i = 0; i <= N_GIVEN; i++) {
        trainer_send(trainers[i].fd, 0);
        trainer_join(&trainers[i]);
    }
    fixture_finish(&fixture);
}

/* ---- up and down, with reasons ---- */

static bool has_many_threads(const struct fixture_status *status, void *n)
{
    return status->num_threads >= *(uint32_t *)n;
}

static void threads_come_and_go_with_what_the_trainer_takes_and_say_why(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, "p", 1000000, "num_threads: auto, capacity: 4");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    CHECK_INT(status_of(&fixture, "p").num_threads, 1);
    uint32_t n = 4;
    int64_t next = 0;
    struct fixture_status status;
    do {
        CHECK(next < 2000);
        train(stream, next, 40, 0);
        next += 40;
        status = status_of(&fixture, "p");
    } while (!has_many_threads(&status, &n));
    CHECK_INT(status.capacity, 4);
    CHECK(!status.capacity_auto);
    CHECK_STR(status.tuned[0].what, "num_threads");
    CHECK_INT(status.tuned[0].from, 1);
    CHECK(status.tuned[0].to >= 2); /* its threads only sleep, and come at once */
    CHECK_CONTAINS(status.tuned[0].why, "the consumer waits for ");
    for (int i = 0; i < 200 && status.num_threads > 2; i++) {
        train(stream, next, 4, 2 * STAGE_MILLIS);
        next += 4;
        status = status_of(&fixture, "p");
    }
    CHECK(status.num_threads <= 2);
    stager_close(stream);
    fixture_finish(&fixture);
}

static bool is_idle(const struct fixture_status *status, void *arg)
{
    return strcmp(status->state, "idle") == 0;
}

/* Other content under a name starts without measurements. */
static void the_next_run_begins_with_what_the_last_one_came_to(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, "p", 1000000,
          "num_threads: auto, capacity: 4, reconnect_grace_millis: 0");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    uint32_t n = 4;
    int64_t next = 0;
    struct fixture_status status;
    do {
        CHECK(next < 2000);
        train(stream, next, 40, 0);
        next += 40;
        status = status_of(&fixture, "p");
    } while (!has_many_threads(&status, &n));
    stager_close(stream);
    fixture_wait(&fixture, "p", fixture_millis(20000), is_idle, NULL);
    stream = fixture_open(&fixture, "p", "d", 2);
    status = status_of(&fixture, "p");
    CHECK(status.num_threads > 1);
    CHECK(status.n_tuned > 0);
    train(stream, 0, 20, 0);
    stager_close(stream);
    fixture_wait(&fixture, "p", fixture_millis(20000), is_idle, NULL);
    apply(&fixture, "p", 1000000,
          "num_threads: auto, capacity: 3, reconnect_grace_millis: 0");
    stream = fixture_open(&fixture, "p", "e", 2);
    CHECK_INT(status_of(&fixture, "p").num_threads, 1);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void what_was_given_stays(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, "p", 1000000, "num_threads: 2, capacity: 3");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    train(stream, 0, 100, 0);
    struct fixture_status status = status_of(&fixture, "p");
    CHECK_INT(status.num_threads, 2);
    CHECK_INT(status.capacity, 3);
    CHECK_INT(status.n_tuned, 0);
    CHECK(!status.num_threads_auto && !status.capacity_auto);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* ---- memory ---- */

/* A batch takes a granule of 64 KiB. 12 of them fit, and as much for reading; clients may
 * hold two, and one always stays free. */
static void auto_comes_to_no_more_than_the_memory_that_was_given(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, "p", 1000000,
          "num_threads: auto, capacity: auto, memory_budget: 1MiB");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    struct fixture_status status;
    for (int i = 0; i < 10; i++) {
        train(stream, i * 40, 40, 0);
        status = status_of(&fixture, "p");
        CHECK(status.memory_bytes <= 786432);
        CHECK(status.memory_used_bytes <= status.memory_bytes);
        CHECK(status.num_threads <= status.max_num_threads);
        CHECK(status.capacity <= status.max_capacity);
    }
    CHECK_INT(status.max_num_threads + status.max_capacity + 2 + 1, 12);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void what_does_not_fit_with_one_of_each_is_refused(void)
{
    struct fixture fixture;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    CHECK_INT(fixture_try_apply(&fixture,
                                "name: p\ndataset:\n  - range: {stop: 9}\n"
                                "staged: {num_threads: auto, capacity: auto, "
                                "max_batch_bytes: 64KiB, memory_budget: 256KiB}\n",
                                false, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text,
                   "(capacity 1 + num_threads 1 + num_clients 1 x max_in_flight 2 + "
                   "1) x max_batch_bytes 65536");
    fixture_finish(&fixture);
}

/* ---- failures while it grows ---- */

static void hold_and_take(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "p", "trainer", 2);
    int64_t n = trainer_recv(fd), last = -1;
    for (int64_t i = 0; i < n; i++)
        last = take(stream);
    struct stager_batch *kept = fixture_take(stream);
    trainer_send(fd, last);
    trainer_recv(fd); /* killed here */
    stager_release(kept);
    stager_close(stream);
}

static void a_trainer_that_dies_while_it_grows_loses_nothing(void)
{
    enum { N = 400 };
    static bool seen[N];
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, "p", N,
          "num_threads: auto, capacity: auto, reconnect_grace_millis: 30000");
    int64_t next = 0;
    for (int round = 0; round < 4; round++) {
        struct trainer trainer;
        trainer_start(&trainer, hold_and_take, &fixture, NULL);
        trainer_send(trainer.fd, 40);
        next = trainer_recv(trainer.fd) + 1;
        trainer_kill(&trainer);
    }
    struct stager_stream *stream = fixture_open(&fixture, "p", "trainer", 2);
    struct stager_batch *batch;
    CHECK(next >= 4 * 40);
    int rc;
    while ((rc = stager_next(stream, 20000, &batch)) == 0) {
        struct stager_tensor tensor;
        CHECK_INT(stager_batch_tensor(batch, "v", &tensor), 0);
        int64_t value = *(const int64_t *)tensor.data;
        CHECK(value >= next && value < N && !seen[value]);
        seen[value] = true;
        stager_release(batch);
    }
    CHECK_INT(rc, -STAGER_OUT_OF_RANGE);
    for (int64_t i = next; i < N; i++)
        CHECK(seen[i]);
    struct fixture_status status = status_of(&fixture, "p");
    CHECK_INT(status.made,
              status.published + status.dropped + status.in_hand + status.discarded);
    CHECK_INT(status.dropped, 0);
    stager_close(stream);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(auto_brings_what_the_best_of_the_given_numbers_does, 60),
    TEST_SLOW(threads_come_and_go_with_what_the_trainer_takes_and_say_why, 60),
    TEST_SLOW(the_next_run_begins_with_what_the_last_one_came_to, 60),
    TEST(what_was_given_stays),
    TEST(auto_comes_to_no_more_than_the_memory_that_was_given),
    TEST(what_does_not_fit_with_one_of_each_is_refused),
    TEST_SLOW(a_trainer_that_dies_while_it_grows_loses_nothing, 60),
};

TEST_MAIN(tests)
