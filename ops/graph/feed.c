/* SPDX-License-Identifier: Apache-2.0
 *
 * feed_dict: tensors of the stage subgraph that are something else. A reader of the
 * tensor reads the feed; what would have computed it runs only if something else needs
 * it.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/graph/priv.h"

static int blame(const struct stg_feed *feed, int code, struct stg_err *err)
{
    return stg_err_prefix(err, code, "staged.feed_dict.%s, line %d", feed->name,
                          feed->line);
}

/* ---- linking ---- */

static int link_target(struct stg_graph *graph, size_t i, struct stg_err *err)
{
    struct stg_graph_feed *feed = &graph->feeds[i];
    int rc = stg_graph_resolve_unfed(graph, feed->spec->name, &feed->target, err);
    if (rc < 0)
        return stg_graph_invalid(err);
    if (feed->target.kind == STG_REF_STAGED)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a tensor after the boundary cannot be fed: feed its inputs");
    for (size_t k = 0; k < i; k++) {
        if (stg_ref_same(&graph->feeds[k].target, &feed->target))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "the same tensor is fed on line %d",
                           graph->feeds[k].spec->line);
    }
    return 0;
}

/* A feed that is fed is what feeds it. */
static int link_source(struct stg_graph *graph, size_t i, struct stg_err *err)
{
    struct stg_graph_feed *feed = &graph->feeds[i];
    const char *name = feed->spec->tensor;
    if (name == NULL)
        return 0;
    struct stg_ref ref;
    int rc = stg_graph_resolve_unfed(graph, name, &ref, err);
    if (rc < 0) {
        stg_err_prefix(err, rc, "tensor");
        return stg_graph_invalid(err);
    }
    for (size_t step = 0;; step++) {
        struct stg_ref fed = stg_graph_fed(graph, ref);
        if (fed.kind != STG_REF_FEED || graph->feeds[fed.index].spec->tensor == NULL) {
            feed->source = fed;
            break;
        }
        if (step == graph->n_feeds || fed.index == i)
            return stg_err(
                err, -STAGER_INVALID_ARGUMENT,
                "the tensor \"%s\" is itself fed by this one: these feeds form "
                "a cycle",
                name);
        rc = stg_graph_resolve_unfed(graph, graph->feeds[fed.index].spec->tensor, &ref,
                                     err);
        if (rc < 0)
            return stg_graph_invalid(err);
    }
    feed->has_source = true;
    return 0;
}

/* In a client: the component of an element that is not known here, if a node reads it. */
static bool is_read(const struct stg_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->spec->n_nodes; i++) {
        const struct stg_node *node = &graph->spec->nodes[i];
        for (size_t k = 0; k < node->n_inputs; k++) {
            if (strcmp(node->inputs[k], name) == 0)
                return true;
        }
    }
    return false;
}

static int link_fed(struct stg_graph *graph, size_t i, struct stg_err *err)
{
    struct stg_graph_feed *feed = &graph->feeds[i];
    struct stg_feed *spec = stg_bump_alloc(&graph->bump, sizeof(*spec));
    if (spec == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    feed->component = graph->fed.components[i];
    *spec = (struct stg_feed){.name = feed->component.name, .client = true};
    feed->spec = spec;
    feed->is_ready = true;
    feed->is_carried = i + graph->n_carried >= graph->fed.n;
    int rc = stg_graph_resolve_unfed(graph, spec->name, &feed->target, err);
    if (rc == -STAGER_NOT_FOUND && is_read(graph, spec->name)) {
        feed->target = (struct stg_ref){.kind = STG_REF_UNKNOWN};
        rc = 0;
    }
    if (rc < 0)
        return rc;
    if (feed->target.kind == STG_REF_NODE) {
        const struct stg_op *op = stg_op_find(graph->nodes[feed->target.index].spec->op);
        if (op != NULL && (op->flags & STG_OP_VARIABLE) != 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "a variable cannot be fed; assign to it");
    } else if (feed->is_carried) {
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "it is not an output of a node");
    }
    for (size_t k = 0; k < i; k++) {
        if (strcmp(graph->feeds[k].spec->name, spec->name) == 0 ||
            (feed->target.kind != STG_REF_UNKNOWN &&
             stg_ref_same(&graph->feeds[k].target, &feed->target)))
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "it is fed twice");
    }
    return 0;
}

static int link_all_fed(struct stg_graph *graph, struct stg_err *err)
{
    size_t n = graph->fed.n;
    graph->feeds = stg_bump_alloc(&graph->bump, n * sizeof(*graph->feeds));
    if (graph->feeds == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int rc = link_fed(graph, i, err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "feed \"%s\"", graph->fed.components[i].name);
    }
    graph->n_feeds = n;
    return 0;
}

