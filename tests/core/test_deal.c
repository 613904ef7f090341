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

/* Divides n records from `first` on among n_hosts hosts, and checks that each is taken
 * once, by the host that a deal of one record at a time gives it to. */
static void check_division(uint32_t n_hosts, uint64_t first, uint64_t n, bool pads)
{
    unsigned taken[MOST_RECORDS] = {0};
    uint64_t whole = n / n_hosts, n_last = n - whole * n_hosts;
    for (uint32_t host = 0; host < n_hosts; host++) {
        struct stg_deal deal = {.n_hosts = n_hosts, .host = host};
        uint64_t rounds = stg_deal_rounds(&deal, n, pads);
        CHECK_INT(rounds, whole + (pads && n_last > 0)); /* equal everywhere */
        for (uint64_t i = 0; i < whole; i++) {
            uint64_t record = stg_deal_record(&deal, first, i);
            CHECK(record >= first && record < first + n);
            taken[record - first]++;
            CHECK(record < stg_deal_after(&deal, first, i + 1));
            CHECK(record >= stg_deal_after(&deal, first, i));
        }
        if (rounds > whole)
            taken[whole * n_hosts + stg_deal_pad(&deal, (uint32_t)n_last)]++;
    }
    for (uint64_t i = 0; i < whole * n_hosts; i++)
        CHECK_INT(taken[i], 1);
    for (uint64_t i = whole * n_hosts; i < n; i++)
        CHECK_INT(taken[i], !pads ? 0 : i > whole * n_hosts ? 1 : n_hosts - n_last + 1);
}

static void each_record_is_of_one_host_in_each_whole_round(void)
{
    for (uint32_t n_hosts = 1; n_hosts <= MOST_HOSTS; n_hosts++) {
        for (uint64_t n = 0; n <= 3 * (uint64_t)n_hosts + 1; n++) {
            check_division(n_hosts, n * 7, n, false);
            check_division(n_hosts, n * 7, n, true);
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
            uint32_t n_hosts = 1 + (uint32_t)(rand() % 20);
            uint64_t rounds = (uint64_t)(rand() % 5);
            for (uint32_t host = 0; host < n_hosts; host++) {
                struct stg_deal deal = {.n_hosts = n_hosts, .host = host};
                for (uint64_t i = 0; i < rounds; i++)
                    taken[stg_deal_record(&deal, base, i)]++;
            }
            base = stg_deal_after(&(struct stg_deal){.n_hosts = n_hosts}, base, rounds);
        }
        for (uint64_t i = 0; i < MOST_RECORDS; i++)
            CHECK_INT(taken[i], i < base);
    }
}

static void ten_thousand_hosts_divide_a_large_pass(void)
{
    const uint32_t n_hosts = 10000;
    const uint64_t n = 3ull << 40;
    struct stg_deal last = {.n_hosts = n_hosts, .host = n_hosts - 1};
    uint64_t rounds = stg_deal_rounds(&last, n, false);
    CHECK(stg_deal_record(&last, 0, rounds - 1) < n);
    CHECK(stg_deal_record(&last, 0, rounds) >= n);
    CHECK_INT(stg_deal_after(&last, 5, UINT64_MAX), UINT64_MAX);
    CHECK_INT(stg_deal_record(&last, UINT64_MAX, 1), UINT64_MAX);
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
    TEST(a_division_goes_on_with_any_number_of_hosts),
    TEST(ten_thousand_hosts_divide_a_large_pass),
    TEST(ranks_of_a_host_follow_one_another),
    TEST(ranks_that_contradict_one_another_are_named),
};
TEST_MAIN(tests)
