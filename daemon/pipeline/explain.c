/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "daemon/autotune/measure.h"
#include "daemon/autotune/remote_gain.h"
#include "daemon/host/cpus.h"
#include "ops/graph/view.h"

/* While one is made; the measure is this thread's alone for so long. */
struct maker {
    const struct stg_graph *graph;
    const struct stg_measure *measure; /* NULL: nothing was measured */
    struct stg_bump *bump;
    struct stg_view view;
    const char *const *moved; /* names of nodes that run before the boundary */
    size_t n_moved;
    double n_cpus;                     /* for which stagerd has time */
    const struct stg_schema *crossing; /* what crosses; NULL: the boundary of the file */
    struct stg_explain *ret;
};

/* ---- nodes ---- */

static uint64_t output_bytes(const struct stg_profile *profile, uint32_t node,
                             uint32_t output)
{
    return stg_mean(&profile->bytes[profile->first_output[node] + output]);
}

/* Either side may have measured it. */
static uint64_t bytes_of(const struct maker *m, uint32_t place, uint32_t output)
{
    const struct stg_view_node *node = &m->view.nodes[place];
    if (m->measure == NULL)
        return 0;
    if (node->op == NULL)
        return stg_mean(&m->measure->daemon.of_feeds[node->index]);
    uint64_t bytes = output_bytes(&m->measure->daemon, node->index, output);
    return bytes != 0 ? bytes : output_bytes(&m->measure->client, node->index, output);
}

