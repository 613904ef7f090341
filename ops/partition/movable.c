/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes may move, and what can cross then.
 */
#include "ops/partition/priv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool stg_partition_is_widening(const struct stg_graph *graph, uint32_t node)
{
    for (size_t i = 0; i < graph->n_transfers; i++) {
        if (graph->transfers[i].widen == node)
            return true;
    }
    return false;
}

void stg_partition_spread_up(const struct stg_graph_node *node, bool *set)
{
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].kind == STG_REF_NODE)
            set[node->inputs[i].index] = true;
    }
    for (size_t i = 0; i < node->n_controls; i++)
        set[node->controls[i]] = true;
}

/* ---- which nodes may move ---- */

/* A node may move, or may run on both sides (pure, and from no staged tensor), or stays;
 * and it may be that for batches that are sliced into rows. */
struct verdict {
    bool moves, is_free, in_rows;
};

static bool is_fine(const struct verdict *verdicts, uint32_t node)
{
    return verdicts[node].moves || verdicts[node].is_free;
}

/* What an input needs that its reader may move. */
static bool input_is_fine(const struct verdict *verdicts, const struct stg_ref *ref)
{
    return ref->kind == STG_REF_NODE ? is_fine(verdicts, ref->index)
                                     : ref->kind == STG_REF_STAGED;
}

/* A tensor that has a row for each row of the batch, however that is sliced. */
static bool has_rows(const struct stg_graph *graph, const struct verdict *verdicts,
                     const struct stg_ref *ref)
{
    if (ref->kind == STG_REF_NODE)
        return verdicts[ref->index].in_rows;
    if (ref->kind != STG_REF_STAGED)
        return false;
    const struct stg_component *c = &graph->boundary.components[ref->index];
    uint32_t next = ref->index + 1 < graph->boundary.n ? c[1].part : STG_PART_VALUES;
    return c->ndim > 0 && c->part == STG_PART_VALUES && next != STG_PART_ROW_SPLITS &&
           next != STG_PART_INDICES;
}

bool stg_partition_is_table(const struct stg_graph *graph, const struct stg_ref *ref)
{
    return ref->kind == STG_REF_NODE &&
           (graph->nodes[ref->index].op->flags & STG_OP_TABLE) != 0;
}

/* All inputs with rows have one rank; the others are known, and of a lower one, so that
 * they meet each row alike. */
static bool is_in_rows(const struct stg_graph *graph, const struct verdict *verdicts,
                       const struct stg_graph_node *node)
{
    int rank = 0;
    if ((node->op->flags & STG_OP_ROW_WISE) == 0)
        return false;
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (!has_rows(graph, verdicts, &node->inputs[i]))
            continue;
        int ndim = stg_graph_component(graph, &node->inputs[i])->ndim;
        if (rank != 0 && ndim != rank)
            return false;
        rank = ndim;
    }
    for (size_t i = 0; i < node->n_inputs; i++) {
        const struct stg_ref *ref = &node->inputs[i];
        if (has_rows(graph, verdicts, ref) || stg_partition_is_table(graph, ref))
            continue;
        const struct stg_tensor *value = stg_graph_constant(graph, ref);
        if (value == NULL || value->ndim >= rank)
            return false;
    }
    for (size_t i = 0; i < node->n_controls; i++) {
        if (!verdicts[node->controls[i]].in_rows)
            return false;
    }
    return rank > 0 && node->n_outputs > 0 && node->outputs[0].ndim > 0;
}

bool stg_partition_is_target(const struct stg_graph *graph, uint32_t index)
{
    for (size_t i = 0; i < graph->spec->n_targets; i++) {
        struct stg_ref ref;
        if (stg_graph_resolve(graph, graph->spec->targets[i], &ref, NULL) == 0 &&
            ref.kind == STG_REF_NODE && ref.index == index &&
            !stg_partition_is_widening(graph, index))
            return true;
    }
    return false;
}

/* A feature that is called as an output of the node would be: in a batch no reader could
 * tell them apart. */
static bool shares_name(const struct stg_graph *graph, const char *node)
{
    size_t n = strlen(node);
    for (size_t i = 0; i < graph->boundary.n; i++) {
        const char *name = graph->boundary.components[i].name;
        if (strncmp(name, node, n) == 0 && name[n] == ':')
            return true;
    }
    return false;
}

/* The nodes before it are judged. */
static struct verdict judge(const struct stg_graph *graph, uint32_t index,
                            const struct verdict *verdicts)
{
    const unsigned never =
        STG_OP_VARIABLE | STG_OP_STATEFUL | STG_OP_PLACEHOLDER | STG_OP_STAYS;
    const struct stg_graph_node *node = &graph->nodes[index];
    bool fine = (node->op->flags & never) == 0 && !stg_partition_is_target(graph, index);
    for (size_t i = 0; fine && i < node->n_inputs; i++)
        fine = input_is_fine(verdicts, &node->inputs[i]);
    for (size_t i = 0; fine && i < node->n_controls; i++)
        fine = is_fine(verdicts, node->controls[i]);
    if (!fine)
        return (struct verdict){0};
    struct verdict verdict = {.is_free = (node->depends & STG_DEPENDS_STAGED) == 0 ||
                                         node->values != NULL ||
                                         stg_partition_is_widening(graph, index)};
    verdict.moves = !verdict.is_free && node->inferred && node->same_as == index &&
                    !shares_name(graph, node->spec->name);
    verdict.in_rows = is_in_rows(graph, verdicts, node);
    return verdict;
}

