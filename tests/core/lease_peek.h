/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease core, compiled together with one function that no caller may have: it ages a
 * lease. 2^32 grants would take a minute.
 */
#ifndef STG_TESTS_CORE_LEASE_PEEK_H
#define STG_TESTS_CORE_LEASE_PEEK_H

#include "core/lease.h"

/* Sets the last generation given out with this lease id. Call it before the id's first
 * grant; not UINT32_MAX. */
void lease_peek_set_generation(struct stg_lease_core *core, uint32_t id,
                               uint32_t generation);

#endif
