/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines over objects of a server on loopback: every reader and compression gives the
 * same output as for local files. Also the cost of a failing object.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/sources/projection.h"
#include "daemon/dataset/step.h"
#include "daemon/index/index.h"
#include "daemon/storage/http/fetcher.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/storage/remote_server.h"

static void start(void)
{
    stg_test_fetch_with(60000, 2);
    stg_test_server_start();
}

static char *render(const char *reader, const char *url)
{
    char text[8192];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\", shuffle: false}\n- %s\n", url, reader);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec = stg_test_load(text);
    char *rendered = stg_test_render_spec(spec, &env, 0);
    stg_pipeline_spec_destroy(spec);
    return rendered;
}

/* The same with the columns that the features use alone. */
static char *render_projected(const char *reader, const char *url)
{
    char text[8192];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\", shuffle: false}\n- %s\n", url, reader);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec = stg_test_load(text);
    struct stg_projection projection;
    struct stg_schema element;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_infer(spec, &spec->bump, &element, &err), err);
    CHECK_OK(stg_projection_init(spec, &element, &spec->bump, &projection, &err), err);
    char *rendered = stg_test_render_spec(&projection.spec, &env, 0);
    stg_pipeline_spec_destroy(spec);
    return rendered;
}

/* 40000 rows of text, also as JSON, and compressed. */
static const char *write_rows(void)
{
    size_t bytes = 0;
    char *text = NULL, command[4200];
    FILE *to = open_memstream(&text, &bytes);
    for (int i = 0; i < 40000; i++)
        fprintf(to, "[%d,%d]\n", i, i * 7);
    fclose(to);
    const char *path = stg_test_file("rows", text, bytes);
    free(text);
    snprintf(command, sizeof(command), "gzip -kf %s", path);
    CHECK(system(command) == 0);
    return stg_test_path("rows");
}

static void every_reader_reads_the_same_from_another_machine(void)
{
    static const struct {
        const char *reader, *suffix, *query;
    } rows[] = {
        {"text_line: {}", "", ""},
        {"text_line: {compression_type: GZIP}", ".gz", ""},
        {"text_line: {}", "", "?reset=5000&times=3"},
        {"csv: {header: false}", "", ""},
        {"jsonl: {}", ".gz", ""},
        {"fixed_length_record: {record_bytes: 7, footer_bytes: 3}", "", ""},
        {"interleave: {cycle_length: 4, reader: {text_line: {}}}", "", ""},
    };
    start();
    char path[4096];
    snprintf(path, sizeof(path), "%s", write_rows());
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char local[4200];
        snprintf(local, sizeof(local), "%s%s", path, rows[i].suffix);
        char *want = render(rows[i].reader, local);
        char *got = render(rows[i].reader,
                           stg_test_server_url("/file%s%s", local, rows[i].query));
        CHECK(strlen(want) > 100000);
        if (strcmp(got, want) != 0)
            FAIL("%s%s", rows[i].reader, rows[i].query);
        free(want);
        free(got);
    }
    stg_test_server_stop();
}

/* Skips n records of the only file, and returns the next one's number and text. */
static void check_record_behind(const char *url, uint64_t n, const char *want)
{
    char text[8192];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\", shuffle: false}\n- text_line: {}\n",
             url);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec = stg_test_load(text);
    struct stg_dataset *dataset = stg_test_open_spec(spec, &env);
    struct stg_err err = {0};
    uint64_t skipped = 0;
    CHECK_OK(stg_iter_skip(dataset->last, n, &skipped, &err), err);
    CHECK_INT(skipped, n);
    struct stg_block *block = stg_test_next(dataset);
    const struct stg_tensor *tensor = &block->tensors[0];
    char got[64];
    snprintf(got, sizeof(got), "%.*s", (int)(tensor->end[0] - tensor->begin[0]),
             (const char *)tensor->data + tensor->begin[0]);
    CHECK_STR(got, want);
    CHECK_INT(block->rows[0].record, n);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* The server states which version of an object it sends. */