int stg_graph_link_feeds(struct stg_graph *graph, struct stg_err *err)
{
    if (!graph->has_element)
        return link_all_fed(graph, err);
    const struct stg_staged *staged = &graph->spec->staged;
    size_t n = staged->n_feeds;
    graph->feeds = stg_bump_alloc(&graph->bump, n * sizeof(*graph->feeds));
    if (graph->feeds == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        graph->feeds[i].spec = &staged->feeds[i];
        rc = link_target(graph, i, err);
        if (rc < 0)
            return blame(&staged->feeds[i], rc, err);
    }
    graph->n_feeds = n;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = link_source(graph, i, err);
        if (rc < 0)
            return blame(&staged->feeds[i], rc, err);
    }
    return rc;
}

/* ---- what a feed is ---- */

static int mismatch(const struct stg_graph_feed *feed, const struct stg_component *is,
                    const struct stg_component *wanted, struct stg_err *err)
{
    char got[128], want[128];
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%s%s%s is %s %s, but the tensor that it replaces is %s %s",
                   feed->spec->tensor != NULL ? "\"" : "the value",
                   feed->spec->tensor != NULL ? feed->spec->tensor : "",
                   feed->spec->tensor != NULL ? "\"" : "", stg_dtype_name(is->dtype),
                   stg_shape_text(is->shape, is->ndim, got, sizeof(got)),
                   stg_dtype_name(wanted->dtype),
                   stg_shape_text(wanted->shape, wanted->ndim, want, sizeof(want)));
}

/* The literal as a tensor of the dtype of what it replaces; a scalar fills any shape. */
static int make_value(struct stg_graph *graph, struct stg_graph_feed *feed,
                      const struct stg_component *wanted, struct stg_err *err)
{
    const struct stg_attr *value = feed->spec->value;
    struct stg_component is = {.dtype = wanted->dtype, .ndim = value->ndim};
    bool fills = value->ndim == 0;
    for (int d = 0; d < value->ndim; d++)
        is.shape[d] = value->shape[d];
    for (int d = 0; fills && d < wanted->ndim; d++)
        fills = wanted->shape[d] >= 0;
    if (fills)
        is = *wanted;
    if (!stg_component_fits(&is, wanted))
        return mismatch(feed, &is, wanted, err);
    int rc = stg_literal_tensor(value->values, value->n_values, is.dtype, is.ndim,
                                is.shape, &graph->bump, &feed->value, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "value");
    feed->component = feed->spec->client ? *wanted : is;
    return 0;
}

static int check_side(const struct stg_graph *graph, const struct stg_ref *ref,
                      const char *name, struct stg_err *err)
{
    if ((stg_graph_depends(graph, ref) & (STG_DEPENDS_STAGED | STG_DEPENDS_VARIABLE)) ==
        0)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "\"%s\" is computed in the trainer (it depends on a variable or on a "
                   "\"staged:\" tensor); feed_dict applies to the stage subgraph",
                   name);
}

static int infer(struct stg_graph *graph, struct stg_graph_feed *feed,
                 struct stg_err *err)
{
    int rc = check_side(graph, &feed->target, feed->spec->name, err);
    if (rc == 0 && feed->has_source)
        rc = check_side(graph, &feed->source, feed->spec->tensor, err);
    if (rc < 0)
        return rc;
    const struct stg_component *wanted = stg_graph_component(graph, &feed->target);
    if (wanted == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "the node has %zu outputs",
                       graph->nodes[feed->target.index].n_outputs);
    if (!feed->has_source)
        return make_value(graph, feed, wanted, err);
    const struct stg_component *is = stg_graph_component(graph, &feed->source);
    if (is == NULL && feed->source.kind == STG_REF_NODE)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "tensor: \"%s\" has %zu outputs",
                       feed->spec->tensor, graph->nodes[feed->source.index].n_outputs);
    if (!stg_component_fits(is, wanted))
        return mismatch(feed, is, wanted, err);
    feed->component = *is;
    return 0;
}

int stg_graph_make_value(struct stg_graph *graph, const struct stg_ref *ref,
                         struct stg_err *err)
{
    struct stg_graph_feed *feed = &graph->feeds[ref->index];
    if (feed->has_source && feed->source.kind == STG_REF_FEED)
        feed = &graph->feeds[feed->source.index];
    if (feed->has_source || feed->is_ready)
        return 0;
    int rc = infer(graph, feed, err);
    if (rc < 0)
        return blame(feed->spec, rc, err);
    feed->is_ready = true;
    return 0;
}

