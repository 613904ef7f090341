/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/exec/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/exec/priv.h"

/* These runs are measured all: a short pipeline has numbers too. */
#define FIRST_RUNS 4u
/* Of what is summed up, older values count half once there are so many. */
#define FADES_AT 256u

uint64_t stg_mean(const struct stg_mean *mean)
{
    return mean->n > 0 ? mean->sum / mean->n : 0;
}

static void fade(struct stg_mean *mean)
{
    while (mean->n >= FADES_AT) {
        mean->n /= 2;
        mean->sum /= 2;
    }
}

void stg_mean_add_many(struct stg_mean *mean, uint64_t n, uint64_t sum)
{
    mean->n += n;
    mean->sum = mean->sum < UINT64_MAX - sum ? mean->sum + sum : UINT64_MAX;
    fade(mean);
}

void stg_mean_add(struct stg_mean *mean, uint64_t value)
{
    stg_mean_add_many(mean, 1, value);
}

static void move(struct stg_mean *to, struct stg_mean *from)
{
    stg_mean_add_many(to, from->n, from->sum);
    *from = (struct stg_mean){0};
}

/* ---- the sums ---- */

int stg_profile_init(struct stg_profile *profile, const struct stg_graph *graph,
                     struct stg_err *err)
{
    size_t n_outputs = 0;
    for (size_t i = 0; i < graph->n_nodes; i++)
        n_outputs += graph->nodes[i].n_outputs;
    profile->n_nodes = graph->n_nodes;
    profile->n_feeds = graph->has_element ? graph->element.n : graph->boundary.n;
    profile->node_ns = calloc(graph->n_nodes + 1, sizeof(*profile->node_ns));
    profile->first_output = calloc(graph->n_nodes + 1, sizeof(*profile->first_output));
    profile->bytes = calloc(n_outputs + 1, sizeof(*profile->bytes));
    profile->of_feeds = calloc(profile->n_feeds + 1, sizeof(*profile->of_feeds));
    if (profile->node_ns == NULL || profile->first_output == NULL ||
        profile->bytes == NULL || profile->of_feeds == NULL) {
        stg_profile_finish(profile);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    for (size_t i = 0; i < graph->n_nodes; i++)
        profile->first_output[i + 1] =
            profile->first_output[i] + graph->nodes[i].n_outputs;
    return 0;
}

void stg_profile_finish(struct stg_profile *profile)
{
    free(profile->node_ns);
    free(profile->first_output);
    free(profile->bytes);
    free(profile->of_feeds);
    *profile = (struct stg_profile){0};
}

void stg_profile_move(struct stg_profile *to, struct stg_profile *from)
{
    assert(to->n_nodes == from->n_nodes && to->n_feeds == from->n_feeds);
    to->n_runs += from->n_runs;
    from->n_runs = 0;
    move(&to->run_ns, &from->run_ns);
    for (size_t i = 0; i < to->n_nodes; i++)
        move(&to->node_ns[i], &from->node_ns[i]);
    for (size_t i = 0; i < to->first_output[to->n_nodes]; i++)
        move(&to->bytes[i], &from->bytes[i]);
    for (size_t i = 0; i < to->n_feeds; i++)
        move(&to->of_feeds[i], &from->of_feeds[i]);
}

void stg_profile_clear(struct stg_profile *profile)
{
    size_t n_outputs = profile->first_output[profile->n_nodes];
    profile->n_runs = 0;
    profile->run_ns = (struct stg_mean){0};
    memset(profile->node_ns, 0, profile->n_nodes * sizeof(*profile->node_ns));
    memset(profile->bytes, 0, n_outputs * sizeof(*profile->bytes));
    memset(profile->of_feeds, 0, profile->n_feeds * sizeof(*profile->of_feeds));
}

/* ---- one executor ---- */

static bool begin(void *owner, const struct stg_key *key)
{
    struct stg_profiler *profiler = owner;
    uint64_t n = profiler->n_execs++;
    profiler->n_ran = 0;
    return n < FIRST_RUNS || n % profiler->every == 0;
}

/* As it would lie in a batch; what a reader hands over has gaps. */
static uint64_t bytes_of(const struct stg_tensor *tensor)
{
    if (tensor->dtype != STAGER_STRING)
        return tensor->data_bytes;
    uint64_t n = (uint64_t)stg_tensor_n(tensor), bytes = (n + 1) * sizeof(int64_t);
    if (n == 0)
        return bytes;
    if (tensor->dictionary == NULL && tensor->end == tensor->begin + 1)
        return bytes + (uint64_t)(tensor->begin[n] - tensor->begin[0]);
    return bytes + stg_tensor_text_bytes(tensor);
}

/* A reader whose work the step does has one output. */
static size_t place_of(const struct stg_profiler *profiler,
                       const struct stg_run_step *step, size_t output)
{
    const struct stg_graph_node *node = step->outputs[output].node;
    size_t first = profiler->profile.first_output[node - profiler->run->graph->nodes];
    return node == step->node ? first + output : first;
}

/* Now, while its outputs are there: later ones may lie in their memory. */
static void measure_outputs(struct stg_profiler *profiler)
{
    const struct stg_run *run = profiler->run;
    const struct stg_run_step *step = run->own.step;
    for (size_t i = 0; i < step->node->n_outputs; i++) {
        const struct stg_tensor *tensor = &run->tensors[step->outputs[i].slot];
        if (tensor->dtype != STAGER_DT_INVALID)
            profiler->bytes[place_of(profiler, step, i)] = bytes_of(tensor);
    }
}

static void node_ran(void *owner, uint32_t node, uint64_t begin_ns, uint64_t end_ns)
{
    struct stg_profiler *profiler = owner;
    if (profiler->n_ran == 0)
        profiler->began_ns = begin_ns;
    profiler->ended_ns = end_ns;
    profiler->nodes[profiler->n_ran] = node;
    profiler->took_ns[profiler->n_ran++] = end_ns - begin_ns;
    measure_outputs(profiler);
}

static void add_sizes(struct stg_profiler *profiler)
{
    const struct stg_run *run = profiler->run;
    struct stg_profile *profile = &profiler->profile;
    for (size_t i = 0; i < run->n_steps; i++) {
        for (size_t k = 0; k < run->steps[i].node->n_outputs; k++) {
            size_t at = place_of(profiler, &run->steps[i], k);
            stg_mean_add(&profile->bytes[at], profiler->bytes[at]);
        }
    }
    for (size_t i = 0; i < run->n_feeds; i++) {
        if (run->slots[i].is_needed)
            stg_mean_add(&profile->of_feeds[i], bytes_of(&run->tensors[i]));
    }
}

/* Half a run says nothing of the nodes behind. */
static void end(void *owner, const struct stg_run *run, int rc)
{
    struct stg_profiler *profiler = owner;
    struct stg_profile *profile = &profiler->profile;
    if (rc < 0)
        return;
    for (size_t i = 0; i < profiler->n_ran; i++)
        stg_mean_add(&profile->node_ns[profiler->nodes[i]], profiler->took_ns[i]);
    stg_mean_add(&profile->run_ns,
                 profiler->n_ran > 0 ? profiler->ended_ns - profiler->began_ns : 0);
    add_sizes(profiler);
    profile->n_runs++;
    profiler->is_fresh = true;
}

int stg_profiler_init(struct stg_profiler *profiler, const struct stg_graph *graph,
                      struct stg_run *run, uint64_t every, struct stg_err *err)
{
    int rc = stg_profile_init(&profiler->profile, graph, err);
    if (rc < 0)
        return rc;
    profiler->nodes = calloc(graph->n_nodes + 1, sizeof(*profiler->nodes));
    profiler->took_ns = calloc(graph->n_nodes + 1, sizeof(*profiler->took_ns));
    profiler->bytes = calloc(profiler->profile.first_output[graph->n_nodes] + 1,
                             sizeof(*profiler->bytes));
    if (profiler->nodes == NULL || profiler->took_ns == NULL || profiler->bytes == NULL) {
        stg_profiler_finish(profiler);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    profiler->every = every;
    profiler->run = run;
    profiler->watcher = (struct stg_run_watcher){
        .owner = profiler, .begin = begin, .node = node_ran, .end = end};
    stg_run_watch(run, &profiler->watcher);
    return 0;
}

void stg_profiler_finish(struct stg_profiler *profiler)
{
    stg_profile_finish(&profiler->profile);
    free(profiler->nodes);
    free(profiler->took_ns);
    free(profiler->bytes);
    *profiler = (struct stg_profiler){0};
}
