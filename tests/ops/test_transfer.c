/* SPDX-License-Identifier: Apache-2.0
 *
 * Features that cross the boundary at half their width.
 */
#include <string.h>

#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

/* Like `transfer_dtypes: {ids: int32, x: bfloat16}` in a file. */
static const struct stg_value int32_value = {
    .kind = STG_VALUE_STRING, .s = "int32", .s_bytes = 5};
static const struct stg_value bfloat16_value = {
    .kind = STG_VALUE_STRING, .s = "bfloat16", .s_bytes = 8};
static const struct stg_attr transfers[] = {
    {.name = "ids", .n_values = 1, .values = &int32_value, .line = 7},
    {.name = "x", .n_values = 1, .values = &bfloat16_value, .line = 7},
};

#define TEXT                                                                             \
    "element x float32 [-1]\n"                                                           \
    "element i int64 [-1]\n"                                                             \
    "feature ids = i\n"                                                                  \
    "feature x = x\n"                                                                    \
    "twice = add(staged:x, staged:x)\n"                                                  \
    "target twice\ntarget staged:ids\ntarget staged:x\n"

struct sides {
    struct fixture fx;
    struct stg_graph *graph, *client;
    struct stg_run *stage, *compute;
    struct stg_bump bump;
};

static int sides_make(struct sides *sides, struct stg_err *err)
{
    int rc =
        stg_graph_create(&sides->fx.spec, &sides->fx.element, NULL, &sides->graph, err);
    if (rc == 0)
        rc = stg_graph_create(&sides->fx.spec, NULL, stg_graph_boundary(sides->graph),
                              &sides->client, err);
    if (rc == 0)
        rc = stg_run_create_stage(sides->graph, &sides->stage, err);
    return rc < 0
               ? rc
               : stg_run_create_compute(sides->client, NULL, sides->fx.spec.targets,
                                        sides->fx.spec.n_targets, &sides->compute, err);
}

static void sides_clear(struct sides *sides)
{
    stg_run_destroy(sides->compute);
    stg_run_destroy(sides->stage);
    stg_graph_destroy(sides->client);
    stg_graph_destroy(sides->graph);
    sides->compute = sides->stage = NULL;
    sides->client = sides->graph = NULL;
}

static void sides_init(struct sides *sides, const char *text,
                       const struct stg_attr *attrs, size_t n)
{
    struct stg_err err = {0};
    *sides = (struct sides){0};
    CHECK_OK(fixture_parse(&sides->fx, text, &err), err);
    sides->fx.spec.staged.transfers = attrs;
    sides->fx.spec.staged.n_transfers = n;
}

static void sides_finish(struct sides *sides)
{
    sides_clear(sides);
    fixture_finish(&sides->fx);
    stg_bump_finish(&sides->bump);
}

static void make_feeds(struct sides *sides, int64_t last_id, struct stg_tensor *ret)
{
    int64_t n = 3;
    ret[0] = fixture_dense(&sides->bump, STAGER_FLOAT32, 1, &n,
                           (float[]){1.5f, -2, 0x1.018p0f});
    ret[1] =
        fixture_dense(&sides->bump, STAGER_INT64, 1, &n, (int64_t[]){-1, 7, last_id});
}

static void what_crosses_is_narrow_and_what_is_read_is_wide(void)
{
    struct sides sides;
    struct stg_err err = {0};
    sides_init(&sides, TEXT, transfers, 2);
    CHECK_OK(sides_make(&sides, &err), err);
    const struct stg_schema *boundary = stg_graph_boundary(sides.graph);
    CHECK_INT(boundary->components[0].dtype, STAGER_INT32);
    CHECK_INT(boundary->components[1].dtype, STAGER_BFLOAT16);
    CHECK_STR(boundary->components[0].name, "ids");

    struct stg_tensor feeds[2], staged[2], out[3];
    make_feeds(&sides, INT32_MAX, feeds);
    CHECK_OK(stg_run_exec(sides.stage, feeds, NULL, NULL, staged, &err), err);
    CHECK_INT(staged[0].data_bytes, 12);
    CHECK_INT(staged[1].data_bytes, 6);
    CHECK(((const int32_t *)staged[0].data)[2] == INT32_MAX);
    /* 1.0 + 3 / 512 lies between two numbers of 8 bits; the nearer is 1.0 + 1 / 128. */
    CHECK(((const uint16_t *)staged[1].data)[2] == 0x3f81);

    CHECK_OK(stg_run_exec(sides.compute, staged, NULL, NULL, out, &err), err);
    const float *twice = out[0].data, *x = out[2].data;
    const int64_t *ids = out[1].data;
    CHECK(out[0].dtype == STAGER_FLOAT32 && out[1].dtype == STAGER_INT64);
    CHECK(twice[0] == 3 && twice[1] == -4 && twice[2] == 2 + 2.0f / 128);
    CHECK(x[2] == 1 + 1.0f / 128);
    CHECK(ids[0] == -1 && ids[1] == 7 && ids[2] == INT32_MAX);
    sides_finish(&sides);
}

