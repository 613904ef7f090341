/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/exec/split.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kernels/text/text.h"

/* More than one a thread: where a core is taken away, the others do its share. */
#define PARTS_A_THREAD 4u

/* Written by the thread that runs it, read by the executor's when it is done. */
struct part {
    struct stg_split *split;
    int64_t first, n; /* rows */
    struct stg_bump scratch;
    struct stg_bump memory;     /* of strings */
    struct stg_tensor *outputs; /* strings only; data_bytes is their bound */
    int64_t *at;                /* where they go in the whole output */
};

struct stg_split {
    const struct stg_parallel *parallel;
    uint32_t max_parts;
    struct part *parts;

    /* while an op runs */
    const struct stg_op *op;
    struct stg_op_run *whole;
    uint64_t by_row; /* what op->rows said */
    int64_t n_rows;
    uint32_t n_parts;
    size_t n_outputs;
    atomic_bool has_failed;
    struct stg_bump memory;
    struct stg_tensor *outputs; /* whole; no dtype: not there yet */
    pthread_mutex_t lock;       /* of outputs, and of whole->alloc */
};

struct stg_split *stg_split_create(const struct stg_parallel *parallel)
{
    struct stg_split *split = calloc(1, sizeof(*split));
    if (split == NULL)
        return NULL;
    pthread_mutex_init(&split->lock, NULL);
    split->parallel = parallel;
    split->parts = calloc(parallel->n_threads * PARTS_A_THREAD, sizeof(*split->parts));
    if (split->parts == NULL) {
        stg_split_destroy(split);
        return NULL;
    }
    split->max_parts = parallel->n_threads * PARTS_A_THREAD;
    for (uint32_t i = 0; i < split->max_parts; i++)
        split->parts[i].split = split;
    return split;
}

void stg_split_destroy(struct stg_split *split)
{
    if (split == NULL)
        return;
    for (uint32_t i = 0; i < split->max_parts; i++) {
        stg_bump_finish(&split->parts[i].scratch);
        stg_bump_finish(&split->parts[i].memory);
    }
    stg_bump_finish(&split->memory);
    pthread_mutex_destroy(&split->lock);
    free(split->parts);
    free(split);
}

/* ---- which parts ---- */

static bool goes_by_row(const struct stg_split *split, size_t input)
{
    return (split->by_row >> (input < 63 ? input : 63) & 1) != 0;
}

/* How many rows there are, and how many bytes in them. False: inputs do not agree. */
static bool measure(struct stg_split *split, uint64_t *ret_bytes)
{
    const struct stg_op_run *whole = split->whole;
    *ret_bytes = 0;
    split->n_rows = -1;
    for (size_t k = 0; k < whole->n_inputs; k++) {
        const struct stg_tensor *input = &whole->inputs[k];
        if (!goes_by_row(split, k))
            continue;
        if (input->ndim == 0 || (split->n_rows >= 0 && input->shape[0] != split->n_rows))
            return false;
        split->n_rows = input->shape[0];
        uint64_t n = (uint64_t)stg_tensor_n(input);
        *ret_bytes += input->dtype == STAGER_STRING
                          ? stg_text_bytes(input) + n * 2 * sizeof(int64_t)
                          : n * stg_dtype_bytes(input->dtype);
    }
    return split->n_rows > 1;
}

static bool make_parts(struct stg_split *split)
{
    uint64_t bytes;
    split->by_row = split->op->rows != NULL ? split->op->rows(split->whole) : 0;
    if (split->by_row == 0 || !measure(split, &bytes))
        return false;
    uint64_t n = bytes / split->parallel->part_bytes;
    if (n > split->max_parts)
        n = split->max_parts;
    if (n > (uint64_t)split->n_rows)
        n = (uint64_t)split->n_rows;
    if (n < 2)
        return false;
    split->n_parts = (uint32_t)n;
    int64_t each = split->n_rows / split->n_parts, more = split->n_rows % split->n_parts;
    for (int64_t i = 0, first = 0; i < split->n_parts; i++) {
        split->parts[i].first = first;
        split->parts[i].n = each + (i < more);
        first += split->parts[i].n;
    }
    return true;
}

