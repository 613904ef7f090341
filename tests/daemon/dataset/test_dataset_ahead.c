/* SPDX-License-Identifier: Apache-2.0
 *
 * One large file, read ahead and split by the threads that pull from it: lines keep the
 * order of the file, whichever thread reads them. And many small files, opened by the
 * pulling threads.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define N_LINES 40000
#define BATCH 1000
#define MAX_LINE 700000

/* Line i is its number and letters. A read contains more lines than are recorded; those
 * hold only their number. A few are longer than the room that a chunk has for a truncated
 * line. One in three ends with "\r\n". */
static size_t line_text(uint64_t i, char *to)
{
    size_t n = (size_t)sprintf(to, "%llu:", (unsigned long long)i);
    if (i >= 10000 && i < 32000)
        return n;
    size_t letters = i % 701 == 500 ? 600000 + i : (i * 2654435761u >> 7) % 600;
    memset(to + n, 'a' + (int)(i % 26), letters);
    return n + letters;
}

static uint64_t offsets[N_LINES];

static const char *make_file(void)
{
    const char *path = stg_test_path("large");
    FILE *file = fopen(path, "w");
    static char line[MAX_LINE];
    CHECK(file != NULL);
    for (uint64_t i = 0; i < N_LINES; i++) {
        offsets[i] = (uint64_t)ftell(file);
        fwrite(line, 1, line_text(i, line), file);
        fputs(i % 3 == 0 ? "\r\n" : "\n", file);
    }
    CHECK_INT(fclose(file), 0);
    return path;
}

static struct stg_dataset *open_large(const char *path, const struct stg_dataset_env *env)
{
    static struct stg_test_spec spec;
    memset(&spec, 0, sizeof(spec));
    stg_test_lines(&spec, path);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", BATCH);
    return stg_test_open(&spec, env);
}

/* Checks that every row is the line of its place; returns the first row's number. */
static uint64_t check_rows(const struct stg_block *block)
{
    static _Thread_local char want[MAX_LINE];
    const struct stg_tensor *rows = &block->tensors[0];
    uint64_t first = block->rows[0].record;
    for (int64_t i = 0; i < block->n_rows; i++) {
        size_t n = line_text(first + (uint64_t)i, want);
        CHECK_INT(block->rows[i].record, first + (uint64_t)i);
        CHECK_INT(block->rows[i].offset, offsets[first + (uint64_t)i]);
        CHECK_INT(rows->end[i] - rows->begin[i], n);
        CHECK(memcmp((const char *)rows->data + rows->begin[i], want, n) == 0);
    }
    return first;
}

struct pulling {
    struct stg_dataset *dataset;
    pthread_mutex_t lock; /* guards pulling, and next_row */
    uint64_t next_row;
};

static void *pull_all(void *arg)
{
    struct pulling *pulling = arg;
    for (;;) {
        struct stg_block *block;
        struct stg_err err = {0};
        pthread_mutex_lock(&pulling->lock);
        int rc = stg_dataset_next(pulling->dataset, &block, &err);
        if (rc == 0) {
            CHECK_INT(block->rows[0].record, pulling->next_row);
            pulling->next_row += (uint64_t)block->n_rows;
        }
        pthread_mutex_unlock(&pulling->lock);
        CHECK_OK(rc, err);
        if (rc == 1)
            return NULL;
        stg_block_read_ahead(block);
        check_rows(block);
        stg_block_unref(block);
    }
}

static void lines_come_in_order_however_many_read_them(void)
{
    const char *path = make_file();
    for (int n = 1; n <= 4; n++) {
        struct stg_dataset_env env = stg_test_env();
        struct pulling pulling = {.dataset = open_large(path, &env),
                                  .lock = PTHREAD_MUTEX_INITIALIZER};
        pthread_t threads[4];
        for (int i = 0; i < n; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, pull_all, &pulling), 0);
        for (int i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        CHECK_INT(pulling.next_row, N_LINES);
        stg_dataset_destroy(pulling.dataset);
    }
}

