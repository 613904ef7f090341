/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

/* Every graph below starts with these two lines. */
#define ELEMENT "element record string [-1]\nelement key string [-1]\n"

static int create(const char *text, struct fixture *fx, struct stg_graph **ret,
                  struct stg_err *err)
{
    int rc = fixture_parse(fx, text, err);
    return rc < 0 ? rc : stg_graph_create(&fx->spec, &fx->element, NULL, ret, err);
}

static const struct {
    const char *text;
    const char *error;
} wrong[] = {
    {"y = identiti(record)\n",
     "node y (identiti), line 3: unknown op; did you mean identity?"},
    {"y = zzzzzzzzzzzzz(record)\n", "unknown op; docs/ops.md lists"},
    {"y = identity(recrod)\n", "node y (identity), line 3: \"recrod\": unknown node or "
                               "component; did you mean \"record\"?"},
    {"y = identity(qqqqqqqqqq)\n",
     "\"qqqqqqqqqq\": unknown node or component; the dataset yields record, key"},
    {"v = constant() value=1 dtype=\"int64\"\nw = constant() value=1\ny = add(v, w)\n",
     "cast one, or give a constant the other's dtype"},
    {"y = identity(record, key)\n", "takes 1 input, not 2"},
    {"y = maximum(record)\n", "takes 2 inputs, not 1"},
    {"y = cast(record) dtype=\"int32\" dtipe=\"int64\"\n", "dtipe"},
    {"y = cast(record)\n", "dtype"},
    {"y = cast(record) dtype=3\n", "dtype"},
    {"y = cast(record) dtype=\"int32\"\n", "string cannot be cast to int32"},
    {"y = identity(record)\ny = identity(key)\n",
     "node y (identity), line 4: another node on line 3 has the same name"},
    {"record = identity(key)\n",
     "node record (identity), line 3: the dataset yields a component of the same name"},
    {"staged = identity(key)\n", "\"staged\" is not a valid name of a node"},
    {"a:1 = identity(key)\n", "\"a:1\" is not a valid name of a node"},
    {"y = decode_csv(record) record_defaults=[0]\nz = identity(y:1)\n",
     "node z (identity), line 4: input \"y:1\": node y has 1 output"},
    {"a = identity(c)\nb = identity(a)\nc = identity(b)\nd = identity(c)\n",
     "these nodes form a cycle: "},
    {"a = identity(a)\n", "line 3: these nodes form a cycle: a <- a"},
    {"a = identity(b)\nb = identity(record, ^a)\n", "cycle"},
    {"a = identity(record, ^b)\n", "\"^b\": unknown node"},
    {"v = variable() shape=[2]\nfeature f = v\n",
     "staged.features.f, line 4: \"v\" depends on a variable"},
    {"v = variable() shape=[2]\ny = identity(record, ^v)\nfeature f = y\n",
     "depends on a variable"},
    {"feature r = record\ny = identity(staged:r)\nfeature f = y\n",
     "staged.features.f, line 5: \"y\" depends on a \"staged:\" tensor"},
    {"feature r = record\nfeature f = staged:r\n", "depends on a \"staged:\" tensor"},
    {"feature r = record\nfeature r = key\n", "another feature has the same name"},
    {"feature r = recorrd\n", "staged.features.r, line 3: \"recorrd\": unknown node"},
    {"y = decode_csv(record) record_defaults=[0]\nfeature r = y:7\n",
     "\"y:7\": node y has 1 output"},
    {"feature ids = record\ny = identity(staged:idz)\n",
     "\"staged:idz\": unknown feature; did you mean \"staged:ids\"?"},
    {"feature ids = record\nfeature label = key\ny = identity(staged:nope)\n",
     "\"staged:nope\": unknown feature; in staged.features there are ids, label"},
    {"feature r = record\ny = identity(key)\ntarget y\n",
     "target y: \"y\" is computed before the boundary and is not staged; add it to "
     "staged.features"},
    {"feature r = record\ntarget r\n", "target r: \"r\": unknown node"},
    {"feature r = record\ny = identity(record)\ntarget record\n",
     "target record: \"record\" is computed before the boundary; it is staged, refer to "
     "it as \"staged:r\""},
    {"y = string_to_hash_bucket_fast(record) num_buckets=5\nfeature r = record\n"
     "v = variable() shape=[5]\nz = embedding_lookup(v, y)\ntarget z\n",
     "target z: \"y\" is computed before the boundary and is not staged"},
    {"y = constant() value=[1, \"a\"]\n", "values of different types"},
    {"y = constant() value=[1, 2] shape=[3]\n",
     "2 values cannot fill the 3 elements of the shape"},
    {"y = constant() value=300 dtype=\"int8\"\n", "value: 300 does not fit int8"},
    {"y = constant() value=1.5 dtype=\"int8\"\n",
     "value: this literal is not a valid int8"},
    {"y = constant() value=null\n", "value holds a null"},
    {"y = constant()\n", "value"},
    {"y = variable() shape=[2] initializer=\"random\"\n",
     "random_normal or npy, not \"random\""},
    {"y = variable() shape=[2] dtype=\"string\"\n", "a variable cannot be string"},
    {"y = variable() shape=[2] dtype=\"int32\" initializer=0.5\n",
     "initializer: this literal is not a valid int32"},
    {"y = variable() shape=[-2]\n", "shape"},
    {"y = variable()\n", "shape"},
    {"y = stack(record, w)\nw = constant() value=[1]\n", "cast one"},
    {"a = constant() value=[1, 2]\nb = constant() value=[1, 2, 3]\ny = stack(a, b)\n",
     "input \"b\" has 3 in dimension 0, others have 2"},
    {"a = constant() value=[[1, 2]]\nb = constant() value=[[1, 2, 3]]\ny = concat(a, "
     "b)\n",
     "input \"b\" has 3 in dimension 1, others have 2"},
    {"a = constant() value=[1, 2]\nb = constant() value=[1, 2, 3]\ny = maximum(a, b)\n",
     "shapes [2] and [3] do not broadcast"},
};

