/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lease.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/arena.h"
#include "core/layout.h"
#include "core/status.h"

#define NONE UINT32_MAX

enum state { FREE, FILLING, READY, LEASED, QUARANTINED, N_STATES };

struct extent {
    uint8_t state;
    bool lender;         /* the stage's reference */
    uint32_t n_leases;   /* of any client */
    uint32_t n_detached; /* of these, of detached clients */
    uint64_t bytes;
};

struct client {
    bool alive;
    bool detached;
    uint32_t max_in_flight;
    uint32_t n_held;
    uint32_t first; /* its leases, a list */
};

/* A slot of the lease table. prev and next: its client's list; next alone: the free list.
 * I7: a generation is given out once; it grows with each grant and never comes back. */
struct slot {
    uint32_t generation; /* of the last lease; 0: none yet */
    bool out;
    uint32_t client;
    uint32_t extent;
    uint32_t prev, next;
};

struct stg_lease_core {
    struct stg_arena *arena;
    struct extent *extents;
    struct client *clients;
    struct slot *slots;
    uint32_t max_extents, max_clients, max_leases;
    uint32_t free_slot;   /* list of slots by next */
    uint32_t free_client; /* list of clients by first */
    uint32_t n_retired;
    uint64_t bytes[N_STATES]; /* I8; bytes[FREE] is the arena's */
};

