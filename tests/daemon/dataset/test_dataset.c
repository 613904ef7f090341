/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps compared with tf.data: the expectations are TensorFlow 2.21's results for the
 * same pipelines. Also the errors of infer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static void check_items(const struct stg_test_spec *spec, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render(spec, &env, 0);
    CHECK_STR(got, want);
    free(got);
}

static void check_first_items(const struct stg_test_spec *spec, int n, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render(spec, &env, n);
    CHECK_STR(got, want);
    free(got);
}

/* Appends a step with one numeric attribute. */
static void step(struct stg_test_spec *spec, const char *name, const char *attr,
                 int64_t value)
{
    stg_test_step(spec, name);
    if (attr != NULL)
        stg_test_int(spec, attr, value);
}

/* ---- range ---- */

static void range3(int64_t start, int64_t stop, int64_t by, const char *want)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, stop);
    stg_test_int(&spec, "start", start);
    stg_test_int(&spec, "step", by);
    check_items(&spec, want);
}

static void range_counts_like_tf_data(void)
{
    range3(0, 5, 1, "0\n1\n2\n3\n4\n");
    range3(2, 5, 1, "2\n3\n4\n");
    range3(1, 10, 3, "1\n4\n7\n");
    range3(10, 1, -3, "10\n7\n4\n");
    range3(5, 5, 1, "");
    range3(0, 5, -1, "");
}

static void range_does_not_overflow_at_the_ends_of_int64(void)
{
    range3(INT64_MAX - 1, INT64_MAX, 5, "9223372036854775806\n");
    range3(INT64_MIN, INT64_MAX, INT64_MAX,
           "-9223372036854775808\n-1\n9223372036854775806\n");
    range3(INT64_MAX, INT64_MIN, INT64_MIN, "9223372036854775807\n-1\n");
}

/* ---- batch ---- */

static void batches(int64_t n, int64_t size, bool drop, const char *want)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, n);
    step(&spec, "batch", "batch_size", size);
    stg_test_bool(&spec, "drop_remainder", drop);
    check_items(&spec, want);
}

static void batch_keeps_or_drops_the_remainder(void)
{
    batches(10, 4, false, "[0 1 2 3]\n[4 5 6 7]\n[8 9]\n");
    batches(10, 4, true, "[0 1 2 3]\n[4 5 6 7]\n");
    batches(10, 10, true, "[0 1 2 3 4 5 6 7 8 9]\n");
    batches(10, 11, true, "");
    batches(10, 11, false, "[0 1 2 3 4 5 6 7 8 9]\n");
    batches(3, 1, false, "[0]\n[1]\n[2]\n");
    batches(0, 4, false, "");
}

static void a_batch_of_batches_has_two_dimensions(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 12);
    step(&spec, "batch", "batch_size", 3);
    step(&spec, "batch", "batch_size", 2);
    check_items(&spec, "[[0 1 2] [3 4 5]]\n[[6 7 8] [9 10 11]]\n");
}

/* TFD-E6 */
static void a_batch_of_unequal_batches_is_an_error_that_names_both_shapes(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 10);
    step(&spec, "batch", "batch_size", 3);
    step(&spec, "batch", "batch_size", 2);
    check_items(&spec, "[[0 1 2] [3 4 5]]\n!INVALID_ARGUMENT\n");

    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    stg_block_unref(stg_test_next(dataset));
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(block->error.text, "step batch (line 3)");
    CHECK_CONTAINS(block->error.text, "component value");
    CHECK_CONTAINS(block->error.text, "the first has shape [3]");
    CHECK_CONTAINS(block->error.text, "element 1 has shape [1]");
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

static void a_large_batch_is_put_together_from_many_blocks(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 300000);
    step(&spec, "batch", "batch_size", 200000);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    int64_t next = 0;
    for (int64_t want = 200000; want > 0; want = want == 200000 ? 100000 : 0) {
        struct stg_block *block = stg_test_next(dataset);
        const struct stg_tensor *tensor = &block->tensors[0];
        CHECK_INT(tensor->ndim, 1);
        CHECK_INT(tensor->shape[0], want);
        CHECK_INT(block->n_rows, want);
        for (int64_t i = 0; i < want; i++)
            CHECK_INT(((const int64_t *)tensor->data)[i], next++);
        stg_block_unref(block);
    }
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

