/* SPDX-License-Identifier: Apache-2.0
 *
 * What clients need of their batches.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/partition/priv.h"

/* ---- fields ---- */

static int add_field(const struct stg_partitions *partitions,
                     struct stg_partition_needs *needs, const char *field,
                     struct stg_err *err)
{
    if (stg_schema_pick(stg_graph_boundary(partitions->graph), field, needs->fields))
        return 0;
    struct stg_ref ref;
    char name[512] = "staged:";
    strncat(name, field, sizeof(name) - sizeof("staged:"));
    int rc = stg_graph_resolve(partitions->graph, name, &ref, err);
    return stg_err_prefix(err, rc < 0 ? rc : -STAGER_NOT_FOUND, "field \"%.64s\"", field);
}

static int add_fields(const struct stg_partitions *partitions,
                      const struct stg_partition_wanted *wanted,
                      struct stg_partition_needs *needs, struct stg_err *err)
{
    for (size_t i = 0; !wanted->has_fields && i < partitions->graph->boundary.n; i++)
        needs->fields[i] = true;
    int rc = 0;
    for (size_t i = 0; rc == 0 && wanted->has_fields && i < wanted->n_fields; i++)
        rc = add_field(partitions, needs, wanted->fields[i], err);
    return rc;
}

/* ---- fetches ---- */

static int add_fetches(const struct stg_partitions *partitions,
                       const struct stg_partition_wanted *wanted,
                       struct stg_partition_needs *needs, struct stg_err *err)
{
    const struct stg_pipeline_spec *spec = partitions->graph->spec;
    const char *const *fetches = wanted->has_fetches ? wanted->fetches : spec->targets;
    size_t n = wanted->has_fetches ? wanted->n_fetches : spec->n_targets;
    needs->fetches = stg_bump_alloc(&needs->bump, n * sizeof(*needs->fetches));
    if (needs->fetches == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int rc =
            stg_graph_resolve(partitions->graph, fetches[i], &needs->fetches[i], err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "fetch \"%.64s\"", fetches[i]);
    }
    needs->n_fetches = n;
    return 0;
}

static bool is_fetched(const struct stg_partition_needs *needs, uint32_t node)
{
    for (size_t i = 0; i < needs->n_fetches; i++) {
        if (needs->fetches[i].kind == STG_REF_NODE && needs->fetches[i].index == node)
            return true;
    }
    return false;
}

static bool any_of(const struct stg_graph_node *node, const bool *set)
{
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].kind == STG_REF_NODE && set[node->inputs[i].index])
            return true;
    }
    for (size_t i = 0; i < node->n_controls; i++) {
        if (set[node->controls[i]])
            return true;
    }
    return false;
}

/* above, below: one a node of the graph, false. A fetch of a feature that crosses in half
 * its width is of the feature, and keeps nothing back. */
static void find_sides(const struct stg_partitions *partitions,
                       struct stg_partition_needs *needs, bool *above, bool *below)
{
    const struct stg_graph *graph = partitions->graph;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        uint32_t index = graph->order[i];
        below[index] =
            any_of(&graph->nodes[index], below) ||
            (is_fetched(needs, index) && !stg_partition_is_widening(graph, index));
    }
    for (size_t i = graph->n_nodes; i-- > 0;) {
        uint32_t index = graph->order[i];
        if (above[index] || is_fetched(needs, index))
            stg_partition_spread_up(&graph->nodes[index], above);
    }
    for (size_t i = 0; i < partitions->n_nodes; i++) {
        needs->above[i] = above[partitions->nodes[i]];
        needs->stays[i] = below[partitions->nodes[i]];
    }
}

