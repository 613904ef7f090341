/* SPDX-License-Identifier: Apache-2.0
 *
 * Advice about the order of steps: a test for each rule, and for pipelines without
 * advice.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/dataset/step_lint.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_yaml.h"

#define RANGE "dataset:\n- range: {stop: 100}\n"
#define SHUFFLE "- shuffle: {buffer_size: 10}\n"
#define BATCH "- batch: {batch_size: 4}\n"
#define TWICE                                                                            \
    "- map: {graph: {x: {op: add, input: [value, value]}}, output: {value: x}}\n"
#define SUM                                                                              \
    "- map: {graph: {one: {op: constant, value: 1, dtype: int64}, "                      \
    "row: {op: stack, input: [value, one]}, x: {op: reduce_sum, input: row}}, "          \
    "output: {value: x}}\n"

/* Returns all lines, each terminated. */
static const char *advice(const char *text)
{
    static char ret[4096];
    const struct stg_test_spec *spec = stg_test_yaml("%s", text);
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    const char *lines[16];
    size_t n = stg_step_lint(&spec->spec, &bump, lines, 16);
    ret[0] = '\0';
    for (size_t i = 0; i < n; i++)
        strcat(strcat(ret, lines[i]), "\n");
    stg_bump_finish(&bump);
    return ret;
}

/* Checks for one line that begins with that and contains `what`. */
static void says(const char *text, const char *begin, const char *what)
{
    const char *got = advice(text);
    if (strncmp(got, begin, strlen(begin)) != 0)
        FAIL("%s\nsays \"%s\", not \"%s\"", text, got, begin);
    CHECK_CONTAINS(got, what);
    CHECK(strchr(got, '\n') == got + strlen(got) - 1);
}

static void is_silent(const char *text)
{
    CHECK_STR(advice(text), "");
}

static void a_window_that_is_a_small_part_is_to_be_global(void)
{
    says("dataset:\n- range: {stop: 20000}\n" SHUFFLE,
         "step shuffle (line 3): ", "the buffer holds 10 of 20000 elements");
    says("dataset:\n- range: {stop: 100000}\n- take: {count: 60000}\n"
         "- shard: {num_shards: 2, index: 0}\n" SHUFFLE,
         "step shuffle (line 5): ", "10 of 30000 elements");
    is_silent("dataset:\n- range: {stop: 9999}\n" SHUFFLE);
    is_silent("dataset:\n- range: {stop: 90000}\n- take: {count: 99}\n" SHUFFLE);
    is_silent("dataset:\n- range: {stop: 90000}\n- shuffle: {global: true}\n");
    is_silent("dataset:\n- range: {stop: 20000}\n- shuffle: {buffer_size: 1001}\n");
    is_silent("dataset:\n- files: {pattern: a}\n- text_line\n" SHUFFLE);
}

static void a_good_order_is_not_talked_about(void)
{
    is_silent(RANGE SHUFFLE "- repeat: {count: 2}\n" BATCH);
    is_silent(RANGE "- take: {count: 9}\n" SHUFFLE BATCH "- repeat\n");
    is_silent(RANGE "- shard: {num_shards: 2, index: 0}\n" SHUFFLE
                    "- ignore_errors\n" BATCH);
    is_silent(RANGE "- shuffle_and_repeat: {buffer_size: 3, count: 2}\n" BATCH);
}

static void repeat_before_shuffle_mixes_epochs(void)
{
    says(RANGE "- repeat: {count: 2}\n" SHUFFLE BATCH,
         "step repeat (line 3) before shuffle (line 4): epochs mix", "shuffle before");
}

static void batch_before_shuffle_shuffles_batches(void)
{
    says(RANGE BATCH SHUFFLE, "step batch (line 3) before shuffle (line 4): ",
         "put shuffle before the batches are made");
    says(RANGE "- padded_batch: {batch_size: 2}\n" SHUFFLE,
         "step padded_batch (line 3) before shuffle (line 4): ", "stay together");
    is_silent(RANGE BATCH "- unbatch\n" SHUFFLE BATCH);
}

