/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of nodes that may move, and one cut: what crosses the boundary.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/partition/priv.h"

/* ---- sets of nodes ---- */

static bool is_good(const struct stg_cuts *cuts, const struct stg_cut_needs *const *needs,
                    size_t n, size_t i)
{
    bool above = false;
    for (size_t k = 0; k < n; k++) {
        if (needs[k]->stays[i] || (needs[k]->in_slices && !cuts->in_rows[i]))
            return false;
        above = above || needs[k]->above[i];
    }
    return above;
}

void stg_cuts_largest(const struct stg_cuts *cuts,
                      const struct stg_cut_needs *const *needs, size_t n, bool *ret_moved)
{
    for (size_t i = 0; i < cuts->n_nodes; i++)
        ret_moved[i] = is_good(cuts, needs, n, i);
}

void stg_cuts_least(const struct stg_cuts *cuts, const struct stg_cut_needs *const *needs,
                    size_t n, bool *ret_moved)
{
    for (size_t i = 0; i < cuts->n_nodes; i++) {
        ret_moved[i] = false;
        for (size_t k = 0; k < n; k++)
            ret_moved[i] |= needs[k]->ahead != NULL && needs[k]->ahead[i];
    }
}

bool stg_cuts_may_move(const struct stg_cuts *cuts)
{
    struct stg_cut_needs *needs = NULL;
    bool any = false;
    if (stg_cut_needs_create(cuts, &(struct stg_cut_wanted){0}, &needs, NULL) < 0)
        return false;
    const struct stg_cut_needs *all = needs;
    for (size_t i = 0; i < cuts->n_nodes && !any; i++)
        any = is_good(cuts, &all, 1, i);
    stg_cut_needs_destroy(needs);
    return any;
}

/* The first node before node i that may move and is not in the set; -1: none. */
static long missing_before(const struct stg_cuts *cuts, const bool *moved, size_t i)
{
    const struct stg_graph_node *node = &cuts->graph->nodes[cuts->nodes[i]];
    for (size_t k = 0; k < node->n_inputs; k++) {
        const struct stg_ref *ref = &node->inputs[k];
        if (ref->kind == STG_REF_NODE && cuts->place[ref->index] != STG_NOT_MOVABLE &&
            !moved[cuts->place[ref->index]])
            return (long)cuts->place[ref->index];
    }
    for (size_t k = 0; k < node->n_controls; k++) {
        uint32_t place = cuts->place[node->controls[k]];
        if (place != STG_NOT_MOVABLE && !moved[place])
            return (long)place;
    }
    return -1;
}

int stg_cuts_check(const struct stg_cuts *cuts, const struct stg_cut_needs *const *needs,
                   size_t n, const bool *moved, struct stg_err *err)
{
    for (size_t i = 0; i < cuts->n_nodes; i++) {
        if (!moved[i])
            continue;
        if (!is_good(cuts, needs, n, i))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "node %s cannot move: it is fetched or depends on what is, or "
                           "no fetch depends on it, or batches are cut into rows and it "
                           "does not treat each by itself",
                           stg_cuts_node(cuts, i));
        long before = missing_before(cuts, moved, i);
        if (before >= 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "node %s cannot move without %s, which comes before it",
                           stg_cuts_node(cuts, i), stg_cuts_node(cuts, (size_t)before));
    }
    return 0;
}

/* A node more: the next that can be added behind the last. Where there is none, the last
 * one makes room for those behind it. */
