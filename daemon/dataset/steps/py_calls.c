/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that pulls hands elements to threads, each of which waits for a worker.
 * Results leave in the order in which elements were pulled.
 */
#include "daemon/dataset/steps/py_calls.h"

#include <stdlib.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/task_pool.h"

struct calls;

/* An element. Its thread's until task.is_done. */
struct call {
    struct stg_task task;
    struct call *next;
    struct calls *calls;
    struct stg_block *input; /* an item; or an error block, which is not called for */
    struct stg_block *output;
    uint64_t epoch, index;
    int failed; /* the pass ends with it */
    struct stg_err failure;
};

struct calls {
    struct stg_iter iter;
    const struct stg_function_caller *caller;
    struct stg_task_pool *pool;
    struct call *first, **last;
    unsigned n; /* elements pulled and not emitted */
    uint64_t epoch, index;
    bool is_begun; /* an element of this epoch was pulled */
    uint64_t input_epoch;
    int ended; /* 1, or what the input failed with */
    struct stg_err failure;
};

/* ---- one call: on a thread ---- */

static int copy(struct call *call, const struct stg_tensor *tensors, struct stg_err *err)
{
    const struct stg_iter *iter = &call->calls->iter;
    struct stg_block *block;
    uint64_t bytes = stg_block_rows_room(&call->input, 1);
    for (size_t c = 0; c < iter->schema->n; c++)
        bytes += stg_block_tensor_room(&tensors[c]);
    int rc = stg_block_create(iter->dataset->quota, (uint32_t)iter->schema->n, bytes,
                              NULL, "what a function gives", &block, err);
    if (rc < 0)
        return stg_step_prefix(iter->step, rc, err);
    for (size_t c = 0; c < iter->schema->n; c++)
        stg_block_copy_tensor(block, (uint32_t)c, &tensors[c]);
    stg_block_join_rows(block, &call->input, 1);
    stg_block_pack(block);
    call->output = block;
    return 0;
}

/* An error of the function is an element. */
static int make_error(struct call *call, struct stg_err *err)
{
    const struct stg_iter *iter = &call->calls->iter;
    if (!stg_block_add_place(iter->dataset, call->input, err))
        stg_err_prefix(err, err->code, "element %llu of epoch %llu",
                       (unsigned long long)call->index, (unsigned long long)call->epoch);
    struct stg_err error = *err;
    return stg_block_create_error(iter->dataset->quota, &error, call->input->epoch,
                                  &call->output, err);
}

static int run(struct call *call, struct stg_tensor *tensors, struct stg_err *err)
{
    const struct stg_function_caller *caller = call->calls->caller;
    struct stg_function_call what = {call->input, call->calls->iter.pass, call->epoch,
                                     call->index};
    void *result = NULL;
    int rc = caller->call(caller->owner, &what, tensors, &result, err);
    bool is_error =
        rc < 0 && stg_iter_stopped(&call->calls->iter, &(struct stg_err){0}) == 0;
    if (rc == 0)
        rc = copy(call, tensors, err);
    if (result != NULL)
        caller->release(result);
    return is_error ? make_error(call, err) : rc;
}

static void call_run(struct stg_task *task, unsigned worker)
{
    struct call *call = (struct call *)task;
    const struct stg_iter *iter = &call->calls->iter;
    struct stg_tensor *tensors = calloc(iter->schema->n + 1, sizeof(*tensors));
    call->failed = tensors != NULL ? run(call, tensors, &call->failure)
                                   : stg_step_err(iter->step, -STAGER_RESOURCE_EXHAUSTED,
                                                  &call->failure, "out of memory");
    free(tensors);
}

/* ---- pulling ---- */

static void call_destroy(struct call *call)
{
    stg_block_unref(call->input);
    stg_block_unref(call->output);
    free(call);
}

/* An epoch ends where the input says so, or begins again. */
static void count(struct calls *calls, const struct stg_block *block)
{
    if (calls->is_begun && block->epoch != calls->input_epoch) {
        calls->epoch++;
        calls->index = 0;
    }
    calls->is_begun = true;
    calls->input_epoch = block->epoch;
}

