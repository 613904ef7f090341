/* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/dataset/step.h"

struct take {
    struct stg_iter iter;
    int64_t count; /* -1: all */
    int64_t taken;
};

/* Errors are emitted, and do not count. */
static int take_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                     struct stg_err *err)
{
    struct take *take = (struct take *)iter;
    if (take->count >= 0 && want > take->count - take->taken)
        want = take->count - take->taken;
    if (want == 0)
        return 1;
    int rc = stg_iter_next(iter->input, want, ret, err);
    if (rc == 0)
        take->taken += (*ret)->n_records;
    return rc;
}

static int take_rewind(struct stg_iter *iter, struct stg_err *err)
{
    ((struct take *)iter)->taken = 0;
    return iter->input->impl->rewind(iter->input, err);
}

static const struct stg_iter_impl take_impl = {take_next, take_rewind, stg_iter_free};

static int take_create(struct stg_dataset *dataset, const struct stg_step *step,
                       const struct stg_schema *schema, struct stg_iter *input,
                       struct stg_iter **ret, struct stg_err *err)
{
    struct take *take =
        stg_iter_create(sizeof(*take), &take_impl, dataset, step, schema, input, err);
    if (take == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    take->count = stg_step_int(step, "count", -1);
    *ret = &take->iter;
    return 0;
}

const struct stg_transformation stg_take = {"take", stg_step_infer_count, take_create};
