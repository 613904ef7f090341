/* SPDX-License-Identifier: Apache-2.0
 *
 * libstager-compute.so: the op library behind stager_run. Exports one table.
 */
#include "client/compute/compute.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/compute/measured.h"
#include "client/compute/npy.h"
#include "client/compute/on_device.h"
#include "client/compute/threads.h"
#include "ops/exec/run.h"
#include "ops/graph/graph.h"

struct stg_compute_graph {
    const struct stg_pipeline_spec *spec;
    struct stg_graph *graph;
    struct stg_resources *resources;
    struct stg_threads threads;
    struct stg_place *place; /* NULL: no device */
};

struct stg_compute_executor {
    struct stg_compute_graph *graph;
    struct stg_on_device *half; /* NULL: all of it is the host's */
    struct stg_graph *fed;      /* its own: NULL when nothing is fed or carried */
    struct stg_run *run;
    struct stg_measured measured;     /* of run */
    const struct stg_tensor **values; /* of what is fed, then of what is carried and used;
                                         for stg_run_feed */
    size_t n_fed, n_carried;
    size_t *carried; /* those that are used */
    size_t n_nodes;  /* of the spec */
    struct stg_compute_watcher observer;
    struct stg_run_watcher watcher, there_watcher, rest_watcher;
};

static void destroy(struct stg_compute_graph *graph)
{
    if (graph == NULL)
        return;
    stg_place_destroy(graph->place);
    stg_threads_stop(&graph->threads);
    stg_resources_destroy(graph->resources);
    stg_graph_destroy(graph->graph);
    free(graph);
}

static int unsupported(const struct stg_pipeline_spec *spec,
                       const struct stg_schema *boundary, const char **ret_names,
                       size_t *ret_n, struct stg_err *err)
{
    struct stg_graph *graph = NULL;
    int rc = stg_graph_create(spec, NULL, boundary, &graph, err);
    if (rc < 0)
        return rc;
    *ret_n = stg_graph_left_out(graph, ret_names);
    stg_graph_destroy(graph);
    return 0;
}

static int create(const struct stg_pipeline_spec *spec, const struct stg_schema *boundary,
                  uint32_t inter_op, uint32_t intra_op, struct stg_compute_graph **ret,
                  struct stg_err *err)
{
    struct stg_compute_graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    graph->spec = spec;
    int rc = stg_graph_create(spec, NULL, boundary, &graph->graph, err);
    if (rc == 0)
        rc = stg_resources_create(graph->graph, &graph->resources, err);
    if (rc == 0)
        rc = stg_resources_load(graph->resources, graph->graph, stg_npy_read, err);
    if (rc == 0)
        rc = stg_threads_start(&graph->threads, inter_op, intra_op, err);
    if (rc < 0) {
        destroy(graph);
        return rc;
    }
    *ret = graph;
    return 0;
}

static int use_device(struct stg_compute_graph *graph,
                      const struct stg_compute_device *where, struct stg_err *err)
{
    return stg_place_create(where, &graph->place, err);
}

/* Executors go before their graph, and must not look at it. */
static void lose_device(struct stg_compute_graph *graph)
{
    if (graph->place != NULL)
        stg_place_abandon(graph->place);
    graph->place = NULL;
}

static void discard(struct stg_compute_executor *executor)
{
    if (executor == NULL)
        return;
    if (executor->half != NULL && executor->graph->place == NULL)
        executor->half->place = NULL;
    stg_on_device_destroy(executor->half);
    stg_run_destroy(executor->run);
    stg_measured_finish(&executor->measured);
    stg_graph_destroy(executor->fed);
    free(executor->values);
    free(executor->carried);
    free(executor);
}

/* What the graph has of a tensor holds for what is fed instead. */
static int infer_fed(const struct stg_graph *graph, const struct stg_component *fed,
                     struct stg_component *ret, struct stg_err *err)
{
    struct stg_component is = {.dtype = fed->dtype, .ndim = fed->ndim}, known;
    for (int d = 0; d < is.ndim; d++)
        is.shape[d] = -1;
    if (stg_graph_describe(graph, fed->name, &known, NULL) == 0) {
        char got[128], want[128];
        if (!stg_component_fits(fed, &known))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "feed \"%s\" is %s %s; in the graph it is %s %s", fed->name,
                           stg_dtype_name(fed->dtype),
                           stg_shape_text(fed->shape, fed->ndim, got, sizeof(got)),
                           stg_dtype_name(known.dtype),
                           stg_shape_text(known.shape, known.ndim, want, sizeof(want)));
        is = known;
    }
    is.name = fed->name;
    *ret = is;
    return 0;
}

