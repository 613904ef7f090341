/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers that are too small: the value that the error recommends is enough, exactly.
 * Also how many files fit without a memory_budget.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define MIB ((uint64_t)1 << 20)
#define DEFAULT_BYTES (256 * MIB) /* without a memory_budget */

/* Runs a pass. *ret_err is the error that ended the dataset, or that of the first error
 * item. */
static bool passes(const char *text, uint64_t buffer_bytes, struct stg_err *ret_err)
{
    struct stg_pipeline_spec *spec = stg_test_load(text);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = NULL;
    struct stg_block *block;
    env.buffer_bytes = buffer_bytes;
    *ret_err = (struct stg_err){0};
    int rc = stg_dataset_create(spec, &env, &dataset, ret_err);
    bool ok = true;
    while (rc == 0 && (rc = stg_dataset_next(dataset, &block, ret_err)) == 0) {
        if (block->error.code != 0 && ok)
            *ret_err = block->error;
        ok = ok && block->error.code == 0;
        stg_block_unref(block);
    }
    CHECK(rc == 1 || !ok || ret_err->code == -STAGER_RESOURCE_EXHAUSTED);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return ok && rc == 1;
}

/* Without a pipeline around it, a dataset names the bytes of its buffers. */
static uint64_t advised(const struct stg_err *err)
{
    const char *at = strstr(err->text, "raise staged.memory_budget");
    at = at != NULL ? strstr(at, "may take ") : NULL;
    if (at == NULL)
        FAIL("no number: %s", err->text);
    return strtoull(at + strlen("may take "), NULL, 10);
}

static void write_lines(const char *name, int n)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 0; i < n; i++)
        fprintf(out, "%d has a line of about sixty bytes, as many logs do: %d\n", i, i);
    fclose(out);
    stg_test_file(name, text, bytes);
    free(text);
}

#define IDS                                                                              \
    "dataset: [{files: {pattern: $DIR/rows, shuffle: false}}, text_line, {map: {graph: " \
    "{words: {op: string_split, input: record}, ids: {op: string_to_number, input: "     \
    "\"words:0\", out_type: int64}}, output: {ids: ids}}}"
#define LINES "dataset: [{files: {pattern: $DIR/lines}}, text_line"

static void what_is_said_to_be_raised_is_enough(void)
{
    static const struct {
        const char *text;
        unsigned n; /* numbers, each tried after the one before it failed */
    } rows[] = {
        {LINES ", {shuffle: {buffer_size: 50000}}]", 1},
        {LINES ", {shuffle: {buffer_size: 1000}}, {shuffle: {buffer_size: 60000}}]", 1},
        {LINES ", {batch: {batch_size: 50000}}]", 1},
        {LINES ", {batch: {batch_size: 100}}, {batch: {batch_size: 500}}]", 1},
        {LINES ", {padded_batch: {batch_size: 50000}}]", 1},
        {LINES ", {batch: {batch_size: 50000}}, {prefetch: {buffer_size: 4}}]", 1},
        {LINES ", {batch: {batch_size: 5000}}, {shuffle: {buffer_size: 10}}]", 1},
        {LINES ", {cache: {}}, {repeat: {count: 2}}]", 3},
        {"dataset: [{files: {pattern: $DIR/long}}, {fixed_length_record: {record_bytes: "
         "1048576, footer_bytes: 0}}]",
         1},
        {"dataset: [{files: {pattern: $DIR/long}}, text_line]", 1},
    };
    write_lines("lines", 50000);
    char *line = malloc(2 * MIB);
    memset(line, 'x', 2 * MIB);
    stg_test_file("long", line, 2 * MIB);
    free(line);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stg_err err;
        uint64_t bytes = 2 * MIB;
        bool ok = passes(rows[i].text, bytes, &err);
        CHECK(!ok);
        for (unsigned k = 0; !ok && k < rows[i].n; k++) {
            uint64_t more = advised(&err);
            if (more <= bytes)
                FAIL("%s: no more than %" PRIu64 ": %s", rows[i].text, bytes, err.text);
            bytes = more;
            ok = passes(rows[i].text, bytes, &err);
        }
        if (!ok)
            FAIL("%s: %" PRIu64 " do not do: %s", rows[i].text, bytes, err.text);
    }
}

