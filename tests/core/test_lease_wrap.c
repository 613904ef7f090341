/* SPDX-License-Identifier: Apache-2.0
 *
 * 2^32 grants would take a minute, so the test sets the table to the last generations.
 * For this it is compiled together with the source under test.
 */
#include "core/lease.c"
#include "tests/check.h"

static void a_slot_whose_generation_would_wrap_is_retired(void)
{
    struct stg_lease_core *core;
    struct stg_lease lease, last;
    struct stg_err err = {0};
    uint32_t extent = 0, client = 0, freed = 0;
    CHECK_OK(stg_lease_core_create(1u << 20, 4, 2, 2, &core, &err), err);
    core->slots[0].generation = UINT32_MAX - 2;
    core->slots[1].generation = UINT32_MAX - 1;
    CHECK_INT(stg_extent_reserve(core, 1, &extent), 0);
    stg_extent_seal(core, extent, 1);
    CHECK_INT(stg_lease_client_add(core, 2, &client), 0);

    CHECK_INT(stg_lease_grant(core, extent, client, &lease), 0);
    CHECK_INT(lease.generation, UINT32_MAX - 1);
    CHECK_OK(stg_lease_release(core, client, lease, &freed, &err), err);
    CHECK_INT(stg_lease_grant(core, extent, client, &last), 0);
    CHECK_INT(last.id, lease.id);
    CHECK_INT(last.generation, UINT32_MAX);
    CHECK_OK(stg_lease_core_verify(core, &err), err);
    CHECK_OK(stg_lease_release(core, client, last, &freed, &err), err);
    CHECK_OK(stg_lease_core_verify(core, &err), err);
    CHECK_INT(core->n_retired, 1);
    CHECK_INT(stg_lease_release(core, client, last, &freed, &err),
              -STAGER_INVALID_ARGUMENT);

    /* The other slot serves once more; then none is left. */
    CHECK_INT(stg_lease_grant(core, extent, client, &lease), 0);
    CHECK(lease.id != last.id);
    CHECK_INT(stg_lease_grant(core, extent, client, &last), -STAGER_RESOURCE_EXHAUSTED);
    stg_lease_client_dead(core, client, NULL, NULL);
    CHECK_INT(core->n_retired, 2);
    CHECK_INT(stg_lease_client_add(core, 2, &client), 0);
    CHECK_INT(stg_lease_grant(core, extent, client, &lease), -STAGER_RESOURCE_EXHAUSTED);
    CHECK_OK(stg_lease_core_verify(core, &err), err);
    stg_lease_core_destroy(core);
}

/* The verifier can fail: each table is corrupted once. */
static struct stg_lease_core *bent(uint32_t *ret_extent, uint32_t *ret_client)
{
    struct stg_lease_core *core;
    struct stg_lease lease;
    struct stg_err err = {0};
    CHECK_OK(stg_lease_core_create(1u << 20, 4, 2, 4, &core, &err), err);
    CHECK_INT(stg_extent_reserve(core, 1, ret_extent), 0);
    stg_extent_seal(core, *ret_extent, 1);
    CHECK_INT(stg_lease_client_add(core, 2, ret_client), 0);
    CHECK_INT(stg_lease_grant(core, *ret_extent, *ret_client, &lease), 0);
    CHECK_OK(stg_lease_core_verify(core, &err), err);
    return core;
}

static void the_verifier_sees_what_is_bent(void)
{
    struct stg_err err;
    uint32_t e = 0, c = 0;
    for (int what = 0; what < 9; what++) {
        struct stg_lease_core *core = bent(&e, &c);
        struct slot *slot = &core->slots[core->clients[c].first];
        switch (what) {
        case 0: core->extents[e].n_leases = 2; break;
        case 1: core->extents[e].n_detached = 1; break;
        case 2: core->extents[e].state = READY; break;
        case 3: core->bytes[LEASED] += 1; break;
        case 4: core->clients[c].n_held = 0; break;
        case 5: slot->out = false; break;
        case 6: slot->client = 1 - c; break;
        case 7: slot->extent = (e + 1) % 4; break;
        case 8: core->free_slot = NONE; break;
        }
        if (stg_lease_core_verify(core, &err) != -STAGER_INTERNAL)
            FAIL("bent thing %d was not seen", what);
        stg_lease_core_destroy(core);
    }
}

static const struct stg_test tests[] = {
    TEST(a_slot_whose_generation_would_wrap_is_retired),
    TEST(the_verifier_sees_what_is_bent),
};
TEST_MAIN(tests)
