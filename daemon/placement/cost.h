/* SPDX-License-Identifier: Apache-2.0
 *
 * What a partition of a graph would cost, and which partitions would cost least. Pure and
 * deterministic: numbers in, numbers out; any thread. The model is coarse on purpose: it
 * says which few partitions are worth a trial (daemon/placement/smartstage.h), and a
 * trial decides.
 *
 * A batch takes the daemon D and a trainer C. Runners and trainers work side by side, so
 * that batches come as fast as the slower side lets them, and no faster than the cores
 * that both share.
 */
#ifndef STG_DAEMON_PLACEMENT_COST_H
#define STG_DAEMON_PLACEMENT_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Made in the daemon, whatever moves. */
#define STG_COST_SOURCE UINT32_MAX

/* A node that may run on either side. */
struct stg_cost_node {
    double daemon_ns, client_ns; /* of a batch, there or here */
};

/* A tensor that may cross: it does when it is made in the daemon and read behind it. */
struct stg_cost_slot {
    uint32_t producer; /* a node, or STG_COST_SOURCE */
    double bytes;
    bool is_required; /* something behind the partition reads it that never moves */
    const uint32_t *readers;
    size_t n_readers; /* nodes, all behind the producer */
};

struct stg_cost_machine {
    double pull_ns;        /* of a batch: one runner at a time */
    double stage_ns;       /* of a batch in the daemon beside the nodes, pull_ns too */
    double trainer_ns;     /* of a batch in a trainer beside the nodes, and */
    double trainer_cpu_ns; /* of it on a core */
    double byte_ns;        /* to write or to read a byte that crosses */
    double runners;        /* that make batches at once; at least 1 */
    double trainers;       /* that share the batches; at least 1 */
    double copies;         /* trainers that compute each batch; at least 1 */
    double cores;          /* for both sides together; at least 1 */
};

/* Nodes stand in an order in which they may run. */
struct stg_cost_problem {
    const struct stg_cost_node *nodes;
    size_t n_nodes;
    const struct stg_cost_slot *slots;
    size_t n_slots;
    struct stg_cost_machine machine;
};

/* Nanoseconds from batch to batch when these nodes run in the daemon, and a hundredth of
 * all work: of partitions that are as fast the one that does less is better. */
double stg_cost_of(const struct stg_cost_problem *problem, const bool *moved);

/* That cross then, in a batch. */
double stg_cost_bytes(const struct stg_cost_problem *problem, const bool *moved);

/* Does what a node reads move with it? */
bool stg_cost_is_closed(const struct stg_cost_problem *problem, const bool *moved);

struct stg_cost_found {
    size_t n;      /* sets that were found; at least one, unless memory is out */
    bool is_exact; /* they are the best there are; else the graph was too large to know */
};

/* The cheapest closed sets, the cheapest first, at most `max`. ret_sets has room for max
 * sets of n_nodes each, ret_costs for max. Takes a few milliseconds at most. */
struct stg_cost_found stg_cost_search(const struct stg_cost_problem *problem, size_t max,
                                      bool *ret_sets, double *ret_costs);

#endif
