/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of datasets: failed allocations, a small budget, many epochs, and blocks
 * released by other threads than the one that pulls them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/step.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_tar.h"
#include "tests/daemon/format/golden_tfrecord.h"
#include "tests/daemon/storage/golden_compressed.h"
#include "tests/failalloc.h"

/* ---- a failing allocator ---- */

/* Runs one pass. destroy releases what was made before a failure; the sanitizer finds
 * leaks. */
static int run_pass(void *owner)
{
    const struct stg_test_spec *spec = owner;
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    int rc = stg_dataset_create(&spec->spec, &env, &dataset, &err);
    if (rc < 0) {
        CHECK_INT(err.code, rc);
        CHECK(err.text[0] != '\0');
        return rc;
    }
    struct stg_block *block;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0)
        stg_block_unref(block);
    if (rc < 0)
        CHECK(err.code == rc && err.text[0] != '\0');
    stg_dataset_destroy(dataset);
    return rc == 1 ? 0 : rc;
}

static int infer(void *owner)
{
    const struct stg_test_spec *spec = owner;
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_schema schema;
    int rc = stg_dataset_infer(&spec->spec, &bump, &schema, NULL);
    stg_bump_finish(&bump);
    return rc;
}

static void step(struct stg_test_spec *spec, const char *name, const char *attr,
                 int64_t value)
{
    stg_test_step(spec, name);
    stg_test_int(spec, attr, value);
}

static void any_allocation_may_fail(void)
{
    STG_TEST_FILE("a", "1\n22\n333\n4444\n55555\n");
    STG_TEST_FILE("b", "x\nyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\nz");
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, stg_test_path("?"));
    stg_test_bool(&spec, "with_key", true);
    stg_test_int(&spec, "buffer_size", 4);
    stg_test_int(&spec, "max_record_bytes", 30);
    step(&spec, "shuffle", "buffer_size", 3);
    step(&spec, "repeat", "count", 2);
    step(&spec, "batch", "batch_size", 3);
    stg_test_bool(&spec, "drop_remainder", true);
    step(&spec, "shuffle", "buffer_size", 2);
    step(&spec, "batch", "batch_size", 2);
    CHECK(stg_failalloc_each(run_pass, &spec) > 20);
    CHECK(stg_failalloc_each(infer, &spec) >= 1);
}

static void any_allocation_of_other_steps_may_fail(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 200);
    step(&spec, "batch", "batch_size", 7);
    step(&spec, "repeat", "count", 2);
    step(&spec, "batch", "batch_size", 5);
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
}

static void begin_reader(struct stg_test_spec *spec, const char *path, const char *name)
{
    *spec = (struct stg_test_spec){0};
    stg_test_step(spec, "files");
    stg_test_pattern(spec, path);
    stg_test_step(spec, name);
    stg_test_int(spec, "buffer_size", 64);
}

static void any_allocation_of_readers_may_fail(void)
{
    static const struct stg_value x = {.kind = STG_VALUE_STRING, .s = "x", .s_bytes = 1};
    static const struct stg_value shape[] = {{.kind = STG_VALUE_INT, .i = 2},
                                             {.kind = STG_VALUE_INT, .i = 3}};
    struct stg_test_spec spec;
    begin_reader(&spec, stg_test_file("r", golden_plain, sizeof(golden_plain)),
                 "tfrecord");
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
    const char *text = STG_TEST_FILE("t", "a,\"b\n\"\n\n1,2\n");
    begin_reader(&spec, text, "csv");
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
    begin_reader(&spec, text, "jsonl");
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
    begin_reader(&spec, text, "read_file");
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
    begin_reader(&spec, text, "fixed_length_record");
    stg_test_int(&spec, "record_bytes", 3);
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
    begin_reader(&spec, stg_test_file("n", npy_grid, sizeof(npy_grid)), "npy");
    stg_test_string(&spec, "dtype", "float32");
    stg_test_list(&spec, "shape", shape, 2);
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
    begin_reader(&spec, stg_test_file("a", tar_small, sizeof(tar_small)), "tar");
    stg_test_list(&spec, "parts", &x, 1);
    CHECK(stg_failalloc_each(run_pass, &spec) > 5);
}

