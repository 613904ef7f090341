/* SPDX-License-Identifier: Apache-2.0
 *
 * The partition of a stage: the tensors that cross the boundary in the next batch. It
 * depends on the combined needs of the clients, and on the nodes chosen to run before the
 * boundary. It changes only between batches. An item keeps the partition that it was
 * pulled with, and has its number.
 *
 * No partition (NULL, number 0) is the boundary as the pipeline writes it: all features
 * and nothing else. It suffices for every client that can compute all of its fetches. An
 * item whose partition fails is made by it: the error of a node that has moved comes
 * where the pipeline has the node, in the trainer.
 *
 * While a client is there whose build lacks an op, what it cannot compute runs ahead in
 * each partition, and instead of the boundary as the pipeline writes it there is the
 * *least* partition, which moves that and nothing else. An item that fails by the least
 * partition is an error item.
 *
 * Features that no client needs are left out only while every place of num_clients is
 * taken, and never with keep_warm; and an item is given only to clients that it is good
 * for.
 */
#ifndef STG_DAEMON_STAGE_PARTITION_H
#define STG_DAEMON_STAGE_PARTITION_H

#include <stdatomic.h>
#include <stdlib.h>

#include "ops/partition/partition.h"
#include "proto/wire.h"

struct stg_stage;
struct stg_client;

/* Reference counted: by the stage, items and runners. Any thread. */
struct stg_stage_partition {
    _Atomic unsigned refs;
    uint64_t number; /* from 1 */
    struct stg_partition *partition;
    struct stg_stage_partition *least; /* what an item is made by when it fails by this
                                    one; NULL: by the boundary as it is written, or … */
    bool is_least;                     /* … by nothing */
    uint64_t n_known; /* it is good for clients that came before this many had; of the
                         lock */
};

/* NULL is allowed. */
static inline struct stg_stage_partition *stg_stage_partition_ref(
    struct stg_stage_partition *partition)
{
    if (partition != NULL)
        atomic_fetch_add(&partition->refs, 1);
    return partition;
}

static inline void stg_stage_partition_unref(struct stg_stage_partition *partition)
{
    if (partition == NULL || atomic_fetch_sub(&partition->refs, 1) != 1)
        return;
    stg_stage_partition_unref(partition->least);
    stg_partition_destroy(partition->partition);
    free(partition);
}

/* Reads what an open request needs of its batches. NOT_FOUND names the nearest;
 * FAILED_PRECONDITION: the client lacks a node that may not run before the boundary. */
int stg_needs_read(const struct stg_request *request,
                   const struct stg_partitions *partitions,
                   struct stg_partition_needs **ret, struct stg_err *err);

/* Prepares stg_stage_choose_partition, if the pipeline has smart_stage: auto. The
 * partition begins with config.prior, as far as clients let its nodes move. */
int stg_stage_init_choice(struct stg_stage *stage, struct stg_err *err);
void stg_stage_finish_choice(struct stg_stage *stage);

/* ---- inside a stage: the lock is held ---- */

/* For smart_stage: auto. Sets the nodes that run before the boundary from the next pulled
 * item on (one bool for each of stg_partitions_n_nodes); NULL: none. When clients come
 * and go, those nodes still move that may. INVALID_ARGUMENT: not a legal set
 * (stg_partitions_check); FAILED_PRECONDITION: not `auto`. */
int stg_stage_set_partition(struct stg_stage *stage, const bool *moved,
                            struct stg_err *err);

/* Checks that a client with these needs can join the other clients, without the one that
 * it replaces (NULL: none). FAILED_PRECONDITION: one client fetches a node that another
 * lacks; the text has the client. RESOURCE_EXHAUSTED: batches with the nodes that any of
 * them lacks exceed max_batch_bytes. */
int stg_needs_check(const struct stg_stage *stage,
                    const struct stg_partition_needs *needs,
                    const struct stg_client *back, struct stg_err *err);

/* Returns a reference on the partition for the next item: the one in force, or that on
 * trial. *ret_tag: of the block of the trial that the item belongs to; 0: none. */
struct stg_stage_partition *stg_stage_pull_partition(struct stg_stage *stage,
                                                     uint32_t *ret_tag);

/* Recomputes the partition for the next item, after clients came or went. */
void stg_stage_recut(struct stg_stage *stage);

/* Returns the number and the moved nodes of the next item's partition. The graph owns the
 * strings. */
void stg_stage_show_partition(const struct stg_stage *stage, struct stg_bump *bump,
                              struct stg_pipeline_status *ret);

#endif
