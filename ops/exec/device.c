/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/exec/device.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ops/exec/priv.h"

/* ---- what can ---- */

static const struct stg_ref *input_of(const struct stg_run *run,
                                      const struct stg_run_step *step, size_t i)
{
    return stg_graph_follow(run->graph, &step->node->inputs[i]);
}

static bool is_variable(const struct stg_run *run, const struct stg_ref *ref)
{
    return ref->kind == STG_REF_NODE &&
           (run->graph->nodes[ref->index].op->flags & STG_OP_VARIABLE) != 0;
}

/* Outputs of steps have a buffer. */
static bool is_made(const struct stg_run *run, uint32_t slot)
{
    return run->slots[slot].buffer != STG_NO_BUFFER;
}

static bool is_fed(const struct stg_run *run, uint32_t slot)
{
    return slot >= run->first_feed && slot < run->first_feed + run->graph->n_feeds;
}

/* Is the input where a device sees it? */
static bool reaches(const struct stg_run *run, const struct stg_run_step *step, size_t i)
{
    const struct stg_component *component =
        stg_graph_component(run->graph, &step->node->inputs[i]);
    uint32_t slot = step->inputs[i];
    if (component == NULL || component->dtype == STAGER_STRING)
        return false;
    return !is_fed(run, slot) || run->graph->feeds[slot - run->first_feed].is_carried;
}

static bool step_launches(const struct stg_run *run, const struct stg_run_step *step)
{
    const struct stg_graph_node *node = step->node;
    struct stg_component inputs[64];
    uint64_t on_host = 0;
    if (node->op->launches == NULL || node->n_inputs > 64 ||
        (node->op->flags & STG_OP_STATEFUL) != 0)
        return false;
    for (size_t i = 0; i < node->n_inputs; i++) {
        if (!reaches(run, step, i))
            return false;
        inputs[i] = *stg_graph_component(run->graph, &node->inputs[i]);
        on_host |= (uint64_t)!is_made(run, step->inputs[i]) << i;
    }
    return node->op->launches(step->plan, inputs, node->n_inputs, on_host);
}

bool stg_run_launches(const struct stg_run *run)
{
    for (size_t i = 0; i < run->n_fetches; i++) {
        if (!is_made(run, run->fetches[i].slot))
            return false;
    }
    for (size_t s = 0; s < run->n_steps; s++) {
        if (!step_launches(run, &run->steps[s]))
            return false;
    }
    return run->n_fetches > 0;
}

const char *stg_run_stays(const struct stg_run *run, char *buf, size_t bytes)
{
    for (size_t s = 0; s < run->n_steps; s++) {
        if (!step_launches(run, &run->steps[s]))
            return stg_run_node_text(run, s, buf, bytes);
    }
    return NULL;
}

/* An op that gives the elements of its input, perhaps in another shape. */
static bool step_forwards(const struct stg_run *run, const struct stg_run_step *step)
{
    const struct stg_graph_node *node = step->node;
    return (node->op->flags & STG_OP_VIEWS) != 0 && node->n_inputs == 1 &&
           node->outputs[0].dtype ==
               stg_graph_component(run->graph, &node->inputs[0])->dtype;
}

bool stg_run_forwards(const struct stg_run *run)
{
    if (!stg_run_launches(run))
        return false;
    for (size_t s = 0; s < run->n_steps; s++) {
        if (!step_forwards(run, &run->steps[s]))
            return false;
    }
    return true;
}

/* ---- one node ---- */

struct launch {
    struct stg_run *run;
    const struct stg_run_device *how;
    const struct stg_run_step *step;
};

/* Also where the profiler looks for sizes. */
static void put(const struct launch *launch, size_t i, const struct stg_tensor *tensor)
{
    uint32_t slot = launch->step->outputs[i].slot;
    launch->run->on_device[slot] = *tensor;
    launch->run->tensors[slot] = *tensor;
}

static int device_alloc(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                        const int64_t *shape, uint64_t string_bytes,
                        struct stg_tensor *ret, struct stg_err *err)
{
    const struct launch *launch = ctx->executor;
    struct stg_tensor tensor = {.dtype = dtype, .ndim = ndim};
    memcpy(tensor.shape, shape, (size_t)ndim * sizeof(*shape));
    uint64_t n = 0;
    if (!stg_tensor_size(dtype, ndim, shape, string_bytes, &n, &tensor.data_bytes))
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %llu elements",
                       (unsigned long long)n);
    int rc = launch->how->alloc(launch->how->owner, (size_t)tensor.data_bytes,
                                &tensor.data, err);
    if (rc < 0)
        return rc;
    put(launch, i, &tensor);
    *ret = tensor;
    return 0;
}

static int device_view(struct stg_op_run *ctx, size_t i, const struct stg_tensor *tensor,
                       struct stg_err *err)
{
    const struct launch *launch = ctx->executor;
    put(launch, i, tensor);
    launch->run->slots[launch->step->outputs[i].slot].is_view = true;
    return 0;
}

static int device_keep(struct stg_op_run *ctx, const void *data, size_t bytes,
                       const void **ret, struct stg_err *err)
{
    const struct launch *launch = ctx->executor;
    return launch->how->keep(launch->how->owner, data, bytes, false, ret, err);
}

static int device_room(struct stg_op_run *ctx, size_t bytes, void **ret,
                       struct stg_err *err)
{
    const struct launch *launch = ctx->executor;
    return launch->how->alloc(launch->how->owner, bytes, ret, err);
}

