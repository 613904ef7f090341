/* SPDX-License-Identifier: Apache-2.0
 *
 * staged.transfer: features that cross the boundary in half the width. Each is two nodes
 * more than the file has: one narrows what is staged, the other widens it again for who
 * reads "staged:…".
 */
#include <string.h>

#include "ops/base/element.h"
#include "ops/graph/priv.h"

static int blame(const struct stg_attr *attr, int code, struct stg_err *err)
{
    return stg_err_prefix(err, code, "staged.transfer.%s, line %d", attr->name,
                          attr->line);
}

/* "cast" and "narrow" have one attribute. */
static struct stg_node *make_node(struct stg_graph *graph, const struct stg_attr *from,
                                  const char *op, int dtype)
{
    struct stg_node *node = stg_bump_alloc(&graph->bump, sizeof(*node));
    struct stg_attr *attr = stg_bump_alloc(&graph->bump, sizeof(*attr));
    struct stg_value *value = stg_bump_alloc(&graph->bump, sizeof(*value));
    char *name = stg_bump_printf(&graph->bump, "transfer.%s", from->name);
    if (node == NULL || attr == NULL || value == NULL || name == NULL)
        return NULL;
    const char *text = stg_dtype_name(dtype);
    *value =
        (struct stg_value){.kind = STG_VALUE_STRING, .s = text, .s_bytes = strlen(text)};
    *attr = (struct stg_attr){.name = "dtype", .n_values = 1, .values = value};
    *node = (struct stg_node){
        .name = name, .op = op, .attrs = attr, .n_attrs = 1, .line = from->line};
    return node;
}

static int add(struct stg_graph *graph, size_t k, struct stg_err *err)
{
    const struct stg_attr *attr = &graph->spec->staged.transfers[k];
    struct stg_graph_transfer *transfer = &graph->transfers[k];
    const char *text = attr->n_values == 1 && attr->values[0].kind == STG_VALUE_STRING
                           ? attr->values[0].s
                           : "";
    int narrow = stg_dtype_from_name(text), wide = stg_dtype_widened(narrow);
    if (wide == STAGER_DT_INVALID)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "\"%.64s\" is no half of a dtype; there are int8, int16, int32, "
                       "uint8, uint16, uint32, float16, bfloat16 and float32",
                       text);
    const char *name = stg_bump_printf(&graph->bump, "staged:%s", attr->name);
    if (name == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_graph_resolve_unfed(graph, name, &transfer->staged, err);
    if (rc < 0)
        return stg_graph_invalid(err);
    transfer->narrow = (uint32_t)(graph->spec->n_nodes + 2 * k);
    transfer->widen = transfer->narrow + 1;
    struct stg_graph_node *nodes = &graph->nodes[transfer->narrow];
    nodes[0].spec = make_node(graph, attr, "narrow", narrow);
    nodes[1].spec = make_node(graph, attr, "cast", wide);
    return nodes[0].spec != NULL && nodes[1].spec != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

int stg_graph_add_transfers(struct stg_graph *graph, struct stg_err *err)
{
    size_t n = graph->spec->staged.n_transfers;
    graph->transfers = stg_bump_alloc(&graph->bump, n * sizeof(*graph->transfers));
    if (graph->transfers == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t k = 0; k < n; k++) {
        int rc = add(graph, k, err);
        if (rc < 0)
            return blame(&graph->spec->staged.transfers[k], rc, err);
        graph->n_transfers = k + 1;
    }
    return 0;
}

const struct stg_graph_transfer *stg_graph_transfer(const struct stg_graph *graph,
                                                    size_t feature)
{
    for (size_t k = 0; k < graph->n_transfers; k++) {
        if (graph->transfers[k].staged.index == feature)
            return &graph->transfers[k];
    }
    return NULL;
}

/* ---- linking ---- */

static int link_one(struct stg_graph *graph, uint32_t index, const char *name,
                    struct stg_ref from, struct stg_err *err)
{
    struct stg_graph_node *node = &graph->nodes[index];
    int rc = stg_graph_find_op(graph, node, err);
    if (rc < 0)
        return rc;
    node->inputs = stg_bump_alloc(&graph->bump, sizeof(*node->inputs));
    node->input_names = stg_bump_alloc(&graph->bump, sizeof(*node->input_names));
    if (node->inputs == NULL || node->input_names == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    node->inputs[0] = from;
    node->input_names[0] = name;
    node->n_inputs = 1;
    return 0;
}

int stg_graph_link_transfers(struct stg_graph *graph, struct stg_err *err)
{
    const struct stg_staged *staged = &graph->spec->staged;
    for (size_t k = 0; k < graph->n_transfers; k++) {
        const struct stg_graph_transfer *transfer = &graph->transfers[k];
        const char *name = staged->n_features > 0
                               ? staged->features[transfer->staged.index].tensor
                               : staged->transfers[k].name;
        struct stg_ref from = {.kind = STG_REF_UNKNOWN};
        int rc = graph->has_element ? stg_graph_resolve(graph, name, &from, err) : 0;
        if (rc < 0) {
            stg_graph_invalid(err);
            return blame(&staged->transfers[k], -STAGER_INVALID_ARGUMENT, err);
        }
        rc = link_one(graph, transfer->narrow, name, from, err);
        if (rc == 0)
            rc = link_one(graph, transfer->widen, staged->transfers[k].name,
                          transfer->staged, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
