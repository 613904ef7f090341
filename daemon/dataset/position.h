/* SPDX-License-Identifier: Apache-2.0
 *
 * The positions of items between the batching step, which counts them, and the dataset,
 * which hands the items out: the steps in between may hold some, on threads of their own.
 * They yield one record for each that they take, in order. Any thread.
 */
#ifndef STG_DAEMON_POSITION_H
#define STG_DAEMON_POSITION_H

#include <pthread.h>

#include "daemon/dataset/dataset.h"

struct stg_position_queue {
    pthread_mutex_t lock;      /* guards what follows */
    struct stg_position *ring; /* elements and passed are set; items: how many it ends */
    size_t first, n, size;
};

void stg_position_queue_init(struct stg_position_queue *queue);
void stg_position_queue_finish(struct stg_position_queue *queue);

/* Appends the position after n items, which were passed over together if they are more
 * than one. RESOURCE_EXHAUSTED. */
int stg_position_push(struct stg_position_queue *queue, uint64_t n, uint64_t elements,
                      uint64_t passed, struct stg_err *err);
/* Removes those of n items, and sets elements and passed of *ret to the last one. Without
 * one: sets nothing. */
void stg_position_pop(struct stg_position_queue *queue, uint64_t n,
                      struct stg_position *ret);
/* Removes all. */
void stg_position_clear(struct stg_position_queue *queue);

#endif
