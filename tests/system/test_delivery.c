/* SPDX-License-Identifier: Apache-2.0
 *
 * A real daemon and real streams: the delivery of batches, the end of a pass, the effects
 * of an error.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define N_ITEMS 40

/* Batches of two numbers: item i holds 2i and 2i + 1. */
static void apply_range(struct fixture *fixture, const char *name, const char *staged)
{
    char yaml[1024];
    snprintf(yaml, sizeof(yaml),
             "name: %s\n"
             "dataset:\n  - range: {stop: %d}\n  - batch: {batch_size: 2}\n"
             "staged: {%s}\n",
             name, 2 * N_ITEMS, staged);
    fixture_apply(fixture, yaml);
}

/* Checks that the batch holds the numbers of its item. */
static uint64_t check_batch(const struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    struct stager_tensor value;
    stager_batch_info(batch, &info);
    CHECK_INT(stager_batch_tensor(batch, "value", &value), 0);
    CHECK_INT(value.dtype, STAGER_INT64);
    CHECK_INT(value.ndim, 1);
    CHECK_INT(value.shape[0], 2);
    const int64_t *data = value.data;
    int64_t first = 2 * (int64_t)(info.number % N_ITEMS);
    CHECK_INT(data[0], first);
    CHECK_INT(data[1], first + 1);
    return info.number;
}

static int take_all(struct stager_stream *stream, bool seen[N_ITEMS])
{
    int n = 0;
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(stream, 10000, &batch)) == 0) {
        uint64_t number = check_batch(batch);
        CHECK(!seen[number % N_ITEMS]);
        seen[number % N_ITEMS] = true;
        stager_release(batch);
        n++;
    }
    CHECK_INT(rc, -STAGER_OUT_OF_RANGE);
    return n;
}

static void one_trainer_gets_every_batch_in_order_and_then_the_end(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "capacity: 3");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    for (int i = 0; i < N_ITEMS; i++) {
        struct stager_batch *batch = fixture_take(stream);
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        stager_batch_info(batch, &info);
        CHECK_INT(info.number, i);
        CHECK_INT(info.index, i);
        CHECK_INT(info.epoch, 0);
        CHECK_INT(info.n_rows, 2);
        check_batch(batch);
        stager_release(batch);
    }
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_rewind_begins_the_next_pass(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "capacity: 3");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    for (uint64_t pass = 0; pass < 3; pass++) {
        bool seen[N_ITEMS] = {false};
        CHECK_INT(take_all(stream, seen), N_ITEMS);
        CHECK_INT(stager_rewind(stream), 0);
        CHECK_INT(stager_rewind(stream), -STAGER_FAILED_PRECONDITION);
    }
    struct stager_batch *batch = fixture_take(stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    CHECK_INT(info.pass, 3);
    CHECK_INT(info.number, 3 * N_ITEMS);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* Takes everything; reports the number of items, and the items as a bit mask. */
static void split_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", arg, 2);
    trainer_send(fd, 1);
    trainer_recv(fd);
    bool seen[N_ITEMS] = {false};
    take_all(stream, seen);
    int64_t mask = 0;
    for (int i = 0; i < N_ITEMS; i++)
        mask |= (int64_t)seen[i] << i;
    trainer_send(fd, mask);
    trainer_recv(fd);
    stager_close(stream);
}

static void split_gives_each_batch_to_exactly_one(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "capacity: 2, num_threads: 3, num_clients: 3");
    struct trainer trainers[3];
    char names[3][2] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        trainer_start(&trainers[i], split_body, &fixture, names[i]);
    for (int i = 0; i < 3; i++)
        trainer_recv(trainers[i].fd);
    for (int i = 0; i < 3; i++)
        trainer_send(trainers[i].fd, 1);
    int64_t all = 0;
    for (int i = 0; i < 3; i++) {
        int64_t mask = trainer_recv(trainers[i].fd);
        CHECK_INT(all & mask, 0);
        all |= mask;
    }
    CHECK_INT(all, (1ll << N_ITEMS) - 1);
    for (int i = 0; i < 3; i++) {
        trainer_send(trainers[i].fd, 1);
        trainer_join(&trainers[i]);
    }
    fixture_finish(&fixture);
}

static void broadcast_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_stream *stream = fixture_open(fixture, "rows", arg, 2);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < N_ITEMS; i++) {
            struct stager_batch *batch = fixture_take(stream);
            CHECK_INT(check_batch(batch), pass * N_ITEMS + i);
            stager_release(batch);
        }
        struct stager_batch *batch;
        CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
        CHECK_INT(stager_rewind(stream), 0);
    }
    trainer_send(fd, 1);
    trainer_recv(fd);
    stager_close(stream);
}

static bool all_are_assigned(const struct fixture_status *status, void *arg)
{
    return status->assigned == 4;
}

/* If a client leaves, the batches left in its ring go to the other client, even if the
 * daemon notices late. */
