/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of models: recurrent cells, combined embeddings, masks, and variables that
 * are initialised at random, read and written.
 */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/cases.h"

#define N(table) (sizeof(table) / sizeof((table)[0]))

static const struct op_case golden[] = {
#include "tests/ops/golden/embedding.rows"
#include "tests/ops/golden/masked.rows"
#include "tests/ops/golden/recurrent.rows"
};

static void models_ops_give_what_tensorflow_gives(void)
{
    for (size_t i = 0; i < N(golden); i++)
        op_case_check_near(&golden[i],
                           strncmp(golden[i].inputs, "float64", 7) == 0 ? 1e-13 : 2e-6);
}

static const struct op_case good[] = {
    {"softmax", "", "float32[2, 2] 1 5 2 2\nbool[2, 2] 1 0 0 0", "float32[2, 2] 1 0 0 0",
     NULL, 0},
    {"softmax", "", "float32[1, 2] nan 5\nbool[1, 2] 0 1", "float32[1, 2] 0 1", NULL, 0},
    {"softmax", "axis=0", "float32[2, 1] 3 3\nbool[2, 1] 1 1", "float32[2, 1] 0.5 0.5",
     NULL, 0},
    {"embedding_lookup", "combiner=\"sum\"",
     "float32[2, 2] 1 2 3 4\nint64[3] 0 1 1\nint64[4] 0 2 2 3",
     "float32[3, 2] 4 6 0 0 3 4", NULL, 0},
    {"embedding_lookup", "combiner=\"mean\"",
     "float16[2, 1] 1 3\nint32[2] 0 1\nint64[2, 2] 1 0 1 1\nint64[2] 3 2",
     "float16[3, 1] 0 2 0", NULL, 0},
    {"embedding_lookup", "combiner=\"sqrtn\"",
     "float64[2] 1 3\nint32[4] 0 1 1 1\nint64[2] 0 4", "float64[1] 5", NULL, 0},
    {"embedding_lookup", "combiner=\"mean\" weighted=true",
     "float32[2] 2 4\nint32[2] 0 1\nint64[2] 0 2\nfloat32[2] 3 1", "float32[1] 2.5", NULL,
     0},
    {"embedding_lookup", "combiner=\"mean\" weighted=true",
     "float32[2] 2 4\nint32[2] 0 1\nint64[2] 0 2\nfloat32[2] 1 -1", "float32[1] 0", NULL,
     0},
    {"embedding_lookup", "combiner=\"sum\"",
     "float32[2, 2] 1 2 3 4\nint64[0]\nint64[1] 0", "float32[0, 2]", NULL, 0},
};

static void empty_rows_and_masks_are_zero(void)
{
    for (size_t i = 0; i < N(good); i++)
        op_case_check(&good[i], false);
}

#define TABLE "float32[2, 2] 1 2 3 4\n"

