/* SPDX-License-Identifier: Apache-2.0
 *
 * The step arrow over files of pyarrow: the rows that pyarrow has, in each way to get at
 * them; and the same files truncated at each byte and changed at random.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/dataset/step.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/format/golden_arrow.h"

#define N_FILES (sizeof(arrow_files) / sizeof(arrow_files[0]))
#define SMALL_BUDGET ((uint64_t)8 << 20)
#define MUTATIONS 400 /* of each file; STG_ARROW_MUTATIONS=n draws others */

static const char *pipeline(const char *options, const char *steps)
{
    static char text[2048];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/*.arrow\", shuffle: false}\n"
             "- arrow: {%s}\n%s",
             options, steps);
    return text;
}

static void check_rows(const char *options, const char *steps, const char *want,
                       const char *what)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text(pipeline(options, steps), &env, 0);
    if (strcmp(got, want) != 0)
        FAIL("%s: got\n%s, not\n%s", what, got, want);
    free(got);
}

/* Returns the text of the first item of a pass, which is an error. */
static const char *error_of(const char *options)
{
    static struct stg_err err;
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(pipeline(options, ""), &env, &spec);
    struct stg_block *block = stg_test_next(dataset);
    CHECK(block != NULL && block->error.code != 0);
    err = block->error;
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return err.text;
}

/* ---- rows ---- */

static void each_file_has_the_rows_of_pyarrow(void)
{
    for (size_t i = 0; i < N_FILES; i++) {
        stg_test_file("a.arrow", arrow_files[i].data, arrow_files[i].bytes);
        check_rows(arrow_files[i].options, "", arrow_files[i].rows, arrow_files[i].name);
    }
}

/* ---- indices ---- */

#define INDICES "indices: \"$DIR/order\""

/* Two files, and the indices in golden_arrow.py. */
static void make_indexed(void)
{
    stg_test_file("a.arrow", arrow_plain, sizeof(arrow_plain));
    stg_test_file("b.arrow", arrow_plain, sizeof(arrow_plain));
    stg_test_file("order", arrow_indices, sizeof(arrow_indices));
}

/* Appends line n of the rows that pyarrow has, with its end. */
static void add_line(FILE *to, const char *rows, int n)
{
    for (; n > 0; n--)
        rows = strchr(rows, '\n') + 1;
    fprintf(to, "%.*s\n", (int)strcspn(rows, "\n"), rows);
}

static void rows_come_in_the_order_of_an_indices_mapping(void)
{
    static const int order[] = {5, 6, 7, 22, 23, 24, 0, 0, 45, 44, 3, 4, -1, 2, -1};
    char options[512], *want;
    size_t bytes;
    FILE *to = open_memstream(&want, &bytes);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (order[i] < 0)
            fprintf(to, "!INVALID_ARGUMENT\n");
        else
            add_line(to, arrow_files[0].rows, order[i] % 23);
    }
    CHECK_INT(fclose(to), 0);
    make_indexed();
    CHECK_STR(arrow_files[0].name, "plain");
    snprintf(options, sizeof(options), "%s, %s", arrow_files[0].options, INDICES);
    check_rows(options, "", want, "indices");
    free(want);
}

static void an_index_that_no_file_has_is_named(void)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    make_indexed();
    struct stg_dataset *dataset = stg_test_open_text(
        pipeline("columns: {id: int64}, " INDICES, "- skip: {count: 12}\n"), &env, &spec);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(block->error.text, "/order: row 12: the index 46 is out of range: the "
                                      "files have 46 rows");
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* Returns the text of the failure that ends a pass. */
static const char *failure_of(const char *text)
{
    static struct stg_err err;
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    struct stg_block *block;
    CHECK(stg_dataset_next(dataset, &block, &err) < 0);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return err.text;
}

static void indices_that_do_not_fit_end_the_pass(void)
{
    const char *options = "columns: {id: int64}, " INDICES;
    make_indexed();
    stg_test_file("order", arrow_plain, sizeof(arrow_plain));
    CHECK_CONTAINS(failure_of(pipeline(options, "")),
                   "/order: column indices: the file has no such column");
    CHECK_INT(unlink(stg_test_path("order")), 0);
    CHECK_CONTAINS(failure_of(pipeline(options, "")), "/order");
    make_indexed();
    stg_test_file("b.arrow", "no file", 7);
    CHECK_CONTAINS(failure_of(pipeline(options, "")), "b.arrow: it is not an Arrow file");
}

