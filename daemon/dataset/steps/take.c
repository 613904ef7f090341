/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/step.h"

struct take {
    struct stg_iter iter;
    int64_t count; /* -1: all */
    struct stg_marks marks;
};

/* Returns how many records may still come; count is not -1. */
static uint64_t count_left(const struct take *take)
{
    uint64_t n = (uint64_t)take->count, done = take->marks.n_records;
    return done < n ? n - done : 0;
}

/* Errors are emitted, and do not count. */
static int take_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                     struct stg_err *err)
{
    struct take *take = (struct take *)iter;
    if (take->count < 0)
        return stg_iter_next(iter->input, want, ret, err);
    if ((uint64_t)want > count_left(take))
        want = (int64_t)count_left(take);
    if (want == 0)
        return 1;
    int rc = stg_marks_pass(iter, &take->marks, want, ret, err);
    if (rc == 0)
        stg_marks_yield(&take->marks, *ret);
    return rc;
}

static int take_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    stg_marks_rewind(&((struct take *)iter)->marks, afresh);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static int take_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                     struct stg_err *err)
{
    struct take *take = (struct take *)iter;
    if (take->count < 0)
        return stg_iter_skip(iter->input, n, ret, err);
    if (!stg_iter_is_clean(iter))
        return stg_marks_skip_passed(iter, &take->marks, n, NULL, ret, err);
    uint64_t left = count_left(take);
    int rc = stg_iter_skip(iter->input, n < left ? n : left, ret, err);
    if (rc == 0)
        stg_marks_count(&take->marks, *ret, *ret);
    return rc;
}

static bool take_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct take *take = (struct take *)iter;
    if (!stg_iter_left(iter->input, most, ret))
        return false;
    if (take->count >= 0 && *ret > count_left(take))
        *ret = count_left(take);
    return true;
}

static int take_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    const struct take *take = (struct take *)iter;
    int rc = stg_iter_count(iter->input, ret, err);
    if (rc == 0 && take->count >= 0)
        stg_extent_limit(ret, (uint64_t)take->count);
    return rc;
}

static int take_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct take *take = (struct take *)iter;
    stg_marks_stop(&take->marks);
    take->marks.n_in = take->marks.n_records = n;
    return stg_iter_seek(iter->input, n, err);
}

static void take_destroy(struct stg_iter *iter)
{
    stg_marks_finish(&((struct take *)iter)->marks);
    free(iter);
}

static const struct stg_iter_impl take_impl = {
    .next = take_next,
    .rewind = take_rewind,
    .destroy = take_destroy,
    .skip = take_skip,
    .left = take_left,
    .count = take_count,
    .seek = take_seek,
    .allow_uneven = stg_iter_pass_uneven,
};

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

const struct stg_transformation stg_take = {.name = "take",
                                            .infer = stg_step_infer_count,
                                            .create = take_create,
                                            .passes_codes = true,
                                            .is_indexable = true};
