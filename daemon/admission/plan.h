/* SPDX-License-Identifier: Apache-2.0
 *
 * How the memory of a pipeline is shared: batches, and the buffers of its dataset. Pure
 * arithmetic, any thread.
 *
 * More memory_budget never gives less of anything: capacity, num_threads, the bytes of a
 * batch, the dataset's buffers. A memory_budget of at least what the pipeline may take
 * without one gives at least as much of each.
 */
#ifndef STG_DAEMON_ADMISSION_PLAN_H
#define STG_DAEMON_ADMISSION_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/layout.h"
#include "core/spec.h"
#include "daemon/admission/sizes.h"

static inline uint64_t stg_granules(uint64_t bytes)
{
    return (bytes + STG_GRANULE_BYTES - 1) / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
}

/* What a plan is a function of. */
struct stg_plan_asked {
    const struct stg_staged *staged; /* borrowed */
    bool for_device;                 /* the arena is never sparse */
    struct stg_sizes sizes;
    uint32_t num_clients, max_in_flight; /* of each */
    uint64_t default_bytes; /* for batches of a pipeline without memory_budget, where
                               neither their size nor their number is written */
};

/* How much memory a pipeline needs: the arithmetic of admission. */
struct stg_stage_plan {
    struct stg_plan_asked asked;
    uint64_t n_extents;  /* capacity (round_robin: x num_clients) + num_threads +
                            num_remote + all max_in_flight + 1 */
    uint32_t num_remote; /* requests to stage workers at once */
    uint32_t capacity, num_threads; /* auto: the most that it may come to, and is counted
                                       with. Where the size of a batch is not known, such
                                       that there are 16 extents */
    uint32_t most_threads;          /* that auto may come to with more memory */
    uint32_t max_in_flight;         /* that each of num_clients is counted with */
    uint64_t max_batch_bytes; /* of the largest partition that `auto` may try as far as
                                 its part of the memory allows */
    uint64_t arena_bytes;
    bool is_sparse; /* neither the size that all batches have nor memory_budget is known:
                       the arena begins with a granule for each extent, and grows with the
                       batches */
    uint64_t full_bytes; /* that full batches take, as far as known, with the dataset's
                            buffers for them */
    uint64_t reserved_bytes;        /* on the budget, when the stage is made */
    uint64_t reserved_buffer_bytes; /* of them for the dataset; the rest of buffer_bytes
                                       is taken as it is needed */
    uint64_t buffer_bytes; /* for the dataset: chunks, shuffle slabs, batches that are
                              pulled. What batches leave of memory_budget; without one
                              256 MiB, or what batches in the making take */
};

/* RESOURCE_EXHAUSTED with the arithmetic, and a number that works, when the memory is too
 * small. */
int stg_stage_plan(const struct stg_plan_asked *asked, struct stg_stage_plan *ret,
                   struct stg_err *err);

/* The least memory_budget, of whole MiB, by which the dataset's buffers may take so many
 * bytes and a batch has so many (0: any). 0: there is none, since max_batch_bytes, or the
 * size of batches that is known, is less. */
uint64_t stg_plan_budget(const struct stg_plan_asked *asked, uint64_t buffer_bytes,
                         uint64_t batch_bytes);

#endif
