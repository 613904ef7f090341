/* SPDX-License-Identifier: Apache-2.0
 *
 * libstager-compute.so: the op library behind stager_run. Exports one table.
 */
#include "client/compute.h"

#include <stdlib.h>

#include "ops/graph.h"
#include "ops/run.h"

struct stg_compute_graph {
    struct stg_graph *graph;
    struct stg_resources *resources;
};

struct stg_compute_executor {
    struct stg_run *run;
};

static void destroy(struct stg_compute_graph *graph)
{
    if (graph == NULL)
        return;
    stg_resources_destroy(graph->resources);
    stg_graph_destroy(graph->graph);
    free(graph);
}

static int create(const struct stg_pipeline_spec *spec, const struct stg_schema *boundary,
                  struct stg_compute_graph **ret, struct stg_err *err)
{
    struct stg_compute_graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_graph_create(spec, NULL, boundary, &graph->graph, err);
    if (rc == 0)
        rc = stg_resources_create(graph->graph, &graph->resources, err);
    if (rc < 0) {
        destroy(graph);
        return rc;
    }
    *ret = graph;
    return 0;
}

static void discard(struct stg_compute_executor *executor)
{
    if (executor == NULL)
        return;
    stg_run_destroy(executor->run);
    free(executor);
}

static int prepare(struct stg_compute_graph *graph, const char *const *fetches,
                   size_t n_fetches, struct stg_compute_executor **ret,
                   struct stg_err *err)
{
    struct stg_compute_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_run_create_compute(graph->graph, graph->resources, fetches, n_fetches,
                                    &executor->run, err);
    if (rc < 0) {
        discard(executor);
        return rc;
    }
    *ret = executor;
    return 0;
}

static int run(struct stg_compute_executor *executor, const struct stg_tensor *feeds,
               const struct stg_compute_key *key, struct stg_tensor *outputs,
               struct stg_err *err)
{
    struct stg_key op_key = {
        .seed = key->seed, .pass = key->pass, .epoch = key->epoch, .index = key->index};
    return stg_run_exec(executor->run, feeds, &op_key, NULL, outputs, err);
}

extern const struct stg_compute stager_compute;

__attribute__((visibility("default"))) const struct stg_compute stager_compute = {
    .abi = STG_COMPUTE_ABI,
    .struct_bytes = sizeof(struct stg_compute),
    .release = STAGER_RELEASE,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .discard = discard,
    .run = run,
};