int stg_lease_core_create(uint64_t bytes, uint32_t max_extents, uint32_t max_clients,
                          uint32_t max_leases, struct stg_lease_core **ret,
                          struct stg_err *err)
{
    struct stg_lease_core *core = calloc(1, sizeof(*core));
    if (core == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory: lease tables");
    int rc = -STAGER_RESOURCE_EXHAUSTED;
    core->max_extents = max_extents;
    core->max_clients = max_clients;
    core->max_leases = max_leases;
    core->extents = calloc(max_extents, sizeof(*core->extents));
    core->clients = calloc(max_clients, sizeof(*core->clients));
    core->slots = calloc(max_leases, sizeof(*core->slots));
    if (core->extents == NULL || core->clients == NULL || core->slots == NULL) {
        stg_err(err, rc, "out of memory: lease tables");
        goto fail;
    }
    rc = stg_arena_create(bytes, max_extents, &core->arena, err);
    if (rc < 0)
        goto fail;
    for (uint32_t i = 0; i < max_leases; i++)
        core->slots[i].next = i + 1 < max_leases ? i + 1 : NONE;
    for (uint32_t i = 0; i < max_clients; i++)
        core->clients[i].first = i + 1 < max_clients ? i + 1 : NONE;
    core->free_slot = max_leases > 0 ? 0 : NONE;
    core->free_client = max_clients > 0 ? 0 : NONE;
    *ret = core;
    return 0;

fail:
    stg_lease_core_destroy(core);
    return rc;
}

void stg_lease_core_destroy(struct stg_lease_core *core)
{
    if (core == NULL)
        return;
    stg_arena_destroy(core->arena);
    free(core->extents);
    free(core->clients);
    free(core->slots);
    free(core);
}

void stg_lease_core_set_slot(struct stg_lease_core *core, uint64_t max_batch_bytes)
{
    stg_arena_set_slot(core->arena, max_batch_bytes);
}

/* ---- extents ---- */

static struct extent *extent_at(const struct stg_lease_core *core, uint32_t id)
{
    assert(id < core->max_extents && core->extents[id].state != FREE);
    return &core->extents[id];
}

/* The state is a function of lender and leases: nothing else decides, so it cannot
 * disagree with them. */
static enum state state_of(const struct extent *extent)
{
    if (extent->n_leases == 0)
        return extent->lender ? READY : FREE;
    if (!extent->lender && extent->n_detached == extent->n_leases)
        return QUARANTINED;
    return LEASED;
}

/* I2, I9: the one place where an extent comes back, and only without lender and leases.
 * I8: bytes leave one counter and enter another in the same breath. */
static void update_state(struct stg_lease_core *core, uint32_t id)
{
    struct extent *extent = &core->extents[id];
    core->bytes[extent->state] -= extent->bytes;
    extent->state = state_of(extent);
    core->bytes[extent->state] += extent->bytes;
    if (extent->state == FREE) {
        core->bytes[FREE] = 0;
        stg_arena_free(core->arena, id);
    }
}

int stg_extent_reserve(struct stg_lease_core *core, uint64_t bytes, uint32_t *ret)
{
    uint32_t id;
    int rc = stg_arena_reserve(core->arena, bytes, &id);
    if (rc < 0)
        return rc;
    struct extent *extent = &core->extents[id];
    assert(extent->state == FREE && extent->n_leases == 0);
    *extent = (struct extent){
        .state = FILLING, .lender = true, .bytes = stg_arena_bytes(core->arena, id)};
    core->bytes[FILLING] += extent->bytes;
    *ret = id;
    return 0;
}

void stg_extent_seal(struct stg_lease_core *core, uint32_t id, uint64_t bytes)
{
    struct extent *extent = extent_at(core, id);
    assert(extent->state == FILLING);
    stg_arena_trim(core->arena, id, bytes);
    core->bytes[FILLING] -= extent->bytes;
    extent->bytes = stg_arena_bytes(core->arena, id);
    core->bytes[FILLING] += extent->bytes;
    update_state(core, id);
}

void stg_extent_drop(struct stg_lease_core *core, uint32_t id)
{
    struct extent *extent = extent_at(core, id);
    assert(extent->lender);
    extent->lender = false;
    update_state(core, id);
}

uint64_t stg_extent_offset(const struct stg_lease_core *core, uint32_t id)
{
    return stg_arena_offset(core->arena, id);
}

uint64_t stg_extent_bytes(const struct stg_lease_core *core, uint32_t id)
{
    return extent_at(core, id)->bytes;
}

uint32_t stg_extent_leases(const struct stg_lease_core *core, uint32_t id)
{
    return extent_at(core, id)->n_leases;
}

/* ---- clients ---- */

static struct client *client_at(const struct stg_lease_core *core, uint32_t id)
{
    assert(id < core->max_clients && core->clients[id].alive);
    return &core->clients[id];
}

int stg_lease_client_add(struct stg_lease_core *core, uint32_t max_in_flight,
                         uint32_t *ret)
{
    assert(max_in_flight <= STG_MAX_IN_FLIGHT);
    uint32_t id = core->free_client;
    if (id == NONE)
        return -STAGER_RESOURCE_EXHAUSTED;
    core->free_client = core->clients[id].first;
    core->clients[id] =
        (struct client){.alive = true, .max_in_flight = max_in_flight, .first = NONE};
    *ret = id;
    return 0;
}

uint32_t stg_lease_client_credits(const struct stg_lease_core *core, uint32_t id)
{
    const struct client *client = client_at(core, id);
    return client->detached ? 0 : client->max_in_flight - client->n_held;
}

uint32_t stg_lease_client_held(const struct stg_lease_core *core, uint32_t id)
{
    return client_at(core, id)->n_held;
}

static void link_slot(struct stg_lease_core *core, uint32_t id, struct client *client)
{
    struct slot *slot = &core->slots[id];
    slot->prev = NONE;
    slot->next = client->first;
    if (client->first != NONE)
        core->slots[client->first].prev = id;
    client->first = id;
}

static void unlink_slot(struct stg_lease_core *core, uint32_t id, struct client *client)
{
    const struct slot *slot = &core->slots[id];
    if (slot->prev != NONE)
        core->slots[slot->prev].next = slot->next;
    else
        client->first = slot->next;
    if (slot->next != NONE)
        core->slots[slot->next].prev = slot->prev;
}

int stg_lease_grant(struct stg_lease_core *core, uint32_t extent_id, uint32_t client_id,
                    struct stg_lease *ret)
{
    struct extent *extent = extent_at(core, extent_id);
    struct client *client = client_at(core, client_id);
    assert(extent->lender && extent->state != FILLING);
    uint32_t id = core->free_slot;
    if (client->detached || client->n_held == client->max_in_flight || id == NONE)
        return -STAGER_RESOURCE_EXHAUSTED;

