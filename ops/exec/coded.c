/* SPDX-License-Identifier: Apache-2.0
 *
 * Coded strings: an op with STG_OP_BY_STRING runs once for each entry of a dictionary,
 * and each batch looks the results up. All other ops, and batches of dictionaries that
 * are not worth it, see the strings.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/exec/priv.h"

/* A dictionary with more entries without a result keeps no results. */
#define MAX_BAD 64
/* Results are made when nodes were asked for a part of as many elements as there are
 * entries. */
#define WORTH 8

/* ---- the plan ---- */

/* Whether the tensor is the same in each exec, and one string, number or table. */
static bool is_fixed(const struct stg_run *run, uint32_t slot)
{
    const struct stg_tensor *tensor = &run->tensors[slot];
    if (slot < run->first_feed + run->graph->n_feeds || tensor->data == NULL)
        return false;
    return stg_tensor_n(tensor) == 1 ? tensor->ndim <= 1 : tensor->dtype == STAGER_UINT8;
}

/* Returns which input of the step may be coded, or -1. */
static int coded_input(const struct stg_run *run, const struct stg_run_step *step)
{
    int ret = -1;
    if ((step->node->op->flags & STG_OP_BY_STRING) == 0)
        return -1;
    for (size_t i = 0; i < step->node->n_inputs; i++) {
        if (is_fixed(run, step->inputs[i]))
            continue;
        if (ret >= 0 || step->inputs[i] >= run->n_feeds)
            return -1;
        ret = (int)i;
    }
    return ret;
}

void stg_run_plan_coded(struct stg_run *run)
{
    for (size_t i = 0; i < run->n_steps; i++) {
        struct stg_run_step *step = &run->steps[i];
        step->coded = run->graph->has_element ? coded_input(run, step) : -1;
        for (size_t k = 0; k < step->node->n_inputs; k++)
            run->slots[step->inputs[k]].needs_strings |= (int)k != step->coded;
    }
}

/* ---- strings ---- */

int stg_run_spread_feed(struct stg_run *run, size_t i, struct stg_err *err)
{
    struct stg_tensor *tensor = &run->tensors[i];
    int64_t n = stg_tensor_n(tensor);
    if (!run->slots[i].needs_strings)
        return 0;
    if (run->spread == NULL)
        run->spread = calloc(run->n_feeds, sizeof(*run->spread));
    int64_t *begin =
        run->spread != NULL
            ? stg_run_room(&run->spread[i], 2 * ((uint64_t)n + 1) * sizeof(*begin))
            : NULL;
    if (begin == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %lld strings",
                       (long long)n);
    stg_tensor_spread(tensor, 0, n, begin, begin + n + 1);
    tensor->begin = begin;
    tensor->end = begin + n + 1;
    return 0;
}

