/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of events in docs/delivery.md, one test for each row. A test covers the three
 * cells of its row: split, broadcast, round_robin. The trainers are alice and bob, with
 * twelve items.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/scene.h"

/* ---- clients attach ---- */

static void event_joins_at_the_start(void)
{
    EACH_DELIVERY(d)
    {
        scene_set(d, false, "", "");
        scene_join(&scene.alice, "alice");
        struct actor_result first = actor_next(&scene.alice, d == SPLIT ? -1 : 50);
        CHECK_INT(first.rc, d == SPLIT ? 0 : -STAGER_DEADLINE_EXCEEDED);
        CHECK(!first.over);
        if (d == SPLIT)
            actor_release(&scene.alice, first.number);
        scene_join(&scene.bob, "bob");
        scene_check_both_to_the_end(d == SPLIT ? 1 : 0);
        scene_finish();
    }
}

static void event_joins_late(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "start_timeout_millis: 200");
        if (d == ROUND_ROBIN) { /* a client that was there at the start takes its place */
            CHECK_INT(actor_take(&scene.alice), 0);
            CHECK_INT(actor_take(&scene.bob), 1);
            scene_check_both_to_the_end(2);
            scene_finish();
            continue;
        }
        actor_leave(&scene.bob);
        for (int i = 0; i < 4; i++)
            CHECK_INT(actor_take(&scene.alice), i);
        actor_keep(&scene.alice);
        scene_join(&scene.bob, "bob");
        actor_release(&scene.alice, UINT64_MAX);
        scene_drain_both();
        CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(scene.of_bob.end.rc, -STAGER_OUT_OF_RANGE);
        if (d == SPLIT)
            CHECK_INT(scene.of_alice.n + scene.of_bob.n, N_ITEMS - 5);
        else { /* from the next item to the end, in order */
            CHECK_INT(scene.of_alice.n, N_ITEMS - 5);
            CHECK(scene.of_bob.n > 0 && scene.of_bob.n < N_ITEMS);
            scene_check_log(&scene.of_bob, N_ITEMS - scene.of_bob.n, 1, scene.of_bob.n,
                            -STAGER_OUT_OF_RANGE);
        }
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void event_one_too_many(void)
{
    EACH_DELIVERY(d)
    {
        struct actor carol;
        scene_set_and_join(d, true, "", "");
        struct actor_result refused = actor_try_start(
            &carol, &scene.fixture, &(struct actor_options){.client_id = "carol"});
        CHECK_INT(refused.rc, -STAGER_RESOURCE_EXHAUSTED);
        CHECK_CONTAINS(refused.text, "alice");
        CHECK_CONTAINS(refused.text, "bob");
        refused = actor_try_start(&carol, &scene.fixture,
                                  &(struct actor_options){.client_id = "bob"});
        CHECK_INT(refused.rc, -STAGER_ALREADY_EXISTS);
        scene_check_both_to_the_end(0);
        scene_finish();
    }
}

/* ---- clients leave ---- */

static void event_leaves_cleanly(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        actor_leave(&scene.bob); /* alice gets the batches that bob left in its ring */
        scene_check_alice_goes_on("rank 1");
        scene_finish();
    }
}

/* Bob closes its stream and lives on with a batch. The batch is redelivered, and its
 * memory stays mapped. */
static void event_leaves_holding_a_batch(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        actor_keep(&scene.bob);
        actor_close(&scene.bob);
        if (d == SPLIT || d == BROADCAST)
            scene_check_alice_goes_on("");
        else {
            scene_drain(&scene.alice, &scene.of_alice);
            CHECK_INT(scene.of_alice.end.rc, -STAGER_ABORTED);
            actor_leave(&scene.alice);
        }
        actor_kill(&scene.bob);
        scene_finish();
    }
}

static void event_crashes(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        actor_keep(&scene.bob);
        actor_kill(&scene.bob);
        scene_check_alice_goes_on("");
        scene_finish();
    }
}

static void event_crashes_and_rejoins_in_time(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, true, "", "");
        actor_keep(&scene.bob);
        actor_kill(&scene.bob);
        scene_join(&scene.bob, "bob");
        scene_check_both_to_the_end(0);
        scene_finish();
    }
}

