/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/admission/sizes.h"

#include "daemon/dataset/dataset.h"

/* Of one graph; 0 where they are not known. */
static void find_batches(const struct stg_pipeline_spec *spec,
                         const struct stg_graph *graph,
                         const struct stg_partitions *partitions, struct stg_sizes *ret)
{
    bool is_auto = spec->smart_stage == STG_SMART_STAGE_AUTO;
    ret->batch_bytes = stg_partitions_batch_bytes(
        partitions, is_auto ? STG_SMART_STAGE_OFF : spec->smart_stage);
    ret->partition_bytes =
        is_auto ? stg_partitions_batch_bytes(partitions, STG_SMART_STAGE_AUTO) : 0;
    ret->least_bytes = stg_graph_schema_least_bytes(stg_graph_boundary(graph));
}

/* The graph over full batches. */
static void find_full(const struct stg_pipeline_spec *spec,
                      const struct stg_schema *element, struct stg_sizes *ret)
{
    struct stg_err err = {0};
    struct stg_graph *graph = NULL;
    struct stg_partitions *partitions = NULL;
    if (stg_graph_create(spec, element, NULL, &graph, &err) == 0 &&
        stg_partitions_create(graph, &partitions, &err) == 0)
        find_batches(spec, graph, partitions, ret);
    stg_partitions_destroy(partitions);
    stg_graph_destroy(graph);
}

void stg_sizes_find(const struct stg_pipeline_spec *spec, const struct stg_graph *graph,
                    const struct stg_partitions *partitions, struct stg_sizes *ret)
{
    struct stg_err err = {0};
    struct stg_bump bump;
    struct stg_schema full;
    stg_bump_init(&bump, 0);
    *ret = (struct stg_sizes){0};
    find_batches(spec, graph, partitions, ret);
    bool is_exact = ret->batch_bytes != 0;
    if (stg_dataset_infer_full(spec, &bump, &full, &err) == 0) {
        ret->element_bytes = stg_graph_schema_least_bytes(&full);
        if (!is_exact)
            find_full(spec, &full, ret);
        ret->is_bound = !is_exact;
    }
    stg_bump_finish(&bump);
}
