/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a graph may be cut. The boundary of the file is one cut of many: nodes behind it
 * that are functions of staged tensors alone may run before it, and then what they make
 * crosses instead of what they read. What the graph means is the same for every cut.
 *
 * A node may move unless it is or depends on, over data and control edges, a variable, a
 * placeholder, what writes a variable, an `assert` (STG_OP_STAYS), or a target. Sets of
 * nodes that move are closed upward: with a node move the nodes before it.
 *
 * A *slot* is what can cross: the features, in the order of the boundary, then each
 * output of a node that may move which something reads, as "node:k". A cut carries some
 * of them, in their order. A control edge that crosses is not kept: the node's first
 * output crosses instead, and says that it ran.
 *
 * Of one graph of the daemon (with an element), which must outlive it. Immutable once
 * made: any thread may read.
 */
#ifndef STG_OPS_PARTITION_CUT_H
#define STG_OPS_PARTITION_CUT_H

#include "ops/graph/graph.h"

struct stg_cuts;      /* what can be cut in one graph */
struct stg_cut_needs; /* what one client needs of its batches */
struct stg_cut;       /* one cut */

/* RESOURCE_EXHAUSTED. */
int stg_cuts_create(const struct stg_graph *graph, struct stg_cuts **ret,
                    struct stg_err *err);
void stg_cuts_destroy(struct stg_cuts *cuts); /* NULL is allowed */

/* The slots: names, dtypes, shapes; the first ones are stg_graph_boundary's. */
const struct stg_schema *stg_cuts_slots(const struct stg_cuts *cuts);

/* How many nodes may move, and their names. Below, a set of them is an array of so many
 * bools, in this order, in which no node comes before one that it depends on. */
size_t stg_cuts_n_nodes(const struct stg_cuts *cuts);
const char *stg_cuts_node(const struct stg_cuts *cuts, size_t i);

/* ---- what clients need ---- */

struct stg_cut_wanted {
    bool has_fields; /* false: all features */
    const char *const *fields;
    size_t n_fields;  /* a path, or what several begin with: "user" of "user/id" */
    bool has_fetches; /* false: the targets of the pipeline */
    const char *const *fetches;
    size_t n_fetches;
    bool in_slices; /* batches are cut into rows: only what does that to each row by
                       itself may move */
    /* Nodes that its build cannot compute (an op that it does not have): those that its
     * fetches need run ahead. */
    const char *const *unsupported;
    size_t n_unsupported;
};

/* NOT_FOUND names the nearest. A fetch that no trainer could compute is no error yet, but
 * one that this one cannot, because its build does not support a node that may not run
 * ahead: FAILED_PRECONDITION says which and why. With smart_stage: off none may. No
 * client can look words up in a vocabulary. */
int stg_cut_needs_create(const struct stg_cuts *cuts, const struct stg_cut_wanted *wanted,
                         struct stg_cut_needs **ret, struct stg_err *err);
void stg_cut_needs_destroy(struct stg_cut_needs *needs); /* NULL is allowed */

/* Does it fetch what is computed behind the boundary? */
bool stg_cut_needs_compute(const struct stg_cut_needs *needs);

/* Does any node have to run ahead of the client, because its build does not support
 * the node? */
bool stg_cut_needs_ahead(const struct stg_cuts *cuts, const struct stg_cut_needs *needs);

/* May the nodes that run ahead of one client run ahead of the other?
 * FAILED_PRECONDITION names the node. */
int stg_cut_needs_agree(const struct stg_cuts *cuts, const struct stg_cut_needs *needs,
                        const struct stg_cut_needs *other, struct stg_err *err);

/* Is every batch that is good for `wider` good for `needs`? */
bool stg_cut_needs_within(const struct stg_cuts *cuts, const struct stg_cut_needs *needs,
                          const struct stg_cut_needs *wider);

/* ---- sets of nodes ---- */

/* The largest legal set that does these clients good: what their fetches depend on, and
 * is not itself, and does not depend on, a fetch. */
void stg_cuts_largest(const struct stg_cuts *cuts,
                      const struct stg_cut_needs *const *needs, size_t n,
                      bool *ret_moved);

/* The least legal set: the nodes that have to run ahead, because a client does not
 * support them. It is a part of the largest one when each two clients agree. */
void stg_cuts_least(const struct stg_cuts *cuts, const struct stg_cut_needs *const *needs,
                    size_t n, bool *ret_moved);

/* All subsets of that which are closed upward, the empty one first, at most max of them;
 * ret: room for max sets. Returns how many it wrote; where there are more than max, those
 * it leaves out have most to do with the last nodes. */
size_t stg_cuts_enumerate(const struct stg_cuts *cuts,
                          const struct stg_cut_needs *const *needs, size_t n,
                          bool *ret_sets, size_t max);

/* Is it closed upward, and a part of the largest one? INVALID_ARGUMENT names the node. */
int stg_cuts_check(const struct stg_cuts *cuts, const struct stg_cut_needs *const *needs,
                   size_t n, const bool *moved, struct stg_err *err);

/* May any node move for a client that fetches the targets? */
bool stg_cuts_may_move(const struct stg_cuts *cuts);

/* ---- one cut ---- */

/* What crosses for these clients when `moved` (a set that stg_cuts_check passes) run
 * before the boundary; is_wide: and all features, whoever needs them. */
int stg_cut_create(const struct stg_cuts *cuts, const struct stg_cut_needs *const *needs,
                   size_t n, const bool *moved, bool is_wide, struct stg_cut **ret,
                   struct stg_err *err);
void stg_cut_destroy(struct stg_cut *cut); /* NULL is allowed */

/* What crosses: a part of the slots, in their order. */
const struct stg_schema *stg_cut_schema(const struct stg_cut *cut);

/* The set of nodes that it moved. */
const bool *stg_cut_moved(const struct stg_cut *cut);

/* Is it the boundary of the file: all features, and nothing else? */
bool stg_cut_is_own(const struct stg_cut *cut);

bool stg_cut_same(const struct stg_cut *a, const struct stg_cut *b);

/* Is its batch good for that client? */
bool stg_cut_suffices(const struct stg_cut *cut, const struct stg_cut_needs *needs);

/* As stg_graph_batch_bytes. */
uint64_t stg_cut_batch_bytes(const struct stg_cut *cut);

/* Of the largest batch that a pipeline with this smart_stage may have while clients fetch
 * its targets: all features and what crosses for them. */
uint64_t stg_cuts_batch_bytes(const struct stg_cuts *cuts,
                              enum stg_smart_stage smart_stage);

#endif
