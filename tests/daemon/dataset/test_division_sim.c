/* SPDX-License-Identifier: Apache-2.0
 *
 * 10,000 hosts divide a pass, by the code that stagerd divides it with, while hosts die,
 * join, and are cut off. A register stands for etcd: it has the keys of the hosts, for as
 * long as it hears them, the generation, and the state of the last commit. Which
 * generation follows is decided by the code that stagerd decides it with, on any host. A
 * commit of an older generation changes nothing. Each record is counted when a commit
 * covers it.
 *
 * The test prints how many records left at each change of hosts have another host then,
 * and the least number that equal shares allow. The first is far above the second: a
 * round takes records that follow one another, so that with n hosts record r is that of
 * host (r - base) mod n, and another n gives nearly every record another host. The data
 * stays where it is: a host reads a record in the round that takes it, and a new attempt
 * begins with an empty buffer on each host.
 *
 * STG_SEED=n runs one seed; STG_CLUSTER_SEEDS=n as many.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster/membership.h"
#include "daemon/dataset/steps/division.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define N_HOSTS 10000u
#define N_SPARE 2000u /* that may join */
#define N_ALL (N_HOSTS + N_SPARE)
#define N_RECORDS 4000000u
#define N_DEATHS 1000u
#define LEASE 3 /* ticks that the register keeps a host which it does not hear */

struct host {
    bool is_alive, is_cut; /* cut: it cannot reach the register */
    unsigned heard;        /* tick at which the register heard it last */
    uint64_t attempt;      /* generation that it is in; 0: none */
    struct stg_deal_share share;
    uint64_t base, rounds; /* of that attempt: its first record, and rounds taken */
    struct stg_membership_seen membership;
};

/* What all hosts agree on. */
static struct {
    struct stg_generation generation;
    struct stg_member keys[N_ALL]; /* ready 0: there is none */
    struct stg_state commit;
    uint64_t n_commits; /* names the last one */
} reg;

static struct stg_member there[N_ALL]; /* keys that have a lease */
static struct host hosts[N_ALL];
static uint8_t times[N_RECORDS]; /* that a commit covered the record */
static struct stg_test_spec spec;
static uint64_t random_state;
static unsigned now, n_deaths, n_joins, n_cuts, n_attempts;
static uint64_t n_fenced, n_taken, n_repeated;

/* The division before the last change of hosts. */
static struct {
    struct stg_generation generation;
    uint64_t base;
} before;
static uint64_t n_moved;
static double n_least; /* of n_moved, with equal shares */

