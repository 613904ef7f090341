/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/placement/partitioner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "daemon/placement/cores.h"
#include "daemon/placement/cost.h"
#include "ops/partition/view.h"

/* Of a byte that crosses, written by one core and read by another. */
#define BYTE_NS 0.15
/* Runs of the graph on either side before they are believed. */
#define MIN_DAEMON_RUNS 4u
#define MIN_CLIENT_RUNS 2u
/* The model is coarse: what it thinks this much better is tried, and all that may move
 * unless it thinks it that much worse. */
#define WORTH_A_TRIAL 1.01
#define TOO_SLOW 0.8
#define N_FOUND 8u /* of the search: neighbours of one another, for the most part */

/* What the cost model works on, from load to plan. */
struct problem {
    struct stg_bump bump;
    struct stg_partition_view view;
    struct stg_cost_problem cost;
    bool is_ready;
};

/* What is worth a trial. */
struct plan {
    struct stg_smart_partition partitions[STG_SMART_MAX_PARTITIONS - 1];
    bool *sets; /* as in struct stg_partitioner, the first of `partitions` second */
    uint32_t n;
    double own; /* cost of the baseline */
    char why[160];
};

struct stg_partitioner {
    const struct stg_partitions *partitions;
    size_t n_nodes; /* of partitions */
    uint64_t max_batch_bytes;
    struct stg_smart smart;
    struct stg_cores cores;
    double free_cores;
    struct problem problem;
    struct plan plan;
    bool *sets; /* STG_SMART_MAX_PARTITIONS of n_nodes: as in smart.partitions; the first
                   is empty */
    bool *accepted;          /* the last proposal that was */
    bool is_trying;          /* the last challenger was accepted: … */
    uint32_t trying, beside; /* … of smart.partitions, beside that in force */
};

/* Writes "moving A, B and 3 more". */
static void write_label(const struct stg_partitions *partitions, const bool *moved,
                        char *buf, size_t bytes)
{
    size_t at = 0, n = 0, n_moved = 0, n_nodes = stg_partitions_n_nodes(partitions);
    for (size_t i = 0; i < n_nodes; i++)
        n_moved += moved[i];
    for (size_t i = 0; i < n_nodes && n < 3; i++) {
        if (!moved[i])
            continue;
        int wrote = snprintf(buf + at, bytes - at, "%s%.20s", n++ > 0 ? ", " : "moving ",
                             stg_partitions_node(partitions, i));
        at = wrote > 0 && at + (size_t)wrote < bytes ? at + (size_t)wrote : bytes - 1;
    }
    if (n_moved > n)
        snprintf(buf + at, bytes - at, " and %zu more", n_moved - n);
}

/* Another build of stagerd may have other nodes: then it is no prior. */
static void begin_with(struct stg_partitioner *p, const struct stg_prior *prior)
{
    char label[sizeof(p->smart.partitions[0].label)];
    if (prior->n_nodes != p->n_nodes)
        return;
    memcpy(p->sets + p->n_nodes, prior->moved, p->n_nodes * sizeof(*p->sets));
    write_label(p->partitions, prior->moved, label, sizeof(label));
    stg_smart_begin_with(&p->smart, label, prior->gain);
    stg_decide(p->smart.decisions, stg_now_ns(), "smart_stage",
               "begins with %s, which an earlier run took (%+.1f %%), and compares it "
               "with the file's own partition",
               label, prior->gain * 100);
}

struct stg_partitioner *stg_partitioner_create(const struct stg_partitions *partitions,
                                               uint64_t max_batch_bytes,
                                               const struct stg_prior *prior,
                                               struct stg_decisions *decisions)
{
    struct stg_partitioner *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return NULL;
    p->partitions = partitions;
    p->n_nodes = stg_partitions_n_nodes(partitions);
    p->max_batch_bytes = max_batch_bytes;
    p->sets = calloc(STG_SMART_MAX_PARTITIONS * p->n_nodes + 1, sizeof(*p->sets));
    p->accepted = calloc(p->n_nodes + 1, sizeof(*p->accepted));
    if (p->sets == NULL || p->accepted == NULL) {
        stg_partitioner_destroy(p);
        return NULL;
    }
    stg_smart_init(&p->smart, decisions);
    if (prior != NULL)
        begin_with(p, prior);
    return p;
}

void stg_partitioner_destroy(struct stg_partitioner *p)
{
    if (p == NULL)
        return;
    free(p->sets);
    free(p->accepted);
    free(p);
}

