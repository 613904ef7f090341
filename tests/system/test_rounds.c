/* SPDX-License-Identifier: Apache-2.0
 *
 * round_robin: whole rounds, an item for each rank, and no rank ever a step ahead of
 * another. The items are lines of one number; a line "x" is an error.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define MAX_RANKS 3

static void apply_lines(struct fixture *fixture, const char *text, const char *staged)
{
    char path[256], yaml[2048];
    fixture_file(fixture, "lines.txt", text, strlen(text), path);
    snprintf(yaml, sizeof(yaml),
             "name: p\n"
             "dataset:\n  - files: {pattern: %s}\n  - text_line: {}\n"
             "graph:\n  - {name: n, op: decode_csv, input: [record], record_defaults: "
             "[0]}\n"
             "staged: {features: {n: n}, max_batch_bytes: 64KiB, delivery: round_robin, "
             "%s}\n",
             path, staged);
    fixture_apply(fixture, yaml);
}

static void open_ranks(struct fixture *fixture, int n, struct stager_stream **ret)
{
    static const char *const names[MAX_RANKS] = {"zoe", "bob", "amy"};
    for (int r = 0; r < n; r++)
        ret[r] = fixture_open(fixture, "p", names[r], 2);
}

static int value_of(const struct stager_batch *batch)
{
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "n", &tensor), 0);
    return *(const int32_t *)tensor.data;
}

static void expect_value(struct stager_stream *stream, int value)
{
    struct stager_batch *batch = fixture_take(stream);
    CHECK_INT(value_of(batch), value);
    stager_release(batch);
}

/* Checks for the items offered before, then the code. */
static void drain(struct stager_stream *stream, int code, const char *text)
{
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(stream, fixture_millis(20000), &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -code);
    CHECK_CONTAINS(stager_error_text(stream), text);
}

static void close_all(struct stager_stream **streams, int n)
{
    for (int r = 0; r < n; r++)
        stager_close(streams[r]);
}

static void each_rank_gets_its_item_of_each_round(void)
{
    struct fixture fixture;
    struct stager_stream *ranks[3];
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n",
                "num_clients: 3, num_threads: 2, capacity: 2");
    open_ranks(&fixture, 3, ranks);
    for (int pass = 0; pass < 2; pass++) {
        for (int round = 0; round < 4; round++) {
            for (int r = 2; r >= 0; r--) /* the order of requests does not matter */
                expect_value(ranks[r], 3 * round + r);
        }
        for (int r = 0; r < 3; r++)
            fixture_expect_code(ranks[r], STAGER_OUT_OF_RANGE, "end of pass");
        for (int r = 0; r < 3; r++)
            CHECK_INT(stager_rewind(ranks[r]), 0);
    }
    struct fixture_status status = fixture_balance(&fixture);
    for (uint32_t i = 0; i < status.n_clients; i++) {
        if (strcmp(status.clients[i].client_id, "amy") == 0)
            CHECK_INT(status.clients[i].rank, 2);
        if (strcmp(status.clients[i].client_id, "zoe") == 0)
            CHECK_INT(status.clients[i].rank, 0);
    }
    close_all(ranks, 3);
    fixture_finish(&fixture);
}

static void an_incomplete_last_round_is_not_delivered(void)
{
    struct fixture fixture;
    struct stager_stream *ranks[3];
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n2\n3\n4\n", "num_clients: 3, num_threads: 2");
    open_ranks(&fixture, 3, ranks);
    for (int r = 0; r < 3; r++)
        expect_value(ranks[r], r);
    for (int r = 0; r < 3; r++)
        fixture_expect_code(ranks[r], STAGER_OUT_OF_RANGE, "end of pass");
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.incomplete_rounds, 2);
    CHECK_INT(status.discarded_published, 2);
    CHECK_INT(status.acknowledged, 3);
    close_all(ranks, 3);
    fixture_finish(&fixture);
}

static void an_error_item_is_a_step_of_every_rank_and_loses_nothing(void)
{
    struct fixture fixture;
    struct stager_stream *ranks[2];
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n2\nx\n4\nx\n6\n", "num_clients: 2, capacity: 2");
    open_ranks(&fixture, 2, ranks);
    expect_value(ranks[0], 0);
    expect_value(ranks[1], 1);
    for (int r = 0; r < 2; r++)
        fixture_expect_code(ranks[r], STAGER_INVALID_ARGUMENT, "line 4");
    expect_value(ranks[0], 2);
    expect_value(ranks[1], 4);
    for (int r = 0; r < 2; r++)
        fixture_expect_code(ranks[r], STAGER_INVALID_ARGUMENT, "line 6");
    for (int r = 0; r < 2; r++)
        fixture_expect_code(ranks[r], STAGER_OUT_OF_RANGE, "end of pass");
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.errors, 2);
    CHECK_INT(status.incomplete_rounds, 1);
    CHECK_INT(status.acknowledged, 6);
    CHECK_INT(status.n_attached, 2);
    for (uint32_t i = 0; i < status.n_clients; i++) {
        CHECK_INT(status.clients[i].assigned, 4);
        CHECK_INT(status.clients[i].taken, 4);
        CHECK_INT(status.clients[i].acknowledged, 4);
        CHECK_CONTAINS(status.clients[i].last_error, "INVALID_ARGUMENT: item 5");
    }
    close_all(ranks, 2);
    fixture_finish(&fixture);
}

