/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes that are computed once, values known before any batch, and the feeds of a run.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

/* ---- once ---- */

/* Outputs of one node are the same bytes at the same address. */
static void check_merged(const char *first, const char *second, bool want)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "element x float32 [-1]\nelement y float32 [-1]\n"
             "s = sleep(x)\n"
             "n = constant() value=1 weak=true\nm = constant() value=1 weak=true\n"
             "a = %s\nb = %s\nfeature a = a\nfeature b = b\n",
             first, second);
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, text);
    struct stg_tensor feeds[2], out[2];
    for (int i = 0; i < 2; i++)
        feeds[i] = fixture_dense(&stage.bump, STAGER_FLOAT32, 1, (int64_t[]){2},
                                 (float[]){1, 2});
    CHECK_OK(stg_run_exec(stage.run, feeds, NULL, NULL, out, &err), err);
    if ((out[0].data == out[1].data) != want)
        FAIL("%s and %s: %s", first, second, want ? "computed twice" : "taken for one");
    fixture_stage_finish(&stage);
}

static void nodes_that_are_written_alike_are_computed_once(void)
{
    check_merged("add(x, y)", "add(x, y)", true);
    check_merged("normalize(x) mean=1.0 std=2.0", "normalize(x) std=2.0 mean=1.0", true);
    check_merged("negative(x, ^s)", "negative(x, ^s)", true);
}

static void nodes_that_differ_are_not(void)
{
    check_merged("add(x, y)", "add(y, x)", false);
    check_merged("add(x, y)", "multiply(x, y)", false);
    check_merged("negative(x)", "negative(y)", false);
    check_merged("negative(x)", "negative(x, ^s)", false);
    check_merged("normalize(x) mean=1.0 std=2.0", "normalize(x) mean=1.5 std=2.0", false);
    check_merged("normalize(x) mean=0.0 std=2.0", "normalize(x) mean=-0.0 std=2.0",
                 false);
    check_merged("normalize(x) mean=1.0 std=2.0", "normalize(x) mean=1 std=2.0", false);
}

static void what_reads_equal_nodes_is_equal_too(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element x string [-1]\n"
                               "h1 = string_to_hash_bucket_fast(x) num_buckets=9\n"
                               "h2 = string_to_hash_bucket_fast(x) num_buckets=9\n"
                               "p1 = stack(h1, h2)\n"
                               "p2 = stack(h2, h1)\n"
                               "feature p1 = p1\n"
                               "feature p2 = p2\n");
    struct stg_tensor feed = fixture_strings(&stage.bump, 1, (const char *[]){"a"}),
                      out[2];
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, out, &err), err);
    CHECK(out[0].data == out[1].data);
    const int64_t *ids = out[0].data;
    CHECK(ids[0] == ids[1]);
    fixture_stage_finish(&stage);
}

static void outputs_of_nodes_whose_names_run_together_stay_apart(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element x float32 [12]\n"
                               "element y float32 [2]\n"
                               "Split_1 = split(x) num_or_size_splits=12\n"
                               "Split_11 = split(y) num_or_size_splits=2\n"
                               "feature a = Split_1:10\n"
                               "feature b = Split_11:0\n");
    struct stg_tensor feeds[2], out[2];
    feeds[0] = fixture_dense(
        &stage.bump, STAGER_FLOAT32, 1, (int64_t[]){12},
        (float[]){100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111});
    feeds[1] =
        fixture_dense(&stage.bump, STAGER_FLOAT32, 1, (int64_t[]){2}, (float[]){7, 8});
    CHECK_OK(stg_run_exec(stage.run, feeds, NULL, NULL, out, &err), err);
    CHECK(*(const float *)out[0].data == 110 && *(const float *)out[1].data == 7);
    fixture_stage_finish(&stage);
}

/* ---- weak constants ---- */

static void check_dtype(const char *text, const char *name, int dtype)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    struct stg_component c;
    fixture_stage_init(&stage, text);
    CHECK_OK(stg_graph_describe(stage.graph, name, &c, &err), err);
    if (c.dtype != dtype)
        FAIL("%s is %s, not %s in\n%s", name, stg_dtype_name(c.dtype),
             stg_dtype_name(dtype), text);
    fixture_stage_finish(&stage);
}

