/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of examples/models, with both sides of the boundary in this process,
 * compared with NumPy's results from their definitions (tests/data/make_models.py).
 * STAGER_SOURCE is the top of the tree.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/exec/run.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/compute/models.golden.h"

#define N_ROWS (sizeof(clicks) / sizeof(clicks[0]))
#define MAX_FEATURES 8

struct model {
    struct stg_pipeline_spec *spec;
    struct stg_graph *graph, *client;
    struct stg_resources *resources;
    struct stg_run *stage, *compute;
};

static void model_init(struct model *model, const char *name)
{
    static char text[STG_TEXT_MAX_BYTES];
    static struct stg_component record = {
        .name = "record", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}};
    struct stg_schema element = {.components = &record, .n = 1};
    struct stg_err err = {0};
    char path[1024];
    snprintf(path, sizeof(path), STAGER_SOURCE "/examples/models/%s.yaml.in", name);
    FILE *in = fopen(path, "re");
    CHECK(in != NULL);
    size_t n = fread(text, 1, sizeof(text), in);
    fclose(in);
    *model = (struct model){0};
    CHECK_OK(stg_load_pipeline(text, n, path, &model->spec, &err), err);
    CHECK_STR(model->spec->name, name);
    CHECK_OK(stg_graph_create(model->spec, &element, NULL, &model->graph, &err), err);
    CHECK_OK(stg_graph_create(model->spec, NULL, stg_graph_boundary(model->graph),
                              &model->client, &err),
             err);
    CHECK_OK(stg_resources_create(model->client, &model->resources, &err), err);
    CHECK_OK(stg_run_create_stage(model->graph, &model->stage, &err), err);
    CHECK_OK(stg_run_create_compute(model->client, model->resources, model->spec->targets,
                                    1, &model->compute, &err),
             err);
}

static void model_finish(struct model *model)
{
    stg_run_destroy(model->compute);
    stg_run_destroy(model->stage);
    stg_resources_destroy(model->resources);
    stg_graph_destroy(model->client);
    stg_graph_destroy(model->graph);
    stg_pipeline_spec_destroy(model->spec);
}

static const float *score(struct model *model, size_t first, size_t n)
{
    static char data[4096];
    static int64_t offsets[N_ROWS + 1];
    static struct stg_tensor staged[MAX_FEATURES], scores;
    struct stg_err err = {0};
    for (size_t i = 0; i < n; i++) {
        size_t bytes = strlen(clicks[first + i]);
        memcpy(data + offsets[i], clicks[first + i], bytes);
        offsets[i + 1] = offsets[i] + (int64_t)bytes;
    }
    struct stg_tensor feed = {.dtype = STAGER_STRING,
                              .ndim = 1,
                              .shape = {(int64_t)n},
                              .data = data,
                              .data_bytes = (uint64_t)offsets[n],
                              .begin = offsets,
                              .end = offsets + 1};
    CHECK(stg_graph_boundary(model->graph)->n <= MAX_FEATURES);
    CHECK_OK(stg_run_exec(model->stage, &feed, NULL, NULL, staged, &err), err);
    CHECK_OK(stg_run_exec(model->compute, staged, NULL, NULL, &scores, &err), err);
    CHECK(scores.dtype == STAGER_FLOAT32 && scores.ndim == 1);
    CHECK_INT(scores.shape[0], n);
    return scores.data;
}

static void check_scores(const char *name, const float *got, const double *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= 1e-6))
            FAIL("%s: score %zu is %.9f, NumPy's %.9f", name, i, (double)got[i], want[i]);
    }
}

static void five_models_score_as_numpy_does(void)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct model model;
        model_init(&model, models[i].name);
        for (int k = 0; k < 3; k++)
            check_scores(models[i].name, score(&model, 0, N_ROWS), models[i].scores,
                         N_ROWS);
        model_finish(&model);
    }
}

/* No row depends on another one, whatever the longest history of its batch. */
static void a_row_alone_has_the_score_that_it_has_among_others(void)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct model model;
        model_init(&model, models[i].name);
        for (size_t row = 0; row < N_ROWS; row++)
            check_scores(models[i].name, score(&model, row, 1), &models[i].scores[row],
                         1);
        model_finish(&model);
    }
}

static const struct stg_test tests[] = {
    TEST(five_models_score_as_numpy_does),
    TEST(a_row_alone_has_the_score_that_it_has_among_others),
};
TEST_MAIN(tests)
