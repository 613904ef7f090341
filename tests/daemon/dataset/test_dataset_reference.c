/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases from tf.data's own tests, numbered TFD-…, that no other test of datasets covers.
 * If tf.data loses or repeats an element, the case states stager's result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_parquet.h"
#include "tests/daemon/format/golden_tar.h"
#include "tests/daemon/format/golden_tfrecord.h"

static char *items(const char *text, uint64_t pass)
{
    struct stg_dataset_env env = stg_test_env();
    env.pass = pass;
    return stg_test_render_text(text, &env, 0);
}

static void check_items(const char *text, const char *want)
{
    char *got = items(text, 0);
    CHECK_STR(got, want);
    free(got);
}

/* ---- errors ---- */

#define CSV_GRAPH                                                                        \
    "{graph: {columns: {op: decode_csv, input: record, record_defaults: [0, 0]}}, "      \
    "output: {a: \"columns:0\", b: \"columns:1\"}}"

/* TFD-E3 */
static void of_three_bad_rows_and_a_good_one_the_good_one_is_left(void)
{
    STG_TEST_FILE("bad.csv", "1,x\n\"2\"3,4\n5,6\n7,8,9\n");
    check_items("dataset:\n- files: {pattern: $DIR/bad.csv}\n- csv\n- map: " CSV_GRAPH
                "\n- ignore_errors\n",
                "5 6\n");
    check_items("dataset:\n- files: {pattern: $DIR/bad.csv}\n- csv\n- map: " CSV_GRAPH
                "\n- ignore_errors\n- batch: {batch_size: 2}\n- repeat: {count: 2}\n",
                "[5] [6]\n#1 [5] [6]\n");
}

static void make_three(void)
{
    STG_TEST_FILE("m1", "a\n");
    STG_TEST_FILE("m2", "b\n");
    STG_TEST_FILE("m3", "c\n");
}

/* TFD-E5, for a reader: the pass ends, and ignore_errors does not retry for ever. */
static void a_file_that_is_missing_ends_a_reader_also_when_errors_are_ignored(void)
{
    make_three();
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        "dataset:\n- files: {pattern: \"$DIR/m*\", shuffle: false}\n- text_line\n"
        "- ignore_errors\n",
        &env, &spec);
    unlink(stg_test_path("m2"));
    struct stg_block *block;
    struct stg_err err = {0};
    stg_block_unref(stg_test_next(dataset));
    for (int i = 0; i < 3; i++) {
        CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_NOT_FOUND);
        CHECK_CONTAINS(err.text, "/m2");
    }
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* Of m1, m2 and m3 the second is missing, when it is opened. Returns the number of
 * elements and of errors with that code. */