/* When the file ends, some reads are done ahead; others are planned but not done. */
static void a_file_that_is_truncated_while_it_is_read_ahead_ends_there(void)
{
    const char *path = make_file();
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = open_large(path, &env);
    struct stg_block *block = stg_test_next(dataset);
    stg_block_read_ahead(block);
    stg_block_unref(block);
    CHECK_INT(truncate(path, 2500000), 0);
    uint64_t n_rows = BATCH;
    while ((block = stg_test_next(dataset)) != NULL) {
        CHECK_INT(block->error.code, 0);
        CHECK_INT(block->rows[0].record, n_rows);
        n_rows += (uint64_t)block->n_rows;
        stg_block_read_ahead(block);
        stg_block_unref(block);
    }
    CHECK(n_rows > BATCH && n_rows < N_LINES);
    stg_dataset_destroy(dataset);
}

static void a_dataset_goes_while_reads_are_planned(void)
{
    const char *path = make_file();
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = open_large(path, &env);
    struct stg_block *first = stg_test_next(dataset), *second = stg_test_next(dataset);
    stg_block_read_ahead(first);
    stg_dataset_destroy(dataset);
    stg_block_read_ahead(first);
    stg_block_read_ahead(second);
    CHECK_INT(check_rows(first), 0);
    CHECK_INT(check_rows(second), BATCH);
    stg_block_unref(first);
    stg_block_unref(second);
}

/* If a chunk exceeds a sixteenth of the budget, no chunk is filled ahead. The lines are
 * the same. */
static void a_small_budget_reads_nothing_ahead_and_gives_the_same(void)
{
    const char *path = make_file();
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 24u << 20;
    struct pulling pulling = {.dataset = open_large(path, &env),
                              .lock = PTHREAD_MUTEX_INITIALIZER};
    pull_all(&pulling);
    CHECK_INT(pulling.next_row, N_LINES);
    stg_dataset_destroy(pulling.dataset);
}

/* ---- many small files ---- */

#define N_FILES 300

/* File i has i mod 5 lines "i:line". */
static const char *make_files(int n)
{
    char name[32], text[256];
    for (int i = 0; i < n; i++) {
        size_t bytes = 0;
        for (int k = 0; k < i % 5; k++)
            bytes += (size_t)sprintf(text + bytes, "%d:%d\n", i, k);
        sprintf(name, "small%04d", i);
        stg_test_file(name, text, bytes);
    }
    return stg_test_path("small*");
}

static struct stg_dataset *open_small(const char *pattern, int64_t batch)
{
    static struct stg_test_spec spec;
    static struct stg_dataset_env env;
    env = stg_test_env();
    memset(&spec, 0, sizeof(spec));
    stg_test_lines(&spec, pattern);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", batch);
    return stg_test_open(&spec, &env);
}

/* Checks that every row is the next one of the files in their order. */
static void check_small(const struct stg_block *block, uint32_t *file, uint64_t *line)
{
    const struct stg_tensor *rows = &block->tensors[0];
    for (int64_t i = 0; i < block->n_rows; i++) {
        char want[32];
        while (*line == *file % 5) {
            *file += 1;
            *line = 0;
        }
        int n = sprintf(want, "%u:%d", *file, (int)*line);
        CHECK_INT(block->rows[i].file, *file);
        CHECK_INT(block->rows[i].record, *line);
        CHECK_INT(rows->end[i] - rows->begin[i], n);
        CHECK(memcmp((const char *)rows->data + rows->begin[i], want, (size_t)n) == 0);
        *line += 1;
    }
}

struct small_pulling {
    struct stg_dataset *dataset;
    pthread_mutex_t lock; /* guards pulling, and the fields below */
    uint32_t file;
    uint64_t line, n_rows;
};

