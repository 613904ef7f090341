/* SPDX-License-Identifier: Apache-2.0
 *
 * files and text_line, from real files to batches: the output, its provenance, and files
 * that are missing, odd, or too long.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static void check_items(const struct stg_test_spec *spec, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render(spec, &env, 0);
    CHECK_STR(got, want);
    free(got);
}

static void batch(struct stg_test_spec *spec, int64_t size)
{
    stg_test_step(spec, "batch");
    stg_test_int(spec, "batch_size", size);
}

/* ---- items ---- */

static void lines_of_sorted_files_follow_one_another(void)
{
    STG_TEST_FILE("b.txt", "3\r\n\n4");
    STG_TEST_FILE("a.txt", "1\n2\n");
    STG_TEST_FILE("c.csv", "no\n");
    STG_TEST_FILE("c.txt", "");
    STG_TEST_FILE("d.txt", "5\n");
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("*.txt"));
    check_items(&spec, "1\n2\n3\n\n4\n5\n");
    batch(&spec, 4);
    check_items(&spec, "[1 2 3 ]\n[4 5]\n");
}

static void several_patterns_are_sorted_together_and_may_repeat_a_file(void)
{
    STG_TEST_FILE("a", "a\n");
    STG_TEST_FILE("b", "b\n");
    STG_TEST_FILE("c", "c\n");
    struct stg_test_spec spec = {0};
    stg_test_step(&spec, "files");
    stg_test_pattern(&spec, stg_test_path("c"));
    stg_test_pattern(&spec, stg_test_path("[ab]"));
    stg_test_pattern(&spec, stg_test_path("b*"));
    stg_test_bool(&spec, "shuffle", false);
    stg_test_step(&spec, "text_line");
    check_items(&spec, "a\nb\nb\nc\n");
}

static void a_directory_stands_for_the_files_in_it(void)
{
    CHECK_INT(mkdir(stg_test_path("dir"), 0755), 0);
    CHECK_INT(mkdir(stg_test_path("dir/sub"), 0755), 0);
    CHECK_INT(mkdir(stg_test_path("empty"), 0755), 0);
    STG_TEST_FILE("dir/b", "2\n");
    STG_TEST_FILE("dir/a", "1\n");
    STG_TEST_FILE("dir/.hidden", "no\n");
    STG_TEST_FILE("dir/sub/c", "no\n");
    static const char *const names[] = {"dir", "dir/", "dir//"};
    for (size_t i = 0; i < 3; i++) {
        struct stg_test_spec spec = {0};
        stg_test_lines(&spec, stg_test_path(names[i]));
        check_items(&spec, "1\n2\n");
    }
    struct stg_test_spec empty = {0};
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    stg_test_lines(&empty, stg_test_path("empty"));
    CHECK_INT(stg_dataset_create(&empty.spec, &env, &dataset, &err), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "no files matched ");
}

static void a_file_may_be_named_by_a_url(void)
{
    char *url;
    STG_TEST_FILE("x", "one\n");
    CHECK(asprintf(&url, "file://%s", stg_test_path("x")) > 0);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, url);
    stg_test_bool(&spec, "with_key", true);
    char want[256];
    snprintf(want, sizeof(want), "one %s:1\n", url);
    check_items(&spec, want);
    free(url);
}

static void keys_name_file_and_line(void)
{
    const char *a = STG_TEST_FILE("a", "head\nx\ny\n");
    const char *b = STG_TEST_FILE("b", "head\nz\n");
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("?"));
    stg_test_bool(&spec, "with_key", true);
    stg_test_int(&spec, "skip_header_lines", 1);
    char want[512];
    snprintf(want, sizeof(want), "x %s:2\ny %s:3\nz %s:2\n", a, a, b);
    check_items(&spec, want);
    batch(&spec, 3);
    snprintf(want, sizeof(want), "[x y z] [%s:2 %s:3 %s:2]\n", a, a, b);
    check_items(&spec, want);
}

