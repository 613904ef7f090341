/* SPDX-License-Identifier: Apache-2.0
 *
 * Intended differences between stager and DeepRec's Stage: STAGE-D1 to D9 of the stage
 * contract (docs/delivery.md), each with a real daemon and trainers in separate
 * processes.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/pipelines.h"

static const struct actor_options one_credit = {.max_in_flight = 1};

static void stage_d1_a_dropped_item_is_counted_and_seen_as_a_gap(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 1000, "", "capacity: 1, timeout_millis: 30, on_timeout: drop");
    actor_start(&actor, &fixture, &one_credit);
    CHECK_INT(actor_keep(&actor).value, 0);
    WAIT_FOR(&fixture, dropped, 3);
    actor_release(&actor, UINT64_MAX);
    struct actor_result got = actor_keep(&actor); /* had room before the drops */
    CHECK_INT(got.value, 1);
    CHECK_INT(got.n_dropped, 0);
    actor_release(&actor, UINT64_MAX);
    got = actor_keep(&actor);
    CHECK(got.n_dropped >= 3);
    CHECK_INT(got.value, 2 + (int64_t)got.n_dropped);
    CHECK_INT(got.number, 2 + got.n_dropped);
    check_accounts(&fixture);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_d1_an_item_that_waits_is_counted_and_never_dropped(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 30, "", "capacity: 1, timeout_millis: 30"); /* the default */
    actor_start(&actor, &fixture, &one_credit);
    CHECK_INT(actor_keep(&actor).value, 0);
    WAIT_FOR(&fixture, timeouts, 2);
    actor_release(&actor, UINT64_MAX);
    int64_t values[30];
    int n;
    CHECK_INT(actor_drain(&actor, values, 30, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 29);
    check_sequence(values, n, 1, 1);
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.dropped, 0);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_d2_code_and_text_of_an_error_reach_the_trainer(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 6, graph_failing(6, 2, "PERMISSION_DENIED"), "num_threads: 2");
    actor_start(&actor, &fixture, NULL);
    CHECK_INT(actor_take(&actor), 0);
    CHECK_INT(actor_take(&actor), 1);
    struct actor_result error = actor_next(&actor, -1);
    CHECK_INT(error.rc, -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(error.text, "an item that fails");
    CHECK_CONTAINS(error.text, "out"); /* the node */
    CHECK_INT(actor_take(&actor), 3);  /* and the stream continues */
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.errors, 1);
    CHECK_CONTAINS(status.last_error, "an item that fails");
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_d3_an_error_is_never_masked_by_a_later_end(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    for (int i = 0; i < 10; i++) {
        /* The last item fails while other runners reach the end. */
        CHECK_INT(replace_rows(&fixture, 5 + i, graph_failing(5 + i, 4 + i, "DATA_LOSS"),
                               "num_threads: 4, capacity: 4"),
                  0);
        actor_start(&actor, &fixture, NULL);
        int64_t values[16];
        int n;
        CHECK_INT(actor_drain(&actor, values, 16, &n).rc, -STAGER_DATA_LOSS);
        CHECK_INT(n, 4 + i);
        CHECK_INT(actor_next(&actor, -1).rc, -STAGER_OUT_OF_RANGE);
        actor_leave(&actor);
        wait_state(&fixture, "idle");
    }
    fixture_finish(&fixture);
}

