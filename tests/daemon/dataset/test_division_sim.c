/* SPDX-License-Identifier: Apache-2.0
 *
 * 10,000 hosts divide a pass, by the code that stagerd divides it with, while hosts die,
 * join, and are cut off. A register holds the attempt: its hosts, and the state of the
 * last commit. A new set of hosts begins the next attempt at that state; a commit of an
 * older attempt changes nothing. Each record is counted when a commit covers it.
 * STG_SEED=n runs one seed; STG_CLUSTER_SEEDS=n as many.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/steps/division.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define N_HOSTS 10000u
#define N_SPARE 2000u /* that may join */
#define N_ALL (N_HOSTS + N_SPARE)
#define N_RECORDS 2000000u
#define N_CHANGES 1000u
#define LEASE 3 /* ticks that the register keeps a host which it does not hear */

struct host {
    bool is_alive, is_cut; /* cut: it cannot reach the register */
    unsigned heard;        /* tick at which the register heard it last */
    uint64_t attempt;      /* that it is in; 0: none */
    struct stg_deal share;
    uint64_t base, rounds; /* of that attempt: its first record, and rounds taken */
};

/* What all hosts agree on. */
static struct {
    uint64_t attempt;
    uint32_t n_hosts;
    uint32_t members[N_ALL]; /* by number */
    struct stg_state commit;
} reg;

static struct host hosts[N_ALL];
static uint8_t times[N_RECORDS]; /* that a commit covered the record */
static struct stg_test_spec spec;
static uint64_t random_state;
static unsigned now, n_deaths, n_joins, n_cuts, n_attempts;
static uint64_t n_fenced, n_taken, n_repeated;

static uint64_t draw(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* ---- attempts ---- */

static bool holds_lease(const struct host *host)
{
    return host->heard + LEASE > now;
}

static bool has_changed(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_ALL; i++)
        n += holds_lease(&hosts[i]);
    bool same = n == reg.n_hosts;
    for (uint32_t i = 0; same && i < reg.n_hosts; i++)
        same = holds_lease(&hosts[reg.members[i]]);
    return !same;
}

/* The records of the old attempt after its commit are taken again: the trainers are as
 * the checkpoint has them. */
static void begin_attempt(void)
{
    struct stg_err err = {0};
    for (uint32_t i = 0; i < reg.n_hosts; i++) {
        const struct host *host = &hosts[reg.members[i]];
        if (host->attempt == reg.attempt)
            n_repeated += host->rounds - reg.commit.place.elements;
    }
    reg.attempt++;
    reg.n_hosts = 0;
    n_attempts++;
    for (uint32_t i = 0; i < N_ALL; i++) {
        if (holds_lease(&hosts[i]))
            reg.members[reg.n_hosts++] = i;
    }
    for (uint32_t i = 0; i < reg.n_hosts; i++) {
        struct host *host = &hosts[reg.members[i]];
        struct stg_state state = reg.commit;
        if (!host->is_alive || host->is_cut)
            continue; /* it does not learn of the attempt: this one ends soon, too */
        host->share = (struct stg_deal){.n_hosts = reg.n_hosts, .host = i};
        CHECK_INT(stg_division_restate(&spec.spec, &host->share, &state, &err), 0);
        host->attempt = reg.attempt;
        host->base = state.base;
        host->rounds = state.place.elements;
    }
    const struct stg_deal share = {.n_hosts = reg.n_hosts};
    CHECK_INT(stg_division_restate(&spec.spec, &share, &reg.commit, &err), 0);
}

/* ---- hosts ---- */

static uint64_t rounds_of(const struct host *host)
{
    return stg_deal_rounds(&host->share, N_RECORDS - host->base, false);
}

/* Hosts run ahead of one another, also those that are cut off. */
static void take(struct host *host)
{
    uint64_t n = draw(3), most = rounds_of(host) - host->rounds;
    n = n < most ? n : most;
    host->rounds += n;
    n_taken += n;
}

/* The trainers commit what all of them have. A host of an older attempt tries, and is
 * refused; so is an attempt of which a host does not answer. */
