/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/partition/view.h"

#include "ops/partition/priv.h"

#define NOWHERE UINT32_MAX

/* While a view is made. */
struct maker {
    const struct stg_partitions *partitions;
    struct stg_bump *bump;
    const bool *carried;     /* slots that cross when all has moved that may */
    bool *least;             /* of the nodes that may move, those that have to */
    uint32_t *place_in_view; /* of each node that may move */
    struct stg_partition_view view;
};

/* Is it the slot that the reference reads? What is made wide again behind the boundary
 * crosses narrow. */
static bool reads_slot(const struct stg_partitions *partitions, const struct stg_ref *ref,
                       size_t slot)
{
    const struct stg_graph *graph = partitions->graph;
    ref = stg_graph_source(graph, ref);
    if (ref->kind == STG_REF_NODE && stg_partition_is_widening(graph, ref->index))
        ref = stg_graph_source(graph, &graph->nodes[ref->index].inputs[0]);
    if (slot < graph->boundary.n)
        return ref->kind == STG_REF_STAGED && ref->index == slot;
    return stg_ref_same(&partitions->ref[slot], ref);
}

/* A node that only waits for another one reads its first output. */
static bool node_reads(const struct stg_partitions *partitions, uint32_t index,
                       size_t slot)
{
    const struct stg_graph_node *node = &partitions->graph->nodes[index];
    bool reads = false;
    for (size_t i = 0; i < node->n_inputs && !reads; i++)
        reads = reads_slot(partitions, &node->inputs[i], slot);
    for (size_t i = 0; i < node->n_controls && !reads; i++) {
        struct stg_ref ref = {.kind = STG_REF_NODE, .index = node->controls[i]};
        reads = reads_slot(partitions, &ref, slot);
    }
    return reads;
}

/* The identity of the slot, for measurements. */
static void identify(const struct maker *m, size_t slot, struct stg_partition_tensor *to)
{
    const struct stg_graph *graph = m->partitions->graph;
    bool is_feature = slot < graph->boundary.n;
    const struct stg_ref *ref = stg_graph_source(
        graph, is_feature ? &graph->features[slot] : &m->partitions->ref[slot]);
    to->producer = NOWHERE;
    to->is_component = ref->kind == STG_REF_ELEMENT;
    to->is_constant = !to->is_component && (ref->kind != STG_REF_NODE ||
                                            graph->nodes[ref->index].values != NULL);
    to->index = to->is_constant ? 0 : ref->index;
    to->output = ref->kind == STG_REF_NODE ? ref->output : 0;
    if (!is_feature)
        to->producer = m->place_in_view[m->partitions->place[ref->index]];
}

static int add_tensor(struct maker *m, size_t slot)
{
    struct stg_partition_tensor *to = &m->view.tensors[m->view.n_tensors];
    to->slot = (uint32_t)slot;
    identify(m, slot, to);
    if (slot >= m->partitions->graph->boundary.n && to->producer == NOWHERE &&
        !m->least[m->partitions->place[m->partitions->ref[slot].index]])
        return 0; /* of a node that stays */
    to->is_required = m->carried[slot];
    to->readers = stg_bump_alloc(m->bump, m->view.n_nodes * sizeof(*to->readers));
    if (to->readers == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < m->view.n_nodes; i++) {
        if (node_reads(m->partitions, m->view.nodes[i], slot))
            to->readers[to->n_readers++] = i;
    }
    m->view.n_tensors++;
    return 0;
}

static int fill(struct maker *m, const bool *largest)
{
    const struct stg_partitions *partitions = m->partitions;
    size_t n = partitions->n_nodes;
    m->view.places = stg_bump_alloc(m->bump, n * sizeof(*m->view.places));
    m->view.nodes = stg_bump_alloc(m->bump, n * sizeof(*m->view.nodes));
    m->place_in_view = stg_bump_alloc(m->bump, n * sizeof(*m->place_in_view));
    m->view.tensors =
        stg_bump_alloc(m->bump, partitions->slots.n * sizeof(*m->view.tensors));
    if (m->view.places == NULL || m->view.nodes == NULL || m->place_in_view == NULL ||
        m->view.tensors == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < n; i++) {
        m->place_in_view[i] = NOWHERE;
        if (!largest[i] || m->least[i])
            continue;
        m->place_in_view[i] = (uint32_t)m->view.n_nodes;
        m->view.places[m->view.n_nodes] = i;
        m->view.nodes[m->view.n_nodes++] = partitions->nodes[i];
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < partitions->slots.n; i++)
        rc = add_tensor(m, i);
    return rc;
}

int stg_partition_view_create(const struct stg_partitions *partitions,
                              const struct stg_partition_needs *const *needs, size_t n,
                              struct stg_bump *bump, struct stg_partition_view *ret,
                              struct stg_err *err)
{
    struct stg_partition *partition = NULL;
    struct maker m = {.partitions = partitions, .bump = bump};
    bool *largest = stg_bump_alloc(bump, partitions->n_nodes * sizeof(*largest));
    m.least = stg_bump_alloc(bump, partitions->n_nodes * sizeof(*m.least));
    if (largest == NULL || m.least == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_partitions_largest(partitions, needs, n, largest);
    stg_partitions_least(partitions, needs, n, m.least);
    int rc = stg_partition_create(partitions, needs, n, largest, false, &partition, err);
    if (rc < 0)
        return rc;
    m.carried = partition->carried;
    rc = fill(&m, largest);
    stg_partition_destroy(partition);
    if (rc < 0)
        return stg_err(err, rc, "out of memory");
    *ret = m.view;
    return 0;
}