static void ignored_items_are_left_out_before_dealing(void)
{
    struct fixture fixture;
    struct stager_stream *ranks[2];
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\nx\n2\n3\nx\nx\n6\n7\n8\n",
                "num_clients: 2, ignored_exception_types: [INVALID_ARGUMENT]");
    open_ranks(&fixture, 2, ranks);
    static const int dealt[][2] = {{0, 2}, {3, 6}, {7, 8}};
    for (int i = 0; i < 3; i++) {
        expect_value(ranks[0], dealt[i][0]);
        expect_value(ranks[1], dealt[i][1]);
    }
    for (int r = 0; r < 2; r++)
        fixture_expect_code(ranks[r], STAGER_OUT_OF_RANGE, "end of pass");
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.ignored, 3);
    for (uint32_t i = 0; i < status.n_clients; i++) /* before 2, and before 6 */
        CHECK_INT(status.clients[i].gaps, status.clients[i].rank == 1 ? 3 : 0);
    close_all(ranks, 2);
    fixture_finish(&fixture);
}

static void it_begins_when_all_ranks_are_there(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n", "num_clients: 2");
    struct stager_stream *a = fixture_open(&fixture, "p", "a", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(a, 50, &batch), -STAGER_DEADLINE_EXCEEDED);
    struct stager_stream *b = fixture_open(&fixture, "p", "b", 2);
    expect_value(a, 0);
    expect_value(b, 1);
    stager_close(a);
    stager_close(b);
    fixture_finish(&fixture);
}

static void a_missing_rank_is_reported(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n", "num_clients: 2, start_timeout_millis: 100");
    struct stager_stream *a = fixture_open(&fixture, "p", "alice", 2);
    fixture_expect_code(a, STAGER_DEADLINE_EXCEEDED, "1 of num_clients 2 did not attach");
    stager_close(a);
    fixture_finish(&fixture);
}

static bool all_offered(const struct fixture_status *status, void *arg)
{
    uint64_t n = *(const uint64_t *)arg;
    return status->n_attached == 2 && status->clients[0].assigned == n &&
           status->clients[1].assigned == n;
}

static void no_rank_is_offered_a_round_that_another_is_not(void)
{
    struct fixture fixture;
    struct stager_stream *ranks[2];
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n",
                "num_clients: 2, capacity: 2");
    open_ranks(&fixture, 2, ranks);
    uint64_t n = 2; /* credits of each */
    fixture_wait(&fixture, "p", 10000, all_offered, &n);
    expect_value(ranks[0], 0);
    expect_value(ranks[0], 2);
    struct stager_batch *batch; /* rank 1 holds both of its items */
    CHECK_INT(stager_next(ranks[0], 100, &batch), -STAGER_DEADLINE_EXCEEDED);
    fixture_wait(&fixture, "p", 10000, all_offered, &n);
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.buffered, 4); /* two rounds */
    CHECK(status.clients[0].daemon_wait_ns + status.clients[1].daemon_wait_ns > 0);
    expect_value(ranks[1], 1);
    n = 3;
    fixture_wait(&fixture, "p", 10000, all_offered, &n);
    close_all(ranks, 2);
    fixture_finish(&fixture);
}

/* Takes two batches, releases the first, and waits to be killed. */
static void rank_body(struct fixture *fixture, int fd, void *arg)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = arg,
                                     .runtime_dir = fixture->runtime,
                                     .manual_ack = 1};
    struct stager_stream *stream;
    CHECK_INT(stager_open(NULL, "p", &options, &stream), 0);
    trainer_send(fd, 1);
    expect_value(stream, 1);
    struct stager_batch *batch = fixture_take(stream);
    trainer_send(fd, value_of(batch));
    trainer_recv(fd);
}

static const char ten[] = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n";