static void any_allocation_of_decompressing_may_fail(void)
{
    static const struct {
        const char *type;
        const void *data;
        size_t bytes;
    } files[] = {{"gzip", text_gzip, sizeof(text_gzip)},
                 {"zlib", text_zlib, sizeof(text_zlib)},
                 {"zstd", text_zstd, sizeof(text_zstd)},
                 {"lz4", text_lz4, sizeof(text_lz4)}};
    for (size_t i = 0; i < 4; i++) {
        struct stg_test_spec spec;
        begin_reader(&spec, stg_test_file("z", files[i].data, files[i].bytes), "jsonl");
        stg_test_string(&spec, "compression_type", files[i].type);
        CHECK(stg_failalloc_each(run_pass, &spec) > 5);
    }
}

/* ---- the budget ---- */

/* Any budget gives success or RESOURCE_EXHAUSTED. The dataset never uses more than the
 * budget. */
static void every_budget_is_kept(void)
{
    static char text[200000];
    uint64_t state = 7;
    for (size_t i = 0; i < sizeof(text); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        text[i] = (state >> 40) % 60 == 0 ? '\n' : 'x';
    }
    const char *path = stg_test_file("a", text, sizeof(text));
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, path);
    step(&spec, "shuffle", "buffer_size", 1000);
    step(&spec, "batch", "batch_size", 64);
    int n_good = 0, n_refused = 0;
    for (uint64_t bytes = 1000; bytes < 4000000; bytes += bytes / 3) {
        struct stg_dataset_env env = stg_test_env();
        env.buffer_bytes = bytes;
        struct stg_dataset *dataset;
        struct stg_err err = {0};
        int rc = stg_dataset_create(&spec.spec, &env, &dataset, &err);
        if (rc == 0) {
            struct stg_block *block;
            while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
                CHECK(stg_quota_used(dataset->quota) <= bytes);
                stg_block_unref(block);
            }
            stg_dataset_destroy(dataset);
        }
        CHECK(rc == 1 || rc == -STAGER_RESOURCE_EXHAUSTED);
        n_good += rc == 1;
        n_refused += rc != 1;
    }
    CHECK(n_good >= 3 && n_refused >= 3);
}

static void memory_does_not_grow_over_epochs(void)
{
    char *text = malloc(300000);
    for (int i = 0; i < 3000; i++)
        sprintf(text + i * 100, "%097d\n\n", i);
    const char *path = stg_test_file("a", text, 300000);
    free(text);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, path);
    stg_test_int(&spec, "buffer_size", 10000);
    step(&spec, "shuffle", "buffer_size", 500);
    step(&spec, "repeat", "count", 200);
    step(&spec, "batch", "batch_size", 77);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block;
    uint64_t most[2] = {0, 0};
    while ((block = stg_test_next(dataset)) != NULL) {
        uint64_t used = stg_quota_used(dataset->quota);
        uint64_t *at = &most[block->epoch >= 5];
        *at = used > *at ? used : *at;
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    CHECK(most[0] > 0 && most[1] <= most[0] + 65536);
}

static void a_shuffle_that_is_over_has_given_its_records_memory_back(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, 100000);
    step(&spec, "shuffle", "buffer_size", 50000);
    step(&spec, "batch", "batch_size", 1000);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct stg_block *block;
    uint64_t most = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        uint64_t used = stg_quota_used(dataset->quota);
        most = used > most ? used : most;
        stg_block_unref(block);
    }
    CHECK(most > 50000 * 64 && stg_quota_used(dataset->quota) < most / 4);
    stg_dataset_destroy(dataset);
}

/* ---- threads ---- */

#define QUEUE 8

