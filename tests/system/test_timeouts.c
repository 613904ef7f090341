/* SPDX-License-Identifier: Apache-2.0
 *
 * Items that find no room or exceed their time. A waiting runner holds up no other one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

/* A pipeline "p": int64 scalars start, start + step … as `value`, each of which takes
 * that many microseconds. */
static void apply_sleepers(struct fixture *fixture, int start, int stop, int step,
                           const char *staged)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: p\n"
             "dataset:\n  - range: {start: %d, stop: %d, step: %d}\n"
             "graph:\n  - {name: v, op: sleep, input: [value, value]}\n"
             "staged: {features: {v: v}, %s}\n",
             start, stop, step, staged);
    fixture_apply(fixture, yaml);
}

static int64_t take_value(struct stager_stream *stream, struct stager_batch_info *info)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "v", &tensor), 0);
    int64_t value = *(const int64_t *)tensor.data;
    if (info != NULL)
        stager_batch_info(batch, info);
    stager_release(batch);
    return value;
}

static bool adds_up(const struct fixture_status *s)
{
    return s->made == s->published + s->dropped + s->ignored + s->in_hand + s->discarded;
}

static bool timed_out(const struct fixture_status *status, void *n)
{
    CHECK(adds_up(status));
    return status->timeouts >= *(uint64_t *)n;
}

static struct fixture_status status_of(struct fixture *fixture)
{
    struct fixture_status status;
    fixture_status(fixture, "p", &status);
    CHECK(adds_up(&status));
    return status;
}

static void a_dropped_item_is_counted_and_seen_in_the_next(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_sleepers(&fixture, 0, 1000, 1,
                   "timeout_millis: 30, on_timeout: drop, num_threads: 3");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 1);
    struct stager_batch *first = fixture_take(stream);
    uint64_t n = 4;
    fixture_wait(&fixture, "p", 20000, timed_out, &n);
    stager_release(first);
    uint64_t left_out = 0;
    bool gap = false;
    for (int64_t i = 1; i < 900; i++) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        int64_t value = take_value(stream, &info);
        CHECK_INT(value, info.number); /* a number is the place in the source */
        CHECK_INT(info.number, i + (int64_t)info.n_dropped);
        gap = gap || info.n_dropped > left_out;
        left_out = info.n_dropped;
        if (value >= 900)
            break;
    }
    CHECK(gap);
    CHECK(left_out >= 4);
    struct fixture_status status = status_of(&fixture);
    CHECK(status.dropped >= left_out);
    CHECK_INT(status.dropped, status.timeouts);
    CHECK_INT(status.dropped_rows, status.dropped);
    struct stager_stream_info counts = {.struct_size = sizeof(counts)};
    stager_stream_info(stream, &counts);
    CHECK(counts.dropped_batches >= left_out && counts.dropped_batches <= status.dropped);
    CHECK_INT(counts.dropped_rows, counts.dropped_batches);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void an_item_that_waits_on_is_not_lost(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_sleepers(
        &fixture, 0, 40, 1,
        "timeout_millis: 20, num_threads: 3"); /* on_timeout: wait is the default */
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 1);
    struct stager_batch *first = fixture_take(stream);
    uint64_t n = 3;
    fixture_wait(&fixture, "p", 20000, timed_out, &n);
    stager_release(first);
    for (int64_t i = 1; i < 40; i++) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        CHECK_INT(take_value(stream, &info), i);
        CHECK_INT(info.n_dropped, 0);
    }
    struct fixture_status status = status_of(&fixture);
    CHECK_INT(status.dropped, 0);
    CHECK(status.timeouts >= 3);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void the_slowest_is_evicted_and_the_others_lose_nothing(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_sleepers(&fixture, 0, 60, 1,
                   "timeout_millis: 100, on_timeout: evict, delivery: broadcast, "
                   "num_clients: 2, num_threads: 2");
    struct stager_stream *fast = fixture_open(&fixture, "p", "fast", 2);
    struct stager_stream *slow = fixture_open(&fixture, "p", "slow", 2);
    for (int64_t i = 0; i < 60; i++)
        CHECK_INT(take_value(fast, NULL), i);
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(slow, fixture_millis(20000), &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(slow), "timeout_millis 100");
    CHECK_INT(status_of(&fixture).dropped, 0);
    stager_close(slow);
    stager_close(fast);
    fixture_finish(&fixture);
}

