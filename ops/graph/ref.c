/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph has of a tensor or of a node. The other files of this folder use this
 * one.
 */
#include <string.h>

#include "ops/graph/priv.h"

bool stg_ref_same(const struct stg_ref *a, const struct stg_ref *b)
{
    return a->kind == b->kind && a->index == b->index && a->output == b->output;
}

const struct stg_component *stg_graph_component(const struct stg_graph *graph,
                                                const struct stg_ref *ref)
{
    switch (ref->kind) {
    case STG_REF_NODE: {
        const struct stg_graph_node *node = &graph->nodes[ref->index];
        if (!node->inferred || ref->output >= node->n_outputs)
            return NULL;
        return &node->outputs[ref->output];
    }
    case STG_REF_ELEMENT: return &graph->element.components[ref->index];
    case STG_REF_STAGED:
        return ref->index < graph->boundary.n ? &graph->boundary.components[ref->index]
                                              : NULL;
    case STG_REF_FEED: {
        const struct stg_graph_feed *feed = &graph->feeds[ref->index];
        return feed->has_source ? stg_graph_component(graph, &feed->source)
                                : &feed->component;
    }
    case STG_REF_UNKNOWN: return NULL;
    }
    return NULL;
}

const struct stg_ref *stg_graph_source(const struct stg_graph *graph,
                                       const struct stg_ref *ref)
{
    return ref->kind == STG_REF_FEED && graph->feeds[ref->index].has_source
               ? &graph->feeds[ref->index].source
               : ref;
}

const struct stg_ref *stg_graph_follow(const struct stg_graph *graph,
                                       const struct stg_ref *ref)
{
    if (ref->kind == STG_REF_STAGED && graph->has_element)
        ref = &graph->features[ref->index];
    return stg_graph_source(graph, ref);
}

const struct stg_tensor *stg_graph_constant(const struct stg_graph *graph,
                                            const struct stg_ref *ref)
{
    if (ref->kind == STG_REF_FEED) {
        const struct stg_graph_feed *feed = &graph->feeds[ref->index];
        if (feed->has_source)
            return stg_graph_constant(graph, &feed->source);
        return feed->is_ready && !feed->spec->client ? &feed->value : NULL;
    }
    if (ref->kind != STG_REF_NODE)
        return NULL;
    const struct stg_graph_node *node = &graph->nodes[ref->index];
    return node->values != NULL && ref->output < node->n_outputs
               ? &node->values[ref->output]
               : NULL;
}

unsigned stg_graph_depends(const struct stg_graph *graph, const struct stg_ref *ref)
{
    switch (ref->kind) {
    case STG_REF_NODE: return graph->nodes[ref->index].depends;
    case STG_REF_STAGED: return STG_DEPENDS_STAGED;
    case STG_REF_FEED: {
        const struct stg_graph_feed *feed = &graph->feeds[ref->index];
        return (graph->has_element ? STG_DEPENDS_ELEMENT : 0u) |
               (feed->has_source ? stg_graph_depends(graph, &feed->source) : 0u);
    }
    case STG_REF_ELEMENT:
    case STG_REF_UNKNOWN: return STG_DEPENDS_ELEMENT;
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

/* ---- feeds ---- */

struct stg_ref stg_graph_fed(const struct stg_graph *graph, struct stg_ref ref)
{
    for (size_t i = 0; i < graph->n_feeds; i++) {
        if (stg_ref_same(&graph->feeds[i].target, &ref))
            return (struct stg_ref){.kind = STG_REF_FEED, .index = (uint32_t)i};
    }
    return ref;
}

int stg_graph_fed_component(const struct stg_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_feeds; i++) {
        if (graph->feeds[i].target.kind == STG_REF_UNKNOWN &&
            strcmp(graph->feeds[i].spec->name, name) == 0)
            return (int)i;
    }
    return -1;
}

/* Does the feed hold for that node? */
static bool is_carried_of(const struct stg_graph *graph, size_t feed, uint32_t node)
{
    return graph->feeds[feed].is_carried &&
           graph->nodes[graph->feeds[feed].target.index].same_as == node;
}

struct stg_ref stg_graph_carried(const struct stg_graph *graph, struct stg_ref ref)
{
    for (size_t i = 0; ref.kind == STG_REF_NODE && i < graph->n_feeds; i++) {
        if (is_carried_of(graph, i, ref.index) &&
            graph->feeds[i].target.output == ref.output)
            return (struct stg_ref){.kind = STG_REF_FEED, .index = (uint32_t)i};
    }
    return ref;
}

bool stg_graph_is_carried(const struct stg_graph *graph, uint32_t node)
{
    for (size_t i = 0; i < graph->n_feeds; i++) {
        if (is_carried_of(graph, i, node))
            return true;
    }
    return false;
}

const struct stg_ref *stg_graph_awaited(const struct stg_graph *graph,
                                        const struct stg_ref *ref)
{
    if (ref->kind == STG_REF_FEED) {
        const struct stg_graph_feed *feed = &graph->feeds[ref->index];
        ref = !feed->has_source ? &feed->target
              : feed->source.kind != STG_REF_FEED
                  ? &feed->source
                  : &graph->feeds[feed->source.index].target;
    }
    return ref->kind == STG_REF_NODE ? ref : NULL;
}

/* ---- what a tensor needs ---- */

void stg_graph_mark(const struct stg_graph *graph, const struct stg_ref *ref,
                    bool *needed, bool *fed)
{
    if (ref->kind == STG_REF_STAGED && graph->has_element)
        ref = &graph->features[ref->index];
    while (ref->kind == STG_REF_FEED) {
        const struct stg_graph_feed *feed = &graph->feeds[ref->index];
        if (fed != NULL)
            fed[ref->index] = true;
        if (!feed->has_source)
            return;
        ref = &feed->source;
    }
    if (ref->kind != STG_REF_NODE || needed[ref->index])
        return;
    needed[ref->index] = true;
    const struct stg_graph_node *node = &graph->nodes[ref->index];
    if (node->values != NULL)
        return;
    for (size_t i = 0; i < node->n_inputs; i++)
        stg_graph_mark(graph, &node->inputs[i], needed, fed);
    for (size_t i = 0; i < node->n_controls; i++) {
        struct stg_ref control = {.kind = STG_REF_NODE, .index = node->controls[i]};
        stg_graph_mark(graph, &control, needed, fed);
    }
}

/* ---- errors ---- */

int stg_graph_blame(const struct stg_graph_node *node, int code, struct stg_err *err)
{
    const struct stg_node *spec = node->spec;
    if (spec->line > 0)
        return stg_err_prefix(err, code, "node %s (%s), line %d", spec->name, spec->op,
                              spec->line);
    return stg_err_prefix(err, code, "node %s (%s)", spec->name, spec->op);
}

int stg_graph_invalid(struct stg_err *err)
{
    if (err != NULL)
        err->code = -STAGER_INVALID_ARGUMENT;
    return -STAGER_INVALID_ARGUMENT;
}

bool stg_graph_is_weak(const struct stg_graph_node *node)
{
    return (node->op->flags & STG_OP_CONSTANT) != 0 &&
           stg_attr_bool(node->spec->attrs, node->spec->n_attrs, "weak", false);
}