static bool next_set(const struct stg_cuts *cuts, const bool *largest, bool *set)
{
    size_t n = cuts->n_nodes;
    size_t from = n;
    while (from > 0 && !set[from - 1])
        from--;
    for (;;) {
        for (size_t i = from; i < n; i++) {
            if (largest[i] && !set[i] && missing_before(cuts, set, i) < 0) {
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

size_t stg_cuts_enumerate(const struct stg_cuts *cuts,
                          const struct stg_cut_needs *const *needs, size_t n,
                          bool *ret_sets, size_t max)
{
    size_t n_nodes = cuts->n_nodes, n_sets = 0;
    bool *largest = calloc(n_nodes + 1, sizeof(*largest));
    bool *set = calloc(n_nodes + 1, sizeof(*set));
    if (largest != NULL && set != NULL) {
        stg_cuts_largest(cuts, needs, n, largest);
        do {
            if (n_sets == max)
                break;
            memcpy(ret_sets + n_sets++ * n_nodes, set, n_nodes * sizeof(*set));
        } while (next_set(cuts, largest, set));
    }
    free(largest);
    free(set);
    return n_sets;
}

/* ---- one cut ---- */

static int make_schema(struct stg_cut *cut)
{
    const struct stg_cuts *cuts = cut->cuts;
    size_t n = 0;
    for (size_t i = 0; i < cuts->slots.n; i++)
        n += cut->carried[i];
    cut->slots = stg_bump_alloc(&cut->bump, n * sizeof(*cut->slots));
    cut->schema.components =
        stg_bump_alloc(&cut->bump, n * sizeof(*cut->schema.components));
    if (cut->slots == NULL || cut->schema.components == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < cuts->slots.n; i++) {
        if (!cut->carried[i])
            continue;
        cut->slots[cut->schema.n] = (uint32_t)i;
        cut->schema.components[cut->schema.n++] = cuts->slots.components[i];
    }
    return 0;
}

static int mark_all(struct stg_cut *cut, const struct stg_cut_needs *const *needs,
                    size_t n)
{
    size_t n_nodes = cut->cuts->graph->n_nodes;
    bool *seen = calloc(n_nodes + 1, sizeof(*seen));
    if (seen == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        stg_cut_mark(cut->cuts, needs[i], cut->moved, seen, cut->carried);
    free(seen);
    return 0;
}

static int fill(struct stg_cut *cut, const struct stg_cut_needs *const *needs, size_t n,
                const bool *moved, bool is_wide)
{
    const struct stg_cuts *cuts = cut->cuts;
    cut->moved = stg_bump_alloc(&cut->bump, cuts->n_nodes * sizeof(*cut->moved));
    cut->carried = stg_bump_alloc(&cut->bump, cuts->slots.n * sizeof(*cut->carried));
    if (cut->moved == NULL || cut->carried == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    memcpy(cut->moved, moved, cuts->n_nodes * sizeof(*moved));
    for (size_t i = 0; i < cuts->graph->boundary.n; i++)
        cut->carried[i] = is_wide;
    int rc = mark_all(cut, needs, n);
    return rc == 0 ? make_schema(cut) : rc;
}

int stg_cut_create(const struct stg_cuts *cuts, const struct stg_cut_needs *const *needs,
                   size_t n, const bool *moved, bool is_wide, struct stg_cut **ret,
                   struct stg_err *err)
{
    struct stg_cut *cut = calloc(1, sizeof(*cut));
    if (cut == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    cut->cuts = cuts;
    int rc = fill(cut, needs, n, moved, is_wide);
    if (rc < 0) {
        stg_cut_destroy(cut);
        return stg_err(err, rc, "out of memory");
    }
    *ret = cut;
    return 0;
}

void stg_cut_destroy(struct stg_cut *cut)
{
    if (cut == NULL)
        return;
    stg_bump_finish(&cut->bump);
    free(cut);
}

const struct stg_schema *stg_cut_schema(const struct stg_cut *cut)
{
    return &cut->schema;
}

const bool *stg_cut_moved(const struct stg_cut *cut)
{
    return cut->moved;
}

bool stg_cut_is_own(const struct stg_cut *cut)
{
    size_t n_features = cut->cuts->graph->boundary.n;
    for (size_t i = 0; i < cut->cuts->slots.n; i++) {
        if (cut->carried[i] != (i < n_features))
            return false;
    }
    return true;
}

bool stg_cut_same(const struct stg_cut *a, const struct stg_cut *b)
{
    size_t n_nodes = a->cuts->n_nodes, n_slots = a->cuts->slots.n;
    return a->cuts == b->cuts &&
           memcmp(a->moved, b->moved, n_nodes * sizeof(*a->moved)) == 0 &&
           memcmp(a->carried, b->carried, n_slots * sizeof(*a->carried)) == 0;
}

/* A batch is cut into rows whole, with what this client does not read. */
static bool may_be_sliced(const struct stg_cut *cut)
{
    const struct stg_cuts *cuts = cut->cuts;
    for (size_t i = cuts->graph->boundary.n; i < cuts->slots.n; i++) {
        if (cut->carried[i] && !cuts->in_rows[cuts->place[cuts->ref[i].index]])
            return false;
    }
    return true;
}

/* Without memory to find out: no. */
bool stg_cut_suffices(const struct stg_cut *cut, const struct stg_cut_needs *needs)
{
    size_t n_slots = cut->cuts->slots.n;
    if (needs->in_slices && !may_be_sliced(cut))
        return false;
    bool *seen = calloc(cut->cuts->graph->n_nodes + 1, sizeof(*seen));
    bool *wanted = calloc(n_slots + 1, sizeof(*wanted));
    bool ok = seen != NULL && wanted != NULL;
    if (ok)
        ok = stg_cut_mark_given(cut->cuts, needs, cut->carried, seen, wanted);
    for (size_t i = 0; ok && i < n_slots; i++)
        ok = cut->carried[i] || !wanted[i];
    free(seen);
    free(wanted);
    return ok;
}

uint64_t stg_cut_batch_bytes(const struct stg_cut *cut)
{
    return stg_graph_schema_bytes(&cut->schema);
}

/* Sets that are looked at for the largest batch. */
#define MAX_SETS 64

static uint64_t bytes_with(const struct stg_cuts *cuts, const struct stg_cut_needs *needs,
                           const bool *moved)
{
    struct stg_cut *cut = NULL;
    if (stg_cut_create(cuts, &needs, 1, moved, true, &cut, NULL) < 0)
        return 0;
    uint64_t bytes = stg_cut_batch_bytes(cut);
    stg_cut_destroy(cut);
    return bytes;
}

/* 0 as soon as one is not known. */
static uint64_t most_bytes(const struct stg_cuts *cuts, const struct stg_cut_needs *needs,
                           bool *sets, enum stg_smart_stage smart_stage)
{
    size_t n = 0;
    if (smart_stage == STG_SMART_STAGE_AUTO)
        n = stg_cuts_enumerate(cuts, &needs, 1, sets, MAX_SETS - 1);
    stg_cuts_largest(cuts, &needs, 1, sets + n++ * cuts->n_nodes);
    uint64_t most = stg_graph_batch_bytes(cuts->graph);
    for (size_t i = 0; most != 0 && i < n; i++) {
        uint64_t bytes = bytes_with(cuts, needs, sets + i * cuts->n_nodes);
        most = bytes == 0 ? 0 : bytes > most ? bytes : most;
    }
    return most;
}

uint64_t stg_cuts_batch_bytes(const struct stg_cuts *cuts,
                              enum stg_smart_stage smart_stage)
{
    struct stg_cut_needs *needs = NULL;
    uint64_t bytes = 0;
    if (smart_stage == STG_SMART_STAGE_OFF)
        return stg_graph_batch_bytes(cuts->graph);
    bool *sets = calloc(MAX_SETS * cuts->n_nodes + 1, sizeof(*sets));
    if (sets != NULL &&
        stg_cut_needs_create(cuts, &(struct stg_cut_wanted){0}, &needs, NULL) == 0)
        bytes = most_bytes(cuts, needs, sets, smart_stage);
    stg_cut_needs_destroy(needs);
    free(sets);
    return bytes;
}
