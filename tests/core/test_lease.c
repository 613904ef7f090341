/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/layout.h"
#include "core/lease.h"
#include "tests/check.h"

#define G ((uint64_t)STG_GRANULE_BYTES)

static struct stg_lease_core *core;
static struct stg_err err;

static void make(uint64_t granules, uint32_t max_leases)
{
    CHECK_OK(stg_lease_core_create(granules * G, 16, 4, max_leases, &core, &err), err);
}

static void finish(void)
{
    CHECK_OK(stg_lease_core_verify(core, &err), err);
    stg_lease_core_destroy(core);
}

static uint32_t ready(uint64_t granules)
{
    uint32_t extent;
    CHECK_INT(stg_extent_reserve(core, granules * G, &extent), 0);
    stg_extent_seal(core, extent, granules * G);
    return extent;
}

static uint32_t client(uint32_t max_in_flight)
{
    uint32_t id;
    CHECK_INT(stg_lease_client_add(core, max_in_flight, &id), 0);
    return id;
}

static struct stg_lease grant(uint32_t extent, uint32_t to)
{
    struct stg_lease lease;
    CHECK_INT(stg_lease_grant(core, extent, to, &lease), 0);
    return lease;
}

static void release(uint32_t from, struct stg_lease lease, uint32_t want_extent)
{
    uint32_t extent;
    CHECK_OK(stg_lease_release(core, from, lease, &extent, &err), err);
    CHECK_INT(extent, want_extent);
}