static const struct op_case bad[] = {
    {"softmax", "", "float32[2] 1 2\nint32[2] 1 1", NULL, "must be bool", -1},
    {"softmax", "", "float32[2] 1 2\nbool[3] 1 1 1", NULL, "another shape", -1},
    {"embedding_lookup", "combiner=\"max\"", TABLE "int64[1] 0\nint64[2] 0 1", NULL,
     "combiner must be sum, mean, sqrtn or none, not \"max\"", -1},
    {"embedding_lookup", "", TABLE "int64[1] 0\nint64[2] 0 1", NULL,
     "takes 2 inputs without a combiner, has 3", -1},
    {"embedding_lookup", "combiner=\"sum\"", TABLE "int64[1] 0", NULL, "there are 2", -1},
    {"embedding_lookup", "combiner=\"sum\"", "int32[2] 1 2\nint64[1] 0\nint64[2] 0 1",
     NULL, "takes a table of floats", -1},
    {"embedding_lookup", "combiner=\"sum\"", TABLE "int64[1] 0\nint32[2] 0 1", NULL,
     "row_splits are int64 of rank 1", -1},
    {"embedding_lookup", "combiner=\"sum\"", TABLE "int64[1] 0\nint64[2] 0 2", NULL,
     "end with the 1 values", -1},
    {"embedding_lookup", "combiner=\"sum\"", TABLE "int64[1] 0\nint64[3] 0 2 1", NULL,
     "row_splits must begin with 0, never decrease", -1},
    {"embedding_lookup", "combiner=\"sum\"", TABLE "int64[1] 0\nint64[0]", NULL,
     "row_splits must begin", -1},
    {"embedding_lookup", "combiner=\"sum\"", TABLE "int64[2] 0 5\nint64[3] 0 1 2", NULL,
     "id 5 (value 1) is not in [0, 2)", 1},
    {"embedding_lookup", "combiner=\"sum\"",
     TABLE "int64[2] 0 1\nint64[2, 2] 1 0 0 0\nint64[2] 2 1", NULL,
     "index 1 is row 0 of 2, after row 1", -1},
    {"embedding_lookup", "combiner=\"sum\"",
     TABLE "int64[1] 0\nint64[1, 2] 4 0\nint64[2] 2 1", NULL, "index 0 is row 4 of 2",
     -1},
    {"embedding_lookup", "combiner=\"sum\"",
     TABLE "int64[1] 0\nint64[1, 2] 0 0\nint64[2] -1 1", NULL, "has -1 rows", -1},
    {"embedding_lookup", "combiner=\"sum\"",
     TABLE "int64[1] 0\nint64[2, 2] 0 0 0 0\nint64[2] 2 1", NULL, "1 values have indices",
     -1},
    {"embedding_lookup", "combiner=\"sum\" weighted=true",
     TABLE "int64[1] 0\nint64[2] 0 1\nfloat32[2] 1 1", NULL, "2 weights for 1 values",
     -1},
    {"gru", "",
     "float16[1, 1, 1] 1\nfloat16[1, 3] 1 1 1\nfloat16[1, 3] 1 1 1\n"
     "float16[2, 3] 1 1 1 1 1 1",
     NULL, "sequences must be float32 or float64", -1},
    {"gru", "",
     "float32[1, 1, 2] 1 1\nfloat32[1, 3] 1 1 1\nfloat32[1, 3] 1 1 1\n"
     "float32[2, 3] 1 1 1 1 1 1",
     NULL, "do not have the shapes that sequences [1, 1, 2] need", -1},
    {"gru", "reset_after=false",
     "float32[1, 1, 1] 1\nfloat32[1, 3] 1 1 1\nfloat32[1, 3] 1 1 1\n"
     "float32[2, 3] 1 1 1 1 1 1",
     NULL, "the bias, is float32 [?, ?]", -1},
};

static void what_does_not_fit_is_refused(void)
{
    for (size_t i = 0; i < N(bad); i++)
        op_case_check(&bad[i], false);
}

/* ---- variables ---- */

struct trainer {
    struct fixture fx;
    struct stg_graph *graph, *client;
    struct stg_resources *resources;
    struct stg_run *run;
    struct stg_bump bump;
};

static int trainer_make(struct trainer *t, struct stg_err *err)
{
    int rc = stg_graph_create(&t->fx.spec, &t->fx.element, NULL, &t->graph, err);
    if (rc == 0)
        rc = stg_graph_create(&t->fx.spec, NULL, stg_graph_boundary(t->graph), &t->client,
                              err);
    if (rc == 0)
        rc = stg_resources_create(t->client, &t->resources, err);
    return rc < 0 ? rc
                  : stg_run_create_compute(t->client, t->resources, t->fx.spec.targets,
                                           t->fx.spec.n_targets, &t->run, err);
}

static int trainer_init(struct trainer *t, const char *text, struct stg_err *err)
{
    *t = (struct trainer){0};
    int rc = fixture_parse(&t->fx, text, err);
    return rc < 0 ? rc : trainer_make(t, err);
}

static void trainer_clear(struct trainer *t)
{
    stg_run_destroy(t->run);
    stg_resources_destroy(t->resources);
    stg_graph_destroy(t->client);
    stg_graph_destroy(t->graph);
    t->run = NULL;
    t->resources = NULL;
    t->client = t->graph = NULL;
}

