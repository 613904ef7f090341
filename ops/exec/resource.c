/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables of a graph: no op owns state; it belongs to the component that runs the
 * graph, and is an input. Made and initialised once, then read by any thread while none
 * runs a STATEFUL op.
 */
#include <stdlib.h>

#include "ops/exec/priv.h"

struct stg_resources {
    size_t n;
    struct stg_tensor *tensors; /* one a node; data NULL: not a variable */
};

static int make_variable(const struct stg_graph_node *node, struct stg_tensor *ret,
                         struct stg_err *err)
{
    const struct stg_component *component = &node->outputs[0];
    struct stg_tensor tensor = {.dtype = component->dtype, .ndim = component->ndim};
    uint64_t bytes = stg_dtype_bytes(component->dtype);
    bool fits = true;
    for (int d = 0; d < component->ndim; d++) {
        tensor.shape[d] = component->shape[d];
        fits = fits && !__builtin_mul_overflow(bytes, (uint64_t)tensor.shape[d], &bytes);
    }
    if (!fits || bytes > (uint64_t)INT64_MAX)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "variable %s is too large",
                       node->spec->name);
    tensor.data_bytes = bytes;
    tensor.data = aligned_alloc(64, ((size_t)bytes + 64) & ~(size_t)63);
    if (tensor.data == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "variable %s: no memory for its %llu bytes", node->spec->name,
                       (unsigned long long)bytes);
    *ret = tensor;
    int rc = node->op->initialize(node->plan, ret, err);
    return rc < 0 ? stg_graph_blame(node, rc, err) : 0;
}

int stg_resources_create(const struct stg_graph *graph, struct stg_resources **ret,
                         struct stg_err *err)
{
    struct stg_resources *resources = calloc(1, sizeof(*resources));
    if (resources == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    resources->n = graph->n_nodes;
    resources->tensors = calloc(graph->n_nodes + 1, sizeof(*resources->tensors));
    int rc = 0;
    if (resources->tensors == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; rc == 0 && i < graph->n_nodes; i++) {
        const struct stg_graph_node *node = &graph->nodes[i];
        if (node->inferred && (node->op->flags & STG_OP_VARIABLE) != 0)
            rc = make_variable(node, &resources->tensors[i], err);
    }
    if (rc < 0) {
        stg_resources_destroy(resources);
        return rc;
    }
    *ret = resources;
    return 0;
}

int stg_resources_load(struct stg_resources *resources, const struct stg_graph *graph,
                       stg_variable_file *load, struct stg_err *err)
{
    for (size_t i = 0; i < resources->n; i++) {
        const struct stg_graph_node *node = &graph->nodes[i];
        const struct stg_node *spec = node->spec;
        const char *file = stg_attr_string(spec->attrs, spec->n_attrs, "file", NULL);
        if (resources->tensors[i].data == NULL || file == NULL)
            continue;
        int rc = load(file, &resources->tensors[i], err);
        if (rc < 0)
            return stg_graph_blame(node, rc, err);
    }
    return 0;
}

void stg_resources_destroy(struct stg_resources *resources)
{
    if (resources == NULL)
        return;
    for (size_t i = 0; resources->tensors != NULL && i < resources->n; i++)
        free(resources->tensors[i].data);
    free(resources->tensors);
    free(resources);
}

const struct stg_tensor *stg_resources_tensor(const struct stg_resources *resources,
                                              uint32_t index)
{
    if (index >= resources->n || resources->tensors[index].data == NULL)
        return NULL;
    return &resources->tensors[index];
}