static void a_rank_that_reconnects_resumes_at_its_position(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, ten, "num_clients: 2, capacity: 2");
    struct stager_stream *first = fixture_open(&fixture, "p", "first", 2);
    struct trainer second;
    char name[] = "second";
    trainer_start(&second, rank_body, &fixture, name);
    trainer_recv(second.fd);
    expect_value(first, 0);
    CHECK_INT(trainer_recv(second.fd), 3);
    uint64_t n = 3;
    fixture_wait(&fixture, "p", 10000, all_offered, &n);
    trainer_kill(&second);
    expect_value(first, 2);
    expect_value(first, 4); /* offered to both before */
    struct stager_batch *batch;
    CHECK_INT(stager_next(first, 100, &batch), -STAGER_DEADLINE_EXCEEDED);
    struct stager_stream *again = fixture_open(&fixture, "p", "second", 2);
    for (int i = 3; i <= 9; i += 2) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        batch = fixture_take(again);
        stager_batch_info(batch, &info);
        CHECK_INT(value_of(batch), i);
        CHECK_INT(info.redelivered, i <= 5);
        stager_release(batch);
        if (i >= 7)
            expect_value(first, i - 1);
    }
    fixture_expect_code(first, STAGER_OUT_OF_RANGE, "end of pass");
    fixture_expect_code(again, STAGER_OUT_OF_RANGE, "end of pass");
    struct fixture_status status = fixture_balance(&fixture);
    CHECK_INT(status.lost, 0);
    CHECK_INT(status.redelivered, 2);
    stager_close(first);
    stager_close(again);
    fixture_finish(&fixture);
}

static void a_rank_that_does_not_reconnect_in_time_ends_the_pass_for_all(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, ten,
                "num_clients: 2, capacity: 2, reconnect_grace_millis: 300");
    struct stager_stream *ranks[2];
    open_ranks(&fixture, 2, ranks);
    expect_value(ranks[0], 0);
    expect_value(ranks[1], 1);
    stager_close(ranks[1]);
    drain(ranks[0], STAGER_ABORTED, "rank 1, client bob");
    CHECK_CONTAINS(stager_error_text(ranks[0]), "reconnect_grace_millis 300");
    stager_close(ranks[0]);
    open_ranks(&fixture, 2, ranks); /* a new pass */
    expect_value(ranks[0], 0);
    expect_value(ranks[1], 1);
    fixture_balance(&fixture);
    close_all(ranks, 2);
    fixture_finish(&fixture);
}

static void a_rank_without_a_name_that_leaves_ends_it_at_once(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, ten, "num_clients: 2");
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime};
    struct stager_stream *stay = fixture_open(&fixture, "p", "stay", 2), *leave;
    CHECK_INT(stager_open(NULL, "p", &options, &leave), 0);
    expect_value(stay, 0);
    expect_value(leave, 1);
    stager_close(leave);
    drain(stay, STAGER_ABORTED, "without rank 1, client ");
    stager_close(stay);
    fixture_finish(&fixture);
}

static void a_rank_that_is_lost_ends_a_warm_stage_too(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, ten,
                "num_clients: 2, keep_warm: true, reconnect_grace_millis: 0");
    for (int run = 0; run < 2; run++) { /* the next clients begin a new one */
        struct stager_stream *ranks[2];
        open_ranks(&fixture, 2, ranks);
        expect_value(ranks[0], 0);
        expect_value(ranks[1], 1);
        stager_close(ranks[1]);
        drain(ranks[0], STAGER_ABORTED, "without rank 1, client ");
        stager_close(ranks[0]);
    }
    fixture_finish(&fixture);
}

static void a_new_client_takes_the_rank_of_one_that_left_between_passes(void)
{
    struct fixture fixture;
    struct stager_stream *ranks[2];
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n", "num_clients: 2");
    open_ranks(&fixture, 2, ranks);
    for (int r = 0; r < 2; r++) {
        expect_value(ranks[r], r);
        fixture_expect_code(ranks[r], STAGER_OUT_OF_RANGE, "end of pass");
    }
    stager_close(ranks[0]);
    CHECK_INT(stager_rewind(ranks[1]), 0);
    struct stager_batch *batch;
    CHECK_INT(stager_next(ranks[1], 50, &batch), -STAGER_DEADLINE_EXCEEDED);
    ranks[0] = fixture_open(&fixture, "p", "eve", 2);
    expect_value(ranks[0], 0);
    expect_value(ranks[1], 1);
    close_all(ranks, 2);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(each_rank_gets_its_item_of_each_round),
    TEST(an_incomplete_last_round_is_not_delivered),
    TEST(an_error_item_is_a_step_of_every_rank_and_loses_nothing),
    TEST(ignored_items_are_left_out_before_dealing),
    TEST(it_begins_when_all_ranks_are_there),
    TEST(a_missing_rank_is_reported),
    TEST(no_rank_is_offered_a_round_that_another_is_not),
    TEST(a_rank_that_reconnects_resumes_at_its_position),
    TEST(a_rank_that_does_not_reconnect_in_time_ends_the_pass_for_all),
    TEST(a_rank_without_a_name_that_leaves_ends_it_at_once),
    TEST(a_rank_that_is_lost_ends_a_warm_stage_too),
    TEST(a_new_client_takes_the_rank_of_one_that_left_between_passes),
};

TEST_MAIN(tests)
