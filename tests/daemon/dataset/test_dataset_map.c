/* SPDX-License-Identifier: Apache-2.0
 *
 * map, filter and map_and_batch. The properties of every step are in test_step_harness.c.
 * The expectations follow from the definitions; golden_steps.py has TensorFlow's results.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/dataset/step.h"
#include "daemon/dataset/steps/jump.h"
#include "daemon/dataset/task_pool.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_yaml.h"

#define RANGE(n) "dataset:\n- range: {stop: " #n "}\n"
#define INT(name, value) #name ": {op: constant, value: " #value ", dtype: int64}"

/* ---- map ---- */

static void map_computes_each_element(void)
{
    stg_test_yaml_items(
        RANGE(4) "- map: {graph: {" INT(
            ten, 10) ", sum: {op: add, input: [value, ten]}, "
                     "square: {op: multiply, input: [value, value]}}, "
                     "output: {sum: sum, square: square, value: value}}\n",
        "10 0 0\n11 1 1\n12 4 2\n13 9 3\n");
}

static void an_output_is_one_tensor_a_list_or_a_mapping(void)
{
    const char *const outputs[] = {"sum", "[sum]", "{x: sum}", "{a: {b: sum}}"};
    const char *const names[] = {"sum", "0", "x", "a/b"};
    for (size_t i = 0; i < 4; i++) {
        struct stg_test_spec *spec =
            stg_test_yaml(RANGE(2) "- map: {graph: [{name: sum, op: add, input: [value, "
                                   "value]}], output: %s}\n",
                          outputs[i]);
        struct stg_bump bump;
        struct stg_schema schema;
        struct stg_err err = {0};
        stg_bump_init(&bump, 0);
        CHECK_OK(stg_dataset_infer(&spec->spec, &bump, &schema, &err), err);
        CHECK_INT(schema.n, 1);
        CHECK_STR(schema.components[0].name, names[i]);
        CHECK_INT(schema.components[0].dtype, STAGER_INT64);
        CHECK_INT(schema.components[0].ndim, 0);
        stg_bump_finish(&bump);
    }
}

/* Scalars and vectors together: a broadcast for one element may be none for many. */
static void shapes_are_those_of_one_element(void)
{
    stg_test_yaml_items(
        RANGE(3) "- map: {graph: {row: {op: constant, value: [10, 20], dtype: "
                 "int64}, sum: {op: add, input: [value, row]}}, output: sum}\n",
        "[10 20]\n[11 21]\n[12 22]\n");
    stg_test_yaml_items(
        RANGE(2) "- map: {graph: {row: {op: constant, value: [10, 20], dtype: int64}, "
                 "a: {op: add, input: [value, row]}}, output: {value: value, a: a}}\n"
                 "- map: {graph: {b: {op: add, input: [a, value]}, "
                 "row: {op: constant, value: [1, 2], dtype: int64}, "
                 "c: {op: add, input: [a, row]}}, output: {b: b, c: c}}\n",
        "[10 20] [11 22]\n[12 22] [12 23]\n");
}

static void a_constant_is_an_element_for_each(void)
{
    stg_test_yaml_items(
        RANGE(2) "- map: {graph: {word: {op: constant, value: a}}, output: "
                 "{word: word, value: value}}\n- batch: {batch_size: 2}\n",
        "[a a] [0 1]\n");
}

static void elements_that_differ_in_shape_stay_as_they_are(void)
{
    STG_TEST_FILE("words", "a b c\n\nd e\n");
    char text[512];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: %s, shuffle: false}\n- text_line\n"
             "- map: {graph: {words: {op: string_split, input: record}}, "
             "output: \"words:0\"}\n",
             stg_test_path("words"));
    stg_test_yaml_items(text, "[a b c]\n[]\n[d e]\n");
}

/* ---- errors ---- */

static void write_csv(void)
{
    STG_TEST_FILE("rows.csv", "1,a\n2,b\nx,c\n4,d\n5\n6,f\n");
}

#define CSV                                                                              \
    "graph: {columns: {op: decode_csv, input: record, record_defaults: [0, \"\"]}}, "    \
    "output: {n: \"columns:0\", s: \"columns:1\"}"