static void an_object_has_a_record_index(void)
{
    struct stg_err err = {0};
    char url[4200], command[4400];
    const char *path = stg_test_path("rows");
    FILE *file = fopen(path, "we");
    CHECK(file != NULL);
    for (int i = 0; i < 300000; i++)
        fprintf(file, "[%d,%d]\n", i, i * 7);
    CHECK_INT(fclose(file), 0);
    start();
    CHECK_OK(stg_index_configure(stg_test_path("index"), 1 << 20, &err), err);
    snprintf(url, sizeof(url), "%s", stg_test_server_url("/file%s", path));
    check_record_behind(url, 150000, "[150000,1050000]");
    free(render("text_line: {}", url));
    snprintf(command, sizeof(command), "test $(ls %s | wc -l) = 1",
             stg_test_path("index"));
    CHECK_INT(system(command), 0);
    check_record_behind(url, 299990, "[299990,2099930]");
    stg_index_finish();
    stg_test_server_stop();
}

/* ---- columns ---- */

/* format: parquet or arrow. */
static const char *make_file(const char *format, const char *options)
{
    static char path[4096];
    char command[9000];
    snprintf(path, sizeof(path), "%s", stg_test_path("columns"));
    snprintf(command, sizeof(command), "python3 '%s/../../data/make_%s.py' %s %s",
             getenv("STG_REMOTE_SERVERS"), format, path, options);
    CHECK_INT(system(command), 0);
    return path;
}

/* Sums over the requests so far: their number, and the bytes of their ranges. */
static uint64_t count_requests(uint64_t *ret_bytes)
{
    char *log = stg_test_server_log();
    uint64_t n = 0;
    *ret_bytes = 0;
    for (const char *at = log; (at = strstr(at, "bytes=")) != NULL; n++) {
        char *dash;
        at += strlen("bytes=");
        uint64_t begin = strtoull(at, &dash, 10);
        *ret_bytes += strtoull(dash + 1, NULL, 10) - begin + 1;
    }
    free(log);
    return n;
}

static void check_format(const char *format, const char *options, const char *columns,
                         const char *query, uint64_t *ret_n, uint64_t *ret_bytes)
{
    const char *path = make_file(format, options);
    char step[1024];
    uint64_t n_before, bytes_before;
    const char *end = strchr(columns, '}') == NULL ? "}" : "";
    snprintf(step, sizeof(step), "%s: {columns: {%s%s}", format, columns, end);
    char *want = render(step, path);
    n_before = count_requests(&bytes_before);
    char *got = render(step, stg_test_server_url("/file%s%s", path, query));
    *ret_n = count_requests(ret_bytes) - n_before;
    *ret_bytes -= bytes_before;
    CHECK(strlen(want) > 10000);
    if (strcmp(got, want) != 0)
        FAIL("%s: %s: %s", format, options, columns);
    free(want);
    free(got);
}

static void check_columns(const char *options, const char *columns, const char *query,
                          uint64_t *ret_n, uint64_t *ret_bytes)
{
    check_format("parquet", options, columns, query, ret_n, ret_bytes);
}

/* A chunk of 40000 values is two pieces. Beside them come one byte, which says what the
 * object is, and 64 KiB of its end. */
static void only_the_columns_that_are_wanted_come_from_another_machine(void)
{
    uint64_t n, bytes, chunk = 40000 * 8;
    start();
    check_columns("--columns 6 --groups 3 --rows 40000", "c1: int64, c4: int64", "", &n,
                  &bytes);
    CHECK(bytes > 6 * chunk && bytes < 6 * chunk + 80000);
    CHECK_INT(n, 2 + 3 * 2 * 2);
    stg_test_server_stop();
}

/* The pipeline declares all columns, and its features are two of them. */
static void columns_that_nothing_uses_do_not_come_from_another_machine(void)
{
    uint64_t before, bytes, chunk = 40000 * 8;
    start();
    const char *path = make_file("parquet", "--columns 6 --groups 3 --rows 40000");
    char *want = render("parquet: {columns: {c1: int64, c4: int64}}", path);
    count_requests(&before);
    char *got = render_projected(
        "parquet: {columns: {c0: int64, c1: int64, c2: int64, c3: int64, c4: int64, "
        "c5: int64}}\nstaged: {features: {x: c1, y: c4}}",
        stg_test_server_url("/file%s", path));
    count_requests(&bytes);
    CHECK_STR(got, want);
    CHECK(strlen(want) > 10000);
    CHECK(bytes - before > 6 * chunk && bytes - before < 6 * chunk + 80000);
    free(got);
    free(want);
    stg_test_server_stop();
}

