/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of nodes that may move, and one partition: what crosses the boundary.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/partition/priv.h"

/* ---- sets of nodes ---- */

static bool is_good(const struct stg_partitions *partitions,
                    const struct stg_partition_needs *const *needs, size_t n, size_t i)
{
    bool above = false;
    for (size_t k = 0; k < n; k++) {
        if (needs[k]->stays[i] || (needs[k]->in_slices && !partitions->in_rows[i]))
            return false;
        above = above || needs[k]->above[i];
    }
    return above;
}

void stg_partitions_largest(const struct stg_partitions *partitions,
                            const struct stg_partition_needs *const *needs, size_t n,
                            bool *ret_moved)
{
    for (size_t i = 0; i < partitions->n_nodes; i++)
        ret_moved[i] = is_good(partitions, needs, n, i);
}

void stg_partitions_least(const struct stg_partitions *partitions,
                          const struct stg_partition_needs *const *needs, size_t n,
                          bool *ret_moved)
{
    for (size_t i = 0; i < partitions->n_nodes; i++) {
        ret_moved[i] = false;
        for (size_t k = 0; k < n; k++)
            ret_moved[i] |= needs[k]->ahead != NULL && needs[k]->ahead[i];
    }
}

bool stg_partitions_may_move(const struct stg_partitions *partitions)
{
    struct stg_partition_needs *needs = NULL;
    bool any = false;
    if (stg_partition_needs_create(partitions, &(struct stg_partition_wanted){0}, &needs,
                                   NULL) < 0)
        return false;
    const struct stg_partition_needs *all = needs;
    for (size_t i = 0; i < partitions->n_nodes && !any; i++)
        any = is_good(partitions, &all, 1, i);
    stg_partition_needs_destroy(needs);
    return any;
}

/* The first node before node i that may move and is not in the set; -1: none. */
static long missing_before(const struct stg_partitions *partitions, const bool *moved,
                           size_t i)
{
    const struct stg_graph_node *node = &partitions->graph->nodes[partitions->nodes[i]];
    for (size_t k = 0; k < node->n_inputs; k++) {
        const struct stg_ref *ref = &node->inputs[k];
        if (ref->kind == STG_REF_NODE &&
            partitions->place[ref->index] != STG_NOT_MOVABLE &&
            !moved[partitions->place[ref->index]])
            return (long)partitions->place[ref->index];
    }
    for (size_t k = 0; k < node->n_controls; k++) {
        uint32_t place = partitions->place[node->controls[k]];
        if (place != STG_NOT_MOVABLE && !moved[place])
            return (long)place;
    }
    return -1;
}

int stg_partitions_check(const struct stg_partitions *partitions,
                         const struct stg_partition_needs *const *needs, size_t n,
                         const bool *moved, struct stg_err *err)
{
    for (size_t i = 0; i < partitions->n_nodes; i++) {
        if (!moved[i])
            continue;
        if (!is_good(partitions, needs, n, i))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "node %s cannot move: it is fetched or depends on a fetch, or "
                           "no fetch depends on it, or batches are sliced and it does "
                           "not compute each row by itself",
                           stg_partitions_node(partitions, i));
        long before = missing_before(partitions, moved, i);
        if (before >= 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "node %s cannot move without %s, which comes before it",
                           stg_partitions_node(partitions, i),
                           stg_partitions_node(partitions, (size_t)before));
    }
    return 0;
}

/* A node more: the next that can be added behind the last. Where there is none, the last
 * one makes room for those behind it. */
static bool next_set(const struct stg_partitions *partitions, const bool *largest,
                     bool *set)
{
    size_t n = partitions->n_nodes;
    size_t from = n;
    while (from > 0 && !set[from - 1])
        from--;
    for (;;) {
        for (size_t i = from; i < n; i++) {
            if (largest[i] && !set[i] && missing_before(partitions, set, i) < 0) {
                set[i] = true;
                return true;
            }
        }
        while (from > 0 && !set[from - 1])
            from--;
        if (from == 0)
            return false;
        set[from - 1] = false;
    }
}