static void mistakes_are_found_when_the_graph_is_made(void)
{
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[1024] = ELEMENT;
        strcat(text, wrong[i].text);
        struct stg_err err = {0};
        struct fixture fx;
        struct stg_graph *graph = NULL;
        int rc = create(text, &fx, &graph, &err);
        if (rc == 0)
            FAIL("was not refused: %s", wrong[i].text);
        CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
        CHECK_INT(err.code, -STAGER_INVALID_ARGUMENT);
        CHECK(graph == NULL);
        CHECK_CONTAINS(err.text, wrong[i].error);
        fixture_finish(&fx);
    }
}

static void a_cycle_names_its_nodes_and_no_others(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    struct stg_graph *graph = NULL;
    CHECK(create(ELEMENT "tail = identity(b)\na = identity(c)\nb = identity(a)\n"
                         "c = identity(b)\n",
                 &fx, &graph, &err) < 0);
    CHECK_CONTAINS(err.text, "a <- ");
    CHECK_CONTAINS(err.text, "b <- ");
    CHECK_CONTAINS(err.text, "c <- ");
    CHECK(strstr(err.text, "tail") == NULL);
    fixture_finish(&fx);
}

/* ---- shapes ---- */

static const struct {
    const char *tensor;
    int dtype;
    const char *shape;
} inferred[] = {
    {"record", STAGER_STRING, "[?]"},
    {"columns:0", STAGER_INT32, "[?]"},
    {"columns", STAGER_INT32, "[?]"},
    {"columns:2", STAGER_STRING, "[?]"},
    {"ids", STAGER_INT64, "[?]"},
    {"pair", STAGER_INT64, "[?, 2]"},
    {"fixed", STAGER_INT64, "[3]"},
    {"mixed", STAGER_INT64, "[3, 3]"},
    {"longer", STAGER_INT64, "[?]"},
    {"grid", STAGER_FLOAT32, "[4, 2, 5]"},
    {"wide", STAGER_FLOAT32, "[?, 2, 16]"},
    {"text", STAGER_STRING, "[?, 2, 16]"},
    {"staged:pair", STAGER_INT64, "[?, 2]"},
};