/* Takes the block. */
static int add(struct calls *calls, struct stg_block *block, struct stg_err *err)
{
    struct call *call = calloc(1, sizeof(*call));
    if (call == NULL) {
        stg_block_unref(block);
        return stg_step_err(calls->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    }
    count(calls, block);
    call->task.run = call_run;
    call->calls = calls;
    call->epoch = calls->epoch;
    call->index = calls->index++;
    *calls->last = call;
    calls->last = &call->next;
    calls->n++;
    if (block->error.code != 0) {
        call->output = block;
        atomic_store_explicit(&call->task.is_done, true, memory_order_relaxed);
        return 0;
    }
    stg_block_unpack(block);
    call->input = block;
    stg_task_pool_submit(calls->pool, &call->task);
    return 0;
}

/* One element more for each thread than it works on, so that none waits for a pull. */
static int fill(struct calls *calls, struct stg_err *err)
{
    while (calls->ended == 0 && calls->n < 2 * calls->caller->n_calls) {
        struct stg_block *block;
        int rc = stg_iter_stopped(&calls->iter, err);
        if (rc < 0)
            return rc;
        rc = stg_iter_next(calls->iter.input, 1, &block, &calls->failure);
        if (rc == 0)
            rc = add(calls, block, &calls->failure);
        calls->ended = rc;
    }
    return 0;
}

static struct call *take_first(struct calls *calls)
{
    struct call *call = calls->first;
    for (;;) {
        uint64_t seen = stg_task_pool_n_done(calls->pool);
        if (atomic_load_explicit(&call->task.is_done, memory_order_acquire))
            break;
        stg_task_pool_wait(calls->pool, seen);
    }
    calls->first = call->next;
    if (calls->first == NULL)
        calls->last = &calls->first;
    calls->n--;
    return call;
}

static int calls_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct calls *calls = (struct calls *)iter;
    int rc = fill(calls, err);
    if (rc < 0)
        return rc;
    if (calls->first == NULL) {
        if (calls->ended < 0 && err != NULL)
            *err = calls->failure;
        return calls->ended;
    }
    struct call *call = take_first(calls);
    rc = call->failed;
    if (rc < 0 && err != NULL)
        *err = call->failure;
    *ret = call->output;
    call->output = NULL;
    call_destroy(call);
    return rc;
}

/* ---- life ---- */

static void clear(struct calls *calls)
{
    if (calls->pool != NULL)
        stg_task_pool_clear(calls->pool);
    while (calls->first != NULL) {
        struct call *call = calls->first;
        calls->first = call->next;
        call_destroy(call);
    }
    calls->last = &calls->first;
    calls->n = 0;
}

static int calls_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct calls *calls = (struct calls *)iter;
    clear(calls);
    calls->epoch = afresh ? 0 : calls->epoch + 1;
    calls->index = 0;
    calls->is_begun = false;
    calls->ended = 0;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void calls_destroy(struct stg_iter *iter)
{
    struct calls *calls = (struct calls *)iter;
    clear(calls);
    stg_task_pool_destroy(calls->pool);
    free(calls);
}

/* The function is not called for what is skipped. The input is produced: its epochs count
 * in those that the function gets. */
static int calls_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct calls *calls = (struct calls *)iter;
    if (calls->first != NULL)
        return stg_iter_replay(iter, n, ret, err);
    *ret = 0;
    while (*ret < n && calls->ended == 0) {
        uint64_t want = n - *ret;
        struct stg_block *block;
        int rc =
            stg_iter_next(iter->input, want < 1024 ? (int64_t)want : 1024, &block, err);
        if (rc < 0)
            return rc;
        calls->ended = rc;
        if (rc == 1)
            break;
        uint64_t got = block->error.code != 0 ? 1 : (uint64_t)block->n_records;
        count(calls, block);
        calls->index += got;
        *ret += got;
        stg_block_unref(block);
    }
    return 0;
}

static const struct stg_iter_impl calls_impl = {
    .next = calls_next,
    .rewind = calls_rewind,
    .destroy = calls_destroy,
    .skip = calls_skip,
};

int stg_py_calls_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct calls *calls =
        stg_iter_create(sizeof(*calls), &calls_impl, dataset, step, schema, input, err);
    if (calls == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    calls->caller = dataset->env.caller;
    calls->last = &calls->first;
    int rc = stg_task_pool_create(calls->caller->n_calls, step->name, &calls->pool, err);
    if (rc < 0) {
        stg_step_prefix(step, rc, err);
        calls_destroy(&calls->iter);
        return rc;
    }
    *ret = &calls->iter;
    return 0;
}