static void a_weak_number_has_the_dtype_of_the_tensor_beside_it(void)
{
    static const struct {
        int dtype;
        const char *name, *value;
    } cases[] = {
        {STAGER_FLOAT32, "float32", "0"},        {STAGER_FLOAT64, "float64", "0.5"},
        {STAGER_FLOAT16, "float16", "2"},        {STAGER_INT64, "int64", "-7"},
        {STAGER_UINT8, "uint8", "255"},          {STAGER_INT32, "int32", "1"},
        {STAGER_FLOAT32, "float32", "16777217"}, /* rounded, as by NumPy */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "element x %s [-1]\nn = constant() value=%s weak=true\n"
                 "m = constant() value=%s weak=true\nsum = add(n, x)\n"
                 "either = less(x, m)\nfeature s = sum\nfeature e = either\n",
                 cases[i].name, cases[i].value, cases[i].value);
        check_dtype(text, "n", cases[i].dtype);
        check_dtype(text, "sum", cases[i].dtype);
        check_dtype(text, "either", STAGER_BOOL);
    }
    check_dtype("element x float64 [-1]\nn = constant() value=0 weak=true\n"
                "c = less(x, x)\ny = where(c, x, n)\nfeature y = y\n",
                "y", STAGER_FLOAT64);
    check_dtype("element x float32 [-1]\nn = constant() value=[[0]] weak=true\n"
                "r = reshape(x) shape=[1, -1]\ny = concat(r, n) axis=1\nfeature y = y\n",
                "y", STAGER_FLOAT32);
    check_dtype("element c bool [-1]\none = constant() value=1 weak=true\n"
                "half = constant() value=0.5 weak=true\ny = where(c, one, half)\n"
                "feature y = y\n",
                "y", STAGER_FLOAT32);
    /* An index is no such number. */
    check_dtype("element x float32 [4]\nn = constant() value=3 weak=true\n"
                "y = gather(x, n)\nfeature y = y\n",
                "n", STAGER_INT32);
}

static void weak_numbers_that_are_written_alike_are_one(void)
{
    check_merged("add(x, n)", "add(x, m)", true);
}

static void check_refused(const char *text, const char *why)
{
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_err err = {0};
    CHECK_OK(fixture_parse(&fx, text, &err), err);
    CHECK_INT(stg_graph_create(&fx.spec, &fx.element, NULL, &graph, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, why);
    fixture_finish(&fx);
}

static void a_weak_number_that_does_not_fit_is_refused(void)
{
    static const struct {
        const char *dtype, *value, *why;
    } cases[] = {
        {"int64", "0.5",
         "0.5 does not fit int64, the dtype of \"x\" beside it; cast the tensor"},
        {"uint8", "300", "300 does not fit uint8"},
        {"uint8", "-1", "-1 does not fit uint8"},
        {"float16", "100000", "100000 does not fit float16"},
        {"float32", "1.0e300", "1e+300 does not fit float32"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "element x %s [-1]\nn = constant() value=%s weak=true\ny = add(x, n)\n"
                 "feature y = y\n",
                 cases[i].dtype, cases[i].value);
        check_refused(text, cases[i].why);
    }
    check_refused("element x float32 [-1]\nelement y float64 [-1]\n"
                  "n = constant() value=1 weak=true\na = add(x, n)\n"
                  "b = add(y, n)\nfeature a = a\nfeature b = b\n",
                  "constant \"n\" is weak, and has 2 readers; give it a dtype");
}

/* ---- known before ---- */

static void inference_knows_what_follows_from_constants(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "lengths = constant() value=[1, 2, 2]\n"
                               "more = add(lengths, lengths)\n"
                               "mask = sequence_mask(more)\n"
                               "feature x = x\n");
    struct stg_component c;
    char shape[64];
    CHECK_OK(stg_graph_describe(stage.graph, "mask", &c, &err), err);
    CHECK_STR(stg_shape_text(c.shape, c.ndim, shape, sizeof(shape)), "[3, 4]");
    fixture_stage_finish(&stage);
}