static void trainer_finish(struct trainer *t)
{
    trainer_clear(t);
    fixture_finish(&t->fx);
    stg_bump_finish(&t->bump);
}

static void check_near(const struct stg_tensor *got, size_t n, const double *want)
{
    CHECK_INT(stg_tensor_n(got), n);
    for (size_t i = 0; i < n; i++) {
        double is = got->dtype == STAGER_FLOAT64 ? ((const double *)got->data)[i]
                                                 : (double)((const float *)got->data)[i];
        if (fabs(is - want[i]) > 1e-6)
            FAIL("element %zu is %.9g, not %.9g", i, is, want[i]);
    }
}

/* numpy.random.Philox(key=[11, 5]) from counter 0 on, as fractions of 53 bits. */
static const double uniform_numbers[] = {-0x1.6b6caf1ddcf60p-3, -0x1.053275a778398p-2,
                                         0x1.38eee91951257p+1,  0x1.66000597d8b34p-1,
                                         0x1.d085cfc1de4a4p-1,  0x1.33c4f403a9fa0p+0};
static const double normal_numbers[] = {0x1.10f02bebc1b1cp+1, 0x1.27fcd820a515bp+1,
                                        0x1.1d7dc0435d2eep+0, 0x1.39e192001a6e2p+1,
                                        0x1.75974b0f6673bp+0, 0x1.d27e3543a0ef6p+0};

static void what_is_drawn_is_what_numpy_draws_of_the_same_key(void)
{
    struct trainer t;
    struct stg_err err = {0};
    struct stg_tensor feed = {0}, out[3];
    CHECK_OK(
        trainer_init(&t,
                     "element x float32 [-1]\n"
                     "u = variable() shape=[2, 3] initializer=\"random_uniform\" "
                     "seed=11 minval=-1.0 maxval=3.0 dtype=\"float64\"\n"
                     "n = variable() shape=[6] initializer=\"random_normal\" seed=11 "
                     "mean=2.0 stddev=0.5\n"
                     "other = variable() shape=[6] initializer=\"random_normal\" "
                     "mean=2.0 stddev=0.5\n"
                     "target u\ntarget n\ntarget other\n",
                     &err),
        err);
    CHECK_OK(stg_run_exec(t.run, &feed, NULL, NULL, out, &err), err);
    check_near(&out[0], 6, uniform_numbers);
    check_near(&out[1], 6, normal_numbers);
    CHECK(memcmp(out[1].data, out[2].data, 24) != 0);
    trainer_finish(&t);
}

static void numbers_may_be_given_one_by_one(void)
{
    struct trainer t;
    struct stg_err err = {0};
    struct stg_tensor feed = {0}, out;
    CHECK_OK(trainer_init(&t,
                          "element x float32 [-1]\n"
                          "w = variable() shape=[2, 2] initializer=[[1.5, 2], [3, 4]]\n"
                          "target w\n",
                          &err),
             err);
    CHECK_OK(stg_run_exec(t.run, &feed, NULL, NULL, &out, &err), err);
    check_near(&out, 4, (const double[]){1.5, 2, 3, 4});
    trainer_finish(&t);
}