/* Elements in a row. */
static int64_t row_n(const struct stg_tensor *tensor)
{
    int64_t n = 1;
    for (int d = 1; d < tensor->ndim; d++)
        n *= tensor->shape[d];
    return n;
}

/* Rows [first, first + n). */
static struct stg_tensor slice(const struct stg_tensor *tensor, int64_t first, int64_t n)
{
    struct stg_tensor ret = *tensor;
    int64_t each = row_n(tensor);
    ret.shape[0] = n;
    if (tensor->dtype == STAGER_STRING) {
        ret.begin += first * each;
        ret.end += first * each;
        return ret;
    }
    uint64_t bytes = (uint64_t)each * stg_dtype_bytes(tensor->dtype);
    ret.data = (char *)tensor->data + (uint64_t)first * bytes;
    ret.data_bytes = (uint64_t)n * bytes;
    return ret;
}

/* ---- what the op calls ---- */

static bool fits(const struct stg_tensor *whole, int dtype, int ndim,
                 const int64_t *shape)
{
    return whole->dtype == dtype && whole->ndim == ndim &&
           memcmp(whole->shape + 1, shape + 1, (size_t)(ndim - 1) * sizeof(*shape)) == 0;
}

static int alloc_strings(struct part *part, size_t i, int ndim, const int64_t *shape,
                         uint64_t bytes, struct stg_tensor *ret)
{
    struct stg_tensor *output = &part->outputs[i];
    output->ndim = ndim;
    memcpy(output->shape, shape, (size_t)ndim * sizeof(*shape));
    size_t n = (size_t)stg_tensor_n(output);
    int64_t *offsets = stg_bump_alloc_raw(&part->memory, (n + 1) * sizeof(*offsets));
    output->data = stg_bump_alloc_raw(&part->memory, bytes);
    if (offsets == NULL || output->data == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    offsets[0] = 0;
    output->dtype = STAGER_STRING;
    output->begin = offsets;
    output->end = offsets + 1;
    output->data_bytes = bytes;
    *ret = *output;
    return 0;
}

/* The first part that asks gets the whole output made. */
static int alloc_part(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                      const int64_t *shape, uint64_t string_bytes, struct stg_tensor *ret,
                      struct stg_err *err)
{
    struct part *part = ctx->executor;
    struct stg_split *split = part->split;
    assert(i < split->n_outputs && ndim > 0 && shape[0] == part->n);
    if (dtype == STAGER_STRING)
        return alloc_strings(part, i, ndim, shape, string_bytes, ret);
    int64_t all[STG_MAX_DIMS];
    memcpy(all, shape, (size_t)ndim * sizeof(*shape));
    all[0] = split->n_rows;
    struct stg_tensor *output = &split->outputs[i];
    int rc = 0;
    pthread_mutex_lock(&split->lock);
    if (output->dtype == STAGER_DT_INVALID)
        rc = split->whole->alloc(split->whole, i, dtype, ndim, all, 0, output, err);
    if (rc == 0 && !fits(output, dtype, ndim, shape))
        rc = -STAGER_INVALID_ARGUMENT; /* parts differ */
    pthread_mutex_unlock(&split->lock);
    if (rc == 0)
        *ret = slice(output, part->first, part->n);
    return rc;
}

/* A view costs nothing: no need of parts. */
static int view_part(struct stg_op_run *ctx, size_t i, const struct stg_tensor *tensor,
                     struct stg_err *err)
{
    return -STAGER_UNIMPLEMENTED;
}

static bool run_op(struct part *part)
{
    struct stg_split *split = part->split;
    const struct stg_op_run *whole = split->whole;
    stg_bump_reset(&part->memory);
    stg_bump_reset(&part->scratch);
    struct stg_tensor *inputs =
        stg_bump_alloc_raw(&part->scratch, whole->n_inputs * sizeof(*inputs));
    part->outputs =
        stg_bump_alloc(&part->memory, split->n_outputs * sizeof(*part->outputs));
    part->at = stg_bump_alloc(&part->memory, split->n_outputs * sizeof(*part->at));
    if (inputs == NULL || part->outputs == NULL || part->at == NULL)
        return false;
    for (size_t k = 0; k < whole->n_inputs; k++)
        inputs[k] = goes_by_row(split, k) ? slice(&whole->inputs[k], part->first, part->n)
                                          : whole->inputs[k];
    struct stg_op_run ctx = *whole;
    struct stg_err err = {0};
    ctx.inputs = inputs;
    ctx.scratch = &part->scratch;
    ctx.alloc = alloc_part;
    ctx.view = view_part;
    ctx.executor = part;
    return split->op->run(&ctx, &err) == 0;
}

static void run_part(void *arg, uint32_t i)
{
    struct stg_split *split = arg;
    if (!atomic_load_explicit(&split->has_failed, memory_order_relaxed) &&
        !run_op(&split->parts[i]))
        atomic_store_explicit(&split->has_failed, true, memory_order_relaxed);
}

/* ---- strings ---- */

/* Room for what the parts have written, and where each part's goes. */
static bool place_strings(struct stg_split *split, size_t i)
{
    const struct stg_tensor *first = &split->parts[0].outputs[i];
    int64_t all[STG_MAX_DIMS], at = 0;
    uint64_t bound = 0;
    for (uint32_t p = 0; p < split->n_parts; p++) {
        const struct stg_tensor *output = &split->parts[p].outputs[i];
        if (!fits(first, output->dtype, output->ndim, output->shape))
            return false;
        split->parts[p].at[i] = at;
        at += output->begin[stg_tensor_n(output)];
        bound += output->data_bytes;
    }
    memcpy(all, first->shape, sizeof(all));
    all[0] = split->n_rows;
    return split->whole->alloc(split->whole, i, STAGER_STRING, first->ndim, all, bound,
                               &split->outputs[i], NULL) == 0;
}

static void copy_strings(void *arg, uint32_t p)
{
    struct stg_split *split = arg;
    const struct part *part = &split->parts[p];
    for (size_t i = 0; i < split->n_outputs; i++) {
        const struct stg_tensor *from = &part->outputs[i];
        if (from->dtype != STAGER_STRING)
            continue;
        int64_t n = stg_tensor_n(from), at = part->at[i];
        int64_t *end =
            (int64_t *)(uintptr_t)split->outputs[i].end + part->first * row_n(from);
        for (int64_t k = 0; k < n; k++)
            end[k] = at + from->end[k];
        memcpy((char *)split->outputs[i].data + at, from->data, (size_t)from->begin[n]);
    }
}

static bool join_strings(struct stg_split *split)
{
    bool has_some = false;
    for (size_t i = 0; i < split->n_outputs; i++) {
        if (split->parts[0].outputs[i].dtype != STAGER_STRING)
            continue;
        has_some = true;
        if (!place_strings(split, i))
            return false;
    }
    if (has_some)
        split->parallel->run(split->parallel->owner, split->n_parts, copy_strings, split);
    return true;
}

bool stg_split_run(struct stg_split *split, const struct stg_op *op,
                   struct stg_op_run *whole, size_t n_outputs)
{
    split->op = op;
    split->whole = whole;
    split->n_outputs = n_outputs;
    if (!make_parts(split))
        return false;
    stg_bump_reset(&split->memory);
    split->outputs = stg_bump_alloc(&split->memory, n_outputs * sizeof(*split->outputs));
    if (split->outputs == NULL)
        return false;
    atomic_store_explicit(&split->has_failed, false, memory_order_relaxed);
    split->parallel->run(split->parallel->owner, split->n_parts, run_part, split);
    return !atomic_load_explicit(&split->has_failed, memory_order_relaxed) &&
           join_strings(split);
}