/* TFD-E2 */
static void a_bad_line_costs_one_element_and_the_error_names_its_place(void)
{
    write_csv();
    static const char *const hows[] = {"", ", num_parallel_calls: 2"};
    for (size_t i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "dataset:\n- files: {pattern: %s, shuffle: false}\n- text_line\n"
                 "- map: {" CSV "%s}\n- batch: {batch_size: 2}\n",
                 stg_test_path("rows.csv"), hows[i]);
        stg_test_yaml_items(text, "[1 2] [a b]\n!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n"
                                  "[4 6] [d f]\n");
        char *error = stg_test_yaml_error(text);
        CHECK_CONTAINS(error, "rows.csv: line 3 (offset 8)");
        CHECK_CONTAINS(error, "step map (line 4)");
        CHECK_CONTAINS(error, "node columns (decode_csv)");
        free(error);
    }
}

static void an_element_of_no_file_is_named_by_its_number(void)
{
    char *error = stg_test_yaml_error(RANGE(9) "- map: {graph: {" INT(
        five, 5) ", d: {op: subtract, input: [value, "
                 "five]}, q: {op: floordiv, input: [five, d]}}, output: q}\n");
    CHECK_CONTAINS(error, "element 5: step map (line 3)");
    CHECK_CONTAINS(error, "integer division by zero");
    free(error);
}

/* TFD-E1 */
static void mistakes_in_the_graph_are_found_when_it_is_applied(void)
{
    stg_test_yaml_refused("dataset:\n- map: {output: value}\n", "begins with a source");
    stg_test_yaml_refused(
        RANGE(2) "- map: {graph: {s: {op: string_strip, input: value}}, "
                 "output: s}\n",
        "step map (line 3): node s (string_strip), line 3");
    stg_test_yaml_refused(
        RANGE(2) "- map: {graph: {a: {op: abs, input: vale}}, output: a}\n",
        "did you mean \"value\"?");
    stg_test_yaml_refused(RANGE(2) "- map: {output: {x: nothing}}\n",
                          "step map (line 3): output.x, line 3");
    stg_test_yaml_refused(RANGE(2) "- map: {graph: {v: {op: variable, shape: [1]}}, "
                                   "output: v}\n",
                          "cannot have variables");
    stg_test_yaml_refused(RANGE(2) "- map: {graph: {a: {op: abs, input: \"staged:x\"}}, "
                                   "output: a}\n",
                          "not staged tensors");
    stg_test_yaml_refused(RANGE(2) "- map: {output: value, num_parallel_calls: 0}\n",
                          "must be 1 to 256, or auto");
    stg_test_yaml_refused(RANGE(2) "- map: {output: value, num_parallel_calls: all}\n",
                          "must be 1 to 256, or auto");
    stg_test_yaml_refused(RANGE(2) "- map_and_batch: {output: value, batch_size: 2, "
                                   "num_parallel_calls: 2, num_parallel_batches: 2}\n",
                          "cannot both be set");
    stg_test_yaml_refused(RANGE(2) "- filter: {predicate: value}\n",
                          "predicate value is int64 []; it must be one bool");
}

/* ---- threads ---- */

/* value * 3 after a shrinking delay: later elements are finished first. */
#define SLOW_THREE                                                                       \
    "graph: {" INT(three, 3) ", " INT(                                                   \
        most, 400) ", most_now: {op: subtract, input: "                                  \
                   "[most, value]}, hundred: {op: multiply, input: [most_now, three]}, " \
                   "late: {op: sleep, input: [value, hundred]}, x: {op: multiply, "      \
                   "input: [late, "                                                      \
                   "three]}}, output: x"

static char *render(const char *how)
{
    struct stg_dataset_env env = stg_test_env();
    return stg_test_render(stg_test_yaml(RANGE(40) "- map: {" SLOW_THREE "%s}\n", how),
                           &env, 0);
}

