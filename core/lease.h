/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease core: tracks which client may read which extent. Pure: no I/O, no clock,
 * no system call, no allocation after create; inputs are events, outputs are states.
 * Driven by the daemon's stage and, unchanged, by a simulator in the tests. One thread at
 * a time (the stage's lock).
 *
 *   FREE -> FILLING -> READY -> LEASED -> FREE
 *                                  \-> QUARANTINED -> FREE
 *
 *   FILLING      the lender (the stage) writes it
 *   READY        sealed, no lease; the lender's reference keeps it
 *   LEASED       sealed, with a lease; the lender or an attached client uses it
 *   QUARANTINED  the lender dropped it, and only detached clients have leases on it
 *
 * I2  An extent returns to FREE only when it has no lease and its lender dropped it; the
 *     count is derived from tables that no client can write.
 * I6  No client's act changes another client's data; a violation costs only its author.
 * I7  Lease (id, generation) is never valid twice; the generation is 32 bits a slot, and
 *     a slot whose generation would wrap is retired.
 * I8  free + filling + ready + leased + quarantined = total, after every call.
 * I9  An extent that a live process leases is freed only by a release of that process.
 */
#ifndef STG_CORE_LEASE_H
#define STG_CORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct stg_lease_core;

/* Generations count from 1: {x, 0} is never a lease. */
struct stg_lease {
    uint32_t id;
    uint32_t generation;
};

/* Bytes by state (I8). */
struct stg_lease_usage {
    uint64_t total, free, filling, ready, leased, quarantined;
};

/* Creates a lease core. max_extents, max_clients (without dead ones) and max_leases bound
 * the numbers at any one time. Errors as stg_arena_create. */
int stg_lease_core_create(uint64_t bytes, uint32_t max_extents, uint32_t max_clients,
                          uint32_t max_leases, struct stg_lease_core **ret,
                          struct stg_err *err);
void stg_lease_core_destroy(struct stg_lease_core *core); /* NULL is allowed */

/* Sets the size of the largest batch, which makes the admission rule sufficient: without
 * it, half of the memory can be free without room for a batch (core/arena.h). Call it
 * once, before the first reserve. */
void stg_lease_core_set_slot(struct stg_lease_core *core, uint64_t max_batch_bytes);

/* ---- extents ---- */

/* FREE -> FILLING. RESOURCE_EXHAUSTED without text: wait for a release. INVALID_ARGUMENT:
 * larger than a slot or than the arena; waiting would not help. */
int stg_extent_reserve(struct stg_lease_core *core, uint64_t bytes, uint32_t *ret);
/* FILLING -> READY; frees the tail beyond `bytes`. The caller holds the lender's
 * reference. */
void stg_extent_seal(struct stg_lease_core *core, uint32_t extent, uint64_t bytes);
/* Drops the lender's reference (from FILLING or READY/LEASED), once. The extent is FREE
 * as soon as it has no lease. The lender must not use the id afterwards. */
void stg_extent_drop(struct stg_lease_core *core, uint32_t extent);
uint64_t stg_extent_offset(const struct stg_lease_core *core, uint32_t extent);
uint64_t stg_extent_bytes(const struct stg_lease_core *core, uint32_t extent);
/* Returns the number of leases on the extent. */
uint32_t stg_extent_leases(const struct stg_lease_core *core, uint32_t extent);

/* ---- clients ---- */

/* Adds a client. max_in_flight: at most STG_MAX_IN_FLIGHT. RESOURCE_EXHAUSTED:
 * max_clients exist already. */
int stg_lease_client_add(struct stg_lease_core *core, uint32_t max_in_flight,
                         uint32_t *ret);
/* Returns the free credits: max_in_flight minus its leases; 0 if detached. */
uint32_t stg_lease_client_credits(const struct stg_lease_core *core, uint32_t client);
uint32_t stg_lease_client_held(const struct stg_lease_core *core, uint32_t client);

/* READY/LEASED -> LEASED; the lender still holds its reference. RESOURCE_EXHAUSTED
 * without a credit or a lease slot. */
int stg_lease_grant(struct stg_lease_core *core, uint32_t extent, uint32_t client,
                    struct stg_lease *ret);

/* Applies a release that a client posted, and checks every field. Returns 0 and the
 * extent of the lease, which may be free by now. INVALID_ARGUMENT with the reason
 * (unknown id, another client's lease, stale generation): a violation, and nothing has
 * changed. Works for a detached client too. */
int stg_lease_release(struct stg_lease_core *core, uint32_t client,
                      struct stg_lease lease, uint32_t *ret_extent, struct stg_err *err);

/* Detaches a client whose socket is gone or that broke a rule, while its process lives.
 * It gets no new leases. Its extents stay quarantined until it releases them or dies.
 * Does nothing if it is already detached. */
void stg_lease_client_detach(struct stg_lease_core *core, uint32_t client);

/* Ends every lease of a client whose process is dead, and calls `each` (may be NULL) for
 * the extent of each lease afterwards. The client id may then be reused. `each` may drop,
 * grant and reserve; it must not end this client again. */
void stg_lease_client_dead(struct stg_lease_core *core, uint32_t client,
                           void (*each)(void *owner, uint32_t extent), void *owner);

void stg_lease_usage(const struct stg_lease_core *core, struct stg_lease_usage *ret);

/* Compares all tables with the counters. Returns 0, or INTERNAL with the violated rule.
 * For tests and the simulator: takes time linear in the tables. */
int stg_lease_core_verify(const struct stg_lease_core *core, struct stg_err *err);

#endif
