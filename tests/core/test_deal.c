/* SPDX-License-Identifier: Apache-2.0
 *
 * Module test: the deal of a host (core/division/deal.h), compared with a division that
 * is written out record by record.
 */
#include "core/division/deal.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "tests/check.h"

#define MOST_HOSTS 70
#define MOST_RECORDS 400

/* The host of each record of a round, dealt one by one. NULL: one record for each. */
static uint32_t deal_round(uint32_t n_hosts, const struct stg_value *weights,
                           uint32_t *owners)
{
    uint32_t n = 0;
    for (uint32_t host = 0; host < n_hosts; host++) {
        int64_t weight = weights != NULL ? weights[host].i : 1;
        for (; weight > 0; weight--)
            owners[n++] = host;
    }
    return n;
}

/* Divides n records from `first` on among n_hosts hosts, and checks that each host takes,
 * in order, the records that a deal of one record at a time gives it. */
static void check_division(uint32_t n_hosts, const struct stg_value *weights,
                           uint64_t first, uint64_t n, bool pads)
{
    uint32_t owners[MOST_RECORDS];
    uint64_t n_slots = deal_round(n_hosts, weights, owners), whole = n / n_slots;
    uint32_t n_last = (uint32_t)(n % n_slots);
    for (uint32_t host = 0; host < n_hosts; host++) {
        struct stg_deal_share share =
            stg_deal_share(&(struct stg_deal){.n_hosts = n_hosts, .host = host}, weights);
        uint64_t taken = 0, missing = 0;
        for (uint64_t i = 0; i < whole * n_slots; i++) {
            if (owners[i % n_slots] != host)
                continue;
            CHECK_INT(stg_deal_record(&share, first, taken), first + i);
            CHECK(first + i >= stg_deal_after(&share, first, i / n_slots));
            CHECK(first + i < stg_deal_after(&share, first, i / n_slots + 1));
            taken++;
        }
        CHECK_INT(stg_deal_count(&share, n, false), taken);
        for (uint32_t slot = 0; slot < n_slots && n_last > 0; slot++) {
            taken += pads && owners[slot] == host;
            missing += slot >= n_last && owners[slot] == host;
        }
        CHECK_INT(stg_deal_count(&share, n, pads), taken);
        if (n_last > 0)
            CHECK_INT(stg_deal_missing(&share, n_last), missing);
    }
}

static void each_record_is_of_one_host_in_each_whole_round(void)
{
    for (uint32_t n_hosts = 1; n_hosts <= MOST_HOSTS; n_hosts++) {
        for (uint64_t n = 0; n <= 3 * (uint64_t)n_hosts + 1; n++) {
            check_division(n_hosts, NULL, n * 7, n, false);
            check_division(n_hosts, NULL, n * 7, n, true);
        }
    }
}

static void a_host_takes_as_many_records_of_a_round_as_its_weight(void)
{
    struct stg_value weights[10] = {{0}};
    for (unsigned seed = 1; seed <= 300; seed++) {
        srand(seed);
        uint32_t n_hosts = 1 + (uint32_t)(rand() % 10);
        for (uint32_t i = 0; i < n_hosts; i++)
            weights[i].i = 1 + rand() % 9;
        for (uint64_t n = 0; n <= MOST_RECORDS; n += 1 + (uint64_t)rand() % 9) {
            check_division(n_hosts, weights, n * 7, n, false);
            check_division(n_hosts, weights, n * 7, n, true);
        }
    }
}

/* Numbers of hosts follow one another, each for some rounds. */
static void a_division_goes_on_with_any_number_of_hosts(void)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        unsigned taken[MOST_RECORDS] = {0};
        uint64_t base = 0;
        srand(seed);
        while (base < MOST_RECORDS / 2) {
            struct stg_deal deal = {.n_hosts = 1 + (uint32_t)(rand() % 20)};
            uint64_t rounds = (uint64_t)(rand() % 5);
            struct stg_deal_share share;
            for (; deal.host < deal.n_hosts; deal.host++) {
                share = stg_deal_share(&deal, NULL);
                for (uint64_t i = 0; i < rounds; i++)
                    taken[stg_deal_record(&share, base, i)]++;
            }
            base = stg_deal_after(&share, base, rounds);
        }
        for (uint64_t i = 0; i < MOST_RECORDS; i++)
            CHECK_INT(taken[i], i < base);
    }
}