/* TFD-D2 */
static void the_order_does_not_depend_on_the_number_of_threads(void)
{
    static const char *const hows[] = {
        ", num_parallel_calls: 1", ", num_parallel_calls: 2", ", num_parallel_calls: 7",
        ", num_parallel_calls: auto"};
    char *want = render("");
    for (size_t i = 0; i < 4; i++) {
        char *got = render(hows[i]);
        CHECK_STR(got, want);
        free(got);
    }
    free(want);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* TFD-D2 */
static void without_an_order_the_elements_are_the_same(void)
{
    char *got = render(", num_parallel_calls: 4, deterministic: false");
    int numbers[64], n = 0;
    char *save = NULL;
    for (char *at = strtok_r(got, "\n", &save); at != NULL && n < 64;
         at = strtok_r(NULL, "\n", &save))
        numbers[n++] = atoi(at);
    free(got);
    CHECK_INT(n, 40);
    qsort(numbers, 40, sizeof(numbers[0]), by_number);
    for (int i = 0; i < 40; i++)
        CHECK_INT(numbers[i], 3 * i);
}

/* 64 elements of 10 ms each. */
static void elements_are_worked_on_at_the_same_time(void)
{
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render(
        stg_test_yaml(RANGE(64) "- map: {graph: {late: {op: sleep, input: value, "
                                "sleep_microseconds: 10000}}, output: late, "
                                "num_parallel_calls: 16}\n"),
        &env, 0);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    free(got);
    double s = (double)(ended.tv_sec - began.tv_sec) +
               (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
    CHECK(s < 0.5); /* 0.04 on an idle machine, 0.64 one by one */
}

/* TFD-M1 */
static void elements_in_work_are_given_up_when_the_dataset_is(void)
{
    for (int n = 0; n < 6; n++) {
        struct stg_dataset_env env = stg_test_env();
        struct stg_dataset *dataset = stg_test_open(
            stg_test_yaml(RANGE(1000) "- map: {" SLOW_THREE ", num_parallel_calls: 3}\n"),
            &env);
        for (int i = 0; i < n; i++)
            stg_block_unref(stg_test_next(dataset));
        stg_dataset_destroy(dataset);
    }
}

struct count {
    struct stg_task task;
    _Atomic int *n;
};

static void count_one(struct stg_task *task, unsigned worker)
{
    CHECK(worker < 3);
    atomic_fetch_add(((struct count *)task)->n, 1);
}

static void a_pool_does_each_task_once(void)
{
    struct stg_task_pool *pool;
    struct stg_err err = {0};
    CHECK_OK(stg_task_pool_create(3, "test", &pool, &err), err);
    static struct count tasks[1000];
    _Atomic int n = 0;
    for (int i = 0; i < 1000; i++) {
        tasks[i] = (struct count){.task = {.run = count_one}, .n = &n};
        stg_task_pool_submit(pool, &tasks[i].task);
    }
    for (uint64_t seen = 0; seen < 1000; seen = stg_task_pool_n_done(pool))
        stg_task_pool_wait(pool, seen);
    CHECK_INT(atomic_load(&n), 1000);
    for (int i = 0; i < 1000; i++) {
        CHECK(atomic_load(&tasks[i].task.is_done));
        stg_task_pool_submit(pool, &tasks[i].task);
    }
    stg_task_pool_clear(pool);
    stg_task_pool_destroy(pool);
    CHECK(atomic_load(&n) <= 2000);
}

/* ---- memory ---- */

/* Elements of one megabyte: there is room for one group at a time, not for two. */
static void a_map_with_little_memory_waits_for_what_it_made(void)
{
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 30 << 20;
    char *got = stg_test_render(
        stg_test_yaml(RANGE(64) "- map: {graph: {zeros: {op: constant, value: 0, shape: "
                                "[131072], dtype: int64}, big: {op: add, input: [value, "
                                "zeros]}}, output: big, num_parallel_calls: 2}\n"
                                "- map: {graph: {x: {op: reduce_max, input: big}}, "
                                "output: x}\n- batch: {batch_size: 8}\n"),
        &env, 3);
    CHECK_CONTAINS(got, "[16 17 18 19 20 21 22 23]");
    free(got);
}

static void too_little_memory_for_one_element_ends_the_pass(void)
{
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 1 << 20;
    struct stg_dataset *dataset = stg_test_open(
        stg_test_yaml(RANGE(4) "- map: {graph: {zeros: {op: constant, value: 0, shape: "
                               "[262144], dtype: int64}, big: {op: add, input: [value, "
                               "zeros]}}, output: big, num_parallel_calls: 2}\n"),
        &env);
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "step map (line 3)");
    stg_dataset_destroy(dataset);
}

/* A map writes its output into the batch: no copy is made. */
static void a_batch_after_a_map_is_no_copy(void)
{
    static const char *const hows[] = {"", ", num_parallel_calls: 3"};
    for (int i = 0; i < 2; i++) {
        struct stg_dataset_env env = stg_test_env();
        struct stg_dataset *dataset = stg_test_open(
            stg_test_yaml(RANGE(64) "- map: {graph: {wide: {op: expand_dims, input: "
                                    "value, axis: 0}}, output: wide%s}\n"
                                    "- batch: {batch_size: 16}\n",
                          hows[i]),
            &env);
        struct stg_iter *batch = dataset->last, *map = batch->input;
        struct stg_block *block = stg_test_next(dataset);
        CHECK_STR(map->step->name, "map");
        const int64_t *data = block->tensors[0].data;
        for (int64_t k = 0; k < 16; k++)
            CHECK_INT(data[k], k);
        /* Its memory is one block of exactly that size. */
        uint64_t bytes = block->bytes;
        CHECK(bytes < 4096 && bytes >= 16 * sizeof(int64_t));
        CHECK((const char *)data > (const char *)block &&
              (const char *)data < (const char *)block + bytes);
        stg_block_unref(block);
        stg_dataset_destroy(dataset);
    }
}

/* ---- filter ---- */

static void filter_keeps_elements_that_are_true(void)
{
    stg_test_yaml_items(
        RANGE(10) "- filter: {graph: {" INT(three, 3) ", " INT(
            zero, 0) ", "
                     "rest: {op: floormod, input: [value, three]}, "
                     "is: {op: equal, input: [rest, zero]}}, predicate: is}\n",
        "0\n3\n6\n9\n");
    stg_test_yaml_items(
        RANGE(10) "- filter: {graph: {" INT(
            no, 20) ", is: {op: less, input: "
                    "[no, value]}}, predicate: is}\n- batch: {batch_size: 3}\n",
        "");
}

static void filter_keeps_strings_and_their_lines(void)
{
    write_csv();
    char text[512];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: %s, shuffle: false}\n- text_line\n"
             "- filter: {graph: {n: {op: string_length, input: record}, "
             "three: {op: constant, value: 3}, is: {op: equal, input: [n, three]}, "
             "x: {op: constant, value: \"2,b\"}, y: {op: not_equal, input: [record, x]}, "
             "both: {op: logical_and, input: [is, y]}}, predicate: both}\n"
             "- map: {" CSV "}\n",
             stg_test_path("rows.csv"));
    stg_test_yaml_items(text, "1 a\n!INVALID_ARGUMENT\n4 d\n6 f\n");
    char *error = stg_test_yaml_error(text);
    CHECK_CONTAINS(error, "rows.csv: line 3");
    free(error);
}