size_t stg_partitions_enumerate(const struct stg_partitions *partitions,
                                const struct stg_partition_needs *const *needs, size_t n,
                                bool *ret_sets, size_t max)
{
    size_t n_nodes = partitions->n_nodes, n_sets = 0;
    bool *largest = calloc(n_nodes + 1, sizeof(*largest));
    bool *set = calloc(n_nodes + 1, sizeof(*set));
    if (largest != NULL && set != NULL) {
        stg_partitions_largest(partitions, needs, n, largest);
        do {
            if (n_sets == max)
                break;
            memcpy(ret_sets + n_sets++ * n_nodes, set, n_nodes * sizeof(*set));
        } while (next_set(partitions, largest, set));
    }
    free(largest);
    free(set);
    return n_sets;
}

/* ---- one partition ---- */

static int make_schema(struct stg_partition *partition)
{
    const struct stg_partitions *partitions = partition->partitions;
    size_t n = 0;
    for (size_t i = 0; i < partitions->slots.n; i++)
        n += partition->carried[i];
    partition->slots = stg_bump_alloc(&partition->bump, n * sizeof(*partition->slots));
    partition->schema.components =
        stg_bump_alloc(&partition->bump, n * sizeof(*partition->schema.components));
    if (partition->slots == NULL || partition->schema.components == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < partitions->slots.n; i++) {
        if (!partition->carried[i])
            continue;
        partition->slots[partition->schema.n] = (uint32_t)i;
        partition->schema.components[partition->schema.n++] =
            partitions->slots.components[i];
    }
    return 0;
}