/* The second pass asks for the version, and has the footer. */
static void a_footer_is_fetched_once(void)
{
    uint64_t n, again, bytes;
    start();
    char options[] = "--columns 6 --groups 3 --rows 40000";
    check_columns(options, "c1: int64", "", &n, &bytes);
    char *got = render("parquet: {columns: {c1: int64}}",
                       stg_test_server_url("/file%s", stg_test_path("columns")));
    again = count_requests(&bytes);
    CHECK_INT(again, n + n - 1);
    free(got);
    stg_test_server_stop();
}

/* Chunks of 8 KB that lie within 64 KiB come together. */
static void small_columns_that_are_close_together_are_one_request(void)
{
    uint64_t n, bytes;
    start();
    check_columns("--columns 5 --groups 8 --rows 1000",
                  "c0: int64, c1: int64, c3: int64, c4: int64", "", &n, &bytes);
    CHECK_INT(n, 2 + 8);
    stg_test_server_stop();
}

/* Of four row groups the statistics of c0 exclude three. */
static void row_groups_that_a_filter_excludes_are_not_fetched(void)
{
    uint64_t n, bytes, chunk = 40000 * 8;
    start();
    check_columns("--columns 6 --groups 4 --rows 40000 --statistics",
                  "c1: int64, c4: int64}, filters: [[c0, \">=\", 80000000], [c0, <, "
                  "120000000]]",
                  "", &n, &bytes);
    CHECK(bytes > 3 * chunk && bytes < 3 * chunk + 80000);
    CHECK_INT(n, 2 + 3 * 2);
    stg_test_server_stop();
}

static void columns_survive_connections_that_break(void)
{
    uint64_t n, bytes;
    start();
    check_columns("--columns 5 --groups 3 --rows 10000", "c1: int64, c3: int64",
                  "?reset=50000&times=9", &n, &bytes);
    CHECK(n > 2 + 3 * 2);
    stg_test_server_stop();
}

/* Of eight ranges of memory, for forty columns of several pieces. */
static void more_columns_than_there_is_memory_ahead_for_are_read_still(void)
{
    uint64_t n, bytes;
    char columns[512] = "";
    start();
    for (int c = 0; c < 40; c++)
        sprintf(columns + strlen(columns), "%sc%d: int64", c > 0 ? ", " : "", c);
    check_columns("--columns 40 --groups 2 --rows 20000 --page-rows 500", columns, "", &n,
                  &bytes);
    CHECK(bytes < 40 * 2 * 20000 * 8 * 5 / 4);
    stg_test_server_stop();
}

/* A column of a batch has 320,000 bytes, two pieces. Beside them come one byte, the end
 * of the object with the footer, at most 64 KiB, and the metadata of each batch, twice
 * but for those that are there still. */
static void only_the_columns_of_an_arrow_file_that_are_wanted_come(void)
{
    uint64_t n, bytes, buffer = 40000 * 8;
    start();
    check_format("arrow", "--columns 6 --batches 3 --rows 40000", "c1: int64, c4: int64",
                 "", &n, &bytes);
    CHECK(bytes > 6 * buffer && bytes < 6 * buffer + 80000);
    CHECK_INT(n, 2 + 3 + 3 * (1 + 2 * 2) - 1);
    stg_test_server_stop();
}

/* Batches of 24 KB: the metadata of all 200 come in few requests, and so does what a
 * batch has. */
static void an_arrow_file_of_many_small_batches_takes_few_requests(void)
{
    uint64_t n, bytes;
    start();
    check_format("arrow", "--columns 3 --batches 200 --rows 1000", "c0: int64, c2: int64",
                 "", &n, &bytes);
    CHECK(n <= 200 + 50);
    stg_test_server_stop();
}

static void offsets_and_bytes_of_strings_come_at_one_pace(void)
{
    uint64_t n, bytes;
    start();
    check_format("arrow", "--columns 3 --batches 2 --rows 150000 --strings",
                 "c0: string, c2: string", "", &n, &bytes);
    CHECK(bytes < 2 * 2 * 150000 * 15);
    stg_test_server_stop();
}

