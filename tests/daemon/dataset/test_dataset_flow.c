/* SPDX-License-Identifier: Apache-2.0
 *
 * take, skip, shard, enumerate, unbatch, rebatch, shuffle_and_repeat, ignore_errors, as
 * far as the harness of all steps does not cover them: wrong attributes, output, and no
 * copy where none is needed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/step.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static struct stg_pipeline_spec *load(const char *text)
{
    struct stg_pipeline_spec *spec;
    struct stg_err err = {0};
    CHECK_OK(stg_load_pipeline(text, strlen(text), "p", &spec, &err), err);
    return spec;
}

static char *items(const char *text)
{
    struct stg_pipeline_spec *spec = load(text);
    struct stg_test_spec test = {.spec = *spec};
    struct stg_dataset_env env = stg_test_env();
    char *ret = stg_test_render(&test, &env, 0);
    stg_pipeline_spec_destroy(spec);
    return ret;
}

static void check_items(const char *text, const char *want)
{
    char *got = items(text);
    CHECK_STR(got, want);
    free(got);
}

/* ---- infer ---- */

/* Returns the error that refuses `dataset: [{range: {stop: 5}}, STEPS]`. */
static void check_refused(const char *steps, const char *why)
{
    char text[512];
    snprintf(text, sizeof(text), "dataset:\n- range: {stop: 5}\n%s", steps);
    struct stg_pipeline_spec *spec = load(text);
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_schema schema;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_infer(spec, &bump, &schema, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, why);
    stg_bump_finish(&bump);
    stg_pipeline_spec_destroy(spec);
}

/* TFD-E1 */
static void mistakes_are_found_before_anything_runs(void)
{
    check_refused("- shard: {num_shards: 3, index: 3}\n",
                  "step shard (line 3): index is 3; with num_shards 3 it must be from 0 "
                  "to 2");
    check_refused(
        "- enumerate: {name: value}\n",
        "step enumerate (line 3): component value already exists; choose another `name`");
    check_refused(
        "- enumerate\n- enumerate\n",
        "step enumerate (line 4): component index already exists; choose another `name`");
    check_refused("- unbatch\n",
                  "step unbatch (line 3): component value is a scalar and cannot be "
                  "split into elements; put this step after `batch`");
    check_refused("- rebatch: {batch_size: 2}\n",
                  "step rebatch (line 3): component value is a scalar and cannot be "
                  "split into elements; put this step after `batch`");
    check_refused("- batch: {batch_size: 2}\n- rebatch: {drop_remainder: true}\n",
                  "step rebatch (line 4): batch_size is missing");
    check_refused("- shuffle_and_repeat: {buffer_size: 3, count: 0}\n",
                  "step shuffle_and_repeat (line 3): count is 0; it must be 1 or more, "
                  "or -1 to repeat forever");
}

static void check_load_error(const char *step, const char *why)
{
    char text[512];
    snprintf(text, sizeof(text), "dataset:\n- range: {stop: 5}\n- %s\n", step);
    struct stg_pipeline_spec *spec;
    struct stg_err err = {0};
    CHECK_INT(stg_load_pipeline(text, strlen(text), "p", &spec, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, why);
}

/* TFD-E1 */
static void numbers_out_of_range_and_slips_of_the_pen_have_a_place(void)
{
    check_load_error("take: {count: -2}", "p:3:17: dataset[1].take.count: found -2; "
                                          "expected an integer of at least -1");
    check_load_error("take: {}", "p:3:9: dataset[1].take.count: missing; add \"count: "
                                 "...\" here");
    check_load_error("shard: {num_shards: 0, index: 0}",
                     "p:3:23: dataset[1].shard.num_shards: found 0; expected an integer "
                     "from 1 to 2147483647, or auto");
    check_load_error("rebatch: {batch_size: [3, 0]}",
                     "p:3:29: dataset[1].rebatch.batch_size[1]: found 0; expected an "
                     "integer from 1 to 2147483647");
    check_load_error("ignore_error", "p:3:3: dataset[1]: unknown key \"ignore_error\"; "
                                     "did you mean \"ignore_errors\"?");
    check_load_error("unbach", "p:3:3: dataset[1]: unknown key \"unbach\"; did you mean "
                               "\"unbatch\"?");
    check_load_error("ignore_errors: {max_ignore: 3}",
                     "p:3:19: dataset[1].ignore_errors: unknown key \"max_ignore\"; did "
                     "you mean \"max_ignored\"?");
}

/* Returns "name dtype shape, …" of the output. */
static void check_yields(const char *steps, const char *want)
{
    char text[512], got[512] = "", shape[64];
    snprintf(text, sizeof(text), "dataset:\n- range: {stop: 5}\n%s", steps);
    struct stg_pipeline_spec *spec = load(text);
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_schema schema;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_infer(spec, &bump, &schema, &err), err);
    for (size_t c = 0; c < schema.n; c++) {
        const struct stg_component *component = &schema.components[c];
        size_t used = strlen(got);
        snprintf(got + used, sizeof(got) - used, "%s%s %s %s", c > 0 ? ", " : "",
                 component->name, stg_dtype_name(component->dtype),
                 stg_shape_text(component->shape, component->ndim, shape, sizeof(shape)));
    }
    CHECK_STR(got, want);
    stg_bump_finish(&bump);
    stg_pipeline_spec_destroy(spec);
}