static void *pull_small(void *arg)
{
    struct small_pulling *pulling = arg;
    for (;;) {
        struct stg_block *block;
        struct stg_err err = {0};
        pthread_mutex_lock(&pulling->lock);
        int rc = stg_dataset_next(pulling->dataset, &block, &err);
        if (rc == 0) {
            check_small(block, &pulling->file, &pulling->line);
            pulling->n_rows += (uint64_t)block->n_rows;
        }
        pthread_mutex_unlock(&pulling->lock);
        CHECK_OK(rc, err);
        if (rc == 1)
            return NULL;
        stg_block_read_ahead(block);
        stg_block_unref(block);
    }
}

static void lines_of_small_files_come_in_order_however_many_open_them(void)
{
    const char *pattern = make_files(N_FILES);
    for (int n = 1; n <= 4; n++) {
        struct small_pulling pulling = {.dataset = open_small(pattern, 3),
                                        .lock = PTHREAD_MUTEX_INITIALIZER};
        pthread_t threads[4];
        for (int i = 0; i < n; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, pull_small, &pulling), 0);
        for (int i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        CHECK_INT(pulling.n_rows, N_FILES / 5 * 10);
        stg_dataset_destroy(pulling.dataset);
    }
}

/* Pulls the first line, waits until `n` files are open, and removes the next one. */
static struct stg_dataset *open_ahead_without(int n, const char *name)
{
    struct stg_dataset *dataset = open_small(make_files(10), 1);
    struct stg_block *block = stg_test_next(dataset);
    for (int i = 0; i < n; i++)
        stg_block_read_ahead(block);
    stg_block_unref(block);
    CHECK_INT(unlink(stg_test_path(name)), 0);
    return dataset;
}

/* A file opened ahead can be read after its removal. */
static void files_are_opened_while_one_before_is_read(void)
{
    struct stg_dataset *dataset = open_ahead_without(2, "small0004");
    struct stg_block *block;
    uint64_t n_rows = 1, line = 1;
    uint32_t file = 1;
    while ((block = stg_test_next(dataset)) != NULL) {
        CHECK_INT(block->error.code, 0);
        check_small(block, &file, &line);
        n_rows += (uint64_t)block->n_rows;
        stg_block_unref(block);
    }
    CHECK_INT(n_rows, 20);
    stg_dataset_destroy(dataset);
}

static void a_file_that_cannot_be_opened_ahead_is_reported_in_its_turn(void)
{
    struct stg_dataset *dataset = open_ahead_without(0, "small0004");
    struct stg_block *block;
    struct stg_err err = {0};
    uint64_t n_rows = 1, line = 1;
    uint32_t file = 1;
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        check_small(block, &file, &line);
        n_rows += (uint64_t)block->n_rows;
        stg_block_read_ahead(block);
        stg_block_unref(block);
    }
    CHECK_INT(rc, -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "small0004");
    CHECK_INT(n_rows, 1 + 2 + 3);
    stg_dataset_destroy(dataset);
}

/* The harness counts descriptors. */
static void a_dataset_goes_while_files_are_open(void)
{
    stg_dataset_destroy(open_ahead_without(1, "small0009"));
    stg_dataset_destroy(open_ahead_without(2, "small0009"));
}

static const struct stg_test tests[] = {
    TEST_SLOW(lines_come_in_order_however_many_read_them, 60),
    TEST(a_file_that_is_truncated_while_it_is_read_ahead_ends_there),
    TEST(a_dataset_goes_while_reads_are_planned),
    TEST(a_small_budget_reads_nothing_ahead_and_gives_the_same),
    TEST_SLOW(lines_of_small_files_come_in_order_however_many_open_them, 60),
    TEST(files_are_opened_while_one_before_is_read),
    TEST(a_file_that_cannot_be_opened_ahead_is_reported_in_its_turn),
    TEST(a_dataset_goes_while_files_are_open),
};

TEST_MAIN(tests)
