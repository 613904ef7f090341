/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/totals.h"

#include <stdlib.h>

#include "tests/check.h"

static void a_wait_counts_in_the_first_bound_that_it_fits(void)
{
    struct stg_waits waits = {0};
    stg_waits_add(&waits, 0);
    stg_waits_add(&waits, 100000);
    stg_waits_add(&waits, 100001);
    stg_waits_add(&waits, 10000000000);
    stg_waits_add(&waits, 10000000001);
    CHECK_INT(waits.n[0], 2);
    CHECK_INT(waits.n[1], 1);
    CHECK_INT(waits.n[STG_WAIT_BOUNDS - 1], 1);
    CHECK_INT(waits.n[STG_WAIT_BOUNDS], 1);
    CHECK_INT(waits.sum_ns, 20000200002);
}

static void bounds_grow(void)
{
    for (unsigned i = 1; i < STG_WAIT_BOUNDS; i++)
        CHECK(stg_wait_bounds_ns[i - 1] < stg_wait_bounds_ns[i]);
}

/* Of a pipeline that had two ranks, and now has three. */
static void totals_add_up_over_runs(void)
{
    struct stg_rank_counts two[2] = {{.n_acknowledged = 1, .held_up_ns = 5},
                                     {.n_acknowledged = 2}};
    struct stg_rank_counts three[3] = {
        {.n_acknowledged = 10}, {.n_held = 2}, {.n_acknowledged = 30}};
    struct stg_totals all = {0};
    stg_waits_add(&two[1].waits, 7);
    stg_waits_add(&three[1].waits, 8);
    struct stg_totals first = {.n = {[STG_TOTAL_LOST] = 4}, .ranks = two, .n_ranks = 2};
    struct stg_totals second = {.n = {[STG_TOTAL_LOST] = 5, [STG_TOTAL_MADE] = 6},
                                .errors = {[13] = 1},
                                .ranks = three,
                                .n_ranks = 3};
    stg_totals_add(&all, &first);
    stg_totals_add(&all, &second);
    CHECK_INT(all.n[STG_TOTAL_LOST], 9);
    CHECK_INT(all.n[STG_TOTAL_MADE], 6);
    CHECK_INT(all.errors[13], 1);
    CHECK_INT(all.n_ranks, 3);
    CHECK_INT(all.ranks[0].n_acknowledged, 11);
    CHECK_INT(all.ranks[0].held_up_ns, 5);
    CHECK_INT(all.ranks[1].n_acknowledged, 2);
    CHECK_INT(all.ranks[1].n_held, 2);
    CHECK_INT(all.ranks[1].waits.n[0], 2);
    CHECK_INT(all.ranks[1].waits.sum_ns, 15);
    CHECK_INT(all.ranks[2].n_acknowledged, 30);
    stg_totals_finish(&all);
    CHECK(all.ranks == NULL);
}

static const struct stg_test tests[] = {
    TEST(a_wait_counts_in_the_first_bound_that_it_fits),
    TEST(bounds_grow),
    TEST(totals_add_up_over_runs),
};

TEST_MAIN(tests)