static void map_and_batch_is_map_and_then_batch(void)
{
    stg_test_yaml_items(RANGE(7) "- map_and_batch: {graph: {x: {op: add, input: [value, "
                                 "value]}}, output: x, batch_size: 3}\n",
                        "[0 2 4]\n[6 8 10]\n[12]\n");
    stg_test_yaml_items(
        RANGE(7) "- map_and_batch: {graph: {x: {op: add, input: [value, "
                 "value]}}, output: x, batch_size: 3, drop_remainder: true, "
                 "num_parallel_batches: 2}\n",
        "[0 2 4]\n[6 8 10]\n");
}

/* ---- vocabularies ---- */

#define LOOK_UP                                                                          \
    "graph: {words: {op: vocabulary, file: %s}, id: {op: lookup, input: [words, "        \
    "record], num_oov_buckets: 1}}"

static const char *lines_through(const char *step)
{
    static char text[1024];
    int n = snprintf(text, sizeof(text),
                     "dataset:\n- files: {pattern: %s, shuffle: false}\n- text_line\n",
                     STG_TEST_FILE("lines", "b\nx\na\n\nb\n"));
    snprintf(text + n, sizeof(text) - (size_t)n, step, stg_test_path("words"));
    return text;
}

static void words_are_looked_up_in_the_graph_of_a_step(void)
{
    STG_TEST_FILE("words", "a\nb\n\n");
    stg_test_yaml_items(lines_through("- map: {" LOOK_UP ", output: id}\n"),
                        "1\n3\n0\n2\n1\n");
    stg_test_yaml_items(lines_through("- map: {" LOOK_UP ", output: id, "
                                      "num_parallel_calls: 2}\n- batch: {batch_size: "
                                      "9}\n"),
                        "[1 3 0 2 1]\n");
    stg_test_yaml_items(
        lines_through("- filter: {graph: {words: {op: vocabulary, file: %s}, id: {op: "
                      "lookup, input: [words, record]}, none: {op: constant, value: -1, "
                      "dtype: int64}, is: {op: not_equal, input: [id, none]}}, "
                      "predicate: is}\n"),
        "b\na\n\nb\n");
}

/* The file is read when the pass begins, with the rights of the user that applied the
 * pipeline. */
