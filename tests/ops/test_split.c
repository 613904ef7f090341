/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops on many threads. Each op that splits by rows, with the inputs of its golden tables
 * repeated to many rows, gives the bytes and errors of an unsplit run.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/op_rows.h"

#define N(table) (sizeof(table) / sizeof((table)[0]))
#define MAX_THREADS 7

/* ---- threads ---- */

struct pool {
    struct stg_parallel parallel;
    unsigned n_runs; /* runs with many parts */
};

struct call {
    void (*part)(void *arg, uint32_t i);
    void *arg;
    uint32_t n;
    atomic_uint next;
};

static void *work(void *arg)
{
    struct call *call = arg;
    for (uint32_t i; (i = atomic_fetch_add(&call->next, 1)) < call->n;)
        call->part(call->arg, i);
    return NULL;
}

static void run_parts(void *owner, uint32_t n, void (*part)(void *arg, uint32_t i),
                      void *arg)
{
    struct pool *pool = owner;
    struct call call = {.part = part, .arg = arg, .n = n};
    pthread_t threads[MAX_THREADS];
    uint32_t n_threads = pool->parallel.n_threads - 1;
    CHECK(n > 1);
    pool->n_runs++;
    for (uint32_t i = 0; i < n_threads; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &call) == 0);
    work(&call);
    for (uint32_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
}

/* The smallest parts. */
static void pool_init(struct pool *pool, uint32_t n_threads)
{
    *pool = (struct pool){
        .parallel = {
            .owner = pool, .n_threads = n_threads, .part_bytes = 1, .run = run_parts}};
}

/* ---- comparison ---- */

static bool same_tensor(const struct stg_tensor *a, const struct stg_tensor *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim ||
        memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) != 0 ||
        a->data_bytes != b->data_bytes)
        return false;
    size_t n = (size_t)stg_tensor_n(a);
    return memcmp(a->data, b->data, a->data_bytes) == 0 &&
           (a->dtype != STAGER_STRING ||
            memcmp(a->begin, b->begin, (n + 1) * sizeof(a->begin[0])) == 0);
}

struct outcome {
    struct stg_run *run;
    struct stg_tensor outputs[OP_CASE_TENSORS];
    struct stg_err err;
    int rc;
};

static void run_graph(const struct stg_graph *graph, const struct stg_tensor *feeds,
                      const struct stg_parallel *parallel, struct outcome *ret)
{
    ret->err = (struct stg_err){.row = -1};
    CHECK_OK(stg_run_create_stage(graph, &ret->run, &ret->err), ret->err);
    if (parallel != NULL)
        CHECK_OK(stg_run_parallel(ret->run, parallel, &ret->err), ret->err);
    ret->rc = stg_run_exec(ret->run, feeds, NULL, NULL, ret->outputs, &ret->err);
}

static void check_outcome(const struct op_case *c, uint32_t n_threads, size_t n_outputs,
                          const struct outcome *got, const struct outcome *want)
{
    if (got->rc != want->rc || got->err.row != want->err.row ||
        strcmp(got->err.text, want->err.text) != 0)
        FAIL("%s(%s) %s with %u threads: %d, \"%s\" in row %lld, whole %d, \"%s\" in row "
             "%lld",
             c->op, c->inputs, c->attrs, n_threads, got->rc, got->err.text,
             (long long)got->err.row, want->rc, want->err.text, (long long)want->err.row);
    for (size_t i = 0; got->rc == 0 && i < n_outputs; i++) {
        if (!same_tensor(&got->outputs[i], &want->outputs[i]))
            FAIL("%s(%s) %s with %u threads: output %zu differs", c->op, c->inputs,
                 c->attrs, n_threads, i);
    }
}

/* Returns the number of runs with many parts. */
static unsigned compare(const struct op_case *c, const struct stg_tensor *feeds, size_t n,
                        size_t n_outputs)
{
    static const uint32_t threads[] = {1, 2, 3, MAX_THREADS};
    static struct outcome want, got;
    struct fixture fx;
    struct stg_graph *graph = NULL;
    unsigned n_runs = 0;
    if (op_case_graph(c, feeds, n, n_outputs, &fx, &graph, NULL) == 0) {
        run_graph(graph, feeds, NULL, &want);
        for (size_t i = 0; i < N(threads); i++) {
            struct pool pool;
            pool_init(&pool, threads[i]);
            run_graph(graph, feeds, &pool.parallel, &got);
            check_outcome(c, threads[i], n_outputs, &got, &want);
            stg_run_destroy(got.run);
            n_runs += pool.n_runs;
        }
        stg_run_destroy(want.run);
    }
    stg_graph_destroy(graph);
    fixture_finish(&fx);
    return n_runs;
}