static void untaken_batches_are_not_lost_when_the_daemon_is_slow(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "capacity: 2, num_clients: 2");
    struct stager_stream *leaver = fixture_open(&fixture, "rows", "leaver", 2);
    struct stager_stream *other = fixture_open(&fixture, "rows", "other", 2);
    fixture_wait(&fixture, "rows", 10000, all_are_assigned, NULL);
    kill(fixture.pid, SIGSTOP);
    stager_close(leaver);
    kill(fixture.pid, SIGCONT);
    bool seen[N_ITEMS] = {false};
    CHECK_INT(take_all(other, seen), N_ITEMS);
    stager_close(other);
    fixture_finish(&fixture);
}

static void broadcast_gives_every_batch_to_all_in_order(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows",
                "capacity: 2, num_threads: 4, num_clients: 2, delivery: broadcast");
    struct trainer trainers[2];
    char names[2][2] = {"a", "b"};
    for (int i = 0; i < 2; i++)
        trainer_start(&trainers[i], broadcast_body, &fixture, names[i]);
    for (int i = 0; i < 2; i++)
        trainer_recv(trainers[i].fd);
    for (int i = 0; i < 2; i++) {
        trainer_send(trainers[i].fd, 1);
        trainer_join(&trainers[i]);
    }
    fixture_finish(&fixture);
}

static void broadcast_waits_until_all_are_there(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "num_clients: 2, delivery: broadcast");
    struct stager_stream *a = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(a, 50, &batch), -STAGER_DEADLINE_EXCEEDED);
    struct stager_stream *b = fixture_open(&fixture, "rows", "b", 2);
    batch = fixture_take(a);
    CHECK_INT(check_batch(batch), 0);
    stager_release(batch);
    batch = fixture_take(b);
    CHECK_INT(check_batch(batch), 0);
    stager_release(batch);
    stager_close(a);
    stager_close(b);
    fixture_finish(&fixture);
}

static void broadcast_without_all_clients_reports_the_missing_ones(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows",
                "num_clients: 3, delivery: broadcast, start_timeout_millis: 100");
    struct stager_stream *a = fixture_open(&fixture, "rows", "alice", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(a, 10000, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(a), "2 of num_clients 3");
    CHECK_CONTAINS(stager_error_text(a), "alice");
    stager_close(a);
    fixture_finish(&fixture);
}

static void broadcast_without_a_rewind_names_the_client(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: rows\n"
                            "dataset:\n  - range: {stop: 0}\n"
                            "  - batch: {batch_size: 2}\n"
                            "staged: {num_clients: 2, delivery: broadcast, "
                            "start_timeout_millis: 400}\n");
    struct stager_stream *a = fixture_open(&fixture, "rows", "alice", 2);
    struct stager_stream *b = fixture_open(&fixture, "rows", "bob", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(a, 10000, &batch), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_next(b, 10000, &batch), -STAGER_OUT_OF_RANGE);
    CHECK_INT(stager_rewind(a), 0);
    CHECK_INT(stager_next(a, 10000, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK_CONTAINS(stager_error_text(a), "missing: bob");
    stager_close(a);
    CHECK_INT(stager_rewind(b), 0); /* the remaining client continues */
    CHECK_INT(stager_next(b, 10000, &batch), -STAGER_OUT_OF_RANGE);
    stager_close(b);
    fixture_finish(&fixture);
}

static void a_fast_reader_runs_ahead_by_the_capacity_and_no_further(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "num_clients: 2, delivery: broadcast, capacity: 3");
    struct stager_stream *fast = fixture_open(&fixture, "rows", "fast", 2);
    struct stager_stream *slow = fixture_open(&fixture, "rows", "slow", 2);
    /* slow was assigned 2 (its credits) and never asks: fast gets those and 3 more. */
    for (int i = 0; i < 5; i++) {
        struct stager_batch *batch = fixture_take(fast);
        CHECK_INT(check_batch(batch), i);
        stager_release(batch);
    }
    struct stager_batch *batch;
    CHECK_INT(stager_next(fast, 100, &batch), -STAGER_DEADLINE_EXCEEDED);
    batch = fixture_take(slow);
    CHECK_INT(check_batch(batch), 0);
    stager_release(batch);
    batch = fixture_take(slow);
    stager_release(batch);
    batch = fixture_take(fast);
    CHECK_INT(check_batch(batch), 5);
    stager_release(batch);
    stager_close(fast);
    stager_close(slow);
    fixture_finish(&fixture);
}

static void one_client_more_than_num_clients_is_refused_by_name(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "num_clients: 1");
    struct stager_stream *a = fixture_open(&fixture, "rows", "alice", 2);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = "bob",
                                     .runtime_dir = fixture.runtime};
    struct stager_stream *b;
    CHECK_INT(stager_open(NULL, "rows", &options, &b), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(stager_error_text(NULL), "alice");
    stager_close(a);
    b = fixture_open(&fixture, "rows", "bob", 2);
    stager_release(fixture_take(b));
    stager_close(b);
    fixture_finish(&fixture);
}