static void a_vocabulary_that_cannot_be_read_ends_the_pass_before_it_begins(void)
{
    static char many[20000]; /* one word */
    memset(many, 'x', sizeof(many));
    STG_TEST_FILE("words", "a\nb\na\n");
    struct stg_test_spec *spec =
        stg_test_yaml("%s", lines_through("- map: {" LOOK_UP ", output: id}\n"));
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_create(&spec->spec, &env, &dataset, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "step map (line 4): node words (vocabulary)");
    CHECK_CONTAINS(err.text, "line 3 repeats \"a\"");
    unlink(stg_test_path("words"));
    CHECK_INT(stg_dataset_create(&spec->spec, &env, &dataset, &err), -STAGER_NOT_FOUND);
    stg_test_file("words", many, sizeof(many));
    env.buffer_bytes = 10000;
    CHECK_INT(stg_dataset_create(&spec->spec, &env, &dataset, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "vocabularies needs");
}

static struct stg_block *jump_and_take(struct stg_dataset *dataset, uint64_t n)
{
    struct stg_err err = {0};
    struct stg_position position;
    uint64_t got, epoch;
    CHECK_OK(stg_dataset_jump(dataset, n, &got, &position, &epoch, &err), err);
    CHECK_INT(got, n);
    return stg_test_next(dataset);
}

/* Files that change show what was read ahead. */
static void a_map_without_threads_makes_nothing_that_is_not_asked_for(void)
{
    struct stg_dataset_env env = stg_test_env();
    STG_TEST_FILE("a.number", "10");
    STG_TEST_FILE("b.number", "11");
    STG_TEST_FILE("c.number", "12");
    STG_TEST_FILE("d.number", "13");
    struct stg_test_spec *spec = stg_test_yaml(
        "dataset:\n- files: {pattern: %s, shuffle: false}\n- read_file\n"
        "- map: {graph: [{name: n, op: string_to_number, input: [bytes], out_type: "
        "int64}], output: n}\n- batch: {batch_size: 2}\n",
        stg_test_path("*.number"));
    struct stg_dataset *dataset = stg_test_open(spec, &env);
    stg_block_unref(stg_test_next(dataset));
    STG_TEST_FILE("c.number", "22");
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(*(const int64_t *)block->tensors[0].data, 22);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

static void a_jump_over_whole_files_opens_none(void)
{
    struct stg_dataset_env env = stg_test_env();
    STG_TEST_FILE("a.text", "1");
    STG_TEST_FILE("b.text", "2");
    STG_TEST_FILE("c.text", "3");
    struct stg_test_spec *spec =
        stg_test_yaml("dataset:\n- files: {pattern: %s, shuffle: false}\n- read_file\n"
                      "- map: {graph: [{name: n, op: string_to_number, input: [bytes], "
                      "out_type: int64}], output: n}\n",
                      stg_test_path("*.text"));
    struct stg_dataset *dataset = stg_test_open(spec, &env);
    CHECK_INT(unlink(stg_test_path("b.text")), 0);
    struct stg_block *block = jump_and_take(dataset, 2);
    CHECK_INT(block->error.code, 0);
    CHECK_INT(*(const int64_t *)block->tensors[0].data, 3);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

static const struct stg_test tests[] = {
    TEST(a_map_without_threads_makes_nothing_that_is_not_asked_for),
    TEST(a_jump_over_whole_files_opens_none),
    TEST(words_are_looked_up_in_the_graph_of_a_step),
    TEST(a_vocabulary_that_cannot_be_read_ends_the_pass_before_it_begins),
    TEST(map_computes_each_element),
    TEST(an_output_is_one_tensor_a_list_or_a_mapping),
    TEST(shapes_are_those_of_one_element),
    TEST(a_constant_is_an_element_for_each),
    TEST(elements_that_differ_in_shape_stay_as_they_are),
    TEST(a_bad_line_costs_one_element_and_the_error_names_its_place),
    TEST(an_element_of_no_file_is_named_by_its_number),
    TEST(mistakes_in_the_graph_are_found_when_it_is_applied),
    TEST(the_order_does_not_depend_on_the_number_of_threads),
    TEST(without_an_order_the_elements_are_the_same),
    TEST(elements_are_worked_on_at_the_same_time),
    TEST(elements_in_work_are_given_up_when_the_dataset_is),
    TEST(a_pool_does_each_task_once),
    TEST(a_map_with_little_memory_waits_for_what_it_made),
    TEST(too_little_memory_for_one_element_ends_the_pass),
    TEST(a_batch_after_a_map_is_no_copy),
    TEST(filter_keeps_elements_that_are_true),
    TEST(filter_keeps_strings_and_their_lines),
    TEST(map_and_batch_is_map_and_then_batch),
};

TEST_MAIN(tests)