static void a_map_that_makes_elements_larger_goes_behind_shuffle(void)
{
    const char *grows =
        "- map: {graph: {zeros: {op: constant, value: 0, shape: [100], dtype: int64}, "
        "x: {op: add, input: [value, zeros]}}, output: {x: x}, num_parallel_calls: 2}\n";
    char text[1024];
    snprintf(text, sizeof(text), "%s%s%s%s", RANGE, grows, SHUFFLE, BATCH);
    says(text, "step map (line 3) before shuffle (line 4): ", "put shuffle before map");
    snprintf(text, sizeof(text), "%s%s%s- take: {count: 9}\n%s", RANGE, SHUFFLE, grows,
             BATCH);
    is_silent(text);
    /* Of strings nothing is known: no advice about the buffer of shuffle. */
    says("dataset:\n- files: {pattern: /x}\n- text_line\n"
         "- map: {graph: {c: {op: decode_csv, input: record, record_defaults: [0, "
         "0]}}, output: [\"c:0\", \"c:1\"]}\n" SHUFFLE BATCH,
         "step map (line 4) before batch (line 6): ",
         "; better: files, text_line, shuffle, batch, map");
}

static void work_on_what_is_left_out_is_seen(void)
{
    says(RANGE SHUFFLE "- shard: {num_shards: 2, index: 0}\n",
         "step shuffle (line 3) before shard (line 4): ", "put shard first");
    says(RANGE TWICE "- shard: {num_shards: 2, index: 0}\n",
         "step map (line 3) before shard (line 4): ", "put shard before map");
}

static void a_cache_goes_where_its_contents_are_wanted_again(void)
{
    says(RANGE SHUFFLE "- cache\n" BATCH, "step shuffle (line 3) before cache (line 4): ",
         "keeps the order of its first epoch");
    says(RANGE "- repeat: {count: 2}\n- cache\n" BATCH,
         "step repeat (line 3) before cache (line 4): ", "put repeat behind cache");
    says(RANGE "- cache\n- take: {count: 3}\n" BATCH,
         "step cache (line 3) before take (line 4): ", "put take before cache");
    CHECK_CONTAINS(advice(RANGE "- cache\n" SUM BATCH),
                   "step cache (line 3) before map (line 4): map works anew in each "
                   "epoch");
    is_silent(RANGE "- take: {count: 3}\n- cache\n" SHUFFLE "- repeat\n" BATCH);
}

static void errors_are_left_out_before_batches_are_made(void)
{
    says(RANGE BATCH "- ignore_errors\n",
         "step batch (line 3) before ignore_errors (line 4): ",
         "put ignore_errors before");
}

static void a_cheap_map_before_batch_belongs_in_the_graph(void)
{
    says(RANGE TWICE BATCH, "step map (line 3) before batch (line 4): ",
         "as nodes of the pipeline's `graph:`");
    says(RANGE TWICE SHUFFLE BATCH, "step map (line 3) before batch (line 5): ",
         "; better: range, shuffle, batch, map");
    is_silent(RANGE TWICE "- filter: {graph: {p: {op: less, input: [value, value]}}, "
                          "predicate: p}\n" BATCH);
}

static void a_map_of_single_elements_may_use_all_cpus(void)
{
    says(RANGE SUM BATCH, "step map (line 3): its ops run once for each element",
         "num_parallel_calls: auto");
    is_silent(RANGE "- map: {graph: {one: {op: constant, value: 1, dtype: int64}, "
                    "row: {op: stack, input: [value, one]}}, output: {value: value, "
                    "row: row}, num_parallel_calls: 2}\n" BATCH);
}

/* What the guide "Better performance with tf.data" advises, with its pipelines as
 * steps. */