    struct slot *slot = &core->slots[id];
    core->free_slot = slot->next;
    slot->generation++;
    slot->out = true;
    slot->client = client_id;
    slot->extent = extent_id;
    link_slot(core, id, client);
    client->n_held++;
    extent->n_leases++;
    update_state(core, extent_id);
    *ret = (struct stg_lease){.id = id, .generation = slot->generation};
    return 0;
}

/* I7: the slot of the last generation there is does not return to the free list. */
static uint32_t end_lease(struct stg_lease_core *core, uint32_t id)
{
    struct slot *slot = &core->slots[id];
    struct client *client = &core->clients[slot->client];
    struct extent *extent = &core->extents[slot->extent];
    uint32_t extent_id = slot->extent;
    unlink_slot(core, id, client);
    client->n_held--;
    extent->n_leases--;
    if (client->detached)
        extent->n_detached--;
    slot->out = false;
    if (slot->generation == UINT32_MAX) {
        core->n_retired++;
    } else {
        slot->next = core->free_slot;
        core->free_slot = id;
    }
    update_state(core, extent_id);
    return extent_id;
}

/* I6: whatever the client wrote, only a lease that is its own can end here. */
int stg_lease_release(struct stg_lease_core *core, uint32_t client_id,
                      struct stg_lease lease, uint32_t *ret_extent, struct stg_err *err)
{
    client_at(core, client_id);
    if (lease.id >= core->max_leases)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "released lease %" PRIu32 ", there are only %" PRIu32, lease.id,
                       core->max_leases);
    const struct slot *slot = &core->slots[lease.id];
    if (!slot->out || slot->generation != lease.generation)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "released lease %" PRIu32 " of generation %" PRIu32
                       ", which is not out (released twice?)",
                       lease.id, lease.generation);
    if (slot->client != client_id)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "released lease %" PRIu32 ", which belongs to another client",
                       lease.id);
    *ret_extent = end_lease(core, lease.id);
    return 0;
}

void stg_lease_client_detach(struct stg_lease_core *core, uint32_t client_id)
{
    struct client *client = client_at(core, client_id);
    if (client->detached)
        return;
    client->detached = true;
    for (uint32_t id = client->first; id != NONE; id = core->slots[id].next) {
        core->extents[core->slots[id].extent].n_detached++;
        update_state(core, core->slots[id].extent);
    }
}

/* Detached first: `each` may grant, and not to the dead. */
void stg_lease_client_dead(struct stg_lease_core *core, uint32_t client_id,
                           void (*each)(void *owner, uint32_t extent), void *owner)
{
    struct client *client = client_at(core, client_id);
    stg_lease_client_detach(core, client_id);
    while (client->first != NONE) {
        uint32_t extent = end_lease(core, client->first);
        if (each != NULL)
            each(owner, extent);
    }
    assert(client->n_held == 0);
    client->alive = false;
    client->first = core->free_client;
    core->free_client = client_id;
}

void stg_lease_usage(const struct stg_lease_core *core, struct stg_lease_usage *ret)
{
    *ret = (struct stg_lease_usage){
        .total = stg_arena_total_bytes(core->arena),
        .free = stg_arena_free_bytes(core->arena),
        .filling = core->bytes[FILLING],
        .ready = core->bytes[READY],
        .leased = core->bytes[LEASED],
        .quarantined = core->bytes[QUARANTINED],
    };
}

/* ---- verify ---- */

/* What the lease table says of one extent. */
static void count_leases(const struct stg_lease_core *core, uint32_t extent,
                         uint32_t *ret_leases, uint32_t *ret_detached)
{
    *ret_leases = *ret_detached = 0;
    for (uint32_t i = 0; i < core->max_leases; i++) {
        const struct slot *slot = &core->slots[i];
        if (!slot->out || slot->extent != extent)
            continue;
        ++*ret_leases;
        *ret_detached += core->clients[slot->client].detached;
    }
}

