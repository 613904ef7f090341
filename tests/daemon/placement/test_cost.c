/* SPDX-License-Identifier: Apache-2.0
 *
 * The model compared with numbers computed by hand, the search compared with all sets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "daemon/placement/cost.h"
#include "daemon/placement/min_cut.h"
#include "tests/check.h"
#include "tests/core/random.h"
#include "tests/failalloc.h"

#define MAX_NODES 256
#define MAX_SLOTS 512
#define MAX_READERS 8

struct graph {
    struct stg_cost_node nodes[MAX_NODES];
    struct stg_cost_slot slots[MAX_SLOTS];
    uint32_t readers[MAX_SLOTS][MAX_READERS];
    struct stg_cost_problem problem;
};

static const struct stg_cost_machine two_cores = {
    .pull_ns = 10e3,
    .stage_ns = 100e3,
    .trainer_ns = 300e3,
    .trainer_cpu_ns = 300e3,
    .byte_ns = 0.1,
    .runners = 1,
    .trainers = 1,
    .copies = 1,
    .cores = 2,
};

static void graph_init(struct graph *g, const struct stg_cost_machine *machine)
{
    memset(g, 0, sizeof(*g));
    g->problem = (struct stg_cost_problem){
        .nodes = g->nodes, .slots = g->slots, .machine = *machine};
}

static uint32_t node(struct graph *g, double daemon_ns, double client_ns)
{
    g->nodes[g->problem.n_nodes] = (struct stg_cost_node){daemon_ns, client_ns};
    return (uint32_t)g->problem.n_nodes++;
}

static struct stg_cost_slot *slot(struct graph *g, uint32_t producer, double bytes,
                                  bool is_required)
{
    size_t at = g->problem.n_slots++;
    g->slots[at] = (struct stg_cost_slot){.producer = producer,
                                          .bytes = bytes,
                                          .is_required = is_required,
                                          .readers = g->readers[at]};
    return &g->slots[at];
}

static void reads(struct graph *g, uint32_t reader, struct stg_cost_slot *of)
{
    g->readers[of - g->slots][of->n_readers++] = reader;
}

/* ---- the model ---- */

static bool is_near(double got, double want)
{
    double d = got - want;
    return d < want * 1e-9 && d > -want * 1e-9;
}

static void a_batch_takes_what_the_slower_side_takes(void)
{
    struct graph g;
    graph_init(&g, &two_cores);
    uint32_t n = node(&g, 40e3, 50e3);
    reads(&g, n, slot(&g, STG_COST_SOURCE, 1000, false));
    slot(&g, n, 2000, true);
    /* here: 100 + 0.1 in the daemon, 300 + 50 + 0.1 in the trainer; a hundredth of all */
    CHECK(is_near(stg_cost_of(&g.problem, (bool[]){false}),
                  350.1e3 + (100.1e3 + 350.1e3) / 100));
    CHECK(is_near(stg_cost_of(&g.problem, (bool[]){true}),
                  300.2e3 + (140.2e3 + 300.2e3) / 100));
}

static void pulls_cores_and_copies_bound_the_pace(void)
{
    struct graph g;
    struct stg_cost_machine m = two_cores;
    m.runners = m.trainers = 8;
    m.pull_ns = 70e3;
    m.cores = 64;
    graph_init(&g, &m);
    CHECK(is_near(stg_cost_of(&g.problem, NULL), 70e3 + 400e3 / 100));
    g.problem.machine.cores = 4;
    CHECK(is_near(stg_cost_of(&g.problem, NULL), 100e3 + 400e3 / 100));
    g.problem.machine.copies = 3;
    CHECK(is_near(stg_cost_of(&g.problem, NULL), 250e3 + 1000e3 / 100));
    g.problem.machine.trainer_cpu_ns = 0; /* it waits for a device */
    CHECK(is_near(stg_cost_of(&g.problem, NULL), 70e3 + 100e3 / 100));
}

static void a_tensor_that_two_nodes_read_crosses_once(void)
{
    struct graph g;
    struct stg_cost_machine m = two_cores;
    m.byte_ns = 1;
    graph_init(&g, &m);
    uint32_t a = node(&g, 0, 0), b = node(&g, 0, 0);
    struct stg_cost_slot *s = slot(&g, STG_COST_SOURCE, 500e3, false);
    reads(&g, a, s);
    reads(&g, b, s);
    double both = stg_cost_of(&g.problem, (bool[]){false, false});
    CHECK(is_near(both, 800e3 + 1400e3 / 100));
    CHECK(is_near(stg_cost_of(&g.problem, (bool[]){true, false}), both));
    CHECK(is_near(stg_cost_of(&g.problem, (bool[]){true, true}), 300e3 + 400e3 / 100));
}

/* ---- the search ---- */

