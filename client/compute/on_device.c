/* SPDX-License-Identifier: Apache-2.0 */
#include "client/compute/on_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/status.h"

/* ---- which fetches ---- */

static int no_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static int can_launch(const struct stg_on_device *half, const struct stg_graph *graph,
                      struct stg_resources *resources, const char *fetch, bool *ret,
                      struct stg_err *err)
{
    struct stg_run *run;
    int rc = stg_run_create_compute(graph, resources, &fetch, 1, &run, err);
    if (rc < 0)
        return rc;
    *ret = stg_place_where(half->place)->forwards ? stg_run_forwards(run)
                                                  : stg_run_launches(run);
    stg_run_destroy(run);
    return 0;
}

static int sort_fetches(struct stg_on_device *half, const struct stg_graph *graph,
                        struct stg_resources *resources, const char *const *fetches,
                        size_t n, struct stg_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        bool can = false;
        rc = can_launch(half, graph, resources, fetches[i], &can, err);
        if (can)
            half->there[half->n_there++] = i;
        else
            half->here[half->n_here++] = i;
    }
    return rc;
}

static int make_run(const struct stg_graph *graph, struct stg_resources *resources,
                    const char *const *fetches, const size_t *which, size_t n,
                    struct stg_run **ret, struct stg_err *err)
{
    const char **names = calloc(n + 1, sizeof(*names));
    if (names == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++)
        names[i] = fetches[which[i]];
    int rc = stg_run_create_compute(graph, resources, names, n, ret, err);
    free(names);
    return rc;
}

static int make_room(struct stg_on_device *half, size_t n, size_t n_fed,
                     struct stg_err *err)
{
    half->there = calloc(n + 1, sizeof(*half->there));
    half->here = calloc(n + 1, sizeof(*half->here));
    half->tensors = calloc(n + 1, sizeof(*half->tensors));
    half->fed = calloc(n_fed + 1, sizeof(*half->fed));
    return half->there != NULL && half->here != NULL && half->tensors != NULL &&
                   half->fed != NULL
               ? 0
               : no_memory(err);
}

/* ---- what it takes ---- */

static int measure(struct stg_on_device *half, const struct stg_graph *graph,
                   struct stg_err *err)
{
    int rc = stg_measured_init(&half->there_took, graph, half->run, err);
    if (rc == 0 && half->rest != NULL)
        rc = stg_measured_init(&half->here_took, graph, half->rest, err);
    half->nodes =
        calloc(2 * half->there_took.profiler.profile.n_nodes + 1, sizeof(*half->nodes));
    return rc == 0 && half->nodes == NULL ? no_memory(err) : rc;
}

static void add_nodes(struct stg_on_device *half,
                      const struct stg_compute_measured *measured, bool on_device,
                      struct stg_compute_measured *ret)
{
    for (size_t i = 0; i < measured->n_nodes; i++) {
        half->nodes[ret->n_nodes] = measured->nodes[i];
        half->nodes[ret->n_nodes++].on_device = on_device;
    }
    if (measured->n_runs > ret->n_runs)
        ret->n_runs = measured->n_runs;
    ret->run_ns += measured->run_ns;
}

bool stg_on_device_measured(struct stg_on_device *half, struct stg_compute_measured *ret)
{
    struct stg_compute_measured measured;
    struct stg_compute_measured both = {.nodes = half->nodes};
    if (stg_measured_take(&half->there_took, &measured))
        add_nodes(half, &measured, true, &both);
    if (half->rest != NULL && stg_measured_take(&half->here_took, &measured))
        add_nodes(half, &measured, false, &both);
    if (both.n_runs > 0)
        *ret = both;
    return both.n_runs > 0;
}

/* ---- life ---- */

int stg_on_device_create(struct stg_place *place, const struct stg_graph *graph,
                         struct stg_resources *resources, const struct stg_run *all,
                         const char *const *fetches, size_t n_fetches, size_t n_fed,
                         struct stg_on_device **ret, struct stg_err *err)
{
    *ret = NULL;
    /* What a variable holds when it is read is said by the order of the file. */
    if (stg_run_writes(all))
        return 0;
    struct stg_on_device *half = calloc(1, sizeof(*half));
    if (half == NULL)
        return no_memory(err);
    half->place = place;
    int rc = make_room(half, n_fetches, n_fed, err);
    if (rc == 0)
        rc = sort_fetches(half, graph, resources, fetches, n_fetches, err);
    if (rc == 0 && half->n_there > 0)
        rc = make_run(graph, resources, fetches, half->there, half->n_there, &half->run,
                      err);
    if (rc == 0 && half->n_there > 0 && half->n_here > 0)
        rc = make_run(graph, resources, fetches, half->here, half->n_here, &half->rest,
                      err);
    if (rc == 0 && half->n_there > 0)
        rc = measure(half, graph, err);
    /* Together they may do each other's work in a way that a device cannot. */
    if (rc < 0 || half->n_there == 0 || !stg_run_launches(half->run))
        stg_on_device_destroy(half);
    else
        *ret = half;
    return rc;
}

void stg_on_device_destroy(struct stg_on_device *half)
{
    if (half == NULL)
        return;
    stg_place_forget(half->place, half->run);
    stg_run_destroy(half->run);
    stg_run_destroy(half->rest);
    stg_measured_finish(&half->there_took);
    stg_measured_finish(&half->here_took);
    free(half->nodes);
    free(half->there);
    free(half->here);
    free(half->tensors);
    free(half->fed);
    free(half);
}

/* ---- a run ---- */

struct launch {
    struct stg_on_device *half;
    struct stg_result *result;
};

