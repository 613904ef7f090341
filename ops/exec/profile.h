/* SPDX-License-Identifier: Apache-2.0
 *
 * What the nodes of a graph take, measured on some of the runs of an executor: time of
 * each node, bytes of each output and of each feed. Sums, so that those of many executors
 * can be added. What was measured long ago fades.
 */
#ifndef STG_OPS_EXEC_PROFILE_H
#define STG_OPS_EXEC_PROFILE_H

#include "ops/exec/run.h"

/* A sum and how many were summed up. */
struct stg_mean {
    uint64_t n, sum;
};

/* The mean, rounded down; 0 of none. */
uint64_t stg_mean(const struct stg_mean *mean);

/* A node whose work another one does has no time of its own, and outputs all the same. */
struct stg_profile {
    uint64_t n_runs; /* that were measured, ever */
    struct stg_mean run_ns;
    struct stg_mean *node_ns; /* n_nodes */
    size_t n_nodes;
    size_t *first_output;   /* of each node, in bytes; n_nodes + 1 */
    struct stg_mean *bytes; /* of outputs, strings with their offsets */
    struct stg_mean
        *of_feeds; /* n_feeds: bytes of the element's components; in a client,
                      of the boundary's tensors. Only of those that are read */
    size_t n_feeds;
};

/* Room for this graph and for others of the same spec on the same side. Zero-initialise;
 * finish is allowed on zero. RESOURCE_EXHAUSTED. */
int stg_profile_init(struct stg_profile *profile, const struct stg_graph *graph,
                     struct stg_err *err);
void stg_profile_finish(struct stg_profile *profile);

/* Adds what was measured elsewhere, of a profile of the same size, and clears it there.
 */
void stg_profile_move(struct stg_profile *to, struct stg_profile *from);

/* Clears what was measured. */
void stg_profile_clear(struct stg_profile *profile);

/* Adds one value, and lets old ones fade. */
void stg_mean_add(struct stg_mean *mean, uint64_t value);

/* Adds n values at once. */
void stg_mean_add_many(struct stg_mean *mean, uint64_t n, uint64_t sum);

/* Watches one executor: its first runs and then one in `every`. One thread at a time. */
struct stg_profiler {
    struct stg_profile profile; /* since it was last moved away */
    struct stg_run_watcher watcher;
    const struct stg_run *run;
    uint64_t n_execs, every;
    uint64_t began_ns, ended_ns;
    uint32_t *nodes; /* that ran in this run, and how long */
    uint64_t *took_ns;
    uint64_t *bytes; /* of their outputs, as in the profile */
    size_t n_ran;
    bool is_fresh; /* something was measured since; the owner clears it */
};

/* The profiler must live, and stay where it is, as long as the executor. Zero-initialise;
 * finish, after the executor is destroyed, is allowed on zero. RESOURCE_EXHAUSTED. */
int stg_profiler_init(struct stg_profiler *profiler, const struct stg_graph *graph,
                      struct stg_run *run, uint64_t every, struct stg_err *err);
void stg_profiler_finish(struct stg_profiler *profiler);

#endif
