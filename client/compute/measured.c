/* SPDX-License-Identifier: Apache-2.0 */
#include "client/compute/measured.h"

#include <stdlib.h>

/* One run in so many: a prime, as the daemon's. */
#define SAMPLE_EVERY 13u

int stg_measured_init(struct stg_measured *measured, const struct stg_graph *graph,
                      struct stg_run *run, struct stg_err *err)
{
    int rc = stg_profiler_init(&measured->profiler, graph, run, SAMPLE_EVERY, err);
    if (rc < 0)
        return rc;
    const struct stg_profile *profile = &measured->profiler.profile;
    size_t n_outputs = profile->first_output[profile->n_nodes];
    measured->nodes = calloc(profile->n_nodes + 1, sizeof(*measured->nodes));
    measured->bytes = calloc(n_outputs + 1, sizeof(*measured->bytes));
    if (measured->nodes != NULL && measured->bytes != NULL)
        return 0;
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

void stg_measured_finish(struct stg_measured *measured)
{
    stg_profiler_finish(&measured->profiler);
    free(measured->nodes);
    free(measured->bytes);
    *measured = (struct stg_measured){0};
}

/* Those that ran, and those whose outputs another one wrote. */
static bool has_run(const struct stg_profile *profile, size_t node)
{
    bool has = profile->node_ns[node].n > 0;
    for (size_t i = profile->first_output[node]; i < profile->first_output[node + 1]; i++)
        has |= profile->bytes[i].n > 0;
    return has;
}

bool stg_measured_take(struct stg_measured *measured, struct stg_compute_measured *ret)
{
    struct stg_profile *profile = &measured->profiler.profile;
    if (!measured->profiler.is_fresh)
        return false;
    *ret = (struct stg_compute_measured){.n_runs = profile->run_ns.n,
                                         .run_ns = profile->run_ns.sum,
                                         .nodes = measured->nodes};
    for (size_t i = 0; i < profile->n_nodes; i++) {
        size_t first = profile->first_output[i];
        if (!has_run(profile, i))
            continue;
        measured->nodes[ret->n_nodes++] = (struct stg_compute_node){
            .node = (uint32_t)i,
            .n = profile->node_ns[i].n,
            .ns = profile->node_ns[i].sum,
            .bytes = &measured->bytes[first],
            .n_bytes = profile->first_output[i + 1] - first,
        };
    }
    for (size_t i = 0; i < profile->first_output[profile->n_nodes]; i++)
        measured->bytes[i] = stg_mean(&profile->bytes[i]);
    stg_profile_clear(profile);
    measured->profiler.is_fresh = false;
    return true;
}
