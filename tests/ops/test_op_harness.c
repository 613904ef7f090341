/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of every op, tested over the rows of op_rows.c. A single row gives the same
 * result as among others, and an error names it. No rows give no rows. Inputs of other
 * types and shapes are accepted, or refused with the node's name. A failed allocation at
 * any point does no harm. A thousand runs take no more memory than a few. test_split.c
 * tests ops on many threads over the same rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/graph/priv.h"
#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/op_rows.h"

#define ROWS_AN_OP 40 /* of its golden tables, evenly spaced */

struct scene {
    const struct op_case *c;
    struct stg_bump bump;
    struct stg_tensor feeds[OP_CASE_TENSORS];
    size_t n, n_outputs;
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    struct stg_tensor outputs[OP_CASE_TENSORS];
    struct stg_err err;
    int rc; /* of the graph, otherwise of its last run */
};

/* Like the scene's case, with its current feeds. */
static void scene_open(struct scene *scene)
{
    scene->err = (struct stg_err){.row = -1};
    scene->rc = op_case_graph(scene->c, scene->feeds, scene->n, scene->n_outputs,
                              &scene->fx, &scene->graph, &scene->err);
    if (scene->rc == 0)
        scene->rc = stg_run_create_stage(scene->graph, &scene->run, &scene->err);
}

static void scene_run(struct scene *scene, const struct stg_tensor *feeds)
{
    scene->err = (struct stg_err){.row = -1};
    scene->rc = stg_run_exec(scene->run, feeds, NULL, NULL, scene->outputs, &scene->err);
}

static void scene_close(struct scene *scene)
{
    stg_run_destroy(scene->run);
    stg_graph_destroy(scene->graph);
    fixture_finish(&scene->fx);
    scene->run = NULL;
    scene->graph = NULL;
}

typedef void op_check(struct scene *scene);

static void check_row(op_check *check, const struct op_case *c)
{
    static struct scene scene;
    memset(&scene, 0, sizeof(scene));
    scene.c = c;
    scene.n = op_case_inputs(c, &scene.bump, scene.feeds, &scene.n_outputs);
    check(&scene);
    stg_bump_finish(&scene.bump);
}

/* At most this many rows of each op. */
static void over_rows(op_check *check, size_t most)
{
    size_t n_ops;
    const struct stg_op *const *ops = stg_op_all(&n_ops);
    for (size_t i = 0; i < n_ops; i++) {
        size_t n = 0, at = 0;
        for (size_t k = 0; k < n_op_rows; k++)
            n += strcmp(op_rows[k].op, ops[i]->name) == 0;
        size_t stride = n / most + 1;
        for (size_t k = 0; k < n_op_rows; k++) {
            if (strcmp(op_rows[k].op, ops[i]->name) == 0 && at++ % stride == 0)
                check_row(check, &op_rows[k]);
        }
    }
}

static const struct stg_op *op_of(const struct scene *scene)
{
    return stg_op_find(scene->c->op);
}

#define SCENE_FAIL(scene, fmt, ...)                                                      \
    FAIL("%s(%s) %s: " fmt, (scene)->c->op, (scene)->c->inputs, (scene)->c->attrs,       \
         __VA_ARGS__)

static void every_op_has_a_row(void)
{
    size_t n_ops;
    const struct stg_op *const *ops = stg_op_all(&n_ops);
    for (size_t i = 0; i < n_ops; i++) {
        size_t n = 0;
        for (size_t k = 0; k < n_op_rows; k++)
            n += strcmp(op_rows[k].op, ops[i]->name) == 0;
        if (n == 0)
            FAIL("%s has no row in op_rows.c", ops[i]->name);
    }
    for (size_t k = 0; k < n_op_rows; k++) {
        if (stg_op_find(op_rows[k].op) == NULL)
            FAIL("a row is for %s, which is no op", op_rows[k].op);
    }
}

/* ---- tensors ---- */

static size_t row_elements(const struct stg_tensor *tensor)
{
    size_t n = 1;
    for (int d = 1; d < tensor->ndim; d++)
        n *= (size_t)tensor->shape[d];
    return n;
}

/* A view of rows [from, from + n). */
static struct stg_tensor rows_of(const struct stg_tensor *tensor, int64_t from, int64_t n)
{
    struct stg_tensor ret = *tensor;
    size_t elements = row_elements(tensor), first = (size_t)from * elements;
    CHECK(tensor->ndim > 0 && from + n <= tensor->shape[0]);
    ret.shape[0] = n;
    if (tensor->dtype == STAGER_STRING) {
        ret.begin += first;
        ret.end += first;
        return ret;
    }
    unsigned bytes = stg_dtype_bytes(tensor->dtype);
    ret.data = (char *)tensor->data + first * bytes;
    ret.data_bytes = (uint64_t)n * elements * bytes;
    return ret;
}

