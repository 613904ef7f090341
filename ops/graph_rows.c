/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a graph that is written for one element may be given many of them.
 */
#include "ops/graph_priv.h"

static bool from_element(const struct stg_graph *graph, const struct stg_ref *ref)
{
    return (stg_graph_depends(graph, ref) & STG_DEPENDS_ELEMENT) != 0;
}

/* Known before any element, and the same for all. */
static bool is_table(const struct stg_graph *graph, const struct stg_ref *ref)
{
    return ref->kind == STG_REF_NODE &&
           (graph->nodes[ref->index].op->flags & STG_OP_TABLE) != 0;
}

/* Shapes are broadcast at their ends: a dimension more in front of some of the inputs
 * must not meet one of the others. */
static bool node_is_row_wise(const struct stg_graph *graph,
                             const struct stg_graph_node *node)
{
    int rank = -1;
    if ((node->depends & STG_DEPENDS_ELEMENT) == 0 ||
        (node->op->flags & STG_OP_TABLE) != 0)
        return true;
    if ((node->op->flags & STG_OP_ROW_WISE) == 0)
        return false;
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (!from_element(graph, &node->inputs[i]) || is_table(graph, &node->inputs[i]))
            continue;
        int of_input = stg_graph_component(graph, &node->inputs[i])->ndim;
        if (rank >= 0 && of_input != rank)
            return false;
        rank = of_input;
    }
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (!is_table(graph, &node->inputs[i]) &&
            stg_graph_component(graph, &node->inputs[i])->ndim > rank)
            return false;
    }
    return true;
}

bool stg_graph_is_row_wise(const struct stg_graph *graph)
{
    for (size_t i = 0; i < graph->boundary.n; i++) {
        if (!from_element(graph, &graph->features[i]))
            return false;
    }
    for (size_t i = 0; i < graph->n_nodes; i++) {
        if (!node_is_row_wise(graph, &graph->nodes[i]))
            return false;
    }
    return true;
}
