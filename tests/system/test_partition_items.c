/* SPDX-License-Identifier: Apache-2.0
 *
 * Items made for some trainers, and later trainers that need other tensors: a real daemon
 * never delivers a batch that lacks a tensor its client needs.
 */
#include "tests/check.h"
#include "tests/system/fixture.h"

static struct stager_stream *open_with(struct fixture *fixture,
                                       struct stager_options options)
{
    struct stager_stream *stream;
    options.runtime_dir = fixture->runtime;
    options.max_in_flight = 2;
    if (stager_open(NULL, "p", &options, &stream) < 0)
        FAIL("open: %s", stager_error_text(NULL));
    return stream;
}

static int64_t first_of(const struct stager_batch *batch, const char *name)
{
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, name, &tensor), 0);
    CHECK_INT(tensor.dtype, STAGER_INT64);
    return *(const int64_t *)tensor.data;
}

static bool is_full(const struct fixture_status *status, void *arg)
{
    return status->buffered == status->capacity;
}

/* A single client's unnamed tensors are not made. If it reconnects and asks for more,
 * existing batches are lost.
 */
static void a_client_that_reconnects_for_other_fields_gets_those(void)
{
    static const char *const v = "v";
    struct fixture fixture;
    struct fixture_status status;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: p\n"
                            "dataset: [{range: {stop: 64}}, {batch: {batch_size: 1}}]\n"
                            "graph: [{name: w, op: negative, input: [value]}]\n"
                            "staged: {features: {v: value, w: w}, capacity: 4}\n");
    struct stager_options some = {
        .struct_size = sizeof(some), .client_id = "a", .fields = &v, .n_fields = 1};
    struct stager_stream *stream = open_with(&fixture, some);
    struct stager_batch *batch = fixture_take(stream);
    CHECK_INT(first_of(batch, "v"), 0);
    stager_release(batch);
    /* Batches without w are there to be lost. */
    fixture_wait(&fixture, "p", fixture_millis(10000), is_full, NULL);
    stager_close(stream);
    stream = open_with(
        &fixture, (struct stager_options){.struct_size = sizeof(struct stager_options),
                                          .client_id = "a"});
    batch = fixture_take(stream);
    CHECK(first_of(batch, "v") > 0);
    CHECK_INT(first_of(batch, "w"), -first_of(batch, "v"));
    stager_release(batch);
    fixture_status(&fixture, "p", &status);
    CHECK(status.lost > 0);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* The sum of a whole batch, made ahead for one trainer, does not apply to a slice. A
 * trainer that takes slices of single rows gets none of those batches. */
static void what_was_run_ahead_of_a_whole_batch_is_in_no_slice(void)
{
    static const char *const fetch = "y";
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: p\n"
                            "dataset: [{range: {stop: 64}}, {batch: {batch_size: 4}}]\n"
                            "graph:\n"
                            "  - {name: all, op: reduce_sum, input: [\"staged:v\"],\n"
                            "     axis: [0], keepdims: true}\n"
                            "  - {name: bias, op: variable, shape: [1], dtype: int64}\n"
                            "  - {name: y, op: add, input: [all, bias]}\n"
                            "staged: {features: {v: value}, num_clients: 2,\n"
                            "         capacity: 4}\n"
                            "targets: [y]\nsmart_stage: on\n");
    struct stager_options whole = {.struct_size = sizeof(whole), .client_id = "a"},
                          sliced = {.struct_size = sizeof(sliced),
                                    .client_id = "b",
                                    .batch_size = 2};
    struct stager_stream *a = open_with(&fixture, whole);
    struct stager_batch *batch = fixture_take(a);
    struct stager_stream *b = open_with(&fixture, sliced);
    stager_release(batch);
    for (int i = 0; i < 12; i++) {
        struct stager_tensor v, y;
        batch = fixture_take(b);
        CHECK_INT(stager_batch_tensor(batch, "v", &v), 0);
        CHECK_INT(v.shape[0], 2);
        if (stager_run(b, batch, &fetch, 1, &y) < 0)
            FAIL("run: %s", stager_error_text(b));
        const int64_t *at = v.data;
        CHECK_INT(*(const int64_t *)y.data, at[0] + at[1]);
        stager_release(batch);
    }
    stager_close(a);
    stager_close(b);
    fixture_finish(&fixture);
}

/* Also if the number of rows is known beforehand. */
static void what_was_run_ahead_for_each_row_is_in_its_slice(void)
{
    static const char *const fetch = "y";
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(
        &fixture,
        "name: p\n"
        "dataset:\n"
        "  - range: {stop: 64}\n"
        "  - batch: {batch_size: 4, drop_remainder: true}\n"
        "graph:\n"
        "  - {name: square, op: multiply, input: [\"staged:v\", \"staged:v\"]}\n"
        "  - {name: bias, op: variable, shape: [1], dtype: int64}\n"
        "  - {name: y, op: add, input: [square, bias]}\n"
        "staged: {features: {v: value}}\n"
        "targets: [y]\nsmart_stage: on\n");
    struct stager_stream *stream = open_with(
        &fixture, (struct stager_options){.struct_size = sizeof(struct stager_options),
                                          .batch_size = 2});
    for (int64_t i = 0; i < 64; i += 2) {
        struct stager_batch *batch = fixture_take(stream);
        struct stager_tensor y;
        if (stager_run(stream, batch, &fetch, 1, &y) < 0)
            FAIL("run: %s", stager_error_text(stream));
        CHECK_INT(y.shape[0], 2);
        CHECK_INT(((const int64_t *)y.data)[0], i * i);
        CHECK_INT(((const int64_t *)y.data)[1], (i + 1) * (i + 1));
        stager_release(batch);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

/* In a batch it could not be distinguished from the node's output. */
static void a_feature_called_as_an_output_keeps_the_node_where_it_is(void)
{
    static const char *const names[] = {"v", "y", "staged:u:0"};
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture,
                  "name: p\n"
                  "dataset: [{range: {stop: 64}}, {batch: {batch_size: 1}}]\n"
                  "graph:\n"
                  "  - {name: w, op: negative, input: [value]}\n"
                  "  - {name: u, op: multiply, input: [\"staged:v\", \"staged:v\"]}\n"
                  "  - {name: bias, op: variable, shape: [1], dtype: int64}\n"
                  "  - {name: y, op: add, input: [u, bias]}\n"
                  "staged: {features: {v: value, \"u:0\": w}}\n"
                  "targets: [y]\nsmart_stage: on\n");
    struct stager_stream *stream = open_with(
        &fixture, (struct stager_options){.struct_size = sizeof(struct stager_options),
                                          .fields = names,
                                          .fetches = names + 1,
                                          .n_fetches = 1});
    for (int64_t i = 0; i < 4; i++) {
        struct stager_batch *batch = fixture_take(stream);
        struct stager_tensor y;
        if (stager_run(stream, batch, names + 1, 1, &y) < 0)
            FAIL("run: %s", stager_error_text(stream));
        CHECK_INT(*(const int64_t *)y.data, i * i);
        CHECK_INT(stager_run(stream, batch, names + 2, 1, &y),
                  -STAGER_FAILED_PRECONDITION); /* it does not exist */
        stager_release(batch);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_client_that_reconnects_for_other_fields_gets_those),
    TEST(what_was_run_ahead_of_a_whole_batch_is_in_no_slice),
    TEST(what_was_run_ahead_for_each_row_is_in_its_slice),
    TEST(a_feature_called_as_an_output_keeps_the_node_where_it_is),
};
TEST_MAIN(tests)