static void stage_d3_a_source_that_failed_never_ends_well(void)
{
    struct fixture fixture;
    struct actor actor;
    char path[256], yaml[1024];
    fixture_start(&fixture, "");
    fixture_numbers(&fixture, "numbers", 0, 8, path);
    snprintf(yaml, sizeof(yaml),
             "name: rows\ndataset:\n"
             "  - files: {pattern: [\"%s\", \"%.200s-missing\"], shuffle: false}\n"
             "  - text_line: {}\n  - batch: {batch_size: 2}\n"
             "staged: {num_threads: 3}\n",
             path, path);
    fixture_apply(&fixture, yaml);
    actor_start(&actor, &fixture, NULL);
    int64_t values[8];
    int n;
    struct actor_result end = actor_drain(&actor, values, 8, &n);
    CHECK_INT(end.rc, -STAGER_NOT_FOUND);
    CHECK_CONTAINS(end.text, "-missing");
    for (int again = 0; again < 3; again++)
        CHECK_INT(actor_next(&actor, -1).rc, -STAGER_NOT_FOUND);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_d4_a_new_pass_holds_nothing_of_the_last_one(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 7, "", "capacity: 5, num_threads: 3");
    actor_start(&actor, &fixture, NULL);
    for (uint64_t pass = 0; pass < 5; pass++) {
        for (int i = 0; i < 7; i++) {
            struct actor_result got = actor_keep(&actor);
            CHECK_INT(got.pass, pass);
            CHECK_INT(got.value, i);
            CHECK_INT(got.index, i);
            CHECK_INT(got.number, pass * 7 + (uint64_t)i);
            actor_release(&actor, got.number);
        }
        CHECK_INT(actor_next(&actor, -1).rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(actor_rewind(&actor), 0);
    }
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_d5_nothing_undoes_a_stop(void)
{
    struct fixture fixture;
    struct actor old, young;
    int64_t values[40];
    int n;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 20, "", "capacity: 2, num_threads: 2");
    actor_start(&old, &fixture, NULL);
    CHECK_INT(actor_take(&old), 0);
    CHECK_INT(replace_rows(&fixture, 40, "", "capacity: 2, num_threads: 2"), 0);
    actor_start(&young, &fixture, NULL); /* while the old run stops */
    CHECK_INT(actor_drain(&young, values, 40, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 40);
    CHECK_INT(actor_drain(&old, values, 40, &n).rc, -STAGER_ABORTED);
    CHECK(n < 19);
    CHECK(actor_rewind(&old) < 0); /* the pass had not ended */
    CHECK_INT(actor_next(&old, -1).rc, -STAGER_ABORTED);
    actor_leave(&old);
    actor_leave(&young);
    fixture_finish(&fixture);
}

static void stage_d6_a_wait_has_a_deadline_and_can_be_polled(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 2, graph_sleeping(1000), "capacity: 1");
    struct stager_stream *stream = fixture_open(&fixture, "rows", NULL, 2);
    struct stager_batch *batch;
    int64_t began = now_millis();
    CHECK_INT(stager_next(stream, 20, &batch), -STAGER_DEADLINE_EXCEEDED);
    CHECK(now_millis() - began >= 20);
    for (int i = 0; i < 2; i++) {
        int rc;
        while ((rc = stager_next(stream, 0, &batch)) == -STAGER_DEADLINE_EXCEEDED) {
            struct pollfd fd = {.fd = stager_pollfd(stream), .events = POLLIN};
            CHECK(poll(&fd, 1, (int)fixture_millis(10000)) == 1);
        }
        CHECK_INT(rc, 0);
        stager_release(batch);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

static void stage_d7_a_runner_that_is_cancelled_wakes_the_takers(void)
{
    struct fixture fixture;
    struct actor actors[2];
    fixture_start(&fixture, "");
    apply_rows(&fixture, 10, graph_failing(10, 0, "CANCELLED"), "num_clients: 2");
    actor_start(&actors[0], &fixture, NULL);
    actor_begin_next(&actors[0], -1);
    actor_start(&actors[1], &fixture, NULL);
    CHECK_INT(actor_end(&actors[0]).rc, -STAGER_CANCELLED);
    struct actor_result second = actor_next(&actors[1], -1);
    CHECK_INT(second.rc, -STAGER_CANCELLED);
    CHECK_CONTAINS(second.text, "an item that fails");
    actor_leave(&actors[0]);
    actor_leave(&actors[1]);
    fixture_finish(&fixture);
}

static void stage_d8_a_runner_that_waits_for_room_holds_no_pool_thread(void)
{
    struct fixture fixture;
    struct actor blocked, other;
    char other_yaml[] = "name: other\ndataset:\n  - range: {stop: 50}\n"
                        "  - batch: {batch_size: 1}\n"
                        "staged: {use_stage_subgraph_thread_pool: true}\n";
    fixture_start(&fixture, "thread_pools: [{global_name: one}]\n");
    apply_rows(&fixture, 50, "", "num_threads: 4, use_stage_subgraph_thread_pool: true");
    actor_start(&blocked, &fixture, &one_credit);
    /* each of the four runners holds an item and finds no room */
    WAIT_FOR(&fixture, made, 1 + 1 + 4);
    fixture_apply(&fixture, other_yaml);
    actor_start(&other, &fixture, &(struct actor_options){.pipeline = "other"});
    int64_t values[50];
    int n;
    CHECK_INT(actor_drain(&other, values, 50, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 50);
    check_sequence(values, n, 0, 1);
    CHECK_INT(actor_take(&blocked), 0);
    actor_leave(&blocked);
    actor_leave(&other);
    fixture_finish(&fixture);
}

static void stage_d9_ignored_errors_are_bounded(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 1000, graph_failing(1, 0, "DATA_LOSS"),
               "ignored_exception_types: [DATA_LOSS], max_ignored: 10, num_threads: 2");
    actor_start(&actor, &fixture, NULL);
    struct actor_result end = actor_next(&actor, -1);
    CHECK_INT(end.rc, -STAGER_DATA_LOSS);
    CHECK_CONTAINS(end.text, "max_ignored");
    CHECK_CONTAINS(end.text, "an item that fails");
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.ignored, 10);
    CHECK_INT(actor_next(&actor, -1).rc, -STAGER_DATA_LOSS);
    actor_leave(&actor);
    /* Without a limit, an end that is ignored and not closed would repeat for ever. It
     * occurs once. */
    CHECK_INT(replace_rows(&fixture, 3, "",
                           "closed_exception_types: [], "
                           "ignored_exception_types: [OUT_OF_RANGE]"),
              0);
    actor_start(&actor, &fixture, NULL);
    int64_t values[3];
    int n;
    end = actor_drain(&actor, values, 3, &n);
    CHECK_INT(n, 3);
    CHECK_INT(end.rc, -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(end.text, "not in closed_exception_types");
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(stage_d1_a_dropped_item_is_counted_and_seen_as_a_gap),
    TEST(stage_d1_an_item_that_waits_is_counted_and_never_dropped),
    TEST(stage_d2_code_and_text_of_an_error_reach_the_trainer),
    TEST(stage_d3_an_error_is_never_masked_by_a_later_end),
    TEST(stage_d3_a_source_that_failed_never_ends_well),
    TEST(stage_d4_a_new_pass_holds_nothing_of_the_last_one),
    TEST(stage_d5_nothing_undoes_a_stop),
    TEST(stage_d6_a_wait_has_a_deadline_and_can_be_polled),
    TEST(stage_d7_a_runner_that_is_cancelled_wakes_the_takers),
    TEST(stage_d8_a_runner_that_waits_for_room_holds_no_pool_thread),
    TEST(stage_d9_ignored_errors_are_bounded),
};

TEST_MAIN(tests)