/* ---- repeat ---- */

static void repeat_before_batch_lets_a_batch_span_epochs(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 3);
    step(&spec, "repeat", "count", 3);
    step(&spec, "batch", "batch_size", 4);
    check_items(&spec, "[0 1 2 0]\n#1 [1 2 0 1]\n#2 [2]\n");
}

static void repeat_after_batch_keeps_epochs_apart(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 3);
    step(&spec, "batch", "batch_size", 2);
    step(&spec, "repeat", "count", 2);
    check_items(&spec, "[0 1]\n[2]\n#1 [0 1]\n[2]\n");
}

static void repeat_zero_is_empty(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 3);
    step(&spec, "repeat", "count", 0);
    check_items(&spec, "");
}

static void repeat_without_count_does_not_end(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 2);
    step(&spec, "repeat", NULL, 0);
    check_first_items(&spec, 5, "0\n1\n#1 0\n1\n#2 0\n");
}

static void an_endless_repeat_of_nothing_ends(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 0);
    step(&spec, "repeat", NULL, 0);
    check_items(&spec, "");

    struct stg_test_spec dropped = {0};
    stg_test_range(&dropped, 3);
    step(&dropped, "batch", "batch_size", 4);
    stg_test_bool(&dropped, "drop_remainder", true);
    step(&dropped, "repeat", NULL, 0);
    check_items(&dropped, "");

    struct stg_test_spec counted = {0};
    stg_test_range(&counted, 0);
    step(&counted, "shuffle", "buffer_size", 4);
    step(&counted, "repeat", "count", INT64_MAX);
    check_items(&counted, "");
}

static void the_outermost_repeat_counts_the_epochs(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 2);
    step(&spec, "repeat", "count", 2);
    step(&spec, "repeat", "count", 2);
    check_items(&spec, "0\n1\n0\n1\n#1 0\n1\n0\n1\n");
}

/* ---- the end, and stops ---- */

static void the_end_stays_the_end(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 3);
    step(&spec, "shuffle", "buffer_size", 2);
    step(&spec, "repeat", "count", 2);
    step(&spec, "batch", "batch_size", 6);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    stg_block_unref(stg_test_next(dataset));
    for (int i = 0; i < 3; i++)
        CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

static void a_stopped_dataset_returns_cancelled(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, INT64_MAX);
    step(&spec, "shuffle", "buffer_size", 1 << 20);
    step(&spec, "batch", "batch_size", 1000);
    _Atomic int stopped = 1;
    struct stg_dataset_env env = stg_test_env();
    env.stopped = &stopped;
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_CANCELLED);
    CHECK_INT(err.code, -STAGER_CANCELLED);
    CHECK_INT(stg_dataset_next(dataset, &block, NULL), -STAGER_CANCELLED);
    stg_dataset_destroy(dataset);
}

static void a_block_outlives_its_dataset(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 3);
    step(&spec, "batch", "batch_size", 3);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block = stg_test_next(dataset);
    stg_dataset_destroy(dataset);
    CHECK_INT(((const int64_t *)block->tensors[0].data)[2], 2);
    stg_block_unref(block);
}

/* ---- infer ---- */

static void check_refused(const struct stg_test_spec *spec, int code, const char *where,
                          const char *why)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_schema schema;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_infer(&spec->spec, &bump, &schema, &err), -code);
    CHECK_INT(err.code, -code);
    CHECK_CONTAINS(err.text, where);
    CHECK_CONTAINS(err.text, why);
    stg_bump_finish(&bump);

    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err again = {0};
    CHECK_INT(stg_dataset_create(&spec->spec, &env, &dataset, &again), -code);
    CHECK_STR(again.text, err.text);
}