static void what_is_known_is_not_computed_again(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "words = constant() value=[\"a\", \"b\"]\n"
                               "upper = string_upper(words)\n"
                               "both = concat(upper, words)\n"
                               "feature both = both\n");
    struct stg_tensor feed = fixture_dense(&stage.bump, STAGER_FLOAT32, 1, (int64_t[]){1},
                                           (float[]){1}),
                      out[2];
    struct stg_run *other = NULL;
    CHECK_OK(stg_run_create_stage(stage.graph, &other, &err), err);
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, &out[0], &err), err);
    CHECK_OK(stg_run_exec(other, &feed, NULL, NULL, &out[1], &err), err);
    CHECK(out[0].data == out[1].data);
    CHECK_INT(out[0].data_bytes, 4);
    CHECK(memcmp(out[0].data, "ABab", 4) == 0);
    stg_run_destroy(other);
    fixture_stage_finish(&stage);
}

static void what_would_be_large_is_made_for_each_batch(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "large = constant() value=2.0 shape=[600, 600]\n"
                               "half = negative(large)\n"
                               "feature half = half\n");
    struct stg_tensor feed = fixture_dense(&stage.bump, STAGER_FLOAT32, 1, (int64_t[]){1},
                                           (float[]){1}),
                      out[2];
    struct stg_run *other = NULL;
    CHECK_OK(stg_run_create_stage(stage.graph, &other, &err), err);
    CHECK_OK(stg_run_exec(stage.run, &feed, NULL, NULL, &out[0], &err), err);
    CHECK_OK(stg_run_exec(other, &feed, NULL, NULL, &out[1], &err), err);
    CHECK(out[0].data != out[1].data);
    CHECK(((const float *)out[0].data)[359999] == -2);
    stg_run_destroy(other);
    fixture_stage_finish(&stage);
}

static void what_fails_on_constants_fails_when_it_is_needed(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "table = constant() value=[1, 2]\n"
                               "ids = constant() value=[5]\n"
                               "fails = embedding_lookup(table, ids)\n"
                               "feature x = x\n");
    fixture_stage_finish(&stage);
    fixture_stage_init(&stage, "element x float32 [-1]\n"
                               "table = constant() value=[1, 2]\n"
                               "ids = constant() value=[5]\n"
                               "fails = embedding_lookup(table, ids)\n"
                               "feature f = fails\n");
    struct stg_tensor feed = fixture_dense(&stage.bump, STAGER_FLOAT32, 1, (int64_t[]){1},
                                           (float[]){1}),
                      out;
    CHECK_INT(stg_run_exec(stage.run, &feed, NULL, NULL, &out, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "node fails (embedding_lookup): id 5");
    fixture_stage_finish(&stage);
}

/* ---- feeds ---- */

#define MODEL                                                                            \
    "element record string [-1]\n"                                                       \
    "columns = decode_csv(record) record_defaults=[0.5, \"\"]\n"                         \
    "rate = placeholder() dtype=\"float32\" shape=[]\n"                                  \
    "w = variable() shape=[2] initializer=3.0\n"                                         \
    "x = identity(staged:x)\n"                                                           \
    "scaled = multiply(x, rate)\n"                                                       \
    "half = multiply(columns:0, rate)\n"                                                 \
    "all = multiply(scaled, w)\n"                                                        \
    "feature x = columns:0\n"                                                            \
    "target scaled\n"

struct fed {
    struct fixture_stage stage;
    struct stg_graph *base, *graph;
    struct stg_resources *resources;
    struct stg_run *run;
};

static int fed_create(struct fed *fed, struct stg_component *components, size_t n,
                      const char *fetch, struct stg_err *err)
{
    struct stg_schema schema = {.components = components, .n = n};
    const struct stg_schema *boundary = stg_graph_boundary(fed->stage.graph);
    int rc =
        stg_graph_create_fed(&fed->stage.fx.spec, boundary, &schema, 0, &fed->graph, err);
    if (rc == 0)
        rc =
            stg_run_create_compute(fed->graph, fed->resources, &fetch, 1, &fed->run, err);
    return rc;
}

static void fed_init(struct fed *fed)
{
    struct stg_err err = {0};
    *fed = (struct fed){0};
    fixture_stage_init(&fed->stage, MODEL);
    CHECK_OK(stg_graph_create(&fed->stage.fx.spec, NULL,
                              stg_graph_boundary(fed->stage.graph), &fed->base, &err),
             err);
    CHECK_OK(stg_resources_create(fed->base, &fed->resources, &err), err);
}

