/* SPDX-License-Identifier: Apache-2.0
 *
 * Concurrent trainers, and the runners behind the buffer: STAGE-C13 to C24 of the stage
 * contract (docs/delivery.md), each with a real daemon and trainers in separate
 * processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/pipelines.h"

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void stage_c13_takers_get_disjoint_items_all_of_them_and_one_end_each(void)
{
    struct fixture fixture;
    struct actor actors[3];
    fixture_start(&fixture, "");
    apply_rows(&fixture, 60, "", "capacity: 4, num_clients: 3, num_threads: 2");
    static struct actor_log logs[3];
    int64_t values[60];
    int n = 0;
    for (int i = 0; i < 3; i++)
        actor_start(&actors[i], &fixture, NULL);
    actor_drain_all(actors, 3, logs);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(logs[i].end.rc, -STAGER_OUT_OF_RANGE);
        for (int k = 0; k < logs[i].n && n < 60; k++)
            values[n++] = logs[i].steps[k].value;
    }
    CHECK_INT(logs[0].n + logs[1].n + logs[2].n, 60);
    CHECK_INT(n, 60);
    qsort(values, 60, sizeof(values[0]), ascending);
    check_sequence(values, 60, 0, 1);
    check_accounts(&fixture);
    for (int i = 0; i < 3; i++)
        actor_leave(&actors[i]);
    fixture_finish(&fixture);
}

/* In DeepRec, num_clients does not limit which clients may take items. */
static void stage_c14_one_taker_more_than_num_clients_is_refused_by_name(void)
{
    struct fixture fixture;
    struct actor alice, bob;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 10, "", "num_clients: 1, reconnect_grace_millis: 0");
    actor_start(&alice, &fixture, &(struct actor_options){.client_id = "alice"});
    const struct actor_options second = {.client_id = "bob"};
    struct actor_result refused = actor_try_start(&bob, &fixture, &second);
    CHECK_INT(refused.rc, -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(refused.text, "alice");
    CHECK_INT(actor_take(&alice), 0);
    actor_leave(&alice);
    actor_start(&bob, &fixture, &second);
    actor_take(&bob);
    actor_leave(&bob);
    fixture_finish(&fixture);
}

