/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/auto_cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/placement/cores.h"
#include "daemon/placement/cost.h"
#include "daemon/placement/smartstage.h"
#include "daemon/stage/delivery.h"
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

struct stg_auto_cut {
    struct stg_stage *stage;
    const struct stg_cuts *cuts;
    size_t n_nodes; /* of cuts */
    struct stg_smart smart;
    struct stg_cores cores;
    bool *sets; /* STG_SMART_MAX_CUTS of n_nodes: as in smart.cuts; the first is empty */
    bool *applied; /* what the stage was told last */
};

struct stg_auto_cut *stg_auto_cut_create(struct stg_stage *stage)
{
    struct stg_auto_cut *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    a->stage = stage;
    a->cuts = stage->config.cuts;
    a->n_nodes = stg_cuts_n_nodes(a->cuts);
    a->sets = calloc(STG_SMART_MAX_CUTS * a->n_nodes + 1, sizeof(*a->sets));
    a->applied = calloc(a->n_nodes + 1, sizeof(*a->applied));
    if (a->sets == NULL || a->applied == NULL) {
        stg_auto_cut_destroy(a);
        return NULL;
    }
    stg_smart_init(&a->smart, &stage->observers.measure->decisions);
    return a;
}

void stg_auto_cut_destroy(struct stg_auto_cut *a)
{
    if (a == NULL)
        return;
    stg_tuning_hold(a->stage->observers.tune.log, false);
    free(a->sets);
    free(a->applied);
    free(a);
}

static bool *set_of(const struct stg_auto_cut *a, uint32_t cut)
{
    return a->sets + cut * a->n_nodes;
}

/* ---- what was measured, as a problem ---- */