/* Returns why a dataset of a pipeline cannot be created. */
static const char *refusal_of(const char *text)
{
    static struct stg_err err;
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec = stg_test_load(text);
    struct stg_dataset *dataset;
    CHECK(stg_dataset_create(spec, &env, &dataset, &err) < 0);
    stg_pipeline_spec_destroy(spec);
    return err.text;
}

static void indices_need_files_in_their_order(void)
{
    make_indexed();
    CHECK_CONTAINS(refusal_of("dataset:\n- files: {pattern: \"$DIR/*.arrow\"}\n"
                              "- arrow: {columns: {id: int64}, " INDICES "}\n"),
                   "set shuffle: false in `files`");
    CHECK_CONTAINS(failure_of("dataset:\n- files: {pattern: \"$DIR/*.arrow\", shuffle: "
                              "false}\n- interleave: {cycle_length: 2, reader: {arrow: "
                              "{columns: {id: int64}, " INDICES "}}}\n"),
                   "not into interleave");
}

/* Returns a mark for each item that follows: is it an error? */
static char *rest_of(struct stg_dataset *dataset)
{
    struct stg_block *block;
    char *marks = calloc(1, 256);
    for (size_t n = 0; n < 255 && (block = stg_test_next(dataset)) != NULL; n++) {
        marks[n] = block->error.code != 0 ? '!' : '.';
        stg_block_unref(block);
    }
    return marks;
}

static char *marks_of(const char *rows)
{
    char *marks = calloc(1, 256);
    for (size_t n = 0; *rows != '\0'; rows = strchr(rows, '\n') + 1)
        marks[n++] = *rows == '!' ? '!' : '.';
    return marks;
}

static void check_seek(const struct arrow_file *file, const char *marks, uint64_t n)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset =
        stg_test_open_text(pipeline(file->options, ""), &env, &spec);
    struct stg_position position = {.items = n, .elements = n, .errors = 1};
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_seek(dataset, &position, &err), err);
    char *got = rest_of(dataset);
    CHECK_STR(got, marks + n);
    free(got);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void a_pass_continues_at_each_row(void)
{
    for (size_t i = 0; i < N_FILES; i++) {
        stg_test_file("a.arrow", arrow_files[i].data, arrow_files[i].bytes);
        char *marks = marks_of(arrow_files[i].rows);
        for (uint64_t n = 0; n <= strlen(marks); n++)
            check_seek(&arrow_files[i], marks, n);
        free(marks);
    }
}