static const char shapes_text[] =
    ELEMENT "columns = decode_csv(record) record_defaults=[0, 0.5, \"\"]\n"
            "ids = string_to_hash_bucket_fast(columns:2) num_buckets=9\n"
            "pair = stack(ids, ids) axis=1\n"
            "fixed = constant() value=[1, 2, 3] dtype=\"int64\"\n"
            "mixed = stack(ids, fixed, ids)\n"
            "longer = concat(ids, fixed)\n"
            "tall = constant() value=0.5 shape=[4, 1, 5]\n"
            "flat = constant() value=0.5 shape=[2, 1]\n"
            "grid = maximum(tall, flat)\n"
            "table = variable() shape=[9, 16]\n"
            "wide = embedding_lookup(table, staged:pair)\n"
            "text = as_string(wide)\n"
            "feature pair = pair\n"
            "feature grid = grid\n"
            "target text\n";

static void dtypes_and_shapes_are_inferred(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    struct stg_graph *graph = NULL;
    CHECK_OK(create(shapes_text, &fx, &graph, &err), err);
    for (size_t i = 0; i < sizeof(inferred) / sizeof(inferred[0]); i++) {
        struct stg_component c;
        char shape[128];
        CHECK_OK(stg_graph_describe(graph, inferred[i].tensor, &c, &err), err);
        CHECK_STR(stg_dtype_name(c.dtype), stg_dtype_name(inferred[i].dtype));
        CHECK_STR(stg_shape_text(c.shape, c.ndim, shape, sizeof(shape)),
                  inferred[i].shape);
    }
    struct stg_component c;
    CHECK_INT(stg_graph_describe(graph, "pairs", &c, &err), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "did you mean \"pair\"?");
    CHECK_INT(stg_graph_describe(graph, "columns:3", &c, &err), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "node columns has 3 outputs");
    CHECK_INT(stg_graph_batch_bytes(graph), 0);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

static void the_boundary_is_the_features_in_their_order(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    struct stg_graph *graph = NULL;
    CHECK_OK(create(shapes_text, &fx, &graph, &err), err);
    const struct stg_schema *boundary = stg_graph_boundary(graph);
    CHECK_INT(boundary->n, 2);
    CHECK_STR(boundary->components[0].name, "pair");
    CHECK_STR(boundary->components[1].name, "grid");
    CHECK_INT(stg_graph_passthrough(graph, 0), -1);
    CHECK_INT(stg_graph_passthrough(graph, 2), -1);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

static void without_features_the_element_is_staged_as_it_is(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    struct stg_graph *graph = NULL;
    CHECK_OK(create(ELEMENT "y = identity(staged:key)\ntarget y\n", &fx, &graph, &err),
             err);
    CHECK_INT(stg_graph_boundary(graph)->n, 2);
    CHECK_STR(stg_graph_boundary(graph)->components[1].name, "key");
    CHECK_INT(stg_graph_passthrough(graph, 1), 1);

    struct stg_graph *client = NULL;
    CHECK_OK(stg_graph_create(&fx.spec, NULL, stg_graph_boundary(graph), &client, &err),
             err);
    struct stg_component c;
    CHECK_OK(stg_graph_describe(client, "y", &c, &err), err);
    CHECK_INT(c.dtype, STAGER_STRING);
    stg_graph_destroy(client);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

static void a_static_boundary_has_a_size(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    struct stg_graph *graph = NULL;
    CHECK_OK(
        create("element x float32 [100]\nelement y int64 [3, 5]\n", &fx, &graph, &err),
        err);
    /* Header 256, two entries of 128, names "x" and "y" with their NULs: 516 -> 576;
     * 400 -> 448; 120 -> 128. */
    CHECK_INT(stg_graph_batch_bytes(graph), 576 + 448 + 128);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

/* ---- the client's side ---- */

/* An unknown op, an attribute, a dtype, and a reader of an output by a name that only the
 * op defines. The other nodes work. A client that needs an affected node gets an error
 * that names the cause. */
static void a_client_of_an_older_build_leaves_out_what_it_does_not_know(void)
{
    static const char *const names[] = {"op", "named", "attribute", "dtype"};
    struct fixture fx;
    struct stg_graph *client = NULL;
    struct stg_run *run = NULL;
    struct stg_err err = {0};
    CHECK_OK(fixture_parse(&fx,
                           "element n int64 [-1]\n"
                           "op = op_of_tomorrow(staged:n)\n"
                           "named = identity(op:label)\n"
                           "numbered = identity(op:1)\n"
                           "attribute = identity(staged:n) of_tomorrow=1\n"
                           "dtype = tanh(staged:n)\n"
                           "after = identity(dtype)\n"
                           "works = add(staged:n, staged:n)\n"
                           "feature n = n\ntarget works\n",
                           &err),
             err);
    struct stg_component n = {.name = "n", .dtype = STAGER_INT64, .ndim = 1};
    n.shape[0] = -1;
    const struct stg_schema boundary = {&n, 1};
    CHECK_OK(stg_graph_create(&fx.spec, NULL, &boundary, &client, &err), err);
    const char *left_out[7];
    CHECK_INT(stg_graph_left_out(client, left_out), 4);
    for (int i = 0; i < 4; i++)
        CHECK_STR(left_out[i], names[i]);
    const char *fetch = "works";
    CHECK_OK(stg_run_create_compute(client, NULL, &fetch, 1, &run, &err), err);
    stg_run_destroy(run);
    fetch = "numbered";
    CHECK_INT(stg_run_create_compute(client, NULL, &fetch, 1, &run, &err),
              -STAGER_UNIMPLEMENTED);
    CHECK_CONTAINS(err.text, "node op (op_of_tomorrow), line 2: this build of "
                             "libstager-compute has no such op");
    fetch = "after";
    CHECK_INT(stg_run_create_compute(client, NULL, &fetch, 1, &run, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "node dtype (tanh), line 6");
    stg_graph_destroy(client);
    fixture_finish(&fx);
}

static void a_client_infers_what_follows_the_boundary(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    struct stg_graph *graph = NULL, *client = NULL;
    CHECK_OK(create(shapes_text, &fx, &graph, &err), err);
    CHECK_OK(stg_graph_create(&fx.spec, NULL, stg_graph_boundary(graph), &client, &err),
             err);
    struct stg_component c;
    CHECK_OK(stg_graph_describe(client, "text", &c, &err), err);
    CHECK_INT(c.ndim, 3);
    CHECK_INT(stg_graph_describe(client, "ids", &c, &err), -STAGER_FAILED_PRECONDITION);

    struct stg_run *run = NULL;
    const char *fetch = "ids";
    CHECK_INT(stg_run_create_compute(client, NULL, &fetch, 1, &run, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "fetch \"ids\": \"ids\" is computed before the boundary");
    fetch = "wide";
    CHECK_INT(stg_run_create_compute(client, NULL, &fetch, 1, &run, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "variable table is needed");
    fetch = "wides";
    CHECK_INT(stg_run_create_compute(client, NULL, &fetch, 1, &run, &err),
              -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "did you mean \"wide\"?");
    CHECK_INT(stg_run_create_stage(client, &run, &err), -STAGER_FAILED_PRECONDITION);
    stg_graph_destroy(client);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
}

static void a_variable_too_large_is_refused_with_its_bytes(void)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"element x float32 [1]\nv = variable() shape=[10000000000, 10000000000]\n",
         "variable v is too large"},
        {"element x float32 [1]\nv = variable() shape=[1000, 1000]\n",
         "variable v: no memory for its 4000000 bytes"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct stg_err err = {0};
        struct fixture fx;
        struct stg_graph *graph = NULL;
        struct stg_resources *resources = NULL;
        CHECK_OK(create(rows[i].text, &fx, &graph, &err), err);
        /* The third is the variable itself. */
        stg_failalloc_once(3);
        CHECK_INT(stg_resources_create(graph, &resources, &err),
                  -STAGER_RESOURCE_EXHAUSTED);
        stg_failalloc_off();
        CHECK_STR(err.text, rows[i].error);
        CHECK(resources == NULL);
        stg_graph_destroy(graph);
        fixture_finish(&fx);
    }
}

/* ---- no memory ---- */

static int attempt(void *owner)
{
    const struct fixture *fx = owner;
    struct stg_err err = {0};
    struct stg_graph *graph = NULL, *client = NULL;
    struct stg_resources *resources = NULL;
    struct stg_run *stage = NULL, *compute = NULL;
    struct stg_bump bump = {0};
    int rc = stg_graph_create(&fx->spec, &fx->element, NULL, &graph, &err);
    if (rc == 0)
        rc = stg_graph_create(&fx->spec, NULL, stg_graph_boundary(graph), &client, &err);
    if (rc == 0)
        rc = stg_resources_create(client, &resources, &err);
    if (rc == 0)
        rc = stg_run_create_stage(graph, &stage, &err);
    if (rc == 0)
        rc = stg_run_create_compute(client, resources, fx->spec.targets,
                                    fx->spec.n_targets, &compute, &err);
    static const char record[] = "1,2.5,\"a\"\"b\"2,0.5,c3,x,d";
    static const int64_t offsets[] = {0, 12, 19, 19};
    struct stg_tensor feed = {.dtype = STAGER_STRING,
                              .ndim = 1,
                              .shape = {2},
                              .data = (void *)(uintptr_t)record,
                              .data_bytes = 19,
                              .begin = offsets,
                              .end = offsets + 1};
    struct stg_tensor feeds[2] = {feed, feed}, staged[2], text;
    if (rc == 0)
        rc = stg_run_exec(stage, feeds, NULL, NULL, staged, &err);
    if (rc == 0)
        rc = stg_run_exec(compute, staged, NULL, NULL, &text, &err);
    if (rc == 0)
        CHECK(text.shape[0] == 2 && text.shape[2] == 16);
    stg_run_destroy(compute);
    stg_run_destroy(stage);
    stg_resources_destroy(resources);
    stg_graph_destroy(client);
    stg_graph_destroy(graph);
    stg_bump_finish(&bump);
    return rc;
}

static void without_memory_nothing_is_made_and_nothing_leaks(void)
{
    struct stg_err err = {0};
    struct fixture fx;
    char text[2048];
    strcpy(text, shapes_text);
    char *mixed = strstr(text, "mixed = ");
    memset(mixed, '#', 1); /* its three ids would not match a batch of two */
    CHECK_OK(fixture_parse(&fx, text, &err), err);
    CHECK(stg_failalloc_each(attempt, &fx) > 10);
    fixture_finish(&fx);
}

static const struct stg_test tests[] = {
    TEST(mistakes_are_found_when_the_graph_is_made),
    TEST(a_cycle_names_its_nodes_and_no_others),
    TEST(dtypes_and_shapes_are_inferred),
    TEST(the_boundary_is_the_features_in_their_order),
    TEST(without_features_the_element_is_staged_as_it_is),
    TEST(a_static_boundary_has_a_size),
    TEST(a_client_infers_what_follows_the_boundary),
    TEST(a_client_of_an_older_build_leaves_out_what_it_does_not_know),
    TEST(a_variable_too_large_is_refused_with_its_bytes),
    TEST(without_memory_nothing_is_made_and_nothing_leaks),
};
TEST_MAIN(tests)