/* Blocks on their way from the pulling thread to the threads that use them. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stg_block *blocks[QUEUE];
    uint64_t first, next;
    bool done;
    uint64_t n_rows, sum;
};

static void use_block(struct queue *queue, struct stg_block *block)
{
    uint64_t sum = 0;
    const struct stg_tensor *tensor = &block->tensors[0];
    const char *data = tensor->data;
    for (int64_t i = 0; i < tensor->shape[0]; i++) {
        uint64_t value = 0;
        for (int64_t k = tensor->begin[i]; k < tensor->end[i]; k++)
            value = value * 10 + (uint64_t)(data[k] - '0');
        sum += value;
    }
    pthread_mutex_lock(&queue->lock);
    queue->n_rows += (uint64_t)block->n_rows;
    queue->sum += sum;
    pthread_mutex_unlock(&queue->lock);
    stg_block_unref(block);
}

static void *consumer(void *owner)
{
    struct queue *queue = owner;
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        while (queue->first == queue->next && !queue->done)
            pthread_cond_wait(&queue->changed, &queue->lock);
        struct stg_block *block = NULL;
        if (queue->first < queue->next)
            block = queue->blocks[queue->first++ % QUEUE];
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->lock);
        if (block == NULL)
            return NULL;
        use_block(queue, block);
    }
}

static void hand_over(struct queue *queue, struct stg_block *block)
{
    pthread_mutex_lock(&queue->lock);
    while (block != NULL && queue->next - queue->first == QUEUE)
        pthread_cond_wait(&queue->changed, &queue->lock);
    if (block != NULL)
        queue->blocks[queue->next++ % QUEUE] = block;
    else
        queue->done = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static void check_threads(bool shuffled)
{
    enum { N = 30000, EPOCHS = 3 };
    char *text = malloc(N * 8 + 1);
    for (int i = 0; i < N; i++)
        sprintf(text + i * 8, "%07d\n", i);
    const char *path = stg_test_file("a", text, N * 8);
    free(text);
    struct stg_test_spec spec = {0};
    stg_test_lines(&spec, path);
    stg_test_int(&spec, "buffer_size", 1000);
    if (shuffled)
        step(&spec, "shuffle", "buffer_size", 1000);
    step(&spec, "repeat", "count", EPOCHS);
    step(&spec, "batch", "batch_size", 100);
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    struct queue queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
                          .changed = PTHREAD_COND_INITIALIZER};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, consumer, &queue), 0);
    struct stg_block *block;
    while ((block = stg_test_next(dataset)) != NULL)
        hand_over(&queue, block);
    /* The last blocks outlive the dataset. */
    stg_dataset_destroy(dataset);
    hand_over(&queue, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(queue.n_rows, N * EPOCHS);
    CHECK_INT(queue.sum, (uint64_t)N * (N - 1) / 2 * EPOCHS);
}

static void blocks_are_used_and_given_back_by_any_thread(void)
{
    check_threads(false);
    check_threads(true);
}

static void *stop(void *owner)
{
    atomic_store((_Atomic int *)owner, 1);
    return NULL;
}

static void another_thread_may_stop_a_dataset(void)
{
    struct stg_test_spec spec = {0};
    stg_test_range(&spec, INT64_MAX);
    step(&spec, "shuffle", "buffer_size", 100);
    step(&spec, "batch", "batch_size", 10);
    _Atomic int stopped = 0;
    struct stg_dataset_env env = stg_test_env();
    env.stopped = &stopped;
    struct stg_dataset *dataset = stg_test_open(&spec, &env);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, stop, &stopped), 0);
    struct stg_block *block;
    struct stg_err err = {0};
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0)
        stg_block_unref(block);
    CHECK_INT(rc, -STAGER_CANCELLED);
    pthread_join(thread, NULL);
    stg_dataset_destroy(dataset);
}

static const struct stg_test tests[] = {
    TEST(any_allocation_may_fail),
    TEST(any_allocation_of_other_steps_may_fail),
    TEST(any_allocation_of_readers_may_fail),
    TEST(any_allocation_of_decompressing_may_fail),
    TEST(every_budget_is_kept),
    TEST(memory_does_not_grow_over_epochs),
    TEST(a_shuffle_that_is_over_has_given_its_records_memory_back),
    TEST(blocks_are_used_and_given_back_by_any_thread),
    TEST(another_thread_may_stop_a_dataset),
};

TEST_MAIN(tests)