static void repeat_between_files_and_lines_counts_epochs(void)
{
    STG_TEST_FILE("a", "1\n");
    STG_TEST_FILE("b", "2\n");
    struct stg_test_spec spec = {0};
    stg_test_step(&spec, "files");
    stg_test_pattern(&spec, stg_test_path("?"));
    stg_test_bool(&spec, "shuffle", false);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", 2);
    stg_test_step(&spec, "text_line");
    check_items(&spec, "1\n2\n#1 1\n2\n");
    batch(&spec, 3);
    check_items(&spec, "[1 2 1]\n#1 [2]\n");
}

/* Thousands of files with one line: they share chunks, or the quota would not suffice. */
static void many_small_files_fit_a_small_quota(void)
{
    enum { N = 3000 };
    for (int i = 0; i < N; i++) {
        char name[32], text[32];
        snprintf(name, sizeof(name), "f%04d", i);
        int n = snprintf(text, sizeof(text), "line %d\n", i);
        stg_test_file(name, text, (size_t)n);
    }
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("f*"));
    batch(&spec, N);
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 2 << 20;
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block = stg_test_next(dataset);
    const struct stg_tensor *tensor = &block->tensors[0];
    CHECK_INT(tensor->shape[0], N);
    for (int i = 0; i < N; i++) {
        char want[32];
        int n = snprintf(want, sizeof(want), "line %d", i);
        CHECK_INT(tensor->end[i] - tensor->begin[i], n);
        CHECK(memcmp((char *)tensor->data + tensor->begin[i], want, (size_t)n) == 0);
        CHECK_INT(block->rows[i].file, i);
        CHECK_INT(block->rows[i].offset, 0);
        CHECK_INT(block->rows[i].record, 0);
    }
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

/* ---- provenance ---- */

/* Line i of a file is "i" and i % 7 more letters, so its position can be computed. */
static const char *numbered_file(const char *name, int n, uint64_t *offsets)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    for (int i = 0; i < n; i++) {
        fflush(file);
        offsets[i] = bytes;
        fprintf(file, "%d%.*s\n", i, i % 7, "abcdefg");
    }
    fclose(file);
    const char *path = stg_test_file(name, text, bytes);
    free(text);
    return path;
}

static void every_row_knows_its_place_after_shuffle_and_batch(void)
{
    enum { N = 5000 };
    static uint64_t offsets[2][N];
    const char *paths[2] = {numbered_file("a", N, offsets[0]),
                            numbered_file("b", N, offsets[1])};
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("?"));
    stg_test_int(&spec, "buffer_size", 700);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 999);
    batch(&spec, 64);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block;
    static bool seen[2][N];
    int n = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        const struct stg_tensor *tensor = &block->tensors[0];
        CHECK_INT(block->n_rows, tensor->shape[0]);
        for (int64_t i = 0; i < block->n_rows; i++, n++) {
            const struct stg_provenance *row = &block->rows[i];
            char want[32], where[256], got[256];
            int line = (int)row->record;
            CHECK(row->file < 2 && line < N && !seen[row->file][line]);
            seen[row->file][line] = true;
            int bytes = snprintf(want, sizeof(want), "%d%.*s", line, line % 7, "abcdefg");
            CHECK_INT(tensor->end[i] - tensor->begin[i], bytes);
            CHECK(memcmp((char *)tensor->data + tensor->begin[i], want, (size_t)bytes) ==
                  0);
            CHECK_INT(row->offset, offsets[row->file][line]);
            snprintf(where, sizeof(where), "%s: line %d (offset %llu)", paths[row->file],
                     line + 1, (unsigned long long)row->offset);
            CHECK_STR(stg_provenance_text(dataset, row, got, sizeof(got)), where);
        }
        stg_block_unref(block);
    }
    CHECK_INT(n, 2 * N);
    stg_dataset_destroy(dataset);
}

/* Lines in batches of all sizes and reads of all sizes equal those of the file, even
 * while batches are held: a view must not change under its reader. */