/* Constants and variables go to the device when they are first read. */
static int find_input(const struct launch *launch, size_t i, struct stg_err *err)
{
    struct stg_run *run = launch->run;
    const struct stg_run_step *step = launch->step;
    uint32_t slot = step->inputs[i];
    bool is_feed = slot < run->n_feeds || is_fed(run, slot);
    struct stg_tensor host = {0}, *tensor = &run->on_device[slot];
    if (!is_made(run, slot))
        host = run->tensors[slot];
    if (!is_made(run, slot) && !is_feed) {
        const void *at = NULL;
        int rc = launch->how->keep(launch->how->owner, host.data, (size_t)host.data_bytes,
                                   is_variable(run, input_of(run, step, i)), &at, err);
        if (rc < 0)
            return rc;
        *tensor = host;
        tensor->data = (void *)(uintptr_t)at;
    }
    run->own.inputs[i] = *tensor;
    run->on_device[run->n_slots + i] = host;
    return 0;
}

static int launch_step(struct launch *launch, size_t s, const struct stg_key *key,
                       struct stg_err *err)
{
    struct stg_run *run = launch->run;
    const struct stg_run_step *step = launch->step = &run->steps[s];
    int rc = 0;
    run->own.step = step;
    for (size_t i = 0; rc == 0 && i < step->node->n_inputs; i++)
        rc = find_input(launch, i, err);
    struct stg_op_device device = {
        .kernels = launch->how->kernels,
        .stream = launch->how->stream,
        .hosts = run->on_device + run->n_slots,
        .keep = device_keep,
        .room = device_room,
        .bad = launch->how->bad + s,
    };
    struct stg_op_run ctx = {
        .plan = step->plan,
        .inputs = run->own.inputs,
        .n_inputs = step->node->n_inputs,
        .key = *key,
        .scratch = &run->own.scratch,
        .alloc = device_alloc,
        .view = device_view,
        .device = &device,
        .executor = launch,
    };
    for (size_t i = 0; i < step->node->n_outputs; i++)
        run->slots[step->outputs[i].slot].is_view = false;
    if (rc == 0)
        rc = step->node->op->run(&ctx, err);
    stg_bump_reset(&run->own.scratch);
    if (run->watched_ns != 0)
        stg_run_watch_step(run, step);
    return rc < 0 ? stg_err_prefix(err, rc, "node %s (%s)", step->node->spec->name,
                                   step->node->op->name)
                  : 0;
}

/* ---- all of them ---- */

/* Feeds as the host has them, at their places on the device. */
static void place_feeds(struct stg_run *run, const struct stg_run_device *how)
{
    for (size_t i = 0; i < run->n_feeds + run->graph->n_feeds; i++) {
        run->on_device[i] = run->tensors[i];
        run->on_device[i].data =
            i < run->n_feeds ? how->feeds[i] : how->fed[i - run->n_feeds];
    }
}

static int prepare(struct stg_run *run, const struct stg_tensor *feeds,
                   const struct stg_run_device *how, struct stg_err *err)
{
    size_t n = run->n_slots + run->max_inputs;
    assert(run->first_feed == run->n_feeds);
    if (run->on_device == NULL)
        run->on_device = stg_bump_alloc(&run->plan, (n + 1) * sizeof(*run->on_device));
    if (run->on_device == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = stg_run_take_feeds(run, feeds, err);
    if (rc == 0)
        place_feeds(run, how);
    return rc;
}

/* What is fetched is the owner's own: no batch, and no variable that may change. */
static int give_fetches(struct stg_run *run, const struct stg_run_device *how,
                        struct stg_tensor *outputs, struct stg_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < run->n_fetches; i++) {
        uint32_t slot = run->fetches[i].slot;
        struct stg_tensor *tensor = &run->on_device[slot];
        const void *from = tensor->data;
        size_t bytes = (size_t)tensor->data_bytes;
        if (run->slots[slot].is_view) {
            rc = how->alloc(how->owner, bytes, &tensor->data, err);
            if (rc == 0)
                rc = how->kernels->concat(how->stream, tensor->data, &from, &bytes, 1, 1,
                                          err);
            run->slots[slot].is_view = false;
        }
        outputs[i] = *tensor;
    }
    return rc;
}

int stg_run_launch(struct stg_run *run, const struct stg_tensor *feeds,
                   const struct stg_run_device *how, const struct stg_key *key,
                   struct stg_tensor *outputs, struct stg_err *err)
{
    struct launch launch = {.run = run, .how = how};
    int rc = prepare(run, feeds, how, err);
    if (rc < 0)
        return rc;
    if (run->watchers != NULL)
        stg_run_watch_begin(run, key);
    for (size_t s = 0; rc == 0 && s < run->n_steps; s++)
        rc = launch_step(&launch, s, key, err);
    if (rc == 0)
        rc = give_fetches(run, how, outputs, err);
    if (run->watched_ns != 0)
        stg_run_watch_end(run, rc);
    return rc;
}

/* ---- questions ---- */

size_t stg_run_n_nodes(const struct stg_run *run)
{
    return run->n_steps;
}

const char *stg_run_node_text(const struct stg_run *run, size_t i, char *buf,
                              size_t bytes)
{
    const struct stg_graph_node *node = run->steps[i].node;
    snprintf(buf, bytes, "%s (%s)", node->spec->name, node->op->name);
    return buf;
}

void stg_run_each_written(const struct stg_run *run,
                          void (*each)(void *owner, const void *data), void *owner)
{
    for (size_t s = 0; s < run->n_steps; s++) {
        const struct stg_run_step *step = &run->steps[s];
        for (size_t i = 0; i < step->node->n_inputs; i++) {
            if ((step->node->op->flags & STG_OP_STATEFUL) != 0 &&
                is_variable(run, input_of(run, step, i)))
                each(owner, run->tensors[step->inputs[i]].data);
        }
    }
}
