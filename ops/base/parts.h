/* SPDX-License-Identifier: Apache-2.0
 *
 * Work in parts: what ops do on the threads of a pool (intra_op_threads_num,
 * inter_op_threads_num). The owner of the work takes each part that no other thread has
 * taken: a pool whose helpers are all busy costs nothing, and the owner waits for running
 * parts alone. It starts no thread: the owner of a pool lets its threads help.
 */
#ifndef STG_OPS_BASE_PARTS_H
#define STG_OPS_BASE_PARTS_H

#include <pthread.h>
#include <stdbool.h>

#include "ops/base/parallel.h"

struct stg_work_in_parts;

struct stg_parts {
    struct stg_parallel parallel; /* immutable; owner: this */
    pthread_mutex_t lock;         /* of what is below, and of works */
    pthread_cond_t wake;          /* of helpers: work, or stopping */
    struct stg_work_in_parts *first,
        *last; /* that have parts which no thread has taken */
    bool stopping;
};

/* n_threads: that one work is spread over at most, its own among them; the caller starts
 * n_threads - 1 that help. */
void stg_parts_init(struct stg_parts *parts, uint32_t n_threads);

/* No work is under way, no thread helps any more. */
void stg_parts_finish(struct stg_parts *parts);

/* The loop of a helping thread; ends when the parts stop. */
void stg_parts_help(struct stg_parts *parts);

/* Helpers return. Any thread. */
void stg_parts_stop(struct stg_parts *parts);

#endif
