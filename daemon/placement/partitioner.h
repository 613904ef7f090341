/* SPDX-License-Identifier: Apache-2.0
 *
 * `smart_stage: auto` of one stage. An observer: what was measured becomes a problem of
 * daemon/placement/cost.h, daemon/placement/smartstage.h tries the best few partitions of
 * it, and the result is a proposal. A partition that an earlier run took (a prior,
 * daemon/placement/priors.h) is in force from the first batch on.
 *
 * Uses no stage. One thread at a time; calls that write to `decisions` say so, since a
 * lock of the caller guards them.
 */
#ifndef STG_DAEMON_PLACEMENT_PARTITIONER_H
#define STG_DAEMON_PLACEMENT_PARTITIONER_H

#include "daemon/autotune/measure.h"
#include "daemon/placement/priors.h"
#include "daemon/placement/smartstage.h"
#include "ops/partition/partition.h"

struct stg_partitioner;

/* What a plan is made from; borrowed for one call. */
struct stg_partition_load {
    const struct stg_measure *measure;
    const struct stg_partition_needs *const *needs; /* of the clients that take part */
    size_t n_needs;                                 /* 0: nothing may move */
    const bool *moved; /* nodes that run before the boundary now; NULL: none */
    uint32_t n_clients;
    bool shares; /* each item goes to one client */
};

/* prior: its nodes, as in stg_partitioner_proposes, are copied; NULL: none. Returns NULL
 * if memory is out. */
struct stg_partitioner *stg_partitioner_create(const struct stg_partitions *partitions,
                                               uint64_t max_batch_bytes,
                                               const struct stg_prior *prior,
                                               struct stg_decisions *decisions);
void stg_partitioner_destroy(struct stg_partitioner *p); /* NULL is allowed */

/* Reads a file for the cores that are idle: call it without a lock. */
void stg_partitioner_poll(struct stg_partitioner *p, uint64_t now_ns);

/* Advances the trials; is_measured and free_cores of the view are ignored. Returns
 * milliseconds until the next call. Writes decisions. */
int stg_partitioner_tick(struct stg_partitioner *p, const struct stg_smart_view *view,
                         const struct stg_measure *measure);

/* Is a plan due? Then: load under the caller's lock, search without it, plan under it. */
bool stg_partitioner_wants_plan(const struct stg_partitioner *p);
void stg_partitioner_load(struct stg_partitioner *p,
                          const struct stg_partition_load *load);
void stg_partitioner_search(struct stg_partitioner *p);
void stg_partitioner_plan(struct stg_partitioner *p, uint64_t now_ns); /* decisions */

/* Event: a batch is being pulled; a batch of that tag was taken. As in smartstage.h; the
 * first is true only while the last stg_partitioner_tries was accepted and holds. */
bool stg_partitioner_pull(struct stg_partitioner *p, uint64_t now_ns, uint32_t *ret_tag);
void stg_partitioner_taken(struct stg_partitioner *p, uint32_t tag, uint64_t n_taken,
                           uint64_t now_ns);

/* Are partitions on trial? Nothing else is to be tried meanwhile. */
bool stg_partitioner_in_trial(const struct stg_partitioner *p);

/* True: another partition than the one that was accepted last. *ret_moved: the nodes to
 * run before the boundary, one a node of stg_partitions_n_nodes; NULL: the file's own. */
bool stg_partitioner_proposes(const struct stg_partitioner *p, const bool **ret_moved);
void stg_partitioner_accepted(struct stg_partitioner *p);

/* The challenger on trial beside it, likewise; false: none is. Was it the one that was
 * accepted last? */
bool stg_partitioner_tries(const struct stg_partitioner *p, const bool **ret_moved);
void stg_partitioner_accepted_trial(struct stg_partitioner *p);
bool stg_partitioner_has_accepted(const struct stg_partitioner *p);

/* True, once after trials have ended: *ret_moved and *ret_gain are to be kept as a prior.
 * NULL: the file's own partition is in force, and no prior is to be kept. */
bool stg_partitioner_has_prior(struct stg_partitioner *p, const bool **ret_moved,
                               double *ret_gain);

/* The proposal is not legal any more: begins anew, by the file's own. Writes decisions.
 */
void stg_partitioner_refused(struct stg_partitioner *p, uint64_t now_ns, const char *why);

#endif
