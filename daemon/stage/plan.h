/* SPDX-License-Identifier: Apache-2.0
 *
 * How the memory of a pipeline is shared: batches and the buffers of its dataset.
 */
#ifndef STG_DAEMON_STAGE_PLAN_H
#define STG_DAEMON_STAGE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/layout.h"
#include "core/spec.h"
#include "ops/partition/cut.h"

static inline uint64_t stg_granules(uint64_t bytes)
{
    return (bytes + STG_GRANULE_BYTES - 1) / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
}

/* How much memory a pipeline needs: the arithmetic of admission. */
struct stg_stage_plan {
    uint64_t n_extents; /* capacity (round_robin: x num_clients) + num_threads + all
                           max_held + 1 */
    uint32_t capacity, num_threads; /* auto: the most that it may come to, and is counted
                                       with. Such that batches of a known size fit the
                                       budget, or default_bytes without one; where it is
                                       not known such that there are 16 extents */
    uint32_t max_held;              /* that each of num_clients is counted with */
    uint64_t max_batch_bytes; /* of the largest cut that `auto` may try only as far as all
                                 batches take a quarter of the budget, or default_bytes
                                 without one */
    uint64_t arena_bytes;
    bool is_sparse; /* neither a batch's size nor memory_budget is known: the arena begins
                       with a granule for each extent, and grows with the batches */
    uint64_t reserved_bytes;        /* on the budget, when the stage is made */
    uint64_t reserved_buffer_bytes; /* of them for the dataset; the rest of buffer_bytes
                                       is taken as it is needed */
    uint64_t buffer_bytes; /* for the dataset: chunks, shuffle slabs. What batches of a
                              known size leave of memory_budget; a quarter of it where the
                              size is not known; 64 MiB without one */
};

/* default_bytes: the share of a pipeline whose batch size is not known.
 * RESOURCE_EXHAUSTED with the arithmetic when a share that was set is too small. Any
 * thread. */
int stg_stage_plan(const struct stg_pipeline_spec *spec, const struct stg_cuts *cuts,
                   uint32_t num_clients, uint32_t max_held, uint64_t default_bytes,
                   struct stg_stage_plan *ret, struct stg_err *err);

#endif