/* Finds the cheapest of all closed sets by trying each. */
static double brute_force(const struct graph *g, unsigned *ret_set)
{
    double best = 1e300;
    bool moved[16];
    for (unsigned set = 0; set < 1u << g->problem.n_nodes; set++) {
        for (size_t i = 0; i < g->problem.n_nodes; i++)
            moved[i] = (set >> i & 1) != 0;
        if (!stg_cost_is_closed(&g->problem, moved))
            continue;
        double cost = stg_cost_of(&g->problem, moved);
        if (cost < best) {
            best = cost;
            *ret_set = set;
        }
    }
    return best;
}

static void check_is_best(const struct graph *g)
{
    bool sets[4 * 16];
    double costs[4];
    unsigned set = 0;
    double best = brute_force(g, &set);
    struct stg_cost_found found = stg_cost_search(&g->problem, 4, sets, costs);
    CHECK(found.n >= 1 && found.is_exact);
    if (costs[0] != best)
        FAIL("%.17g is not the best, %.17g of set %x is", costs[0], best, set);
    for (size_t i = 0; i < found.n; i++) {
        const bool *moved = sets + i * g->problem.n_nodes;
        CHECK(stg_cost_is_closed(&g->problem, moved));
        CHECK(stg_cost_of(&g->problem, moved) == costs[i]);
        CHECK(i == 0 || costs[i - 1] <= costs[i]);
        for (size_t k = 0; k < i; k++)
            CHECK(memcmp(sets + k * g->problem.n_nodes, moved, g->problem.n_nodes) != 0);
    }
}

static double any(struct random *random, double most)
{
    return (double)(random_next(random) % 1000) / 1000 * most;
}

static void make_random(struct graph *g, struct random *random, size_t n_nodes)
{
    graph_init(g, &two_cores);
    struct stg_cost_machine *m = &g->problem.machine;
    m->pull_ns = any(random, 100e3);
    m->stage_ns = m->pull_ns + any(random, 500e3);
    m->trainer_ns = any(random, 500e3);
    m->trainer_cpu_ns = random_next(random) % 2 ? m->trainer_ns : m->trainer_ns / 10;
    m->byte_ns = any(random, 1);
    m->runners = 1 + (double)(random_next(random) % 3);
    m->trainers = 1 + (double)(random_next(random) % 3);
    m->copies = random_next(random) % 4 == 0 ? 2 : 1;
    m->cores = 1 + (double)(random_next(random) % 6);
    for (size_t i = 0; i < 1 + random_next(random) % 3; i++)
        slot(g, STG_COST_SOURCE, any(random, 100e3), random_next(random) % 4 == 0);
    for (size_t i = 0; i < n_nodes; i++) {
        double ns = any(random, 200e3);
        uint32_t n = node(g, ns * (0.5 + any(random, 1)), ns);
        for (size_t k = 0; k < 1 + random_next(random) % 3; k++) {
            struct stg_cost_slot *from =
                &g->slots[random_next(random) % g->problem.n_slots];
            if (from->n_readers < MAX_READERS)
                reads(g, n, from);
        }
        for (size_t k = 0; k < 1 + random_next(random) % 2; k++)
            slot(g, n, any(random, 100e3) * (random_next(random) % 8 == 0 ? 50 : 1),
                 random_next(random) % 3 == 0);
    }
}

static void the_search_finds_the_best_of_all_sets_of_random_graphs(void)
{
    static struct graph g;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        struct random random = {seed};
        make_random(&g, &random, 1 + seed % 11);
        check_is_best(&g);
    }
}

static void a_node_that_makes_its_data_fifty_times_as_large_stays(void)
{
    struct graph g;
    struct stg_cost_machine m = two_cores;
    m.byte_ns = 0.5;
    graph_init(&g, &m);
    uint32_t ids = node(&g, 20e3, 20e3), wide = node(&g, 30e3, 30e3);
    reads(&g, ids, slot(&g, STG_COST_SOURCE, 10e3, false));
    reads(&g, wide, slot(&g, ids, 10e3, false));
    slot(&g, wide, 500e3, true);
    bool best[2];
    double cost;
    CHECK_INT(stg_cost_search(&g.problem, 1, best, &cost).n, 1);
    CHECK(best[0] && !best[1]);
    check_is_best(&g);
}

static void nothing_moves_to_a_daemon_without_free_cores(void)
{
    struct graph g;
    struct stg_cost_machine m = two_cores;
    m.stage_ns = 900e3;
    m.trainer_ns = 100e3;
    graph_init(&g, &m);
    uint32_t a = node(&g, 100e3, 100e3);
    reads(&g, a, slot(&g, STG_COST_SOURCE, 1000, false));
    slot(&g, a, 1000, true);
    bool best;
    double cost;
    CHECK_INT(stg_cost_search(&g.problem, 1, &best, &cost).n, 1);
    CHECK(!best);
    check_is_best(&g);
}

