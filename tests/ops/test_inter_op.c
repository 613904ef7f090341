/* SPDX-License-Identifier: Apache-2.0
 *
 * Concurrent nodes: any number of threads and any order allowed by the inputs give the
 * bytes and errors of sequential execution.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/parts.h"
#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

#define MAX_THREADS 7

/* ---- threads ---- */

struct threads {
    struct stg_parts parts;
    pthread_t helpers[MAX_THREADS];
    uint32_t n;
};

static void *help(void *parts)
{
    stg_parts_help(parts);
    return NULL;
}

static const struct stg_parallel *threads_start(struct threads *threads, uint32_t n)
{
    stg_parts_init(&threads->parts, n);
    threads->n = n - 1;
    for (uint32_t i = 0; i < threads->n; i++)
        CHECK_INT(pthread_create(&threads->helpers[i], NULL, help, &threads->parts), 0);
    return &threads->parts.parallel;
}

static void threads_stop(struct threads *threads)
{
    stg_parts_stop(&threads->parts);
    for (uint32_t i = 0; i < threads->n; i++)
        pthread_join(threads->helpers[i], NULL);
    stg_parts_finish(&threads->parts);
}

/* One thread runs all parts, the last one first. */
static void in_turn(void *owner, uint32_t n, void (*part)(void *arg, uint32_t i),
                    void *arg)
{
    while (n > 0)
        part(arg, --n);
}

static const struct stg_parallel one_by_one = {
    .n_threads = 3, .part_bytes = UINT64_MAX, .run = in_turn};

/* ---- graphs ---- */

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

/* Nodes with one or two inputs, views, and strings; some wait for one more node. */
static size_t write_node(char *to, size_t size, uint64_t *seed, uint64_t i)
{
    static const char *const pairs[] = {"add", "multiply", "maximum", "subtract"};
    static const char *const ones[] = {"abs", "negative", "relu", "identity"};
    char wait[32] = "";
    uint64_t a = draw(seed, i), b = draw(seed, i), kind = draw(seed, 8);
    if (draw(seed, 4) == 0)
        snprintf(wait, sizeof(wait), ", ^n%d", (int)draw(seed, i));
    if (kind == 7)
        return (size_t)snprintf(to, size,
                                "s%d = as_string(n%d%s)\n"
                                "n%d = string_to_number(s%d)\n",
                                (int)i, (int)a, wait, (int)i, (int)i);
    if (kind == 6)
        return (size_t)snprintf(to, size, "n%d = reshape(n%d%s) shape=[-1]\n", (int)i,
                                (int)a, wait);
    if (kind > 3)
        return (size_t)snprintf(to, size, "n%d = %s(n%d%s)\n", (int)i,
                                ones[draw(seed, 4)], (int)a, wait);
    return (size_t)snprintf(to, size, "n%d = %s(n%d, n%d%s)\n", (int)i, pairs[kind],
                            (int)a, (int)b, wait);
}

static void write_graph(char *to, size_t size, uint64_t seed)
{
    uint64_t n = 3 + draw(&seed, 20);
    size_t at = (size_t)snprintf(to, size,
                                 "element x float32 [-1]\n"
                                 "n0 = negative(x)\nn1 = abs(x)\n");
    for (uint64_t i = 2; i < n; i++)
        at += write_node(to + at, size - at, &seed, i);
    for (uint64_t i = 0; i < n; i++) {
        if (i + 2 >= n || draw(&seed, 4) == 0)
            at += (size_t)snprintf(to + at, size - at, "feature f%d = n%d\n", (int)i,
                                   (int)i);
    }
    CHECK(at < size);
}

static struct stg_tensor numbers(struct stg_bump *bump, int64_t n)
{
    float *x = stg_bump_alloc(bump, (size_t)n * sizeof(float));
    CHECK(x != NULL);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((i * 7919 + n) % 97) / 8 - 5;
    return fixture_dense(bump, STAGER_FLOAT32, 1, &n, x);
}

static void check_same(const struct fixture_stage *stage, struct stg_run *run,
                       const struct stg_tensor *x)
{
    struct stg_tensor want[32], got[32];
    struct stg_err err = {0};
    CHECK_OK(stg_run_exec(stage->run, x, NULL, NULL, want, &err), err);
    CHECK_OK(stg_run_exec(run, x, NULL, NULL, got, &err), err);
    for (size_t i = 0; i < stg_graph_boundary(stage->graph)->n; i++) {
        CHECK_INT(got[i].shape[0], want[i].shape[0]);
        CHECK_INT(got[i].data_bytes, want[i].data_bytes);
        CHECK_INT(memcmp(got[i].data, want[i].data, want[i].data_bytes), 0);
    }
}

static struct stg_run *run_of(const struct fixture_stage *stage,
                              const struct stg_parallel *parallel)
{
    struct stg_run *run;
    struct stg_err err = {0};
    CHECK_OK(stg_run_create_stage(stage->graph, &run, &err), err);
    CHECK_OK(stg_run_inter_op(run, parallel, &err), err);
    return run;
}

