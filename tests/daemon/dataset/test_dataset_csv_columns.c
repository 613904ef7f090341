/* SPDX-License-Identifier: Apache-2.0
 *
 * The step csv with columns by name: rows, defaults, headers that differ, quotes, errors,
 * in blocks of every size; and files that are damaged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/step.h"
#include "ops/kernels/csv/csv.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static const char *pipeline(const char *options)
{
    static char text[4096];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"$DIR/*.csv\", shuffle: false}\n"
             "- csv: {header: true, %s}\n",
             options);
    return text;
}

static void check_rows(const char *options, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render_text(pipeline(options), &env, 0);
    if (strcmp(got, want) != 0)
        FAIL("%s: got\n%s, not\n%s", options, got, want);
    free(got);
}

/* Returns the text of item n, which is an error. */
static const char *error_of(const char *options, int n)
{
    static struct stg_err err;
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(pipeline(options), &env, &spec);
    for (; n > 0; n--)
        stg_block_unref(stg_test_next(dataset));
    struct stg_block *block = stg_test_next(dataset);
    CHECK(block != NULL && block->error.code != 0);
    err = block->error;
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return err.text;
}

#define COLUMNS "columns: {id: int64, name: string, price: float32}"

static void columns_are_found_by_the_header_of_each_file(void)
{
    STG_TEST_FILE("a.csv", "id,name,price\n1,x,0.5\n2,y,-3\n");
    STG_TEST_FILE("b.csv", "more,price,other,id,name\r\n-,1.25,-,3,z\r\n");
    STG_TEST_FILE("c.csv", "\xef\xbb\xbf\"name\",\"id\",\"price\"\n\"w\",4,1");
    check_rows(COLUMNS, "1 x 0.5\n2 y -3\n3 z 1.25\n4 w 1\n");
    check_rows("columns: {name: string}", "x\ny\nz\nw\n");
}

static void fields_that_are_empty_have_the_default(void)
{
    STG_TEST_FILE("a.csv", "id,name,price\n,,\n2,y,2\n");
    STG_TEST_FILE("b.csv", "id\n5\n");
    check_rows(COLUMNS ", defaults: {id: -1, name: none, price: 0.5}",
               "-1 none 0.5\n2 y 2\n5 none 0.5\n");
    check_rows(COLUMNS ", defaults: {id: -1, name: \"\", price: 0.5}",
               "-1  0.5\n2 y 2\n5  0.5\n");
}

/* Python's csv module reads these rows so. */
static void fields_in_quotes_are_unescaped(void)
{
    STG_TEST_FILE("a.csv", "id,name,price\n\"1\",\"a,b\",\"2\"\n2,\"\"\"c\"\" d\",3\n"
                           "3,\"e\nf\",4\n4,\"\",5\n5,plain,6\n");
    check_rows(COLUMNS, "1 a,b 2\n2 \"c\" d 3\n3 e\nf 4\n4  5\n5 plain 6\n");
    check_rows(COLUMNS ", defaults: {name: none}",
               "1 a,b 2\n2 \"c\" d 3\n3 e\nf 4\n4 none 5\n5 plain 6\n");
}

static void other_delimiters_and_no_quotes(void)
{
    STG_TEST_FILE("a.csv", "id\tname\tprice\n1\t\"x\t2\n");
    check_rows(COLUMNS ", field_delim: \"\\t\", use_quote_delim: false", "1 \"x 2\n");
}

