/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of an executor: an op, its inputs, and the memory of its outputs.
 */
#include <assert.h>
#include <inttypes.h>
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
    uint64_t most = run->limit_bytes != 0 ? run->limit_bytes : UINT64_MAX;
    if (bytes > most || (dtype == STAGER_STRING && n >= most / sizeof(int64_t)))
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "%" PRIu64 " elements of %s, %" PRIu64
                       " bytes, are more than a tensor may take, %" PRIu64 " bytes",
                       n, stg_dtype_name(dtype), bytes, most);
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

/* The output takes over the memory of an input that has no reader left. */
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

/* Only the input that the step looks up may be coded. */
static struct stg_tensor input_of(const struct stg_run *run,
                                  const struct stg_run_step *step, size_t i)
{
    struct stg_tensor ret = run->tensors[step->inputs[i]];
    if ((int)i != step->coded) {
        ret.codes = NULL;
        ret.dictionary = NULL;
    }
    return ret;
}

static int run_op(struct stg_run_worker *worker, struct stg_op_run *ctx,
                  struct stg_err *err)
{
    const struct stg_run_step *step = worker->step;
    const struct stg_graph_node *node = step->node;
    int rc;
    worker->blamed = node;
    if (step->coded >= 0 && worker->inputs[step->coded].dictionary != NULL &&
        stg_run_coded(worker, ctx, &rc, err))
        return rc;
    if (worker->split != NULL &&
        stg_split_run(worker->split, node->op, ctx, node->n_outputs))
        return 0;
    worker->blamed = node;
    return node->op->run(ctx, err);
}

int stg_run_step(struct stg_run_worker *worker, const struct stg_run_step *step,
                 const struct stg_key *key, struct stg_err *err)
{
    struct stg_run *run = worker->run;
    const struct stg_graph_node *node = step->node;
    for (size_t i = 0; i < node->n_inputs; i++)
        worker->inputs[i] = input_of(run, step, i);
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
    worker->scratch.limit = run->limit_bytes;
    int rc = run_op(worker, &ctx, err);
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

bool stg_run_writes(const struct stg_run *run)
{
    for (size_t s = 0; s < run->n_steps; s++) {
        if ((run->steps[s].node->op->flags & STG_OP_STATEFUL) != 0)
            return true;
    }
    return false;
}
