/* SPDX-License-Identifier: Apache-2.0
 *
 * The step parquet over files of pyarrow: the rows that pyarrow has, in each way to get
 * at them; and the same files truncated at each byte and changed at random.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/step.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/format/golden_parquet.h"

#define N_FILES (sizeof(parquet_files) / sizeof(parquet_files[0]))
#define SMALL_BUDGET ((uint64_t)8 << 20)
#define MUTATIONS 400 /* of each file; STG_PARQUET_MUTATIONS=n draws others */

static const char *pipeline(const char *options, const char *steps)
{
    static char text[2048];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/*.parquet\", shuffle: false}\n"
             "- parquet: {%s}\n%s",
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
        stg_test_file("a.parquet", parquet_files[i].data, parquet_files[i].bytes);
        check_rows(parquet_files[i].options, "", parquet_files[i].rows,
                   parquet_files[i].name);
    }
}

/* The lines of a text from line n on. */
static const char *line_at(const char *text, uint64_t n)
{
    for (; n > 0; n--)
        text = strchr(text, '\n') + 1;
    return text;
}

static char *rest_of(struct stg_dataset *dataset)
{
    struct stg_block *block;
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    while ((block = stg_test_next(dataset)) != NULL) {
        const struct stg_tensor *id = &block->tensors[0];
        if (block->error.code != 0)
            fprintf(to, "!INVALID_ARGUMENT\n");
        else
            fprintf(to, "%lld\n", (long long)((const int64_t *)id->data)[0]);
        stg_block_unref(block);
    }
    fclose(to);
    return text;
}

/* The first number of each line, or the error. */
static char *first_words(const char *rows)
{
    char *text = strdup(rows), *to = text;
    for (const char *at = rows; *at != '\0'; at = strchr(at, '\n') + 1) {
        size_t n = strcspn(at, " \n");
        memcpy(to, at, n);
        to[n] = '\n';
        to += n + 1;
    }
    *to = '\0';
    return text;
}

static uint64_t count_lines(const char *text)
{
    uint64_t n = 0;
    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

static void a_pass_continues_at_each_row(void)
{
    for (size_t i = 0; i < N_FILES; i++) {
        if (strcmp(parquet_files[i].name, "types") == 0)
            continue;
        stg_test_file("a.parquet", parquet_files[i].data, parquet_files[i].bytes);
        char *want = first_words(parquet_files[i].rows);
        for (uint64_t n = 0; n <= count_lines(want); n++) {
            struct stg_dataset_env env = stg_test_env();
            struct stg_pipeline_spec *spec;
            struct stg_dataset *dataset =
                stg_test_open_text(pipeline(parquet_files[i].options, ""), &env, &spec);
            struct stg_position position = {.items = n, .elements = n, .errors = 1};
            struct stg_err err = {0};
            CHECK_OK(stg_dataset_seek(dataset, &position, &err), err);
            char *got = rest_of(dataset);
            CHECK_STR(got, line_at(want, n));
            free(got);
            stg_dataset_destroy(dataset);
            stg_pipeline_spec_destroy(spec);
        }
        free(want);
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

static void a_global_shuffle_has_each_row_of_each_file_once(void)
{
    struct stg_dataset_env env = stg_test_env();
    char twice[16384];
    for (size_t i = 0; i < N_FILES; i++) {
        if (strstr(parquet_files[i].options, "filters") != NULL)
            continue;
        stg_test_file("a.parquet", parquet_files[i].data, parquet_files[i].bytes);
        stg_test_file("b.parquet", parquet_files[i].data, parquet_files[i].bytes);
        snprintf(twice, sizeof(twice), "%s%s", parquet_files[i].rows,
                 parquet_files[i].rows);
        char *got = stg_test_render_text(
            pipeline(parquet_files[i].options,
                     "- shuffle: {global: true, seed: 5, block_size: 3, buffer_size: 9}"),
            &env, 0);
        CHECK(strcmp(got, twice) != 0);
        char *a = sorted(got), *b = sorted(twice);
        CHECK_STR(a, b);
        free(a);
        free(b);
        free(got);
    }
}

static void batches_of_rows_are_slices(void)
{
    stg_test_file("a.parquet", parquet_plain, sizeof(parquet_plain));
    check_rows("columns: {id: int64, price: float32}",
               "- batch: {batch_size: 4}\n- take: {count: 3}\n",
               "[-300 619 538 457] [-2 -1.75 -1.5 -1.25]\n"
               "[376 295 214 133] [-1 -0.75 -0.5 -0.25]\n"
               "[52 -29 -110 -191] [0 0.25 0.5 0.75]\n",
               "batches");
}

static void a_step_takes_columns_by_their_names(void)
{
    stg_test_file("a.parquet", parquet_types, sizeof(parquet_types));
    check_rows("columns: {user/id: int64, day: int64}",
               "- map: {graph: {sum: {op: add, input: [user/id, day]}}, output: sum}\n"
               "- take: {count: 2}\n",
               "-50\n51\n", "a map");
}

/* Of parquet_parts; "none" for a null. */
static const char *word_of(uint64_t row)
{
    static const char *const words[] = {"zero", "one", "two"};
    return row / 1000 % 5 == 4 ? "none" : words[row / 7 % 3];
}

/* A page of 100,000 indices: as large as it is, it is decoded in parts. */
static void a_pass_continues_in_each_part_of_a_large_page(void)
{
    static const uint64_t rows[] = {0, 1, 32767, 32768, 40003, 65535, 65536, 99999};
    stg_test_file("a.parquet", parquet_parts, sizeof(parquet_parts));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_dataset_env env = stg_test_env();
        struct stg_pipeline_spec *spec;
        struct stg_dataset *dataset = stg_test_open_text(
            pipeline("columns: {word: string}, defaults: {word: none}", ""), &env, &spec);
        struct stg_position position = {.items = rows[i], .elements = rows[i]};
        struct stg_err err = {0};
        struct stg_block *block;
        CHECK_OK(stg_dataset_seek(dataset, &position, &err), err);
        uint64_t row = rows[i];
        for (; (block = stg_test_next(dataset)) != NULL; row++) {
            const struct stg_tensor *word = &block->tensors[0];
            const char *want = word_of(row);
            CHECK_INT(word->end[0] - word->begin[0], strlen(want));
            CHECK(memcmp((char *)word->data + word->begin[0], want, strlen(want)) == 0);
            stg_block_unref(block);
        }
        CHECK_INT(row, 100000);
        stg_dataset_destroy(dataset);
        stg_pipeline_spec_destroy(spec);
    }
}

static void the_defaults_of_a_column_stand_for_one_that_a_file_lacks(void)
{
    stg_test_file("a.parquet", parquet_plain, sizeof(parquet_plain));
    check_rows("columns: {id: int64, more: string, count: int32, price: float32}, "
               "defaults: {more: text, count: 7}",
               "- take: {count: 2}\n", "-300 text 7 -2\n619 text 7 -1.75\n", "defaults");
}

static void a_file_without_rows_has_none(void)
{
    stg_test_file("a.parquet", parquet_empty, sizeof(parquet_empty));
    check_rows("columns: {id: int64}", "", "", "an empty file");
}

/* ---- what is refused ---- */

static void an_error_names_file_column_and_what_to_do(void)
{
    static const struct {
        const void *data;
        size_t bytes;
        const char *options, *part;
    } rows[] = {
        {parquet_lists, sizeof(parquet_lists), "columns: {ids: int64}",
         "a.parquet: column ids: its lists are 1 deep in the file, and the step declares "
         "0 dimensions (shapes: {ids: [null]})"},
        {parquet_lists, sizeof(parquet_lists),
         "columns: {ids/list/element: int64}, shapes: {ids/list/element: [2, null]}",
         "its lists are 1 deep in the file, and the step declares 2 dimensions"},
        {parquet_lists, sizeof(parquet_lists), "columns: {id: int64}, shapes: {id: [1]}",
         "its lists are 0 deep in the file"},
        {parquet_types, sizeof(parquet_types), "columns: {user: int64}",
         "it is a struct in the file; name its fields, such as user/NAME"},
        {parquet_lists_v1, sizeof(parquet_lists_v1),
         "columns: {map: string}, shapes: {map: [null]}",
         "it is a map in the file; name its fields, such as map/key"},
        {parquet_brotli, sizeof(parquet_brotli), "columns: {id: int64}",
         "column id, row group 0, page at offset 33: its codec is BROTLI"},
        {parquet_plain, sizeof(parquet_plain), "columns: {id: int32}",
         "column id: it is int64 in the file, and the step declares int32"},
        {parquet_plain, sizeof(parquet_plain), "columns: {price: string}",
         "column price: it is float32 in the file, and the step declares string"},
        {parquet_plain, sizeof(parquet_plain), "columns: {none: string}",
         "column none: the file has no such column, and the step has no default"},
        {"PAR1 is no footer", 17, "columns: {id: int64}", "it does not end with PAR1"},
        {"PAR1\0\0\0\0PARE", 12, "columns: {id: int64}", "its footer is encrypted"},
        {"PAR1\xff\0\0\0PAR1", 12, "columns: {id: int64}", "longer than the file"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stg_test_file("a.parquet", rows[i].data, rows[i].bytes);
        CHECK_CONTAINS(error_of(rows[i].options), rows[i].part);
    }
}

/* ---- lists ---- */

static void batches_of_lists_are_values_and_row_splits(void)
{
    stg_test_file("a.parquet", parquet_lists_v1, sizeof(parquet_lists_v1));
    check_rows("columns: {ids: int64, words: string}, shapes: {ids: [null], words: "
               "[null]}, defaults: {ids: -1, words: none}",
               "- ragged_batch: {batch_size: 3}\n- take: {count: 1}\n",
               "[10 20 21] [0 0 1 3] [w10 w20 w21] [0 0 1 3]\n", "lists");
    check_rows(
        "columns: {deep: int64}, shapes: {deep: [null, null]}, defaults: {deep: -1}",
        "- ragged_batch: {batch_size: 3}\n- take: {count: 1}\n",
        "[10 20 21] [0 1 3 3] [0 0 1 3]\n", "lists of lists");
    check_rows("columns: {point: float32}, shapes: {point: [3]}",
               "- batch: {batch_size: 2}\n- take: {count: 1}\n",
               "[[0 0.5 0] [1 1.5 -1]]\n", "lists of a declared length");
}

/* Behind `unbatch` each row is a block. */
static void rows_of_all_lengths_pass_a_filter_as_rows_of_their_own_do(void)
{
    static const char options[] =
        "columns: {id: int64, ids: int64, words: string, deep: int64}, shapes: {ids: "
        "[null], words: [null], deep: [null, null]}, defaults: {ids: -1, words: none, "
        "deep: -2}, filters: [[id, in, [-300, 538, 457, 376, 295, 133, 52]]]";
    struct stg_dataset_env env = stg_test_env();
    stg_test_file("a.parquet", parquet_lists_v1, sizeof(parquet_lists_v1));
    char *want =
        stg_test_render_text(pipeline(options, "- batch: {batch_size: 1}\n- unbatch: {}\n"
                                               "- ragged_batch: {batch_size: 5}\n"),
                             &env, 0);
    CHECK(strstr(want, "[-300 538 457 376 295]") != NULL);
    check_rows(options, "- ragged_batch: {batch_size: 5}\n", want, "a filter");
    free(want);
}

static void a_list_that_cannot_be_had_costs_its_row(void)
{
    stg_test_file("a.parquet", parquet_lists_v1, sizeof(parquet_lists_v1));
    check_rows("columns: {ids: int64}, shapes: {ids: [null]}", "- take: {count: 4}\n",
               "[]\n[10]\n[20 21]\n!INVALID_ARGUMENT\n[]\n", "a null list");
    check_rows("columns: {ids: int64}, shapes: {ids: [2]}, defaults: {ids: 0}",
               "- take: {count: 3}\n",
               "!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n[20 21]\n[0 0]\n"
               "!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n[60 61]\n",
               "another length");
    CHECK_CONTAINS(error_of("columns: {ids: int64}, shapes: {ids: [2]}"),
                   "a.parquet: row 0: column ids, row group 0, page at offset ");
    CHECK_CONTAINS(error_of("columns: {ids: int64}, shapes: {ids: [2]}"),
                   "the list has 0 elements, and shapes declares 2");
    check_rows("columns: {deep: int64}, shapes: {deep: [null, 2]}, defaults: {deep: 0}",
               "- take: {count: 2}\n", "[]\n!INVALID_ARGUMENT\n[[20 21] [0 0]]\n",
               "inner lists of another length");
}

static void a_file_without_a_column_of_lists_has_defaults(void)
{
    stg_test_file("a.parquet", parquet_plain, sizeof(parquet_plain));
    check_rows("columns: {a: int64, b: int64, c: string, d: int64}, "
               "shapes: {a: [null], b: [2], c: [null, null], d: [2, 1]}, "
               "defaults: {a: 7, b: 7, c: x, d: 8}",
               "- take: {count: 1}\n", "[] [7 7] [] [0] [[8] [8]]\n", "no lists");
}

/* A page that the dataset has no room for costs its rows; the error has the setting. */
static void a_page_that_does_not_fit_the_memory_is_an_error_with_advice(void)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    env.buffer_bytes = 200 << 10;
    stg_test_file("a.parquet", parquet_parts, sizeof(parquet_parts));
    struct stg_dataset *dataset =
        stg_test_open_text(pipeline("columns: {word: string}, defaults: {word: none}",
                                    "- batch: {batch_size: 40000}\n"),
                           &env, &spec);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, -STAGER_DATA_LOSS);
    CHECK_CONTAINS(block->error.text, "more than a quarter of the dataset's buffers");
    CHECK_CONTAINS(block->error.text, "raise staged.memory_budget");
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void a_null_without_a_default_names_its_row(void)
{
    stg_test_file("a.parquet", parquet_bad_rows, sizeof(parquet_bad_rows));
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset =
        stg_test_open_text(pipeline("columns: {price: float32}", ""), &env, &spec);
    stg_block_unref(stg_test_next(dataset));
    struct stg_block *block = stg_test_next(dataset);
    CHECK_CONTAINS(block->error.text,
                   "a.parquet: row 1: column price, row group 0, page at offset ");
    CHECK_CONTAINS(block->error.text, "the value is null, and the step has no default");
    stg_block_unref(block);
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
        {"columns: {id: int8}, defaults: {id: 300}", "the default of id"},
        {"columns: {id: int8}, defaults: {id: x}", "the default of id must be one int8"},
        {"columns: {id: string}, defaults: {id: 3}",
         "the default of id must be one string"},
        {"columns: {id: int8}, defaults: {ids: 3}", "defaults: columns has no \"ids\""},
        {"columns: {id: int8}, shapes: {ids: [3]}", "shapes: columns has no \"ids\""},
        {"columns: {id: int8}, shapes: {id: 3}",
         "that of id must be a list of at most 2"},
        {"columns: {id: int8}, shapes: {id: [0]}", "dimensions from 1 to 65536"},
        {"columns: {id: int8}, shapes: {id: [1, 2, 3]}", "at most 2 dimensions"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_CONTAINS(stg_test_refused(pipeline(rows[i][0], "")), rows[i][1]);
}

/* ---- filters ---- */

static void filters_that_cannot_be_right_are_refused(void)
{
    static const char *const rows[][2] = {
        {"[]", "a list of a column, an op and a value"},
        {"price", "a list of a column, an op and a value"},
        {"[[row]]", "a list of a column, an op and a value"},
        {"[[row, <, 1, 2]]", "a list of a column, an op and a value"},
        {"[[row, in, [[1]]]]", "a list of a column, an op and a value"},
        {"[[[row, <, 1]], [row, <, 1]]", "a list of a column, an op and a value"},
        {"[[3, <, 1]]", "a condition is a column, an op and a value"},
        {"[[row, like, a]]", "the condition on row: unknown op \"like\""},
        {"[[row, <]]", "its op takes one value"},
        {"[[row, is null, 1]]", "its op takes no value"},
        {"[[row, =, [1, 2]]]", "its op takes one value"},
        {"[[row, =, null]]", "nothing is equal to null; use the op is null"},
        {"[[row, in, [1, a]]]", "its values must all be numbers, or strings"},
        {"[[row, =, a]]", "filters compares it with strings, and it is int64"},
        {"[[name, <, 3]]", "filters compares it with numbers, and it is string"},
        {"[[ids, <, 3]]", "filters: ids is a column of lists"}};
    char options[512];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(options, sizeof(options),
                 "columns: {row: int64, name: string, ids: int64}, shapes: {ids: "
                 "[null]}, filters: %s",
                 rows[i][0]);
        CHECK_CONTAINS(stg_test_refused(pipeline(options, "")), rows[i][1]);
    }
    CHECK_CONTAINS(stg_test_refused(pipeline("columns: {row: int64}, filters: [[row, <, "
                                             "3]]",
                                             "- shuffle: {global: true}\n")),
                   "the rows that filters of parquet (line 3) keeps have none");
}

static void a_filter_that_a_file_does_not_fit_costs_the_file(void)
{
    stg_test_file("a.parquet", parquet_filtered_0, sizeof(parquet_filtered_0));
    CHECK_CONTAINS(error_of("columns: {row: int64}, filters: [[price, =, a]]"),
                   "a.parquet: column price: filters compares it with strings, and it is "
                   "float64");
    CHECK_CONTAINS(error_of("columns: {row: int64}, filters: [[cost, =, 1]]"),
                   "a.parquet: column cost: the file has no such column");
}

/* A null of a row that is dropped is no error; one of a row that is kept is. */
static void a_row_that_is_dropped_is_no_error(void)
{
    stg_test_file("a.parquet", parquet_filtered_0, sizeof(parquet_filtered_0));
    check_rows("columns: {row: int64, name: string}, filters: [[row, in, [2, 3, 4]]]", "",
               "2 name-0\n!INVALID_ARGUMENT\n4 name-1\n", "kept");
    check_rows("columns: {row: int64, name: string}, filters: [[row, in, [2, 4]]]", "",
               "2 name-0\n4 name-1\n", "dropped");
    check_rows("columns: {row: int64, name: string}, defaults: {name: none}, filters: "
               "[[name, is null]]",
               "", "3 none\n10 none\n17 none\n", "a default is no value");
}

/* The first page of `row`, of rows 0 to 2, cannot be decoded; the page index says that
 * the filter keeps none of them. */
static void a_page_that_its_index_excludes_is_not_read(void)
{
    static unsigned char data[sizeof(parquet_filtered_0_pages)];
    static const uint64_t values[] = {0, 1, 2};
    static const char what[] = "columns: {row: int64}, filters: [[row, %s, 4]]";
    char options[128];
    memcpy(data, parquet_filtered_0_pages, sizeof(data));
    unsigned char *at = memmem(data, sizeof(data), values, sizeof(values));
    CHECK(at != NULL);
    at[-2] = 2; /* its levels: those of one row */
    stg_test_file("a.parquet", data, sizeof(data));
    snprintf(options, sizeof(options), what, "<");
    check_rows(options, "", "!DATA_LOSS\n!DATA_LOSS\n!DATA_LOSS\n3\n", "read");
    snprintf(options, sizeof(options), what, "=");
    check_rows(options, "", "4\n", "excluded");
}

/* ---- folders ---- */

static void make_folder(const char *name, const void *data, size_t bytes)
{
    char path[4200], command[4400];
    snprintf(path, sizeof(path), "%s", stg_test_path(name));
    snprintf(command, sizeof(command), "mkdir -p '%s'", path);
    CHECK_INT(system(command), 0);
    snprintf(path, sizeof(path), "%s/a.parquet", name);
    stg_test_file(path, data, bytes);
}

static const char *partitioned(const char *options)
{
    static char text[1024];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/*/*/*.parquet\", shuffle: false}\n"
             "- parquet: {columns: {id: int64, site: string, day: int32}%s}\n"
             "- filter: {graph: {first: {op: equal, input: [id, m]}, m: {op: constant, "
             "value: -300, dtype: int64}}, predicate: first}\n",
             options);
    return text;
}

static void check_partitioned(const char *options, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text(partitioned(options), &env, 0);
    if (strcmp(got, want) != 0)
        FAIL("%s: got\n%s, not\n%s", options, got, want);
    free(got);
}

static void folders_are_columns(void)
{
    static const char *const folders[] = {"site=a%2Fb%25/day=3", "site=c/day=-4",
                                          "site=__HIVE_DEFAULT_PARTITION__/day=5"};
    for (size_t i = 0; i < 3; i++)
        make_folder(folders[i], parquet_plain, sizeof(parquet_plain));
    check_partitioned(", defaults: {site: none}",
                      "-300 none 5\n-300 a/b% 3\n-300 c -4\n");
    check_partitioned(", filters: [[site, is not null], [day, <, 3]]", "-300 c -4\n");
    check_partitioned(", defaults: {site: none}, filters: [[site, is null]]",
                      "-300 none 5\n");
    check_partitioned(", filters: [[site, =, a/b%]]", "-300 a/b% 3\n");
    make_folder("site=d/day=x", parquet_plain, sizeof(parquet_plain));
    check_partitioned(", filters: [[day, <, 0]]", "-300 c -4\n!INVALID_ARGUMENT\n");
}

/* The folder of a file that is excluded has no file that could be read. */
static void excluded_files_are_not_opened(void)
{
    make_folder("site=a/day=1", "no file", 7);
    make_folder("site=b/day=2", parquet_plain, sizeof(parquet_plain));
    check_partitioned(", filters: [[site, =, b]]", "-300 b 2\n");
    check_partitioned(", filters: [[[site, =, b], [id, <, 0]], [[day, in, [2]]]]",
                      "-300 b 2\n");
}

static void touch(const char *folder, const char *file)
{
    char command[4600];
    snprintf(command, sizeof(command), "mkdir -p '%s/%s' && : > '%s/%s/%s'",
             stg_test_dir(), folder, stg_test_dir(), folder, file);
    CHECK_INT(system(command), 0);
}

/* Opens the files of a pattern below the folder of the test. Returns why it cannot. */
static const char *refusal_of(const char *files)
{
    static struct stg_err err;
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = NULL;
    char text[1024];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {%s}\n- parquet: {columns: {id: int64}}\n", files);
    struct stg_pipeline_spec *spec = stg_test_load(text);
    err = (struct stg_err){0};
    stg_dataset_create(spec, &env, &dataset, &err);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return err.text;
}

static void tables_of_delta_and_iceberg_are_refused(void)
{
    char list[4300];
    make_folder("delta/day=1", parquet_plain, sizeof(parquet_plain));
    make_folder("iceberg/data/day=1", parquet_plain, sizeof(parquet_plain));
    CHECK_STR(refusal_of("pattern: \"$DIR/*/day=1/*.parquet\""), "");
    touch("delta/_delta_log", "00000000000000000000.txt");
    touch("iceberg/metadata", "readme.json");
    CHECK_STR(refusal_of("pattern: \"$DIR/*/day=1/*.parquet\""), "");
    CHECK_STR(refusal_of("pattern: \"$DIR/iceberg/*/day=1/*.parquet\""), "");
    touch("delta/_delta_log", "00000000000000000000.json");
    touch("iceberg/metadata", "v1.metadata.json");
    CHECK_CONTAINS(refusal_of("pattern: \"$DIR/*/day=1/*.parquet\""),
                   "/delta is a folder of a Delta table");
    CHECK_CONTAINS(refusal_of("pattern: \"$DIR/iceberg/*/*/*.parquet\""),
                   "/iceberg/data is a folder of an Iceberg table");
    CHECK_STR(refusal_of("pattern: $DIR/delta/day=1/a.parquet"), "");
    snprintf(list, sizeof(list), "%s/delta/day=1/a.parquet\n", stg_test_dir());
    stg_test_file("list", list, strlen(list));
    CHECK_STR(refusal_of("listing: $DIR/list"), "");
}

/* ---- what is read ---- */

static void only_the_columns_that_are_named_are_read(void)
{
    stg_test_file("a.parquet", parquet_types, sizeof(parquet_types));
    uint64_t before = stg_test_bytes_read();
    check_rows("columns: {small: int32}", "- take: {count: 2}\n", "-10\n-9\n", "one");
    uint64_t one = stg_test_bytes_read() - before;
    before = stg_test_bytes_read();
    check_rows("columns: {small: int32, user/id: int64, day: int32, cents: int64}",
               "- take: {count: 2}\n", "-10 0 -50 -99\n-9 1 50 -68\n", "four");
    uint64_t four = stg_test_bytes_read() - before;
    CHECK(one < four);
}

/* ---- damage ---- */

static uint64_t random_state = 1;

static int n_mutations(void)
{
    const char *text = getenv("STG_PARQUET_MUTATIONS");
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
    stg_test_file("a.parquet", data, bytes);
    struct stg_dataset *dataset = stg_test_open_text(pipeline(options, ""), &env, &spec);
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        if (block->error.code != 0)
            CHECK_CONTAINS(block->error.text, "a.parquet");
        stg_block_unref(block);
    }
    if (rc < 0)
        FAIL("the pass ended: %d: %s", rc, err.text);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void a_file_that_is_truncated_anywhere_is_one_error(void)
{
    for (size_t i = 0; i < N_FILES; i++) {
        uint8_t *copy = malloc(parquet_files[i].bytes);
        memcpy(copy, parquet_files[i].data, parquet_files[i].bytes);
        for (size_t n = 0; n < parquet_files[i].bytes; n++) {
            read_damaged(parquet_files[i].options, copy, n);
            if (n > 100 && n < parquet_files[i].bytes - 100)
                n += 12;
        }
        free(copy);
    }
}

/* Bits, bytes and lengths; in the pages, in their headers and in the footer. */
static void a_file_that_is_damaged_anywhere_costs_rows_and_no_more(void)
{
    for (size_t i = 0; i < N_FILES; i++) {
        size_t bytes = parquet_files[i].bytes;
        uint8_t *copy = malloc(bytes);
        for (int k = n_mutations(); k > 0; k--) {
            memcpy(copy, parquet_files[i].data, bytes);
            for (uint64_t n = draw(3) + 1; n > 0; n--) {
                uint64_t at = draw(bytes - 8);
                if (draw(2) == 0)
                    copy[at] ^= (uint8_t)(1u << draw(8));
                else
                    copy[at] = draw(3) == 0 ? 0xff : (uint8_t)draw(256);
            }
            read_damaged(parquet_files[i].options, copy, bytes);
        }
        free(copy);
    }
}

static void a_page_that_does_not_match_its_checksum_costs_its_rows(void)
{
    uint8_t copy[sizeof(parquet_lengths)];
    memcpy(copy, parquet_lengths, sizeof(copy));
    uint8_t *at = memmem(copy, sizeof(copy), "name-1-x", 8);
    CHECK(at != NULL);
    *at = 'N';
    stg_test_file("a.parquet", copy, sizeof(copy));
    CHECK_CONTAINS(error_of("columns: {id: int64, name: string}"),
                   "a.parquet: row 0: column name, row group 0, page at offset ");
    CHECK_CONTAINS(error_of("columns: {id: int64, name: string}"),
                   "its data does not match its checksum");
    check_rows("columns: {id: int64}", "- take: {count: 1}\n", "-300\n",
               "another column");
}

static const struct stg_test tests[] = {
    TEST(each_file_has_the_rows_of_pyarrow),
    TEST(a_pass_continues_at_each_row),
    TEST(a_global_shuffle_has_each_row_of_each_file_once),
    TEST(batches_of_rows_are_slices),
    TEST(a_step_takes_columns_by_their_names),
    TEST(a_pass_continues_in_each_part_of_a_large_page),
    TEST(the_defaults_of_a_column_stand_for_one_that_a_file_lacks),
    TEST(a_file_without_rows_has_none),
    TEST(an_error_names_file_column_and_what_to_do),
    TEST(batches_of_lists_are_values_and_row_splits),
    TEST(rows_of_all_lengths_pass_a_filter_as_rows_of_their_own_do),
    TEST(a_list_that_cannot_be_had_costs_its_row),
    TEST(a_file_without_a_column_of_lists_has_defaults),
    TEST(a_page_that_does_not_fit_the_memory_is_an_error_with_advice),
    TEST(a_null_without_a_default_names_its_row),
    TEST(options_that_cannot_be_right_are_refused),
    TEST(filters_that_cannot_be_right_are_refused),
    TEST(a_filter_that_a_file_does_not_fit_costs_the_file),
    TEST(a_row_that_is_dropped_is_no_error),
    TEST(a_page_that_its_index_excludes_is_not_read),
    TEST(folders_are_columns),
    TEST(excluded_files_are_not_opened),
    TEST(tables_of_delta_and_iceberg_are_refused),
    TEST(only_the_columns_that_are_named_are_read),
    TEST_SLOW(a_file_that_is_truncated_anywhere_is_one_error, 120),
    TEST_SLOW(a_file_that_is_damaged_anywhere_costs_rows_and_no_more, 240),
    TEST(a_page_that_does_not_match_its_checksum_costs_its_rows),
};
TEST_MAIN(tests)