static void drain_without_m2(const char *reader, int *ret_n, int *ret_missing)
{
    char text[512];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/m*\", shuffle: false}\n- %s\n", reader);
    struct stg_dataset_env env = stg_test_env();
    env.ignored_codes = STG_CODE_BIT(STAGER_NOT_FOUND);
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    unlink(stg_test_path("m2"));
    *ret_n = *ret_missing = 0;
    for (struct stg_block *block; (block = stg_test_next(dataset)) != NULL;) {
        *ret_missing += block->error.code == -STAGER_NOT_FOUND;
        *ret_n += block->error.code == 0;
        if (block->error.code != 0)
            CHECK_CONTAINS(block->error.text, "/m2");
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void a_file_that_is_missing_is_an_item_of_each_reader_where_that_is_ignored(void)
{
    static const struct {
        const char *reader;
        const void *data;
        size_t bytes;
        int n; /* elements of a file */
    } rows[] = {
        {"text_line", "a\nb\n", 4, 2},
        {"csv", "1,2\n", 4, 1},
        {"jsonl", "{}\n", 3, 1},
        {"read_file", "abc", 3, 1},
        {"fixed_length_record: {record_bytes: 2}", "abcd", 4, 2},
        {"tfrecord", golden_plain, sizeof(golden_plain),
         sizeof(golden_bytes) / sizeof(golden_bytes[0])},
        {"npy: {dtype: float32, shape: [2, 3]}", npy_grid, sizeof(npy_grid), -1},
        {"tar: {parts: [y, x]}", tar_small, sizeof(tar_small), -1},
        {"parquet: {columns: {id: int64, name: string}}", parquet_plain,
         sizeof(parquet_plain), 23},
        {"interleave: {reader: text_line}", "a\n", 2, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static const char *const names[] = {"m1", "m2", "m3"};
        int n, n_missing;
        for (int k = 0; k < 3; k++)
            stg_test_file(names[k], rows[i].data, rows[i].bytes);
        drain_without_m2(rows[i].reader, &n, &n_missing);
        if (n_missing != 1)
            FAIL("%s: %d errors", rows[i].reader, n_missing);
        if (rows[i].n < 0 ? n == 0 || n % 2 != 0 : n != 2 * rows[i].n)
            FAIL("%s: %d elements", rows[i].reader, n);
    }
}

static void a_pattern_without_a_file_is_left_out_where_that_is_ignored(void)
{
    stg_log_set_level(STG_LOG_ERROR);
    STG_TEST_FILE("a", "1\n");
    struct stg_dataset_env env = stg_test_env();
    env.ignored_codes = STG_CODE_BIT(STAGER_NOT_FOUND);
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        "dataset:\n- files: {pattern: [\"$DIR/none\", \"$DIR/a\", \"$DIR/no/*\"]}\n"
        "- text_line\n",
        &env, &spec);
    stg_block_unref(stg_test_next(dataset));
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* TFD-E5, for interleave: that file is one error, which is ignored. */
static void a_file_that_is_missing_costs_interleave_itself_alone(void)
{
    make_three();
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        "dataset:\n- files: {pattern: \"$DIR/m*\", shuffle: false}\n"
        "- interleave: {reader: text_line, cycle_length: 1, num_parallel_calls: 0}\n"
        "- ignore_errors\n- batch: {batch_size: 5}\n",
        &env, &spec);
    unlink(stg_test_path("m2"));
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->tensors[0].shape[0], 2);
    CHECK_INT(stg_dataset_n_ignored(dataset), 1);
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* Divides by (value - 2) * (value - 5); lower values finish later. */
#define FAILS_AT_2_AND_5                                                                 \
    "{graph: {two: {op: constant, value: 2, dtype: int64}, five: {op: constant, value: " \
    "5, dtype: int64}, most: {op: constant, value: 9000, dtype: int64}, k: {op: "        \
    "constant, value: 1000, dtype: int64}, rest: {op: multiply, input: [value, k]}, "    \
    "wait: {op: subtract, input: [most, rest]}, late: {op: sleep, input: [value, "       \
    "wait]}, a: {op: subtract, input: [late, two]}, b: {op: subtract, input: [late, "    \
    "five]}, ab: {op: multiply, input: [a, b]}, x: {op: floordiv, input: [ab, ab]}, y: " \
    "{op: multiply, input: [x, value]}}, output: y, batch_size: 8, "                     \
    "num_parallel_calls: 4}"

/* TFD-E12: errors come in the order of elements, not of completion. */
static void of_two_failures_in_a_parallel_batch_the_lowest_is_reported_first(void)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        "dataset:\n- range: {stop: 8}\n- map_and_batch: " FAILS_AT_2_AND_5 "\n", &env,
        &spec);
    static const char *const want[] = {"element 2", "element 5"};
    for (int i = 0; i < 2; i++) {
        struct stg_block *block = stg_test_next(dataset);
        CHECK_INT(block->error.code, -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(block->error.text, want[i]);
        stg_block_unref(block);
    }
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, 0);
    CHECK_INT(block->tensors[0].shape[0], 6);
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- order ---- */

#define SHUFFLED(arguments)                                                              \
    "dataset:\n- range: {stop: 50}\n- shuffle: {buffer_size: 50, " arguments             \
    "}\n- batch: {batch_size: 50}\n- repeat: {count: 2}\n"

/* Two lines, the second one prefixed with "#1 ". Returns whether both epochs are
 * equal. */
static bool epochs_are_alike(const char *text)
{
    const char *second = strstr(text, "\n#1 ");
    CHECK(second != NULL);
    size_t n = (size_t)(second - text);
    CHECK_INT(strlen(second), n + strlen("\n#1 \n"));
    return strncmp(text, second + strlen("\n#1 "), n) == 0;
}