static void fed_clear(struct fed *fed)
{
    stg_run_destroy(fed->run);
    stg_graph_destroy(fed->graph);
    fed->run = NULL;
    fed->graph = NULL;
}

static void fed_finish(struct fed *fed)
{
    fed_clear(fed);
    stg_resources_destroy(fed->resources);
    stg_graph_destroy(fed->base);
    fixture_stage_finish(&fed->stage);
}

static const float *fed_run(struct fed *fed, const struct stg_tensor *boundary,
                            const struct stg_tensor *const *values)
{
    static struct stg_tensor out;
    static const struct stg_tensor nothing;
    struct stg_err err = {0};
    stg_run_feed(fed->run, values);
    CHECK_OK(stg_run_exec(fed->run, boundary != NULL ? boundary : &nothing, NULL, NULL,
                          &out, &err),
             err);
    return out.data;
}

static struct stg_tensor floats(struct fed *fed, int ndim, int64_t n, float first)
{
    float values[2] = {first, first + 1};
    return fixture_dense(&fed->stage.bump, STAGER_FLOAT32, ndim, &n, values);
}

static void a_placeholder_has_the_value_of_the_run(void)
{
    struct fed fed;
    struct stg_err err = {0};
    fed_init(&fed);
    struct stg_component rate = {.name = "rate", .dtype = STAGER_FLOAT32};
    CHECK_OK(fed_create(&fed, &rate, 1, "all", &err), err);
    struct stg_tensor x = floats(&fed, 1, 2, 1), two = floats(&fed, 0, 1, 2),
                      five = floats(&fed, 0, 1, 5);
    CHECK(stg_run_needs(fed.run, 0));
    const float *got = fed_run(&fed, &x, (const struct stg_tensor *const[]){&two});
    CHECK(got[0] == 6 && got[1] == 12);
    got = fed_run(&fed, &x, (const struct stg_tensor *const[]){&five});
    CHECK(got[0] == 15 && got[1] == 30);
    fed_finish(&fed);
}

static void what_is_above_a_fed_tensor_is_not_missed(void)
{
    struct fed fed;
    struct stg_err err = {0};
    fed_init(&fed);
    struct stg_component components[] = {
        {.name = "columns:0", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
        {.name = "rate", .dtype = STAGER_FLOAT32}};
    CHECK_OK(fed_create(&fed, components, 2, "half", &err), err);
    CHECK(!stg_run_needs(fed.run, 0));
    struct stg_tensor x = floats(&fed, 1, 2, 1), rate = floats(&fed, 0, 1, 0.5f);
    const float *got = fed_run(&fed, NULL, (const struct stg_tensor *const[]){&x, &rate});
    CHECK(got[0] == 0.5f && got[1] == 1.0f);
    fed_clear(&fed);

    struct stg_component staged[] = {
        {.name = "staged:x", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
        {.name = "rate", .dtype = STAGER_FLOAT32}};
    CHECK_OK(fed_create(&fed, staged, 2, "scaled", &err), err);
    CHECK(!stg_run_needs(fed.run, 0));
    got = fed_run(&fed, NULL, (const struct stg_tensor *const[]){&x, &rate});
    CHECK(got[0] == 0.5f && got[1] == 1.0f);
    fed_finish(&fed);
}

static void the_element_itself_can_be_fed(void)
{
    struct fed fed;
    struct stg_err err = {0};
    fed_init(&fed);
    struct stg_component components[] = {
        {.name = "record", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
        {.name = "rate", .dtype = STAGER_FLOAT32}};
    CHECK_OK(fed_create(&fed, components, 2, "half", &err), err);
    struct stg_tensor rate = floats(&fed, 0, 1, 2);
    struct stg_tensor record =
        fixture_strings(&fed.stage.bump, 2, (const char *[]){"1.5,a", ",b"});
    const float *got =
        fed_run(&fed, NULL, (const struct stg_tensor *const[]){&record, &rate});
    CHECK(got[0] == 3.0f && got[1] == 1.0f);
    fed_finish(&fed);
}

static void a_fetch_may_be_fed(void)
{
    struct fed fed;
    struct stg_err err = {0};
    fed_init(&fed);
    struct stg_component x = {
        .name = "x", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}};
    CHECK_OK(fed_create(&fed, &x, 1, "x:0", &err), err);
    struct stg_tensor value = floats(&fed, 1, 2, 4);
    const float *got = fed_run(&fed, NULL, (const struct stg_tensor *const[]){&value});
    CHECK(got == value.data);
    fed_finish(&fed);
}

static const struct {
    const char *names[2];
    const char *fetch;
    int code;
    const char *error;
} refused[] = {
    {{"rat"}, "all", STAGER_NOT_FOUND, "feed \"rat\": \"rat\": unknown node"},
    {{"w"}, "all", STAGER_INVALID_ARGUMENT, "feed \"w\": a variable cannot be fed"},
    {{"x", "x:0"}, "all", STAGER_INVALID_ARGUMENT, "feed \"x:0\": it is fed twice"},
    {{"record", "record"}, "half", STAGER_INVALID_ARGUMENT, "it is fed twice"},
    {{"x"}, "scaled", STAGER_FAILED_PRECONDITION, "placeholder rate is needed"},
    {{"rate"},
     "half",
     STAGER_FAILED_PRECONDITION,
     "\"half\" is computed before the boundary"},
};

static void a_feed_that_cannot_be_is_refused(void)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct fed fed;
        struct stg_err err = {0};
        fed_init(&fed);
        struct stg_component components[2];
        size_t n = refused[i].names[1] != NULL ? 2 : 1;
        for (size_t k = 0; k < n; k++)
            components[k] = (struct stg_component){.name = refused[i].names[k],
                                                   .dtype = STAGER_FLOAT32,
                                                   .ndim = refused[i].names[k][0] != 'r',
                                                   .shape = {-1}};
        CHECK_INT(fed_create(&fed, components, n, refused[i].fetch, &err),
                  -refused[i].code);
        CHECK_CONTAINS(err.text, refused[i].error);
        fed_finish(&fed);
    }
}