static int find_nodes(struct stg_partitions *partitions, struct verdict *verdicts)
{
    const struct stg_graph *graph = partitions->graph;
    partitions->place =
        stg_bump_alloc(&partitions->bump, graph->n_nodes * sizeof(*partitions->place));
    partitions->nodes =
        stg_bump_alloc(&partitions->bump, graph->n_nodes * sizeof(*partitions->nodes));
    partitions->in_rows =
        stg_bump_alloc(&partitions->bump, graph->n_nodes * sizeof(*partitions->in_rows));
    if (partitions->place == NULL || partitions->nodes == NULL ||
        partitions->in_rows == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        uint32_t index = graph->order[i];
        verdicts[index] = judge(graph, index, verdicts);
        partitions->place[index] = STG_NOT_MOVABLE;
        if (!verdicts[index].moves)
            continue;
        partitions->place[index] = (uint32_t)partitions->n_nodes;
        partitions->in_rows[partitions->n_nodes] = verdicts[index].in_rows;
        partitions->nodes[partitions->n_nodes++] = index;
    }
    return 0;
}

/* ---- slots ---- */

/* Which outputs of nodes something reads; a node that something waits for has its first
 * one read. Outputs are numbered from first[node] on. */
static void find_read(const struct stg_graph *graph, const uint32_t *first, bool *read)
{
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const struct stg_graph_node *node = &graph->nodes[i];
        for (size_t k = 0; k < node->n_inputs; k++) {
            if (node->inputs[k].kind == STG_REF_NODE)
                read[first[node->inputs[k].index] + node->inputs[k].output] = true;
        }
        for (size_t k = 0; k < node->n_controls; k++)
            read[first[node->controls[k]]] = true;
    }
}

static int add_slot(struct stg_partitions *partitions, uint32_t node, uint32_t output)
{
    const struct stg_graph_node *from = &partitions->graph->nodes[node];
    struct stg_component *slot = &partitions->slots.components[partitions->slots.n];
    *slot = from->outputs[output];
    slot->part = STG_PART_VALUES;
    slot->name = stg_bump_printf(&partitions->bump, "%s:%u", from->spec->name, output);
    partitions->ref[partitions->slots.n++] =
        (struct stg_ref){.kind = STG_REF_NODE, .index = node, .output = output};
    return slot->name != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

static int add_slots(struct stg_partitions *partitions, const uint32_t *first,
                     const bool *read)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < partitions->n_nodes; i++) {
        uint32_t node = partitions->nodes[i];
        for (uint32_t k = 0; rc == 0 && k < partitions->graph->nodes[node].n_outputs;
             k++) {
            if (read[first[node] + k])
                rc = add_slot(partitions, node, k);
        }
    }
    return rc;
}

static int find_slots(struct stg_partitions *partitions)
{
    const struct stg_graph *graph = partitions->graph;
    size_t n = 0;
    uint32_t *first = calloc(graph->n_nodes + 1, sizeof(*first));
    for (size_t i = 0; first != NULL && i < graph->n_nodes; i++) {
        first[i] = (uint32_t)n;
        n += graph->nodes[i].n_outputs +
             1; /* one that is not inferred may be waited for */
    }
    bool *read = calloc(n + 1, sizeof(*read));
    size_t most = graph->boundary.n + n;
    partitions->ref = stg_bump_alloc(&partitions->bump, most * sizeof(*partitions->ref));
    partitions->slots.components =
        stg_bump_alloc(&partitions->bump, most * sizeof(*partitions->slots.components));
    int rc = -STAGER_RESOURCE_EXHAUSTED;
    if (first != NULL && read != NULL && partitions->ref != NULL &&
        partitions->slots.components != NULL) {
        for (uint32_t i = 0; i < graph->boundary.n; i++) {
            partitions->ref[i] = (struct stg_ref){.kind = STG_REF_STAGED, .index = i};
            partitions->slots.components[i] = graph->boundary.components[i];
        }
        partitions->slots.n = graph->boundary.n;
        find_read(graph, first, read);
        rc = add_slots(partitions, first, read);
    }
    free(first);
    free(read);
    return rc;
}

/* ---- life ---- */

int stg_partitions_create(const struct stg_graph *graph, struct stg_partitions **ret,
                          struct stg_err *err)
{
    assert(graph->has_element);
    struct stg_partitions *partitions = calloc(1, sizeof(*partitions));
    struct verdict *verdicts = calloc(graph->n_nodes + 1, sizeof(*verdicts));
    int rc = -STAGER_RESOURCE_EXHAUSTED;
    if (partitions != NULL && verdicts != NULL) {
        partitions->graph = graph;
        rc = find_nodes(partitions, verdicts);
        if (rc == 0)
            rc = find_slots(partitions);
    }
    free(verdicts);
    if (rc < 0) {
        stg_partitions_destroy(partitions);
        return stg_err(err, rc, "out of memory");
    }
    *ret = partitions;
    return 0;
}

void stg_partitions_destroy(struct stg_partitions *partitions)
{
    if (partitions == NULL)
        return;
    stg_bump_finish(&partitions->bump);
    free(partitions);
}

const struct stg_schema *stg_partitions_slots(const struct stg_partitions *partitions)
{
    return &partitions->slots;
}

size_t stg_partitions_n_nodes(const struct stg_partitions *partitions)
{
    return partitions->n_nodes;
}

const char *stg_partitions_node(const struct stg_partitions *partitions, size_t i)
{
    return partitions->graph->nodes[partitions->nodes[i]].spec->name;
}