/* ---- many rows from few ---- */

#define N_COPIES 30

/* N_COPIES copies of the tensor, one after another. */
static struct stg_tensor repeat(struct stg_bump *bump, const struct stg_tensor *tensor)
{
    struct stg_tensor ret = *tensor;
    size_t n = (size_t)stg_tensor_n(tensor);
    if (tensor->ndim == 0)
        return ret;
    ret.shape[0] *= N_COPIES;
    ret.data_bytes *= N_COPIES;
    char *data = ret.data = stg_bump_alloc(bump, ret.data_bytes + 1);
    CHECK(data != NULL);
    for (size_t i = 0; i < N_COPIES; i++)
        memcpy(data + i * tensor->data_bytes, tensor->data, tensor->data_bytes);
    if (tensor->dtype != STAGER_STRING)
        return ret;
    int64_t *offsets = stg_bump_alloc(bump, (n * N_COPIES + 1) * sizeof(*offsets));
    CHECK(offsets != NULL);
    for (size_t i = 0; i < n * N_COPIES; i++)
        offsets[i + 1] =
            tensor->end[i % n] + (int64_t)(i / n) * (int64_t)tensor->data_bytes;
    ret.begin = offsets;
    ret.end = offsets + 1;
    return ret;
}

/* As it is, then with the rows repeated of all inputs, of the first alone, and of the
 * second. Inputs that do not match give an error, which must be the same too. */
static unsigned check_case(const struct op_case *c)
{
    static struct stg_tensor feeds[OP_CASE_TENSORS], many[OP_CASE_TENSORS];
    struct stg_bump bump = {0};
    size_t n_outputs, n = op_case_inputs(c, &bump, feeds, &n_outputs);
    unsigned n_runs = compare(c, feeds, n, n_outputs);
    for (size_t which = 0; which < (n > 1 ? 3 : 1); which++) {
        for (size_t k = 0; k < n; k++)
            many[k] = which == 0 || k == which - 1 ? repeat(&bump, &feeds[k]) : feeds[k];
        n_runs += compare(c, many, n, n_outputs);
    }
    stg_bump_finish(&bump);
    return n_runs;
}

static void parts_of_rows_give_what_the_whole_gives(void)
{
    size_t n_ops;
    const struct stg_op *const *ops = stg_op_all(&n_ops);
    for (size_t i = 0; i < n_ops; i++) {
        unsigned n_runs = 0;
        for (size_t k = 0; k < n_op_rows; k++) {
            if (strcmp(op_rows[k].op, ops[i]->name) == 0)
                n_runs += check_case(&op_rows[k]);
        }
        if ((ops[i]->rows != NULL) != (n_runs > 0))
            FAIL("%s was run in parts %u times", ops[i]->name, n_runs);
    }
}

/* ---- places where a run is split ---- */

#define COLUMNS                                                                          \
    "element record string [-1]\n"                                                       \
    "columns = decode_csv(record) record_defaults=[0, 0.0, \"\", \"\"]\n"                \
    "ids = string_to_hash_bucket_fast(columns:3) num_buckets=1000\n"                     \
    "feature label = columns:0\n"                                                        \
    "feature number = columns:1\n"                                                       \
    "feature text = columns:2\n"                                                         \
    "feature ids = ids\n"

struct scene {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_bump bump;
    struct stg_tensor records;
};

static void scene_init(struct scene *scene, size_t n_rows)
{
    struct stg_err err = {0};
    *scene = (struct scene){0};
    CHECK_OK(fixture_parse(&scene->fx, COLUMNS, &err), err);
    CHECK_OK(
        stg_graph_create(&scene->fx.spec, &scene->fx.element, NULL, &scene->graph, &err),
        err);
    const char **rows = calloc(n_rows, sizeof(*rows));
    CHECK(rows != NULL);
    for (size_t i = 0; i < n_rows; i++) {
        char text[64];
        int n =
            snprintf(text, sizeof(text),
                     i % 7 == 0 ? "%zu,%zu.5,\"t\"\"%zu\",c%zu" : "%zu,%zu.25,t%zu,c%zu",
                     i, i, i, i);
        rows[i] = stg_bump_strndup(&scene->bump, text, (size_t)n);
    }
    scene->records = fixture_strings(&scene->bump, n_rows, rows);
    free(rows);
}