static const struct {
    const char *text, *error;
} wrong[] = {
    {"w = variable() shape=[3] initializer=[1, 2]\n",
     "initializer has 2 numbers, the shape 3 elements"},
    {"w = variable() shape=[3] initializer=\"random_uniform\" dtype=\"int32\"\n",
     "random values must be floats, not int32"},
    {"w = variable() shape=[3] initializer=\"random_uniform\" minval=1.0\n",
     "minval is above maxval"},
    {"w = variable() shape=[3] initializer=\"random_normal\" stddev=-1.0\n",
     "stddev is negative"},
    {"w = variable() shape=[3] initializer=\"random_normal\" maxval=1.0\n",
     "maxval belongs to the initializer random_uniform"},
    {"w = variable() shape=[3] file=\"/w.npy\"\n", "file belongs to the initializer npy"},
    {"w = variable() shape=[3] initializer=\"npy\" file=\"w.npy\"\n", "absolute path"},
    {"w = variable() shape=[3]\ny = assign(staged:x, w)\n",
     "input \"staged:x\" is not a variable"},
    {"w = variable() shape=[3]\nv = identity(w)\ny = assign(v, w)\n",
     "input \"v\" is not a variable"},
    {"w = variable() shape=[3]\nv = constant() value=[1.0, 2.0]\ny = assign(w, v)\n",
     "input \"v\" is float32 [2]; the variable is float32 [3]"},
    {"w = variable() shape=[3] dtype=\"bool\"\ny = assign_add(w, w)\n",
     "which cannot be added to"},
    {"w = variable() shape=[]\ny = scatter_add(w, staged:x, staged:x)\n", "has no rows"},
    {"w = variable() shape=[3]\ny = scatter_add(w, staged:x, staged:x)\n",
     "indices must be int32 or int64"},
    {"w = variable() shape=[3, 2]\ni = constant() value=[1]\n"
     "u = constant() value=[1.0, 2.0]\ny = scatter_add(w, i, u)\n",
     "its updates here [1, 2]"},
    {"w = variable() shape=[-1]\n", "shape"},
};

static void mistakes_are_found_when_the_graph_is_made(void)
{
    for (size_t i = 0; i < N(wrong); i++) {
        struct trainer t;
        struct stg_err err = {0};
        char text[512] = "element x float32 [-1]\n";
        strcat(text, wrong[i].text);
        CHECK_INT(trainer_init(&t, text, &err), -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, wrong[i].error);
        trainer_finish(&t);
    }
}

/* w -= rate * gradient of sum((w - x)^2) / 2, which is w - x. */
#define DESCENT                                                                          \
    "element x float32 [2]\n"                                                            \
    "w = variable() shape=[2] initializer=[8.0, -8.0]\n"                                 \
    "rate = constant() value=-0.5\n"                                                     \
    "gradient = subtract(w, staged:x)\n"                                                 \
    "step = multiply(gradient, rate)\n"                                                  \
    "train = assign_add(w, step)\n"                                                      \
    "after = identity(w, ^train)\n"                                                      \
    "target train\ntarget after\n"

static void a_training_step_can_be_written(void)
{
    struct trainer t;
    struct stg_err err = {0};
    struct stg_tensor out[2];
    CHECK_OK(trainer_init(&t, DESCENT, &err), err);
    int64_t two = 2;
    struct stg_tensor x =
        fixture_dense(&t.bump, STAGER_FLOAT32, 1, &two, (float[]){4, 0});
    float want[2] = {8, -8};
    for (int i = 0; i < 6; i++) {
        CHECK_OK(stg_run_exec(t.run, &x, NULL, NULL, out, &err), err);
        want[0] -= 0.5f * (want[0] - 4);
        want[1] -= 0.5f * want[1];
        CHECK(memcmp(out[0].data, want, sizeof(want)) == 0);
        CHECK(out[1].data == out[0].data);
    }
    trainer_finish(&t);
}

static void executors_of_one_process_share_a_variable(void)
{
    struct trainer t;
    struct stg_err err = {0};
    struct stg_tensor out[2];
    CHECK_OK(trainer_init(&t, DESCENT, &err), err);
    struct stg_run *reader = NULL;
    const char *fetch = "w";
    CHECK_OK(stg_run_create_compute(t.client, t.resources, &fetch, 1, &reader, &err),
             err);
    int64_t two = 2;
    struct stg_tensor x =
        fixture_dense(&t.bump, STAGER_FLOAT32, 1, &two, (float[]){4, 0});
    CHECK_OK(stg_run_exec(t.run, &x, NULL, NULL, out, &err), err);
    CHECK_OK(stg_run_exec(reader, &x, NULL, NULL, out, &err), err);
    check_near(&out[0], 2, (const double[]){6, -4});
    stg_run_destroy(reader);
    trainer_finish(&t);
}

