/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"

#define ALIGN 256

static struct stg_err err;

/* ---- life ---- */

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
}

static void move_all(struct model *model)
{
    static const struct stg_partition_wanted wanted = {.has_fields = true};
    CHECK_OK(stg_partitions_create(model->graph, &model->partitions, &err), err);
    CHECK_OK(stg_partition_needs_create(model->partitions, &wanted, &model->needs, &err),
             err);
    const struct stg_partition_needs *needs = model->needs;
    bool *moved = calloc(stg_partitions_n_nodes(model->partitions) + 1, sizeof(*moved));
    CHECK(moved != NULL);
    stg_partitions_largest(model->partitions, &needs, 1, moved);
    CHECK_OK(stg_partition_create(model->partitions, &needs, 1, moved, false,
                                  &model->partition, &err),
             err);
    free(moved);
    CHECK_OK(stg_run_create_partition(model->partition, &model->stage, &err), err);
}

static int find_feature(const struct model *model, const char *name)
{
    const struct stg_schema *boundary = stg_graph_boundary(model->graph);
    for (size_t i = 0; i < boundary->n; i++) {
        if (strcmp(boundary->components[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

static void place(struct model *model, const struct stg_tensor *outputs)
{
    const struct stg_schema *crosses = stg_partition_schema(model->partition);
    for (size_t i = 0; i < crosses->n; i++) {
        const struct stg_component *component = &crosses->components[i];
        const struct stg_tensor *output = &outputs[i];
        int feature = find_feature(model, component->name);
        void *at = component->dtype == STAGER_STRING
                       ? NULL
                       : bench_up(model->bench, output->data, (size_t)output->data_bytes);
        if (feature >= 0) {
            model->staged[feature] = *output;
            model->staged_there[feature] = at;
            continue;
        }
        model->carried_as[model->n_carried] = *component;
        model->carried_there[model->n_carried] = at;
        model->carried[model->n_carried] = *output;
        model->feeds[model->n_carried] = &model->carried[model->n_carried];
        model->n_carried++;
    }
}

/* What stagerd would send. */
static void stage(struct model *model, const char *const *lines, size_t n_lines)
{
    struct stg_tensor outputs[MODEL_TENSORS];
    int64_t *offsets = calloc(n_lines + 1, sizeof(*offsets));
    CHECK(offsets != NULL && stg_partition_schema(model->partition)->n <= MODEL_TENSORS &&
          stg_graph_boundary(model->graph)->n <= MODEL_TENSORS);
    for (size_t i = 0; i < n_lines; i++)
        offsets[i + 1] = offsets[i] + (int64_t)strlen(lines[i]);
    char *data = malloc((size_t)offsets[n_lines] + 1);
    CHECK(data != NULL);
    for (size_t i = 0; i < n_lines; i++)
        memcpy(data + offsets[i], lines[i], strlen(lines[i]));
    struct stg_tensor feed = {.dtype = STAGER_STRING,
                              .ndim = 1,
                              .shape = {(int64_t)n_lines},
                              .data = data,
                              .data_bytes = (uint64_t)offsets[n_lines],
                              .begin = offsets,
                              .end = offsets + 1};
    CHECK_OK(stg_run_exec(model->stage, &feed, NULL, NULL, outputs, &err), err);
    place(model, outputs);
    free(data);
    free(offsets);
}

/* What crosses beside the boundary of the file is fed to the client's graph. */
static void make_client(struct model *model)
{
    struct stg_schema carried = {.components = model->carried_as, .n = model->n_carried};
    CHECK_OK(stg_graph_create_fed(model->spec, stg_graph_boundary(model->graph), &carried,
                                  carried.n, &model->client, &err),
             err);
    CHECK_OK(stg_resources_create(model->client, &model->resources, &err), err);
}

void model_init(struct model *model, const struct bench *bench, const char *name,
                const char *const *lines, size_t n_lines, size_t bytes)
{
    int64_t none[MODEL_NODES];
    *model = (struct model){.bench = bench, .bytes = bytes};
    load(model, name);
    move_all(model);
    stage(model, lines, n_lines);
    make_client(model);
    for (int i = 0; i < MODEL_NODES; i++)
        none[i] = INT64_MAX;
    model->bad = bench_up(bench, none, sizeof(none));
    model->memory = bench_room(bench, bytes);
}

void model_finish(struct model *model)
{
    for (int i = 0; i < MODEL_TENSORS; i++) {
        bench_free(model->bench, model->staged_there[i]);
        bench_free(model->bench, model->carried_there[i]);
    }
    for (size_t i = 0; i < model->n_copies; i++)
        bench_free(model->bench, model->copies[i].at);
    bench_free(model->bench, model->memory);
    bench_free(model->bench, model->bad);
    stg_run_destroy(model->stage);
    stg_resources_destroy(model->resources);
    stg_graph_destroy(model->client);
    stg_partition_destroy(model->partition);
    stg_partition_needs_destroy(model->needs);
    stg_partitions_destroy(model->partitions);
    stg_graph_destroy(model->graph);
    stg_pipeline_spec_destroy(model->spec);
}

/* ---- runs ---- */

struct stg_run *model_run(const struct model *model, const char *fetch)
{
    struct stg_run *run;
    if (stg_run_create_compute(model->client, model->resources, &fetch, 1, &run, &err) <
        0)
        return NULL;
    for (size_t i = 0; i < stg_graph_boundary(model->graph)->n; i++) {
        if (stg_run_needs(run, i) && model->staged[i].dtype == STAGER_DT_INVALID) {
            stg_run_destroy(run);
            return NULL;
        }
    }
    stg_run_feed(run, model->feeds);
    return run;
}

bool model_launches(const struct model *model, const struct stg_run *run)
{
    return stg_run_n_nodes(run) <= MODEL_NODES && stg_run_launches(run);
}

static int room(void *owner, size_t bytes, void **ret, struct stg_err *why)
{
    struct model *model = owner;
    CHECK(bytes <= model->bytes - model->used);
    *ret = model->memory + model->used;
    model->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return 0;
}

static int keep(void *owner, const void *data, size_t bytes, bool is_variable,
                const void **ret, struct stg_err *why)
{
    struct model *model = owner;
    size_t i = 0;
    while (i < model->n_copies && model->copies[i].data != data)
        i++;
    if (i == model->n_copies) {
        CHECK(model->n_copies < MODEL_COPIES);
        model->copies[i].data = data;
        model->copies[i].at = bench_up(model->bench, data, bytes);
        model->n_copies++;
    }
    *ret = model->copies[i].at;
    return 0;
}

void model_launch(struct model *model, struct stg_run *run, struct stg_tensor *ret)
{
    static const struct stg_key key;
    struct stg_run_device how = {.kernels = model->bench->kernels,
                                 .owner = model,
                                 .alloc = room,
                                 .keep = keep,
                                 .bad = model->bad,
                                 .feeds = model->staged_there,
                                 .fed = model->carried_there};
    model->used = 0;
    CHECK_OK(stg_run_launch(run, model->staged, &how, &key, ret, &err), err);
}

void model_exec(const struct model *model, struct stg_run *run, struct stg_tensor *ret)
{
    CHECK_OK(stg_run_exec(run, model->staged, NULL, NULL, ret, &err), err);
}
