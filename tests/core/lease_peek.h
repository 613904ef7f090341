/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease core, compiled together with the one act that no caller may do: making it
 * old. 2^32 lends would take a minute.
 */
#ifndef STG_TESTS_CORE_LEASE_PEEK_H
#define STG_TESTS_CORE_LEASE_PEEK_H

#include "core/lease.h"

/* The last generation that this lease id was given out with. Before its first lend; not
 * UINT32_MAX. */
void lease_peek_set_generation(struct stg_lease_core *core, uint32_t id,
                               uint32_t generation);

#endif