static bool same(const struct stg_tensor *a, const struct stg_tensor *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim ||
        memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) != 0)
        return false;
    if (a->dtype != STAGER_STRING)
        return memcmp(a->data, b->data,
                      (size_t)stg_tensor_n(a) * stg_dtype_bytes(a->dtype)) == 0;
    for (int64_t i = 0; i < stg_tensor_n(a); i++) {
        int64_t n = a->end[i] - a->begin[i];
        if (n != b->end[i] - b->begin[i] ||
            memcmp((const char *)a->data + a->begin[i],
                   (const char *)b->data + b->begin[i], (size_t)n) != 0)
            return false;
    }
    return true;
}

/* ---- rows ---- */

static bool is_sliced(uint64_t mask, size_t input)
{
    return (mask & UINT64_C(1) << (input < 63 ? input : 63)) != 0;
}

/* Returns the op's rows() for the input rows that are sliced; 0: it is not split by rows.
 */
static uint64_t partition_mask(const struct scene *scene, int64_t *ret_rows)
{
    const struct stg_op *op = op_of(scene);
    if (scene->run == NULL || op->rows == NULL)
        return 0;
    const struct stg_op_run ctx = {.plan = scene->graph->nodes[0].plan,
                                   .inputs = scene->feeds,
                                   .n_inputs = scene->n};
    uint64_t mask = op->rows(&ctx);
    *ret_rows = -1;
    for (size_t k = 0; k < scene->n; k++) {
        if (!is_sliced(mask, k))
            continue;
        if (scene->feeds[k].ndim == 0)
            return 0;
        CHECK(*ret_rows < 0 || *ret_rows == scene->feeds[k].shape[0]);
        *ret_rows = scene->feeds[k].shape[0];
    }
    return *ret_rows < 0 ? 0 : mask;
}

static void run_rows(struct scene *scene, uint64_t mask, int64_t from, int64_t n)
{
    static struct stg_tensor feeds[OP_CASE_TENSORS];
    for (size_t k = 0; k < scene->n; k++)
        feeds[k] =
            is_sliced(mask, k) ? rows_of(&scene->feeds[k], from, n) : scene->feeds[k];
    scene_run(scene, feeds);
}

/* Row i alone, run by another executor, so that the results of the whole stay intact. */
static void check_alone(struct scene *alone, const struct scene *whole, uint64_t mask,
                        int64_t i)
{
    run_rows(alone, mask, i, 1);
    if (alone->rc < 0)
        SCENE_FAIL(whole, "row %lld alone: %s", (long long)i, alone->err.text);
    for (size_t k = 0; whole->rc == 0 && k < whole->n_outputs; k++) {
        struct stg_tensor want = rows_of(&whole->outputs[k], i, 1);
        if (!same(&alone->outputs[k], &want))
            SCENE_FAIL(whole, "row %lld alone gives another output %zu", (long long)i, k);
    }
}

/* The rows before the failing one are good, and it fails without those behind it too. */
static void check_blame(struct scene *part, const struct scene *whole, uint64_t mask)
{
    int64_t bad = whole->err.row;
    run_rows(part, mask, 0, bad);
    if (part->rc < 0)
        SCENE_FAIL(whole, "rows before %lld: %s", (long long)bad, part->err.text);
    run_rows(part, mask, 0, bad + 1);
    if (part->rc != whole->rc || part->err.row != bad ||
        strcmp(part->err.text, whole->err.text) != 0)
        SCENE_FAIL(whole, "up to row %lld: %d (\"%s\", row %lld)", (long long)bad,
                   part->rc, part->err.text, (long long)part->err.row);
}

static void check_single_rows(struct scene *whole)
{
    static struct scene alone;
    int64_t n_rows;
    scene_open(whole);
    uint64_t mask = partition_mask(whole, &n_rows);
    if (mask != 0) {
        alone = *whole;
        scene_open(&alone);
        scene_run(whole, whole->feeds);
        if (whole->rc < 0 && whole->err.row >= 0) {
            check_blame(&alone, whole, mask);
            n_rows = whole->err.row;
        }
        for (int64_t i = 0; (whole->rc == 0 || whole->err.row > 0) && i < n_rows; i++)
            check_alone(&alone, whole, mask, i);
        scene_close(&alone);
    }
    scene_close(whole);
}

