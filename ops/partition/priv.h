/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a partition. Each file uses those before it: movable.c (which nodes may
 * move, which slots there are), unsupported.c (what a client cannot compute), needs.c
 * (what clients need), partition.c (what crosses), view.c. Outside of this folder only
 * ops/exec/plan.c includes it.
 */
#ifndef STG_OPS_PARTITION_PRIV_H
#define STG_OPS_PARTITION_PRIV_H

#include "ops/graph/priv.h"
#include "ops/partition/partition.h"

#define STG_NOT_MOVABLE UINT32_MAX

struct stg_partitions {
    const struct stg_graph *graph;
    struct stg_bump bump; /* of all below */
    uint32_t *nodes;      /* that may move, in the graph's order */
    size_t n_nodes;
    uint32_t *place;     /* of each node of the graph: its place among those */
    bool *in_rows;       /* of each that may move: it treats each row by itself */
    struct stg_ref *ref; /* of each slot: a feature (STAGED), or an output of a node */
    struct stg_schema slots;
};

struct stg_partition_needs {
    struct stg_bump bump;
    bool *fields; /* one a feature */
    bool in_slices;
    struct stg_ref *fetches;
    size_t n_fetches;
    bool *above;       /* of each node that may move: a fetch depends on it */
    bool *stays;       /* it is a fetch, or depends on one */
    bool *unsupported; /* one a node of the graph: the client cannot compute it; NULL: it
                    can compute all */
    bool *ahead; /* of each that may move: it has to, for a fetch needs it, and it is one
                    of those, or before one; NULL: none */
};

struct stg_partition {
    const struct stg_partitions *partitions;
    struct stg_bump bump;
    bool *moved;     /* one a node that may move */
    bool *carried;   /* one a slot */
    uint32_t *slots; /* those */
    struct stg_schema schema;
};

/* Marks the slots that a client needs when those nodes have moved. `seen`: one a node of
 * the graph, to be false. */
void stg_partition_mark(const struct stg_partitions *partitions,
                        const struct stg_partition_needs *needs, const bool *moved,
                        bool *seen, bool *carried);

/* Marks the features that a client needs of a batch that has those slots. False: they do
 * not help it, for it would have to compute what it cannot. */
bool stg_partition_mark_given(const struct stg_partitions *partitions,
                              const struct stg_partition_needs *needs, const bool *given,
                              bool *seen, bool *wanted);

/* unsupported.c: is there anything in the graph that this client cannot compute? */
bool stg_partition_any_unsupported(const struct stg_partitions *partitions,
                                   const struct stg_partition_wanted *wanted);

/* Is it a vocabulary? */
bool stg_partition_is_table(const struct stg_graph *graph, const struct stg_ref *ref);

/* unsupported.c: fills unsupported and ahead; the rest is there. FAILED_PRECONDITION
 * names a node that the client cannot compute, and why it cannot run ahead. */
int stg_partition_place_unsupported(const struct stg_partitions *partitions,
                                    const struct stg_partition_wanted *wanted,
                                    struct stg_partition_needs *needs,
                                    struct stg_err *err);

/* Marks what node `index` reads or waits for. */
void stg_partition_spread_up(const struct stg_graph_node *node, bool *set);

/* Is the node, or one that is written alike, a target? */
bool stg_partition_is_target(const struct stg_graph *graph, uint32_t index);

/* Is the node the one that makes the full width again of what crosses in half of it? It
 * runs on whichever side reads it. */
bool stg_partition_is_widening(const struct stg_graph *graph, uint32_t node);

#endif