/* TFD-D4: `pass` corresponds to a fresh iterator. */
static void epochs_and_passes_are_reshuffled_only_on_request(void)
{
    char *a = items(SHUFFLED("seed: 5"), 0), *b = items(SHUFFLED("seed: 5"), 0);
    char *c = items(SHUFFLED("seed: 5"), 1);
    CHECK_STR(a, b);
    CHECK(strcmp(a, c) != 0);
    CHECK(!epochs_are_alike(a) && !epochs_are_alike(c));
    free(b);
    free(c);
    b = items(SHUFFLED("seed: 5, reshuffle_each_iteration: false"), 0);
    c = items(SHUFFLED("seed: 5, reshuffle_each_iteration: false"), 1);
    CHECK_STR(b, c);
    CHECK(epochs_are_alike(b));
    free(a);
    free(b);
    free(c);
}

/* TFD-D5 */
static void two_shuffles_of_one_seed_agree_and_of_two_do_not(void)
{
    static const char *const text =
        "datasets:\n  a: [range: {stop: 40}, shuffle: {buffer_size: 9, seed: 3}]\n"
        "  b: [range: {stop: 40}, shuffle: {buffer_size: 9, seed: %d}]\n"
        "dataset: [zip: {from: [a, b]}, repeat: {count: 2}]\n";
    for (int seed = 3; seed < 5; seed++) {
        char filled[512];
        struct stg_dataset_env env = stg_test_env();
        struct stg_pipeline_spec *spec;
        snprintf(filled, sizeof(filled), text, seed);
        struct stg_dataset *dataset = stg_test_open_text(filled, &env, &spec);
        int n = 0, n_alike = 0;
        for (struct stg_block *block; (block = stg_test_next(dataset)) != NULL; n++) {
            n_alike += *(const int64_t *)block->tensors[0].data ==
                       *(const int64_t *)block->tensors[1].data;
            stg_block_unref(block);
        }
        CHECK_INT(n, 80);
        CHECK((n_alike == n) == (seed == 3));
        stg_dataset_destroy(dataset);
        stg_pipeline_spec_destroy(spec);
    }
}

/* TFD-D8: a whole shuffle is `shuffle` with a buffer for all elements; no other step does
 * it. */
static void a_shuffle_by_index_is_refused(void)
{
    CHECK_CONTAINS(stg_test_refused("dataset: [{range: {stop: 3}}, global_shuffle]\n"),
                   "unknown");
}

/* ---- lifetime ---- */

/* TFD-M4: all of them wait for one another, and none for a thread that does not exist. */
static void steps_of_one_thread_each_come_to_their_end(void)
{
    make_three();
    static const char *const text =
        "dataset:\n- files: {pattern: \"$DIR/m*\", shuffle: false}\n"
        "- interleave: {reader: text_line, cycle_length: 3, num_parallel_calls: 1, "
        "prefetch_input_elements: 0, buffer_output_elements: 1}\n"
        "- prefetch: {buffer_size: 1}\n"
        "- map: {graph: {x: {op: string_upper, input: record}}, output: x, "
        "num_parallel_calls: 1}\n"
        "- prefetch: {buffer_size: 1}\n- batch: {batch_size: 2}\n"
        "- prefetch: {buffer_size: 1}\n- repeat: {count: 2}\n";
    for (int i = 0; i < 50; i++)
        check_items(text, "[A B]\n[C]\n#1 [A B]\n[C]\n");
}

static const struct stg_test tests[] = {
    TEST(of_three_bad_rows_and_a_good_one_the_good_one_is_left),
    TEST(a_file_that_is_missing_ends_a_reader_also_when_errors_are_ignored),
    TEST(a_file_that_is_missing_is_an_item_of_each_reader_where_that_is_ignored),
    TEST(a_pattern_without_a_file_is_left_out_where_that_is_ignored),
    TEST(a_file_that_is_missing_costs_interleave_itself_alone),
    TEST(of_two_failures_in_a_parallel_batch_the_lowest_is_reported_first),
    TEST(epochs_and_passes_are_reshuffled_only_on_request),
    TEST(two_shuffles_of_one_seed_agree_and_of_two_do_not),
    TEST(a_shuffle_by_index_is_refused),
    TEST(steps_of_one_thread_each_come_to_their_end),
};

TEST_MAIN(tests)
