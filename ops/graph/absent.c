/* SPDX-License-Identifier: Apache-2.0
 *
 * In a client of an older build: nodes that it cannot make. They are left out, so that
 * the rest of the graph works; somebody else may have run them ahead.
 */
#include <string.h>

#include "ops/graph/priv.h"

/* Stands for an op that is not here: like nothing else, and known of it is nothing. */
static const struct stg_op absent = {.name = "absent", .flags = STG_OP_EACH_BATCH};

int stg_graph_leave_out(struct stg_graph *graph, struct stg_graph_node *node, int rc,
                        struct stg_err *err)
{
    if (graph->has_element || rc == -STAGER_RESOURCE_EXHAUSTED)
        return rc;
    struct stg_err *why = stg_bump_alloc(&graph->bump, sizeof(*why));
    if (why == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *why = err != NULL ? *err : (struct stg_err){0};
    why->code = rc;
    if (err != NULL)
        *err = (struct stg_err){0};
    node->why = why;
    if (node->op == NULL)
        node->op = &absent;
    return 0;
}

int stg_graph_find_absent(const struct stg_graph *graph, const char *name)
{
    const char *colon = strchr(name, ':');
    size_t bytes = colon != NULL ? (size_t)(colon - name) : 0;
    for (size_t i = 0; !graph->has_element && i < graph->spec->n_nodes; i++) {
        const struct stg_node *node = &graph->spec->nodes[i];
        if (bytes > 0 && strncmp(node->name, name, bytes) == 0 &&
            node->name[bytes] == '\0')
            return stg_op_find(node->op) == NULL ? (int)i : -1;
    }
    return -1;
}

size_t stg_graph_left_out(const struct stg_graph *graph, const char **ret)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->spec->n_nodes; i++) {
        if (graph->nodes[i].why != NULL)
            ret[n++] = graph->spec->nodes[i].name;
    }
    return n;
}