static void updates_of_one_row_add_up(void)
{
    struct trainer t;
    struct stg_err err = {0};
    struct stg_tensor out;
    CHECK_OK(trainer_init(&t,
                          "element i int64 [-1]\nelement u float32 [-1, 2]\n"
                          "w = variable() shape=[3, 2] initializer=1.0\n"
                          "y = scatter_add(w, staged:i, staged:u)\n"
                          "target y\n",
                          &err),
             err);
    struct stg_tensor feeds[2];
    int64_t n = 3;
    feeds[0] = fixture_dense(&t.bump, STAGER_INT64, 1, &n, (int64_t[]){2, 0, 2});
    feeds[1] = fixture_dense(&t.bump, STAGER_FLOAT32, 2, (int64_t[]){3, 2},
                             (float[]){1, 2, 3, 4, 5, 6});
    CHECK_OK(stg_run_exec(t.run, feeds, NULL, NULL, &out, &err), err);
    check_near(&out, 6, (const double[]){4, 5, 1, 1, 7, 9});

    feeds[0] = fixture_dense(&t.bump, STAGER_INT64, 1, &n, (int64_t[]){1, 1, 3});
    CHECK_INT(stg_run_exec(t.run, feeds, NULL, NULL, &out, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "index 3 (element 2) is not in [0, 3)");
    CHECK_INT(err.row, 2);
    feeds[0] = fixture_dense(&t.bump, STAGER_INT64, 1, &n, (int64_t[]){1, 1, 1});
    CHECK_OK(stg_run_exec(t.run, feeds, NULL, NULL, &out, &err), err);
    check_near(&out, 6, (const double[]){4, 5, 10, 13, 7, 9});
    trainer_finish(&t);
}

static void what_writes_a_variable_cannot_be_staged(void)
{
    struct trainer t;
    struct stg_err err = {0};
    CHECK_INT(trainer_init(&t,
                           "element x float32 [2]\nw = variable() shape=[2]\n"
                           "y = assign(w, x)\nfeature y = y\n",
                           &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "\"y\" depends on a variable");
    trainer_finish(&t);
}

static int attempt(void *owner)
{
    struct trainer *t = owner;
    struct stg_err err = {0};
    int64_t ids[] = {1, 8, 8};
    struct stg_tensor out, x = {.dtype = STAGER_INT64,
                                .ndim = 1,
                                .shape = {3},
                                .data = ids,
                                .data_bytes = sizeof(ids)};
    int rc = trainer_make(t, &err);
    if (rc == 0)
        rc = stg_run_exec(t->run, &x, NULL, NULL, &out, &err);
    trainer_clear(t);
    return rc;
}

static void without_memory_nothing_leaks(void)
{
    struct trainer t = {0};
    struct stg_err err = {0};
    CHECK_OK(fixture_parse(&t.fx,
                           "element x int64 [-1]\n"
                           "w = variable() shape=[9, 2] initializer=\"random_normal\"\n"
                           "s = constant() value=[0, 1, 3] dtype=\"int64\"\n"
                           "y = embedding_lookup(w, staged:x, s) combiner=\"mean\"\n"
                           "target y\n",
                           &err),
             err);
    stg_failalloc_each(attempt, &t);
    trainer_finish(&t);
}

static const struct stg_test tests[] = {
    TEST(models_ops_give_what_tensorflow_gives),
    TEST(empty_rows_and_masks_are_zero),
    TEST(what_does_not_fit_is_refused),
    TEST(what_is_drawn_is_what_numpy_draws_of_the_same_key),
    TEST(numbers_may_be_given_one_by_one),
    TEST(mistakes_are_found_when_the_graph_is_made),
    TEST(a_training_step_can_be_written),
    TEST(executors_of_one_process_share_a_variable),
    TEST(updates_of_one_row_add_up),
    TEST(what_writes_a_variable_cannot_be_staged),
    TEST(without_memory_nothing_leaks),
};
TEST_MAIN(tests)
