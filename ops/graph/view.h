/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph as one looks at it: what the features and the targets need, in an order in
 * which it may run, and its edges. Constants, which are known when the pipeline is
 * applied, are left out; so is a second node that is written like a first one.
 */
#ifndef STG_OPS_GRAPH_VIEW_H
#define STG_OPS_GRAPH_VIEW_H

#include "ops/graph/graph.h"

struct stg_view_edge {
    uint32_t from;      /* place in the view */
    uint32_t output;    /* of that node */
    bool is_control;    /* it runs before, and is not read */
    const char *staged; /* read as "staged:PATH": the path; else NULL */
};

struct stg_view_node {
    const char *name;
    const struct stg_op *op; /* NULL: a component of the dataset's element */
    uint32_t index;          /* of the node (as for a watcher), or of the component */
    uint32_t n_outputs;
    bool in_stage;               /* a feature needs it */
    bool in_compute;             /* a target needs it, or the caller says so */
    struct stg_view_edge *edges; /* what it reads */
    size_t n_edges;
};

struct stg_view {
    struct stg_view_node *nodes;
    size_t n_nodes;
    struct stg_view_edge *features; /* one a feature, in the order of the boundary;
                                       `from` UINT32_MAX: a constant */
    size_t n_features;
};

/* Of a graph that has an element. computed: nodes that run in trainers whatever the
 * targets are; NULL: none. Everything lives in bump, names in the graph.
 * RESOURCE_EXHAUSTED. */
int stg_view_create(const struct stg_graph *graph, const bool *computed,
                    struct stg_bump *bump, struct stg_view *ret, struct stg_err *err);

/* Nodes that the graph has, for `computed`. */
size_t stg_view_n_graph_nodes(const struct stg_graph *graph);

#endif
