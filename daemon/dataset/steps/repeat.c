/* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/dataset/step.h"
#include "daemon/dataset/steps/shuffle.h"

struct repeat {
    struct stg_iter iter;
    uint64_t count; /* UINT64_MAX: without end */
    uint64_t epoch; /* the iteration that runs */
    bool any;       /* it has yielded something */
    bool ended;
};

/* An iteration without anything ends it: the next ones would be as empty, for ever. */
static int repeat_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct repeat *repeat = (struct repeat *)iter;
    while (!repeat->ended) {
        int rc = stg_iter_next(iter->input, want, ret, err);
        if (rc < 0)
            return rc;
        if (rc == 0) {
            repeat->any = true;
            (*ret)->epoch = repeat->epoch;
            return 0;
        }
        repeat->epoch++;
        if (!repeat->any || repeat->epoch >= repeat->count) {
            repeat->ended = true;
            break;
        }
        repeat->any = false;
        rc = iter->input->impl->rewind(iter->input, err);
        if (rc < 0)
            return rc;
    }
    return 1;
}

static int repeat_rewind(struct stg_iter *iter, struct stg_err *err)
{
    struct repeat *repeat = (struct repeat *)iter;
    repeat->epoch = 0;
    repeat->any = false;
    repeat->ended = repeat->count == 0;
    return iter->input->impl->rewind(iter->input, err);
}

static const struct stg_iter_impl repeat_impl = {repeat_next, repeat_rewind,
                                                 stg_iter_free};

static int repeat_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    int64_t count = stg_step_int(step, "count", -1);
    uint64_t times = count < 0 ? UINT64_MAX : (uint64_t)count;
    if (stg_shuffle_fuse(input, times)) {
        *ret = input;
        return 0;
    }
    struct repeat *repeat =
        stg_iter_create(sizeof(*repeat), &repeat_impl, dataset, step, schema, input, err);
    if (repeat == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    repeat->count = times;
    repeat->ended = times == 0;
    *ret = &repeat->iter;
    return 0;
}

const struct stg_transformation stg_repeat = {"repeat", stg_step_infer_count,
                                              repeat_create};