static void ten_thousand_hosts_divide_a_large_pass(void)
{
    const struct stg_deal last = {.n_hosts = 10000, .host = 9999};
    const uint64_t n = 3ull << 40;
    struct stg_deal_share share = stg_deal_share(&last, NULL);
    uint64_t rounds = stg_deal_count(&share, n, false);
    CHECK(stg_deal_record(&share, 0, rounds - 1) < n);
    CHECK(stg_deal_record(&share, 0, rounds) >= n);
    CHECK_INT(stg_deal_after(&share, 5, UINT64_MAX), UINT64_MAX);
    CHECK_INT(stg_deal_record(&share, UINT64_MAX, 1), UINT64_MAX);
}

static void the_largest_weights_of_the_most_hosts_do_not_overflow(void)
{
    static struct stg_value weights[STG_DEAL_MAX_WEIGHTED];
    for (uint32_t i = 0; i < STG_DEAL_MAX_WEIGHTED; i++)
        weights[i].i = STG_DEAL_MAX_WEIGHT;
    const struct stg_deal last = {.n_hosts = STG_DEAL_MAX_WEIGHTED,
                                  .host = STG_DEAL_MAX_WEIGHTED - 1};
    struct stg_deal_share share = stg_deal_share(&last, weights);
    CHECK_INT(share.n_slots, 4194304);
    CHECK_INT(share.first, 4193280);
    CHECK_INT(stg_deal_record(&share, 0, 1024), 4194304 + 4193280);
    CHECK_INT(stg_deal_record(&share, 0, UINT64_MAX), UINT64_MAX);
    CHECK_INT(stg_deal_count(&share, UINT64_MAX, false), 4503599627369472);
    const struct stg_deal alone = {.n_hosts = 1};
    share = stg_deal_share(&alone, weights);
    CHECK_INT(stg_deal_count(&share, UINT64_MAX, true), UINT64_MAX);
}

static void ranks_of_a_host_follow_one_another(void)
{
    for (uint32_t n_hosts = 1; n_hosts <= 9; n_hosts++) {
        for (uint32_t local = 1; local <= 9; local++) {
            uint32_t size = n_hosts * local;
            for (uint32_t rank = 0; rank < size; rank++) {
                struct stg_deal deal;
                struct stg_err err = {0};
                struct stg_deal_rank given = {rank, size, rank % local, local};
                CHECK_INT(stg_deal_find(&given, &deal, &err), 0);
                CHECK_INT(deal.n_hosts, n_hosts);
                CHECK_INT(deal.host, rank / local);
            }
        }
    }
}

static void ranks_that_contradict_one_another_are_named(void)
{
    static const struct {
        struct stg_deal_rank rank;
        const char *text;
    } bad[] = {
        {{0, 0, 0, 1}, "dp_rank 0 of dp_size 0"},
        {{4, 4, 0, 1}, "dp_rank 4 of dp_size 4"},
        {{0, 4, 0, 0}, "local_rank 0 of local_size 0"},
        {{0, 4, 2, 2}, "local_rank 2 of local_size 2"},
        {{0, 5, 0, 2}, "dp_size 5 is not a multiple of local_size 2"},
        {{1, 4, 0, 2}, "dp_rank 1 has local_rank 0"},
        {{0, UINT32_MAX, 0, 1}, "more than 1048576 hosts"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stg_deal deal = {.n_hosts = 77};
        struct stg_err err = {0};
        CHECK_INT(stg_deal_find(&bad[i].rank, &deal, &err), -STAGER_INVALID_ARGUMENT);
        CHECK(strstr(err.text, bad[i].text) != NULL);
        CHECK_INT(deal.n_hosts, 77);
    }
}

static const struct stg_test tests[] = {
    TEST(each_record_is_of_one_host_in_each_whole_round),
    TEST(a_host_takes_as_many_records_of_a_round_as_its_weight),
    TEST(a_division_goes_on_with_any_number_of_hosts),
    TEST(ten_thousand_hosts_divide_a_large_pass),
    TEST(the_largest_weights_of_the_most_hosts_do_not_overflow),
    TEST(ranks_of_a_host_follow_one_another),
    TEST(ranks_that_contradict_one_another_are_named),
};
TEST_MAIN(tests)