static int place_fetches(const struct stg_partitions *partitions,
                         struct stg_partition_needs *needs)
{
    size_t n = partitions->graph->n_nodes;
    bool *above = calloc(n + 1, sizeof(*above)), *below = calloc(n + 1, sizeof(*below));
    bool ok = above != NULL && below != NULL;
    if (ok)
        find_sides(partitions, needs, above, below);
    free(above);
    free(below);
    return ok ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

/* ---- life ---- */

static int fill(const struct stg_partitions *partitions,
                const struct stg_partition_wanted *wanted,
                struct stg_partition_needs *needs, struct stg_err *err)
{
    needs->in_slices = wanted->in_slices;
    needs->fields = stg_bump_alloc(&needs->bump, partitions->graph->boundary.n *
                                                     sizeof(*needs->fields));
    needs->above =
        stg_bump_alloc(&needs->bump, partitions->n_nodes * sizeof(*needs->above));
    needs->stays =
        stg_bump_alloc(&needs->bump, partitions->n_nodes * sizeof(*needs->stays));
    if (needs->fields == NULL || needs->above == NULL || needs->stays == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = add_fields(partitions, wanted, needs, err);
    if (rc == 0)
        rc = add_fetches(partitions, wanted, needs, err);
    if (rc == 0 && place_fetches(partitions, needs) < 0)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0 && stg_partition_any_unsupported(partitions, wanted))
        rc = stg_partition_place_unsupported(partitions, wanted, needs, err);
    return rc;
}

int stg_partition_needs_create(const struct stg_partitions *partitions,
                               const struct stg_partition_wanted *wanted,
                               struct stg_partition_needs **ret, struct stg_err *err)
{
    struct stg_partition_needs *needs = calloc(1, sizeof(*needs));
    if (needs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = fill(partitions, wanted, needs, err);
    if (rc < 0) {
        stg_partition_needs_destroy(needs);
        return rc;
    }
    *ret = needs;
    return 0;
}

void stg_partition_needs_destroy(struct stg_partition_needs *needs)
{
    if (needs == NULL)
        return;
    stg_bump_finish(&needs->bump);
    free(needs);
}

/* ---- among clients ---- */

bool stg_partition_needs_compute(const struct stg_partition_needs *needs)
{
    bool any = false;
    for (size_t i = 0; i < needs->n_fetches; i++)
        any = any || needs->fetches[i].kind == STG_REF_NODE;
    return any;
}

bool stg_partition_needs_ahead(const struct stg_partitions *partitions,
                               const struct stg_partition_needs *needs)
{
    bool any = false;
    for (size_t i = 0; needs->ahead != NULL && i < partitions->n_nodes; i++)
        any = any || needs->ahead[i];
    return any;
}

int stg_partition_needs_agree(const struct stg_partitions *partitions,
                              const struct stg_partition_needs *needs,
                              const struct stg_partition_needs *other,
                              struct stg_err *err)
{
    for (size_t i = 0; needs->ahead != NULL && i < partitions->n_nodes; i++) {
        const struct stg_graph_node *node =
            &partitions->graph->nodes[partitions->nodes[i]];
        bool in_rows = !other->in_slices || partitions->in_rows[i];
        if (!needs->ahead[i] || (!other->stays[i] && in_rows))
            continue;
        stg_err(err, -STAGER_FAILED_PRECONDITION,
                "it must run in stagerd, because the build of one trainer cannot compute "
                "it or a node after it; it must also run in the other trainer, which %s",
                other->stays[i]
                    ? "fetches it or one of its inputs"
                    : "slices batches, and the node does not compute each row by itself");
        return stg_graph_blame(node, -STAGER_FAILED_PRECONDITION, err);
    }
    return 0;
}

static bool has_fetch(const struct stg_partition_needs *needs,
                      const struct stg_ref *fetch)
{
    for (size_t i = 0; i < needs->n_fetches; i++) {
        if (stg_ref_same(&needs->fetches[i], fetch))
            return true;
    }
    return false;
}

/* Might its batches hold what is not made of each row by itself? */
static bool may_mix_rows(const struct stg_partitions *partitions,
                         const struct stg_partition_needs *needs)
{
    bool may = false;
    for (size_t i = 0; i < partitions->n_nodes && !needs->in_slices; i++)
        may = may || (needs->above[i] && !needs->stays[i] && !partitions->in_rows[i]);
    return may;
}

bool stg_partition_needs_within(const struct stg_partitions *partitions,
                                const struct stg_partition_needs *needs,
                                const struct stg_partition_needs *wider)
{
    bool has_all = true, within = true;
    if (needs->in_slices && may_mix_rows(partitions, wider))
        return false;
    for (size_t i = 0; i < partitions->graph->boundary.n; i++) {
        has_all = has_all && wider->fields[i];
        within = within && (wider->fields[i] || !needs->fields[i]);
    }
    for (size_t i = 0; i < needs->n_fetches; i++)
        within = within && has_fetch(wider, &needs->fetches[i]);
    within = within || has_all;
    for (size_t i = 0; needs->ahead != NULL && i < partitions->n_nodes; i++)
        within =
            within && (!needs->ahead[i] || (wider->ahead != NULL && wider->ahead[i]));
    return within;
}

/* ---- what they need of a partition ---- */

/* A walk from fetches up to where a tensor crosses. */
struct mark {
    const struct stg_partitions *partitions;
    const bool *moved; /* what these make crosses: marked in `carried` … */
    const bool *given; /* … or, not NULL: what crosses, and is not looked behind */
    const bool *unsupported; /* the client cannot compute these nodes; NULL: all */
    bool *ret_helps;         /* set to false when it would have to */
    bool *seen;
    bool *carried;
};

/* Does slot i, of a node, stand before that output of the node at `place`? */
static bool is_before(const struct stg_partitions *partitions, size_t i, uint32_t place,
                      uint32_t output)
{
    uint32_t at = partitions->place[partitions->ref[i].index];
    return at < place || (at == place && partitions->ref[i].output < output);
}

/* The slot of that output of a node that may move, or 0: that of a feature. They stand in
 * the order of the nodes. */
static size_t find_slot(const struct stg_partitions *partitions,
                        const struct stg_ref *ref)
{
    size_t low = partitions->graph->boundary.n, high = partitions->slots.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_before(partitions, middle, partitions->place[ref->index], ref->output))
            low = middle + 1;
        else
            high = middle;
    }
    return low < partitions->slots.n && stg_ref_same(&partitions->ref[low], ref) ? low
                                                                                 : 0;
}