static int verify_extents(const struct stg_lease_core *core, struct stg_err *err)
{
    uint64_t bytes[N_STATES] = {0};
    for (uint32_t i = 0; i < core->max_extents; i++) {
        const struct extent *extent = &core->extents[i];
        uint32_t n_leases, n_detached;
        count_leases(core, i, &n_leases, &n_detached);
        if (extent->state == FREE) {
            if (n_leases > 0 || extent->lender || stg_arena_bytes(core->arena, i) != 0)
                return stg_err(err, -STAGER_INTERNAL,
                               "I2: extent %" PRIu32 " is free and has %" PRIu32
                               " leases",
                               i, n_leases);
            continue;
        }
        if (n_leases != extent->n_leases || n_detached != extent->n_detached)
            return stg_err(err, -STAGER_INTERNAL,
                           "I2: extent %" PRIu32 " counts %" PRIu32
                           " leases, the table %" PRIu32,
                           i, extent->n_leases, n_leases);
        if (extent->state == FILLING ? n_leases > 0 || !extent->lender
                                     : state_of(extent) != extent->state)
            return stg_err(err, -STAGER_INTERNAL, "extent %" PRIu32 " is in state %d", i,
                           extent->state);
        if (extent->bytes != stg_arena_bytes(core->arena, i))
            return stg_err(err, -STAGER_INTERNAL, "extent %" PRIu32 " has other bytes",
                           i);
        bytes[extent->state] += extent->bytes;
    }
    for (int s = FILLING; s < N_STATES; s++) {
        if (bytes[s] != core->bytes[s])
            return stg_err(err, -STAGER_INTERNAL,
                           "I8: %" PRIu64 " bytes in state %d, counted %" PRIu64,
                           bytes[s], s, core->bytes[s]);
    }
    return 0;
}

/* Every client's list holds its leases and no other, and all of them. */
static int verify_clients(const struct stg_lease_core *core, struct stg_err *err)
{
    uint32_t in_lists = 0, out = 0;
    for (uint32_t i = 0; i < core->max_clients; i++) {
        const struct client *client = &core->clients[i];
        uint32_t n = 0, prev = NONE;
        if (!client->alive)
            continue;
        for (uint32_t id = client->first; id != NONE; id = core->slots[id].next) {
            const struct slot *slot = &core->slots[id];
            if (!slot->out || slot->client != i || slot->prev != prev ||
                ++n > core->max_leases)
                return stg_err(err, -STAGER_INTERNAL,
                               "I6: client %" PRIu32 ": lease %" PRIu32, i, id);
            prev = id;
        }
        if (n != client->n_held || n > client->max_in_flight)
            return stg_err(err, -STAGER_INTERNAL,
                           "client %" PRIu32 " holds %" PRIu32 ", counted %" PRIu32
                           ", may hold %" PRIu32,
                           i, n, client->n_held, client->max_in_flight);
        in_lists += n;
    }
    for (uint32_t i = 0; i < core->max_leases; i++)
        out += core->slots[i].out;
    if (out != in_lists)
        return stg_err(err, -STAGER_INTERNAL,
                       "%" PRIu32 " leases out, %" PRIu32 " in lists", out, in_lists);
    return 0;
}

static int verify_slots(const struct stg_lease_core *core, struct stg_err *err)
{
    uint32_t n_free = 0, in_list = 0, retired = 0;
    for (uint32_t i = 0; i < core->max_leases; i++) {
        const struct slot *slot = &core->slots[i];
        bool is_retired = !slot->out && slot->generation == UINT32_MAX;
        retired += is_retired;
        n_free += !slot->out && !is_retired;
    }
    for (uint32_t id = core->free_slot; id != NONE; id = core->slots[id].next) {
        if (core->slots[id].out || core->slots[id].generation == UINT32_MAX ||
            ++in_list > core->max_leases)
            return stg_err(err, -STAGER_INTERNAL, "I7: free lease %" PRIu32, id);
    }
    if (n_free != in_list || retired != core->n_retired)
        return stg_err(err, -STAGER_INTERNAL,
                       "I7: %" PRIu32 " free leases, %" PRIu32 " in the list, %" PRIu32
                       " retired of %" PRIu32,
                       n_free, in_list, retired, core->n_retired);
    return 0;
}

int stg_lease_core_verify(const struct stg_lease_core *core, struct stg_err *err)
{
    struct stg_lease_usage u;
    stg_lease_usage(core, &u);
    if (u.free + u.filling + u.ready + u.leased + u.quarantined != u.total)
        return stg_err(err, -STAGER_INTERNAL,
                       "I8: %" PRIu64 " free + %" PRIu64 " filling + %" PRIu64
                       " ready + %" PRIu64 " leased + %" PRIu64
                       " quarantined is not %" PRIu64,
                       u.free, u.filling, u.ready, u.leased, u.quarantined, u.total);
    int rc = stg_arena_verify(core->arena, err);
    if (rc == 0)
        rc = verify_extents(core, err);
    if (rc == 0)
        rc = verify_clients(core, err);
    return rc < 0 ? rc : verify_slots(core, err);
}