/* Its batches are found one behind the other, each by a request of 64 KiB. */
static void a_stream_of_arrow_is_read_from_another_machine(void)
{
    uint64_t n, bytes, buffer = 40000 * 8;
    start();
    check_format("arrow", "--columns 6 --batches 3 --rows 40000 --stream",
                 "c1: int64, c4: int64", "", &n, &bytes);
    CHECK(bytes < 6 * buffer + 6 * 65536 + 1);
    check_format("arrow", "--columns 5 --batches 20 --rows 1000 --strings --stream",
                 "c1: string, c4: string", "?reset=50000&times=9", &n, &bytes);
    stg_test_server_stop();
}

static void an_object_that_is_lost_costs_no_other(void)
{
    char text[8192];
    start();
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: [\"%s\", \"%s\"], shuffle: false}\n"
             "- fixed_length_record: {record_bytes: 50000}\n",
             stg_test_server_url("/object/a?size=200000&swap=2&key=hidden"),
             stg_test_server_url("/object/b?size=100000"));
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec = stg_test_load(text);
    struct stg_dataset *dataset = stg_test_open_spec(spec, &env);
    struct stg_block *block;
    int n_records = 0, n_errors = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        if (block->error.code != 0) {
            CHECK_INT(block->error.code, -STAGER_DATA_LOSS);
            CHECK_CONTAINS(block->error.text, "/object/a?…");
            CHECK_CONTAINS(block->error.text, "was replaced while it was read");
            CHECK(strstr(block->error.text, "hidden") == NULL);
            n_errors++;
        } else {
            n_records++;
        }
        stg_block_unref(block);
    }
    CHECK_INT(n_errors, 1);
    CHECK(n_records >= 2 && n_records < 6);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    stg_test_server_stop();
}

static _Atomic int stopped;

static void *stop_soon(void *arg)
{
    while (stg_test_server_asked("/object/a") < 2)
        sched_yield();
    atomic_store(&stopped, 1);
    return NULL;
}

static void a_pipeline_that_is_stopped_waits_for_no_server(void)
{
    char text[8192];
    pthread_t thread;
    start();
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\"}\n- interleave: {reader: {text_line: "
             "{}}}\n",
             stg_test_server_url("/object/a?size=200000&stall=1000"));
    struct stg_dataset_env env = stg_test_env();
    env.stopped = &stopped;
    struct stg_pipeline_spec *spec = stg_test_load(text);
    struct stg_dataset *dataset = stg_test_open_spec(spec, &env);
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK(pthread_create(&thread, NULL, stop_soon, NULL) == 0);
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0)
        stg_block_unref(block);
    CHECK_INT(rc, -STAGER_CANCELLED);
    pthread_join(thread, NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    stg_test_server_stop();
}

static const struct stg_test tests[] = {
    TEST_SLOW(every_reader_reads_the_same_from_another_machine, 60),
    TEST_SLOW(an_object_has_a_record_index, 60),
    TEST_SLOW(only_the_columns_that_are_wanted_come_from_another_machine, 60),
    TEST_SLOW(columns_that_nothing_uses_do_not_come_from_another_machine, 60),
    TEST_SLOW(a_footer_is_fetched_once, 60),
    TEST_SLOW(small_columns_that_are_close_together_are_one_request, 60),
    TEST_SLOW(row_groups_that_a_filter_excludes_are_not_fetched, 60),
    TEST_SLOW(columns_survive_connections_that_break, 60),
    TEST_SLOW(more_columns_than_there_is_memory_ahead_for_are_read_still, 60),
    TEST_SLOW(only_the_columns_of_an_arrow_file_that_are_wanted_come, 60),
    TEST_SLOW(an_arrow_file_of_many_small_batches_takes_few_requests, 60),
    TEST_SLOW(offsets_and_bytes_of_strings_come_at_one_pace, 60),
    TEST_SLOW(a_stream_of_arrow_is_read_from_another_machine, 60),
    TEST_SLOW(an_object_that_is_lost_costs_no_other, 60),
    TEST_SLOW(a_pipeline_that_is_stopped_waits_for_no_server, 60),
};
TEST_MAIN(tests)