static int fill_inputs(const struct maker *m, const struct stg_view_node *from,
                       struct stg_explain_node *to)
{
    to->inputs = stg_bump_alloc(m->bump, from->n_edges * sizeof(*to->inputs));
    if (to->inputs == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    to->n_inputs = from->n_edges;
    for (size_t i = 0; i < from->n_edges; i++) {
        const struct stg_view_edge *edge = &from->edges[i];
        to->inputs[i] = (struct stg_explain_input){
            .from = edge->from,
            .output = edge->output,
            .bytes = edge->is_control ? 0 : bytes_of(m, edge->from, edge->output),
            .staged = edge->staged != NULL ? edge->staged : "",
            .crosses = m->ret->nodes[edge->from].in_daemon && !to->in_daemon,
            .control = edge->is_control,
        };
    }
    return 0;
}

static void fill_times(const struct maker *m, uint32_t node, struct stg_explain_node *to)
{
    const struct stg_mean *daemon = &m->measure->daemon.node_ns[node];
    const struct stg_mean *client = &m->measure->client.node_ns[node];
    to->n_daemon = daemon->n;
    to->daemon_ns = stg_mean(daemon);
    to->on_gpu = to->in_trainer && m->measure->on_device[node];
    to->n_trainer = client->n;
    to->trainer_ns = stg_mean(client);
}

static bool has_moved(const struct maker *m, const struct stg_view_node *node)
{
    bool found = false;
    for (size_t i = 0; i < m->n_moved && node->op != NULL && !found; i++)
        found = strcmp(m->moved[i], node->name) == 0;
    return found;
}

static int fill_node(const struct maker *m, uint32_t place)
{
    const struct stg_view_node *from = &m->view.nodes[place];
    struct stg_explain_node *to = &m->ret->nodes[place];
    bool in_daemon = from->in_stage || has_moved(m, from);
    *to = (struct stg_explain_node){
        .name = from->name,
        .op = from->op != NULL ? from->op->name : "",
        .in_daemon = in_daemon,
        .in_trainer = from->in_compute && !in_daemon,
    };
    for (uint32_t i = 0; i < from->n_outputs; i++)
        to->bytes += bytes_of(m, place, i);
    if (from->op != NULL && m->measure != NULL)
        fill_times(m, from->index, to);
    return fill_inputs(m, from, to);
}

static int fill_nodes(const struct maker *m)
{
    struct stg_explain *ret = m->ret;
    ret->nodes = stg_bump_alloc(m->bump, m->view.n_nodes * sizeof(*ret->nodes));
    if (ret->nodes == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    ret->n_nodes = m->view.n_nodes;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->view.n_nodes; i++)
        rc = fill_node(m, (uint32_t)i);
    return rc;
}

/* ---- the rest ---- */

/* The tensor of that name: a feature, else "node:k". */
static struct stg_view_edge find_tensor(const struct maker *m, const char *name)
{
    const struct stg_schema *boundary = stg_graph_boundary(m->graph);
    struct stg_view_edge ret = {.from = UINT32_MAX};
    for (size_t i = 0; i < boundary->n; i++) {
        if (strcmp(boundary->components[i].name, name) == 0)
            return m->view.features[i];
    }
    const char *colon = strrchr(name, ':');
    size_t n = colon != NULL ? (size_t)(colon - name) : strlen(name);
    for (uint32_t i = 0; i < m->view.n_nodes; i++) {
        const char *node = m->view.nodes[i].name;
        if (m->view.nodes[i].op != NULL && strlen(node) == n &&
            memcmp(node, name, n) == 0)
            ret.from = i;
    }
    if (ret.from != UINT32_MAX && colon != NULL)
        ret.output = (uint32_t)strtoul(colon + 1, NULL, 10);
    if (ret.from != UINT32_MAX && ret.output >= m->view.nodes[ret.from].n_outputs)
        ret.from = UINT32_MAX;
    return ret;
}

static int fill_tensors(const struct maker *m)
{
    const struct stg_schema *boundary =
        m->crossing != NULL ? m->crossing : stg_graph_boundary(m->graph);
    struct stg_explain *ret = m->ret;
    ret->tensors = stg_bump_alloc(m->bump, boundary->n * sizeof(*ret->tensors));
    if (ret->tensors == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    ret->n_tensors = boundary->n;
    for (size_t i = 0; i < boundary->n; i++) {
        const char *name = boundary->components[i].name;
        struct stg_view_edge from = find_tensor(m, name);
        bool is_constant = from.from == UINT32_MAX;
        ret->tensors[i] = (struct stg_explain_tensor){
            .name = stg_bump_strdup(m->bump, name),
            .is_constant = is_constant,
            .from = is_constant ? 0 : from.from,
            .bytes = is_constant ? 0 : bytes_of(m, from.from, from.output),
        };
        if (ret->tensors[i].name == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
    }
    return 0;
}

static int fill_steps(const struct maker *m, const struct stg_pipeline_spec *spec)
{
    const char **steps = stg_bump_alloc(m->bump, spec->n_steps * sizeof(*steps));
    if (steps == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < spec->n_steps; i++)
        steps[i] = spec->steps[i].name;
    m->ret->steps = steps;
    m->ret->n_steps = spec->n_steps;
    return 0;
}

static int fill_reads(const struct maker *m, const struct stg_definition *definition)
{
    return stg_projection_tell(definition->spec, &definition->projection, m->bump,
                               &m->ret->reads, &m->ret->n_reads);
}

static int fill_decisions(const struct maker *m, uint64_t now_ns)
{
    const struct stg_decisions *decisions = &m->measure->decisions;
    size_t n = stg_decisions_n(decisions);
    struct stg_explain_decision *all = stg_bump_alloc(m->bump, n * sizeof(*all));
    if (all == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        const struct stg_decision *d = stg_decisions_at(decisions, i);
        char *text = stg_bump_strdup(m->bump, d->text);
        if (text == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        all[i] = (struct stg_explain_decision){
            .age_ns = now_ns - d->at_ns, .what = d->what, .text = text};
    }
    m->ret->decisions = all;
    m->ret->n_decisions = n;
    return 0;
}

static int fill_pace(const struct maker *m, uint64_t now_ns)
{
    struct stg_explain *ret = m->ret;
    const struct stg_measure *measure = m->measure;
    struct stg_pace pace;
    char why[256];
    stg_measure_pace(measure, &pace);
    ret->bottleneck = stg_bottleneck_name(stg_bottleneck_find(&pace, why, sizeof(why)));
    double age_s = (double)(now_ns - measure->load.at_ns) / 1e9;
    if (!measure->is_over)
        ret->why = stg_bump_strdup(m->bump, why);
    else if (measure->marks[1].at_ns != 0)
        ret->why = stg_bump_printf(m->bump, "no trainer reads now; until %.1f s ago: %s",
                                   age_s, why);
    ret->elapsed_ns = pace.elapsed_ns;
    ret->n_items = pace.n_items;
    ret->n_runners = (uint32_t)pace.n_runners;
    ret->pull_ns = pace.pull_ns;
    ret->compute_ns = pace.compute_ns;
    ret->room_ns = pace.room_ns;
    ret->trainers_ns = pace.clients_ns;
    ret->trainers_wait_ns = pace.clients_wait_ns;
    ret->cpu_ns = pace.cpu_ns;
    ret->n_daemon_runs = m->measure->daemon.n_runs;
    ret->daemon_run_ns = stg_mean(&m->measure->daemon.run_ns);
    ret->n_trainer_runs = m->measure->client.n_runs;
    ret->trainer_run_ns = stg_mean(&m->measure->client.run_ns);
    return ret->why != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

static uint64_t mean_of(uint64_t sum, uint64_t n)
{
    return n > 0 ? sum / n : 0;
}

static int fill_remote(const struct maker *m)
{
    struct stg_explain *ret = m->ret;
    struct stg_pace pace;
    char text[256];
    stg_measure_pace(m->measure, &pace);
    const struct stg_remote_load *remote = &pace.remote;
    ret->alone_ns = stg_remote_gain(&pace, m->n_cpus, text, sizeof(text));
    ret->remote = stg_bump_strdup(m->bump, text);
    ret->n_remote_items = remote->n_items;
    ret->n_local_items = remote->n_local;
    ret->remote_bytes = remote->n_bytes;
    ret->remote_stall_ns = remote->stall_ns;
    ret->remote_answer_ns = mean_of(remote->answer_ns, remote->n_answers);
    ret->remote_cpu_ns = mean_of(remote->cpu_ns, remote->n_timed);
    ret->local_cpu_ns = mean_of(remote->local_cpu_ns, remote->n_local);
    return ret->remote != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

/* Trainers may fetch what is no target. */
static bool *find_computed(const struct maker *m)
{
    size_t n = stg_view_n_graph_nodes(m->graph);
    bool *computed = stg_bump_alloc(m->bump, n);
    for (size_t i = 0; computed != NULL && m->measure != NULL && i < n; i++)
        computed[i] = m->measure->client.node_ns[i].n > 0;
    return computed;
}

static int fill(struct maker *m, const struct stg_definition *definition, uint64_t now_ns,
                struct stg_err *err)
{
    const bool *computed = find_computed(m);
    int rc = computed != NULL
                 ? stg_view_create(m->graph, computed, m->bump, &m->view, err)
                 : -STAGER_RESOURCE_EXHAUSTED;
    if (rc == 0)
        rc = fill_nodes(m);
    if (rc == 0)
        rc = fill_tensors(m);
    if (rc == 0)
        rc = fill_steps(m, definition->spec);
    if (rc == 0)
        rc = fill_reads(m, definition);
    if (rc == 0 && m->measure != NULL)
        rc = fill_pace(m, now_ns);
    if (rc == 0 && m->measure != NULL &&
        definition->spec->staged.remote.mode != STG_SMART_STAGE_OFF)
        rc = fill_remote(m);
    if (rc == 0 && m->measure != NULL)
        rc = fill_decisions(m, now_ns);
    return rc == 0 ? 0 : stg_err(err, rc, "out of memory");
}

/* A missing client holds it up, whatever the last pass showed. */
static int fill_missing(const struct stg_pipeline_status *status, struct stg_bump *bump,
                        struct stg_explain *ret)
{
    unsigned n = 0;
    for (size_t i = 0; i < status->n_clients; i++)
        n += strcmp(status->clients[i].state, "attached") == 0;
    bool waits =
        strcmp(status->state, "waiting") == 0 || strcmp(status->state, "ended") == 0;
    if (!waits || strcmp(status->delivery, "split") == 0 || n == 0 ||
        n >= status->num_clients)
        return 0;
    ret->bottleneck = "clients";
    ret->why =
        stg_bump_printf(bump, "%s begins when all %u clients are there, and %u %s",
                        status->delivery, status->num_clients, n, n == 1 ? "is" : "are");
    return ret->why != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

/* ---- replays ---- */

void stg_explain_add_replay(struct stg_pipeline *pipeline,
                            const struct stg_replay_result *result)
{
    struct stg_replays *replays = &pipeline->replays;
    if (replays->entries == NULL)
        replays->entries = calloc(STG_MAX_REPLAYS, sizeof(*replays->entries));
    if (replays->entries == NULL)
        return;
    struct stg_replay_entry *entry = &replays->entries[replays->n++ % STG_MAX_REPLAYS];
    *entry = (struct stg_replay_entry){
        .result = *result, .generation = pipeline->generation, .at_ns = stg_now_ns()};
    snprintf(entry->client_id, sizeof(entry->client_id), "%s", result->client_id);
}

/* Those of this generation. */
static int fill_replays(const struct stg_pipeline *pipeline, struct stg_bump *bump,
                        struct stg_explain *ret)
{
    const struct stg_replays *replays = &pipeline->replays;
    size_t n = replays->n < STG_MAX_REPLAYS ? replays->n : STG_MAX_REPLAYS;
    uint64_t now_ns = stg_now_ns();
    ret->replays = stg_bump_alloc(bump, (n + 1) * sizeof(*ret->replays));
    if (ret->replays == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (uint64_t i = replays->n - n; i < replays->n; i++) {
        const struct stg_replay_entry *entry = &replays->entries[i % STG_MAX_REPLAYS];
        struct stg_replay_result *to = &ret->replays[ret->n_replays];
        if (entry->generation != pipeline->generation)
            continue;
        *to = entry->result;
        to->client_id = entry->client_id;
        to->age_ns = now_ns - entry->at_ns;
        ret->n_replays++;
    }
    return 0;
}

int stg_explain_fill(struct stg_pipeline *pipeline, struct stg_bump *bump,
                     struct stg_explain *ret, struct stg_err *err)
{
    struct stg_instance *instance = pipeline->instance;
    struct stg_stage *stage = instance != NULL ? instance->stage : NULL;
    static const char *const modes[] = {"off", "on", "auto"};
    const struct stg_pipeline_spec *spec = pipeline->definition->spec;
    struct stg_pipeline_status status;
    stg_catalog_status(pipeline, bump, &status);
    *ret = (struct stg_explain){
        .name = pipeline->name,
        .generation = pipeline->generation,
        .state = status.state,
        .smart_stage = modes[spec->smart_stage],
        .bottleneck = stg_bottleneck_name(STG_BOTTLENECK_UNKNOWN),
        .why = "nothing was measured yet: no trainer took from it",
        .remote = "",
    };
    struct maker m = {
        .graph = pipeline->definition->graph,
        .measure = pipeline->measure,
        .bump = bump,
        .moved = status.moved,
        .n_moved = status.n_moved,
        .n_cpus = stg_cpus(),
        .ret = ret,
    };
    if (stage != NULL) {
        m.measure = stg_stage_look(stage);
        m.crossing = stg_stage_crossing(stage);
    }
    int rc = fill(&m, pipeline->definition, stg_now_ns(), err);
    if (stage != NULL)
        stg_stage_unlook(stage);
    if (rc == 0 &&
        (fill_missing(&status, bump, ret) < 0 || fill_replays(pipeline, bump, ret) < 0))
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return rc;
}
