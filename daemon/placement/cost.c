/* SPDX-License-Identifier: Apache-2.0
 *
 * The search: first a sweep of minimum cuts, each for another weight of the daemon's
 * time against the trainer's, which gives good sets whatever the size of the graph; then
 * a search of all sets that leaves out what cannot be better than what it has.
 */
#include "daemon/placement/cost.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/placement/min_cut.h"

#define N_WEIGHTS 16      /* of the sweep */
#define MAX_VISITS 60000u /* of the search: some milliseconds */
#define ALL_WORK 0.01     /* what a nanosecond of work counts beside the pace */
#define GRAIN 64.0        /* capacities of the network count in ns / GRAIN */

/* Of a set, or of what is decided of one. */
struct sums {
    double daemon_ns, client_ns, bytes;
    double rest_ns; /* of nodes that are not decided: at least so much on some side */
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double cost_of_sums(const struct stg_cost_machine *m, const struct sums *s)
{
    double crossing = s->bytes * m->byte_ns;
    double daemon = m->stage_ns + s->daemon_ns + crossing;
    double client = m->trainer_ns + s->client_ns + crossing;
    double cpu = m->trainer_cpu_ns + s->client_ns + crossing;
    double all = daemon + cpu * m->copies + s->rest_ns;
    double pace = larger(m->pull_ns, daemon / m->runners);
    pace = larger(pace, client / m->trainers);
    pace = larger(pace, all / m->cores);
    if (s->rest_ns > 0) /* both sides together cannot be faster */
        pace = larger(pace, (daemon + client + s->rest_ns / m->copies) /
                                (m->runners + m->trainers));
    return pace + ALL_WORK * all;
}

static bool crosses(const struct stg_cost_slot *slot, const bool *moved)
{
    if (slot->producer != STG_COST_SOURCE && !moved[slot->producer])
        return false;
    bool is_read = slot->is_required;
    for (size_t i = 0; i < slot->n_readers; i++)
        is_read |= !moved[slot->readers[i]];
    return is_read;
}

double stg_cost_bytes(const struct stg_cost_problem *problem, const bool *moved)
{
    double bytes = 0;
    for (size_t i = 0; i < problem->n_slots; i++)
        bytes += crosses(&problem->slots[i], moved) ? problem->slots[i].bytes : 0;
    return bytes;
}

double stg_cost_of(const struct stg_cost_problem *problem, const bool *moved)
{
    struct sums sums = {.bytes = stg_cost_bytes(problem, moved)};
    for (size_t i = 0; i < problem->n_nodes; i++) {
        if (moved[i])
            sums.daemon_ns += problem->nodes[i].daemon_ns;
        else
            sums.client_ns += problem->nodes[i].client_ns;
    }
    return cost_of_sums(&problem->machine, &sums);
}

bool stg_cost_is_closed(const struct stg_cost_problem *problem, const bool *moved)
{
    for (size_t i = 0; i < problem->n_slots; i++) {
        const struct stg_cost_slot *slot = &problem->slots[i];
        if (slot->producer == STG_COST_SOURCE || moved[slot->producer])
            continue;
        for (size_t k = 0; k < slot->n_readers; k++) {
            if (moved[slot->readers[k]])
                return false;
        }
    }
    return true;
}

/* ---- the best so far ---- */

struct best {
    size_t n, max, n_nodes;
    bool *sets;
    double *costs;
};

static double worst_of(const struct best *best)
{
    return best->n < best->max ? 1e300 : best->costs[best->n - 1];
}

static bool is_known(const struct best *best, const bool *set, double cost)
{
    for (size_t i = 0; i < best->n; i++) {
        if (best->costs[i] == cost &&
            memcmp(best->sets + i * best->n_nodes, set, best->n_nodes) == 0)
            return true;
    }
    return false;
}

static void offer(struct best *best, const bool *set, double cost)
{
    if (cost >= worst_of(best) || is_known(best, set, cost))
        return;
    size_t at = best->n < best->max ? best->n++ : best->n - 1, n = best->n_nodes;
    for (; at > 0 && best->costs[at - 1] > cost; at--) {
        best->costs[at] = best->costs[at - 1];
        memcpy(best->sets + at * n, best->sets + (at - 1) * n, n);
    }
    best->costs[at] = cost;
    memcpy(best->sets + at * n, set, n);
}

/* ---- the sweep ---- */

struct sweep {
    const struct stg_cost_problem *problem;
    struct stg_network *network;
    bool *side; /* of each vertex */
};

static int64_t capacity(double ns)
{
    double units = ns * GRAIN;
    return units < 1e15 ? (int64_t)units : (int64_t)1e15;
}

/* Vertices: nodes, slots, source (the daemon), sink (the trainer). What a slot costs is
 * the edge from its maker to the slot; a reader holds the slot on its side. */
static void build(const struct sweep *sweep, double weight)
{
    const struct stg_cost_problem *p = sweep->problem;
    const struct stg_cost_machine *m = &p->machine;
    uint32_t n = (uint32_t)p->n_nodes, source = n + (uint32_t)p->n_slots;
    uint32_t sink = source + 1;
    double daemon = weight / m->runners + ALL_WORK;
    double client = (1 - weight) / m->trainers + ALL_WORK * m->copies;
    stg_network_clear(sweep->network);
    for (uint32_t i = 0; i < n; i++) {
        stg_network_add(sweep->network, source, i,
                        capacity(p->nodes[i].client_ns * client));
        stg_network_add(sweep->network, i, sink,
                        capacity(p->nodes[i].daemon_ns * daemon));
    }
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const struct stg_cost_slot *slot = &p->slots[i];
        bool is_source = slot->producer == STG_COST_SOURCE;
        uint32_t producer = is_source ? source : slot->producer;
        double ns = slot->bytes * m->byte_ns * (daemon + client);
        stg_network_add(sweep->network, producer, n + i, capacity(ns));
        if (slot->is_required)
            stg_network_add(sweep->network, n + i, sink, STG_MIN_CUT_FOREVER);
        for (size_t k = 0; k < slot->n_readers; k++) {
            stg_network_add(sweep->network, n + i, slot->readers[k], STG_MIN_CUT_FOREVER);
            if (!is_source)
                stg_network_add(sweep->network, slot->readers[k], producer,
                                STG_MIN_CUT_FOREVER);
        }
    }
}