static void a_row_alone_gives_what_it_gives_among_others(void)
{
    over_rows(check_single_rows, ROWS_AN_OP);
}

static void check_no_rows(struct scene *scene)
{
    int64_t n_rows;
    scene_open(scene);
    uint64_t mask = partition_mask(scene, &n_rows);
    if (mask != 0) {
        run_rows(scene, mask, 0, 0);
        if (scene->rc < 0)
            SCENE_FAIL(scene, "without rows: %s", scene->err.text);
        for (size_t k = 0; k < scene->n_outputs; k++)
            CHECK(scene->outputs[k].ndim > 0 && scene->outputs[k].shape[0] == 0);
    }
    scene_close(scene);
}

static void no_rows_give_no_rows(void)
{
    over_rows(check_no_rows, ROWS_AN_OP);
}

/* ---- unsuitable inputs ---- */

static struct stg_tensor zeros(struct stg_bump *bump, int dtype, int ndim,
                               const int64_t *shape)
{
    struct stg_tensor ret = {.dtype = dtype, .ndim = ndim};
    memcpy(ret.shape, shape, (size_t)ndim * sizeof(shape[0]));
    size_t n = (size_t)stg_tensor_n(&ret);
    ret.data_bytes = n * stg_dtype_bytes(dtype);
    ret.data = stg_bump_alloc(bump, ret.data_bytes + 1);
    CHECK(ret.data != NULL);
    if (dtype != STAGER_STRING)
        return ret;
    int64_t *offsets = stg_bump_alloc(bump, (n + 1) * sizeof(*offsets));
    CHECK(offsets != NULL);
    ret.data_bytes = 0;
    ret.begin = offsets;
    ret.end = offsets + 1;
    return ret;
}

/* Any feed gives outputs, or an error that names node and op. */
static bool refuses(struct scene *scene)
{
    scene_open(scene);
    if (scene->rc == 0)
        scene_run(scene, scene->feeds);
    bool refused = scene->rc < 0;
    if (refused && scene->rc != -STAGER_INVALID_ARGUMENT)
        SCENE_FAIL(scene, "refused as %d: %s", scene->rc, scene->err.text);
    if (refused)
        CHECK_CONTAINS(scene->err.text, scene->c->op);
    scene_close(scene);
    return refused;
}

static const int dtypes[] = {
    STAGER_FLOAT16, STAGER_BFLOAT16, STAGER_FLOAT32, STAGER_FLOAT64, STAGER_INT8,
    STAGER_INT16,   STAGER_INT32,    STAGER_INT64,   STAGER_UINT8,   STAGER_UINT16,
    STAGER_UINT32,  STAGER_UINT64,   STAGER_BOOL,    STAGER_STRING,
};

static void check_other_types(struct scene *scene)
{
    for (size_t k = 0; k < scene->n; k++) {
        struct stg_tensor own = scene->feeds[k];
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
            scene->feeds[k] = zeros(&scene->bump, dtypes[i], own.ndim, own.shape);
            refuses(scene);
        }
        scene->feeds[k] = own;
    }
}

static void inputs_of_any_type_are_taken_or_refused_by_name(void)
{
    over_rows(check_other_types, ROWS_AN_OP);
}

static void check_shape(struct scene *scene, size_t k, int ndim, const int64_t *shape)
{
    struct stg_tensor own = scene->feeds[k];
    scene->feeds[k] = zeros(&scene->bump, own.dtype, ndim, shape);
    refuses(scene);
    scene->feeds[k] = own;
}

static void check_other_shapes(struct scene *scene)
{
    for (size_t k = 0; k < scene->n; k++) {
        int64_t shape[STG_MAX_DIMS + 1] = {2};
        int ndim = scene->feeds[k].ndim;
        memcpy(shape + 1, scene->feeds[k].shape, (size_t)ndim * sizeof(shape[0]));
        check_shape(scene, k, 0, shape);
        check_shape(scene, k, 1, shape);
        if (ndim < STG_MAX_DIMS)
            check_shape(scene, k, ndim + 1, shape);
        for (int d = 0; d < ndim; d++) {
            shape[d + 1]++;
            check_shape(scene, k, ndim, shape + 1);
            shape[d + 1] = 0;
            check_shape(scene, k, ndim, shape + 1);
            shape[d + 1] = scene->feeds[k].shape[d];
        }
        if (ndim > 0)
            check_shape(scene, k, ndim - 1, shape + 2);
    }
}