static void a_record_that_cannot_be_had_costs_itself(void)
{
    STG_TEST_FILE("a.csv",
                  "id,name,price\n1,a,1\n2,b,x\n,\"c\",\"3\"\n4,\"d\"\"\",4\n5,e\n"
                  "6,f\"f,6\n7,\"g\" ,7\n8,h,8\n");
    check_rows(COLUMNS,
               "1 a 1\n!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n4 d\" "
               "4\n!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n!INVALID_ARGUMENT\n8 h 8\n");
    static const struct {
        int n;
        const char *part;
    } rows[] = {
        {1, "a.csv: record 2 (offset 20): column price: \"x\" is not a valid float32"},
        {2,
         "a.csv: record 3 (offset 26): column id: the field is empty, and the step has "
         "no default for it"},
        {4, "the record has 2 fields, and the header 3: \"5,e\""},
        {5, "field 1: a field that does not start with a quote has a quote"},
        {6, "field 1: a quote inside a quoted field is not doubled"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_CONTAINS(error_of(COLUMNS, rows[i].n), rows[i].part);
}

static void a_header_that_does_not_fit_costs_its_file(void)
{
    static const struct {
        const char *header, *part;
    } rows[] = {
        {"id,price\n1,2\n", "column name: the header has no such column"},
        {"id,name,price,id\n1,2,3,4\n", "column id: the header has it twice"},
        {"", "the header is missing: the file is empty"},
        {"\n1,2,3\n", "the header is empty"},
        {"id,\"name", "the file ends inside a quoted field"},
        {"id,\"na\"me\",price\n1,2,3\n", "a quote inside a quoted field is not doubled"},
    };
    STG_TEST_FILE("b.csv", "price,name,id\n1,x,2\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stg_test_file("a.csv", rows[i].header, strlen(rows[i].header));
        check_rows(COLUMNS, "!INVALID_ARGUMENT\n2 x 1\n");
        CHECK_CONTAINS(error_of(COLUMNS, 0), rows[i].part);
        CHECK_CONTAINS(error_of(COLUMNS, 0), "a.csv: record 0 (offset 0): ");
    }
    STG_TEST_FILE("a.csv", "price,name,id,aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n1,x,2,3\n");
    CHECK_CONTAINS(error_of(COLUMNS ", max_record_bytes: 20", 0),
                   "the header has more bytes than max_record_bytes");
}

static void the_same_rows_come_with_every_kernel_and_buffer(void)
{
    size_t n_kernels, bytes;
    char *text, *want = NULL;
    FILE *to = open_memstream(&text, &bytes);
    fprintf(to, "c,b,skip,a\n");
    for (int i = 0; i < 3000; i++) {
        if (i % 7 == 0)
            fprintf(to, "%d,\"q%d\"\"\",,%d.25\n", i, i, i);
        else if (i % 11 == 0)
            fprintf(to, "%d,,%d,\n", i, i);
        else
            fprintf(to, "%d,text %d,%d,%d.5\n", i, i * 31, i, i % 13);
        if (i % 97 == 0)
            fprintf(to, "wrong,x,y,z\n");
    }
    CHECK_INT(fclose(to), 0);
    stg_test_file("a.csv", text, bytes);
    free(text);
    const struct stg_csv_kernels *const *all = stg_csv_kernels_all(&n_kernels);
    for (size_t k = 0; k < n_kernels; k++) {
        for (int buffer = 30; buffer < 300000; buffer *= 9) {
            char options[256];
            struct stg_dataset_env env = stg_test_env();
            stg_csv_kernels_use(all[k]);
            snprintf(options, sizeof(options),
                     "columns: {a: float32, b: string, c: int32}, defaults: {a: -1, b: "
                     "none}, buffer_size: %d",
                     buffer);
            char *got = stg_test_render_text(pipeline(options), &env, 0);
            if (want != NULL)
                CHECK_STR(got, want);
            else
                want = strdup(got);
            free(got);
        }
    }
    CHECK_CONTAINS(want, "\n7.25 q7\" 7\n");
    CHECK_CONTAINS(want, "\n-1 none 11\n");
    CHECK_CONTAINS(want, "\n!INVALID_ARGUMENT\n98.25 q98\" 98\n");
    free(want);
    stg_csv_kernels_use(NULL);
}

/* Each byte of a file is changed, and the file ends at each byte. */
static void a_file_that_is_damaged_costs_rows_and_no_more(void)
{
    static const char good[] = "id,name,price\n1,\"a \"\"b\"\"\",0.5\n2,,3\n3,z,1e3\n";
    static const char others[] = "\"\n\r,x\0";
    char text[sizeof(good)];
    struct stg_dataset_env env = stg_test_env();
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        for (size_t k = 0; k <= sizeof(others); k++) {
            memcpy(text, good, sizeof(good));
            if (k < sizeof(others))
                text[i] = others[k];
            stg_test_file("a.csv", text, k < sizeof(others) ? sizeof(good) - 1 : i);
            free(stg_test_render_text(pipeline(COLUMNS ", buffer_size: 11"), &env, 0));
        }
    }
}

static void options_that_cannot_be_are_refused(void)
{
    static const struct {
        const char *options, *part;
    } rows[] = {
        {"columns: {a: int8}", "a is int8; a column of CSV is int32, int64, float32"},
        {"columns: {a: int32}, defaults: {b: 1}", "defaults: columns has no \"b\""},
        {"columns: {a: int32}, defaults: {a: x}", "the default of a must be one int32"},
        {"defaults: {a: 1}", "columns names 0 columns"},
        {"columns: {a: int32}, header: false", "set header: true"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        bool has_header = strstr(rows[i].options, "header") != NULL;
        snprintf(text, sizeof(text),
                 "dataset:\n- files: {pattern: \"/x/*.csv\"}\n- csv: {%s%s}\n",
                 rows[i].options, has_header ? "" : ", header: true");
        CHECK_CONTAINS(stg_test_refused(text), rows[i].part);
    }
}

static const struct stg_test tests[] = {
    TEST(columns_are_found_by_the_header_of_each_file),
    TEST(fields_that_are_empty_have_the_default),
    TEST(fields_in_quotes_are_unescaped),
    TEST(other_delimiters_and_no_quotes),
    TEST(a_record_that_cannot_be_had_costs_itself),
    TEST(a_header_that_does_not_fit_costs_its_file),
    TEST_SLOW(the_same_rows_come_with_every_kernel_and_buffer, 60),
    TEST_SLOW(a_file_that_is_damaged_costs_rows_and_no_more, 60),
    TEST(options_that_cannot_be_are_refused),
};
TEST_MAIN(tests)
