/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph for display: the nodes that the features and the targets need, in an order in
 * which they may run, and the edges. The view leaves out constants, which are known when
 * the pipeline is applied. It also leaves out duplicates of a node.
 */
#ifndef STG_OPS_GRAPH_VIEW_H
#define STG_OPS_GRAPH_VIEW_H

#include "ops/graph/graph.h"

struct stg_view_edge {
    uint32_t from;      /* index in the view's nodes */
    uint32_t output;    /* of that node */
    bool is_control;    /* `from` runs first, but its output is not read */
    const char *staged; /* if it is read as "staged:PATH", the path; else NULL */
};

struct stg_view_node {
    const char *name;
    const struct stg_op *op; /* NULL: a component of the dataset's element */
    uint32_t index;          /* of the node (as for a watcher), or of the component */
    uint32_t n_outputs;
    bool in_stage;               /* a feature needs it */
    bool in_compute;             /* a target needs it, or the caller says so */
    struct stg_view_edge *edges; /* its inputs */
    size_t n_edges;
};

struct stg_view {
    struct stg_view_node *nodes;
    size_t n_nodes;
    struct stg_view_edge *features; /* one per feature, in the order of the boundary;
                                       `from` UINT32_MAX: a constant */
    size_t n_features;
};

/* Creates the view of a graph that has an element. computed: the nodes that run in
 * trainers whatever the targets are; NULL: none. The view is in bump; its names belong to
 * the graph. RESOURCE_EXHAUSTED: out of memory. */
int stg_view_create(const struct stg_graph *graph, const bool *computed,
                    struct stg_bump *bump, struct stg_view *ret, struct stg_err *err);

/* Returns the number of nodes of the graph, which is the length of `computed`. */
size_t stg_view_n_graph_nodes(const struct stg_graph *graph);

#endif