static void an_integer_that_does_not_fit_is_an_error_of_its_row(void)
{
    struct sides sides;
    struct stg_err err = {0};
    struct stg_tensor feeds[2], staged[2];
    sides_init(&sides, TEXT, transfers, 2);
    CHECK_OK(sides_make(&sides, &err), err);
    make_feeds(&sides, INT64_C(1) << 31, feeds);
    CHECK_INT(stg_run_exec(sides.stage, feeds, NULL, NULL, staged, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "node transfer.ids (narrow): element 2 does not fit int32");
    CHECK_INT(err.row, 2);
    sides_finish(&sides);
}

static void a_tensor_staged_twice_crosses_each_time_in_its_own_dtype(void)
{
    struct sides sides;
    struct stg_err err = {0};
    sides_init(&sides,
               "element x float32 [-1]\nelement i int64 [-1]\n"
               "feature ids = i\nfeature wide = i\n"
               "y = add(staged:ids, staged:wide)\ntarget y\n",
               transfers, 1);
    CHECK_OK(sides_make(&sides, &err), err);
    struct stg_tensor feeds[2], staged[2], out;
    make_feeds(&sides, 9, feeds);
    CHECK_OK(stg_run_exec(sides.stage, feeds, NULL, NULL, staged, &err), err);
    CHECK(staged[0].dtype == STAGER_INT32 && staged[1].dtype == STAGER_INT64);
    CHECK_OK(stg_run_exec(sides.compute, staged, NULL, NULL, &out, &err), err);
    CHECK(((const int64_t *)out.data)[2] == 18);
    sides_finish(&sides);
}

static void without_features_components_may_be_narrow_too(void)
{
    struct sides sides;
    struct stg_err err = {0};
    sides_init(&sides, "element ids int64 [-1]\ny = identity(staged:ids)\ntarget y\n",
               transfers, 1);
    CHECK_OK(sides_make(&sides, &err), err);
    CHECK_INT(stg_graph_boundary(sides.graph)->components[0].dtype, STAGER_INT32);
    CHECK_INT(stg_graph_passthrough(sides.graph, 0), -1);
    sides_finish(&sides);
}

static const struct {
    const char *name, *dtype, *error;
} wrong[] = {
    {"idz", "int32",
     "staged.transfer_dtypes.idz, line 7: \"staged:idz\": unknown feature; did you mean "
     "\"staged:ids\"?"},
    {"ids", "int64",
     "staged.transfer_dtypes.ids, line 7: \"int64\" is not a dtype to transfer"},
    {"ids", "string", "\"string\" is not a dtype to transfer"},
    {"ids", "int16",
     "node transfer.ids (narrow), line 7: input \"i\" is int64, which cannot be narrowed "
     "to int16"},
    {"x", "int32", "which cannot be narrowed to int32"},
};

static void mistakes_are_found_when_the_graph_is_made(void)
{
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct sides sides;
        struct stg_err err = {0};
        struct stg_value value = {.kind = STG_VALUE_STRING,
                                  .s = wrong[i].dtype,
                                  .s_bytes = strlen(wrong[i].dtype)};
        struct stg_attr attr = {
            .name = wrong[i].name, .n_values = 1, .values = &value, .line = 7};
        sides_init(&sides, TEXT, &attr, 1);
        CHECK_INT(sides_make(&sides, &err), -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, wrong[i].error);
        sides_finish(&sides);
    }
}

static void what_is_fed_for_a_narrow_tensor_is_wide(void)
{
    struct sides sides;
    struct stg_err err = {0};
    sides_init(&sides, TEXT, transfers, 2);
    CHECK_OK(sides_make(&sides, &err), err);
    struct stg_component x = {
        .name = "staged:x", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}};
    struct stg_schema fed = {.components = &x, .n = 1};
    struct stg_graph *graph = NULL;
    struct stg_run *run = NULL;
    const char *fetch = "twice";
    CHECK_OK(stg_graph_create_fed(&sides.fx.spec, stg_graph_boundary(sides.graph), &fed,
                                  0, &graph, &err),
             err);
    CHECK_OK(stg_run_create_compute(graph, NULL, &fetch, 1, &run, &err), err);
    CHECK(!stg_run_needs(run, 0) && !stg_run_needs(run, 1));
    int64_t one = 1;
    struct stg_tensor nothing[2] = {0}, out,
                      value = fixture_dense(&sides.bump, STAGER_FLOAT32, 1, &one,
                                            (float[]){0.1f});
    stg_run_feed(run, (const struct stg_tensor *const[]){&value});
    CHECK_OK(stg_run_exec(run, nothing, NULL, NULL, &out, &err), err);
    CHECK(*(const float *)out.data == 0.2f);
    stg_run_destroy(run);
    stg_graph_destroy(graph);
    sides_finish(&sides);
}

static int attempt(void *owner)
{
    struct stg_err err = {0};
    int rc = sides_make(owner, &err);
    sides_clear(owner);
    return rc;
}

static void without_memory_nothing_leaks(void)
{
    struct sides sides;
    sides_init(&sides, TEXT, transfers, 2);
    stg_failalloc_each(attempt, &sides);
    sides_finish(&sides);
}

static const struct stg_test tests[] = {
    TEST(what_crosses_is_narrow_and_what_is_read_is_wide),
    TEST(an_integer_that_does_not_fit_is_an_error_of_its_row),
    TEST(a_tensor_staged_twice_crosses_each_time_in_its_own_dtype),
    TEST(without_features_components_may_be_narrow_too),
    TEST(mistakes_are_found_when_the_graph_is_made),
    TEST(what_is_fed_for_a_narrow_tensor_is_wide),
    TEST(without_memory_nothing_leaks),
};
TEST_MAIN(tests)
