/* SPDX-License-Identifier: Apache-2.0
 *
 * What the nodes of an executor took in some of its runs, since it was last asked. One
 * thread at a time.
 */
#ifndef STG_COMPUTE_MEASURED_H
#define STG_COMPUTE_MEASURED_H

#include "client/compute/compute.h"
#include "ops/exec/profile.h"

struct stg_measured {
    struct stg_profiler profiler;
    struct stg_compute_node *nodes; /* of the last report */
    uint64_t *bytes;
};

/* Zero-initialise; finish is allowed on zero, after the run is destroyed.
 * RESOURCE_EXHAUSTED. */
int stg_measured_init(struct stg_measured *measured, const struct stg_graph *graph,
                      struct stg_run *run, struct stg_err *err);
void stg_measured_finish(struct stg_measured *measured);

/* As `measured` of struct stg_compute. */
bool stg_measured_take(struct stg_measured *measured, struct stg_compute_measured *ret);

#endif
