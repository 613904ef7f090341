/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/autotune/measure.h"

#include <stdlib.h>

#define MARK_NS UINT64_C(1000000000)

struct stg_measure *stg_measure_create(const struct stg_graph *graph, uint32_t n_runners)
{
    struct stg_measure *measure = calloc(1, sizeof(*measure));
    if (measure == NULL)
        return NULL;
    measure->n_runners = n_runners;
    if (stg_profile_init(&measure->daemon, graph, NULL) < 0 ||
        stg_profile_init(&measure->client, graph, NULL) < 0) {
        stg_measure_destroy(measure);
        return NULL;
    }
    measure->on_device = calloc(measure->client.n_nodes + 1, sizeof(bool));
    if (measure->on_device == NULL) {
        stg_measure_destroy(measure);
        return NULL;
    }
    return measure;
}

void stg_measure_destroy(struct stg_measure *measure)
{
    if (measure == NULL)
        return;
    stg_profile_finish(&measure->daemon);
    stg_profile_finish(&measure->client);
    free(measure->on_device);
    free(measure);
}

bool stg_measure_is_due(const struct stg_measure *measure, uint64_t now_ns)
{
    return now_ns - measure->marks[1].at_ns >= MARK_NS;
}

/* Adds what was counted between two looks. */
static void add_remote(struct stg_remote_load *to, const struct stg_remote_load *from,
                       const struct stg_remote_load *until)
{
    to->n_items += until->n_items - from->n_items;
    to->n_local += until->n_local - from->n_local;
    to->n_answers += until->n_answers - from->n_answers;
    to->n_bytes += until->n_bytes - from->n_bytes;
    to->answer_ns += until->answer_ns - from->answer_ns;
    to->n_timed += until->n_timed - from->n_timed;
    to->cpu_ns += until->cpu_ns - from->cpu_ns;
    to->local_cpu_ns += until->local_cpu_ns - from->local_cpu_ns;
    to->stall_ns += until->stall_ns - from->stall_ns;
}

/* Moves the marks over what happened between two looks. */
static void skip(struct stg_measure *measure, const struct stg_load *from,
                 const struct stg_load *to)
{
    struct stg_load *const marks[] = {&measure->marks[0], &measure->marks[1]};
    for (size_t i = 0; i < 2 && measure->marks[1].at_ns != 0; i++) {
        marks[i]->at_ns += to->at_ns - from->at_ns;
        marks[i]->n_made += to->n_made - from->n_made;
        marks[i]->n_assigned += to->n_assigned - from->n_assigned;
        marks[i]->n_published += to->n_published - from->n_published;
        marks[i]->n_rows += to->n_rows - from->n_rows;
        marks[i]->n_bytes += to->n_bytes - from->n_bytes;
        marks[i]->pull_ns += to->pull_ns - from->pull_ns;
        marks[i]->compute_ns += to->compute_ns - from->compute_ns;
        marks[i]->call_ns += to->call_ns - from->call_ns;
        marks[i]->room_ns += to->room_ns - from->room_ns;
        marks[i]->sampled_pull_ns += to->sampled_pull_ns - from->sampled_pull_ns;
        marks[i]->sampled_cpu_ns += to->sampled_cpu_ns - from->sampled_cpu_ns;
        marks[i]->clients_ns += to->clients_ns - from->clients_ns;
        marks[i]->clients_wait_ns += to->clients_wait_ns - from->clients_wait_ns;
        marks[i]->cpu_ns += to->cpu_ns - from->cpu_ns;
        add_remote(&marks[i]->remote, &from->remote, &to->remote);
    }
}

void stg_measure_load(struct stg_measure *measure, const struct stg_load *load,
                      bool is_read)
{
    if (measure->is_over && !is_read)
        return;
    if (measure->is_over)
        skip(measure, &measure->load, load);
    measure->load = *load;
    measure->is_over = !is_read;
}

void stg_measure_mark(struct stg_measure *measure)
{
    bool is_first = measure->marks[1].at_ns == 0;
    measure->marks[0] = is_first ? measure->load : measure->marks[1];
    measure->marks[1] = measure->load;
}

void stg_pace_between(const struct stg_load *from, const struct stg_load *to,
                      uint32_t n_runners, struct stg_pace *ret)
{
    *ret = (struct stg_pace){
        .elapsed_ns = to->at_ns - from->at_ns,
        .n_items = to->n_made - from->n_made,
        .n_published = to->n_published - from->n_published,
        .n_rows = to->n_rows - from->n_rows,
        .n_runners = n_runners,
        .pull_ns = to->pull_ns - from->pull_ns,
        .compute_ns = to->compute_ns - from->compute_ns,
        .call_ns = to->call_ns - from->call_ns,
        .room_ns = to->room_ns - from->room_ns,
        .clients_ns = to->clients_ns - from->clients_ns,
        .clients_wait_ns = to->clients_wait_ns - from->clients_wait_ns,
        .sampled_pull_ns = to->sampled_pull_ns - from->sampled_pull_ns,
        .sampled_cpu_ns = to->sampled_cpu_ns - from->sampled_cpu_ns,
        .cpu_ns = to->cpu_ns - from->cpu_ns,
    };
    add_remote(&ret->remote, &from->remote, &to->remote);
}

void stg_measure_pace(const struct stg_measure *measure, struct stg_pace *ret)
{
    stg_pace_between(&measure->marks[0], &measure->load, measure->n_runners, ret);
    if (measure->marks[0].at_ns == 0) /* since the machine started: no window yet */
        ret->elapsed_ns = ret->cpu_ns = 0;
}

/* ---- what trainers say ---- */

/* A report is of a few seconds; one of more than an hour is none. */
#define MAX_REPORT_NS UINT64_C(3600000000000)
#define MAX_RUNS UINT64_C(1000000)
#define MAX_BYTES (UINT64_C(1) << 40)

static bool is_time_of(uint64_t n, uint64_t ns)
{
    return n > 0 && n <= MAX_RUNS && ns <= MAX_REPORT_NS;
}

static void report_node(struct stg_profile *profile, const struct stg_report_node *node)
{
    if (node->node >= profile->n_nodes)
        return;
    size_t first = profile->first_output[node->node];
    if (node->n_bytes > profile->first_output[node->node + 1] - first)
        return;
    if (is_time_of(node->n, node->ns))
        stg_mean_add_many(&profile->node_ns[node->node], node->n, node->ns);
    for (size_t i = 0; i < node->n_bytes; i++) {
        if (node->bytes[i] <= MAX_BYTES)
            stg_mean_add(&profile->bytes[first + i], node->bytes[i]);
    }
}

void stg_measure_report(struct stg_measure *measure, const struct stg_report *report)
{
    struct stg_profile *profile = &measure->client;
    if (!is_time_of(report->n_runs, report->run_ns))
        return;
    profile->n_runs += report->n_runs;
    stg_mean_add_many(&profile->run_ns, report->n_runs, report->run_ns);
    if (is_time_of(report->n_batches, report->cpu_ns))
        stg_mean_add_many(&measure->client_cpu_ns, report->n_batches, report->cpu_ns);
    for (size_t i = 0; i < report->n_nodes; i++) {
        const struct stg_report_node *node = &report->nodes[i];
        report_node(profile, node);
        if (node->node < profile->n_nodes)
            measure->on_device[node->node] = node->on_device;
    }
}