static void holding_every_credit_is_an_error_that_names_the_batches(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "capacity: 4");
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *first = fixture_take(stream), *second = fixture_take(stream),
                        *third;
    CHECK_INT(stager_next(stream, -1, &third), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "0");
    CHECK_CONTAINS(stager_error_text(stream), "1");
    stager_release(first); /* any order is allowed */
    third = fixture_take(stream);
    CHECK_INT(check_batch(third), 2);
    CHECK_INT(check_batch(second), 1);
    stager_release(second);
    stager_release(third);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_bad_row_costs_its_batch_and_the_stream_continues(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    char path[256], yaml[1024], place[320];
    static const char text[] = "1,a\n2,b\n3,c\nx,d\n5,e\n6,f\n";
    fixture_file(&fixture, "rows.csv", text, sizeof(text) - 1, path);
    snprintf(yaml, sizeof(yaml),
             "name: rows\n"
             "dataset:\n  - files: {pattern: [%s]}\n  - text_line: {}\n  - batch: "
             "{batch_size: 2}\n"
             "graph:\n  - {name: c, op: decode_csv, input: [record], record_defaults: "
             "[0, \"\"]}\n"
             "staged: {features: {n: \"c:0\", s: \"c:1\"}, capacity: 4}\n",
             path);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *batch = fixture_take(stream);
    stager_release(batch);
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_INVALID_ARGUMENT);
    snprintf(place, sizeof(place), "%s", path);
    CHECK_CONTAINS(stager_error_text(stream), place);
    CHECK_CONTAINS(stager_error_text(stream), "line 4");
    CHECK_CONTAINS(stager_error_text(stream), "x");
    batch = fixture_take(stream);
    struct stager_tensor n;
    CHECK_INT(stager_batch_tensor(batch, "n", &n), 0);
    CHECK_INT(((const int32_t *)n.data)[0], 5);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    CHECK_INT(info.number, 2); /* the error item has number 1 */
    stager_release(batch);
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.errors, 1);
    CHECK_CONTAINS(status.last_error, "line 4");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_missing_file_is_reported_to_every_trainer(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: rows\n"
                            "dataset:\n  - files: {pattern: [/nonexistent/x.csv]}\n"
                            "  - text_line: {}\n  - batch: {batch_size: 2}\n"
                            "staged: {num_clients: 2}\n");
    struct stager_stream *a = fixture_open(&fixture, "rows", "a", 2);
    struct stager_stream *b = fixture_open(&fixture, "rows", "b", 2);
    struct stager_batch *batch;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(stager_next(a, 10000, &batch), -STAGER_NOT_FOUND);
        CHECK_CONTAINS(stager_error_text(a), "/nonexistent/x.csv");
        CHECK_INT(stager_next(b, 10000, &batch), -STAGER_NOT_FOUND);
    }
    stager_close(a);
    stager_close(b);
    fixture_finish(&fixture);
}

static void an_empty_file_is_an_end_at_once(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    char path[256], yaml[512];
    fixture_file(&fixture, "empty.csv", "", 0, path);
    snprintf(yaml, sizeof(yaml),
             "name: rows\ndataset:\n  - files: {pattern: [%s]}\n  - text_line: {}\n"
             "  - repeat: {count: -1}\n  - batch: {batch_size: 2}\n",
             path);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 10000, &batch), -STAGER_OUT_OF_RANGE);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_private_run_starts_at_the_start_and_disturbs_no_other_run(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_range(&fixture, "rows", "capacity: 1");
    struct stager_stream *shared = fixture_open(&fixture, "rows", "a", 2);
    struct stager_batch *batch = fixture_take(shared);
    stager_release(batch);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = "cat",
                                     .runtime_dir = fixture.runtime,
                                     .private_run = 1};
    struct stager_stream *private;
    CHECK_INT(stager_open(NULL, "rows", &options, &private), 0);
    bool seen[N_ITEMS] = {false};
    CHECK_INT(take_all(private, seen), N_ITEMS);
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.n_clients, 1);
    batch = fixture_take(shared);
    CHECK_INT(check_batch(batch), 1);
    stager_release(batch);
    stager_close(private);
    stager_close(shared);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(one_trainer_gets_every_batch_in_order_and_then_the_end),
    TEST(a_rewind_begins_the_next_pass),
    TEST(split_gives_each_batch_to_exactly_one),
    TEST(untaken_batches_are_not_lost_when_the_daemon_is_slow),
    TEST(broadcast_gives_every_batch_to_all_in_order),
    TEST(broadcast_waits_until_all_are_there),
    TEST(broadcast_without_all_clients_reports_the_missing_ones),
    TEST(broadcast_without_a_rewind_names_the_client),
    TEST(a_fast_reader_runs_ahead_by_the_capacity_and_no_further),
    TEST(one_client_more_than_num_clients_is_refused_by_name),
    TEST(holding_every_credit_is_an_error_that_names_the_batches),
    TEST(a_bad_row_costs_its_batch_and_the_stream_continues),
    TEST(a_missing_file_is_reported_to_every_trainer),
    TEST(an_empty_file_is_an_end_at_once),
    TEST(a_private_run_starts_at_the_start_and_disturbs_no_other_run),
};

TEST_MAIN(tests)
