/* SPDX-License-Identifier: Apache-2.0
 *
 * What a search for a good partition has to know of a graph: the nodes that may move for
 * these clients, and for each tensor that may cross its maker, its readers, and whether a
 * reader stays.
 */
#ifndef STG_OPS_PARTITION_VIEW_H
#define STG_OPS_PARTITION_VIEW_H

#include "ops/partition/partition.h"

struct stg_partition_tensor {
    uint32_t slot;     /* of stg_partitions_slots */
    uint32_t producer; /* place in the view; UINT32_MAX: it is made whatever moves */
    bool is_constant;  /* known when the pipeline is applied */
    bool is_component; /* of the element: component `index`; else … */
    uint32_t index;    /* … output `output` of this node, as for a watcher */
    uint32_t output;
    bool is_required;  /* read by what never moves, or by the clients */
    uint32_t *readers; /* places in the view */
    size_t n_readers;
};

struct stg_partition_view {
    uint32_t *places; /* of each node among all that stg_partitions has */
    uint32_t *nodes;  /* and in the graph, as for a watcher */
    size_t n_nodes;
    struct stg_partition_tensor *tensors;
    size_t n_tensors;
};

/* Nodes stand in the order of stg_partitions. Everything lives in bump.
 * RESOURCE_EXHAUSTED. */
int stg_partition_view_create(const struct stg_partitions *partitions,
                              const struct stg_partition_needs *const *needs, size_t n,
                              struct stg_bump *bump, struct stg_partition_view *ret,
                              struct stg_err *err);

#endif
