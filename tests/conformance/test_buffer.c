/* SPDX-License-Identifier: Apache-2.0
 *
 * The buffer between the runners and the trainers: STAGE-C1 to C12 of the stage contract
 * (docs/delivery.md), each with a real daemon and trainers in separate processes.
 */
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/pipelines.h"

static const struct actor_options one_credit = {.max_in_flight = 1};

static void stage_c1_items_come_in_the_order_of_the_source(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 50, "", "capacity: 3");
    actor_start(&actor, &fixture, NULL);
    int64_t values[50];
    int n;
    struct actor_result end = actor_drain(&actor, values, 50, &n);
    CHECK_INT(end.rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 50);
    check_sequence(values, n, 0, 1);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c2_a_full_buffer_blocks_until_one_is_taken(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 50, "", "capacity: 2");
    actor_start(&actor, &fixture, &one_credit);
    WAIT_FOR(&fixture, made, 4); /* one assigned, two buffered, one held by the runner */
    WAIT_FOR(&fixture, published, 3);
    for (int i = 0; i < 20; i++) {
        struct fixture_status status;
        fixture_status(&fixture, "rows", &status);
        CHECK_INT(status.published, 3);
        CHECK_INT(status.buffered, 2);
        CHECK_INT(status.in_hand, 1);
    }
    CHECK_INT(actor_take(&actor), 0);
    CHECK_INT(actor_take(&actor), 1); /* the next call acknowledges the first batch */
    WAIT_FOR(&fixture, published, 5);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c3_an_empty_buffer_blocks_until_something_comes(void)
{
    struct fixture fixture;
    struct actor holder, waiter;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 2, "", "capacity: 1, num_clients: 2");
    actor_start(&holder, &fixture, NULL);
    CHECK_INT(actor_keep(&holder).value, 0);
    CHECK_INT(actor_keep(&holder).value, 1);
    actor_start(&waiter, &fixture, NULL);
    CHECK_INT(actor_next(&waiter, 0).rc, -STAGER_DEADLINE_EXCEEDED);
    actor_begin_next(&waiter, -1);
    CHECK(!actor_answered(&waiter, 50));
    actor_kill(&holder); /* the unacknowledged batch is redelivered */
    struct actor_result got = actor_end(&waiter);
    CHECK_INT(got.rc, 0);
    CHECK_INT(got.value, 1);
    CHECK(got.redelivered);
    actor_leave(&waiter);
    fixture_finish(&fixture);
}

static void stage_c4_capacity_and_num_threads_bound_what_is_made_ahead(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 100, "", "capacity: 3, num_threads: 4");
    actor_start(&actor, &fixture, &one_credit);
    WAIT_FOR(&fixture, made, 1 + 3 + 4);
    for (int i = 0; i < 20; i++) {
        struct fixture_status status;
        fixture_status(&fixture, "rows", &status);
        CHECK_INT(status.made, 1 + 3 + 4);
    }
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c5_nothing_is_published_after_a_stop_even_with_room(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 10, graph_sleeping(2000), "capacity: 4");
    actor_start(&actor, &fixture, NULL);
    WAIT_FOR(&fixture, in_hand, 1);
    actor_leave(&actor);
    wait_state(&fixture, "idle");
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.made, 1);
    CHECK_INT(status.published, 0);
    CHECK_INT(status.discarded, 1);
    check_accounts(&fixture);
    fixture_finish(&fixture);
}

static void stage_c6_a_stop_drains_then_says_its_code(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 50, "", "capacity: 3");
    actor_start(&actor, &fixture, &one_credit);
    WAIT_FOR(&fixture, published, 4);
    CHECK_INT(replace_rows(&fixture, 60, "", "capacity: 3"), 0);
    int64_t values[50];
    int n;
    struct actor_result end = actor_drain(&actor, values, 50, &n);
    CHECK_INT(end.rc, -STAGER_ABORTED);
    CHECK_CONTAINS(end.text, "replaced by generation");
    CHECK_INT(n, 4);
    check_sequence(values, n, 0, 1);
    CHECK_INT(actor_next(&actor, -1).rc, -STAGER_ABORTED);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c7_the_end_drains_then_comes_to_all_again_and_again(void)
{
    struct fixture fixture;
    struct actor actors[3];
    fixture_start(&fixture, "");
    apply_rows(&fixture, 20, "", "capacity: 4, num_clients: 3");
    for (int i = 0; i < 3; i++)
        actor_start(&actors[i], &fixture, NULL);
    static struct actor_log logs[3];
    int64_t values[20];
    int n;
    actor_drain_all(actors, 3, logs);
    CHECK_INT(logs[0].n + logs[1].n + logs[2].n, 20);
    for (int i = 0; i < 3; i++) {
        for (int again = 0; again < 3; again++) {
            struct actor_result end = actor_drain(&actors[i], values, 0, &n);
            CHECK_INT(end.rc, -STAGER_OUT_OF_RANGE);
        }
        actor_leave(&actors[i]);
    }
    fixture_finish(&fixture);
}