static void stage_c15_runners_share_a_source_and_lose_nothing_at_its_end(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 500, "", "capacity: 2, num_threads: 8");
    actor_start(&actor, &fixture, NULL);
    for (int pass = 0; pass < 3; pass++) {
        int64_t values[500];
        int n;
        struct actor_result end = actor_drain(&actor, values, 500, &n);
        CHECK_INT(end.rc, -STAGER_OUT_OF_RANGE);
        CHECK_INT(n, 500);
        check_sequence(values, n, 0, 1);
        CHECK_INT(actor_rewind(&actor), 0);
    }
    check_accounts(&fixture);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c16_an_ignored_code_costs_its_item_and_no_other(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 20, graph_failing(5, 2, "DATA_LOSS"),
               "capacity: 2, num_threads: 3, ignored_exception_types: [DATA_LOSS]");
    actor_start(&actor, &fixture, NULL);
    int64_t values[20];
    int n;
    CHECK_INT(actor_drain(&actor, values, 20, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 16);
    for (int i = 0, want = 0; i < n; i++, want++) {
        want += want % 5 == 2;
        CHECK_INT(values[i], want);
    }
    struct fixture_status status;
    fixture_status(&fixture, "rows", &status);
    CHECK_INT(status.ignored, 4);
    CHECK_INT(status.errors, 0);
    check_accounts(&fixture);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

/* Checks what the trainer receives of ten items of which the fourth fails with `code`. */
static struct actor_result end_of(const char *code, const char *staged, int *n)
{
    struct fixture fixture;
    struct actor actor;
    int64_t values[10];
    fixture_start(&fixture, "");
    apply_rows(&fixture, 10, graph_failing(10, 3, code), staged);
    actor_start(&actor, &fixture, NULL);
    struct actor_result end = actor_drain(&actor, values, 10, n);
    actor_leave(&actor);
    fixture_finish(&fixture);
    return end;
}

static void stage_c17_cancelled_before_closed_before_ignored_before_unexpected(void)
{
    int n;
    CHECK_INT(end_of("CANCELLED",
                     "closed_exception_types: [CANCELLED], "
                     "ignored_exception_types: [CANCELLED]",
                     &n)
                  .rc,
              -STAGER_CANCELLED);
    CHECK_INT(n, 3);
    CHECK_INT(end_of("DATA_LOSS",
                     "closed_exception_types: [OUT_OF_RANGE, DATA_LOSS], "
                     "ignored_exception_types: [DATA_LOSS]",
                     &n)
                  .rc,
              -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 3);
    CHECK_INT(end_of("DATA_LOSS", "ignored_exception_types: [DATA_LOSS]", &n).rc,
              -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 9);
    CHECK_INT(end_of("DATA_LOSS", "", &n).rc, -STAGER_DATA_LOSS);
    CHECK_INT(n, 3);
}

static void stage_c18_an_end_that_is_not_closed_is_an_error(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 5, "", "closed_exception_types: []");
    actor_start(&actor, &fixture, NULL);
    int64_t values[5];
    int n;
    struct actor_result end = actor_drain(&actor, values, 5, &n);
    CHECK_INT(end.rc, -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(end.text, "end of data, not in closed_exception_types");
    CHECK_INT(n, 5);
    CHECK_INT(actor_next(&actor, -1).rc, -STAGER_FAILED_PRECONDITION);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

/* DeepRec hangs here. stager has no hook, and a stage without all its clients reports an
 * error. */
static void stage_c19_nothing_has_to_be_started_and_nothing_hangs(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 5, "", "capacity: 1");
    actor_start(&actor, &fixture, NULL);
    CHECK_INT(actor_take(&actor), 0);
    actor_leave(&actor);
    const char *deliveries[] = {"broadcast", "round_robin"};
    for (int i = 0; i < 2; i++) {
        char staged[128];
        snprintf(staged, sizeof(staged),
                 "delivery: %s, num_clients: 2, start_timeout_millis: 100",
                 deliveries[i]);
        CHECK_INT(replace_rows(&fixture, 5, "", staged), 0);
        actor_start(&actor, &fixture, &(struct actor_options){.client_id = "alice"});
        struct actor_result end = actor_next(&actor, -1);
        CHECK_INT(end.rc, -STAGER_DEADLINE_EXCEEDED);
        CHECK_CONTAINS(end.text, "1 of num_clients 2");
        CHECK_CONTAINS(end.text, "alice");
        actor_leave(&actor);
    }
    fixture_finish(&fixture);
}

static void stage_c20_a_stage_starts_again_after_it_was_torn_down(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 30, "", "capacity: 5, num_threads: 3");
    for (int session = 0; session < 4; session++) {
        actor_start(&actor, &fixture, NULL);
        for (int i = 0; i < 3; i++)
            CHECK_INT(actor_take(&actor), i); /* nothing of the last session remains */
        if (session % 2 == 0)
            actor_leave(&actor);
        else
            actor_kill(&actor);
        wait_state(&fixture, "idle");
    }
    actor_start(&actor, &fixture, NULL);
    CHECK_INT(actor_take(&actor), 0);
    fixture_kill(&fixture);
    int64_t values[30];
    int n;
    CHECK_INT(actor_drain(&actor, values, 30, &n).rc, -STAGER_UNAVAILABLE);
    actor_leave(&actor);
    fixture_restart(&fixture);
    actor_start(&actor, &fixture, NULL);
    CHECK_INT(actor_drain(&actor, values, 30, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 30);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c21_a_fed_tensor_is_evaluated_for_each_item(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 20,
               "  - {name: thousand, op: constant, value: 1000, dtype: int64}\n"
               "  - {name: more, op: add, input: [value, thousand]}\n"
               "  - {name: fed, op: placeholder, dtype: int64, shape: [-1]}\n"
               "  - {name: out, op: identity, input: [fed]}\n",
               "num_threads: 3, feed_dict: {fed: {tensor: more}}");
    actor_start(&actor, &fixture, NULL);
    int64_t values[20];
    int n;
    CHECK_INT(actor_drain(&actor, values, 20, &n).rc, -STAGER_OUT_OF_RANGE);
    CHECK_INT(n, 20);
    check_sequence(values, n, 1000, 1);
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void check_tensor(const struct stager_batch *batch, const char *name, int dtype,
                         int ndim, const int64_t *shape)
{
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, name, &tensor), 0);
    CHECK_INT(tensor.dtype, dtype);
    CHECK_INT(tensor.ndim, ndim);
    for (int i = 0; i < ndim; i++)
        CHECK_INT(tensor.shape[i], shape[i]);
}

static const char nested_yaml[] =
    "name: nested\n"
    "dataset:\n  - range: {stop: 3}\n  - batch: {batch_size: 1}\n"
    "graph:\n"
    "  - {name: scalar, op: constant, value: 2.5}\n"
    "  - {name: words, op: constant, value: [a, \"\", ccc]}\n"
    "  - {name: empty, op: constant, value: 0.0, shape: [0, 4]}\n"
    "  - {name: v, op: constant, value: [7, 8, 9], dtype: int64}\n"
    "  - {name: i, op: constant, value: [[0, 0], [0, 2], [0, 3]], dtype: int64}\n"
    "  - {name: s, op: constant, value: [1, 4], dtype: int64}\n"
    "  - {name: splits, op: constant, value: [0, 3], dtype: int64}\n"
    "staged:\n"
    "  features:\n"
    "    list: [value, {deep: [scalar, words]}]\n"
    "    none: null\n"
    "    empty: empty\n"
    "    sparse_one: {sparse: {values: v, indices: i, dense_shape: s}}\n"
    "    ragged_one: {ragged: {values: v, row_splits: splits}}\n";