/* TFD-E1 */
static void infer_refuses_numbers_out_of_range(void)
{
    static const struct {
        const char *step, *attr;
        int64_t value;
        const char *why;
    } cases[] = {
        {"batch", "batch_size", 0, "batch_size is 0; it must be 1 or more"},
        {"batch", "batch_size", -4, "batch_size is -4; it must be 1 or more"},
        {"shuffle", "buffer_size", 0, "buffer_size is 0; it must be 1 or more"},
        {"repeat", "count", -2, "count is -2; it must be 0 or more, or -1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stg_test_spec spec = {0};
        stg_test_range(&spec, 3);
        step(&spec, cases[i].step, cases[i].attr, cases[i].value);
        char where[64];
        snprintf(where, sizeof(where), "step %s (line 2): ", cases[i].step);
        check_refused(&spec, STAGER_INVALID_ARGUMENT, where, cases[i].why);
    }
    struct stg_test_spec range = {0};
    stg_test_range(&range, 3);
    stg_test_int(&range, "step", 0);
    check_refused(&range, STAGER_INVALID_ARGUMENT,
                  "step range (line 1): ", "step must not be 0");
}

static void infer_refuses_numbers_of_text_line_out_of_range(void)
{
    static const struct {
        const char *attr;
        int64_t value;
    } cases[] = {{"buffer_size", 0},
                 {"buffer_size", (1ll << 30) + 1},
                 {"max_record_bytes", 0},
                 {"max_record_bytes", (1ll << 40) + 1},
                 {"skip_header_lines", -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stg_test_spec spec = {0};
        stg_test_lines(&spec, "/data/x");
        stg_test_int(&spec, cases[i].attr, cases[i].value);
        check_refused(&spec, STAGER_INVALID_ARGUMENT,
                      "step text_line (line 2): ", cases[i].attr);
    }
}

/* TFD-E1 */
static void infer_refuses_steps_in_a_wrong_order(void)
{
    struct stg_test_spec none = {0};
    check_refused(&none, STAGER_INVALID_ARGUMENT, "dataset: ", "it has no steps");

    struct stg_test_spec first = {0};
    step(&first, "shuffle", "buffer_size", 5);
    check_refused(&first, STAGER_INVALID_ARGUMENT,
                  "step shuffle (line 1): ", "begins with a source");

    struct stg_test_spec twice = {0};
    stg_test_range(&twice, 3);
    step(&twice, "range", "stop", 3);
    check_refused(&twice, STAGER_INVALID_ARGUMENT,
                  "step range (line 2): ", "put it first");

    struct stg_test_spec reader = {0};
    step(&reader, "text_line", NULL, 0);
    check_refused(&reader, STAGER_INVALID_ARGUMENT,
                  "step text_line (line 1): ", "put `files` before it");

    struct stg_test_spec numbers = {0};
    stg_test_range(&numbers, 3);
    step(&numbers, "text_line", NULL, 0);
    check_refused(&numbers, STAGER_INVALID_ARGUMENT,
                  "step text_line (line 2): ", "put `files` before it");

    struct stg_test_spec unknown = {0};
    stg_test_range(&unknown, 3);
    step(&unknown, "no_such_step", NULL, 0);
    check_refused(&unknown, STAGER_UNIMPLEMENTED,
                  "step no_such_step (line 2): ", "unknown step");
}

static void infer_refuses_patterns_that_are_no_paths(void)
{
    static const struct {
        const char *pattern;
        int code;
        const char *why;
    } cases[] = {
        {"data/*.csv", STAGER_INVALID_ARGUMENT, "write the absolute path"},
        {"", STAGER_INVALID_ARGUMENT, "write the absolute path"},
        {"file://data/x", STAGER_INVALID_ARGUMENT, "write the absolute path"},
        {"ftp://host/x", STAGER_UNIMPLEMENTED, "unknown scheme \"ftp\""},
        {"gs://bucket/x", STAGER_UNIMPLEMENTED,
         "unknown scheme \"gs\": write s3://bucket/x, with a store in "
         "stagerd.yaml, below remote, stores: prefix s3://BUCKET/, endpoint: its "
         "S3-compatible endpoint, credentials_file: a file with its HMAC key"},
        {"http://host/*", STAGER_INVALID_ARGUMENT, "http cannot list files"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stg_test_spec spec = {0};
        stg_test_lines(&spec, cases[i].pattern);
        check_refused(&spec, cases[i].code, "step files (line 1): ", cases[i].why);
    }
    struct stg_test_spec empty = {0};
    step(&empty, "files", NULL, 0);
    check_refused(&empty, STAGER_INVALID_ARGUMENT,
                  "step files (line 1): ", "pattern is missing");
}

static void a_batch_has_at_most_seven_dimensions(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 3);
    for (int i = 0; i < 7; i++)
        step(&spec, "batch", "batch_size", 1);
    check_items(&spec, "[[[[[[[0]]]]]]]\n[[[[[[[1]]]]]]]\n[[[[[[[2]]]]]]]\n");

    struct stg_test_spec more = {0};
    stg_test_range(&more, 3);
    for (int i = 0; i < 8; i++)
        step(&more, "batch", "batch_size", 1);
    check_refused(&more, STAGER_INVALID_ARGUMENT, "step batch (line 9): ",
                  "component value would have more than 7 dimensions");
}

static void check_component(const struct stg_schema *schema, size_t c, const char *name,
                            int dtype, const char *shape)
{
    char text[128];
    const struct stg_component *got = &schema->components[c];
    CHECK_STR(got->name, name);
    CHECK_INT(got->dtype, dtype);
    CHECK_STR(stg_shape_text(got->shape, got->ndim, text, sizeof(text)), shape);
}

static void infer_returns_the_schema_of_an_item(void)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_schema schema;
    struct stg_err err = {0};

    struct stg_test_spec lines = {0};
    stg_test_lines(&lines, "/data/*.csv");
    CHECK_OK(stg_dataset_infer(&lines.spec, &bump, &schema, &err), err);
    CHECK_INT(schema.n, 1);
    check_component(&schema, 0, "record", STAGER_STRING, "[]");

    stg_test_bool(&lines, "with_key", true);
    step(&lines, "shuffle", "buffer_size", 5);
    step(&lines, "repeat", NULL, 0);
    step(&lines, "batch", "batch_size", 32);
    CHECK_OK(stg_dataset_infer(&lines.spec, &bump, &schema, &err), err);
    CHECK_INT(schema.n, 2);
    check_component(&schema, 0, "record", STAGER_STRING, "[?]");
    check_component(&schema, 1, "key", STAGER_STRING, "[?]");

    step(&lines, "batch", "batch_size", 4);
    stg_test_bool(&lines, "drop_remainder", true);
    CHECK_OK(stg_dataset_infer(&lines.spec, &bump, &schema, &err), err);
    check_component(&schema, 1, "key", STAGER_STRING, "[4, ?]");

    struct stg_test_spec range = {0};
    stg_test_range(&range, 9);
    CHECK_OK(stg_dataset_infer(&range.spec, &bump, &schema, &err), err);
    check_component(&schema, 0, "value", STAGER_INT64, "[]");
    stg_bump_finish(&bump);
}

static const struct stg_test tests[] = {
    TEST(range_counts_like_tf_data),
    TEST(range_does_not_overflow_at_the_ends_of_int64),
    TEST(batch_keeps_or_drops_the_remainder),
    TEST(a_batch_of_batches_has_two_dimensions),
    TEST(a_batch_of_unequal_batches_is_an_error_that_names_both_shapes),
    TEST(a_large_batch_is_put_together_from_many_blocks),
    TEST(repeat_before_batch_lets_a_batch_span_epochs),
    TEST(repeat_after_batch_keeps_epochs_apart),
    TEST(repeat_zero_is_empty),
    TEST(repeat_without_count_does_not_end),
    TEST(an_endless_repeat_of_nothing_ends),
    TEST(the_outermost_repeat_counts_the_epochs),
    TEST(the_end_stays_the_end),
    TEST(a_stopped_dataset_returns_cancelled),
    TEST(a_block_outlives_its_dataset),
    TEST(infer_refuses_numbers_out_of_range),
    TEST(infer_refuses_numbers_of_text_line_out_of_range),
    TEST(infer_refuses_steps_in_a_wrong_order),
    TEST(infer_refuses_patterns_that_are_no_paths),
    TEST(a_batch_has_at_most_seven_dimensions),
    TEST(infer_returns_the_schema_of_an_item),
};

TEST_MAIN(tests)