static void the_examples_of_the_guide_get_its_advice(void)
{
#define FILES "dataset:\n- files: {pattern: /x}\n"
#define PHOTOS FILES "- read_file\n"
#define DECODE                                                                           \
    "- map: {graph: {image: {op: decode_image, input: bytes}}, output: {image: image}, " \
    "num_parallel_calls: auto}\n"
#define RESIZE                                                                           \
    "- map: {graph: {image: {op: decode_image, input: bytes}, small: {op: "              \
    "resize_bilinear, input: image, size: [224, 224]}}, output: {image: small}, "        \
    "num_parallel_calls: "                                                               \
    "auto}\n"
    static const struct {
        const char *text, *advice, *better;
    } rows[] = {
        {PHOTOS DECODE SHUFFLE, "the buffer of shuffle holds what map makes",
         "; better: files, read_file, shuffle, map"},
        {PHOTOS RESIZE SHUFFLE, "the buffer of shuffle holds what map makes",
         "; better: files, read_file, shuffle, map"},
        {PHOTOS DECODE "- prefetch: {buffer_size: 4}\n",
         "the buffer of prefetch holds what map makes",
         "; better: files, read_file, prefetch, map"},
        {PHOTOS DECODE "- cache\n", "the cache holds what map makes",
         "; better: files, read_file, cache, map"},
        {RANGE "- repeat: {count: 2}\n" SHUFFLE BATCH, "epochs mix",
         "; better: range, shuffle, repeat, batch"},
        {RANGE TWICE BATCH, "behind batch it runs once for each batch",
         "; better: range, batch, map"},
        {RANGE TWICE "- repeat: {count: 2}\n" BATCH,
         "behind batch it runs once for each batch",
         "; better: range, repeat, batch, map"},
        {RANGE "- map: {graph: {one: {op: constant, value: 1, dtype: int64}, row: {op: "
               "stack, input: [value, one]}, x: {op: reduce_sum, input: row}}, output: "
               "{value: x}, num_parallel_calls: 4096}\n" BATCH,
         "num_parallel_calls 4096 is far above the ", "num_parallel_calls: auto finds"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        says(rows[i].text, "step ", rows[i].advice);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_CONTAINS(advice(rows[i].text), rows[i].better);
    is_silent(PHOTOS SHUFFLE RESIZE BATCH);
    is_silent(PHOTOS "- cache\n" SHUFFLE "- repeat: {count: 2}\n" BATCH
                     "- prefetch: {buffer_size: 2}\n");
}

static void files_far_away_are_read_at_once(void)
{
    static const char far[] = "step files (line 2): ", what[] = "interleave with a large";
    says("dataset:\n- files: {pattern: \"s3://bucket/x*\"}\n- tfrecord\n" BATCH, far,
         what);
    says("dataset:\n- files: {pattern: [\"http://host/x\", \"http://host/y\"]}\n"
         "- text_line\n" BATCH,
         far, what);
    is_silent("dataset:\n- files: {pattern: \"s3://bucket/x*\"}\n"
              "- interleave: {reader: {tfrecord: {}}}\n" BATCH);
    is_silent("dataset:\n- files: {pattern: \"http://host/x\"}\n- tfrecord\n" BATCH);
    is_silent("dataset:\n- files: {pattern: \"/data/x*\"}\n- tfrecord\n" BATCH);
}

static const struct stg_test tests[] = {
    TEST(a_window_that_is_a_small_part_is_to_be_global),
    TEST(a_good_order_is_not_talked_about),
    TEST(repeat_before_shuffle_mixes_epochs),
    TEST(batch_before_shuffle_shuffles_batches),
    TEST(a_map_that_makes_elements_larger_goes_behind_shuffle),
    TEST(work_on_what_is_left_out_is_seen),
    TEST(a_cache_goes_where_its_contents_are_wanted_again),
    TEST(errors_are_left_out_before_batches_are_made),
    TEST(a_cheap_map_before_batch_belongs_in_the_graph),
    TEST(a_map_of_single_elements_may_use_all_cpus),
    TEST(the_examples_of_the_guide_get_its_advice),
    TEST(files_far_away_are_read_at_once),
};

TEST_MAIN(tests)