/* Replaces a coded input by its strings. */
static int spread_input(struct stg_op_run *ctx, struct stg_tensor *input,
                        struct stg_err *err)
{
    size_t n = (size_t)stg_tensor_n(input);
    int64_t *begin = stg_bump_alloc_raw(ctx->scratch, 2 * (n + 1) * sizeof(*begin));
    if (begin == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (input->begin == NULL) {
        stg_tensor_spread(input, 0, (int64_t)n, begin, begin + n + 1);
        input->begin = begin;
        input->end = begin + n + 1;
    }
    input->dictionary = NULL;
    input->codes = NULL;
    return 0;
}

/* ---- results of entries ---- */

/* An op that runs for the entries of a dictionary, from `first` on. */
struct entries {
    const struct stg_run_step *step;
    const struct stg_op_run *ctx;
    char *values;
    unsigned width;
    int64_t first;
};

static int alloc_values(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                        const int64_t *shape, uint64_t string_bytes,
                        struct stg_tensor *ret, struct stg_err *err)
{
    const struct entries *entries = ctx->executor;
    *ret = (struct stg_tensor){.dtype = dtype,
                               .ndim = ndim,
                               .data = entries->values +
                                       (uint64_t)entries->first * entries->width};
    memcpy(ret->shape, shape, (size_t)ndim * sizeof(*shape));
    ret->data_bytes = (uint64_t)stg_tensor_n(ret) * entries->width;
    return 0;
}

static int run_entries(struct entries *entries, const struct stg_dictionary *dictionary,
                       struct stg_err *err)
{
    const struct stg_run_step *step = entries->step;
    struct stg_op_run ctx = *entries->ctx;
    struct stg_tensor *inputs =
        stg_bump_alloc_raw(ctx.scratch, ctx.n_inputs * sizeof(*inputs));
    if (inputs == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    memcpy(inputs, ctx.inputs, ctx.n_inputs * sizeof(*inputs));
    inputs[step->coded] =
        (struct stg_tensor){.dtype = STAGER_STRING,
                            .ndim = 1,
                            .shape = {dictionary->strings.n - entries->first},
                            .data = (void *)(uintptr_t)dictionary->strings.data,
                            .data_bytes = dictionary->strings.data_bytes,
                            .begin = dictionary->strings.begin + entries->first,
                            .end = dictionary->strings.end + entries->first};
    ctx.inputs = inputs;
    ctx.alloc = alloc_values;
    ctx.executor = entries;
    return step->node->op->run(&ctx, err);
}

static bool make_results(void *owner, const struct stg_dictionary *dictionary,
                         void *values, uint8_t *bad, bool *ret_bad)
{
    struct entries *entries = owner;
    struct stg_err err;
    entries->values = values;
    for (int n_bad = 0; entries->first < dictionary->strings.n; n_bad++) {
        err.row = -1;
        int rc = run_entries(entries, dictionary, &err);
        if (rc == 0)
            break;
        if (n_bad == MAX_BAD || err.row < 0 || rc != -STAGER_INVALID_ARGUMENT)
            return false;
        bad[entries->first + err.row] = 1;
        *ret_bad = true;
        entries->first += err.row + 1;
    }
    return true;
}

static const struct stg_results *results_of(struct stg_run_worker *worker,
                                            const struct stg_op_run *ctx)
{
    const struct stg_run_step *step = worker->step;
    const struct stg_graph *graph = worker->run->graph;
    const struct stg_tensor *input = &ctx->inputs[step->coded];
    struct stg_dictionary *dictionary = stg_dictionary_of(input);
    uint64_t n = (uint64_t)stg_tensor_n(input);
    n += atomic_fetch_add_explicit(&dictionary->n_used, n, memory_order_relaxed);
    if (n < (uint64_t)dictionary->strings.n / WORTH)
        return NULL;
    struct stg_result_key key = {.graph = graph,
                                 .made_ns = graph->made_ns,
                                 .node = (uint32_t)(step->node - graph->nodes)};
    unsigned width = stg_dtype_bytes(step->outputs[0].component->dtype);
    struct entries entries = {.step = step, .ctx = ctx, .width = width};
    return stg_dictionary_results(dictionary, &key, width, make_results, &entries);
}

/* ---- results of elements ---- */

static bool has_bad(const struct stg_results *results, const int32_t *codes, int64_t n)
{
    uint8_t bad = 0;
    for (int64_t i = 0; results->bad != NULL && i < n; i++)
        bad |= results->bad[codes[i]];
    return bad != 0;
}

#define LOOK_UP(type)                                                                    \
    for (int64_t i = 0; i < n; i++)                                                      \
    ((type *)to)[i] = ((const type *)from)[codes[i]]

static void look_up(const void *from, unsigned width, const int32_t *codes, int64_t n,
                    void *to)
{
    switch (width) {
    case 8: LOOK_UP(uint64_t); break;
    case 4: LOOK_UP(uint32_t); break;
    case 2: LOOK_UP(uint16_t); break;
    default: LOOK_UP(uint8_t); break;
    }
}

bool stg_run_coded(struct stg_run_worker *worker, struct stg_op_run *ctx, int *ret,
                   struct stg_err *err)
{
    const struct stg_run_step *step = worker->step;
    struct stg_tensor *input = &worker->inputs[step->coded], output;
    const struct stg_component *component = step->outputs[0].component;
    int64_t n = stg_tensor_n(input);
    *ret = 0;
    const struct stg_results *results = n > 0 ? results_of(worker, ctx) : NULL;
    for (size_t i = 0; i < ctx->n_inputs; i++) {
        if (ctx->inputs[i].dtype == STAGER_STRING && ctx->inputs[i].ndim > input->ndim)
            results = NULL;
    }
    if (results == NULL || has_bad(results, input->codes, n)) {
        *ret = spread_input(ctx, input, err);
        return *ret < 0;
    }
    *ret =
        ctx->alloc(ctx, 0, component->dtype, input->ndim, input->shape, 0, &output, err);
    if (*ret == 0)
        look_up(results->values, stg_dtype_bytes(component->dtype), input->codes, n,
                output.data);
    return true;
}
