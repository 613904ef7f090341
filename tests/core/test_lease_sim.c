/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that ask, hold, release in any order, lie, detach and die, by seed. A model of
 * the simulator's own says what must come out: who owns each granule, which lease is
 * whose. STG_SEED=n runs that seed alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "core/lease.h"
#include "tests/check.h"
#include "tests/core/random.h"

#define G ((uint64_t)STG_GRANULE_BYTES)
#define N_SEEDS 10000u
#define N_STEPS 120u
#define MAX_EXTENTS 12u
#define MAX_CLIENTS 5u
#define MAX_LEASES 14u
#define MAX_GRANULES 96u

struct model_lease {
    struct stg_lease lease;
    uint32_t client, extent;
};

struct model_client {
    bool alive, detached;
    uint32_t max_held, n_held;
};

struct model_extent {
    bool alive, lender, filling;
    uint32_t start, n, n_leases;
};

struct sim {
    uint64_t seed;
    uint32_t step;
    struct random random;
    struct stg_lease_core *core;
    uint32_t n_granules, slot;
    uint8_t owner[MAX_GRANULES]; /* extent + 1 */
    struct model_extent extents[MAX_EXTENTS];
    struct model_client clients[MAX_CLIENTS];
    struct model_lease out[MAX_LEASES];
    uint32_t n_out;
    struct stg_lease ended[N_STEPS]; /* every lease that ever ended */
    uint32_t n_ended;
    uint32_t generation[MAX_LEASES]; /* the last one of each id */
};

static struct sim sim;

