/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that run nodes of a trainer's graph, and parts of large tensors, beside its
 * own. Started when the graph is made, and only if they were asked for. They take no
 * signals.
 */
#ifndef STG_COMPUTE_THREADS_H
#define STG_COMPUTE_THREADS_H

#include "core/err.h"
#include "ops/base/parts.h"

struct stg_threads {
    struct stg_parts parts;
    struct stg_parallel nodes, rows; /* of parts, with as many threads as each may have */
    pthread_t *all;
    uint32_t n; /* started */
    bool is_on;
};

/* inter_op: nodes at once; intra_op: parts of one; 0 and 1 are the caller's thread alone.
 * `threads` stays where it is. RESOURCE_EXHAUSTED. */
int stg_threads_start(struct stg_threads *threads, uint32_t inter_op, uint32_t intra_op,
                      struct stg_err *err);
/* Nothing runs on them. A zeroed one is allowed. */
void stg_threads_stop(struct stg_threads *threads);

#endif