static void stage_c22_features_come_back_in_the_structure_they_had(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, nested_yaml);
    struct stager_stream *stream = fixture_open(&fixture, "nested", NULL, 2);
    CHECK_STR(stager_structure(stream),
              "{\"list\":[\"list/0\",{\"deep\":[\"list/1/deep/0\",\"list/1/deep/1\"]}],"
              "\"none\":null,\"empty\":\"empty\","
              "\"sparse_one\":{\"sparse\":{\"values\":\"sparse_one/values\",\"indices\":"
              "\"sparse_one/indices\",\"dense_shape\":\"sparse_one/dense_shape\"}},"
              "\"ragged_one\":{\"ragged\":{\"values\":\"ragged_one/values\","
              "\"row_splits\":\"ragged_one/row_splits\"}}}");
    for (int item = 0; item < 3; item++) {
        struct stager_batch *batch = fixture_take(stream);
        struct stager_tensor tensor;
        check_tensor(batch, "list/0", STAGER_INT64, 1, (int64_t[]){1});
        check_tensor(batch, "list/1/deep/0", STAGER_FLOAT32, 0, NULL);
        check_tensor(batch, "list/1/deep/1", STAGER_STRING, 1, (int64_t[]){3});
        check_tensor(batch, "empty", STAGER_FLOAT32, 2, (int64_t[]){0, 4});
        check_tensor(batch, "sparse_one/values", STAGER_INT64, 1, (int64_t[]){3});
        check_tensor(batch, "sparse_one/indices", STAGER_INT64, 2, (int64_t[]){3, 2});
        check_tensor(batch, "sparse_one/dense_shape", STAGER_INT64, 1, (int64_t[]){2});
        check_tensor(batch, "ragged_one/row_splits", STAGER_INT64, 1, (int64_t[]){2});
        CHECK_INT(stager_batch_tensor(batch, "list/1/deep/1", &tensor), 0);
        CHECK_INT(tensor.offsets[1] - tensor.offsets[0], 1);
        CHECK_INT(tensor.offsets[2] - tensor.offsets[1], 0);
        CHECK(memcmp((const char *)tensor.data + tensor.offsets[2], "ccc", 3) == 0);
        CHECK_INT(stager_batch_tensor(batch, "sparse_one/indices", &tensor), 0);
        CHECK_INT(((const int64_t *)tensor.data)[5], 3);
        stager_release(batch);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

static void stage_c23_a_stop_while_runners_are_blocked_joins_them_at_once(void)
{
    struct fixture fixture;
    struct actor actor;
    fixture_start(&fixture, "");
    apply_rows(&fixture, 1000, "", "capacity: 1, num_threads: 8");
    actor_start(&actor, &fixture, &(struct actor_options){.max_in_flight = 1});
    WAIT_FOR(&fixture, made, 10);
    actor_leave(&actor);
    int64_t began = now_millis();
    wait_state(&fixture, "idle");
    CHECK(now_millis() - began < fixture_millis(1500));
    check_accounts(&fixture);
    actor_start(&actor, &fixture, NULL);
    WAIT_FOR(&fixture, made, 15);
    began = now_millis();
    fixture_stop(&fixture);
    CHECK(now_millis() - began < fixture_millis(1500));
    actor_leave(&actor);
    fixture_finish(&fixture);
}

static void stage_c24_a_pool_that_is_not_there_is_refused_when_applied(void)
{
    static const char rows[] = "name: rows\ndataset:\n  - range: {stop: 5}\n"
                               "  - batch: {batch_size: 1}\n"
                               "staged: {use_stage_subgraph_thread_pool: true, "
                               "stage_subgraph_thread_pool_id: 2}\n";
    struct fixture fixture;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    CHECK_INT(fixture_try_apply(&fixture, rows, false, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "stage_subgraph_thread_pool_id 2 is out of range [0, 0)");
    fixture_finish(&fixture);
    fixture_start(&fixture, "thread_pools: [{global_name: io}, {global_name: parse}]\n");
    err = (struct stg_err){0};
    CHECK_INT(fixture_try_apply(&fixture, rows, false, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "stage_subgraph_thread_pool_id 2 is out of range [0, 2)");
    CHECK_CONTAINS(err.text, "parse");
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(stage_c13_takers_get_disjoint_items_all_of_them_and_one_end_each),
    TEST(stage_c14_one_taker_more_than_num_clients_is_refused_by_name),
    TEST(stage_c15_runners_share_a_source_and_lose_nothing_at_its_end),
    TEST(stage_c16_an_ignored_code_costs_its_item_and_no_other),
    TEST(stage_c17_cancelled_before_closed_before_ignored_before_unexpected),
    TEST(stage_c18_an_end_that_is_not_closed_is_an_error),
    TEST(stage_c19_nothing_has_to_be_started_and_nothing_hangs),
    TEST(stage_c20_a_stage_starts_again_after_it_was_torn_down),
    TEST(stage_c21_a_fed_tensor_is_evaluated_for_each_item),
    TEST(stage_c22_features_come_back_in_the_structure_they_had),
    TEST(stage_c23_a_stop_while_runners_are_blocked_joins_them_at_once),
    TEST(stage_c24_a_pool_that_is_not_there_is_refused_when_applied),
};

TEST_MAIN(tests)
