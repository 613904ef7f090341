/* SPDX-License-Identifier: Apache-2.0
 *
 * What a client cannot compute runs ahead of it: what its build does not have, and what
 * looks words up in a vocabulary, which no client has.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/partition/priv.h"

/* ---- which nodes ---- */

/* Behind the boundary. */
static bool reads_table(const struct stg_graph *graph, uint32_t index)
{
    const struct stg_graph_node *node = &graph->nodes[index];
    bool reads = false;
    for (size_t i = 0; i < node->n_inputs; i++)
        reads |= stg_partition_is_table(graph, &node->inputs[i]);
    return reads && (node->depends & STG_DEPENDS_ELEMENT) == 0;
}

static void find_unsupported(const struct stg_partitions *partitions,
                             const struct stg_partition_wanted *wanted, bool *unsupported)
{
    const struct stg_graph *graph = partitions->graph;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        unsupported[i] |= reads_table(graph, (uint32_t)i);
        for (size_t k = 0; k < wanted->n_unsupported; k++) {
            if (strcmp(graph->nodes[i].spec->name, wanted->unsupported[k]) == 0)
                unsupported[graph->nodes[i].same_as] = true;
        }
    }
}

/* All nodes behind the boundary that the fetches are made of, what is known ahead too:
 * the owner of the graph makes it from its ops. What makes a tensor that has to cross is
 * not needed for that. */
static void find_needed(const struct stg_partitions *partitions,
                        const struct stg_partition_needs *needs, bool *needed)
{
    const struct stg_graph *graph = partitions->graph;
    for (size_t i = 0; i < needs->n_fetches; i++) {
        if (needs->fetches[i].kind == STG_REF_NODE)
            needed[needs->fetches[i].index] = true;
    }
    for (size_t i = graph->n_nodes; i-- > 0;) {
        uint32_t index = graph->order[i];
        if (needed[index] && !needs->unsupported[index])
            stg_partition_spread_up(&graph->nodes[index], needed);
    }
}

/* ---- what cannot be ---- */

static const char *why_it_stays(const struct stg_partitions *partitions,
                                const struct stg_partition_needs *needs, uint32_t index)
{
    const struct stg_graph *graph = partitions->graph;
    const struct stg_graph_node *node = &graph->nodes[index];
    uint32_t place = partitions->place[index];
    if (graph->spec->smart_stage == STG_SMART_STAGE_OFF)
        return "smart_stage is off: set it to on or auto";
    if (place == STG_NOT_MOVABLE && stg_partition_is_target(graph, index))
        return "it is a target";
    if (place == STG_NOT_MOVABLE && (node->depends & STG_DEPENDS_VARIABLE) != 0)
        return "it is or depends on a variable";
    if (place == STG_NOT_MOVABLE && (node->depends & STG_DEPENDS_PLACEHOLDER) != 0)
        return "it is or depends on a placeholder";
    if (place == STG_NOT_MOVABLE &&
        ((node->depends & STG_DEPENDS_STAGED) == 0 || node->values != NULL))
        return "it does not depend on a staged tensor";
    if (place == STG_NOT_MOVABLE)
        return "it is or depends on a target or an assert";
    if (needs->stays[place])
        return "it is a fetch or depends on one";
    if (needs->in_slices && !partitions->in_rows[place])
        return "batches are sliced, and it does not compute each row by itself";
    return NULL;
}

static int blame(const struct stg_graph *graph, uint32_t index, const char *why,
                 struct stg_err *err)
{
    if (reads_table(graph, index))
        stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            "a vocabulary exists only in stagerd, which cannot run this node ahead of "
            "trainers: %s; or look words up before the boundary, and stage the ids",
            why);
    else
        stg_err(err, -STAGER_FAILED_PRECONDITION,
                "this trainer's build of libstager-compute cannot compute it, and "
                "stagerd cannot run it ahead: %s; or install the build of stagerd for "
                "the trainer, or name `fetches` that do not need it",
                why);
    return stg_graph_blame(&graph->nodes[index], -STAGER_FAILED_PRECONDITION, err);
}

static int check(const struct stg_partitions *partitions,
                 const struct stg_partition_needs *needs, const bool *needed,
                 struct stg_err *err)
{
    const struct stg_graph *graph = partitions->graph;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        uint32_t index = graph->order[i];
        const char *why = needed[index] && needs->unsupported[index]
                              ? why_it_stays(partitions, needs, index)
                              : NULL;
        if (why != NULL)
            return blame(graph, index, why, err);
    }
    return 0;
}

/* ---- what has to run ahead ---- */

/* Those, and what comes before them; `set` begins as those alone. */
static void find_ahead(const struct stg_partitions *partitions,
                       struct stg_partition_needs *needs, bool *set)
{
    const struct stg_graph *graph = partitions->graph;
    for (size_t i = 0; i < graph->n_nodes; i++)
        set[i] = set[i] && needs->unsupported[i];
    for (size_t i = graph->n_nodes; i-- > 0;) {
        uint32_t index = graph->order[i];
        if (set[index])
            stg_partition_spread_up(&graph->nodes[index], set);
    }
    for (size_t i = 0; i < partitions->n_nodes; i++)
        needs->ahead[i] = set[partitions->nodes[i]];
}

bool stg_partition_any_unsupported(const struct stg_partitions *partitions,
                                   const struct stg_partition_wanted *wanted)
{
    bool any = wanted->n_unsupported > 0;
    for (size_t i = 0; !any && i < partitions->graph->n_nodes; i++)
        any = reads_table(partitions->graph, (uint32_t)i);
    return any;
}

int stg_partition_place_unsupported(const struct stg_partitions *partitions,
                                    const struct stg_partition_wanted *wanted,
                                    struct stg_partition_needs *needs,
                                    struct stg_err *err)
{
    size_t n = partitions->graph->n_nodes;
    bool *needed = calloc(n + 1, sizeof(*needed));
    needs->unsupported = stg_bump_alloc(&needs->bump, n * sizeof(*needs->unsupported));
    needs->ahead =
        stg_bump_alloc(&needs->bump, partitions->n_nodes * sizeof(*needs->ahead));
    int rc = 0;
    if (needed == NULL || needs->unsupported == NULL || needs->ahead == NULL) {
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    } else {
        find_unsupported(partitions, wanted, needs->unsupported);
        find_needed(partitions, needs, needed);
        rc = check(partitions, needs, needed, err);
        if (rc == 0)
            find_ahead(partitions, needs, needed);
    }
    free(needed);
    return rc;
}