static void check_views(int64_t buffer, int64_t size, const uint64_t *offsets, int n)
{
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("a"));
    stg_test_int(&spec, "buffer_size", buffer);
    batch(&spec, size);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *kept[64] = {NULL}, *block;
    int64_t first[64] = {0}, at = 0;
    for (size_t k = 0; (block = stg_test_next(dataset)) != NULL; k++) {
        size_t slot = k % 64;
        stg_block_unref(kept[slot]);
        kept[slot] = block;
        first[slot] = at;
        at += block->n_rows;
    }
    CHECK_INT(at, n);
    for (size_t slot = 0; slot < 64 && kept[slot] != NULL; slot++) {
        const struct stg_tensor *tensor = &kept[slot]->tensors[0];
        for (int64_t i = 0; i < kept[slot]->n_rows; i++) {
            int line = (int)(first[slot] + i);
            char want[32];
            int bytes = snprintf(want, sizeof(want), "%d%.*s", line, line % 7, "abcdefg");
            CHECK_INT(tensor->end[i] - tensor->begin[i], bytes);
            CHECK(memcmp((char *)tensor->data + tensor->begin[i], want, (size_t)bytes) ==
                  0);
            CHECK_INT(kept[slot]->rows[i].offset, offsets[line]);
        }
        stg_block_unref(kept[slot]);
    }
    stg_dataset_destroy(dataset);
}

static void views_of_chunks_stay_as_they_were_handed_out(void)
{
    enum { N = 3000 };
    static uint64_t offsets[N];
    numbered_file("a", N, offsets);
    static const int64_t buffers[] = {1, 3, 17, 64, 500, 4096, 1 << 20};
    static const int64_t sizes[] = {1, 2, 13, 100, 2999, 5000};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
            check_views(buffers[i], sizes[k], offsets, N);
    }
}

/* ---- bad input ---- */

/* TFD-E2 */
static void a_line_that_is_too_long_costs_itself_only(void)
{
    STG_TEST_FILE("a", "1\n2\nxxxxxxxxxxxxxxxx\n3\n4\n");
    STG_TEST_FILE("b", "yyyyyyyyyyyyyyyyy");
    STG_TEST_FILE("c", "5\n");
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("?"));
    stg_test_int(&spec, "max_record_bytes", 8);
    check_items(&spec, "1\n2\n!INVALID_ARGUMENT\n3\n4\n!INVALID_ARGUMENT\n5\n");

    /* The rows before it stay for the next batch. */
    struct stg_test_spec batched = {0};
    stg_test_lines(&batched, stg_test_path("?"));
    stg_test_int(&batched, "max_record_bytes", 8);
    batch(&batched, 3);
    check_items(&batched, "!INVALID_ARGUMENT\n[1 2 3]\n!INVALID_ARGUMENT\n[4 5]\n");

    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&batched, &env);
    struct stg_block *block = stg_test_next(dataset);
    char want[256];
    snprintf(want, sizeof(want), "%s/a: line 3 (offset 4): the line has 16 bytes, ",
             stg_test_dir());
    CHECK_CONTAINS(block->error.text, want);
    CHECK_CONTAINS(block->error.text, "raise max_record_bytes");
    CHECK_INT(block->n_records, 0);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

static void errors_go_through_shuffle_in_every_epoch(void)
{
    STG_TEST_FILE("a", "1\n2\nxxxxxxxxxxxxxxxx\n3\n");
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("a"));
    stg_test_int(&spec, "max_record_bytes", 8);
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 2);
    stg_test_step(&spec, "repeat");
    stg_test_int(&spec, "count", 3);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        int seen = 0, errors = 0;
        for (int i = 0; i < 4; i++) {
            struct stg_block *block = stg_test_next(dataset);
            CHECK_INT(block->epoch, epoch);
            if (block->error.code != 0)
                errors++;
            else
                seen |=
                    1 << ((char *)block->tensors[0].data)[block->tensors[0].begin[0]] %
                             16;
            stg_block_unref(block);
        }
        CHECK_INT(errors, 1);
        CHECK_INT(seen, 14);
    }
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