static void evict_is_refused_where_no_client_can_block_another(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    struct stg_err err = {0};
    CHECK_INT(fixture_try_apply(&fixture,
                                "name: p\ndataset:\n  - range: {stop: 4}\n"
                                "staged: {on_timeout: evict}\n",
                                false, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "on_timeout: evict");
    CHECK_CONTAINS(err.text, "split");
    fixture_finish(&fixture);
}

/* The first takes far longer than timeout_millis. Those behind it are finished and wait
 * for their turn, which is no client's fault. */
static void the_time_runs_only_for_the_item_whose_turn_it_is(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_sleepers(&fixture, 700000, -4, -100001,
                   "timeout_millis: 250, on_timeout: drop, num_threads: 8, capacity: 8");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int64_t value = 700000; value > -4; value -= 100001) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        if (value < 0)
            break;
        CHECK_INT(take_value(stream, &info), value);
        CHECK_INT(info.n_dropped, 0);
    }
    CHECK_INT(status_of(&fixture).timeouts, 0);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void source_order_is_kept_for_any_number_of_runners(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_sleepers(&fixture, 12000, -1, -1000, "num_threads: 13, capacity: 2");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int64_t i = 0; i < 13; i++)
        CHECK_INT(take_value(stream, NULL), 12000 - 1000 * i);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void without_deterministic_an_item_is_published_when_it_is_finished(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_sleepers(&fixture, 1500000, -1, -1500000,
                   "num_threads: 2, deterministic: false");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    CHECK_INT(take_value(stream, &info), 0);
    CHECK_INT(info.number, 0); /* the place in the output */
    CHECK_INT(info.index, 1);  /* the place in the epoch */
    CHECK_INT(take_value(stream, &info), 1500000);
    CHECK_INT(info.number, 1);
    CHECK_INT(info.index, 0);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
    stager_close(stream);
    fixture_finish(&fixture);
}

static bool is_full(const struct fixture_status *status, void *n)
{
    CHECK(adds_up(status));
    return status->in_hand == *(uint64_t *)n;
}

static bool is_idle(const struct fixture_status *status, void *arg)
{
    CHECK(adds_up(status));
    return strcmp(status->state, "idle") == 0;
}

/* No more is made than the buffer, the runners and the clients can hold. All of it ends
 * at once. */
static void a_stop_joins_runners_that_wait_for_room(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    const char *staged[] = {"num_threads: 24, capacity: 3, reconnect_grace_millis: 0",
                            "num_threads: 24, capacity: 3, reconnect_grace_millis: 0, "
                            "deterministic: false"};
    for (int i = 0; i < 2; i++) {
        apply_sleepers(&fixture, 0, 100000, 1, staged[i]);
        struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
        stager_release(fixture_take(stream));
        uint64_t n = 24;
        fixture_wait(&fixture, "p", 20000, is_full, &n);
        CHECK(status_of(&fixture).made <= 24 + 3 + 2 + 1);
        stager_close(stream);
        CHECK(fixture_wait(&fixture, "p", 2000, is_idle, NULL) < fixture_millis(2000));
        struct fixture_status status = status_of(&fixture);
        CHECK_INT(status.in_hand, 0);
        CHECK_INT(status.discarded, 24);
    }
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_dropped_item_is_counted_and_seen_in_the_next, 60),
    TEST(an_item_that_waits_on_is_not_lost),
    TEST(the_slowest_is_evicted_and_the_others_lose_nothing),
    TEST(evict_is_refused_where_no_client_can_block_another),
    TEST(the_time_runs_only_for_the_item_whose_turn_it_is),
    TEST(source_order_is_kept_for_any_number_of_runners),
    TEST(without_deterministic_an_item_is_published_when_it_is_finished),
    TEST(a_stop_joins_runners_that_wait_for_room),
};

TEST_MAIN(tests)
