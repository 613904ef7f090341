/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the function of the step py_function: of a runner for the item in its hand, or
 * of the dataset, where other steps follow.
 */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/dataset/steps/py_function.h"
#include "daemon/pyworker/work.h"
#include "daemon/stage/priv.h"

static void count_call(struct stg_stage *stage, uint64_t began, bool ends)
{
    struct stg_runners *runners = &stage->runners;
    pthread_mutex_lock(&stage->lock);
    runners->n_calling += ends ? -1u : 1u;
    runners->calls_began_ns += ends ? -began : began;
    if (ends)
        stage->counts.call_ns += stg_now_ns() - began;
    pthread_mutex_unlock(&stage->lock);
}

/* As the steps that pulls go through. */
static void trace_call(struct stg_stage *stage, uint64_t began, int64_t n_rows)
{
    struct stg_trace *trace = stage->config.trace;
    if (!stg_trace_is_on(trace))
        return;
    uint16_t name = stg_trace_known(trace, &stage->counts.call_label);
    if (name == 0) {
        char text[64];
        snprintf(text, sizeof(text), "step py_function (line %d)",
                 stg_py_function_find(stage->config.spec)->line);
        name = stg_trace_name(trace, &stage->counts.call_label, text);
    }
    stg_trace_add(trace, &(struct stg_trace_span){.begin_ns = began,
                                                  .end_ns = stg_now_ns(),
                                                  .number = STG_NO_NUMBER,
                                                  .value = (uint32_t)n_rows,
                                                  .kind = STG_SPAN_STEP,
                                                  .name = name});
}

int stg_stage_call(struct stg_stage *stage, struct stg_work_call *call,
                   struct stg_tensor *tensors, struct stg_worker **ret,
                   struct stg_err *err)
{
    call->max_output_bytes = stage->plan.max_batch_bytes;
    call->start_timeout_millis = stage->staged->start_timeout_millis;
    call->stopped = &stage->stop.flag;
    uint64_t began = stg_now_ns();
    count_call(stage, began, false);
    int rc = stg_work_call(stage->config.workers, call, tensors, ret, err);
    count_call(stage, began, true);
    trace_call(stage, began, call->block->n_rows);
    return rc;
}

/* ---- of the dataset: what comes back is copied out of the worker's reach ---- */

static int call_for_dataset(void *owner, const struct stg_function_call *what,
                            struct stg_tensor *tensors, void **ret, struct stg_err *err)
{
    struct stg_worker *worker = NULL;
    struct stg_work_call call = {.block = what->block,
                                 .pass = what->pass,
                                 .epoch = what->epoch,
                                 .index = what->index,
                                 .is_computed = true};
    int rc = stg_stage_call(owner, &call, tensors, &worker, err);
    *ret = worker;
    return rc;
}

static void release(void *result)
{
    stg_work_release(result);
}

const struct stg_function_caller *stg_stage_caller(struct stg_stage *stage)
{
    if (stage->config.workers == NULL || stg_py_function_is_last(stage->config.spec))
        return NULL;
    stage->runners.caller =
        (struct stg_function_caller){.owner = stage,
                                     .n_calls = stage->plan.num_threads,
                                     .call = call_for_dataset,
                                     .release = release};
    return &stage->runners.caller;
}