static void a_gigabyte_line_in_a_file_is_passed_over_quickly(void)
{
    const char *path = STG_TEST_FILE("big", "first\n");
    CHECK_INT(truncate(path, 1ll << 30), 0);
    int fd = open(path, O_WRONLY | O_APPEND);
    CHECK(write(fd, "\nlast\n", 6) == 6);
    close(fd);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, path);
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 64 << 20;
    char *got = stg_test_render(&spec, &env, 0);
    CHECK_STR(got, "first\n!INVALID_ARGUMENT\nlast\n");
    free(got);
}

static void the_budget_limits_lines_too(void)
{
    char *text = malloc(300000);
    memset(text, 'x', 300000);
    text[99999] = '\n';
    const char *path = stg_test_file("a", text, 300000);
    free(text);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, path);
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 1 << 20;
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, 0);
    CHECK_INT(block->tensors[0].end[0] - block->tensors[0].begin[0], 99999);
    stg_block_unref(block);
    block = stg_test_next(dataset);
    CHECK_INT(block->error.code, -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(block->error.text, "an eighth of the dataset's buffers");
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
}

static void check_failure(const struct stg_test_spec *spec, int code, const char *why)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(spec, &env);
    struct stg_block *block;
    struct stg_err err = {0}, again = {0};
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0)
        stg_block_unref(block);
    CHECK_INT(rc, -code);
    CHECK_CONTAINS(err.text, "step text_line (line 2): ");
    CHECK_CONTAINS(err.text, why);
    CHECK_INT(stg_dataset_next(dataset, &block, &again), -code);
    CHECK_STR(again.text, err.text);
    stg_dataset_destroy(dataset);
}

static void a_file_that_cannot_be_read_fails_the_source_for_good(void)
{
    CHECK_INT(mkfifo(stg_test_path("pipe"), 0644), 0);
    struct stg_test_spec pipe = {0};
    stg_test_lines(&pipe, stg_test_path("pipe"));
    check_failure(&pipe, STAGER_INVALID_ARGUMENT, "not a regular file");

    /* Nothing is mapped at address 0: the kernel returns EIO. */
    struct stg_test_spec broken = {0};
    stg_test_lines(&broken, "/proc/self/mem");
    check_failure(&broken, STAGER_DATA_LOSS,
                  "/proc/self/mem: reading at offset 0: Input/output error");

    struct stg_test_spec device = {0};
    stg_test_lines(&device, "/dev/zero");
    check_failure(&device, STAGER_INVALID_ARGUMENT, "not a regular file");
}

/* TFD-E1 */
static void a_file_that_goes_between_listing_and_opening_is_named(void)
{
    STG_TEST_FILE("a", "1\n");
    const char *b = STG_TEST_FILE("b", "2\n");
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("?"));
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    CHECK_INT(unlink(b), 0);
    stg_block_unref(stg_test_next(dataset));
    struct stg_block *block;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, b);
    CHECK_CONTAINS(err.text, "No such file or directory");
    stg_dataset_destroy(dataset);
}

/* The rows of the first file precede the failure of the second. */
static void rows_before_a_failure_are_not_lost_without_batch(void)
{
    STG_TEST_FILE("a", "1\n2\n3\n");
    const char *b = STG_TEST_FILE("b", "4\n");
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("?"));
    stg_test_step(&spec, "shuffle");
    stg_test_int(&spec, "buffer_size", 2);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    CHECK_INT(unlink(b), 0);
    struct stg_block *block;
    struct stg_err err = {0};
    int n = 0, rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        stg_block_unref(block);
        n++;
    }
    CHECK_INT(rc, -STAGER_NOT_FOUND);
    CHECK_INT(n, 2); /* one is still in the buffer */
    stg_dataset_destroy(dataset);
}