static void all_moves_from_a_trainer_without_free_cores(void)
{
    struct graph g;
    struct stg_cost_machine m = two_cores;
    m.runners = 4;
    m.cores = 16;
    graph_init(&g, &m);
    uint32_t a = node(&g, 100e3, 100e3), b = node(&g, 100e3, 100e3);
    reads(&g, a, slot(&g, STG_COST_SOURCE, 1000, false));
    reads(&g, b, slot(&g, a, 1000, false));
    slot(&g, b, 1000, true);
    bool best[2];
    double cost;
    CHECK_INT(stg_cost_search(&g.problem, 1, best, &cost).n, 1);
    CHECK(best[0] && best[1]);
    check_is_best(&g);
}

static void a_graph_without_nodes_that_move_has_one_partition(void)
{
    struct graph g;
    bool none[4];
    double costs[4];
    graph_init(&g, &two_cores);
    slot(&g, STG_COST_SOURCE, 1000, true);
    struct stg_cost_found found = stg_cost_search(&g.problem, 4, none, costs);
    CHECK(found.n == 1 && found.is_exact);
}

/* More sets than can be tried: the result is good, and the same each time. */
static void a_large_graph_gives_good_partitions_in_bounded_time(void)
{
    static struct graph g;
    static bool sets[2][3 * MAX_NODES], none[MAX_NODES], all[MAX_NODES];
    double costs[2][3];
    struct random random = {7};
    make_random(&g, &random, 200);
    memset(all, 1, sizeof(all));
    for (int i = 0; i < 2; i++)
        CHECK_INT(stg_cost_search(&g.problem, 3, sets[i], costs[i]).n, 3);
    CHECK(memcmp(sets[0], sets[1], 3 * g.problem.n_nodes) == 0);
    CHECK(memcmp(costs[0], costs[1], sizeof(costs[0])) == 0);
    CHECK(costs[0][0] <= stg_cost_of(&g.problem, none));
    CHECK(costs[0][0] <= stg_cost_of(&g.problem, all));
    for (size_t i = 0; i < 3; i++)
        CHECK(stg_cost_is_closed(&g.problem, sets[0] + i * g.problem.n_nodes));
}

/* ---- partitions of networks ---- */

/* The network of Cormen, Leiserson, Rivest and Stein, figure 26.6: its flow is 23. */
static void the_smallest_cut_is_that_of_the_book(void)
{
    static const int64_t edges[][3] = {{0, 1, 16}, {0, 2, 13}, {1, 3, 12},
                                       {2, 1, 4},  {2, 4, 14}, {3, 2, 9},
                                       {3, 5, 20}, {4, 3, 7},  {4, 5, 4}};
    bool side[6];
    struct stg_network *network = stg_network_create(6, 9);
    CHECK(network != NULL);
    for (size_t i = 0; i < 9; i++)
        stg_network_add(network, (uint32_t)edges[i][0], (uint32_t)edges[i][1],
                        edges[i][2]);
    stg_network_cut(network, 0, 5, side);
    int64_t flow = 0;
    for (size_t i = 0; i < 9; i++)
        flow += side[edges[i][0]] && !side[edges[i][1]] ? edges[i][2] : 0;
    CHECK_INT(flow, 23);
    CHECK(side[0] && side[1] && side[2] && side[4] && !side[3] && !side[5]);
    stg_network_destroy(network);
}

static int search(void *owner)
{
    struct graph *g = owner;
    bool sets[2 * 16];
    double costs[2];
    struct stg_cost_found found = stg_cost_search(&g->problem, 2, sets, costs);
    return found.is_exact ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

static void without_memory_less_is_found_and_nothing_leaks(void)
{
    static struct graph g;
    struct random random = {3};
    make_random(&g, &random, 8);
    CHECK(stg_failalloc_each(search, &g) >= 10);
}

static const struct stg_test tests[] = {
    TEST(a_batch_takes_what_the_slower_side_takes),
    TEST(pulls_cores_and_copies_bound_the_pace),
    TEST(a_tensor_that_two_nodes_read_crosses_once),
    TEST(the_search_finds_the_best_of_all_sets_of_random_graphs),
    TEST(a_node_that_makes_its_data_fifty_times_as_large_stays),
    TEST(nothing_moves_to_a_daemon_without_free_cores),
    TEST(all_moves_from_a_trainer_without_free_cores),
    TEST(a_graph_without_nodes_that_move_has_one_partition),
    TEST(a_large_graph_gives_good_partitions_in_bounded_time),
    TEST(the_smallest_cut_is_that_of_the_book),
    TEST(without_memory_less_is_found_and_nothing_leaks),
};
TEST_MAIN(tests)