static void stage_c8_the_end_wins_over_a_stop(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 3, "", "capacity: 4");
    actor_start(&actor, &fixture, NULL);
    int64_t values[3];
    int n;
    CHECK_INT(actor_drain(&actor, values, 3, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(delete_rows(&fixture), 0);
    CHECK_INT(actor_next(&actor, -1).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(actor_next(&actor, -1).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(actor_rewind(&actor), 0); /* only a further request reports the stop */
    struct actor_result gone = actor_next(&actor, -1);
    CHECK_INT(gone.rc, -STAGER_ABORTED);
    CHECK_CONTAINS(gone.text, "deleted");
    actor_leave(&actor);
    fixture_finish(&fixture);
}

/* Within a generation, published items stay in the buffer after the last trainer
 * leaves. */
static void stage_c9_leaving_does_not_clear_the_buffer(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 10, "", "capacity: 3, keep_warm: true");
    actor_start(&actor, &fixture, &one_credit);
    CHECK_INT(actor_take(&actor), 0);
    CHECK_INT(actor_take(&actor), 1);
    actor_leave(&actor);
    actor_start(&actor, &fixture, &one_credit);
    int64_t values[10];
    int n;
    CHECK_INT(actor_drain(&actor, values, 10, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 8);
    check_sequence(values, n, 2, 1);
    check_accounts(&fixture);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c10_the_status_says_how_many_are_buffered(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 6, "", "capacity: 5");
    actor_start(&actor, &fixture, &one_credit);
    WAIT_FOR(&fixture, published, 6);
    for (uint32_t left = 5; left > 0; left--) {
        struct fixture_status status;
        fixture_status(&fixture, "rows", &status);
        CHECK_INT(status.buffered, left);
        actor_take(&actor);
        WAIT_FOR(&fixture, assigned, 7 - left);
    }
    actor_take(&actor);
    CHECK_INT(actor_next(&actor, -1).rc, -STAGER_OUT_OF_RANGE);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c11_stopping_twice_is_stopping_once(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 50, "", "capacity: 2");
    actor_start(&actor, &fixture, NULL);
    CHECK_INT(actor_take(&actor), 0);
    CHECK_INT(delete_rows(&fixture), 0);
    CHECK_INT(delete_rows(&fixture), -STAGER_NOT_FOUND);
    int64_t values[50];
    int n;
    for (int again = 0; again < 3; again++)
        CHECK_INT(actor_drain(&actor, values, 50, &n).rc, -STAGER_ABORTED);
    CHECK_INT(n, 0);
    actor_leave(&actor);
    apply_rows(&fixture, 5, "", "capacity: 2");
    actor_start(&actor, &fixture, NULL);
    CHECK_INT(actor_drain(&actor, values, 50, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 5);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

/* DeepRec loses the item; in stager a batch names its tensors. */
static void stage_c12_asking_for_what_is_not_in_a_batch_loses_nothing(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 3, "", "capacity: 2");
    struct stager_stream *stream = fixture_open(&fixture, "rows", NULL, 2);
    for (int i = 0; i < 3; i++) {
        struct stager_batch *batch = fixture_take(stream);
        struct stager_tensor tensor;
        CHECK_INT(stager_batch_tensor(batch, "label", &tensor), -STAGER_NOT_FOUND);
        CHECK_CONTAINS(stager_error_text(stream), "value");
        CHECK_INT(stager_batch_tensor_at(batch, 1, &tensor), -STAGER_OUT_OF_RANGE);
        CHECK_INT(stager_batch_tensor(batch, "value", &tensor), 0);
        CHECK_INT(((const int64_t *)tensor.data)[0], i);
        stager_release(batch);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(stage_c1_items_come_in_the_order_of_the_source),
    TEST(stage_c2_a_full_buffer_blocks_until_one_is_taken),
    TEST(stage_c3_an_empty_buffer_blocks_until_something_comes),
    TEST(stage_c4_capacity_and_num_threads_bound_what_is_made_ahead),
    TEST(stage_c5_nothing_is_published_after_a_stop_even_with_room),
    TEST(stage_c6_a_stop_drains_then_says_its_code),
    TEST(stage_c7_the_end_drains_then_comes_to_all_again_and_again),
    TEST(stage_c8_the_end_wins_over_a_stop),
    TEST(stage_c9_leaving_does_not_clear_the_buffer),
    TEST(stage_c10_the_status_says_how_many_are_buffered),
    TEST(stage_c11_stopping_twice_is_stopping_once),
    TEST(stage_c12_asking_for_what_is_not_in_a_batch_loses_nothing),
};

TEST_MAIN(tests)