/* What is fed, then what is carried and not made of that. */
static int infer_all(struct stg_compute_graph *graph, const struct stg_schema *fed,
                     const struct stg_schema *carried,
                     struct stg_compute_executor *executor, struct stg_schema *ret,
                     struct stg_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < fed->n; i++)
        rc =
            infer_fed(graph->graph, &fed->components[i], &ret->components[ret->n++], err);
    for (size_t i = 0; rc == 0 && i < carried->n; i++) {
        const struct stg_component *c = &carried->components[i];
        if (stg_graph_is_made_of(graph->graph, c->name, fed))
            continue;
        executor->carried[executor->n_carried++] = i;
        rc = infer_fed(graph->graph, c, &ret->components[ret->n++], err);
    }
    executor->n_fed = fed->n;
    return rc;
}

static int make_fed(struct stg_compute_graph *graph, const struct stg_schema *fed,
                    const struct stg_schema *carried,
                    struct stg_compute_executor *executor, struct stg_err *err)
{
    size_t n = fed->n + carried->n;
    struct stg_schema inferred = {0};
    inferred.components = calloc(n + 1, sizeof(*inferred.components));
    executor->values = calloc(n + 1, sizeof(*executor->values));
    executor->carried = calloc(carried->n + 1, sizeof(*executor->carried));
    int rc = 0;
    if (inferred.components == NULL || executor->values == NULL ||
        executor->carried == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0)
        rc = infer_all(graph, fed, carried, executor, &inferred, err);
    if (rc == 0)
        rc = stg_graph_create_fed(graph->spec, stg_graph_boundary(graph->graph),
                                  &inferred, executor->n_carried, &executor->fed, err);
    free(inferred.components);
    return rc;
}

static int use_threads(const struct stg_threads *threads, struct stg_run *run,
                       struct stg_err *err)
{
    int rc = 0;
    if (threads->is_on && threads->rows.n_threads > 1)
        rc = stg_run_parallel(run, &threads->rows, err);
    if (rc == 0 && threads->is_on)
        rc = stg_run_inter_op(run, &threads->nodes, err);
    return rc;
}

static int use_place(struct stg_compute_executor *executor, const struct stg_graph *of,
                     struct stg_compute_graph *graph, const char *const *fetches,
                     size_t n_fetches, struct stg_err *err)
{
    int rc = stg_on_device_create(
        graph->place, of, graph->resources, executor->run, fetches, n_fetches,
        executor->n_fed + executor->n_carried, &executor->half, err);
    if (rc == 0 && executor->half != NULL && executor->half->rest != NULL)
        rc = use_threads(&graph->threads, executor->half->rest, err);
    return rc;
}

static int prepare(struct stg_compute_graph *graph, const struct stg_schema *fed,
                   const struct stg_schema *carried, const char *const *fetches,
                   size_t n_fetches, struct stg_compute_executor **ret,
                   struct stg_err *err)
{
    struct stg_compute_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    executor->graph = graph;
    int rc = fed->n + carried->n > 0 ? make_fed(graph, fed, carried, executor, err) : 0;
    const struct stg_graph *of = executor->fed != NULL ? executor->fed : graph->graph;
    if (rc == 0)
        rc = stg_run_create_compute(of, graph->resources, fetches, n_fetches,
                                    &executor->run, err);
    if (rc == 0)
        rc = use_threads(&graph->threads, executor->run, err);
    if (rc == 0 && graph->place != NULL)
        rc = use_place(executor, of, graph, fetches, n_fetches, err);
    if (rc == 0)
        rc = stg_measured_init(&executor->measured, of, executor->run, err);
    if (rc < 0) {
        discard(executor);
        return rc;
    }
    executor->n_nodes = graph->spec->n_nodes;
    *ret = executor;
    return 0;
}

static bool begin_watch(void *owner, const struct stg_key *key)
{
    const struct stg_compute_executor *executor = owner;
    return executor->observer.is_on(executor->observer.owner);
}

static void watch_node(void *owner, uint32_t node, uint64_t begin_ns, uint64_t end_ns)
{
    const struct stg_compute_executor *executor = owner;
    if (node <
        executor->n_nodes) /* behind them are those that the graph made by itself */
        executor->observer.node(executor->observer.owner, node, begin_ns, end_ns);
}

static void end_watch(void *owner, const struct stg_run *run, int rc)
{
}