/* Does the walk end at this output of a node? */
static bool crosses(const struct mark *mark, const struct stg_ref *ref)
{
    uint32_t place = mark->partitions->place[ref->index];
    if (place == STG_NOT_MOVABLE || (mark->given == NULL && !mark->moved[place]))
        return false;
    size_t slot = find_slot(mark->partitions, ref);
    if (mark->given != NULL)
        return slot != 0 && mark->given[slot];
    if (slot != 0)
        mark->carried[slot] = true;
    return slot != 0;
}

static void mark_node(const struct mark *mark, uint32_t index);

static void mark_ref(const struct mark *mark, const struct stg_ref *ref)
{
    if (ref->kind == STG_REF_STAGED)
        mark->carried[ref->index] = true;
    else if (ref->kind == STG_REF_NODE && !crosses(mark, ref))
        mark_node(mark, ref->index);
}

/* Any output of it says that the node ran. */
static void mark_control(const struct mark *mark, uint32_t node)
{
    struct stg_ref ref = {.kind = STG_REF_NODE, .index = node};
    uint32_t n_outputs = (uint32_t)mark->partitions->graph->nodes[node].n_outputs;
    for (uint32_t i = 1; mark->given != NULL && i < n_outputs; i++) {
        ref.output = i;
        if (crosses(mark, &ref))
            return;
    }
    ref.output = 0;
    mark_ref(mark, &ref);
}

static void mark_node(const struct mark *mark, uint32_t index)
{
    const struct stg_graph_node *node = &mark->partitions->graph->nodes[index];
    if (mark->seen[index] || node->values != NULL)
        return;
    mark->seen[index] = true;
    if (mark->unsupported != NULL && mark->unsupported[index])
        *mark->ret_helps = false;
    for (size_t i = 0; i < node->n_inputs; i++)
        mark_ref(mark, &node->inputs[i]);
    for (size_t i = 0; i < node->n_controls; i++)
        mark_control(mark, node->controls[i]);
}

static void mark_all(const struct mark *mark, const struct stg_partition_needs *needs)
{
    for (size_t i = 0; i < mark->partitions->graph->boundary.n; i++)
        mark->carried[i] = mark->carried[i] || needs->fields[i];
    for (size_t i = 0; i < needs->n_fetches; i++)
        mark_ref(mark, &needs->fetches[i]);
    stg_schema_pick_whole(&mark->partitions->graph->boundary, mark->carried);
}

void stg_partition_mark(const struct stg_partitions *partitions,
                        const struct stg_partition_needs *needs, const bool *moved,
                        bool *seen, bool *carried)
{
    struct mark mark = {
        .partitions = partitions, .moved = moved, .seen = seen, .carried = carried};
    mark_all(&mark, needs);
}

bool stg_partition_mark_given(const struct stg_partitions *partitions,
                              const struct stg_partition_needs *needs, const bool *given,
                              bool *seen, bool *wanted)
{
    bool helps = true;
    struct mark mark = {.partitions = partitions,
                        .given = given,
                        .unsupported = needs->unsupported,
                        .ret_helps = &helps,
                        .seen = seen,
                        .carried = wanted};
    mark_all(&mark, needs);
    return helps;
}