static void event_rejoins_too_late(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, true, "", "reconnect_grace_millis: 100");
        actor_keep(&scene.bob);
        actor_kill(&scene.bob);
        if (d == ROUND_ROBIN) {
            scene_check_alice_goes_on("bob");
        } else {
            for (int i = 0; i < 8; i++)
                /* the daemon waits for bob, until the grace period ends */
                actor_take(&scene.alice);
            if (d == BROADCAST)
                WAIT_FOR(&scene.fixture, evicted, 1);
            scene_join(&scene.bob, "bob");
            scene_drain_both();
            CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
            CHECK_INT(scene.of_bob.end.rc, -STAGER_OUT_OF_RANGE);
            CHECK(scene.of_bob.n <= N_ITEMS - 8);
            actor_leave(&scene.alice);
            actor_leave(&scene.bob);
        }
        scene_finish();
    }
}

static bool is_full(const struct fixture_status *status, void *arg)
{
    return status->buffered >= 2;
}

/* Buffered items are kept for the next client. A round_robin pass ends if a rank leaves
 * in the middle of it; after the end of a pass the buffer is kept. */
static void event_all_have_left_and_it_stays_warm(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "keep_warm: true");
        if (d == ROUND_ROBIN) {
            scene_check_both_to_the_end(0);
        } else {
            for (int i = 0; i < (d == SPLIT ? 1 : 4); i++)
                actor_take(&scene.bob);
            for (int i = 0; i < 4; i++)
                actor_take(&scene.alice);
            actor_leave(&scene.alice);
            actor_leave(&scene.bob);
            fixture_wait(&scene.fixture, "rows", 20000, is_full, NULL);
        }
        memset(&scene.of_alice, 0, sizeof(scene.of_alice));
        memset(&scene.of_bob, 0, sizeof(scene.of_bob));
        scene_join(&scene.alice, "alice");
        scene_join(&scene.bob, "bob");
        scene_drain_both();
        const struct actor_log *alice = &scene.of_alice, *bob = &scene.of_bob;
        CHECK_INT(alice->end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(bob->end.rc, -STAGER_OUT_OF_RANGE);
        if (d == SPLIT) {
            CHECK_INT(alice->n + bob->n, N_ITEMS - 5);
        } else if (d == BROADCAST) {
            CHECK(alice->n >= 2);
            scene_check_log(alice, N_ITEMS - alice->n, 1, alice->n, -STAGER_OUT_OF_RANGE);
            scene_check_log(bob, N_ITEMS - alice->n, 1, alice->n, -STAGER_OUT_OF_RANGE);
        } else {
            scene_check_log(alice, 0, 2, N_ITEMS / 2, -STAGER_OUT_OF_RANGE);
            scene_check_log(bob, 1, 2, N_ITEMS / 2, -STAGER_OUT_OF_RANGE);
            CHECK_INT(bob->steps[0].pass, 1);
        }
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

/* ---- slow clients ---- */

static void event_is_slow(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        struct actor_result held = actor_keep(&scene.bob); /* and requests no more */
        int n = 0;
        struct actor_result got;
        while ((got = actor_next(&scene.alice, 100)).rc == 0) {
            actor_release(&scene.alice, got.number);
            n++;
        }
        CHECK_INT(got.rc, -STAGER_DEADLINE_EXCEEDED);
        /* Bob holds two items. Split: alice gets the rest. Broadcast: alice is `capacity`
         * items ahead. Rounds: alice is as far as bob's offers. */
        CHECK_INT(n, d == SPLIT ? N_ITEMS - 2 : d == BROADCAST ? 4 : 2);
        actor_release(&scene.bob, held.number);
        scene_drain_both();
        CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(scene.of_bob.end.rc, -STAGER_OUT_OF_RANGE);
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void stopped(int d, bool holding)
{
    scene_set_and_join(d, false, "", "lease_timeout_millis: 200");
    if (holding)
        actor_keep(&scene.bob);
    actor_stop(&scene.bob);
    scene_check_alice_goes_on("");
    actor_continue(&scene.bob);
    struct actor_result got;
    do {
        got = actor_next(&scene.bob, -1);
    } while (got.rc == 0 && got.held < 2);
    if (got.rc != 0)
        CHECK(got.rc == -STAGER_DEADLINE_EXCEEDED || got.rc == -STAGER_ABORTED);
    actor_leave(&scene.bob);
    scene_finish();
}

static void event_is_stopped_holding_a_batch(void)
{
    EACH_DELIVERY(d) stopped(d, true);
}

static void event_is_stopped_holding_none(void)
{
    EACH_DELIVERY(d) stopped(d, false);
}

static void event_never_releases(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "lease_timeout_millis: 200");
        actor_keep(&scene.bob);
        actor_keep(&scene.bob);
        CHECK_INT(actor_next(&scene.bob, -1).rc, -STAGER_FAILED_PRECONDITION);
        scene_drain(&scene.alice, &scene.of_alice);
        CHECK_INT(scene.of_alice.end.rc,
                  d == ROUND_ROBIN ? -STAGER_ABORTED : -STAGER_OUT_OF_RANGE);
        struct actor_result got;
        actor_release(&scene.bob, UINT64_MAX);
        while ((got = actor_next(&scene.bob, -1)).rc == 0)
            actor_release(&scene.bob, got.number);
        CHECK_INT(got.rc, -STAGER_DEADLINE_EXCEEDED);
        CHECK_CONTAINS(got.text, "lease_timeout_millis");
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void event_releases_garbage(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        /* The pass has begun: earlier, another client could take the place. */
        CHECK_INT(actor_next(&scene.bob, -1).rc, 0);
        actor_forge(&scene.bob);
        scene_check_alice_goes_on("");
        struct actor_result got;
        while ((got = actor_next(&scene.bob, -1)).rc == 0)
            actor_release(&scene.bob, got.number);
        CHECK_INT(got.rc, -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(got.text, "detached");
        actor_leave(&scene.bob);
        scene_finish();
    }
}

/* ---- items ---- */

static void event_error_item(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, graph_failing(N_ITEMS, 5, "DATA_LOSS"), "");
        scene_drain_both();
        int n_errors[2] = {0};
        const struct actor_log *logs[] = {&scene.of_alice, &scene.of_bob};
        for (int k = 0; k < 2; k++) {
            CHECK_INT(logs[k]->end.rc, -STAGER_OUT_OF_RANGE);
            for (int i = 0; i < logs[k]->n; i++)
                n_errors[k] += logs[k]->steps[i].rc == -STAGER_DATA_LOSS;
        }
        if (d == SPLIT) {
            CHECK_INT(n_errors[0] + n_errors[1], 1);
            CHECK_INT(logs[0]->n + logs[1]->n, N_ITEMS);
        } else {
            CHECK_INT(n_errors[0], 1);
            CHECK_INT(n_errors[1], 1);
            /* Eleven items make five rounds and one item over; the error counts as a
             * step. */
            CHECK_INT(logs[0]->n, d == BROADCAST ? N_ITEMS : 6);
            CHECK_INT(logs[1]->n, logs[0]->n);
            for (int i = 0; i < logs[0]->n; i++)
                CHECK_INT(logs[0]->steps[i].rc, logs[1]->steps[i].rc);
        }
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void event_dropped_item(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "timeout_millis: 20, on_timeout: drop");
        WAIT_FOR(&scene.fixture, dropped, 2);
        scene_drain_both();
        struct fixture_status status;
        fixture_status(&scene.fixture, "rows", &status);
        CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(scene.of_bob.end.rc, -STAGER_OUT_OF_RANGE);
        int n = scene.of_alice.n + (d == BROADCAST ? 0 : scene.of_bob.n);
        CHECK_INT((uint64_t)n + status.dropped + status.incomplete_rounds, N_ITEMS);
        if (d != SPLIT)
            CHECK_INT(scene.of_alice.n, scene.of_bob.n);
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void event_ignored_item(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, graph_failing(6, 5, "DATA_LOSS"),
                           "ignored_exception_types: [DATA_LOSS]");
        scene_drain_both();
        struct fixture_status status;
        fixture_status(&scene.fixture, "rows", &status);
        CHECK_INT(status.ignored, 2);
        CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(scene.of_bob.end.rc, -STAGER_OUT_OF_RANGE);
        int n = scene.of_alice.n + (d == BROADCAST ? 0 : scene.of_bob.n);
        CHECK_INT(n, N_ITEMS - 2);
        if (d != SPLIT)
            CHECK_INT(scene.of_alice.n, scene.of_bob.n);
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void event_source_fails(void)
{
    EACH_DELIVERY(d)
    {
        char yaml[512];
        memset(&scene, 0, sizeof(scene));
        scene.delivery = d;
        fixture_start(&scene.fixture, "");
        snprintf(yaml, sizeof(yaml),
                 "name: rows\ndataset:\n"
                 "  - files: {pattern: [\"%.100s/none\"], shuffle: false}\n"
                 "  - text_line: {}\n  - batch: {batch_size: 2}\n"
                 "staged: {num_clients: 2, delivery: %s}\n",
                 scene.fixture.dir, scene_deliveries[d]);
        fixture_apply(&scene.fixture, yaml);
        scene_join(&scene.alice, "alice");
        scene_join(&scene.bob, "bob");
        scene_drain_both();
        CHECK_INT(scene.of_alice.end.rc, -STAGER_NOT_FOUND);
        CHECK_INT(scene.of_bob.end.rc, -STAGER_NOT_FOUND);
        CHECK_CONTAINS(scene.of_bob.end.text, "/none");
        CHECK_INT(actor_next(&scene.alice, -1).rc, -STAGER_NOT_FOUND); /* sticky */
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

/* ---- passes ---- */

static void event_end_of_a_pass_and_the_next(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        scene_drain_both();
        CHECK_INT(actor_next(&scene.alice, -1).rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(actor_rewind(&scene.alice), 0);
        CHECK_INT(actor_rewind(&scene.bob), 0);
        int first = scene.of_alice.n;
        scene_drain_both();
        CHECK_INT(scene.of_alice.end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(scene.of_bob.end.rc, -STAGER_OUT_OF_RANGE);
        for (int i = first; i < scene.of_alice.n; i++)
            CHECK_INT(scene.of_alice.steps[i].pass, 1);
        int n = scene.of_alice.n + (d == BROADCAST ? 0 : scene.of_bob.n);
        CHECK_INT(n, 2 * N_ITEMS);
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

static void event_not_all_ask_for_the_next_pass(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, true, "", "start_timeout_millis: 1500");
        scene_drain_both();
        CHECK_INT(actor_rewind(&scene.alice), 0);
        struct actor_result got = actor_next(&scene.alice, -1);
        if (d == SPLIT) {
            CHECK_INT(got.rc, 0); /* begins for alice alone */
            CHECK_INT(got.pass, 1);
        } else {
            CHECK_INT(got.rc, -STAGER_DEADLINE_EXCEEDED);
            CHECK_CONTAINS(got.text, "bob");
        }
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        scene_finish();
    }
}

/* ---- the pipeline ---- */

/* Published items are still delivered; then the trainer gets the reason. */
static void check_both_end_with(int code, const char *text)
{
    scene_drain_both();
    CHECK_INT(scene.of_alice.end.rc, code);
    CHECK_INT(scene.of_bob.end.rc, code);
    CHECK_CONTAINS(scene.of_alice.end.text, text);
    CHECK_CONTAINS(scene.of_bob.end.text, text);
    if (scene.delivery != SPLIT)
        CHECK_INT(scene.of_alice.n, scene.of_bob.n);
    actor_leave(&scene.alice);
    actor_leave(&scene.bob);
}

static void event_is_replaced(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        WAIT_FOR(&scene.fixture, published, 4);
        CHECK_INT(replace_rows(&scene.fixture, 99, "", ""), 0);
        check_both_end_with(-STAGER_ABORTED, "replaced by generation");
        CHECK(scene.of_alice.n + scene.of_bob.n >= 4);
        fixture_finish(&scene.fixture);
    }
}

static void event_is_deleted(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        WAIT_FOR(&scene.fixture, published, 4);
        CHECK_INT(delete_rows(&scene.fixture), 0);
        check_both_end_with(-STAGER_ABORTED, "deleted");
        fixture_finish(&scene.fixture);
    }
}

static void event_the_daemon_stops(void)
{
    EACH_DELIVERY(d)
    {
        scene_set_and_join(d, false, "", "");
        struct actor_result held = actor_keep(&scene.alice);
        fixture_stop(&scene.fixture);
        scene_drain_both();
        CHECK_INT(scene.of_alice.end.rc, -STAGER_UNAVAILABLE);
        CHECK_INT(scene.of_bob.end.rc, -STAGER_UNAVAILABLE);
        actor_release(&scene.alice, held.number); /* the batch was readable until here */
        actor_leave(&scene.alice);
        actor_leave(&scene.bob);
        fixture_finish(&scene.fixture);
    }
}

static const struct stg_test tests[] = {
    TEST(event_joins_at_the_start),
    TEST(event_joins_late),
    TEST(event_one_too_many),
    TEST(event_leaves_cleanly),
    TEST(event_leaves_holding_a_batch),
    TEST(event_crashes),
    TEST(event_crashes_and_rejoins_in_time),
    TEST(event_rejoins_too_late),
    TEST(event_all_have_left_and_it_stays_warm),
    TEST(event_is_slow),
    TEST(event_is_stopped_holding_a_batch),
    TEST(event_is_stopped_holding_none),
    TEST(event_never_releases),
    TEST(event_releases_garbage),
    TEST(event_error_item),
    TEST(event_dropped_item),
    TEST(event_ignored_item),
    TEST(event_source_fails),
    TEST(event_end_of_a_pass_and_the_next),
    TEST(event_not_all_ask_for_the_next_pass),
    TEST(event_is_replaced),
    TEST(event_is_deleted),
    TEST(event_the_daemon_stops),
};

TEST_MAIN(tests)
