/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/exec/priv.h"

/* ---- what an op calls ---- */

static int alloc_in_memory(struct stg_run *run, const struct stg_run_slot *slot,
                           int dtype, int ndim, const int64_t *shape,
                           uint64_t string_bytes, struct stg_tensor *ret,
                           struct stg_err *err)
{
    struct stg_tensor tensor = {.dtype = dtype, .ndim = ndim};
    memcpy(tensor.shape, shape, (size_t)ndim * sizeof(*shape));
    uint64_t n = 0, bytes;
    if (!stg_tensor_size(dtype, ndim, shape, string_bytes, &n, &bytes))
        goto fail;
    if (dtype == STAGER_STRING) {
        int64_t *offsets =
            stg_run_room(&run->buffers[slot->offsets], (n + 1) * sizeof(*offsets));
        if (offsets == NULL)
            goto fail;
        offsets[0] = 0;
        tensor.begin = offsets;
        tensor.end = offsets + 1;
    }
    tensor.data_bytes = bytes;
    tensor.data = stg_run_room(&run->buffers[slot->buffer], bytes);
    if (tensor.data == NULL)
        goto fail;
    *ret = tensor;
    return 0;

fail:
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %llu elements of %s",
                   (unsigned long long)n, stg_dtype_name(dtype));
}

/* The output takes over the memory of an input that nobody reads any more. */
static bool alloc_in_place(struct stg_run_worker *worker, const struct stg_run_slot *slot,
                           int dtype, int ndim, const int64_t *shape,
                           struct stg_tensor *ret)
{
    struct stg_run *run = worker->run;
    const struct stg_run_step *step = worker->step;
    for (size_t i = 0; step->dying >> i != 0; i++) {
        const struct stg_run_slot *from = &run->slots[step->inputs[i]];
        const struct stg_tensor *input = &worker->inputs[i];
        if ((step->dying >> i & 1) == 0 || from->is_view || input->dtype != dtype ||
            input->ndim != ndim || input->data != run->buffers[from->buffer].data ||
            memcmp(input->shape, shape, (size_t)ndim * sizeof(*shape)) != 0)
            continue;
        struct stg_run_buffer theirs = run->buffers[from->buffer];
        run->buffers[from->buffer] = run->buffers[slot->buffer];
        run->buffers[slot->buffer] = theirs;
        *ret = *input;
        return true;
    }
    return false;
}

static uint32_t output_slot(const struct stg_run_worker *worker, size_t i)
{
    assert(i < worker->step->node->n_outputs);
    return worker->step->outputs[i].slot;
}

/* By an op that was run on parts, and now is run whole. */
static int alloc_again(const struct stg_run_worker *worker, uint32_t slot, int dtype,
                       int ndim, const int64_t *shape, uint64_t string_bytes,
                       struct stg_tensor *ret)
{
    const struct stg_tensor *tensor = &worker->run->tensors[slot];
    assert(worker->split != NULL && tensor->dtype == dtype && tensor->ndim == ndim &&
           memcmp(tensor->shape, shape, (size_t)ndim * sizeof(*shape)) == 0 &&
           tensor->data_bytes >= string_bytes);
    *ret = *tensor;
    return 0;
}

static int alloc_output(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                        const int64_t *shape, uint64_t string_bytes,
                        struct stg_tensor *ret, struct stg_err *err)
{
    struct stg_run_worker *worker = ctx->executor;
    struct stg_run *run = worker->run;
    uint32_t slot = output_slot(worker, i);
    if (run->tensors[slot].dtype != STAGER_DT_INVALID)
        return alloc_again(worker, slot, dtype, ndim, shape, string_bytes, ret);
    const struct stg_run_slot *where = &run->slots[slot];
    struct stg_tensor tensor;
    int rc = 0;
    if (where->fetch != STG_NO_FETCH && run->sink != NULL)
        rc = run->sink->alloc(run->sink->owner, where->fetch, dtype, ndim, shape,
                              string_bytes, &tensor, err);
    /* Parts that have failed are run once more, from their inputs. */
    else if (worker->split != NULL || i > 0 ||
             !alloc_in_place(worker, where, dtype, ndim, shape, &tensor))
        rc = alloc_in_memory(run, where, dtype, ndim, shape, string_bytes, &tensor, err);
    if (rc < 0) {
        worker->blamed = worker->step->outputs[i].node;
        return rc;
    }
    run->tensors[slot] = tensor;
    *ret = tensor;
    return 0;
}

