/* SPDX-License-Identifier: Apache-2.0
 *
 * The error of a `next` that times out names the object that the stream waits for, and
 * since when. The request for it takes negligible time and does not affect the stream.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

/* Takes and releases until the deadline passes; returns the error's text. */
static const char *dry(struct stager_stream *stream)
{
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(stream, fixture_millis(200), &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_DEADLINE_EXCEEDED);
    return stager_error_text(stream);
}

/* A daemon under load may reply late once: retries until the text contains `part`. */
static void check_why(struct stager_stream *stream, const char *part)
{
    for (int i = 0; i < 10 && strstr(dry(stream), part) == NULL; i++) {
    }
    CHECK_CONTAINS(stager_error_text(stream), "no batch of pipeline ");
    CHECK_CONTAINS(stager_error_text(stream), part);
    CHECK_CONTAINS(stager_error_text(stream), " s");
}

static void a_broadcast_names_the_client_that_its_buffer_is_full_for(void)
{
    struct fixture fixture;
    char part[128];
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 1000,
                        "capacity: 3, num_clients: 2, delivery: broadcast");
    struct stager_stream *fast = fixture_open(&fixture, "p", "fast", 1);
    struct stager_stream *slow = fixture_open(&fixture, "p", "slow", 1);
    snprintf(part, sizeof(part), "the buffer, capacity 3, is full: client slow (pid %d) ",
             (int)getpid());
    check_why(fast, part);
    CHECK_CONTAINS(stager_error_text(fast), "has not taken batch 0, which it was given ");
    struct stager_batch *batch = fixture_take(slow);
    check_why(fast, part);
    CHECK_CONTAINS(stager_error_text(fast), "has held batch 0 for ");
    stager_release(batch);
    stager_close(slow);
    stager_close(fast);
    fixture_finish(&fixture);
}

static void the_reason_for_a_late_start_names_the_number_of_missing_clients(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 10, "num_clients: 4, delivery: round_robin");
    struct stager_stream *streams[3];
    for (int i = 0; i < 3; i++)
        streams[i] = fixture_open(&fixture, "p", NULL, 1);
    check_why(streams[0], "round_robin begins when num_clients 4 are attached: 3 "
                          "attached, waiting for 1 more for ");
    for (int i = 0; i < 3; i++)
        stager_close(streams[i]);
    fixture_finish(&fixture);
}

static void a_rank_that_is_away_is_named(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 100, "num_clients: 2, delivery: round_robin");
    struct stager_stream *stays = fixture_open(&fixture, "p", "stays", 1);
    struct stager_stream *leaves = fixture_open(&fixture, "p", "leaves", 1);
    stager_release(fixture_take(leaves));
    stager_close(leaves);
    check_why(stays, "rank 1, client leaves (pid ");
    CHECK_CONTAINS(stager_error_text(stays), "has been away for ");
    CHECK_CONTAINS(stager_error_text(stays), "reconnect_grace_millis 30000");
    stager_close(stays);
    fixture_finish(&fixture);
}

static void a_client_that_does_not_ask_for_the_next_pass_is_named(void)
{
    struct fixture fixture;
    struct stager_batch *batch;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 1, "num_clients: 2, delivery: broadcast");
    struct stager_stream *asks = fixture_open(&fixture, "p", "asks", 1);
    struct stager_stream *rests = fixture_open(&fixture, "p", "rests", 1);
    for (int i = 0; i < 2; i++) {
        struct stager_stream *stream = i == 0 ? asks : rests;
        stager_release(fixture_take(stream));
        CHECK_INT(stager_next(stream, fixture_millis(20000), &batch),
                  -STAGER_OUT_OF_RANGE);
    }
    CHECK_INT(stager_rewind(asks), 0);
    check_why(asks, "pass 1 begins when every client asks for it, waiting for ");
    CHECK_CONTAINS(stager_error_text(asks), "client rests (pid ");
    stager_close(rests);
    stager_close(asks);
    fixture_finish(&fixture);
}

static void the_end_of_a_pass_names_the_client_that_holds_a_batch(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 2, "num_clients: 2");
    struct stager_stream *waits = fixture_open(&fixture, "p", "waits", 1);
    struct stager_stream *holds = fixture_open(&fixture, "p", "holds", 1);
    struct stager_batch *batch = fixture_take(holds);
    check_why(waits,
              "the pass ends when every batch is acknowledged: client holds (pid ");
    stager_release(batch);
    stager_close(holds);
    stager_close(waits);
    fixture_finish(&fixture);
}