static int by_line(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the lines of a text in the order of strcmp. */
static char *sorted(const char *text)
{
    char *copy = strdup(text), *ret = calloc(1, strlen(text) + 1), *lines[128];
    size_t n = 0;
    for (char *line = strtok(copy, "\n"); line != NULL; line = strtok(NULL, "\n"))
        lines[n++] = line;
    qsort(lines, n, sizeof(lines[0]), by_line);
    for (size_t i = 0; i < n; i++)
        strcat(strcat(ret, lines[i]), "\n");
    free(copy);
    return ret;
}

/* Each row by a seek, backwards and forwards; the rows are those of a pass. */
static void a_global_shuffle_has_each_row_of_each_file_once(void)
{
    struct stg_dataset_env env = stg_test_env();
    char twice[16384];
    for (size_t i = 0; i < N_FILES; i++) {
        stg_test_file("a.arrow", arrow_files[i].data, arrow_files[i].bytes);
        stg_test_file("b.arrow", arrow_files[i].data, arrow_files[i].bytes);
        snprintf(twice, sizeof(twice), "%s%s", arrow_files[i].rows, arrow_files[i].rows);
        char *got = stg_test_render_text(
            pipeline(arrow_files[i].options,
                     "- shuffle: {global: true, seed: 5, block_size: 1, buffer_size: 9}"),
            &env, 0);
        char *a = sorted(got), *b = sorted(twice);
        CHECK_STR(a, b);
        free(a);
        free(b);
        free(got);
    }
    unlink(stg_test_path("b.arrow"));
}

static void batches_of_rows_are_slices(void)
{
    stg_test_file("a.arrow", arrow_plain, sizeof(arrow_plain));
    check_rows("columns: {id: int64, price: float32}",
               "- batch: {batch_size: 4}\n- take: {count: 3}\n",
               "[-300 619 538 457] [-2 -1.75 -1.5 -1.25]\n"
               "[376 295 214 133] [-1 -0.75 -0.5 -0.25]\n"
               "[52 -29 -110 -191] [0 0.25 0.5 0.75]\n",
               "batches");
}

static void lists_of_one_size_are_rows_of_a_batch(void)
{
    stg_test_file("a.arrow", arrow_types, sizeof(arrow_types));
    check_rows("columns: {point: float32}, shapes: {point: [2]}, defaults: {point: -1}",
               "- batch: {batch_size: 3}\n- take: {count: 2}\n",
               "[[0 0] [1 2] [-1 -1]]\n[[3 6] [4 -1] [5 10]]\n", "lists");
}

static void lists_are_ragged_components(void)
{
    stg_test_file("a.arrow", arrow_lists, sizeof(arrow_lists));
    check_rows("columns: {ids: int64, words: string}, shapes: {ids: [null], words: "
               "[null]}, defaults: {ids: -1, words: none}",
               "- ragged_batch: {batch_size: 4}\n- take: {count: 1}\n",
               "[10 20 21 30 31 32] [0 0 1 3 6] [w1-0 w1-1 w1-2 w2-0 w2-1 w3-0] "
               "[0 0 3 5 6]\n",
               "lists");
    check_rows(
        "columns: {deep: int64}, shapes: {deep: [null, null]}, defaults: {deep: 0}",
        "- ragged_batch: {batch_size: 3}\n- take: {count: 1}\n",
        "[1 2 3] [0 1 3 3] [0 0 1 3]\n", "lists of lists");
    check_rows("columns: {grid: int32}, shapes: {grid: [2, 2]}, defaults: {grid: 0}",
               "- batch: {batch_size: 2}\n- take: {count: 1}\n",
               "[[[0 1] [2 3]] [[0 0] [0 0]]]\n", "lists of a declared length");
}

/* Rows that differ in length are one block for the steps that take it. */
static void a_batch_takes_rows_of_all_lengths_at_once(void)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_block *block;
    struct stg_err err;
    stg_test_file("a.arrow", arrow_lists, sizeof(arrow_lists));
    struct stg_dataset *dataset = stg_test_open_text(
        pipeline("columns: {ids: int64, deep: int32}, shapes: {ids: [null], deep: "
                 "[null, null]}, defaults: {ids: -1, deep: -1}",
                 "- take: {count: 9}\n- ragged_batch: {batch_size: 9}\n"),
        &env, &spec);
    CHECK_OK(stg_iter_next(dataset->last->input, 9, &block, &err), err);
    CHECK(block->n_records == 9 && block->n_components == 3);
    for (uint32_t c = 0; c < block->n_components; c++)
        CHECK(block->tensors[c].splits != NULL && block->tensors[c].shape[1] == -1);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* Behind `unbatch` each row is a block. */
static void rows_of_all_lengths_pass_each_step_as_rows_of_their_own_do(void)
{
    static const char *const steps[] = {
        "",
        "- skip: {count: 4}\n- take: {count: 11}\n",
        "- shard: {num_shards: 3, index: 1}\n",
        "- shard: {num_shards: 9, index: 4}\n",
        "- prefetch: {buffer_size: 4}\n- ignore_errors: {}\n",
        ("- shard: {num_shards: 2, index: 0}\n- prefetch: {buffer_size: 8}\n"
         "- skip: {count: 1}\n- shard: {num_shards: 2, index: 1}\n- repeat: {count: "
         "2}\n"),
        "- shuffle: {buffer_size: 7, seed: 3}\n- repeat: {count: 2}\n",
    };
    static const char *const batches[] = {
        "- ragged_batch: {batch_size: 5}\n",
        "- padded_batch: {batch_size: 5}\n",
        "- padded_batch: {batch_size: 5, padded_shapes: {ids: [2]}}\n",
    };
    static const char *const options[] = {
        "columns: {ids: int64, words: string, deep: int64, codes: string}, "
        "shapes: {ids: [null], words: [null], deep: [null, null], codes: [null]}",
        "columns: {ids: int64, words: string, deep: int64, codes: string}, "
        "shapes: {ids: [null], words: [null], deep: [null, null], codes: [null]}, "
        "defaults: {ids: -1, words: none, deep: -2}",
    };
    stg_test_file("a.arrow", arrow_lists, sizeof(arrow_lists));
    for (size_t i = 0; i < 7 * 3 * 2; i++) {
        char text[512];
        struct stg_dataset_env env = stg_test_env();
        const char *step = steps[i % 7], *batch = batches[i / 7 % 3];
        snprintf(text, sizeof(text), "- batch: {batch_size: 1}\n- unbatch: {}\n%s%s",
                 step, batch);
        char *want = stg_test_render_text(pipeline(options[i / 21], text), &env, 0);
        CHECK(strchr(want, ']') != NULL);
        snprintf(text, sizeof(text), "%s%s", step, batch);
        check_rows(options[i / 21], text, want, text);
        free(want);
    }
}

static void a_list_of_another_length_costs_its_row(void)
{
    stg_test_file("a.arrow", arrow_lists, sizeof(arrow_lists));
    check_rows("columns: {ids: int64}, shapes: {ids: [2]}, defaults: {ids: 0}",
               "- take: {count: 2}\n",
               "!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n[20 21]\n!INVALID_ARGUMENT\n"
               "!INVALID_ARGUMENT\n[0 0]\n",
               "another length");
    CHECK_CONTAINS(error_of("columns: {ids: int64}, shapes: {ids: [2]}"),
                   "a.arrow: row 0: column ids, record batch 0 at offset ");
    CHECK_CONTAINS(error_of("columns: {ids: int64}, shapes: {ids: [2]}"),
                   "the list has 0 elements, and shapes declares 2");
}

static void fields_that_make_a_list_may_be_named(void)
{
    stg_test_file("a.arrow", arrow_lists, sizeof(arrow_lists));
    check_rows("columns: {ids/item: int64, tags/entries/value: int64, pairs/item/b: "
               "string}, shapes: {ids/item: [null], tags/entries/value: [null], "
               "pairs/item/b: [null]}, defaults: {ids/item: 0}",
               "- take: {count: 3}\n", "[] [] []\n[10] [1] [b]\n[20 21] [2 3] [b b]\n",
               "names");
}

static void a_column_becomes_a_wider_dtype(void)
{
    stg_test_file("a.arrow", arrow_types, sizeof(arrow_types));
    check_rows("columns: {small: int64, byte: int64, day: int64, cents: int64}",
               "- take: {count: 2}\n", "-10 0 -50 -99\n-9 11 50 -68\n", "wider");
}

static void the_defaults_of_a_column_stand_for_one_that_a_file_lacks(void)
{
    stg_test_file("a.arrow", arrow_plain, sizeof(arrow_plain));
    check_rows("columns: {id: int64, more: string, count: int32, price: float32}, "
               "defaults: {more: text, count: 7}",
               "- take: {count: 2}\n", "-300 text 7 -2\n619 text 7 -1.75\n", "defaults");
    check_rows("columns: {a: int64, b: int64, c: string, d: int64}, "
               "shapes: {a: [null], b: [2], c: [null, null], d: [2, 1]}, "
               "defaults: {a: 7, b: 7, c: x, d: 8}",
               "- take: {count: 1}\n", "[] [7 7] [] [0] [[8] [8]]\n", "no lists");
}

static void make_folder(const char *name)
{
    char path[512], command[4400];
    snprintf(command, sizeof(command), "mkdir -p '%s'", stg_test_path(name));
    CHECK_INT(system(command), 0);
    snprintf(path, sizeof(path), "%s/a.arrow", name);
    stg_test_file(path, arrow_plain, sizeof(arrow_plain));
}

/* Rows of the first value that the file has, in each folder. */
static void check_folders(const char *options, const char *want)
{
    char text[1024];
    struct stg_dataset_env env = stg_test_env();
    snprintf(
        text, sizeof(text),
        "dataset:\n- files: {pattern: \"$DIR/*/*/*.arrow\", shuffle: false}\n"
        "- arrow: {columns: {id: int64, site: string, day: int32, price: float32}%s}\n"
        "- filter: {graph: {first: {op: equal, input: [id, m]}, m: {op: constant, "
        "value: -300, dtype: int64}}, predicate: first}\n",
        options);
    char *got = stg_test_render_text(text, &env, 0);
    if (strcmp(got, want) != 0)
        FAIL("%s: got\n%s, not\n%s", options, got, want);
    free(got);
}

/* Also one that has the name of a column of the file. */
static void folders_are_columns(void)
{
    make_folder("site=a%2Fb%25/day=3");
    make_folder("site=__HIVE_DEFAULT_PARTITION__/day=5");
    make_folder("day=-4/site=c");
    make_folder("site=p/price=2.5");
    check_folders(", defaults: {site: none, day: 0}",
                  "-300 c -4 -2\n-300 none 5 -2\n-300 a/b% 3 -2\n-300 p 0 2.5\n");
    check_folders(
        ", defaults: {day: 0}, filters: [[site, is not null], [day, \"!=\", 3]]",
        "-300 c -4 -2\n");
    make_folder("site=d/day=x");
    check_folders(", defaults: {day: 0}, filters: [[day, <, 0]]",
                  "-300 c -4 -2\n!INVALID_ARGUMENT\n");
}

static void a_file_without_rows_has_none(void)
{
    stg_test_file("a.arrow", arrow_empty, sizeof(arrow_empty));
    check_rows("columns: {id: int64}", "", "", "an empty file");
}

/* The end of a stream need not be marked. */
static void a_stream_may_end_without_a_mark(void)
{
    stg_test_file("a.arrow", arrow_stream, sizeof(arrow_stream) - 8);
    check_rows("columns: {id: int64}", "- take: {count: 2}\n", "-300\n619\n", "a stream");
}

/* ---- what is refused ---- */

static void an_error_names_file_column_and_what_to_do(void)
{
    static const struct {
        const void *data;
        size_t bytes;
        const char *options, *part;
    } rows[] = {
#define ODD(options, part) {arrow_odd, sizeof(arrow_odd), options, part}
        ODD("columns: {ids: int64}", "a.arrow: column ids: its lists are 1 deep in the "
                                     "file, and the step declares "
                                     "0 dimensions (shapes: {ids: [null]})"),
        ODD("columns: {ids/item: int32}, shapes: {ids/item: [null]}",
            "column ids/item: it is int64 in the file, and the step declares int32"),
        ODD("columns: {ids: int64}, shapes: {ids: [null, 2]}",
            "its lists are 1 deep in the file, and the step declares 2 dimensions"),
        ODD("columns: {deep: int64}, shapes: {deep: [null, 2]}",
            "column deep: its lists are 3 deep, which is not supported; two are"),
        ODD("columns: {map: string}",
            "column map: it is a map in the file; name its fields, such as map/key"),
        ODD("columns: {pairs: int8}, shapes: {pairs: [null]}",
            "column pairs: it is a struct in the file; name its fields"),
        ODD("columns: {view: string}", "column view: it is a utf8_view, which is not"),
        ODD("columns: {runs: int64}", "column runs: it is run-end encoded, which is not"),
        ODD("columns: {either: int64}", "column either: it is a union, which is not"),
        ODD("columns: {wide: int64}", "column wide: it is a decimal of 256 bits, which"),
        ODD("columns: {span: int64}", "column span: it is an interval, which is not"),
        ODD("columns: {list_view: int8}", "it is a list_view, which is not supported"),
        ODD("columns: {codes: int64}", "it is a dictionary of values, each of which is"),
        ODD("columns: {codes/x: int64}", "it is part of a union, a dictionary or a view"),
        {arrow_types, sizeof(arrow_types), "columns: {user: int64}",
         "column user: it is a struct in the file; name its fields, such as user/NAME"},
        {arrow_types, sizeof(arrow_types), "columns: {point: float32}",
         "column point: its lists are 1 deep in the file, and the step declares 0"},
        {arrow_types, sizeof(arrow_types),
         "columns: {point: int64}, shapes: {point: [2]}",
         "it is float32 in the file, and the step declares int64"},
        {arrow_plain, sizeof(arrow_plain), "columns: {id: int64}, shapes: {id: [2]}",
         "column id: its lists are 0 deep in the file, and the step declares 1 "
         "dimensions"},
        {arrow_plain, sizeof(arrow_plain), "columns: {id: int32}",
         "column id: it is int64 in the file, and the step declares int32"},
        {arrow_plain, sizeof(arrow_plain), "columns: {price: string}",
         "column price: it is float32 in the file, and the step declares string"},
        {arrow_plain, sizeof(arrow_plain), "columns: {none: string}",
         "column none: the file has no such column, and the step has no default"},
        {"FEA1 is old", 11, "columns: {id: int64}", "a Feather file of version 1"},
        {"ARROW1 is no footer", 19, "columns: {id: int64}", "does not end with ARROW1"},
        {"a,b\n1,2\n", 8, "columns: {id: int64}", "it begins neither with ARROW1 nor"},
        {"", 0, "columns: {id: int64}", "it begins neither with ARROW1 nor"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stg_test_file("a.arrow", rows[i].data, rows[i].bytes);
        CHECK_CONTAINS(error_of(rows[i].options), rows[i].part);
    }
}

static void data_that_is_damaged_is_an_error_with_its_offset(void)
{
    static const struct {
        const void *data;
        size_t bytes;
        const char *options, *part;
    } rows[] = {
        {arrow_no_dictionary, sizeof(arrow_no_dictionary), "columns: {word: string}",
         ": its dictionary is damaged: the file has none"},
        {arrow_bad_list, sizeof(arrow_bad_list),
         "columns: {x: int64}, shapes: {x: [null]}",
         ": an offset of its list is out of range"},
        {arrow_bad_text, sizeof(arrow_bad_text), "columns: {x: string}",
         ": an offset of its string is out of range"},
        {arrow_bad_size, sizeof(arrow_bad_size), "columns: {x: int64}",
         ": its data is damaged: the size of a buffer is out of range"},
        {arrow_small_size, sizeof(arrow_small_size), "columns: {x: int64}",
         "a buffer is too short for the rows"},
        {arrow_nested, sizeof(arrow_nested), "columns: {x: int8}", "a.arrow: "},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stg_test_file("a.arrow", rows[i].data, rows[i].bytes);
        const char *text = error_of(rows[i].options);
        CHECK_CONTAINS(text, rows[i].part);
        CHECK_CONTAINS(text, "a.arrow: ");
        if (rows[i].data != arrow_nested)
            CHECK_CONTAINS(text, "record batch 0 at offset ");
    }
}

/* The rows before and behind it are had, wherever a pass begins. */
static void an_offset_of_a_list_that_is_damaged_costs_its_two_rows(void)
{
    static const int32_t offsets[] = {0, 0, 1, 3, 6, 6, 6, 8, 11, 11};
    static const int32_t damage = INT32_MAX;
    static uint8_t copy[sizeof(arrow_lists)];
    struct arrow_file file = {
        .options = "columns: {ids: int64}, shapes: {ids: [null]}, defaults: {ids: -1}"};
    memcpy(copy, arrow_lists, sizeof(copy));
    uint8_t *at = memmem(copy, sizeof(copy), offsets, sizeof(offsets));
    CHECK(at != NULL);
    memcpy(at + 4 * sizeof(damage), &damage, sizeof(damage));
    stg_test_file("a.arrow", copy, sizeof(copy));
    for (uint64_t n = 0; n < 9; n++)
        check_seek(&file, "...!!..................", n);
}

/* A changed byte of the schema says so. */
static void numbers_that_are_big_endian_are_refused(void)
{
    stg_test_file("a.arrow", arrow_big_endian, sizeof(arrow_big_endian));
    CHECK_CONTAINS(error_of("columns: {id: int64}"), "its numbers are big-endian");
}

static void rows_that_cannot_be_had_name_their_column_and_batch(void)
{
    static const struct {
        const unsigned char *data;
        size_t bytes;
        int row;
        const char *options, *part;
    } rows[] = {
        {arrow_bad_rows, sizeof(arrow_bad_rows), 1, "columns: {price: float32}",
         "a.arrow: row 1: column price, record batch 0 at offset "},
        {arrow_types, sizeof(arrow_types), 5, "columns: {huge: int64}",
         ": the decimal is out of the range of int64"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_dataset_env env = stg_test_env();
        struct stg_pipeline_spec *spec;
        stg_test_file("a.arrow", rows[i].data, rows[i].bytes);
        struct stg_dataset *dataset =
            stg_test_open_text(pipeline(rows[i].options, ""), &env, &spec);
        for (int n = 0; n < rows[i].row; n++)
            stg_block_unref(stg_test_next(dataset));
        struct stg_block *block = stg_test_next(dataset);
        CHECK_CONTAINS(block->error.text, rows[i].part);
        stg_block_unref(block);
        stg_dataset_destroy(dataset);
        stg_pipeline_spec_destroy(spec);
    }
}

/* A file that becomes shorter while it is read: its rows are errors, and the pass ends.
 */
static void a_file_that_is_truncated_while_it_is_open_costs_its_rows(void)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_block *block;
    int n_bad = 0, n = 0;
    stg_test_file("a.arrow", arrow_plain, sizeof(arrow_plain));
    struct stg_dataset *dataset = stg_test_open_text(
        pipeline("columns: {id: int64, name: string}", ""), &env, &spec);
    stg_block_unref(stg_test_next(dataset));
    CHECK_INT(truncate(stg_test_path("a.arrow"), 600), 0);
    for (; (block = stg_test_next(dataset)) != NULL; n++) {
        if (block->error.code != 0)
            CHECK_INT(block->error.code, -STAGER_DATA_LOSS);
        n_bad += block->error.code != 0;
        stg_block_unref(block);
    }
    CHECK_INT(n, 22);
    CHECK(n_bad >= 13);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void options_that_cannot_be_right_are_refused(void)
{
    static const char *const rows[][2] = {
        {"columns: [id, price]", "it must map 1 to 4096 of them to their dtypes"},
        {"columns: {}", "columns names 0 columns"},
        {"columns: {id: number}", "the dtype of id is \"number\""},
        {"columns: {id: bfloat16}", "the dtype of id is \"bfloat16\""},
        {"columns: {id: [int64]}", "the dtype of id is \"\""},
        {"columns: {id: int8}, shapes: {id: 3}",
         "that of id must be a list of at most 2"},
        {"columns: {id: int8}, shapes: {id: [0]}", "dimensions from 1 to 65536"},
        {"columns: {id: int8}, shapes: {id: [1, 2, 3]}", "at most 2 dimensions"},
        {"columns: {id: int8}, shapes: {ids: [3]}", "shapes: columns has no \"ids\""},
        {"columns: {id: int8}, defaults: {id: 300}", "the default of id"},
        {"columns: {id: int8}, defaults: {id: x}", "the default of id must be one int8"},
        {"columns: {id: string}, defaults: {id: 3}",
         "the default of id must be one string"},
        {"columns: {id: int8}, defaults: {ids: 3}", "columns has no \"ids\""},
        {"columns: {id: int8}, filters: [[id, \"=\", x]]", "the condition on id"},
        {"columns: {id: int8}, indices: /x, filters: [[id, \"=\", 3]]",
         "filters cannot be combined with indices"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_CONTAINS(stg_test_refused(pipeline(rows[i][0], "")), rows[i][1]);
}

/* ---- damage ---- */

static uint64_t random_state = 1;

static int n_mutations(void)
{
    const char *text = getenv("STG_ARROW_MUTATIONS");
    return text != NULL ? atoi(text) : MUTATIONS;
}

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % below;
}

/* Reads a pass with little memory. Every error has a text; the pass ends. */
static void read_damaged(const char *options, const void *data, size_t bytes)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_block *block;
    struct stg_err err = {0};
    int rc;
    env.buffer_bytes = SMALL_BUDGET;
    stg_test_file("a.arrow", data, bytes);
    struct stg_dataset *dataset = stg_test_open_text(pipeline(options, ""), &env, &spec);
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        if (block->error.code != 0)
            CHECK_CONTAINS(block->error.text, "a.arrow");
        stg_block_unref(block);
    }
    if (rc < 0)
        FAIL("the pass ended: %d: %s", rc, err.text);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void a_file_that_is_truncated_anywhere_costs_rows_and_no_more(void)
{
    for (size_t i = 0; i < N_FILES; i++) {
        uint8_t *copy = malloc(arrow_files[i].bytes);
        memcpy(copy, arrow_files[i].data, arrow_files[i].bytes);
        for (size_t n = 0; n < arrow_files[i].bytes; n++) {
            read_damaged(arrow_files[i].options, copy, n);
            if (n > 100 && n < arrow_files[i].bytes - 100)
                n += 12;
        }
        free(copy);
    }
}

/* The options of file i, with conditions on the columns that some files have. */
static const char *filtered(size_t i)
{
    static char text[2048];
    const char *options = arrow_files[i].options;
    const char *filters =
        strstr(options, "name: string") != NULL
            ? ", filters: [[[id, \">\", 0], [price, <, 3]], [[name, is not null]]]"
        : strstr(options, "word: string") != NULL ? ", filters: [[word, \"!=\", x]]"
                                                  : "";
    snprintf(text, sizeof(text), "%s%s", options, filters);
    return text;
}

/* Bits, bytes and lengths; in the data and in the metadata. */
static void a_file_that_is_damaged_anywhere_costs_rows_and_no_more(void)
{
    for (size_t i = 0; i < N_FILES; i++) {
        size_t bytes = arrow_files[i].bytes;
        uint8_t *copy = malloc(bytes);
        for (int k = n_mutations(); k > 0; k--) {
            memcpy(copy, arrow_files[i].data, bytes);
            for (uint64_t n = draw(3) + 1; n > 0; n--) {
                uint64_t at = draw(bytes - 8);
                if (draw(2) == 0)
                    copy[at] ^= (uint8_t)(1u << draw(8));
                else
                    copy[at] = draw(3) == 0 ? 0xff : (uint8_t)draw(256);
            }
            read_damaged(k % 2 == 0 ? arrow_files[i].options : filtered(i), copy, bytes);
        }
        free(copy);
    }
}

static const struct stg_test tests[] = {
    TEST(each_file_has_the_rows_of_pyarrow),
    TEST(rows_come_in_the_order_of_an_indices_mapping),
    TEST(an_index_that_no_file_has_is_named),
    TEST(indices_that_do_not_fit_end_the_pass),
    TEST(indices_need_files_in_their_order),
    TEST(a_pass_continues_at_each_row),
    TEST(a_global_shuffle_has_each_row_of_each_file_once),
    TEST(batches_of_rows_are_slices),
    TEST(lists_of_one_size_are_rows_of_a_batch),
    TEST(lists_are_ragged_components),
    TEST(a_batch_takes_rows_of_all_lengths_at_once),
    TEST(rows_of_all_lengths_pass_each_step_as_rows_of_their_own_do),
    TEST(a_list_of_another_length_costs_its_row),
    TEST(fields_that_make_a_list_may_be_named),
    TEST(a_column_becomes_a_wider_dtype),
    TEST(the_defaults_of_a_column_stand_for_one_that_a_file_lacks),
    TEST(a_file_without_rows_has_none),
    TEST(folders_are_columns),
    TEST(a_stream_may_end_without_a_mark),
    TEST(an_error_names_file_column_and_what_to_do),
    TEST(data_that_is_damaged_is_an_error_with_its_offset),
    TEST(an_offset_of_a_list_that_is_damaged_costs_its_two_rows),
    TEST(numbers_that_are_big_endian_are_refused),
    TEST(rows_that_cannot_be_had_name_their_column_and_batch),
    TEST(a_file_that_is_truncated_while_it_is_open_costs_its_rows),
    TEST(options_that_cannot_be_right_are_refused),
    TEST_SLOW(a_file_that_is_truncated_anywhere_costs_rows_and_no_more, 120),
    TEST_SLOW(a_file_that_is_damaged_anywhere_costs_rows_and_no_more, 240),
};
TEST_MAIN(tests)