#define SIM_CHECK(condition)                                                             \
    do {                                                                                 \
        if (!(condition))                                                                \
            FAIL("STG_SEED=%llu, step %u: not true: %s", (unsigned long long)sim.seed,   \
                 sim.step, #condition);                                                  \
    } while (0)

static uint32_t below(uint32_t n)
{
    return random_below(&sim.random, n);
}

/* I2, I9: granules are free exactly when the model says so. */
static void settle(uint32_t id)
{
    struct model_extent *extent = &sim.extents[id];
    if (extent->lender || extent->n_leases > 0)
        return;
    for (uint32_t i = 0; i < extent->n; i++)
        sim.owner[extent->start + i] = 0;
    *extent = (struct model_extent){0};
}

static void end_lease(uint32_t i)
{
    struct model_lease *lease = &sim.out[i];
    sim.ended[sim.n_ended++] = lease->lease;
    sim.extents[lease->extent].n_leases--;
    sim.clients[lease->client].n_held--;
    settle(lease->extent);
    *lease = sim.out[--sim.n_out];
}

static void reserve(void)
{
    uint32_t id, n = 1 + below(sim.slot > 0 ? sim.slot : sim.n_granules / 3 + 1);
    uint32_t n_alive = 0, n_free = 0;
    for (uint32_t i = 0; i < MAX_EXTENTS; i++)
        n_alive += sim.extents[i].alive;
    for (uint32_t i = 0; i < sim.n_granules; i++)
        n_free += sim.owner[i] == 0;
    int rc = stg_extent_reserve(sim.core, n * G, &id);
    if (rc < 0) {
        SIM_CHECK(rc == -STAGER_RESOURCE_EXHAUSTED);
        SIM_CHECK(n_alive == MAX_EXTENTS || n_free < sim.n_granules);
        SIM_CHECK(sim.slot == 0 || n_alive == MAX_EXTENTS ||
                  n_alive >= sim.n_granules / sim.slot);
        return;
    }
    SIM_CHECK(id < MAX_EXTENTS && !sim.extents[id].alive);
    uint32_t start = (uint32_t)(stg_extent_offset(sim.core, id) / G);
    SIM_CHECK(start + n <= sim.n_granules);
    for (uint32_t i = start; i < start + n; i++) {
        SIM_CHECK(sim.owner[i] == 0);
        sim.owner[i] = (uint8_t)(id + 1);
    }
    sim.extents[id] = (struct model_extent){
        .alive = true, .lender = true, .filling = true, .start = start, .n = n};
}

static void seal_or_drop(void)
{
    uint32_t id = below(MAX_EXTENTS);
    struct model_extent *extent = &sim.extents[id];
    if (!extent->alive || !extent->lender)
        return;
    if (!extent->filling || below(8) == 0) {
        stg_extent_drop(sim.core, id);
        extent->lender = false;
        settle(id);
        return;
    }
    uint32_t keep = 1 + below(extent->n);
    stg_extent_seal(sim.core, id, keep * G - below(STG_GRANULE_BYTES));
    for (uint32_t i = keep; i < extent->n; i++)
        sim.owner[extent->start + i] = 0;
    extent->n = keep;
    extent->filling = false;
}

static void lend(void)
{
    uint32_t e = below(MAX_EXTENTS), c = below(MAX_CLIENTS);
    struct model_extent *extent = &sim.extents[e];
    struct model_client *client = &sim.clients[c];
    if (!extent->alive || !extent->lender || extent->filling || !client->alive)
        return;
    struct stg_lease lease;
    bool credit = !client->detached && client->n_held < client->max_held;
    SIM_CHECK((stg_lease_client_credits(sim.core, c) > 0) == credit);
    int rc = stg_lease_lend(sim.core, e, c, &lease);
    SIM_CHECK(rc == (credit && sim.n_out < MAX_LEASES ? 0 : -STAGER_RESOURCE_EXHAUSTED));
    if (rc < 0)
        return;
    /* I7 */
    SIM_CHECK(lease.id < MAX_LEASES && lease.generation > sim.generation[lease.id]);
    sim.generation[lease.id] = lease.generation;
    sim.out[sim.n_out++] = (struct model_lease){lease, c, e};
    extent->n_leases++;
    client->n_held++;
}

static void release(void)
{
    if (sim.n_out == 0)
        return;
    uint32_t i = below(sim.n_out), extent = 99;
    struct model_lease lease = sim.out[i];
    SIM_CHECK(stg_lease_release(sim.core, lease.client, lease.lease, &extent, NULL) == 0);
    SIM_CHECK(extent == lease.extent);
    end_lease(i);
}

/* I6: a stale lease, another's, or nonsense. Nothing may change. */
static void lie(void)
{
    struct stg_lease lease = {below(2 * MAX_LEASES), below(40)};
    uint32_t c = below(MAX_CLIENTS), extent = 99;
    if (!sim.clients[c].alive)
        return;
    if (sim.n_ended > 0 && below(2) == 0)
        lease = sim.ended[below(sim.n_ended)];
    else if (sim.n_out > 0 && below(2) == 0)
        lease = sim.out[below(sim.n_out)].lease;
    else if (below(4) == 0)
        lease = (struct stg_lease){(uint32_t)random_next(&sim.random),
                                   (uint32_t)random_next(&sim.random)};
    uint32_t found = sim.n_out;
    for (uint32_t i = 0; i < sim.n_out; i++) {
        if (sim.out[i].lease.id == lease.id && sim.out[i].client == c &&
            sim.out[i].lease.generation == lease.generation)
            found = i;
    }
    int rc = stg_lease_release(sim.core, c, lease, &extent, NULL);
    if (found < sim.n_out) {
        SIM_CHECK(rc == 0 && extent == sim.out[found].extent);
        end_lease(found);
    } else {
        SIM_CHECK(rc == -STAGER_INVALID_ARGUMENT && extent == 99);
    }
}

static uint32_t n_reported;

/* Each report is a lease that the dead client held; it may drop the lender's reference.
 */
static void report(void *owner, uint32_t extent)
{
    uint32_t c = *(uint32_t *)owner;
    uint32_t i = 0;
    while (i < sim.n_out && (sim.out[i].client != c || sim.out[i].extent != extent))
        i++;
    SIM_CHECK(i < sim.n_out);
    end_lease(i);
    n_reported++;
    if (sim.extents[extent].lender && below(2) == 0) {
        stg_extent_drop(sim.core, extent);
        sim.extents[extent].lender = false;
        settle(extent);
    }
}

static void come_or_go(void)
{
    uint32_t c = below(MAX_CLIENTS), max_held = 1 + below(5), id = 99, n_alive = 0;
    struct model_client *client = &sim.clients[c];
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        n_alive += sim.clients[i].alive;
    if (!client->alive) {
        SIM_CHECK(stg_lease_client_add(sim.core, max_held, &id) == 0);
        SIM_CHECK(id < MAX_CLIENTS && !sim.clients[id].alive);
        sim.clients[id] = (struct model_client){.alive = true, .max_held = max_held};
    } else if (n_alive == MAX_CLIENTS && below(2) == 0) {
        SIM_CHECK(stg_lease_client_add(sim.core, max_held, &id) ==
                  -STAGER_RESOURCE_EXHAUSTED);
    } else if (below(3) == 0) {
        uint32_t held = client->n_held;
        n_reported = 0;
        stg_lease_client_dead(sim.core, c, report, &c);
        SIM_CHECK(n_reported == held);
        *client = (struct model_client){0};
    } else {
        stg_lease_client_detach(sim.core, c);
        client->detached = true;
    }
}

/* I8, against the model's own account. */
static void compare(void)
{
    struct stg_lease_usage u, want = {0};
    uint32_t n_detached[MAX_EXTENTS] = {0};
    for (uint32_t i = 0; i < sim.n_out; i++)
        n_detached[sim.out[i].extent] += sim.clients[sim.out[i].client].detached;
    for (uint32_t i = 0; i < MAX_EXTENTS; i++) {
        const struct model_extent *e = &sim.extents[i];
        uint64_t *bytes = e->filling                                   ? &want.filling
                          : e->n_leases == 0                           ? &want.ready
                          : !e->lender && n_detached[i] == e->n_leases ? &want.quarantined
                                                                       : &want.lent;
        *bytes += e->alive ? e->n * G : 0;
        SIM_CHECK(!e->alive || stg_extent_leases(sim.core, i) == e->n_leases);
        SIM_CHECK(!e->alive || stg_extent_offset(sim.core, i) == e->start * G);
    }
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        SIM_CHECK(!sim.clients[i].alive ||
                  stg_lease_client_held(sim.core, i) == sim.clients[i].n_held);
    stg_lease_usage(sim.core, &u);
    SIM_CHECK(u.filling == want.filling && u.ready == want.ready);
    SIM_CHECK(u.lent == want.lent && u.quarantined == want.quarantined);
    SIM_CHECK(u.free + u.filling + u.ready + u.lent + u.quarantined == u.total);
    struct stg_err err = {0};
    if (stg_lease_core_verify(sim.core, &err) < 0)
        FAIL("STG_SEED=%llu, step %u: %s", (unsigned long long)sim.seed, sim.step,
             err.text);
}

static void one_step(void)
{
    switch (below(12)) {
    case 0:
    case 1:
    case 2: reserve(); break;
    case 3:
    case 4: seal_or_drop(); break;
    case 5:
    case 6:
    case 7: lend(); break;
    case 8:
    case 9: release(); break;
    case 10: lie(); break;
    case 11: come_or_go(); break;
    }
}

static void everybody_dies(void)
{
    for (uint32_t c = 0; c < MAX_CLIENTS; c++) {
        if (!sim.clients[c].alive)
            continue;
        stg_lease_client_dead(sim.core, c, report, &c);
        sim.clients[c] = (struct model_client){0};
    }
    for (uint32_t i = 0; i < MAX_EXTENTS; i++) {
        if (!sim.extents[i].lender)
            continue;
        stg_extent_drop(sim.core, i);
        sim.extents[i].lender = false;
        settle(i);
    }
    struct stg_lease_usage u;
    stg_lease_usage(sim.core, &u);
    SIM_CHECK(u.free == u.total);
}

static void one_seed(uint64_t seed)
{
    struct stg_err err = {0};
    sim = (struct sim){.seed = seed, .random = {seed}};
    sim.n_granules = 8 + below(MAX_GRANULES - 8);
    CHECK_OK(stg_lease_core_create(sim.n_granules * G, MAX_EXTENTS, MAX_CLIENTS,
                                   MAX_LEASES, &sim.core, &err),
             err);
    if (below(2) == 0) {
        sim.slot = 1 + below(sim.n_granules / 3);
        stg_lease_core_set_slot(sim.core, sim.slot * G);
    }
    for (sim.step = 0; sim.step < N_STEPS; sim.step++) {
        one_step();
        compare();
    }
    everybody_dies();
    compare();
    stg_lease_core_destroy(sim.core);
}

static void any_mix_of_clients_keeps_the_invariants(void)
{
    const char *seed = getenv("STG_SEED");
    if (seed != NULL) {
        one_seed(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 0; i < N_SEEDS; i++)
        one_seed(i);
}

static const struct stg_test tests[] = {
    TEST_SLOW(any_mix_of_clients_keeps_the_invariants, 60),
};
TEST_MAIN(tests)