static void refused(uint32_t from, struct stg_lease lease, const char *why)
{
    struct stg_lease_usage before, after;
    stg_lease_usage(core, &before);
    uint32_t extent = 99;
    CHECK_INT(stg_lease_release(core, from, lease, &extent, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, why);
    CHECK_INT(extent, 99);
    stg_lease_usage(core, &after);
    CHECK_INT(after.free, before.free);
    CHECK_INT(after.leased, before.leased);
}

/* In granules. */
static void usage_is(uint64_t free_g, uint64_t filling, uint64_t ready_g, uint64_t leased,
                     uint64_t quarantined)
{
    struct stg_lease_usage u;
    stg_lease_usage(core, &u);
    CHECK_INT(u.free / G, free_g);
    CHECK_INT(u.filling / G, filling);
    CHECK_INT(u.ready / G, ready_g);
    CHECK_INT(u.leased / G, leased);
    CHECK_INT(u.quarantined / G, quarantined);
    CHECK_OK(stg_lease_core_verify(core, &err), err);
}

static void a_batch_is_sent_and_returned(void)
{
    make(100, 8);
    uint32_t extent;
    CHECK_INT(stg_extent_reserve(core, 40 * G, &extent), 0);
    usage_is(60, 40, 0, 0, 0);
    stg_extent_seal(core, extent, 10 * G - 7);
    usage_is(90, 0, 10, 0, 0);
    CHECK_INT(stg_extent_bytes(core, extent), 10 * G);
    uint32_t a = client(2);
    struct stg_lease lease = grant(extent, a);
    usage_is(90, 0, 0, 10, 0);
    CHECK_INT(stg_lease_client_credits(core, a), 1);
    release(a, lease, extent);
    usage_is(90, 0, 10, 0, 0);
    stg_extent_drop(core, extent);
    usage_is(100, 0, 0, 0, 0);
    finish();
}

static void a_batch_that_was_given_up_while_filling_is_free(void)
{
    make(10, 8);
    uint32_t extent;
    CHECK_INT(stg_extent_reserve(core, 4 * G, &extent), 0);
    stg_extent_drop(core, extent);
    usage_is(10, 0, 0, 0, 0);
    finish();
}

static void an_extent_lives_until_its_last_reader_is_done(void)
{
    make(10, 8);
    uint32_t extent = ready(4), a = client(2), b = client(2);
    struct stg_lease of_a = grant(extent, a), of_b = grant(extent, b);
    CHECK_INT(stg_extent_leases(core, extent), 2);
    stg_extent_drop(core, extent);
    release(a, of_a, extent);
    usage_is(6, 0, 0, 4, 0);
    release(b, of_b, extent);
    usage_is(10, 0, 0, 0, 0);
    finish();
}

static void a_client_gets_no_more_than_its_credits(void)
{
    make(10, 8);
    uint32_t extent = ready(1), a = client(2);
    struct stg_lease first = grant(extent, a), lease;
    grant(extent, a);
    CHECK_INT(stg_lease_client_held(core, a), 2);
    CHECK_INT(stg_lease_client_credits(core, a), 0);
    CHECK_INT(stg_lease_grant(core, extent, a, &lease), -STAGER_RESOURCE_EXHAUSTED);
    release(a, first, extent);
    grant(extent, a);
    finish();
}

static void lease_slots_run_out(void)
{
    make(10, 2);
    uint32_t extent = ready(1), a = client(8);
    struct stg_lease first = grant(extent, a), lease;
    grant(extent, a);
    CHECK_INT(stg_lease_grant(core, extent, a, &lease), -STAGER_RESOURCE_EXHAUSTED);
    release(a, first, extent);
    grant(extent, a);
    finish();
}

static void a_lying_client_costs_no_other_client(void)
{
    make(10, 8);
    uint32_t extent = ready(2), a = client(2), b = client(2);
    struct stg_lease of_a = grant(extent, a), of_b = grant(extent, b);
    refused(b, of_a, "another client");
    refused(b, (struct stg_lease){8, 1}, "there are only 8");
    refused(b, (struct stg_lease){UINT32_MAX, 1}, "there are only 8");
    refused(b, (struct stg_lease){of_b.id, of_b.generation + 1}, "not out");
    refused(b, (struct stg_lease){of_b.id, 0}, "not out");
    refused(b, (struct stg_lease){7, 0}, "not out");
    release(b, of_b, extent);
    refused(b, of_b, "released twice");
    release(a, of_a, extent);
    finish();
}

static void a_detached_client_keeps_its_bytes_and_gets_no_more(void)
{
    make(10, 8);
    uint32_t extent = ready(3), a = client(2), b = client(2);
    struct stg_lease of_a = grant(extent, a), lease;
    stg_lease_client_detach(core, a);
    stg_lease_client_detach(core, a);
    usage_is(7, 0, 0, 3, 0);
    CHECK_INT(stg_lease_client_credits(core, a), 0);
    CHECK_INT(stg_lease_grant(core, extent, a, &lease), -STAGER_RESOURCE_EXHAUSTED);

    struct stg_lease of_b = grant(extent, b);
    stg_extent_drop(core, extent);
    usage_is(7, 0, 0, 3, 0);
    release(b, of_b, extent);
    usage_is(7, 0, 0, 0, 3);
    release(a, of_a, extent);
    usage_is(10, 0, 0, 0, 0);
    finish();
}

static uint32_t reported[8];
static uint32_t n_reported;

static void report(void *owner, uint32_t extent)
{
    CHECK(owner == &n_reported);
    CHECK(stg_extent_leases(core, extent) == 0);
    reported[n_reported++] = extent;
    stg_extent_drop(core, extent);
    CHECK_OK(stg_lease_core_verify(core, &err), err);
}

static void a_dead_trainer_gives_back_its_extents(void)
{
    make(10, 8);
    uint32_t a = client(3), b = client(3);
    uint32_t x = ready(1), y = ready(2), z = ready(3);
    grant(x, a);
    grant(y, a);
    grant(z, b);
    stg_lease_client_detach(core, a);
    stg_lease_client_dead(core, a, report, &n_reported);
    CHECK_INT(n_reported, 2);
    CHECK_INT(reported[0] + reported[1], x + y);
    usage_is(7, 0, 0, 3, 0);

    stg_extent_drop(core, z);
    stg_lease_client_dead(core, b, NULL, NULL);
    usage_is(10, 0, 0, 0, 0);
    finish();
}

static void a_dead_client_makes_room_for_another(void)
{
    make(10, 8);
    uint32_t ids[4], id, extent = ready(1);
    for (int i = 0; i < 4; i++)
        ids[i] = client(2);
    CHECK_INT(stg_lease_client_add(core, 2, &id), -STAGER_RESOURCE_EXHAUSTED);
    struct stg_lease old = grant(extent, ids[2]);
    stg_lease_client_dead(core, ids[2], NULL, NULL);
    CHECK_INT(client(2), ids[2]);
    CHECK_INT(stg_lease_client_held(core, ids[2]), 0);
    CHECK_INT(stg_lease_client_credits(core, ids[2]), 2);
    refused(ids[2], old, "not out");
    finish();
}

static void what_can_never_fit_is_refused(void)
{
    make(10, 8);
    uint32_t extent;
    stg_lease_core_set_slot(core, 5 * G);
    CHECK_INT(stg_extent_reserve(core, 6 * G, &extent), -STAGER_INVALID_ARGUMENT);
    ready(5);
    ready(4);
    CHECK_INT(stg_extent_reserve(core, 2 * G, &extent), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_INT(stg_lease_core_create(G - 1, 1, 1, 1, &core, &err),
              -STAGER_INVALID_ARGUMENT);
    finish();
}

static const struct stg_test tests[] = {
    TEST(a_batch_is_sent_and_returned),
    TEST(a_batch_that_was_given_up_while_filling_is_free),
    TEST(an_extent_lives_until_its_last_reader_is_done),
    TEST(a_client_gets_no_more_than_its_credits),
    TEST(lease_slots_run_out),
    TEST(a_lying_client_costs_no_other_client),
    TEST(a_detached_client_keeps_its_bytes_and_gets_no_more),
    TEST(a_dead_trainer_gives_back_its_extents),
    TEST(a_dead_client_makes_room_for_another),
    TEST(what_can_never_fit_is_refused),
};
TEST_MAIN(tests)