static int view_output(struct stg_op_run *ctx, size_t i, const struct stg_tensor *tensor,
                       struct stg_err *err)
{
    struct stg_run_worker *worker = ctx->executor;
    struct stg_run *run = worker->run;
    uint32_t slot = output_slot(worker, i);
    assert((worker->step->node->op->flags & STG_OP_VIEWS) != 0);
    assert(run->tensors[slot].dtype == STAGER_DT_INVALID);
    run->tensors[slot] = *tensor;
    run->slots[slot].is_view = true;
    return 0;
}

/* ---- exec ---- */

/* What infer promised holds. Strings were allocated with a bound: now it is known. */
static void check_outputs(struct stg_run *run, const struct stg_run_step *step)
{
    for (size_t i = 0; i < step->node->n_outputs; i++) {
        uint32_t slot = step->outputs[i].slot;
        struct stg_tensor *tensor = &run->tensors[slot];
        const struct stg_component *component = step->outputs[i].component;
        assert(tensor->dtype == component->dtype && tensor->ndim == component->ndim);
        for (int d = 0; d < tensor->ndim; d++)
            assert(component->shape[d] < 0 || component->shape[d] == tensor->shape[d]);
        if (tensor->dtype == STAGER_STRING && !run->slots[slot].is_view)
            tensor->data_bytes = (uint64_t)tensor->begin[stg_tensor_n(tensor)];
    }
}

int stg_run_step(struct stg_run_worker *worker, const struct stg_run_step *step,
                 const struct stg_key *key, struct stg_err *err)
{
    struct stg_run *run = worker->run;
    const struct stg_graph_node *node = step->node;
    for (size_t i = 0; i < node->n_inputs; i++)
        worker->inputs[i] = run->tensors[step->inputs[i]];
    for (size_t i = 0; i < node->n_outputs; i++) {
        run->tensors[step->outputs[i].slot].dtype = STAGER_DT_INVALID;
        run->slots[step->outputs[i].slot].is_view = false;
    }
    struct stg_op_run ctx = {
        .plan = step->plan,
        .inputs = worker->inputs,
        .n_inputs = node->n_inputs,
        .key = *key,
        .scratch = &worker->scratch,
        .alloc = alloc_output,
        .view = view_output,
        .executor = worker,
    };
    worker->step = step;
    int rc = 0;
    if (worker->split == NULL ||
        !stg_split_run(worker->split, node->op, &ctx, node->n_outputs)) {
        worker->blamed = node;
        rc = node->op->run(&ctx, err);
    }
    stg_bump_reset(&worker->scratch);
    if (run->watched_ns != 0)
        stg_run_watch_step(run, step);
    if (rc < 0) {
        if (!worker->blamed->in_rows) /* its number is that of a word, of an id … */
            err->row = -1;
        return stg_err_prefix(err, rc, "node %s (%s)", worker->blamed->spec->name,
                              worker->blamed->op->name);
    }
    check_outputs(run, step);
    return 0;
}

/* A fetch that no op wrote in place: a feed, a constant, a variable, a view, a duplicate.
 */
