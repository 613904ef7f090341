/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/graph/view.h"

#include <assert.h>

#include "ops/graph/priv.h"

/* While a view is made. */
struct maker {
    const struct stg_graph *graph;
    struct stg_bump *bump;
    bool *staged, *computed; /* nodes that are needed before and behind the boundary */
    bool *components;        /* of the element, that are */
    uint32_t *node_at;       /* where a node is in the view; UINT32_MAX: nowhere */
    uint32_t *component_at;
    struct stg_view view;
};

size_t stg_view_n_graph_nodes(const struct stg_graph *graph)
{
    return graph->n_nodes;
}

/* ---- what is in it ---- */

static bool is_shown(const struct maker *m, uint32_t index)
{
    const struct stg_graph_node *node = &m->graph->nodes[index];
    return node->values == NULL && node->same_as == index &&
           (m->staged[index] || m->computed[index]);
}

static void mark_component(struct maker *m, const struct stg_ref *ref)
{
    ref = stg_graph_source(m->graph, ref);
    if (ref->kind == STG_REF_ELEMENT)
        m->components[ref->index] = true;
}

static void mark(struct maker *m)
{
    const struct stg_graph *graph = m->graph;
    for (size_t i = 0; i < graph->boundary.n; i++) {
        stg_graph_mark(graph, &graph->features[i], m->staged, NULL);
        mark_component(m, &graph->features[i]);
    }
    for (size_t i = 0; i < graph->n_nodes; i++) {
        struct stg_ref ref = {.kind = STG_REF_NODE, .index = (uint32_t)i};
        if (m->computed[i]) {
            m->computed[i] = false; /* else it would count as done */
            stg_graph_mark(graph, &ref, m->computed, NULL);
        }
    }
    for (size_t i = 0; i < graph->spec->n_targets; i++) {
        struct stg_ref ref;
        struct stg_err err = {0};
        if (stg_graph_resolve(graph, graph->spec->targets[i], &ref, &err) == 0)
            stg_graph_mark(graph, &ref, m->computed, NULL);
    }
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const struct stg_graph_node *node = &graph->nodes[i];
        for (size_t k = 0; is_shown(m, (uint32_t)i) && k < node->n_inputs; k++)
            mark_component(m, &node->inputs[k]);
    }
}

/* ---- edges ---- */

/* False: a constant, or a feed that has a value. */
static bool make_edge(const struct maker *m, const struct stg_ref *ref,
                      struct stg_view_edge *ret)
{
    *ret = (struct stg_view_edge){.from = UINT32_MAX};
    ref = stg_graph_source(m->graph, ref);
    if (ref->kind == STG_REF_STAGED) {
        ret->staged = m->graph->boundary.components[ref->index].name;
        ref = stg_graph_source(m->graph, &m->graph->features[ref->index]);
    }
    if (ref->kind == STG_REF_ELEMENT)
        ret->from = m->component_at[ref->index];
    else if (ref->kind == STG_REF_NODE)
        ret->from = m->node_at[ref->index];
    ret->output = ref->kind == STG_REF_NODE ? ref->output : 0;
    return ret->from != UINT32_MAX;
}

static int add_node(struct maker *m, uint32_t index)
{
    const struct stg_graph_node *node = &m->graph->nodes[index];
    struct stg_view_node *to = &m->view.nodes[m->view.n_nodes];
    *to = (struct stg_view_node){
        .name = node->spec->name,
        .op = node->op,
        .index = index,
        .n_outputs = (uint32_t)node->n_outputs,
        .in_stage = m->staged[index],
        .in_compute = m->computed[index],
    };
    to->edges =
        stg_bump_alloc(m->bump, (node->n_inputs + node->n_controls) * sizeof(*to->edges));
    if (to->edges == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < node->n_inputs; i++)
        to->n_edges += make_edge(m, &node->inputs[i], &to->edges[to->n_edges]);
    for (size_t i = 0; i < node->n_controls; i++) {
        struct stg_ref ref = {.kind = STG_REF_NODE, .index = node->controls[i]};
        if (make_edge(m, &ref, &to->edges[to->n_edges]))
            to->edges[to->n_edges++].is_control = true;
    }
    m->node_at[index] = (uint32_t)m->view.n_nodes++;
    return 0;
}

static void add_components(struct maker *m)
{
    for (size_t i = 0; i < m->graph->element.n; i++) {
        if (!m->components[i])
            continue;
        m->component_at[i] = (uint32_t)m->view.n_nodes;
        m->view.nodes[m->view.n_nodes++] =
            (struct stg_view_node){.name = m->graph->element.components[i].name,
                                   .index = (uint32_t)i,
                                   .n_outputs = 1,
                                   .in_stage = true};
    }
}

static bool make_room(struct maker *m, const bool *computed)
{
    const struct stg_graph *graph = m->graph;
    size_t n = graph->n_nodes + graph->element.n;
    m->staged = stg_bump_alloc(m->bump, graph->n_nodes + 1);
    m->computed = stg_bump_alloc(m->bump, graph->n_nodes + 1);
    m->components = stg_bump_alloc(m->bump, graph->element.n + 1);
    m->node_at = stg_bump_alloc(m->bump, (graph->n_nodes + 1) * sizeof(*m->node_at));
    m->component_at =
        stg_bump_alloc(m->bump, (graph->element.n + 1) * sizeof(*m->component_at));
    m->view.nodes = stg_bump_alloc(m->bump, (n + 1) * sizeof(*m->view.nodes));
    m->view.features =
        stg_bump_alloc(m->bump, (graph->boundary.n + 1) * sizeof(*m->view.features));
    if (m->staged == NULL || m->computed == NULL || m->components == NULL ||
        m->node_at == NULL || m->component_at == NULL || m->view.nodes == NULL ||
        m->view.features == NULL)
        return false;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        m->computed[i] = computed != NULL && computed[i];
        m->node_at[i] = UINT32_MAX;
    }
    for (size_t i = 0; i < graph->element.n; i++)
        m->component_at[i] = UINT32_MAX;
    return true;
}

int stg_view_create(const struct stg_graph *graph, const bool *computed,
                    struct stg_bump *bump, struct stg_view *ret, struct stg_err *err)
{
    assert(graph->has_element);
    struct maker m = {.graph = graph, .bump = bump};
    int rc = make_room(&m, computed) ? 0 : -STAGER_RESOURCE_EXHAUSTED;
    if (rc == 0) {
        mark(&m);
        add_components(&m);
    }
    for (size_t i = 0; rc == 0 && i < graph->n_nodes; i++) {
        if (is_shown(&m, graph->order[i]))
            rc = add_node(&m, graph->order[i]);
    }
    if (rc < 0)
        return stg_err(err, rc, "out of memory");
    m.view.n_features = graph->boundary.n;
    for (size_t i = 0; i < graph->boundary.n; i++)
        make_edge(&m, &graph->features[i], &m.view.features[i]);
    *ret = m.view;
    return 0;
}