void stg_partitioner_poll(struct stg_partitioner *p, uint64_t now_ns)
{
    p->free_cores = stg_cores_free(&p->cores, now_ns);
}

static const bool *set_of(const struct stg_partitioner *p, uint32_t partition)
{
    return p->sets + partition * p->n_nodes;
}

/* ---- what was measured, as a problem ---- */

/* A side that has not run it yet takes as long as the other. */
static struct stg_cost_node node_of(const struct stg_measure *measure, uint32_t index)
{
    const struct stg_mean *daemon = &measure->daemon.node_ns[index];
    const struct stg_mean *client = &measure->client.node_ns[index];
    if (daemon->n == 0)
        daemon = client;
    if (client->n == 0)
        client = daemon;
    return (struct stg_cost_node){(double)stg_mean(daemon), (double)stg_mean(client)};
}

static double bytes_of(const struct stg_measure *measure,
                       const struct stg_partition_tensor *tensor)
{
    if (tensor->is_constant)
        return 0;
    if (tensor->is_component)
        return (double)stg_mean(&measure->daemon.of_feeds[tensor->index]);
    size_t at = measure->daemon.first_output[tensor->index] + tensor->output;
    uint64_t bytes = stg_mean(&measure->daemon.bytes[at]);
    return (double)(bytes != 0 ? bytes : stg_mean(&measure->client.bytes[at]));
}

/* What the nodes take now, where they are now. */
static void sum_up(const struct problem *problem, const bool *moved_places,
                   double *ret_daemon, double *ret_client)
{
    *ret_daemon = *ret_client = 0;
    for (size_t i = 0; i < problem->view.n_nodes; i++) {
        if (moved_places != NULL && moved_places[problem->view.places[i]])
            *ret_daemon += problem->cost.nodes[i].daemon_ns;
        else
            *ret_client += problem->cost.nodes[i].client_ns;
    }
}

static double at_least(double value, double least)
{
    return value > least ? value : least;
}

static double less(double value, double by)
{
    return value > by ? value - by : 0;
}

/* Of the last second or two. */
static struct stg_cost_machine machine_of(const struct stg_partitioner *p,
                                          const struct stg_partition_load *load)
{
    const struct stg_measure *measure = load->measure;
    struct stg_pace pace;
    stg_measure_pace(measure, &pace);
    double n = at_least((double)pace.n_items, 1), daemon_ns, client_ns;
    double clients = at_least(load->n_clients, 1);
    double busy = less((double)pace.clients_ns, (double)pace.clients_wait_ns) / n;
    double cpu = (double)stg_mean(&measure->client_cpu_ns);
    sum_up(&p->problem, load->moved, &daemon_ns, &client_ns);
    struct stg_cost_machine m = {
        .pull_ns = (double)pace.pull_ns / n,
        .stage_ns = less((double)(pace.pull_ns + pace.compute_ns) / n, daemon_ns),
        .trainer_ns = less(load->shares ? busy : busy / clients, client_ns),
        .byte_ns = BYTE_NS,
        .runners = (double)pace.n_runners,
        .trainers = load->shares ? clients : 1,
        .copies = load->shares ? 1 : clients,
    };
    m.trainer_cpu_ns = cpu > 0 ? less(cpu, client_ns) : m.trainer_ns;
    if (m.trainer_cpu_ns > m.trainer_ns)
        m.trainer_cpu_ns = m.trainer_ns;
    double elapsed = at_least((double)pace.elapsed_ns, 1);
    double ours = ((double)pace.cpu_ns + cpu * n * m.copies) / elapsed;
    m.cores = at_least(p->free_cores + ours, 1);
    return m;
}

static bool fill_problem(struct stg_partitioner *p, const struct stg_partition_load *load)
{
    struct problem *problem = &p->problem;
    const struct stg_partition_view *view = &problem->view;
    struct stg_cost_node *nodes =
        stg_bump_alloc(&problem->bump, view->n_nodes * sizeof(*nodes));
    struct stg_cost_slot *slots =
        stg_bump_alloc(&problem->bump, view->n_tensors * sizeof(*slots));
    if (nodes == NULL || slots == NULL)
        return false;
    for (size_t i = 0; i < view->n_nodes; i++)
        nodes[i] = node_of(load->measure, view->nodes[i]);
    for (size_t i = 0; i < view->n_tensors; i++) {
        const struct stg_partition_tensor *tensor = &view->tensors[i];
        slots[i] = (struct stg_cost_slot){.producer = tensor->producer,
                                          .bytes = bytes_of(load->measure, tensor),
                                          .is_required = tensor->is_required,
                                          .readers = tensor->readers,
                                          .n_readers = tensor->n_readers};
    }
    problem->cost = (struct stg_cost_problem){.nodes = nodes,
                                              .n_nodes = view->n_nodes,
                                              .slots = slots,
                                              .n_slots = view->n_tensors};
    problem->cost.machine = machine_of(p, load);
    return true;
}