#define BATCH_4 "- batch: {batch_size: 4, drop_remainder: true}\n"

static void infer_returns_the_schema_of_the_output(void)
{
    check_yields("- take: {count: 3}\n- skip: {count: 1}\n- ignore_errors\n"
                 "- shard: {num_shards: 2, index: 0}\n",
                 "value int64 []");
    check_yields("- enumerate\n", "index int64 [], value int64 []");
    check_yields(BATCH_4 "- enumerate: {name: step}\n", "step int64 [], value int64 [4]");
    check_yields(BATCH_4 "- unbatch\n", "value int64 []");
    check_yields(BATCH_4 BATCH_4 "- unbatch\n", "value int64 [4]");
    check_yields(BATCH_4 "- rebatch: {batch_size: 3}\n", "value int64 [?]");
    check_yields(BATCH_4 "- rebatch: {batch_size: 3, drop_remainder: true}\n",
                 "value int64 [3]");
    check_yields(BATCH_4 "- rebatch: {batch_size: [3, 3], drop_remainder: true}\n",
                 "value int64 [3]");
    check_yields(BATCH_4 "- rebatch: {batch_size: [3, 2], drop_remainder: true}\n",
                 "value int64 [?]");
}

/* ---- equivalent pipelines ---- */

static void shuffle_and_repeat_is_shuffle_and_repeat(void)
{
    char *fused = items("dataset:\n- range: {stop: 50}\n- shuffle_and_repeat: "
                        "{buffer_size: 9, count: 4, seed: 3}\n- batch: {batch_size: 7}");
    check_items("dataset:\n- range: {stop: 50}\n- shuffle: {buffer_size: 9, seed: 3}\n"
                "- repeat: {count: 4}\n- batch: {batch_size: 7}",
                fused);
    free(fused);
}

static void the_shards_are_the_whole(void)
{
    bool seen[100] = {false};
    for (int index = 0; index < 7; index++) {
        char text[200];
        snprintf(text, sizeof(text),
                 "dataset:\n- range: {stop: 100}\n- shard: {num_shards: 7, index: %d}\n",
                 index);
        char *got = items(text), *save = NULL;
        for (char *line = strtok_r(got, "\n", &save); line != NULL;
             line = strtok_r(NULL, "\n", &save)) {
            CHECK_INT(atoi(line) % 7, index);
            CHECK(!seen[atoi(line)]);
            seen[atoi(line)] = true;
        }
        free(got);
    }
    for (int i = 0; i < 100; i++)
        CHECK(seen[i]);
}

static void take_and_skip_part_a_dataset(void)
{
    check_items("dataset:\n- range: {stop: 7}\n- skip: {count: 2}\n- take: {count: 3}\n",
                "2\n3\n4\n");
    check_items("dataset:\n- range: {stop: 7}\n- take: {count: 3}\n- skip: {count: 2}\n"
                "- repeat: {count: 2}\n",
                "2\n#1 2\n");
    check_items("dataset:\n- range: {stop: 300000}\n- skip: {count: 299999}\n",
                "299999\n");
    /* The rest of the input is not requested. */
    check_items("dataset:\n- range: {stop: 3}\n- repeat\n- take: {count: 4}\n",
                "0\n1\n2\n#1 0\n");
}

static void rebatch_takes_its_sizes_in_turn(void)
{
    check_items("dataset:\n- range: {stop: 10}\n- batch: {batch_size: 4}\n"
                "- rebatch: {batch_size: [1, 3, 2]}\n",
                "[0]\n[1 2 3]\n[4 5]\n[6]\n[7 8 9]\n");
    check_items("dataset:\n- range: {stop: 10}\n- batch: {batch_size: 4}\n"
                "- rebatch: {batch_size: [1, 3, 2], drop_remainder: true}\n"
                "- repeat: {count: 2}\n",
                "[0]\n[1 2 3]\n[4 5]\n[6]\n[7 8 9]\n#1 [0]\n[1 2 3]\n[4 5]\n[6]\n[7 8 "
                "9]\n");
}

/* ---- copies ---- */

