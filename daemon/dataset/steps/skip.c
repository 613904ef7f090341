/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/step.h"

struct skip {
    struct stg_iter iter;
    int64_t count; /* -1: all */
    struct stg_marks marks;
};

/* Returns how many records are still to be left out; count is not -1. */
static uint64_t count_head(const struct skip *skip)
{
    uint64_t n = (uint64_t)skip->count, done = skip->marks.n_records;
    return done < n ? n - done : 0;
}

/* Never asks for more than is to be skipped, so that no block has to be cut. Errors on
 * the way are emitted, and do not count. */
static int skip_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                     struct stg_err *err)
{
    struct skip *skip = (struct skip *)iter;
    uint64_t head;
    if (skip->count < 0)
        return 1;
    while ((head = count_head(skip)) > 0) {
        struct stg_block *block;
        int64_t most =
            head < STG_BLOCK_MAX_RECORDS ? (int64_t)head : STG_BLOCK_MAX_RECORDS;
        int rc = stg_marks_pass(iter, &skip->marks, most, &block, err);
        if (rc != 0)
            return rc;
        if (block->error.code != 0) {
            stg_marks_yield(&skip->marks, block);
            *ret = block;
            return 0;
        }
        stg_block_unref(block);
    }
    return stg_marks_take(iter, &skip->marks, want, ret, err);
}

static int skip_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    stg_marks_rewind(&((struct skip *)iter)->marks, afresh);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

/* Past those that are left out, or as far as n elements go: each error among them is one.
 * Behind them an error is an element like any other. */
static int skip_head(struct skip *skip, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    struct stg_iter *iter = &skip->iter;
    uint64_t got = 1;
    int rc = 0;
    *ret = 0;
    if (!stg_iter_is_clean(iter) && count_head(skip) > 0)
        rc = stg_marks_jump_passed(iter, &skip->marks, n, NULL, ret, err);
    while (rc == 0 && !stg_iter_is_clean(iter) && *ret < n && got > 0 &&
           count_head(skip) > 0) {
        rc = stg_iter_replay(iter, 1, &got, err);
        *ret += got;
    }
    return rc;
}

static int skip_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                     struct stg_err *err)
{
    struct skip *skip = (struct skip *)iter;
    *ret = 0;
    if (skip->count < 0 || n == 0)
        return 0;
    int rc = skip_head(skip, n, ret, err);
    if (rc < 0 || *ret == n)
        return rc;
    uint64_t head = count_head(skip), got;
    rc = stg_iter_skip(iter->input, stg_count_add(head, n - *ret), &got, err);
    if (rc < 0)
        return rc;
    n = got > head ? got - head : 0;
    stg_marks_count(&skip->marks, got, n);
    *ret += n;
    return 0;
}

static bool skip_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct skip *skip = (struct skip *)iter;
    *ret = 0;
    if (skip->count < 0)
        return true;
    uint64_t head = count_head(skip);
    if (!stg_iter_left(iter->input, stg_count_add(most, head), ret))
        return false;
    *ret -= *ret < head ? *ret : head;
    return true;
}

static int skip_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    const struct skip *skip = (struct skip *)iter;
    uint64_t head = skip->count < 0 ? UINT64_MAX : (uint64_t)skip->count;
    int rc = stg_iter_count(iter->input, ret, err);
    if (rc == 0)
        stg_extent_limit(ret, ret->n > head ? ret->n - head : 0);
    return rc;
}

static int skip_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct skip *skip = (struct skip *)iter;
    uint64_t first = (uint64_t)skip->count + n;
    stg_marks_stop(&skip->marks);
    skip->marks.n_in = skip->marks.n_records = first;
    return stg_iter_seek(iter->input, first, err);
}

static void skip_destroy(struct stg_iter *iter)
{
    stg_marks_finish(&((struct skip *)iter)->marks);
    free(iter);
}

static const struct stg_iter_impl skip_impl = {
    .next = skip_next,
    .rewind = skip_rewind,
    .destroy = skip_destroy,
    .skip = skip_skip,
    .left = skip_left,
    .count = skip_count,
    .seek = skip_seek,
    .allow_uneven = stg_iter_pass_uneven,
};

static int skip_create(struct stg_dataset *dataset, const struct stg_step *step,
                       const struct stg_schema *schema, struct stg_iter *input,
                       struct stg_iter **ret, struct stg_err *err)
{
    struct skip *skip =
        stg_iter_create(sizeof(*skip), &skip_impl, dataset, step, schema, input, err);
    if (skip == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    skip->count = stg_step_int(step, "count", -1);
    *ret = &skip->iter;
    return 0;
}

const struct stg_transformation stg_skip = {.name = "skip",
                                            .infer = stg_step_infer_count,
                                            .create = skip_create,
                                            .passes_codes = true,
                                            .is_indexable = true};