static int launch_alloc(void *owner, size_t bytes, void **ret, struct stg_err *err)
{
    const struct launch *launch = owner;
    return stg_result_alloc(launch->result, bytes, ret, err);
}

static int launch_keep(void *owner, const void *data, size_t bytes, bool is_variable,
                       const void **ret, struct stg_err *err)
{
    const struct launch *launch = owner;
    return stg_place_keep(launch->half->place, launch->half->run, data, bytes,
                          is_variable, ret, err);
}

static int launch(struct stg_on_device *half, struct stg_result *result,
                  const struct stg_on_device_run *what, struct stg_err *err)
{
    const struct stg_compute_device *where = stg_place_where(half->place);
    struct launch owner = {.half = half, .result = result};
    struct stg_run_device how = {.kernels = where->device->kernels,
                                 .stream = where->stream,
                                 .owner = &owner,
                                 .alloc = launch_alloc,
                                 .keep = launch_keep,
                                 .feeds = what->boundary_there,
                                 .fed = half->fed};
    int rc = stg_result_bad(result, &how.bad, err);
    return rc < 0 ? rc
                  : stg_run_launch(half->run, what->boundary, &how, what->key,
                                   half->tensors, err);
}

static bool wants_device(struct stg_on_device *half)
{
    if (half->has_failed)
        return false;
    if (!stg_place_where(half->place)->is_auto)
        return true;
    return stg_trial_step(&half->trial, stg_now_ns());
}

/* What the device gives, and what the host does meanwhile. */
static int run_there(struct stg_on_device *half, const struct stg_on_device_run *what,
                     struct stg_tensor *outputs, bool *is_there, struct stg_err *err)
{
    for (size_t i = 0; i < half->n_there; i++) {
        outputs[half->there[i]] = half->tensors[i];
        is_there[half->there[i]] = true;
    }
    if (half->rest == NULL)
        return 0;
    int rc =
        stg_run_exec(half->rest, what->boundary, what->key, NULL, half->tensors, err);
    for (size_t i = 0; i < half->n_here && rc == 0; i++)
        outputs[half->here[i]] = half->tensors[i];
    return rc;
}

/* All by the host, and its results to where they are expected, if that works. */
static int run_here(struct stg_on_device *half, const struct stg_on_device_run *what,
                    struct stg_result *result, struct stg_tensor *outputs, bool *is_there,
                    struct stg_err *err)
{
    struct stg_err why = {0};
    int rc = stg_run_exec(what->all, what->boundary, what->key, NULL, outputs, err);
    if (rc < 0 || result == NULL)
        return rc;
    for (size_t i = 0; i < half->n_there; i++)
        half->tensors[i] = outputs[half->there[i]];
    if (stg_result_copy_in(result, half->tensors, half->n_there, &why) < 0)
        return 0;
    for (size_t i = 0; i < half->n_there; i++) {
        outputs[half->there[i]] = half->tensors[i];
        is_there[half->there[i]] = true;
    }
    return 0;
}

int stg_on_device_exec(struct stg_on_device *half, const struct stg_on_device_run *what,
                       struct stg_tensor *outputs, bool *is_there, struct stg_err *err)
{
    int rc = stg_place_check(half->place, false, err);
    if (rc < 0)
        return rc;
    struct stg_result *result = NULL;
    struct stg_err why = {0};
    bool wanted = wants_device(half);
    int got = stg_place_begin(half->place, half->run, what->number, &result, &why);
    if (wanted && got == 0)
        got = launch(half, result, what, &why);
    half->was_there = wanted && got == 0;
    if (half->was_there)
        rc = run_there(half, what, outputs, is_there, err);
    else
        rc = run_here(half, what, result, outputs, is_there, err);
    /* An input that cannot be is the host's error too; else it was the device. */
    if (got < 0 && rc == 0 && !half->has_failed) {
        half->has_failed = true;
        snprintf(half->failure, sizeof(half->failure), "%s", why.text);
    }
    if (result != NULL && stg_result_end(result, half->was_there, &why) < 0 && rc == 0)
        rc = stg_err(err, -STAGER_UNAVAILABLE, "%s", why.text);
    if (rc < 0 || !is_there[half->there[0]])
        stg_place_pass(half->place); /* its content is not reported */
    return rc;
}

/* ---- what it says of itself ---- */

static void tell_trial(const struct stg_trial *trial, const char *name, char *buf,
                       size_t bytes)
{
    double host_ns = 0, device_ns = 0;
    if (trial->turn < STG_TRIAL_TURNS) {
        snprintf(buf, bytes, "measuring: turn %u of %u, %s", trial->turn + 1,
                 STG_TRIAL_TURNS, trial->turn % 2 == 0 ? "host" : name);
        return;
    }
    stg_trial_steps(trial, &host_ns, &device_ns);
    snprintf(buf, bytes, "%s: a step took %.3f ms with %s, %.3f ms on the host",
             trial->keeps ? name : "host", device_ns / 1e6, name, host_ns / 1e6);
}

void stg_on_device_tell(const struct stg_on_device *half, char *buf, size_t bytes)
{
    const struct stg_compute_device *where = stg_place_where(half->place);
    char name[STG_DEVICE_NAME_BYTES];
    snprintf(name, sizeof(name), "cuda:%d", where->number);
    if (half->has_failed)
        snprintf(buf, bytes, "host: %s failed: %s", name, half->failure);
    else if (where->is_auto)
        tell_trial(&half->trial, name, buf, bytes);
    else
        snprintf(buf, bytes, "%s", name);
}
