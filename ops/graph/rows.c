/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a graph that is written for one element may be given many of them, and whether
 * a row of a tensor is that of the element.
 */
#include "ops/graph/priv.h"

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

/* "parsed:ids/values" lie one after the other, however many there are of a row. */
static bool is_part(const struct stg_graph_node *node, uint32_t output)
{
    struct stg_output_name name = {0};
    if (node->op->next_output == NULL)
        return false;
    for (uint32_t i = 0; node->op->next_output(node->spec, &name); i++) {
        if (i == output)
            return name.part[0] != '\0';
    }
    return false;
}

static bool has_rows(const struct stg_graph *graph, const struct stg_ref *ref)
{
    if (!graph->has_element) /* a client's: errors there have no place in a file */
        return true;
    if (ref->kind == STG_REF_STAGED)
        return has_rows(graph, &graph->features[ref->index]);
    if (ref->kind != STG_REF_NODE || !from_element(graph, ref))
        return true;
    const struct stg_graph_node *node = &graph->nodes[ref->index];
    return node->in_rows &&
           ((node->op->flags & STG_OP_ROW_WISE) != 0 || node->op->rows != NULL) &&
           !is_part(node, ref->output);
}

void stg_graph_follow_rows(const struct stg_graph *graph, struct stg_graph_node *node)
{
    node->in_rows = true;
    for (size_t i = 0; i < node->n_inputs; i++)
        node->in_rows &= has_rows(graph, &node->inputs[i]);
}