static size_t count_edges(const struct stg_cost_problem *p)
{
    size_t n = 2 * p->n_nodes + 2 * p->n_slots;
    for (size_t i = 0; i < p->n_slots; i++)
        n += 2 * p->slots[i].n_readers;
    return n;
}

static bool run_sweep(const struct stg_cost_problem *problem, struct best *best)
{
    size_t n_vertices = problem->n_nodes + problem->n_slots + 2;
    struct sweep sweep = {.problem = problem};
    sweep.network = stg_network_create(n_vertices, count_edges(problem));
    sweep.side = calloc(n_vertices, sizeof(*sweep.side));
    bool ok = sweep.network != NULL && sweep.side != NULL;
    for (int i = 0; ok && i <= N_WEIGHTS; i++) {
        build(&sweep, (double)i / N_WEIGHTS);
        stg_network_cut(sweep.network, (uint32_t)n_vertices - 2, (uint32_t)n_vertices - 1,
                        sweep.side);
        offer(best, sweep.side, stg_cost_of(problem, sweep.side));
    }
    stg_network_destroy(sweep.network);
    free(sweep.side);
    return ok;
}

/* ---- the search ---- */

struct list {
    uint32_t *items;
    size_t n;
};

struct search {
    const struct stg_cost_problem *problem;
    struct best *best;
    struct list *made, *read; /* slots of each node */
    uint32_t *memory;         /* of all lists */
    bool *moved;
    bool *counted;   /* slots that cross by what is decided */
    double *rest_ns; /* of nodes from i on, at least */
    struct sums sums;
    unsigned n_visits;
};

static void fill_lists(struct search *s)
{
    const struct stg_cost_problem *p = s->problem;
    uint32_t *at = s->memory;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < p->n_slots; i++) {
            const struct stg_cost_slot *slot = &p->slots[i];
            if (slot->producer != STG_COST_SOURCE) {
                struct list *made = &s->made[slot->producer];
                if (pass == 1)
                    made->items[made->n] = i;
                made->n++;
            }
            for (size_t k = 0; k < slot->n_readers; k++) {
                struct list *read = &s->read[slot->readers[k]];
                if (pass == 1)
                    read->items[read->n] = i;
                read->n++;
            }
        }
        for (size_t i = 0; pass == 0 && i < p->n_nodes; i++) {
            s->made[i].items = at;
            at += s->made[i].n;
            s->read[i].items = at;
            at += s->read[i].n;
            s->made[i].n = s->read[i].n = 0;
        }
    }
}

static void free_search(struct search *s)
{
    free(s->made);
    free(s->read);
    free(s->memory);
    free(s->moved);
    free(s->counted);
    free(s->rest_ns);
}

