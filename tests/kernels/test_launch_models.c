/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of examples/models: each node behind the boundary that a device can run,
 * there and on the host. On a GPU, and (the same kernels) as plain C++. STAGER_SOURCE is
 * the top of the tree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ops/exec/device.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/client/compute/models.golden.h"
#include "tests/kernels/host.h"

#define N_ROWS (sizeof(clicks) / sizeof(clicks[0]))
#define MAX_FEATURES 8
#define MAX_BLOCKS 64
#define MAX_NODES 32

static struct stg_err err;

struct model {
    const struct bench *bench;
    struct stg_pipeline_spec *spec;
    struct stg_graph *graph, *client;
    struct stg_resources *resources;
    struct stg_run *stage;
    struct stg_tensor staged[MAX_FEATURES];
    void *on_device[MAX_FEATURES];
    void *blocks[MAX_BLOCKS];
    size_t n_blocks;
};

static void load(struct model *model, const char *name)
{
    static char text[STG_TEXT_MAX_BYTES];
    static struct stg_component record = {
        .name = "record", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}};
    struct stg_schema element = {.components = &record, .n = 1};
    char path[1024];
    snprintf(path, sizeof(path), STAGER_SOURCE "/examples/models/%s.yaml.in", name);
    FILE *in = fopen(path, "re");
    CHECK(in != NULL);
    size_t n = fread(text, 1, sizeof(text), in);
    fclose(in);
    CHECK_OK(stg_load_pipeline(text, n, path, &model->spec, &err), err);
    CHECK_OK(stg_graph_create(model->spec, &element, NULL, &model->graph, &err), err);
    CHECK_OK(stg_graph_create(model->spec, NULL, stg_graph_boundary(model->graph),
                              &model->client, &err),
             err);
    CHECK_OK(stg_resources_create(model->client, &model->resources, &err), err);
    CHECK_OK(stg_run_create_stage(model->graph, &model->stage, &err), err);
}

/* The data that stagerd would send for all rows. */
static void stage(struct model *model)
{
    static char data[4096];
    static int64_t offsets[N_ROWS + 1];
    size_t n = stg_graph_boundary(model->graph)->n;
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t bytes = strlen(clicks[i]);
        memcpy(data + offsets[i], clicks[i], bytes);
        offsets[i + 1] = offsets[i] + (int64_t)bytes;
    }
    struct stg_tensor feed = {.dtype = STAGER_STRING,
                              .ndim = 1,
                              .shape = {N_ROWS},
                              .data = data,
                              .data_bytes = (uint64_t)offsets[N_ROWS],
                              .begin = offsets,
                              .end = offsets + 1};
    CHECK(n <= MAX_FEATURES);
    CHECK_OK(stg_run_exec(model->stage, &feed, NULL, NULL, model->staged, &err), err);
    for (size_t i = 0; i < n; i++) {
        if (model->staged[i].dtype != STAGER_STRING)
            model->on_device[i] = bench_up(model->bench, model->staged[i].data,
                                           (size_t)model->staged[i].data_bytes);
    }
}

static void model_finish(struct model *model)
{
    for (int i = 0; i < MAX_FEATURES; i++)
        bench_free(model->bench, model->on_device[i]);
    stg_run_destroy(model->stage);
    stg_resources_destroy(model->resources);
    stg_graph_destroy(model->client);
    stg_graph_destroy(model->graph);
    stg_pipeline_spec_destroy(model->spec);
}

static int room(void *owner, size_t bytes, void **ret, struct stg_err *why)
{
    struct model *model = owner;
    CHECK(model->n_blocks < MAX_BLOCKS);
    *ret = model->blocks[model->n_blocks++] = bench_room(model->bench, bytes);
    return 0;
}

static int keep(void *owner, const void *data, size_t bytes, bool is_variable,
                const void **ret, struct stg_err *why)
{
    struct model *model = owner;
    CHECK(model->n_blocks < MAX_BLOCKS);
    *ret = model->blocks[model->n_blocks++] = bench_up(model->bench, data, bytes);
    return 0;
}

static void check_same(const struct model *model, const char *name, struct stg_run *run,
                       struct stg_run *host)
{
    static const struct stg_key key;
    struct stg_tensor there, here;
    int64_t none[MAX_NODES];
    for (int i = 0; i < MAX_NODES; i++)
        none[i] = INT64_MAX;
    CHECK(stg_run_n_nodes(run) <= MAX_NODES);
    struct stg_run_device how = {.kernels = model->bench->kernels,
                                 .owner = (void *)(uintptr_t)model,
                                 .alloc = room,
                                 .keep = keep,
                                 .bad = bench_up(model->bench, none, sizeof(none)),
                                 .feeds = model->on_device};
    CHECK_OK(stg_run_launch(run, model->staged, &how, &key, &there, &err), err);
    CHECK_OK(stg_run_exec(host, model->staged, NULL, NULL, &here, &err), err);
    CHECK_INT(there.dtype, here.dtype);
    CHECK_INT(there.ndim, here.ndim);
    for (int d = 0; d < here.ndim; d++)
        CHECK_INT(there.shape[d], here.shape[d]);
    void *got = bench_down(model->bench, there.data, (size_t)there.data_bytes);
    host_same(name, here.dtype, got, here.data, (size_t)stg_tensor_n(&here));
    free(got);
    bench_free(model->bench, how.bad);
}

/* False: a device cannot run it. */
static bool check_node(struct model *model, const char *name)
{
    struct stg_run *run, *host;
    if (stg_run_create_compute(model->client, model->resources, &name, 1, &run, &err) < 0)
        return false; /* before the boundary */
    bool launches = stg_run_launches(run);
    if (launches) {
        CHECK_OK(stg_run_create_compute(model->client, model->resources, &name, 1, &host,
                                        &err),
                 err);
        check_same(model, name, run, host);
        stg_run_destroy(host);
    }
    stg_run_destroy(run);
    for (size_t i = 0; i < model->n_blocks; i++)
        bench_free(model->bench, model->blocks[i]);
    model->n_blocks = 0;
    return launches;
}

static void check_models(struct bench bench)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct model model = {.bench = &bench};
        unsigned n = 0;
        load(&model, models[i].name);
        stage(&model);
        for (size_t k = 0; k < model.spec->n_nodes; k++)
            n += check_node(&model, model.spec->nodes[k].name);
        if (n == 0)
            FAIL("%s: a device can do no node", models[i].name);
        model_finish(&model);
    }
}

static void nodes_of_the_models_give_what_the_host_gives_in_c(void)
{
    check_models(bench_emulated());
}

static void nodes_of_the_models_give_what_the_host_gives_on_the_gpu(void)
{
    check_models(bench_gpu());
}

static const struct stg_test tests[] = {
    TEST(nodes_of_the_models_give_what_the_host_gives_in_c),
    TEST(nodes_of_the_models_give_what_the_host_gives_on_the_gpu),
};

TEST_MAIN(tests)