/* One row of 40,000 numbers among rows of one: its padded batch has 5 MB. */
static void a_batch_that_a_row_makes_too_large_is_an_item_and_the_pass_continues(void)
{
    static const char *const steps[] = {
        "padded_batch: {batch_size: 16}",
        "bucket_by_sequence_length: {element_length: ids, bucket_boundaries: [100000], "
        "bucket_batch_sizes: [16, 1]}"};
    char *row = malloc(80002);
    for (int i = 0; i < 40000; i++)
        memcpy(row + 2 * i, "7 ", 3);
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 0; i < 64; i++)
        fprintf(out, "%s\n", i == 20 ? row : "1");
    fclose(out);
    stg_test_file("rows", text, bytes);
    free(text);
    free(row);
    for (size_t i = 0; i < 2; i++) {
        char yaml[1024];
        snprintf(yaml, sizeof(yaml), IDS ", {%s}]", steps[i]);
        struct stg_pipeline_spec *spec = stg_test_load(yaml);
        struct stg_dataset_env env = stg_test_env();
        struct stg_dataset *dataset;
        struct stg_block *block;
        struct stg_err err = {0};
        env.buffer_bytes = 4 * MIB;
        CHECK_OK(stg_dataset_create(spec, &env, &dataset, &err), err);
        unsigned n = 0, n_errors = 0;
        int rc;
        while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
            n++;
            n_errors += block->error.code != 0;
            if (block->error.code != 0)
                CHECK_CONTAINS(block->error.text,
                               "line 17 (offset 32), the first of 16 elements");
            stg_block_unref(block);
        }
        CHECK_OK(rc == 1 ? 0 : rc, err);
        CHECK_INT(n, 4);
        CHECK_INT(n_errors, 1);
        stg_dataset_destroy(dataset);
        stg_pipeline_spec_destroy(spec);
        CHECK(!passes(yaml, 4 * MIB, &err));
        if (!passes(yaml, advised(&err), &err))
            FAIL("%s: %s", yaml, err.text);
    }
}

/* A thousand patterns, each for a thousand files with long names. */
static void a_million_files_fit_without_a_memory_budget(void)
{
    enum { N = 1000 };
    char name[160], *text;
    size_t bytes;
    mkdir(stg_test_path("all"), 0755);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "all/n01440764_of_the_training_part_%08d.JPEG", i);
        stg_test_file(name, "1\n", 2);
    }
    FILE *out = open_memstream(&text, &bytes);
    fprintf(out, "dataset: [{files: {seed: 1, pattern: [");
    for (int i = 0; i < N; i++)
        fprintf(out, "%s$DIR/all/*", i > 0 ? ", " : "");
    fprintf(out, "]}}, {take: {count: 10}}, read_file]");
    fclose(out);
    struct stg_err err;
    if (!passes(text, DEFAULT_BYTES, &err))
        FAIL("%s", err.text);
    CHECK(!passes(text, 16 * MIB, &err));
    CHECK_CONTAINS(err.text, "the list of 1000000 files needs ");
    uint64_t enough = advised(&err);
    printf("    1,000,000 files: %.1f MiB are advised\n", (double)enough / MIB);
    CHECK(enough < DEFAULT_BYTES);
    if (!passes(text, enough, &err))
        FAIL("%s", err.text);
    free(text);
}

static const struct stg_test tests[] = {
    TEST(what_is_said_to_be_raised_is_enough),
    TEST(a_batch_that_a_row_makes_too_large_is_an_item_and_the_pass_continues),
    TEST(a_million_files_fit_without_a_memory_budget),
};

TEST_MAIN(tests)
