/* SPDX-License-Identifier: Apache-2.0
 *
 * feed_dict: constants, computed tensors, and values set by a client.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

/* A pipeline "p" over `value` = 0, 1, 2 …, `stop` of them. */
static void apply(struct fixture *fixture, int stop, const char *graph,
                  const char *staged)
{
    char yaml[2048];
    snprintf(yaml, sizeof(yaml),
             "name: p\ndataset:\n  - range: {stop: %d}\ngraph:\n%sstaged:\n%s", stop,
             graph, staged);
    fixture_apply(fixture, yaml);
}

static struct stager_tensor tensor_of(const struct stager_batch *batch, const char *name)
{
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, name, &tensor), 0);
    return tensor;
}

static int64_t number_of(const struct stager_batch *batch, const char *name)
{
    return *(const int64_t *)tensor_of(batch, name).data;
}

static void expect(struct stager_stream *stream, int code, const char *text)
{
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, fixture_millis(20000), &batch), -code);
    CHECK_CONTAINS(stager_error_text(stream), text);
}

static void a_constant_stands_for_what_is_not_run_then(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 3,
          "  - {name: never, op: constant, value: false}\n"
          "  - {name: bad, op: assert, input: [never, value]}\n"
          "  - {name: y, op: stack, input: [bad, value]}\n",
          "  features: {y: y, v: value}\n  feed_dict: {bad: {value: 7}}\n");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int64_t i = 0; i < 3; i++) {
        struct stager_batch *batch = fixture_take(stream);
        const int64_t *y = tensor_of(batch, "y").data;
        CHECK_INT(y[0], 7);
        CHECK_INT(y[1], i);
        CHECK_INT(number_of(batch, "v"), i);
        stager_release(batch);
    }
    expect(stream, STAGER_OUT_OF_RANGE, "");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_component_of_the_data_set_may_be_fed(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 2, "  - {name: y, op: identity, input: [value]}\n",
          "  features: {y: y, v: value}\n  feed_dict: {value: {value: -1}}\n");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int i = 0; i < 2; i++) {
        struct stager_batch *batch = fixture_take(stream);
        CHECK_INT(number_of(batch, "y"), -1);
        CHECK_INT(number_of(batch, "v"), -1);
        stager_release(batch);
    }
    expect(stream, STAGER_OUT_OF_RANGE, "");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void another_tensor_is_computed_anew_for_each_item(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 20,
          "  - {name: p, op: placeholder, dtype: int64, shape: []}\n"
          "  - {name: y, op: identity, input: [p]}\n"
          "  - {name: source, op: stack, input: [value, value]}\n"
          "  - {name: q, op: placeholder, dtype: int64, shape: [-1]}\n"
          "  - {name: z, op: identity, input: [q]}\n",
          "  features: {y: y, z: z}\n  num_threads: 3\n"
          "  feed_dict: {p: {tensor: value}, q: {tensor: source}}\n");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int64_t i = 0; i < 20; i++) {
        struct stager_batch *batch = fixture_take(stream);
        CHECK_INT(number_of(batch, "y"), i);
        CHECK_INT(((const int64_t *)tensor_of(batch, "z").data)[1], i);
        stager_release(batch);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

static void an_error_of_what_feeds_is_the_items(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    char path[256], graph[1024];
    fixture_file(&fixture, "lines.txt", "0\nx\n2\n", 6, path);
    snprintf(graph, sizeof(graph),
             "name: p\ndataset:\n  - files: {pattern: %s}\n  - text_line: {}\n"
             "graph:\n"
             "  - {name: n, op: decode_csv, input: [record], record_defaults: [0]}\n"
             "  - {name: p, op: placeholder, dtype: int32, shape: []}\n"
             "  - {name: y, op: identity, input: [p]}\n"
             "staged:\n  features: {y: y}\n  max_batch_bytes: 64KiB\n"
             "  feed_dict: {p: {tensor: n}}\n",
             path);
    fixture_apply(&fixture, graph);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    stager_release(fixture_take(stream));
    expect(stream, STAGER_INVALID_ARGUMENT, "is not a valid int32");
    stager_release(fixture_take(stream));
    expect(stream, STAGER_OUT_OF_RANGE, "");
    stager_close(stream);
    fixture_finish(&fixture);
}

static const char *const settable_graph =
    "  - {name: rate, op: placeholder, dtype: int64, shape: []}\n"
    "  - {name: word, op: placeholder, dtype: string, shape: [-1]}\n"
    "  - {name: y, op: stack, input: [value, rate]}\n";

static const char *const settable_staged =
    "  features: {y: y, word: word}\n  num_threads: 4\n  capacity: 3\n"
    "  max_batch_bytes: 64KiB\n"
    "  feed_dict:\n    rate: {value: 1000, client: true}\n"
    "    word: {value: [a, bc], client: true}\n";

static int feed_rate(struct stager_stream *stream, int64_t rate, uint64_t *ret)
{
    struct stager_tensor value = {
        .dtype = STAGER_INT64, .data = &rate, .data_bytes = sizeof(rate)};
    return stager_feed(stream, "rate", &value, ret);
}

/* From the first item not yet pulled, every batch is made with the values of its feed
 * version. */
static void what_a_client_sets_holds_from_the_next_item_pulled(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 1000000, settable_graph, settable_staged);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    int64_t place = 0;
    for (uint64_t version = 0; version < 8; version++) {
        uint64_t got = 0;
        if (version > 0) {
            CHECK_INT(feed_rate(stream, 1000 + (int64_t)version, &got), 0);
            CHECK_INT(got, version);
        }
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        uint64_t n_old = 0;
        do {
            struct stager_batch *batch = fixture_take(stream);
            stager_batch_info(batch, &info);
            const int64_t *y = tensor_of(batch, "y").data;
            CHECK_INT(y[0], place++);
            CHECK_INT(y[1], 1000 + info.feed_version);
            CHECK(info.feed_version <= version);
            n_old += info.feed_version < version;
            stager_release(batch);
        } while (info.feed_version < version);
        CHECK(n_old <= 4 + 3 + 2 + 1); /* in hand, in the buffer, assigned */
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

static void strings_may_be_set_and_other_values_stay(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 1000000, settable_graph, settable_staged);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    CHECK_INT(feed_rate(stream, 5, NULL), 0);
    const int64_t offsets[] = {0, 0, 3, 4}, shape[] = {3};
    struct stager_tensor words = {.dtype = STAGER_STRING,
                                  .ndim = 1,
                                  .data = "xyzw",
                                  .data_bytes = 4,
                                  .offsets = offsets};
    memcpy(words.shape, shape, sizeof(shape));
    uint64_t version;
    CHECK_INT(stager_feed(stream, "word", &words, &version), 0);
    CHECK_INT(version, 2);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    struct stager_batch *batch = fixture_take(stream);
    for (stager_batch_info(batch, &info); info.feed_version < version;
         stager_batch_info(batch, &info)) {
        stager_release(batch);
        batch = fixture_take(stream);
    }
    struct stager_tensor word = tensor_of(batch, "word");
    CHECK_INT(word.shape[0], 3);
    CHECK_INT(word.offsets[2] - word.offsets[1], 3);
    CHECK(memcmp(word.data, "xyzw", 4) == 0);
    CHECK_INT(((const int64_t *)tensor_of(batch, "y").data)[1], 5);
    stager_release(batch);
    struct fixture_status status;
    fixture_status(&fixture, "p", &status);
    CHECK_INT(status.feed_version, 2);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_feed_that_may_not_be_set_is_refused_and_the_stream_continues(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 1000000, settable_graph, settable_staged);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    float f = 1;
    struct stager_tensor value = {
        .dtype = STAGER_FLOAT32, .data = &f, .data_bytes = sizeof(f)};
    CHECK_INT(stager_feed(stream, "rate", &value, NULL), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(stager_error_text(stream),
                   "is float32 [], but the tensor is int64 []");
    CHECK_INT(stager_feed(stream, "value", &value, NULL), -STAGER_FAILED_PRECONDITION);
    CHECK_INT(stager_feed(stream, "rat", &value, NULL), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(stream), "did you mean \"rate\"?");
    struct stager_batch *batch = fixture_take(stream);
    CHECK_INT(((const int64_t *)tensor_of(batch, "y").data)[1], 1000);
    stager_release(batch);
    stager_close(stream);

    struct stager *client;
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_FEED, .name = "rate"};
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(stg_admin_call(client, &request, &reply, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "stream");
    stager_disconnect(client);
    fixture_finish(&fixture);
}

static bool evicted_one(const struct fixture_status *status, void *arg)
{
    return status->evicted == 1;
}

/* x holds the only item that there is room for; y waits for the next one. */
static void a_feed_of_a_detached_client_returns_the_reason(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 100,
          "  - {name: rate, op: placeholder, dtype: int64, shape: []}\n"
          "  - {name: y, op: add, input: [value, rate]}\n",
          "  features: {y: y}\n  max_batch_bytes: 64KiB\n  num_clients: 2\n"
          "  delivery: broadcast\n  lease_timeout_millis: 50\n"
          "  feed_dict: {rate: {value: 0, client: true}}\n");
    struct stager_stream *x = fixture_open(&fixture, "p", "x", 1);
    struct stager_stream *y = fixture_open(&fixture, "p", "y", 2);
    struct stager_batch *held = fixture_take(x), *batch;
    int rc;
    while ((rc = stager_next(y, fixture_millis(20000), &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_OUT_OF_RANGE);
    fixture_wait(&fixture, "p", fixture_millis(20000), evicted_one, NULL);
    int64_t one = 1;
    struct stager_tensor value = {
        .dtype = STAGER_INT64, .data = &one, .data_bytes = sizeof(one)};
    for (int i = 0; i < 2; i++) {
        CHECK_INT(stager_feed(x, "rate", &value, NULL), -STAGER_DEADLINE_EXCEEDED);
        CHECK_CONTAINS(stager_error_text(x), "lease_timeout_millis 50");
    }
    stager_release(held);
    expect(x, STAGER_DEADLINE_EXCEEDED, "lease_timeout_millis 50");
    stager_close(x);
    stager_close(y);
    fixture_finish(&fixture);
}

static void a_run_that_was_replaced_takes_no_feeds(void)
{
    static const char *const graph =
        "  - {name: rate, op: placeholder, dtype: int64, shape: []}\n"
        "  - {name: y, op: add, input: [value, rate]}\n";
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 100, graph,
          "  features: {y: y}\n  feed_dict: {rate: {value: 0, client: true}}\n");
    struct stager_stream *old = fixture_open(&fixture, "p", "old", 2);
    struct stager_batch *held = fixture_take(old);
    struct stg_err err = {0};
    CHECK_INT(fixture_try_apply(&fixture, "name: p\ndataset:\n  - range: {stop: 50}\n",
                                true, &err),
              0);
    int64_t one = 1;
    struct stager_tensor value = {
        .dtype = STAGER_INT64, .data = &one, .data_bytes = sizeof(one)};
    CHECK_INT(stager_feed(old, "rate", &value, NULL), -STAGER_ABORTED);
    CHECK_CONTAINS(stager_error_text(old), "open the stream again");
    stager_release(held);
    stager_close(old);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_constant_stands_for_what_is_not_run_then),
    TEST(a_component_of_the_data_set_may_be_fed),
    TEST(another_tensor_is_computed_anew_for_each_item),
    TEST(an_error_of_what_feeds_is_the_items),
    TEST(what_a_client_sets_holds_from_the_next_item_pulled),
    TEST(strings_may_be_set_and_other_values_stay),
    TEST(a_feed_that_may_not_be_set_is_refused_and_the_stream_continues),
    TEST(a_feed_of_a_detached_client_returns_the_reason),
    TEST(a_run_that_was_replaced_takes_no_feeds),
};

TEST_MAIN(tests)