static void scene_finish(struct scene *scene)
{
    stg_graph_destroy(scene->graph);
    stg_bump_finish(&scene->bump);
    fixture_finish(&scene->fx);
}

static void few_bytes_stay_whole(void)
{
    struct scene scene;
    struct outcome outcome;
    struct pool pool;
    scene_init(&scene, 100);
    pool_init(&pool, 2);
    pool.parallel.part_bytes = scene.records.data_bytes / 2 + 100 * 8 + 1;
    run_graph(scene.graph, &scene.records, &pool.parallel, &outcome);
    CHECK_OK(outcome.rc, outcome.err);
    CHECK_INT(pool.n_runs, 0);
    stg_run_destroy(outcome.run);
    pool.parallel.part_bytes--;
    run_graph(scene.graph, &scene.records, &pool.parallel, &outcome);
    CHECK_OK(outcome.rc, outcome.err);
    CHECK_INT(pool.n_runs, 2); /* the strings of one column are copied */
    stg_run_destroy(outcome.run);
    scene_finish(&scene);
}

/* A byte that is no digit, in the label of the row. */
static void spoil(struct scene *scene, size_t row)
{
    ((char *)scene->records.data)[scene->records.begin[row]] = 'x';
}

static void of_two_bad_rows_the_first_is_blamed(void)
{
    struct scene scene;
    struct outcome outcome;
    scene_init(&scene, 1000);
    spoil(&scene, 900);
    spoil(&scene, 333);
    for (uint32_t n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        struct pool pool;
        pool_init(&pool, n_threads);
        run_graph(scene.graph, &scene.records, &pool.parallel, &outcome);
        CHECK_INT(outcome.rc, -STAGER_INVALID_ARGUMENT);
        CHECK_STR(outcome.err.text,
                  "node columns (decode_csv): field 0: \"x33\" is not a valid int32");
        CHECK_INT(outcome.err.row, 333);
        stg_run_destroy(outcome.run);
    }
    scene_finish(&scene);
}

static void a_good_batch_follows_a_bad_one(void)
{
    struct scene good, bad;
    struct outcome want, got;
    struct pool pool;
    scene_init(&good, 500);
    scene_init(&bad, 500);
    spoil(&bad, 0);
    pool_init(&pool, 3);
    run_graph(good.graph, &good.records, NULL, &want);
    run_graph(good.graph, &bad.records, &pool.parallel, &got);
    CHECK_INT(got.rc, -STAGER_INVALID_ARGUMENT);
    got.err = (struct stg_err){.row = -1};
    got.rc = stg_run_exec(got.run, &good.records, NULL, NULL, got.outputs, &got.err);
    CHECK_OK(got.rc, got.err);
    for (size_t i = 0; i < 4; i++)
        CHECK(same_tensor(&got.outputs[i], &want.outputs[i]));
    stg_run_destroy(got.run);
    stg_run_destroy(want.run);
    scene_finish(&bad);
    scene_finish(&good);
}

/* ---- a batch at rest ---- */

#define EXTENT_BYTES (1u << 20)

static int writer_alloc(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                        uint64_t string_bytes, struct stg_tensor *ret,
                        struct stg_err *err)
{
    return stg_batch_writer_alloc(owner, (uint32_t)i, dtype, ndim, shape, string_bytes,
                                  ret, err);
}

static int writer_copy(void *owner, size_t i, const struct stg_tensor *tensor,
                       struct stg_err *err)
{
    return stg_batch_writer_copy(owner, (uint32_t)i, tensor, err);
}

static uint64_t write_batch(const struct scene *scene,
                            const struct stg_parallel *parallel, uint64_t capacity,
                            char *ret, struct outcome *outcome)
{
    struct stg_batch_writer writer;
    struct stg_sink sink = {.owner = &writer, .alloc = writer_alloc, .copy = writer_copy};
    outcome->err = (struct stg_err){.row = -1};
    memset(ret, 0, EXTENT_BYTES);
    CHECK_OK(stg_run_create_stage(scene->graph, &outcome->run, &outcome->err),
             outcome->err);
    if (parallel != NULL)
        CHECK_OK(stg_run_parallel(outcome->run, parallel, &outcome->err), outcome->err);
    CHECK_OK(stg_batch_writer_begin(&writer, ret, capacity,
                                    stg_graph_boundary(scene->graph), &outcome->err),
             outcome->err);
    outcome->rc =
        stg_run_exec(outcome->run, &scene->records, NULL, &sink, NULL, &outcome->err);
    uint64_t bytes = outcome->rc == 0 ? stg_batch_writer_seal(&writer) : 0;
    stg_run_destroy(outcome->run);
    return bytes;
}