static void watch(struct stg_compute_executor *executor,
                  const struct stg_compute_watcher *watcher)
{
    executor->observer = *watcher;
    executor->watcher = (struct stg_run_watcher){
        .owner = executor, .begin = begin_watch, .node = watch_node, .end = end_watch};
    executor->there_watcher = executor->rest_watcher = executor->watcher;
    stg_run_watch(executor->run, &executor->watcher);
    if (executor->half != NULL)
        stg_run_watch(executor->half->run, &executor->there_watcher);
    if (executor->half != NULL && executor->half->rest != NULL)
        stg_run_watch(executor->half->rest, &executor->rest_watcher);
}

static bool needs(const struct stg_compute_executor *executor, size_t i)
{
    return stg_run_needs(executor->run, i);
}

static void feed(struct stg_compute_executor *executor, const struct stg_tensor *fed,
                 const struct stg_tensor *carried)
{
    const struct stg_on_device *half = executor->half;
    for (size_t i = 0; i < executor->n_fed; i++)
        executor->values[i] = &fed[i];
    for (size_t i = 0; i < executor->n_carried; i++)
        executor->values[executor->n_fed + i] = &carried[executor->carried[i]];
    stg_run_feed(executor->run, executor->values);
    if (half != NULL)
        stg_run_feed(half->run, executor->values);
    if (half != NULL && half->rest != NULL)
        stg_run_feed(half->rest, executor->values);
}

static void spoil(void *owner, const void *data)
{
    const struct stg_compute_graph *graph = owner;
    stg_place_spoil(graph->place, data);
}

static int run(struct stg_compute_executor *executor, const struct stg_tensor *boundary,
               const struct stg_tensor *fed, const struct stg_tensor *carried,
               const struct stg_compute_there *there, const struct stg_compute_key *key,
               struct stg_tensor *outputs, struct stg_err *err)
{
    struct stg_on_device *half = there != NULL ? executor->half : NULL;
    struct stg_compute_graph *graph = executor->graph;
    struct stg_key op_key = {
        .seed = key->seed, .pass = key->pass, .epoch = key->epoch, .index = key->index};
    if (executor->fed != NULL)
        feed(executor, fed, carried);
    if (half == NULL) {
        int rc = stg_run_exec(executor->run, boundary, &op_key, NULL, outputs, err);
        if (graph->place != NULL) {
            stg_place_pass(graph->place);
            stg_run_each_written(executor->run, spoil, graph);
        }
        return rc;
    }
    for (size_t i = 0; i < executor->n_carried; i++)
        half->fed[executor->n_fed + i] = there->carried[executor->carried[i]];
    struct stg_on_device_run what = {.boundary = boundary,
                                     .boundary_there = there->boundary,
                                     .key = &op_key,
                                     .number = there->number,
                                     .all = executor->run};
    return stg_on_device_exec(half, &what, outputs, there->outputs, err);
}

static struct stg_result *last(const struct stg_compute_graph *graph)
{
    return graph->place != NULL ? stg_place_last(graph->place) : NULL;
}

static int synchronize(struct stg_compute_graph *graph, struct stg_err *err)
{
    return graph->place != NULL ? stg_place_check(graph->place, true, err) : 0;
}

static void tell(const struct stg_compute_executor *executor, char *buf, size_t bytes)
{
    char text[256];
    const char *stays = stg_run_stays(executor->run, text, sizeof(text));
    if (executor->half != NULL)
        stg_on_device_tell(executor->half, buf, bytes);
    else if (stg_run_writes(executor->run))
        snprintf(buf, bytes, "host: the fetches need nodes that write variables");
    else if (stays != NULL)
        snprintf(buf, bytes, "host: none of the fetches runs on a GPU: node %s does not",
                 stays);
    else
        snprintf(buf, bytes, "host: none of the fetches runs on a GPU");
}

static bool measured(struct stg_compute_executor *executor,
                     struct stg_compute_measured *ret)
{
    if (executor->half != NULL && executor->half->was_there)
        return stg_on_device_measured(executor->half, ret);
    return stg_measured_take(&executor->measured, ret);
}

extern const struct stg_compute stager_compute;

__attribute__((visibility("default"))) const struct stg_compute stager_compute = {
    .abi = STG_COMPUTE_ABI,
    .struct_bytes = sizeof(struct stg_compute),
    .release = STAGER_RELEASE,
    .unsupported = unsupported,
    .create = create,
    .destroy = destroy,
    .use_device = use_device,
    .lose_device = lose_device,
    .prepare = prepare,
    .discard = discard,
    .watch = watch,
    .needs = needs,
    .run = run,
    .last = last,
    .keep = stg_result_keep,
    .drop = stg_result_drop,
    .event = stg_result_event,
    .synchronize = synchronize,
    .tell = tell,
    .measured = measured,
};