void stg_partitioner_load(struct stg_partitioner *p,
                          const struct stg_partition_load *load)
{
    struct problem *problem = &p->problem;
    *problem = (struct problem){0};
    problem->is_ready =
        load->n_needs > 0 &&
        stg_partition_view_create(p->partitions, load->needs, load->n_needs,
                                  &problem->bump, &problem->view, NULL) == 0 &&
        fill_problem(p, load);
}

/* ---- what is worth a trial ---- */

/* moved: one a node of the view. Adds a set once, unless it is the baseline or its
 * batches are larger than max_batch_bytes. */
static void offer(struct stg_partitioner *p, const bool *moved)
{
    const struct problem *problem = &p->problem;
    struct plan *plan = &p->plan;
    if (plan->n + 1 >= STG_SMART_MAX_PARTITIONS ||
        stg_cost_bytes(&problem->cost, moved) > (double)p->max_batch_bytes)
        return;
    bool *set = plan->sets + (plan->n + 1) * p->n_nodes;
    memset(set, 0, p->n_nodes);
    for (size_t i = 0; i < problem->view.n_nodes; i++)
        set[problem->view.places[i]] = moved[i];
    for (uint32_t i = 0; i <= plan->n; i++) {
        if (memcmp(plan->sets + i * p->n_nodes, set, p->n_nodes) == 0)
            return;
    }
    struct stg_smart_partition *partition = &plan->partitions[plan->n++];
    *partition = (struct stg_smart_partition){
        .id = plan->n,
        .predicted = plan->own / stg_cost_of(&problem->cost, moved),
        .is_in_force = p->smart.in_force != 0 &&
                       memcmp(set_of(p, p->smart.in_force), set, p->n_nodes) == 0,
    };
    write_label(p->partitions, set, partition->label, sizeof(partition->label));
}

/* What was kept before, as far as it may still move. */
static void offer_chosen(struct stg_partitioner *p, bool *moved)
{
    const struct problem *problem = &p->problem;
    if (p->smart.in_force == 0)
        return;
    const bool *chosen = set_of(p, p->smart.in_force);
    for (size_t i = 0; i < problem->view.n_nodes; i++)
        moved[i] = chosen[problem->view.places[i]];
    if (stg_cost_is_closed(&problem->cost, moved))
        offer(p, moved);
}

static void offer_all(struct stg_partitioner *p, bool *moved)
{
    memset(moved, 1, p->problem.view.n_nodes);
    if (p->plan.own / stg_cost_of(&p->problem.cost, moved) >= TOO_SLOW)
        offer(p, moved);
}

/* The best that was found, what is kept, all that may move, and then the next best. */
static void make_plan(struct stg_partitioner *p, bool *found, bool *moved)
{
    const struct stg_cost_problem *cost = &p->problem.cost;
    struct plan *plan = &p->plan;
    size_t n = p->problem.view.n_nodes;
    double costs[N_FOUND];
    plan->own = stg_cost_of(cost, moved);
    struct stg_cost_found best = stg_cost_search(cost, N_FOUND, found, costs);
    for (size_t i = 0; i < best.n; i++) {
        if (plan->own / costs[i] >= WORTH_A_TRIAL)
            offer(p, found + i * n);
        if (i > 0)
            continue;
        offer_chosen(p, moved);
        offer_all(p, moved);
        snprintf(plan->why, sizeof(plan->why),
                 "%.1f us a batch are predicted for it, and no less for any other",
                 plan->own / 1e3);
    }
}