static void inputs_of_any_shape_are_taken_or_refused_by_name(void)
{
    over_rows(check_other_shapes, ROWS_AN_OP);
}

static void check_count(struct scene *scene)
{
    const struct stg_op *op = op_of(scene);
    static const int64_t shape[] = {1};
    size_t n = scene->n;
    if (op->max_inputs >= 0) {
        for (size_t k = n; k <= (size_t)op->max_inputs; k++)
            scene->feeds[k] = zeros(&scene->bump, STAGER_INT32, 1, shape);
        scene->n = (size_t)op->max_inputs + 1;
        if (!refuses(scene))
            SCENE_FAIL(scene, "takes %zu inputs", scene->n);
        CHECK_CONTAINS(scene->err.text, "input");
    }
    if (op->min_inputs > 0) {
        scene->n = (size_t)op->min_inputs - 1;
        if (!refuses(scene))
            SCENE_FAIL(scene, "takes %zu inputs", scene->n);
        CHECK_CONTAINS(scene->err.text, "input");
    }
    scene->n = n;
}

static void an_input_too_many_or_too_few_is_refused(void)
{
    over_rows(check_count, 1);
}

/* ---- memory ---- */

static int attempt(void *owner)
{
    struct scene *scene = owner;
    scene->err = (struct stg_err){.row = -1};
    int rc = stg_graph_create(&scene->fx.spec, &scene->fx.element, NULL, &scene->graph,
                              &scene->err);
    if (rc == 0)
        rc = stg_run_create_stage(scene->graph, &scene->run, &scene->err);
    if (rc == 0)
        rc = stg_run_exec(scene->run, scene->feeds, NULL, NULL, scene->outputs,
                          &scene->err);
    stg_run_destroy(scene->run);
    stg_graph_destroy(scene->graph);
    scene->run = NULL;
    scene->graph = NULL;
    CHECK(rc == 0 || scene->err.text[0] != '\0');
    return rc;
}

/* A row that is refused even with enough memory does not count here. */
static int attempt_good(void *owner)
{
    int rc = attempt(owner);
    return rc == -STAGER_RESOURCE_EXHAUSTED ? rc : 0;
}

static void check_allocations(struct scene *scene)
{
    CHECK_OK(op_case_fixture(scene->c, scene->feeds, scene->n, scene->n_outputs,
                             &scene->fx, &scene->err),
             scene->err);
    if (attempt(scene) == 0)
        stg_failalloc_each(attempt_good, scene);
    fixture_finish(&scene->fx);
}

static void any_allocation_may_fail(void)
{
    over_rows(check_allocations, 3);
}

#define RUNS 1000
#define WARM 20

static void check_steady(struct scene *scene)
{
    static struct stg_tensor copies[OP_CASE_TENSORS];
    static struct scene other;
    scene_open(scene);
    if (scene->rc == 0) {
        other = *scene;
        scene_open(&other);
        scene_run(&other, other.feeds);
        memcpy(copies, other.outputs, sizeof(copies));
        for (int i = 0; i < RUNS; i++) {
            if (i == WARM)
                stg_failalloc_from(1);
            scene_run(scene, scene->feeds);
        }
        if (stg_failalloc_off() != 0 || scene->rc != other.rc)
            SCENE_FAIL(scene, "after %d runs: %d (%s)", RUNS, scene->rc, scene->err.text);
        for (size_t k = 0; scene->rc == 0 && k < scene->n_outputs; k++) {
            if (!same(&scene->outputs[k], &copies[k]))
                SCENE_FAIL(scene, "run %d gives another output %zu", RUNS, k);
        }
        scene_close(&other);
    }
    scene_close(scene);
}

static void a_thousand_runs_are_alike_and_take_no_more_memory(void)
{
    over_rows(check_steady, 3);
}

static const struct stg_test tests[] = {
    TEST(every_op_has_a_row),
    TEST_SLOW(a_row_alone_gives_what_it_gives_among_others, 60),
    TEST_SLOW(no_rows_give_no_rows, 60),
    TEST_SLOW(inputs_of_any_type_are_taken_or_refused_by_name, 60),
    TEST_SLOW(inputs_of_any_shape_are_taken_or_refused_by_name, 60),
    TEST(an_input_too_many_or_too_few_is_refused),
    TEST_SLOW(any_allocation_may_fail, 60),
    TEST_SLOW(a_thousand_runs_are_alike_and_take_no_more_memory, 60),
};
TEST_MAIN(tests)