/* While a plan is made. */
struct job {
    struct stg_auto_cut *a;
    struct stg_bump bump;
    struct stg_cut_view view;
    struct stg_cost_problem problem;
    const bool *moved; /* places of cuts that run in the daemon now; NULL: none */
    double free_cores;
    bool is_ready;
};

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
                       const struct stg_cut_tensor *tensor)
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
static void sum_up(const struct job *job, double *ret_daemon, double *ret_client)
{
    *ret_daemon = *ret_client = 0;
    for (size_t i = 0; i < job->view.n_nodes; i++) {
        bool moved = job->moved != NULL && job->moved[job->view.places[i]];
        if (moved)
            *ret_daemon += job->problem.nodes[i].daemon_ns;
        else
            *ret_client += job->problem.nodes[i].client_ns;
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
static struct stg_cost_machine machine_of(const struct job *job)
{
    const struct stg_stage *stage = job->a->stage;
    const struct stg_measure *measure = stage->observers.measure;
    struct stg_pace pace;
    stg_measure_pace(measure, &pace);
    double n = at_least((double)pace.n_items, 1), daemon_ns, client_ns;
    double clients = at_least(stage->members.n_attached, 1);
    bool shares = stage->config.delivery != STG_DELIVERY_BROADCAST;
    double busy = less((double)pace.clients_ns, (double)pace.clients_wait_ns) / n;
    double cpu = (double)stg_mean(&measure->client_cpu_ns);
    sum_up(job, &daemon_ns, &client_ns);
    struct stg_cost_machine m = {
        .draw_ns = (double)pace.draw_ns / n,
        .stage_ns = less((double)(pace.draw_ns + pace.compute_ns) / n, daemon_ns),
        .trainer_ns = less(shares ? busy : busy / clients, client_ns),
        .byte_ns = BYTE_NS,
        .runners = (double)pace.n_runners,
        .trainers = shares ? clients : 1,
        .copies = shares ? 1 : clients,
    };
    m.trainer_cpu_ns = cpu > 0 ? less(cpu, client_ns) : m.trainer_ns;
    if (m.trainer_cpu_ns > m.trainer_ns)
        m.trainer_cpu_ns = m.trainer_ns;
    double elapsed = at_least((double)pace.elapsed_ns, 1);
    double ours = ((double)pace.cpu_ns + cpu * n * m.copies) / elapsed;
    m.cores = at_least(job->free_cores + ours, 1);
    return m;
}

static bool fill_problem(struct job *job)
{
    const struct stg_measure *measure = job->a->stage->observers.measure;
    const struct stg_cut_view *view = &job->view;
    struct stg_cost_node *nodes =
        stg_bump_alloc(&job->bump, view->n_nodes * sizeof(*nodes));
    struct stg_cost_slot *slots =
        stg_bump_alloc(&job->bump, view->n_tensors * sizeof(*slots));
    if (nodes == NULL || slots == NULL)
        return false;
    for (size_t i = 0; i < view->n_nodes; i++)
        nodes[i] = node_of(measure, view->nodes[i]);
    for (size_t i = 0; i < view->n_tensors; i++) {
        const struct stg_cut_tensor *tensor = &view->tensors[i];
        slots[i] = (struct stg_cost_slot){.producer = tensor->producer,
                                          .bytes = bytes_of(measure, tensor),
                                          .is_kept = tensor->is_kept,
                                          .readers = tensor->readers,
                                          .n_readers = tensor->n_readers};
    }
    job->problem = (struct stg_cost_problem){.nodes = nodes,
                                             .n_nodes = view->n_nodes,
                                             .slots = slots,
                                             .n_slots = view->n_tensors};
    job->problem.machine = machine_of(job);
    return true;
}

/* With the lock held: copies what the search needs. */
static void look(void *owner, const struct stg_cuts *cuts,
                 const struct stg_cut_needs *const *needs, size_t n)
{
    struct job *job = owner;
    struct stg_stage *stage = job->a->stage;
    if (n == 0 || stage->observers.measure == NULL)
        return;
    stg_account_load(stage, stg_now_ns());
    if (stage->boundary.cut != NULL)
        job->moved = stg_cut_moved(stage->boundary.cut->cut);
    job->is_ready =
        stg_cut_view_create(cuts, needs, n, &job->bump, &job->view, NULL) == 0 &&
        fill_problem(job);
    job->moved = NULL;
}

/* ---- what is worth a trial ---- */

struct plan {
    struct stg_smart_cut cuts[STG_SMART_MAX_CUTS - 1];
    bool *sets; /* as in struct stg_auto_cut, the first of `cuts` second */
    uint32_t n;
    double own; /* cost of the baseline */
};

static void write_label(const struct job *job, const bool *moved, char *buf, size_t bytes)
{
    size_t at = 0, n = 0, n_moved = 0;
    for (size_t i = 0; i < job->view.n_nodes; i++)
        n_moved += moved[i];
    for (size_t i = 0; i < job->view.n_nodes && n < 3; i++) {
        if (!moved[i])
            continue;
        int wrote = snprintf(buf + at, bytes - at, "%s%.20s", n++ > 0 ? ", " : "moving ",
                             stg_cuts_node(job->a->cuts, job->view.places[i]));
        at = wrote > 0 && at + (size_t)wrote < bytes ? at + (size_t)wrote : bytes - 1;
    }
    if (n_moved > n)
        snprintf(buf + at, bytes - at, " and %zu more", n_moved - n);
}

/* moved: one a node of the view. Once only, not the baseline, and only what the memory of
 * the pipeline has room for. */
static void offer(const struct job *job, struct plan *plan, const bool *moved)
{
    struct stg_auto_cut *a = job->a;
    if (plan->n + 1 >= STG_SMART_MAX_CUTS ||
        stg_cost_bytes(&job->problem, moved) > (double)a->stage->plan.max_batch_bytes)
        return;
    bool *set = plan->sets + (plan->n + 1) * a->n_nodes;
    memset(set, 0, a->n_nodes);
    for (size_t i = 0; i < job->view.n_nodes; i++)
        set[job->view.places[i]] = moved[i];
    for (uint32_t i = 0; i <= plan->n; i++) {
        if (memcmp(plan->sets + i * a->n_nodes, set, a->n_nodes) == 0)
            return;
    }
    struct stg_smart_cut *cut = &plan->cuts[plan->n++];
    *cut = (struct stg_smart_cut){
        .id = plan->n,
        .predicted = plan->own / stg_cost_of(&job->problem, moved),
        .is_in_force =
            a->smart.kept != 0 && memcmp(set_of(a, a->smart.kept), set, a->n_nodes) == 0,
    };
    write_label(job, moved, cut->label, sizeof(cut->label));
}

/* What was kept before, as far as it may still move. */
static void offer_kept(const struct job *job, struct plan *plan, bool *moved)
{
    if (job->a->smart.kept == 0)
        return;
    const bool *kept = set_of(job->a, job->a->smart.kept);
    for (size_t i = 0; i < job->view.n_nodes; i++)
        moved[i] = kept[job->view.places[i]];
    if (stg_cost_is_closed(&job->problem, moved))
        offer(job, plan, moved);
}

static void offer_all(const struct job *job, struct plan *plan, bool *moved)
{
    memset(moved, 1, job->view.n_nodes);
    if (plan->own / stg_cost_of(&job->problem, moved) >= TOO_SLOW)
        offer(job, plan, moved);
}

/* The best that was found, what is kept, all that may move, and then the next best. */
static void make_plan(const struct job *job, struct plan *plan, char *why, size_t bytes)
{
    size_t n = job->view.n_nodes;
    double costs[N_FOUND];
    bool *found = calloc(N_FOUND * n + 1, sizeof(*found));
    bool *moved = calloc(n + 1, sizeof(*moved));
    snprintf(why, bytes, "no node may move for the trainers that are there");
    if (job->is_ready && n > 0 && found != NULL && moved != NULL) {
        plan->own = stg_cost_of(&job->problem, moved);
        struct stg_cost_found best =
            stg_cost_search(&job->problem, N_FOUND, found, costs);
        for (size_t i = 0; i < best.n; i++) {
            if (plan->own / costs[i] >= WORTH_A_TRIAL)
                offer(job, plan, found + i * n);
            if (i > 0)
                continue;
            offer_kept(job, plan, moved);
            offer_all(job, plan, moved);
            snprintf(why, bytes,
                     "%.1f us a batch are predicted for it, and no less for any other",
                     plan->own / 1e3);
        }
    }
    free(found);
    free(moved);
}

static void plan_trials(struct stg_auto_cut *a)
{
    struct job job = {.a = a};
    struct plan plan = {0};
    char why[160];
    uint64_t now = stg_now_ns();
    job.free_cores = stg_cores_free(&a->cores, now);
    plan.sets = calloc(STG_SMART_MAX_CUTS * a->n_nodes + 1, sizeof(*plan.sets));
    stg_stage_look_at_cuts(a->stage, look, &job);
    if (plan.sets != NULL)
        make_plan(&job, &plan, why, sizeof(why));
    else
        snprintf(why, sizeof(why), "out of memory");
    pthread_mutex_lock(&a->stage->lock);
    stg_smart_plan(&a->smart, now, plan.cuts, plan.n, why);
    pthread_mutex_unlock(&a->stage->lock);
    if (plan.sets != NULL) {
        free(a->sets);
        a->sets = plan.sets;
    }
    stg_bump_finish(&job.bump);
}

/* ---- the clock ---- */

/* With the lock held. */
static struct stg_smart_view view_of(struct stg_auto_cut *a)
{
    const struct stg_stage *stage = a->stage;
    const struct stg_measure *measure = stage->observers.measure;
    uint64_t now = stg_now_ns();
    return (struct stg_smart_view){
        .now_ns = now,
        .n_made = stage->buffer.next + stage->counts.n_in_hand,
        .n_taken = stage->buffer.first,
        .n_changes = stage->members.n_changes,
        .is_running = stage->pass.state != STG_PASS_NONE &&
                      stage->members.n_attached > 0 && stage->pass.failure.code == 0 &&
                      !stage->stop.is_on,
        .is_tuning = stg_tune_in_trial(stage),
        .is_measured = measure->daemon.n_runs >= MIN_DAEMON_RUNS &&
                       measure->client.n_runs >= MIN_CLIENT_RUNS,
        .free_cores = stg_cores_free(&a->cores, now),
    };
}

static void apply(struct stg_auto_cut *a)
{
    const bool *set = set_of(a, a->smart.in_force);
    struct stg_err err = {0};
    if (memcmp(a->applied, set, a->n_nodes) == 0)
        return;
    int rc = stg_stage_set_cut(a->stage, a->smart.in_force != 0 ? set : NULL, &err);
    if (rc == 0) {
        memcpy(a->applied, set, a->n_nodes);
        return;
    }
    /* Trainers that came meanwhile need something else: from the start. */
    pthread_mutex_lock(&a->stage->lock);
    struct stg_decisions *decisions = &a->stage->observers.measure->decisions;
    stg_decide(decisions, stg_now_ns(), "smart_stage", "begins anew: %.200s", err.text);
    stg_smart_init(&a->smart, decisions);
    pthread_mutex_unlock(&a->stage->lock);
    memset(a->sets, 0, STG_SMART_MAX_CUTS * a->n_nodes);
    memset(a->applied, 0, a->n_nodes);
    stg_stage_set_cut(a->stage, NULL, &err);
}

int stg_auto_cut_tick(struct stg_auto_cut *a)
{
    pthread_mutex_lock(&a->stage->lock);
    bool is_over = a->stage->observers.measure == NULL || a->stage->stop.is_on;
    int millis = -1;
    if (!is_over) {
        struct stg_smart_view view = view_of(a);
        millis = stg_smart_tick(&a->smart, &view);
    }
    pthread_mutex_unlock(&a->stage->lock);
    if (is_over)
        return -1;
    if (a->smart.state == STG_SMART_PLAN)
        plan_trials(a);
    stg_tuning_hold(a->stage->observers.tune.log, stg_smart_in_trial(&a->smart));
    apply(a);
    return millis;
}