/* Returns the address of the data of the first component of the next block. */
static const char *next_data(struct stg_dataset *dataset, int64_t want, int64_t n)
{
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK_OK(dataset->last->impl->next(dataset->last, want, &block, &err), err);
    CHECK_INT(block->n_records, n);
    const char *data = block->tensors[0].data;
    stg_block_unref(block);
    return data;
}

static void a_batch_is_taken_apart_in_its_place(void)
{
    struct stg_pipeline_spec *spec = load("dataset:\n- range: {stop: 100}\n"
                                          "- batch: {batch_size: 50}\n- unbatch\n");
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(spec, &env, &dataset, &err), err);
    const char *first = next_data(dataset, 10, 10);
    CHECK(next_data(dataset, 15, 15) == first + 10 * sizeof(int64_t));
    CHECK(next_data(dataset, 100, 25) == first + 25 * sizeof(int64_t));
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- provenance ---- */

static void every_row_keeps_its_place_through_all_of_them(void)
{
    char text[4096], *at = text;
    for (int i = 0; i < 40; i++)
        at += sprintf(at, "%d\n", i);
    stg_test_file("a", text, (size_t)(at - text));
    snprintf(
        text, sizeof(text),
        "dataset:\n- files: {pattern: %s}\n- text_line\n- skip: {count: 3}\n"
        "- shard: {num_shards: 2, index: 1}\n- batch: {batch_size: 4}\n"
        "- rebatch: {batch_size: 3}\n- batch: {batch_size: 2, drop_remainder: true}\n"
        "- unbatch\n- unbatch\n- enumerate\n",
        stg_test_path("a"));
    struct stg_pipeline_spec *spec = load(text);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(spec, &env, &dataset, &err), err);
    struct stg_block *block;
    int64_t n = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        CHECK_INT(block->n_rows, 1);
        CHECK_INT(block->rows[0].record, 4 + 2 * n);
        CHECK_INT(*(int64_t *)block->tensors[0].data, n++);
        stg_block_unref(block);
    }
    CHECK_INT(n, 18);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- ignored errors ---- */

/* Lines longer than 3 bytes are errors: there are three. */
static struct stg_dataset *open_bad(const char *steps, struct stg_pipeline_spec **ret)
{
    STG_TEST_FILE("bad", "1\nlong1\n2\nlong2\n3\nlong3\n4\n");
    char text[512];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: %s}\n- text_line: {max_record_bytes: 3}\n%s",
             stg_test_path("bad"), steps);
    *ret = load(text);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(*ret, &env, &dataset, &err), err);
    return dataset;
}

static int count_good(struct stg_dataset *dataset, int *ret_n, struct stg_err *err)
{
    struct stg_block *block;
    int rc;
    for (*ret_n = 0; (rc = stg_dataset_next(dataset, &block, err)) == 0; (*ret_n)++) {
        CHECK_INT(block->error.code, 0);
        stg_block_unref(block);
    }
    return rc;
}

static void ignored_errors_are_counted_over_epochs(void)
{
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset =
        open_bad("- ignore_errors: {max_ignored: 3}\n- repeat: {count: 5}\n", &spec);
    struct stg_err err = {0};
    int n;
    CHECK_INT(count_good(dataset, &n, &err), 1);
    CHECK_INT(n, 20);
    CHECK_INT(stg_dataset_n_ignored(dataset), 15);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void one_more_than_max_ignored_ends_the_pass_with_the_item_in_the_error(void)
{
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = open_bad("- ignore_errors: {max_ignored: 2}\n", &spec);
    struct stg_err err = {0};
    int n;
    CHECK_INT(count_good(dataset, &n, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(n, 3);
    CHECK_CONTAINS(
        err.text,
        "step ignore_errors (line 4): more than max_ignored 2 errors in this epoch");
    CHECK_CONTAINS(err.text, "/bad: line 6 ");
    CHECK_INT(stg_dataset_n_ignored(dataset), 2);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static const struct stg_test tests[] = {
    TEST(mistakes_are_found_before_anything_runs),
    TEST(numbers_out_of_range_and_slips_of_the_pen_have_a_place),
    TEST(infer_returns_the_schema_of_the_output),
    TEST(shuffle_and_repeat_is_shuffle_and_repeat),
    TEST(the_shards_are_the_whole),
    TEST(take_and_skip_part_a_dataset),
    TEST(rebatch_takes_its_sizes_in_turn),
    TEST(a_batch_is_taken_apart_in_its_place),
    TEST(every_row_keeps_its_place_through_all_of_them),
    TEST(ignored_errors_are_counted_over_epochs),
    TEST(one_more_than_max_ignored_ends_the_pass_with_the_item_in_the_error),
};

TEST_MAIN(tests)