/* A map takes a minute for the line. */
static void the_reason_for_a_slow_dataset_names_its_step_and_its_file(void)
{
    struct fixture fixture;
    char path[256], yaml[1024];
    fixture_start(&fixture, "");
    fixture_numbers(&fixture, "numbers", 60000000, 1, path);
    snprintf(yaml, sizeof(yaml),
             "name: p\n"
             "dataset:\n"
             "  - files: {pattern: \"%s\"}\n"
             "  - text_line\n"
             "  - map:\n"
             "      graph:\n"
             "        - {name: c, op: decode_csv, input: [record], "
             "record_defaults: [0]}\n"
             "        - {name: n, op: cast, input: [c], dtype: int64}\n"
             "        - {name: v, op: sleep, input: [n, n]}\n"
             "      output: {v: v}\n",
             path);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 1);
    check_why(stream, "the dataset is slow: it has worked on the next batch for ");
    CHECK_CONTAINS(stager_error_text(stream), "in step map (line 5)");
    CHECK_CONTAINS(stager_error_text(stream), path);
    stager_close(stream);
    fixture_kill(&fixture);
    fixture_finish(&fixture);
}

static void the_reason_for_a_slow_graph_names_its_start(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture,
                  "name: p\ndataset:\n  - range: {start: 60000000, stop: 60000001}\n"
                  "graph:\n  - {name: v, op: sleep, input: [value, value]}\n"
                  "staged: {features: {v: v}}\n");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 1);
    check_why(stream, "the stage graph is slow: 1 of 1 runners compute");
    stager_close(stream);
    fixture_kill(&fixture);
    fixture_finish(&fixture);
}

static void a_daemon_that_does_not_answer_costs_some_milliseconds(void)
{
    struct fixture fixture;
    struct stager_batch *batch;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 1000, "num_clients: 2, delivery: broadcast");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 1);
    CHECK_INT(kill(fixture.pid, SIGSTOP), 0);
    int64_t began = now_millis();
    for (int i = 0; i < 5; i++)
        CHECK_INT(stager_next(stream, 100, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK(now_millis() - began < fixture_millis(5000));
    CHECK_STR(stager_error_text(stream), "no batch of pipeline p within 100 ms");
    CHECK_INT(kill(fixture.pid, SIGCONT), 0);
    struct stager_stream *other = fixture_open(&fixture, "p", "d", 1);
    for (int i = 0; i < 100; i++) {
        stager_release(fixture_take(stream));
        stager_release(fixture_take(other));
    }
    stager_close(other);
    fixture_kill(&fixture);
    int rc;
    while ((rc = stager_next(stream, 100, &batch)) == 0) /* items delivered before */
        stager_release(batch);
    CHECK_INT(rc, -STAGER_UNAVAILABLE);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* Repeated polls get the reason too, and a doorbell that arrives during the request is
 * not lost. */
static void a_poll_gets_the_reason_and_wakes_all_the_same(void)
{
    struct fixture fixture;
    struct stager_batch *batch;
    fixture_start(&fixture, "");
    fixture_apply_range(&fixture, 20, "num_clients: 2, delivery: broadcast");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 1);
    int64_t until = now_millis() + fixture_millis(20000);
    do {
        CHECK(now_millis() < until);
        CHECK_INT(stager_next(stream, 0, &batch), -STAGER_DEADLINE_EXCEEDED);
    } while (strstr(stager_error_text(stream), "waiting for 1 more") == NULL);
    CHECK_CONTAINS(stager_error_text(stream), "within 0 ms: broadcast begins when ");
    struct stager_stream *other = fixture_open(&fixture, "p", "d", 1);
    for (int i = 0; i < 20; i++) {
        while (stager_next(stream, 0, &batch) == -STAGER_DEADLINE_EXCEEDED) {
            struct pollfd fd = {.fd = stager_pollfd(stream), .events = POLLIN};
            CHECK_INT(poll(&fd, 1, (int)fixture_millis(20000)), 1);
        }
        stager_release(batch);
        stager_release(fixture_take(other));
    }
    stager_close(other);
    stager_close(stream);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_broadcast_names_the_client_that_its_buffer_is_full_for, 30),
    TEST_SLOW(the_reason_for_a_late_start_names_the_number_of_missing_clients, 30),
    TEST_SLOW(a_rank_that_is_away_is_named, 30),
    TEST_SLOW(a_client_that_does_not_ask_for_the_next_pass_is_named, 30),
    TEST_SLOW(the_end_of_a_pass_names_the_client_that_holds_a_batch, 30),
    TEST_SLOW(the_reason_for_a_slow_dataset_names_its_step_and_its_file, 30),
    TEST_SLOW(the_reason_for_a_slow_graph_names_its_start, 30),
    TEST_SLOW(a_daemon_that_does_not_answer_costs_some_milliseconds, 30),
    TEST_SLOW(a_poll_gets_the_reason_and_wakes_all_the_same, 60),
};

TEST_MAIN(tests)