static void a_value_of_another_kind_is_refused(void)
{
    struct fed fed;
    struct stg_err err = {0};
    fed_init(&fed);
    struct stg_component rate = {.name = "rate", .dtype = STAGER_FLOAT32};
    CHECK_OK(fed_create(&fed, &rate, 1, "scaled", &err), err);
    struct stg_tensor x = floats(&fed, 1, 2, 1), out;
    stg_run_feed(fed.run, (const struct stg_tensor *const[]){&x});
    CHECK_INT(stg_run_exec(fed.run, &x, NULL, NULL, &out, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "feed \"rate\" is float32 [2], not float32 []");
    fed_finish(&fed);
}

static int attempt(void *owner)
{
    struct fed *fed = owner;
    struct stg_err err = {0};
    struct stg_component components[] = {
        {.name = "record", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
        {.name = "rate", .dtype = STAGER_FLOAT32}};
    int rc = fed_create(fed, components, 2, "half", &err);
    fed_clear(fed);
    return rc;
}

static void without_memory_nothing_is_fed_and_nothing_leaks(void)
{
    struct fed fed;
    fed_init(&fed);
    stg_failalloc_each(attempt, &fed);
    fed_finish(&fed);
}

static const struct stg_test tests[] = {
    TEST(nodes_that_are_written_alike_are_computed_once),
    TEST(nodes_that_differ_are_not),
    TEST(what_reads_equal_nodes_is_equal_too),
    TEST(outputs_of_nodes_whose_names_run_together_stay_apart),
    TEST(a_weak_number_has_the_dtype_of_the_tensor_beside_it),
    TEST(weak_numbers_that_are_written_alike_are_one),
    TEST(a_weak_number_that_does_not_fit_is_refused),
    TEST(inference_knows_what_follows_from_constants),
    TEST(what_is_known_is_not_computed_again),
    TEST(what_would_be_large_is_made_for_each_batch),
    TEST(what_fails_on_constants_fails_when_it_is_needed),
    TEST(a_placeholder_has_the_value_of_the_run),
    TEST(what_is_above_a_fed_tensor_is_not_missed),
    TEST(the_element_itself_can_be_fed),
    TEST(a_fetch_may_be_fed),
    TEST(a_feed_that_cannot_be_is_refused),
    TEST(a_value_of_another_kind_is_refused),
    TEST(without_memory_nothing_is_fed_and_nothing_leaks),
};
TEST_MAIN(tests)