static void a_batch_at_rest_is_the_same_and_so_is_one_that_is_too_large(void)
{
    struct scene scene;
    struct outcome want, got;
    char *whole = aligned_alloc(64, EXTENT_BYTES),
         *parts = aligned_alloc(64, EXTENT_BYTES);
    CHECK(whole != NULL && parts != NULL);
    scene_init(&scene, 2000);
    uint64_t bytes = write_batch(&scene, NULL, EXTENT_BYTES, whole, &want);
    CHECK_OK(want.rc, want.err);
    struct pool pool;
    pool_init(&pool, 3);
    CHECK_INT(write_batch(&scene, &pool.parallel, EXTENT_BYTES, parts, &got), bytes);
    CHECK_OK(got.rc, got.err);
    CHECK(memcmp(whole, parts, bytes) == 0);
    for (uint64_t capacity = 4096; capacity < bytes; capacity += bytes / 16) {
        write_batch(&scene, NULL, capacity, whole, &want);
        write_batch(&scene, &pool.parallel, capacity, parts, &got);
        CHECK_INT(want.rc, -STAGER_RESOURCE_EXHAUSTED);
        CHECK_INT(got.rc, want.rc);
        CHECK_STR(got.err.text, want.err.text);
    }
    scene_finish(&scene);
    free(parts);
    free(whole);
}

/* ---- memory ---- */

static void run_in_turn(void *owner, uint32_t n, void (*part)(void *arg, uint32_t i),
                        void *arg)
{
    for (uint32_t i = n; i-- > 0;)
        part(arg, i);
}

static const struct stg_parallel in_turn = {
    .n_threads = 2, .part_bytes = 1, .run = run_in_turn};

static void a_steady_state_allocates_nothing(void)
{
    struct scene scene;
    struct outcome outcome;
    scene_init(&scene, 300);
    run_graph(scene.graph, &scene.records, &in_turn, &outcome);
    CHECK_OK(outcome.rc, outcome.err);
    for (int i = 0; i < 40; i++) {
        if (i == 20)
            stg_failalloc_from(1);
        CHECK_OK(stg_run_exec(outcome.run, &scene.records, NULL, NULL, outcome.outputs,
                              &outcome.err),
                 outcome.err);
    }
    CHECK_INT(stg_failalloc_off(), 0);
    stg_run_destroy(outcome.run);
    scene_finish(&scene);
}

/* A split run may lack memory where an unsplit run has enough: both results are good. */
static void a_failed_allocation_is_an_error_or_the_right_bytes(void)
{
    struct scene scene;
    struct outcome want;
    scene_init(&scene, 300);
    run_graph(scene.graph, &scene.records, NULL, &want);
    for (uint64_t n = 1, failed = 1; failed != 0; n++) {
        struct outcome got = {.err = {.row = -1}};
        stg_failalloc_once(n);
        got.rc = stg_run_create_stage(scene.graph, &got.run, &got.err);
        if (got.rc == 0)
            got.rc = stg_run_parallel(got.run, &in_turn, &got.err);
        if (got.rc == 0)
            got.rc =
                stg_run_exec(got.run, &scene.records, NULL, NULL, got.outputs, &got.err);
        failed = stg_failalloc_off();
        CHECK(got.rc == 0 || (failed != 0 && got.rc == -STAGER_RESOURCE_EXHAUSTED));
        for (size_t i = 0; got.rc == 0 && i < 4; i++)
            CHECK(same_tensor(&got.outputs[i], &want.outputs[i]));
        stg_run_destroy(got.run);
    }
    stg_run_destroy(want.run);
    scene_finish(&scene);
}

static const struct stg_test tests[] = {
    TEST_SLOW(parts_of_rows_give_what_the_whole_gives, 60),
    TEST(few_bytes_stay_whole),
    TEST(of_two_bad_rows_the_first_is_blamed),
    TEST(a_good_batch_follows_a_bad_one),
    TEST(a_batch_at_rest_is_the_same_and_so_is_one_that_is_too_large),
    TEST(a_steady_state_allocates_nothing),
    TEST(a_failed_allocation_is_an_error_or_the_right_bytes),
};
TEST_MAIN(tests)