static uint64_t draw(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* ---- generations ---- */

static bool holds_lease(const struct host *host)
{
    return host->heard + LEASE > now;
}

/* The host of a member. */
static struct host *host_of(const char *id)
{
    return &hosts[strtoul(id + 1, NULL, 10)];
}

/* Counts records from `first` on that have another host than before. */
static void count_moved(const struct stg_generation *next, uint64_t first)
{
    static int64_t number_of[N_ALL]; /* in `next`, of a host by its number before */
    uint32_t n = before.generation.n, n_stay = 0;
    for (uint32_t i = 0; i < n; i++) {
        number_of[i] = stg_generation_find(next, before.generation.members[i]);
        n_stay += number_of[i] >= 0;
    }
    if (n == 0)
        return;
    uint32_t was = (uint32_t)((first - before.base) % n), is = 0;
    for (uint64_t record = first; record < N_RECORDS; record++) {
        n_moved += number_of[was] != is;
        was = was + 1 < n ? was + 1 : 0;
        is = is + 1 < next->n ? is + 1 : 0;
    }
    n_least += (double)(N_RECORDS - first) *
               (1 - (double)n_stay / (double)(n > next->n ? n : next->n));
}

/* The records of the old attempt after its commit are taken again: the trainers are as
 * the checkpoint has them. */
static void begin_attempt(void)
{
    struct stg_err err = {0};
    const struct stg_generation *generation = &reg.generation;
    n_attempts++;
    for (uint32_t i = 0; i < generation->n; i++) {
        struct host *host = host_of(generation->members[i]);
        struct stg_state state = reg.commit;
        if (!host->is_alive || host->is_cut)
            continue; /* it does not learn of the attempt: this one ends soon, too */
        const struct stg_deal deal = {.n_hosts = generation->n, .host = i};
        CHECK_INT(stg_division_restate(&spec.spec, &deal, &state, &err), 0);
        host->share = stg_deal_share(&deal, NULL);
        host->attempt = generation->number;
        host->base = state.base;
        host->rounds = state.place.elements;
    }
    CHECK_INT(generation->begin, reg.n_commits);
    const struct stg_deal first = {.n_hosts = generation->n};
    CHECK_INT(stg_division_restate(&spec.spec, &first, &reg.commit, &err), 0);
    count_moved(generation, reg.commit.base);
    before.base = reg.commit.base;
}

/* The trainers of an older attempt open again, at the last commit. */
static void come(uint32_t i)
{
    struct host *host = &hosts[i];
    struct stg_member *key = &reg.keys[i];
    if (host->attempt != 0 && host->attempt == reg.generation.number)
        return;
    if (host->attempt != 0)
        n_repeated += host->rounds - (host->rounds < reg.commit.place.elements
                                          ? host->rounds
                                          : reg.commit.place.elements);
    host->attempt = 0;
    snprintf(key->id, sizeof(key->id), "h%06u.0", i);
    key->ready = stg_membership_coming(&reg.generation);
    key->begin = reg.n_commits;
}

/* Any host may make the step that follows. */
static void decide(struct host *host)
{
    struct stg_err why = {0}, err = {0};
    struct stg_generation next;
    struct stg_membership_view view = {
        .generation = &reg.generation, .hosts = there, .now_millis = now};
    for (uint32_t i = 0; i < N_ALL; i++) {
        if (reg.keys[i].ready != 0 && holds_lease(&hosts[i]))
            there[view.n_hosts++] = reg.keys[i];
    }
    enum stg_membership_step step = stg_membership_decide(&host->membership, &view, &why);
    CHECK(step != STG_MEMBERSHIP_REFUSE);
    if (step == STG_MEMBERSHIP_KEEP)
        return;
    CHECK_INT(stg_membership_next(&view, step, &why, &next, &err), 0);
    CHECK_INT(next.number, stg_membership_coming(&reg.generation));
    if (reg.generation.is_closed) {
        stg_generation_finish(&before.generation);
        before.generation = reg.generation;
    } else {
        stg_generation_finish(&reg.generation);
    }
    reg.generation = next;
    if (next.is_closed)
        begin_attempt();
}

/* ---- hosts ---- */

static uint64_t rounds_of(const struct host *host)
{
    return stg_deal_count(&host->share, N_RECORDS - host->base, false);
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
    const struct stg_generation *generation = &reg.generation;
    for (uint32_t i = 0; i < N_ALL; i++) {
        const struct host *host = &hosts[i];
        n_fenced += host->is_alive && !host->is_cut && host->attempt != 0 &&
                    host->attempt != generation->number;
    }
    if (!generation->is_closed)
        return;
    for (uint32_t i = 0; i < generation->n; i++) {
        const struct host *host = host_of(generation->members[i]);
        if (!host->is_alive || host->is_cut || host->attempt != generation->number)
            return;
        least = host->rounds < least ? host->rounds : least;
    }
    for (uint32_t i = 0; i < generation->n; i++) {
        const struct host *host = host_of(generation->members[i]);
        for (uint64_t round = reg.commit.place.elements; round < least; round++) {
            uint64_t record = stg_deal_record(&host->share, host->base, round);
            CHECK(record < N_RECORDS);
            times[record]++;
        }
    }
    reg.n_commits++;
    reg.commit.place.items = reg.commit.place.elements = least;
}

static void change(void)
{
    struct host *host = &hosts[draw(N_ALL)];
    if (!host->is_alive) {
        reg.keys[host - hosts].ready = 0;
        *host = (struct host){
            .is_alive = true, .heard = now, .membership = {.steady_millis = 1}};
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
    for (unsigned n = changes ? (unsigned)draw(12) : 0; n > 0; n--)
        change();
    for (uint32_t i = 0; i < N_ALL; i++) {
        struct host *host = &hosts[i];
        if (host->is_alive && !host->is_cut)
            host->heard = now;
        if (host->is_alive && host->attempt != 0)
            take(host);
    }
    commit();
    for (uint32_t i = 0; i < N_ALL; i++) {
        if (hosts[i].is_alive && !hosts[i].is_cut)
            come(i);
    }
    /* The same few look for a while: a step needs two looks of one host. */
    struct host *host = &hosts[now / 16 * 977 % N_ALL];
    while (!host->is_alive || host->is_cut)
        host = host + 1 < hosts + N_ALL ? host + 1 : hosts;
    decide(host);
}

/* ---- a pass ---- */

static bool is_over(void)
{
    const struct stg_deal first = {.n_hosts = reg.generation.n};
    const struct stg_deal_share share = stg_deal_share(&first, NULL);
    return reg.generation.is_closed &&
           reg.commit.place.elements ==
               stg_deal_count(&share, N_RECORDS - reg.commit.base, false);
}

static void run_seed(uint64_t seed)
{
    memset(hosts, 0, sizeof(hosts));
    memset(times, 0, sizeof(times));
    memset(&reg, 0, sizeof(reg));
    memset(&before, 0, sizeof(before));
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    now = LEASE;
    n_deaths = n_joins = n_cuts = n_attempts = 0;
    n_fenced = n_taken = n_repeated = n_moved = 0;
    n_least = 0;
    for (uint32_t i = 0; i < N_HOSTS; i++)
        hosts[i] = (struct host){
            .is_alive = true, .heard = now, .membership = {.steady_millis = 1}};
    for (uint32_t i = N_HOSTS; i < N_ALL; i++)
        hosts[i].heard = 0;
    reg.commit.hosts = 1; /* of a run that has taken nothing */
    /* A commit needs a tick in which no host is missing: changes come in waves. */
    while (!is_over())
        tick(n_deaths < N_DEATHS && now % 48 >= 16 && now % 48 < 32);
    CHECK(n_deaths >= N_DEATHS);
    const struct stg_deal first = {.n_hosts = reg.generation.n};
    const struct stg_deal_share share = stg_deal_share(&first, NULL);
    uint64_t covered = stg_deal_after(&share, reg.commit.base, reg.commit.place.elements);
    CHECK(N_RECORDS - covered < reg.generation.n);
    stg_generation_finish(&reg.generation);
    stg_generation_finish(&before.generation);
    for (uint64_t i = 0; i < N_RECORDS; i++)
        CHECK_INT(times[i], i < covered);
    fprintf(stderr,
            "seed %" PRIu64 ": %u deaths, %u joins, %u cuts, %u attempts, %" PRIu64
            " commits refused, %" PRIu64 " of %" PRIu64
            " records taken again, %.0f times as many with another host as the least\n",
            seed, n_deaths, n_joins, n_cuts, n_attempts, n_fenced, n_repeated, n_taken,
            (double)n_moved / n_least);
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
    TEST_SLOW(each_record_is_committed_once_by_ten_thousand_hosts, 60),
};
TEST_MAIN(tests)
