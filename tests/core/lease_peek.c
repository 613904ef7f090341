/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/lease_peek.h"

#include "core/lease.c"

void lease_peek_set_generation(struct stg_lease_core *core, uint32_t id,
                               uint32_t generation)
{
    assert(id < core->max_leases && !core->slots[id].out);
    core->slots[id].generation = generation;
}
