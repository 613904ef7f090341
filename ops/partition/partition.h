/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitions of a graph between daemon and client. The boundary of the file is one of
 * many: nodes behind it that are functions of staged tensors alone may run before it, and
 * then what they make crosses instead of what they read. What the graph means is the same
 * for every partition.
 *
 * A node may move unless it is or depends on, over data and control edges, a variable, a
 * placeholder, what writes a variable, an `assert` (STG_OP_STAYS), or a target. Sets of
 * nodes that move are closed upward: with a node move the nodes before it.
 *
 * A *slot* is what can cross: the features, in the order of the boundary, then each
 * output of a node that may move which something reads, as "node:k". A partition carries
 * some of them, in their order. A control edge that crosses is not kept: the node's first
 * output crosses instead, and says that it ran.
 *
 * Of one graph of the daemon (with an element), which must outlive it. Immutable once
 * made: any thread may read.
 */
#ifndef STG_OPS_PARTITION_PARTITION_H
#define STG_OPS_PARTITION_PARTITION_H

#include "ops/graph/graph.h"

struct stg_partitions;      /* the partitions of one graph */
struct stg_partition_needs; /* what one client needs of its batches */
struct stg_partition;       /* one partition */

/* RESOURCE_EXHAUSTED. */
int stg_partitions_create(const struct stg_graph *graph, struct stg_partitions **ret,
                          struct stg_err *err);
void stg_partitions_destroy(struct stg_partitions *partitions); /* NULL is allowed */

/* The slots: names, dtypes, shapes; the first ones are stg_graph_boundary's. */
const struct stg_schema *stg_partitions_slots(const struct stg_partitions *partitions);

/* How many nodes may move, and their names. Below, a set of them is an array of so many
 * bools, in this order, in which no node comes before one that it depends on. */
size_t stg_partitions_n_nodes(const struct stg_partitions *partitions);
const char *stg_partitions_node(const struct stg_partitions *partitions, size_t i);

/* ---- what clients need ---- */

struct stg_partition_wanted {
    bool has_fields; /* false: all features */
    const char *const *fields;
    size_t n_fields;  /* a path, or what several begin with: "user" of "user/id" */
    bool has_fetches; /* false: the targets of the pipeline */
    const char *const *fetches;
    size_t n_fetches;
    bool in_slices; /* batches are sliced into rows: only what does that to each row by
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
int stg_partition_needs_create(const struct stg_partitions *partitions,
                               const struct stg_partition_wanted *wanted,
                               struct stg_partition_needs **ret, struct stg_err *err);
void stg_partition_needs_destroy(struct stg_partition_needs *needs); /* NULL is allowed */

/* Does it fetch what is computed behind the boundary? */
bool stg_partition_needs_compute(const struct stg_partition_needs *needs);

/* Does any node have to run ahead of the client, because its build does not support
 * the node? */
bool stg_partition_needs_ahead(const struct stg_partitions *partitions,
                               const struct stg_partition_needs *needs);

/* May the nodes that run ahead of one client run ahead of the other?
 * FAILED_PRECONDITION names the node. */
int stg_partition_needs_agree(const struct stg_partitions *partitions,
                              const struct stg_partition_needs *needs,
                              const struct stg_partition_needs *other,
                              struct stg_err *err);

/* Is every batch that is good for `wider` good for `needs`? */
bool stg_partition_needs_within(const struct stg_partitions *partitions,
                                const struct stg_partition_needs *needs,
                                const struct stg_partition_needs *wider);

/* ---- sets of nodes ---- */

/* The largest legal set that does these clients good: what their fetches depend on, and
 * is not itself, and does not depend on, a fetch. */
void stg_partitions_largest(const struct stg_partitions *partitions,
                            const struct stg_partition_needs *const *needs, size_t n,
                            bool *ret_moved);

/* The least legal set: the nodes that have to run ahead, because a client does not
 * support them. It is a part of the largest one when each two clients agree. */
void stg_partitions_least(const struct stg_partitions *partitions,
                          const struct stg_partition_needs *const *needs, size_t n,
                          bool *ret_moved);

/* All subsets of that which are closed upward, the empty one first, at most max of them;
 * ret: room for max sets. Returns how many it wrote; where there are more than max, those
 * it leaves out have most to do with the last nodes. */
size_t stg_partitions_enumerate(const struct stg_partitions *partitions,
                                const struct stg_partition_needs *const *needs, size_t n,
                                bool *ret_sets, size_t max);

/* Is it closed upward, and a part of the largest one? INVALID_ARGUMENT names the node. */
int stg_partitions_check(const struct stg_partitions *partitions,
                         const struct stg_partition_needs *const *needs, size_t n,
                         const bool *moved, struct stg_err *err);

/* May any node move for a client that fetches the targets? */
bool stg_partitions_may_move(const struct stg_partitions *partitions);

/* ---- one partition ---- */

/* What crosses for these clients when `moved` (a set that stg_partitions_check passes)
 * run before the boundary; is_wide: and all features, needed or not. */
int stg_partition_create(const struct stg_partitions *partitions,
                         const struct stg_partition_needs *const *needs, size_t n,
                         const bool *moved, bool is_wide, struct stg_partition **ret,
                         struct stg_err *err);
void stg_partition_destroy(struct stg_partition *partition); /* NULL is allowed */

/* What crosses: a part of the slots, in their order. */
const struct stg_schema *stg_partition_schema(const struct stg_partition *partition);

/* The set of nodes that it moved. */
const bool *stg_partition_moved(const struct stg_partition *partition);

/* Is it the boundary of the file: all features, and nothing else? */
bool stg_partition_is_own(const struct stg_partition *partition);

bool stg_partition_same(const struct stg_partition *a, const struct stg_partition *b);

/* Is its batch good for that client? */
bool stg_partition_suffices(const struct stg_partition *partition,
                            const struct stg_partition_needs *needs);

/* As stg_graph_batch_bytes. */
uint64_t stg_partition_batch_bytes(const struct stg_partition *partition);

/* Of the largest batch that a pipeline with this smart_stage may have while clients fetch
 * its targets: all features and what crosses for them. */
uint64_t stg_partitions_batch_bytes(const struct stg_partitions *partitions,
                                    enum stg_smart_stage smart_stage);

#endif