static int mark_all(struct stg_partition *partition,
                    const struct stg_partition_needs *const *needs, size_t n)
{
    size_t n_nodes = partition->partitions->graph->n_nodes;
    bool *seen = calloc(n_nodes + 1, sizeof(*seen));
    if (seen == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        stg_partition_mark(partition->partitions, needs[i], partition->moved, seen,
                           partition->carried);
    free(seen);
    return 0;
}

static int fill(struct stg_partition *partition,
                const struct stg_partition_needs *const *needs, size_t n,
                const bool *moved, bool is_wide)
{
    const struct stg_partitions *partitions = partition->partitions;
    partition->moved =
        stg_bump_alloc(&partition->bump, partitions->n_nodes * sizeof(*partition->moved));
    partition->carried = stg_bump_alloc(
        &partition->bump, partitions->slots.n * sizeof(*partition->carried));
    if (partition->moved == NULL || partition->carried == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    memcpy(partition->moved, moved, partitions->n_nodes * sizeof(*moved));
    for (size_t i = 0; i < partitions->graph->boundary.n; i++)
        partition->carried[i] = is_wide;
    int rc = mark_all(partition, needs, n);
    return rc == 0 ? make_schema(partition) : rc;
}

int stg_partition_create(const struct stg_partitions *partitions,
                         const struct stg_partition_needs *const *needs, size_t n,
                         const bool *moved, bool is_wide, struct stg_partition **ret,
                         struct stg_err *err)
{
    struct stg_partition *partition = calloc(1, sizeof(*partition));
    if (partition == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    partition->partitions = partitions;
    int rc = fill(partition, needs, n, moved, is_wide);
    if (rc < 0) {
        stg_partition_destroy(partition);
        return stg_err(err, rc, "out of memory");
    }
    *ret = partition;
    return 0;
}

void stg_partition_destroy(struct stg_partition *partition)
{
    if (partition == NULL)
        return;
    stg_bump_finish(&partition->bump);
    free(partition);
}

const struct stg_schema *stg_partition_schema(const struct stg_partition *partition)
{
    return &partition->schema;
}

const bool *stg_partition_moved(const struct stg_partition *partition)
{
    return partition->moved;
}

bool stg_partition_is_own(const struct stg_partition *partition)
{
    size_t n_features = partition->partitions->graph->boundary.n;
    for (size_t i = 0; i < partition->partitions->slots.n; i++) {
        if (partition->carried[i] != (i < n_features))
            return false;
    }
    return true;
}

bool stg_partition_same(const struct stg_partition *a, const struct stg_partition *b)
{
    size_t n_nodes = a->partitions->n_nodes, n_slots = a->partitions->slots.n;
    return a->partitions == b->partitions &&
           memcmp(a->moved, b->moved, n_nodes * sizeof(*a->moved)) == 0 &&
           memcmp(a->carried, b->carried, n_slots * sizeof(*a->carried)) == 0;
}

/* A batch is sliced into rows whole, with what this client does not read. */
static bool may_be_sliced(const struct stg_partition *partition)
{
    const struct stg_partitions *partitions = partition->partitions;
    for (size_t i = partitions->graph->boundary.n; i < partitions->slots.n; i++) {
        if (partition->carried[i] &&
            !partitions->in_rows[partitions->place[partitions->ref[i].index]])
            return false;
    }
    return true;
}

/* Without memory to find out: no. */
bool stg_partition_suffices(const struct stg_partition *partition,
                            const struct stg_partition_needs *needs)
{
    size_t n_slots = partition->partitions->slots.n;
    if (needs->in_slices && !may_be_sliced(partition))
        return false;
    bool *seen = calloc(partition->partitions->graph->n_nodes + 1, sizeof(*seen));
    bool *wanted = calloc(n_slots + 1, sizeof(*wanted));
    bool ok = seen != NULL && wanted != NULL;
    if (ok)
        ok = stg_partition_mark_given(partition->partitions, needs, partition->carried,
                                      seen, wanted);
    for (size_t i = 0; ok && i < n_slots; i++)
        ok = partition->carried[i] || !wanted[i];
    free(seen);
    free(wanted);
    return ok;
}

uint64_t stg_partition_batch_bytes(const struct stg_partition *partition)
{
    return stg_graph_schema_bytes(&partition->schema);
}

/* Sets that are looked at for the largest batch. */
#define MAX_SETS 64

static uint64_t bytes_with(const struct stg_partitions *partitions,
                           const struct stg_partition_needs *needs, const bool *moved)
{
    struct stg_partition *partition = NULL;
    if (stg_partition_create(partitions, &needs, 1, moved, true, &partition, NULL) < 0)
        return 0;
    uint64_t bytes = stg_partition_batch_bytes(partition);
    stg_partition_destroy(partition);
    return bytes;
}

/* 0 as soon as one is not known. */
static uint64_t most_bytes(const struct stg_partitions *partitions,
                           const struct stg_partition_needs *needs, bool *sets,
                           enum stg_smart_stage smart_stage)
{
    size_t n = 0;
    if (smart_stage == STG_SMART_STAGE_AUTO)
        n = stg_partitions_enumerate(partitions, &needs, 1, sets, MAX_SETS - 1);
    stg_partitions_largest(partitions, &needs, 1, sets + n++ * partitions->n_nodes);
    uint64_t most = stg_graph_batch_bytes(partitions->graph);
    for (size_t i = 0; most != 0 && i < n; i++) {
        uint64_t bytes = bytes_with(partitions, needs, sets + i * partitions->n_nodes);
        most = bytes == 0 ? 0 : bytes > most ? bytes : most;
    }
    return most;
}

uint64_t stg_partitions_batch_bytes(const struct stg_partitions *partitions,
                                    enum stg_smart_stage smart_stage)
{
    struct stg_partition_needs *needs = NULL;
    uint64_t bytes = 0;
    if (smart_stage == STG_SMART_STAGE_OFF)
        return stg_graph_batch_bytes(partitions->graph);
    bool *sets = calloc(MAX_SETS * partitions->n_nodes + 1, sizeof(*sets));
    if (sets != NULL &&
        stg_partition_needs_create(partitions, &(struct stg_partition_wanted){0}, &needs,
                                   NULL) == 0)
        bytes = most_bytes(partitions, needs, sets, smart_stage);
    stg_partition_needs_destroy(needs);
    free(sets);
    return bytes;
}
