/* SPDX-License-Identifier: Apache-2.0
 *
 * A second, simplest implementation of the arena and the lease core: an owner for every
 * granule, a row for every lease. The simulator calls the model first, then the core, and
 * compares. It shares no code with the core.
 */
#ifndef STG_TESTS_CORE_LEASE_MODEL_H
#define STG_TESTS_CORE_LEASE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/lease.h"

#define MODEL_MAX_GRANULES 320u
#define MODEL_MAX_EXTENTS 16u
#define MODEL_MAX_CLIENTS 6u
#define MODEL_MAX_LEASES 24u

struct model_extent {
    bool alive, lender, filling;
    uint32_t start, n; /* granules */
};

struct model_client {
    bool alive, detached;
    uint32_t max_in_flight;
};

/* By lease id. */
struct model_lease {
    bool out;
    uint32_t generation; /* of the last lease; UINT32_MAX and not out: retired */
    uint32_t client, extent;
};

struct model {
    uint32_t n_granules, slot; /* slot 0: none */
    uint32_t max_extents, max_clients, max_leases;
    uint8_t owner[MODEL_MAX_GRANULES]; /* extent + 1 */
    struct model_extent extents[MODEL_MAX_EXTENTS];
    struct model_client clients[MODEL_MAX_CLIENTS];
    struct model_lease leases[MODEL_MAX_LEASES];
};

/* Returns the expected result of stg_extent_reserve and the first granule of the
 * extent. */
int model_reserve(const struct model *model, uint64_t bytes, uint32_t *ret_start,
                  uint32_t *ret_n);
void model_reserved(struct model *model, uint32_t extent, uint32_t start, uint32_t n);
void model_sealed(struct model *model, uint32_t extent, uint64_t bytes);
void model_dropped(struct model *model, uint32_t extent);

uint32_t model_held(const struct model *model, uint32_t client);
uint32_t model_credits(const struct model *model, uint32_t client);
uint32_t model_leases_on(const struct model *model, uint32_t extent);

/* Returns the expected result of stg_lease_grant, and whether that lease may be given
 * out. */
int model_grant(const struct model *model, uint32_t client);
bool model_lease_is_new(const struct model *model, struct stg_lease lease);
void model_leased(struct model *model, struct stg_lease lease, uint32_t client,
                  uint32_t extent);

/* Returns whether that client holds that lease. */
bool model_owns(const struct model *model, uint32_t client, struct stg_lease lease);
void model_ended(struct model *model, uint32_t lease);

void model_usage(const struct model *model, struct stg_lease_usage *ret);

#endif