int stg_graph_infer_feeds(struct stg_graph *graph, struct stg_err *err)
{
    for (size_t i = 0; i < graph->n_feeds; i++) {
        struct stg_graph_feed *feed = &graph->feeds[i];
        struct stg_ref ref = {.kind = STG_REF_FEED, .index = (uint32_t)i};
        int rc = stg_graph_make_value(graph, &ref, err);
        if (rc < 0)
            return rc;
        if (feed->is_ready)
            continue;
        rc = infer(graph, feed, err);
        if (rc < 0)
            return blame(feed->spec, rc, err);
        feed->is_ready = true;
    }
    return 0;
}

/* ---- what is needed ---- */

int stg_graph_check_needed(struct stg_graph *graph, struct stg_err *err)
{
    bool *needed = stg_bump_alloc(&graph->bump, graph->n_nodes * sizeof(*needed));
    bool *fed = stg_bump_alloc(&graph->bump, graph->n_feeds * sizeof(*fed));
    if (needed == NULL || fed == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < graph->boundary.n; i++)
        stg_graph_mark(graph, &graph->features[i], needed, fed);
    for (size_t i = 0; i < graph->n_nodes; i++) {
        if (needed[i] && (graph->nodes[i].op->flags & STG_OP_PLACEHOLDER) != 0)
            return stg_graph_blame(
                &graph->nodes[i],
                stg_err(err, -STAGER_INVALID_ARGUMENT,
                        "a feature needs this placeholder, but nothing feeds it: add it "
                        "to staged.feed_dict"),
                err);
    }
    for (size_t i = 0; i < graph->n_feeds; i++)
        graph->feeds[i].is_needed = fed[i];
    return 0;
}

/* ---- questions ---- */

/* Marks `tensor` and all that it is made of. */
static void mark_sources(const struct stg_graph *graph, const struct stg_ref *ref,
                         bool *nodes, bool *staged)
{
    if (ref->kind == STG_REF_STAGED)
        staged[ref->index] = true;
    if (ref->kind != STG_REF_NODE)
        return;
    uint32_t index = graph->nodes[ref->index].same_as;
    const struct stg_graph_node *node = &graph->nodes[index];
    if (nodes[index])
        return;
    nodes[index] = true;
    for (size_t i = 0; i < node->n_inputs; i++)
        mark_sources(graph, &node->inputs[i], nodes, staged);
    for (size_t i = 0; i < node->n_controls; i++) {
        struct stg_ref control = {.kind = STG_REF_NODE, .index = node->controls[i]};
        mark_sources(graph, &control, nodes, staged);
    }
}

static bool any_marked(const struct stg_graph *graph, const struct stg_schema *fed,
                       const bool *nodes, const bool *staged)
{
    for (size_t i = 0; i < fed->n; i++) {
        struct stg_ref ref;
        if (stg_graph_resolve_unfed(graph, fed->components[i].name, &ref, NULL) < 0)
            continue;
        if (ref.kind == STG_REF_STAGED
                ? staged[ref.index]
                : ref.kind == STG_REF_NODE && nodes[graph->nodes[ref.index].same_as])
            return true;
    }
    return false;
}

bool stg_graph_is_made_of(const struct stg_graph *graph, const char *tensor,
                          const struct stg_schema *fed)
{
    struct stg_ref ref;
    if (fed->n == 0 || stg_graph_resolve_unfed(graph, tensor, &ref, NULL) < 0)
        return false;
    bool *nodes = calloc(graph->n_nodes + 1, sizeof(*nodes));
    bool *staged = calloc(graph->boundary.n + 1, sizeof(*staged));
    bool is_made_of = true; /* without memory to know it: to be on the safe side */
    if (nodes != NULL && staged != NULL) {
        mark_sources(graph, &ref, nodes, staged);
        is_made_of = any_marked(graph, fed, nodes, staged);
    }
    free(nodes);
    free(staged);
    return is_made_of;
}

size_t stg_graph_n_feeds(const struct stg_graph *graph)
{
    return graph->n_feeds;
}

bool stg_graph_feed_needed(const struct stg_graph *graph, size_t i)
{
    return graph->feeds[i].is_needed;
}

const struct stg_component *stg_graph_feed(const struct stg_graph *graph, size_t i,
                                           const struct stg_tensor **ret_value)
{
    const struct stg_graph_feed *feed = &graph->feeds[i];
    *ret_value = feed->has_source ? NULL : &feed->value;
    return &feed->component;
}

int stg_graph_find_feed(const struct stg_graph *graph, const char *name, size_t *ret,
                        struct stg_err *err)
{
    struct stg_ref ref;
    int rc = stg_graph_resolve(graph, name, &ref, err);
    if (rc < 0)
        return rc;
    if (ref.kind != STG_REF_FEED || !graph->feeds[ref.index].spec->client)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "\"%s\" cannot be set by a client: staged.feed_dict has no entry "
                       "for it with client: true",
                       name);
    *ret = ref.index;
    return 0;
}