static int copy_fetches(struct stg_run *run, struct stg_err *err)
{
    for (size_t i = 0; i < run->n_fetches; i++) {
        const struct stg_run_fetch *fetch = &run->fetches[i];
        if (fetch->is_primary && !run->slots[fetch->slot].is_view)
            continue;
        if (fetch->first != i && run->sink->share != NULL) {
            run->sink->share(run->sink->owner, i, fetch->first);
            continue;
        }
        int rc = run->sink->copy(run->sink->owner, i, &run->tensors[fetch->slot], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_feed(const struct stg_component *c, const struct stg_tensor *feed,
                      struct stg_err *err)
{
    bool same = feed->dtype == c->dtype && feed->ndim == c->ndim;
    for (int d = 0; same && d < c->ndim; d++)
        same = c->shape[d] < 0 || c->shape[d] == feed->shape[d];
    if (same)
        return 0;
    char got[128], want[128];
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "feed \"%s\" is %s %s, not %s %s",
                   c->name, stg_dtype_name(feed->dtype),
                   stg_shape_text(feed->shape, feed->ndim, got, sizeof(got)),
                   stg_dtype_name(c->dtype),
                   stg_shape_text(c->shape, c->ndim, want, sizeof(want)));
}

void stg_run_feed(struct stg_run *run, const struct stg_tensor *const *values)
{
    for (size_t i = 0; i < run->graph->n_feeds; i++) {
        const struct stg_tensor *value;
        stg_graph_feed(run->graph, i, &value);
        if (values != NULL && values[i] != NULL)
            value = values[i];
        if (value != NULL)
            run->tensors[run->first_feed + i] = *value;
    }
}

int stg_run_take_feeds(struct stg_run *run, const struct stg_tensor *feeds,
                       struct stg_err *err)
{
    static const char nothing; /* an empty feed has an address too */
    const struct stg_graph *graph = run->graph;
    const struct stg_schema *schema =
        graph->has_element ? &graph->element : &graph->boundary;
    for (size_t i = 0; i < run->n_feeds; i++) {
        if (!run->slots[i].is_needed)
            continue;
        int rc = check_feed(&schema->components[i], &feeds[i], err);
        if (rc < 0)
            return rc;
        run->tensors[i] = feeds[i];
        if (feeds[i].data == NULL)
            run->tensors[i].data = (void *)(uintptr_t)&nothing;
    }
    for (size_t i = 0; !graph->has_element && i < graph->n_feeds; i++) {
        int rc = check_feed(&graph->feeds[i].component,
                            &run->tensors[run->first_feed + i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run_steps(struct stg_run *run, const struct stg_key *key, struct stg_err *err)
{
    /* A sink is one thread's, and who watches wants each node's own time. */
    if (run->ready != NULL && run->sink == NULL && run->watched_ns == 0)
        return stg_run_ready_exec(run, key, err);
    for (size_t i = 0; i < run->n_steps; i++) {
        int rc = stg_run_step(&run->own, &run->steps[i], key, err);
        if (rc < 0)
            return rc;
    }
    return run->sink != NULL ? copy_fetches(run, err) : 0;
}

int stg_run_exec(struct stg_run *run, const struct stg_tensor *feeds,
                 const struct stg_key *key, const struct stg_sink *sink,
                 struct stg_tensor *outputs, struct stg_err *err)
{
    static const struct stg_key no_key;
    if (key == NULL)
        key = &no_key;
    int rc = stg_run_take_feeds(run, feeds, err);
    if (rc < 0)
        return rc;
    run->sink = sink;
    if (run->watchers != NULL)
        stg_run_watch_begin(run, key);
    rc = run_steps(run, key, err);
    if (run->watched_ns != 0)
        stg_run_watch_end(run, rc);
    if (rc < 0)
        return rc;
    for (size_t i = 0; outputs != NULL && i < run->n_fetches; i++)
        outputs[i] = run->tensors[run->fetches[i].slot];
    return 0;
}

/* ---- a sink ---- */

static int batch_alloc(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                       uint64_t string_bytes, struct stg_tensor *ret, struct stg_err *err)
{
    return stg_batch_writer_alloc(owner, (uint32_t)i, dtype, ndim, shape, string_bytes,
                                  ret, err);
}

static int batch_copy(void *owner, size_t i, const struct stg_tensor *tensor,
                      struct stg_err *err)
{
    return stg_batch_writer_copy(owner, (uint32_t)i, tensor, err);
}

static void batch_share(void *owner, size_t i, size_t k)
{
    stg_batch_writer_share(owner, (uint32_t)i, (uint32_t)k);
}

struct stg_sink stg_sink_of_batch(struct stg_batch_writer *writer)
{
    return (struct stg_sink){
        .owner = writer, .alloc = batch_alloc, .copy = batch_copy, .share = batch_share};
}

/* ---- questions and settings ---- */

bool stg_run_computes(const struct stg_run *run)
{
    return run->n_steps > 0;
}

bool stg_run_writes(const struct stg_run *run)
{
    for (size_t s = 0; s < run->n_steps; s++) {
        if ((run->steps[s].node->op->flags & STG_OP_STATEFUL) != 0)
            return true;
    }
    return false;
}

bool stg_run_needs(const struct stg_run *run, size_t i)
{
    return i < run->n_feeds && run->slots[i].is_needed;
}

int stg_run_parallel(struct stg_run *run, const struct stg_parallel *parallel,
                     struct stg_err *err)
{
    struct stg_split *split = stg_split_create(parallel);
    if (split == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_split_destroy(run->own.split);
    run->own.split = split;
    run->rows = parallel;
    return 0;
}

void stg_run_destroy(struct stg_run *run)
{
    if (run == NULL)
        return;
    stg_run_ready_destroy(run->ready);
    stg_split_destroy(run->own.split);
    for (size_t i = 0; i < run->n_buffers; i++)
        free(run->buffers[i].data);
    stg_bump_finish(&run->plan);
    stg_bump_finish(&run->own.scratch);
    free(run);
}
