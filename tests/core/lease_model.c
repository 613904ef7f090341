/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/lease_model.h"

#include "core/layout.h"
#include "core/status.h"

#define G ((uint64_t)STG_GRANULE_BYTES)

static uint32_t granules_of(uint64_t bytes)
{
    return bytes == 0 ? 1 : (uint32_t)((bytes - 1) / G + 1);
}

/* I2, I9: granules become free when neither the lender nor a lease holds them. */
static void update_state(struct model *model, uint32_t id)
{
    struct model_extent *extent = &model->extents[id];
    if (extent->lender || model_leases_on(model, id) > 0)
        return;
    for (uint32_t i = 0; i < extent->n; i++)
        model->owner[extent->start + i] = 0;
    *extent = (struct model_extent){0};
}

static bool is_room(const struct model *model, uint32_t start, uint32_t n)
{
    if (start + n > model->n_granules)
        return false;
    if (model->slot > 0 && start / model->slot != (start + n - 1) / model->slot)
        return false;
    for (uint32_t i = start; i < start + n; i++) {
        if (model->owner[i] != 0)
            return false;
    }
    return true;
}

int model_reserve(const struct model *model, uint64_t bytes, uint32_t *ret_start,
                  uint32_t *ret_n)
{
    uint32_t n = granules_of(bytes), n_alive = 0;
    if (n > model->n_granules || (model->slot > 0 && n > model->slot))
        return -STAGER_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < model->max_extents; i++)
        n_alive += model->extents[i].alive;
    if (n_alive == model->max_extents)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (uint32_t start = 0; start < model->n_granules; start++) {
        if (is_room(model, start, n)) {
            *ret_start = start;
            *ret_n = n;
            return 0;
        }
    }
    return -STAGER_RESOURCE_EXHAUSTED;
}

void model_reserved(struct model *model, uint32_t id, uint32_t start, uint32_t n)
{
    for (uint32_t i = start; i < start + n; i++)
        model->owner[i] = (uint8_t)(id + 1);
    model->extents[id] = (struct model_extent){
        .alive = true, .lender = true, .filling = true, .start = start, .n = n};
}

void model_sealed(struct model *model, uint32_t id, uint64_t bytes)
{
    struct model_extent *extent = &model->extents[id];
    uint32_t keep = granules_of(bytes);
    for (uint32_t i = keep; i < extent->n; i++)
        model->owner[extent->start + i] = 0;
    extent->n = keep;
    extent->filling = false;
}

void model_dropped(struct model *model, uint32_t id)
{
    model->extents[id].lender = false;
    update_state(model, id);
}

uint32_t model_held(const struct model *model, uint32_t client)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->max_leases; i++)
        n += model->leases[i].out && model->leases[i].client == client;
    return n;
}

uint32_t model_credits(const struct model *model, uint32_t client)
{
    const struct model_client *c = &model->clients[client];
    return c->detached ? 0 : c->max_in_flight - model_held(model, client);
}

uint32_t model_leases_on(const struct model *model, uint32_t extent)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->max_leases; i++)
        n += model->leases[i].out && model->leases[i].extent == extent;
    return n;
}

int model_grant(const struct model *model, uint32_t client)
{
    uint32_t n_usable = 0;
    for (uint32_t i = 0; i < model->max_leases; i++)
        n_usable += !model->leases[i].out && model->leases[i].generation != UINT32_MAX;
    return n_usable > 0 && model_credits(model, client) > 0 ? 0
                                                            : -STAGER_RESOURCE_EXHAUSTED;
}

/* I7 */
bool model_lease_is_new(const struct model *model, struct stg_lease lease)
{
    return lease.id < model->max_leases && !model->leases[lease.id].out &&
           lease.generation > model->leases[lease.id].generation;
}

void model_leased(struct model *model, struct stg_lease lease, uint32_t client,
                  uint32_t extent)
{
    model->leases[lease.id] = (struct model_lease){
        .out = true, .generation = lease.generation, .client = client, .extent = extent};
}

/* I6 */
bool model_owns(const struct model *model, uint32_t client, struct stg_lease lease)
{
    if (lease.id >= model->max_leases)
        return false;
    const struct model_lease *row = &model->leases[lease.id];
    return row->out && row->client == client && row->generation == lease.generation;
}

void model_ended(struct model *model, uint32_t lease)
{
    model->leases[lease].out = false;
    update_state(model, model->leases[lease].extent);
}

static bool is_quarantined(const struct model *model, uint32_t extent)
{
    if (model->extents[extent].lender)
        return false;
    for (uint32_t i = 0; i < model->max_leases; i++) {
        const struct model_lease *row = &model->leases[i];
        if (row->out && row->extent == extent && !model->clients[row->client].detached)
            return false;
    }
    return true;
}

/* I8, counted granule by granule. */
void model_usage(const struct model *model, struct stg_lease_usage *ret)
{
    *ret = (struct stg_lease_usage){.total = model->n_granules * G};
    for (uint32_t i = 0; i < model->n_granules; i++) {
        uint32_t id = model->owner[i] - 1u;
        if (model->owner[i] == 0)
            ret->free += G;
        else if (model->extents[id].filling)
            ret->filling += G;
        else if (model_leases_on(model, id) == 0)
            ret->ready += G;
        else if (is_quarantined(model, id))
            ret->quarantined += G;
        else
            ret->leased += G;
    }
}