static void check_graph(uint64_t seed, const struct stg_parallel *const *parallel,
                        size_t n)
{
    struct fixture_stage stage;
    char text[4096];
    write_graph(text, sizeof(text), seed);
    fixture_stage_init(&stage, text);
    for (size_t i = 0; i < n; i++) {
        struct stg_run *run = run_of(&stage, parallel[i]);
        for (int64_t rows = 40; rows > 0; rows = rows * 2 / 3) {
            struct stg_tensor x = numbers(&stage.bump, rows);
            check_same(&stage, run, &x);
        }
        stg_run_destroy(run);
    }
    fixture_stage_finish(&stage);
}

static void random_graphs_give_the_same_bytes_on_any_number_of_threads(void)
{
    struct threads threads[4];
    const struct stg_parallel *parallel[5] = {
        threads_start(&threads[0], 1), threads_start(&threads[1], 2),
        threads_start(&threads[2], 3), threads_start(&threads[3], 7), &one_by_one};
    for (uint64_t seed = 1; seed <= 300; seed++)
        check_graph(seed, parallel, 5);
    for (int i = 0; i < 4; i++)
        threads_stop(&threads[i]);
}

/* ---- errors ---- */

#define SLOW_FAILS                                                                       \
    "element record string [-1]\n"                                                       \
    "late = sleep(record) sleep_microseconds=20000\n"                                    \
    "first = string_to_number(late)\n"                                                   \
    "second = string_to_number(record) out_type=\"float64\"\n"                           \
    "feature a = first\nfeature b = second\n"

static void of_two_failing_nodes_the_first_in_order_is_reported(void)
{
    struct fixture_stage stage;
    struct threads threads;
    struct stg_err want = {0}, got = {0};
    fixture_stage_init(&stage, SLOW_FAILS);
    struct stg_run *run = run_of(&stage, threads_start(&threads, 2));
    struct stg_tensor bad = fixture_strings(&stage.bump, 2, (const char *[]){"1", "x"});
    struct stg_tensor good = fixture_strings(&stage.bump, 2, (const char *[]){"1", "2"});
    for (int i = 0; i < 3; i++) {
        CHECK_INT(stg_run_exec(stage.run, &bad, NULL, NULL, NULL, &want),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_INT(stg_run_exec(run, &bad, NULL, NULL, NULL, &got),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_STR(got.text, want.text);
        CHECK_CONTAINS(got.text, "node first");
        CHECK_INT(got.row, want.row);
        CHECK_INT(stg_run_exec(run, &bad, NULL, NULL, NULL, NULL),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_OK(stg_run_exec(run, &good, NULL, NULL, NULL, &got), got);
    }
    stg_run_destroy(run);
    threads_stop(&threads);
    fixture_stage_finish(&stage);
}

/* ---- memory ---- */

struct making {
    struct fixture_stage stage;
    struct stg_tensor x;
};

static int make(void *owner)
{
    const struct making *making = owner;
    struct stg_run *run;
    struct stg_err err = {0};
    int rc = stg_run_create_stage(making->stage.graph, &run, &err);
    if (rc < 0)
        return rc;
    rc = stg_run_inter_op(run, &one_by_one, &err);
    if (rc == 0)
        rc = stg_run_exec(run, &making->x, NULL, NULL, NULL, &err);
    stg_run_destroy(run);
    return rc;
}

static void any_allocation_may_fail(void)
{
    struct making making;
    char text[4096];
    write_graph(text, sizeof(text), 11);
    fixture_stage_init(&making.stage, text);
    making.x = numbers(&making.stage.bump, 40);
    CHECK(stg_failalloc_each(make, &making) > 3);
    fixture_stage_finish(&making.stage);
}

static void a_steady_state_allocates_nothing(void)
{
    struct making making;
    char text[4096];
    struct stg_err err = {0};
    write_graph(text, sizeof(text), 12);
    fixture_stage_init(&making.stage, text);
    making.x = numbers(&making.stage.bump, 40);
    struct stg_run *run = run_of(&making.stage, &one_by_one);
    for (int i = 0; i < 10; i++) /* memory that is reused in place circulates */
        CHECK_OK(stg_run_exec(run, &making.x, NULL, NULL, NULL, &err), err);
    stg_failalloc_from(1);
    for (int i = 0; i < 10; i++)
        CHECK_OK(stg_run_exec(run, &making.x, NULL, NULL, NULL, &err), err);
    CHECK_INT(stg_failalloc_off(), 0);
    stg_run_destroy(run);
    fixture_stage_finish(&making.stage);
}

static const struct stg_test tests[] = {
    TEST(random_graphs_give_the_same_bytes_on_any_number_of_threads),
    TEST(of_two_failing_nodes_the_first_in_order_is_reported),
    TEST(any_allocation_may_fail),
    TEST(a_steady_state_allocates_nothing),
};

TEST_MAIN(tests)
