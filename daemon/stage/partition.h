/* SPDX-License-Identifier: Apache-2.0
 *
 * The partition of a stage: what crosses the boundary in the next batch. It follows from
 * what the clients that are there need together, and from which nodes were chosen to run
 * before the boundary. It changes between batches; an item keeps the partition that it
 * was pulled with, and says its number.
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

/* Counted: of the stage, of items, of runners. Any thread. */
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

/* What an open request needs of its batches. NOT_FOUND names the nearest;
 * FAILED_PRECONDITION: it lacks what may not run ahead. */
int stg_needs_read(const struct stg_request *request,
                   const struct stg_partitions *partitions,
                   struct stg_partition_needs **ret, struct stg_err *err);

/* ---- for the observers: any thread, takes the lock ---- */

/* smart_stage: auto. From the next item pulled on these nodes run before the boundary
 * (one bool each of stg_partitions_n_nodes); NULL: none. Later, when clients come and go,
 * those of them that still may. INVALID_ARGUMENT: not a legal set (stg_partitions_check),
 * or FAILED_PRECONDITION: not `auto`. */
int stg_stage_set_partition(struct stg_stage *stage, const bool *moved,
                            struct stg_err *err);

/* Makes what stg_stage_choose_partition needs, where the pipeline says smart_stage: auto.
 */
int stg_stage_init_choice(struct stg_stage *stage, struct stg_err *err);
void stg_stage_finish_choice(struct stg_stage *stage);

/* ---- inside of a stage: the lock is held ---- */

/* May it be there with those that are, but for the one whose place it takes (NULL: it
 * takes none)? FAILED_PRECONDITION names a client that fetches what this one lacks, or
 * the other way round; RESOURCE_EXHAUSTED: batches with what they all lack are larger
 * than max_batch_bytes. */
int stg_needs_check(const struct stg_stage *stage,
                    const struct stg_partition_needs *needs,
                    const struct stg_client *back, struct stg_err *err);

/* Clients came or went: what crosses from the next item on. */
void stg_stage_recut(struct stg_stage *stage);

/* The number and the moved nodes of the next item's partition; strings are the graph's.
 */
void stg_stage_show_partition(const struct stg_stage *stage, struct stg_bump *bump,
                              struct stg_pipeline_status *ret);

#endif
