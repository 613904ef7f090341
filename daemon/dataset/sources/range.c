/* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"

struct range {
    struct stg_iter iter;
    int64_t start, step;
    uint64_t n; /* numbers in all */
    uint64_t at;
};

static int range_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_step_is_source(step, in, err);
    if (rc < 0)
        return rc;
    if (stg_attr_find(step->attrs, step->n_attrs, "stop") == NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err, "stop is missing");
    if (stg_step_int(step, "step", 1) == 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err, "step must not be 0");
    rc = stg_schema_create(bump, 1, ret, err);
    if (rc == 0)
        ret->components[0] =
            (struct stg_component){.name = "value", .dtype = STAGER_INT64};
    return rc;
}

/* Numbers in [start, stop) by step; all in 64 bits without a sign, where nothing
 * overflows. */
static uint64_t count(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0 && start < stop)
        return ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    if (step < 0 && start > stop)
        return ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
    return 0;
}

static int range_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct range *range = (struct range *)iter;
    uint64_t n = range->n - range->at;
    if (n == 0)
        return 1;
    int rc = stg_iter_stopped(iter, err);
    if (rc < 0)
        return rc;
    if (n > (uint64_t)want)
        n = (uint64_t)want;
    if (n > STG_BLOCK_MAX_RECORDS)
        n = STG_BLOCK_MAX_RECORDS;
    struct stg_block *block;
    uint64_t bytes = n * sizeof(int64_t);
    rc = stg_block_create(iter->dataset->quota, 1, stg_block_room(bytes), NULL,
                          "a block of range", &block, err);
    if (rc < 0)
        return rc;
    int64_t *values = stg_block_carve(block, bytes);
    uint64_t step = (uint64_t)range->step;
    uint64_t first = (uint64_t)range->start + range->at * step;
    for (uint64_t i = 0; i < n; i++)
        values[i] = (int64_t)(first + i * step);
    block->tensors[0] = (struct stg_tensor){.dtype = STAGER_INT64,
                                            .ndim = 1,
                                            .shape = {(int64_t)n},
                                            .data = values,
                                            .data_bytes = bytes};
    block->n_records = block->n_rows = (int64_t)n;
    range->at += n;
    *ret = block;
    return 0;
}

static int range_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    ((struct range *)iter)->at = 0;
    return 0;
}

static bool range_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct range *range = (struct range *)iter;
    *ret = range->n - range->at;
    return true;
}

static int range_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct range *range = (struct range *)iter;
    uint64_t left = range->n - range->at;
    *ret = n < left ? n : left;
    range->at += *ret;
    return 0;
}

static int range_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    *ret = (struct stg_extent){.n = ((struct range *)iter)->n};
    return 0;
}

static int range_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    ((struct range *)iter)->at = n;
    return 0;
}

static const struct stg_iter_impl range_impl = {
    .next = range_next,
    .rewind = range_rewind,
    .destroy = stg_iter_free,
    .skip = range_skip,
    .left = range_left,
    .left_has_errors = true,
    .count = range_count,
    .seek = range_seek,
};

static int range_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct range *range =
        stg_iter_create(sizeof(*range), &range_impl, dataset, step, schema, input, err);
    if (range == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    range->start = stg_step_int(step, "start", 0);
    range->step = stg_step_int(step, "step", 1);
    range->n = count(range->start, stg_step_int(step, "stop", 0), range->step);
    *ret = &range->iter;
    return 0;
}

const struct stg_transformation stg_range = {
    .name = "range", .infer = range_infer, .create = range_create, .is_indexable = true};