static void a_file_that_is_truncated_or_grows_while_it_is_read_does_no_harm(void)
{
    enum { N = 100000 };
    static uint64_t offsets[N];
    const char *path = numbered_file("a", N, offsets);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, path);
    stg_test_int(&spec, "buffer_size", 4096);
    batch(&spec, 100);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    stg_block_unref(stg_test_next(dataset));
    CHECK_INT(truncate(path, (off_t)offsets[5000]), 0);
    int64_t n = 100;
    struct stg_block *block;
    while ((block = stg_test_next(dataset)) != NULL) {
        n += block->n_rows;
        stg_block_unref(block);
    }
    CHECK_INT(n, 5000);
    stg_dataset_destroy(dataset);

    dataset = stg_test_open(&spec, &env);
    stg_block_unref(stg_test_next(dataset));
    FILE *file = fopen(path, "a");
    fprintf(file, "more\n");
    fclose(file);
    for (n = 100; (block = stg_test_next(dataset)) != NULL; stg_block_unref(block))
        n += block->n_rows;
    CHECK_INT(n, 5001);
    stg_dataset_destroy(dataset);
}

/* ---- listing ---- */

static void check_list_error(const char *pattern, int code, const char *why)
{
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, pattern);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_INT(stg_dataset_create(&spec.spec, &env, &dataset, &err), -code);
    CHECK_CONTAINS(err.text, "step files (line 1): ");
    CHECK_CONTAINS(err.text, why);
}

/* TFD-E10, TFD-E1 */
static void no_file_is_an_error_with_a_reason(void)
{
    STG_TEST_FILE("a", "");
    char want[256];
    snprintf(want, sizeof(want), "no files matched %s/*.csv", stg_test_dir());
    check_list_error(stg_test_path("*.csv"), STAGER_NOT_FOUND, want);
    check_list_error(stg_test_path("none"), STAGER_NOT_FOUND, "no files matched ");
    snprintf(want, sizeof(want), "gone does not exist in %s", stg_test_dir());
    check_list_error(stg_test_path("gone/*.csv"), STAGER_NOT_FOUND, want);
    check_list_error(stg_test_path("gone/none.csv"), STAGER_NOT_FOUND, want);
    check_list_error(stg_test_path("a/*.csv"), STAGER_NOT_FOUND, "is not a directory");
}

static void a_view_needs_no_copy(void)
{
    enum { N = 1000 };
    static uint64_t offsets[N];
    numbered_file("a", N, offsets);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("a"));
    batch(&spec, 400);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *first = stg_test_next(dataset), *second = stg_test_next(dataset);
    CHECK(first->tensors[0].data == second->tensors[0].data);
    CHECK_INT(second->tensors[0].begin[0] - first->tensors[0].begin[0], offsets[400]);
    stg_block_unref(first);
    stg_block_unref(second);
    stg_dataset_destroy(dataset);
}

static const struct stg_test tests[] = {
    TEST(lines_of_sorted_files_follow_one_another),
    TEST(several_patterns_are_sorted_together_and_may_repeat_a_file),
    TEST(a_directory_stands_for_the_files_in_it),
    TEST(a_file_may_be_named_by_a_url),
    TEST(keys_name_file_and_line),
    TEST(repeat_between_files_and_lines_counts_epochs),
    TEST(many_small_files_fit_a_small_quota),
    TEST(every_row_knows_its_place_after_shuffle_and_batch),
    TEST(views_of_chunks_stay_as_they_were_handed_out),
    TEST(a_view_needs_no_copy),
    TEST(a_line_that_is_too_long_costs_itself_only),
    TEST(errors_go_through_shuffle_in_every_epoch),
    TEST(a_gigabyte_line_in_a_file_is_passed_over_quickly),
    TEST(the_budget_limits_lines_too),
    TEST(a_file_that_cannot_be_read_fails_the_source_for_good),
    TEST(a_file_that_goes_between_listing_and_opening_is_named),
    TEST(rows_before_a_failure_are_not_lost_without_batch),
    TEST(a_file_that_is_truncated_or_grows_while_it_is_read_does_no_harm),
    TEST(no_file_is_an_error_with_a_reason),
};

TEST_MAIN(tests)