void stg_partitioner_search(struct stg_partitioner *p)
{
    struct plan *plan = &p->plan;
    size_t n = p->problem.view.n_nodes;
    bool *found = calloc(N_FOUND * n + 1, sizeof(*found));
    bool *moved = calloc(n + 1, sizeof(*moved));
    *plan = (struct plan){0};
    plan->sets = calloc(STG_SMART_MAX_PARTITIONS * p->n_nodes + 1, sizeof(*plan->sets));
    bool has_memory = plan->sets != NULL && found != NULL && moved != NULL;
    snprintf(plan->why, sizeof(plan->why), "%s",
             has_memory ? "no node may move for the trainers that are there"
                        : "out of memory");
    if (has_memory && p->problem.is_ready && n > 0)
        make_plan(p, found, moved);
    free(found);
    free(moved);
}

void stg_partitioner_plan(struct stg_partitioner *p, uint64_t now_ns)
{
    struct plan *plan = &p->plan;
    stg_smart_plan(&p->smart, now_ns, plan->partitions, plan->n, plan->why);
    if (plan->sets != NULL) {
        free(p->sets);
        p->sets = plan->sets;
        plan->sets = NULL;
    }
    p->is_trying = false;
    stg_bump_finish(&p->problem.bump);
}

/* ---- the clock ---- */

int stg_partitioner_tick(struct stg_partitioner *p, const struct stg_smart_view *view,
                         const struct stg_measure *measure)
{
    struct stg_smart_view seen = *view;
    seen.free_cores = p->free_cores;
    seen.is_measured = measure->daemon.n_runs >= MIN_DAEMON_RUNS &&
                       measure->client.n_runs >= MIN_CLIENT_RUNS;
    return stg_smart_tick(&p->smart, &seen);
}

bool stg_partitioner_wants_plan(const struct stg_partitioner *p)
{
    return p->smart.state == STG_SMART_PLAN;
}

bool stg_partitioner_has_accepted(const struct stg_partitioner *p)
{
    return p->is_trying && p->trying == p->smart.trying && p->beside == p->smart.in_force;
}

/* Until the caller has what is tried now, batches belong to no trial. */
bool stg_partitioner_pull(struct stg_partitioner *p, uint64_t now_ns, uint32_t *ret_tag)
{
    *ret_tag = 0;
    return stg_partitioner_has_accepted(p) && stg_smart_pull(&p->smart, now_ns, ret_tag);
}

void stg_partitioner_taken(struct stg_partitioner *p, uint32_t tag, uint64_t n_taken,
                           uint64_t now_ns)
{
    stg_smart_taken(&p->smart, tag, n_taken, now_ns);
}

bool stg_partitioner_in_trial(const struct stg_partitioner *p)
{
    return stg_smart_in_trial(&p->smart);
}

/* ---- proposals ---- */

bool stg_partitioner_proposes(const struct stg_partitioner *p, const bool **ret_moved)
{
    const bool *set = set_of(p, p->smart.in_force);
    *ret_moved = p->smart.in_force != 0 ? set : NULL;
    return memcmp(p->accepted, set, p->n_nodes) != 0;
}

void stg_partitioner_accepted(struct stg_partitioner *p)
{
    memcpy(p->accepted, set_of(p, p->smart.in_force), p->n_nodes);
}

bool stg_partitioner_tries(const struct stg_partitioner *p, const bool **ret_moved)
{
    *ret_moved = p->smart.trying != 0 ? set_of(p, p->smart.trying) : NULL;
    return p->smart.state == STG_SMART_TRIAL;
}

void stg_partitioner_accepted_trial(struct stg_partitioner *p)
{
    p->is_trying = p->smart.state == STG_SMART_TRIAL;
    p->trying = p->smart.trying;
    p->beside = p->smart.in_force;
}

bool stg_partitioner_has_prior(struct stg_partitioner *p, const bool **ret_moved,
                               double *ret_gain)
{
    bool has_news = p->smart.has_news;
    p->smart.has_news = false;
    *ret_moved = p->smart.in_force != 0 ? set_of(p, p->smart.in_force) : NULL;
    *ret_gain = p->smart.gain;
    return has_news;
}

void stg_partitioner_refused(struct stg_partitioner *p, uint64_t now_ns, const char *why)
{
    struct stg_decisions *decisions = p->smart.decisions;
    stg_decide(decisions, now_ns, "smart_stage", "begins anew: %.200s", why);
    stg_smart_init(&p->smart, decisions);
    memset(p->sets, 0, STG_SMART_MAX_PARTITIONS * p->n_nodes);
    memset(p->accepted, 0, p->n_nodes);
    p->is_trying = false;
}
