/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/exec/device.h"
#include "proto/load.h"
#include "tests/check.h"

#define MAX_BLOCKS 16

static struct stg_err err;

struct graph {
    const struct bench *bench;
    struct stg_pipeline_spec *spec;
    struct stg_graph *stage, *client;
    void *inputs[LAUNCH_INPUTS], *blocks[MAX_BLOCKS]; /* of the device */
    size_t n_blocks;
};

static const char *const letters[LAUNCH_INPUTS] = {"a", "b", "c", "d", "e", "f"};

static void graph_init(struct graph *graph, const char *op, const char *attrs,
                       const struct stg_tensor *inputs, size_t n)
{
    struct stg_component components[LAUNCH_INPUTS] = {0};
    struct stg_schema element = {.components = components, .n = n};
    char text[2048], list[256] = "", features[256] = "";
    CHECK(n <= LAUNCH_INPUTS);
    for (size_t i = 0; i < n; i++) {
        const char *comma = i > 0 ? ", " : "";
        components[i] = (struct stg_component){
            .name = letters[i], .dtype = inputs[i].dtype, .ndim = inputs[i].ndim};
        for (int d = 0; d < inputs[i].ndim; d++)
            components[i].shape[d] = -1;
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s\"staged:%s\"",
                 comma, letters[i]);
        snprintf(features + strlen(features), sizeof(features) - strlen(features),
                 "%s%s: %s", comma, letters[i], letters[i]);
    }
    int bytes = snprintf(text, sizeof(text),
                         "name: t\ndataset: [{files: {pattern: [a]}}, {text_line: {}}]\n"
                         "graph: [{name: y, op: %s, input: [%s]%s%s}]\n"
                         "staged: {features: {%s}, max_batch_bytes: 1MiB}\n",
                         op, list, attrs[0] != '\0' ? ", " : "", attrs, features);
    CHECK_OK(stg_load_pipeline(text, (size_t)bytes, "test", &graph->spec, &err), err);
    CHECK_OK(stg_graph_create(graph->spec, &element, NULL, &graph->stage, &err), err);
    CHECK_OK(stg_graph_create(graph->spec, NULL, stg_graph_boundary(graph->stage),
                              &graph->client, &err),
             err);
}

static void graph_finish(struct graph *graph)
{
    for (size_t i = 0; i < graph->n_blocks; i++)
        bench_free(graph->bench, graph->blocks[i]);
    stg_graph_destroy(graph->client);
    stg_graph_destroy(graph->stage);
    stg_pipeline_spec_destroy(graph->spec);
}

static int room(void *owner, size_t bytes, void **ret, struct stg_err *why)
{
    struct graph *graph = owner;
    CHECK(graph->n_blocks < MAX_BLOCKS);
    *ret = graph->blocks[graph->n_blocks++] = bench_room(graph->bench, bytes);
    return 0;
}

static int keep(void *owner, const void *data, size_t bytes, bool is_variable,
                const void **ret, struct stg_err *why)
{
    FAIL("nothing is constant");
}

static void send(struct graph *graph, const struct stg_tensor *input, void **ret)
{
    size_t element = stg_dtype_bytes(input->dtype), bytes = (size_t)input->data_bytes;
    char *padded = calloc(1, bytes + element);
    CHECK(padded != NULL && graph->n_blocks < MAX_BLOCKS);
    if (bytes > 0)
        memcpy(padded + element, input->data, bytes);
    char *at = bench_up(graph->bench, padded, bytes + element);
    graph->blocks[graph->n_blocks++] = at;
    *ret = at + element;
    free(padded);
}

static struct stg_run *run_of(struct graph *graph, const char *const *fetches, size_t n)
{
    struct stg_run *run = NULL;
    CHECK_OK(stg_run_create_compute(graph->client, NULL, fetches, n, &run, &err), err);
    return run;
}

static struct stg_tensor owned(const struct stg_tensor *tensor, void *data)
{
    struct stg_tensor ret = *tensor;
    ret.data = data;
    return ret;
}

static void run_there(struct graph *graph, struct stg_run *run,
                      const struct stg_tensor *inputs, size_t n, size_t n_outputs,
                      struct launched *ret)
{
    static const struct stg_key key;
    int64_t none = INT64_MAX;
    struct stg_tensor outputs[LAUNCH_OUTPUTS];
    for (size_t i = 0; i < n; i++)
        send(graph, &inputs[i], &graph->inputs[i]);
    struct stg_run_device how = {.kernels = graph->bench->kernels,
                                 .owner = graph,
                                 .alloc = room,
                                 .keep = keep,
                                 .bad = bench_up(graph->bench, &none, sizeof(none)),
                                 .feeds = graph->inputs};
    CHECK_OK(stg_run_launch(run, inputs, &how, &key, outputs, &err), err);
    int64_t *bad = bench_down(graph->bench, how.bad, sizeof(*bad));
    ret->bad = *bad;
    free(bad);
    bench_free(graph->bench, how.bad);
    for (size_t i = 0; i < n_outputs; i++)
        ret->there[i] = owned(&outputs[i], bench_down(graph->bench, outputs[i].data,
                                                      (size_t)outputs[i].data_bytes));
}

static void run_here(struct graph *graph, const char *const *fetches,
                     const struct stg_tensor *inputs, size_t n_outputs,
                     struct launched *ret)
{
    struct stg_tensor outputs[LAUNCH_OUTPUTS];
    struct stg_run *run = run_of(graph, fetches, n_outputs);
    CHECK_OK(stg_run_exec(run, inputs, NULL, NULL, outputs, &err), err);
    for (size_t i = 0; i < n_outputs; i++) {
        void *data = malloc((size_t)outputs[i].data_bytes + 1);
        CHECK(data != NULL);
        if (outputs[i].data_bytes > 0)
            memcpy(data, outputs[i].data, (size_t)outputs[i].data_bytes);
        ret->here[i] = owned(&outputs[i], data);
    }
    stg_run_destroy(run);
}

void launch_op(const struct bench *bench, const char *op, const char *attrs,
               const struct stg_tensor *inputs, size_t n, size_t n_outputs,
               bool with_host, struct launched *ret)
{
    static const char *const fetches[LAUNCH_OUTPUTS] = {"y:0", "y:1"};
    struct graph graph = {.bench = bench};
    *ret = (struct launched){0};
    CHECK(n_outputs <= LAUNCH_OUTPUTS);
    graph_init(&graph, op, attrs, inputs, n);
    struct stg_run *run = run_of(&graph, fetches, n_outputs);
    if (!stg_run_launches(run))
        FAIL("%s: a device cannot run it", op);
    run_there(&graph, run, inputs, n, n_outputs, ret);
    if (with_host)
        run_here(&graph, fetches, inputs, n_outputs, ret);
    stg_run_destroy(run);
    graph_finish(&graph);
}

void launched_finish(struct launched *launched)
{
    for (int i = 0; i < LAUNCH_OUTPUTS; i++) {
        free(launched->there[i].data);
        free(launched->here[i].data);
    }
}