static void commit(void)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < N_ALL; i++) {
        const struct host *host = &hosts[i];
        n_fenced += host->is_alive && !host->is_cut && host->attempt != 0 &&
                    host->attempt != reg.attempt;
    }
    for (uint32_t i = 0; i < reg.n_hosts; i++) {
        const struct host *host = &hosts[reg.members[i]];
        if (!host->is_alive || host->is_cut || host->attempt != reg.attempt)
            return;
        least = host->rounds < least ? host->rounds : least;
    }
    for (uint32_t i = 0; i < reg.n_hosts; i++) {
        const struct host *host = &hosts[reg.members[i]];
        for (uint64_t round = reg.commit.place.elements; round < least; round++) {
            uint64_t record = stg_deal_record(&host->share, host->base, round);
            CHECK(record < N_RECORDS);
            times[record]++;
        }
    }
    reg.commit.place.items = reg.commit.place.elements = least;
}

static void change(void)
{
    struct host *host = &hosts[draw(N_ALL)];
    if (!host->is_alive) {
        *host = (struct host){.is_alive = true, .heard = now};
        n_joins++;
    } else if (host->is_cut) {
        host->is_cut = false;
    } else if (draw(4) == 0) {
        host->is_cut = true;
        n_cuts++;
    } else {
        host->is_alive = false;
        n_deaths++;
    }
}

static void tick(bool changes)
{
    now++;
    for (unsigned n = changes ? (unsigned)draw(8) : 0; n > 0; n--)
        change();
    for (uint32_t i = 0; i < N_ALL; i++) {
        struct host *host = &hosts[i];
        if (host->is_alive && !host->is_cut)
            host->heard = now;
        if (host->is_alive && host->attempt != 0)
            take(host);
    }
    commit();
    if (has_changed())
        begin_attempt();
}

/* ---- a pass ---- */

static bool is_over(void)
{
    const struct stg_deal share = {.n_hosts = reg.n_hosts};
    return reg.n_hosts > 0 &&
           reg.commit.place.elements ==
               stg_deal_rounds(&share, N_RECORDS - reg.commit.base, false);
}

static void run_seed(uint64_t seed)
{
    memset(hosts, 0, sizeof(hosts));
    memset(times, 0, sizeof(times));
    memset(&reg, 0, sizeof(reg));
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    now = LEASE;
    n_deaths = n_joins = n_cuts = n_attempts = 0;
    n_fenced = n_taken = n_repeated = 0;
    for (uint32_t i = 0; i < N_HOSTS; i++)
        hosts[i] = (struct host){.is_alive = true, .heard = now};
    for (uint32_t i = N_HOSTS; i < N_ALL; i++)
        hosts[i].heard = 0;
    reg.commit.hosts = 1; /* of a run that has taken nothing */
    begin_attempt();
    /* A commit needs a tick in which no host is missing: changes come in waves. */
    while (!is_over())
        tick(n_deaths < N_CHANGES && now % 32 < 24);
    uint64_t covered = stg_deal_after(&(struct stg_deal){.n_hosts = reg.n_hosts},
                                      reg.commit.base, reg.commit.place.elements);
    CHECK(N_RECORDS - covered < reg.n_hosts);
    for (uint64_t i = 0; i < N_RECORDS; i++)
        CHECK_INT(times[i], i < covered);
    fprintf(stderr,
            "seed %" PRIu64 ": %u deaths, %u joins, %u cuts, %u attempts, %" PRIu64
            " commits refused, %" PRIu64 " of %" PRIu64 " records taken again\n",
            seed, n_deaths, n_joins, n_cuts, n_attempts, n_fenced, n_repeated, n_taken);
}

static void each_record_is_committed_once_by_ten_thousand_hosts(void)
{
    const char *one = getenv("STG_SEED"), *many = getenv("STG_CLUSTER_SEEDS");
    uint64_t n = many != NULL ? strtoull(many, NULL, 10) : 1;
    stg_test_range(&spec, N_RECORDS);
    stg_test_step(&spec, "shard");
    stg_test_int(&spec, "num_shards", 0);
    stg_test_step(&spec, "batch");
    stg_test_int(&spec, "batch_size", 4);
    CHECK(stg_division_find(&spec.spec) != NULL);
    if (one != NULL)
        run_seed(strtoull(one, NULL, 10));
    for (uint64_t seed = 1; one == NULL && seed <= n; seed++)
        run_seed(seed);
}

static const struct stg_test tests[] = {
    TEST(each_record_is_committed_once_by_ten_thousand_hosts),
};
TEST_MAIN(tests)
