/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease core: which client may read which extent until when. Pure: no IO, no clock,
 * no system call, no allocation after create; inputs are events, outputs are states.
 * Driven by the daemon's stage and, unchanged, by a simulator in the tests. One thread at
 * a time (the stage's lock).
 *
 *   FREE -> FILLING -> READY -> LEASED -> FREE
 *                                  \-> QUARANTINED -> FREE
 *
 *   FILLING      the lender (the stage) writes it
 *   READY        sealed, no lease; the lender's reference keeps it
 *   LEASED         sealed, with a lease, and wanted: by the lender or by an attached
 * client QUARANTINED  the lender dropped it, and every lease left is a detached client's
 *
 * I2  An extent returns to FREE only when it has no lease and its lender dropped it; the
 *     count is derived from tables that no client can write.
 * I6  No client's act changes another client's data; a violation costs only its author.
 * I7  Lease (id, generation) is never valid twice; the generation is 32 bits a slot, and
 *     a slot whose generation would wrap is retired.
 * I8  free + filling + ready + leased + quarantined = total, after every call.
 * I9  A live process's leased extents are never freed but by its own release.
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

/* max_extents bounds extents at once, max_clients clients at once (dead ones make room),
 * and max_leases leases at once. Errors as stg_arena_create. */
int stg_lease_core_create(uint64_t bytes, uint32_t max_extents, uint32_t max_clients,
                          uint32_t max_leases, struct stg_lease_core **ret,
                          struct stg_err *err);
void stg_lease_core_destroy(struct stg_lease_core *core); /* NULL is allowed */

/* The size of the largest batch: makes the admission rule sufficient (core/arena.h says
 * why; without it memory can be half free and have no room for a batch). Once, before the
 * first reserve. */
void stg_lease_core_set_slot(struct stg_lease_core *core, uint64_t max_batch_bytes);

/* ---- extents ---- */

/* FREE -> FILLING. RESOURCE_EXHAUSTED without text: wait for a release. INVALID_ARGUMENT:
 * more than a slot or than all there is; waiting would not help. */
int stg_extent_reserve(struct stg_lease_core *core, uint64_t bytes, uint32_t *ret);
/* FILLING -> READY; the tail beyond bytes is given back. The caller holds the lender's
 * reference. */
void stg_extent_seal(struct stg_lease_core *core, uint32_t extent, uint64_t bytes);
/* The lender's reference goes (from FILLING or READY/LEASED), once: FREE as soon as no
 * lease is left. The lender must not use the id afterwards. */
void stg_extent_drop(struct stg_lease_core *core, uint32_t extent);
uint64_t stg_extent_offset(const struct stg_lease_core *core, uint32_t extent);
uint64_t stg_extent_bytes(const struct stg_lease_core *core, uint32_t extent);
/* Leases on it now. */
uint32_t stg_extent_leases(const struct stg_lease_core *core, uint32_t extent);

/* ---- clients ---- */

/* RESOURCE_EXHAUSTED when max_clients are there. max_in_flight at most STG_MAX_IN_FLIGHT.
 */
int stg_lease_client_add(struct stg_lease_core *core, uint32_t max_in_flight,
                         uint32_t *ret);
/* Free credits: max_in_flight less leases out; 0 when detached. */
uint32_t stg_lease_client_credits(const struct stg_lease_core *core, uint32_t client);
uint32_t stg_lease_client_held(const struct stg_lease_core *core, uint32_t client);

/* READY/LEASED -> LEASED; the lender still holds its reference. RESOURCE_EXHAUSTED
 * without a credit or a lease slot. */
int stg_lease_grant(struct stg_lease_core *core, uint32_t extent, uint32_t client,
                    struct stg_lease *ret);

/* A release as the client posted it; every field is checked. 0 and the extent that it was
 * a lease on (which may be free by now); INVALID_ARGUMENT with the reason (unknown id,
 * another's lease, stale generation): a violation, and nothing changed. Works for a
 * detached client too. */
int stg_lease_release(struct stg_lease_core *core, uint32_t client,
                      struct stg_lease lease, uint32_t *ret_extent, struct stg_err *err);

/* The socket is gone or a rule was broken, but the process lives: no new leases, what is
 * out is quarantined until released or dead. Again: nothing happens. */
void stg_lease_client_detach(struct stg_lease_core *core, uint32_t client);

/* The process is dead: every lease of it ends; each extent it was on is reported (NULL:
 * not interested) after its lease ended. The client id may be given to another
 * afterwards. `each` may drop, grant and reserve; it must not end this client again. */
void stg_lease_client_dead(struct stg_lease_core *core, uint32_t client,
                           void (*each)(void *owner, uint32_t extent), void *owner);

void stg_lease_usage(const struct stg_lease_core *core, struct stg_lease_usage *ret);

/* Walks all tables and compares them with the counters. 0, or INTERNAL with what does not
 * hold. For tests and the simulator: linear in the tables. */
int stg_lease_core_verify(const struct stg_lease_core *core, struct stg_err *err);

#endif