static bool make_search(struct search *s)
{
    const struct stg_cost_problem *p = s->problem;
    s->made = calloc(p->n_nodes + 1, sizeof(*s->made));
    s->read = calloc(p->n_nodes + 1, sizeof(*s->read));
    s->memory = calloc(count_edges(p) + 1, sizeof(*s->memory));
    s->moved = calloc(p->n_nodes + 1, sizeof(*s->moved));
    s->counted = calloc(p->n_slots + 1, sizeof(*s->counted));
    s->rest_ns = calloc(p->n_nodes + 1, sizeof(*s->rest_ns));
    if (s->made == NULL || s->read == NULL || s->memory == NULL || s->moved == NULL ||
        s->counted == NULL || s->rest_ns == NULL)
        return false;
    fill_lists(s);
    for (size_t i = p->n_nodes; i-- > 0;) {
        double client = p->nodes[i].client_ns * p->machine.copies;
        double daemon = p->nodes[i].daemon_ns;
        s->rest_ns[i] = s->rest_ns[i + 1] + (daemon < client ? daemon : client);
    }
    return true;
}

static bool may_move(const struct search *s, uint32_t node)
{
    for (size_t i = 0; i < s->read[node].n; i++) {
        uint32_t producer = s->problem->slots[s->read[node].items[i]].producer;
        if (producer != STG_COST_SOURCE && !s->moved[producer])
            return false;
    }
    return true;
}

/* The slot crosses, whatever is decided later. */
static void count_slot(struct search *s, uint32_t i)
{
    if (s->counted[i])
        return;
    s->counted[i] = true;
    s->sums.bytes += s->problem->slots[i].bytes;
}

static void decide(struct search *s, uint32_t node, bool moves)
{
    const struct stg_cost_problem *p = s->problem;
    s->moved[node] = moves;
    if (moves)
        s->sums.daemon_ns += p->nodes[node].daemon_ns;
    else
        s->sums.client_ns += p->nodes[node].client_ns;
    for (size_t i = 0; moves && i < s->made[node].n; i++) {
        if (p->slots[s->made[node].items[i]].is_required)
            count_slot(s, s->made[node].items[i]);
    }
    for (size_t i = 0; !moves && i < s->read[node].n; i++) {
        uint32_t producer = p->slots[s->read[node].items[i]].producer;
        if (producer == STG_COST_SOURCE || s->moved[producer])
            count_slot(s, s->read[node].items[i]);
    }
}

/* Those that the decision counted, and only it: which they are follows from the others.
 */
static void undo(struct search *s, uint32_t node, const struct sums *before)
{
    const struct stg_cost_problem *p = s->problem;
    bool moved = s->moved[node];
    s->sums = *before;
    const struct list *list = moved ? &s->made[node] : &s->read[node];
    for (size_t i = 0; i < list->n; i++) {
        const struct stg_cost_slot *slot = &p->slots[list->items[i]];
        bool is_counted = !moved && slot->is_required;
        for (size_t k = 0; !moved && k < slot->n_readers; k++)
            is_counted |= slot->readers[k] < node && !s->moved[slot->readers[k]];
        if (!is_counted)
            s->counted[list->items[i]] = false;
    }
    s->moved[node] = false;
}

static void visit(struct search *s, uint32_t node)
{
    const struct stg_cost_problem *p = s->problem;
    if (s->n_visits++ >= MAX_VISITS)
        return;
    if (node == p->n_nodes) {
        offer(s->best, s->moved, stg_cost_of(p, s->moved));
        return;
    }
    for (int k = 0; k < 2; k++) {
        bool moves = k == 0;
        struct sums before = s->sums;
        if (moves && !may_move(s, node))
            continue;
        decide(s, node, moves);
        s->sums.rest_ns = s->rest_ns[node + 1];
        /* Sums in another order differ in the last bits. */
        if (cost_of_sums(&p->machine, &s->sums) * (1 - 1e-9) < worst_of(s->best))
            visit(s, node + 1);
        undo(s, node, &before);
    }
}

static bool run_search(const struct stg_cost_problem *problem, struct best *best)
{
    struct search s = {.problem = problem, .best = best};
    bool ok = make_search(&s);
    for (uint32_t i = 0; ok && i < problem->n_slots; i++) {
        if (problem->slots[i].producer == STG_COST_SOURCE &&
            problem->slots[i].is_required)
            count_slot(&s, i);
    }
    if (ok)
        visit(&s, 0);
    ok = ok && s.n_visits < MAX_VISITS;
    free_search(&s);
    return ok;
}

struct stg_cost_found stg_cost_search(const struct stg_cost_problem *problem, size_t max,
                                      bool *ret_sets, double *ret_costs)
{
    struct best best = {
        .max = max, .n_nodes = problem->n_nodes, .sets = ret_sets, .costs = ret_costs};
    bool swept = run_sweep(problem, &best);
    bool searched = run_search(problem, &best);
    return (struct stg_cost_found){.n = best.n, .is_exact = swept && searched};
}
