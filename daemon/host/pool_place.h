/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the threads of a pool run: CPUs, niceness, memory of a NUMA node.
 */
#ifndef STG_DAEMON_HOST_POOL_PLACE_H
#define STG_DAEMON_HOST_POOL_PLACE_H

#include <sched.h>

#include "core/spec.h"

struct stg_pool_place {
    cpu_set_t cpus;
    bool has_cpus;
    _Atomic bool warned; /* of what is not permitted: once a pool */
};

/* Reads cpus and numa_node of the spec and holds them against the machine.
 * INVALID_ARGUMENT says what there is. */
int stg_pool_place_find(const struct stg_thread_pool_spec *spec,
                        struct stg_pool_place *ret, struct stg_err *err);

/* Puts the calling thread there. A niceness or memory policy that is not permitted is a
 * warning; CPUs that the kernel refuses are an error. */
int stg_pool_place_take(struct stg_pool_place *place,
                        const struct stg_thread_pool_spec *spec, struct stg_err *err);

#endif
