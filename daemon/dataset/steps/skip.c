/* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/dataset/step.h"

struct skip {
    struct stg_iter iter;
    int64_t count; /* -1: all */
    int64_t skipped;
};

/* Never asks for more than is to be skipped, so that no block has to be cut. Errors on
 * the way are emitted, and do not count. */
static int skip_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                     struct stg_err *err)
{
    struct skip *skip = (struct skip *)iter;
    while (skip->skipped < skip->count) {
        int64_t left = skip->count - skip->skipped;
        if (left > STG_BLOCK_MAX_RECORDS)
            left = STG_BLOCK_MAX_RECORDS;
        struct stg_block *block;
        int rc = stg_iter_next(iter->input, left, &block, err);
        if (rc != 0)
            return rc;
        if (block->error.code != 0) {
            *ret = block;
            return 0;
        }
        skip->skipped += block->n_records;
        stg_block_unref(block);
    }
    if (skip->count < 0)
        return 1;
    return stg_iter_next(iter->input, want, ret, err);
}

static int skip_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    ((struct skip *)iter)->skipped = 0;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

/* Past those that are skipped in any case, or as far as *n elements go, where each error
 * is emitted. */
static int skip_head(struct skip *skip, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    uint64_t got;
    int rc = 0;
    *ret = 0;
    while (rc == 0 && !stg_iter_is_clean(&skip->iter) && *ret < n &&
           skip->skipped < skip->count) {
        rc = stg_iter_replay(&skip->iter, 1, &got, err);
        *ret += got;
        if (rc == 0 && got == 0)
            return 1;
    }
    if (rc < 0 || *ret == n || skip->skipped >= skip->count)
        return rc;
    uint64_t left = (uint64_t)(skip->count - skip->skipped);
    rc = stg_iter_skip(skip->iter.input, left, &got, err);
    skip->skipped += (int64_t)got;
    return rc < 0 ? rc : got < left;
}

static int skip_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                     struct stg_err *err)
{
    struct skip *skip = (struct skip *)iter;
    uint64_t rest;
    *ret = 0;
    if (skip->count < 0 || n == 0)
        return 0;
    int rc = skip_head(skip, n, ret, err);
    if (rc != 0 || *ret == n)
        return rc < 0 ? rc : 0;
    rc = stg_iter_skip(iter->input, n - *ret, &rest, err);
    *ret += rest;
    return rc;
}

static bool skip_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct skip *skip = (struct skip *)iter;
    uint64_t head = (uint64_t)(skip->count - skip->skipped);
    *ret = 0;
    if (skip->count < 0)
        return true;
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
    skip->skipped = skip->count;
    return stg_iter_seek(iter->input, (uint64_t)skip->count + n, err);
}

static const struct stg_iter_impl skip_impl = {
    .next = skip_next,
    .rewind = skip_rewind,
    .destroy = stg_iter_free,
    .skip = skip_skip,
    .left = skip_left,
    .count = skip_count,
    .seek = skip_seek,
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
                                            .is_indexable = true};
