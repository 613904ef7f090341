/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"

struct shard {
    struct stg_iter iter;
    int64_t num_shards, index;
    int64_t at;     /* position of the next record, modulo num_shards */
    int64_t *picks; /* room for STG_BLOCK_MAX_RECORDS */
    bool is_sought; /* an error has the number of a record, and a shard */
};

static int shard_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    int64_t n = stg_step_int(step, "num_shards", 0);
    int64_t index = stg_step_int(step, "index", -1);
    if (n < 1 || n > INT32_MAX)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "num_shards is %lld; it must be from 1 to %d", (long long)n,
                            INT32_MAX);
    if (index < 0 || index >= n)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "index is %lld; with num_shards %lld it must be from 0 to "
                            "%lld",
                            (long long)index, (long long)n, (long long)n - 1);
    *ret = *in;
    return 0;
}

/* Fills picks with the records of this shard among the next n. Returns their number. */
static int64_t find_picks(struct shard *shard, int64_t n)
{
    int64_t n_picks = 0;
    int64_t first = shard->index - shard->at;
    for (int64_t i = first < 0 ? first + shard->num_shards : first; i < n;
         i += shard->num_shards)
        shard->picks[n_picks++] = i;
    shard->at = (shard->at + n) % shard->num_shards;
    return n_picks;
}

/* Returns how many records to request so that at most `want` belong to this shard. */
static int64_t ask_for(const struct shard *shard, int64_t want)
{
    int64_t n;
    if (__builtin_mul_overflow(want, shard->num_shards, &n) || n > STG_BLOCK_MAX_RECORDS)
        return STG_BLOCK_MAX_RECORDS;
    return n;
}

/* Returns whether the error that comes next is of another shard, and counts it. */
static bool is_of_another(struct shard *shard)
{
    if (!shard->is_sought)
        return false;
    bool ret = shard->at != shard->index;
    shard->at = (shard->at + 1) % shard->num_shards;
    return ret;
}

static int shard_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct shard *shard = (struct shard *)iter;
    for (;;) {
        struct stg_block *block;
        int rc = stg_iter_next(iter->input, ask_for(shard, want), &block, err);
        if (rc != 0)
            return rc;
        if (block->error.code != 0 && is_of_another(shard)) {
            stg_block_unref(block);
            continue;
        }
        int64_t n = find_picks(shard, block->n_records);
        if (block->error.code != 0 || (n > 0 && n == block->n_records)) {
            *ret = block;
            return 0;
        }
        if (n > 0)
            rc = stg_block_pick(iter->dataset->quota, block, shard->picks, n, ret, err);
        stg_block_unref(block);
        if (rc < 0)
            return stg_step_prefix(iter->step, rc, err);
        if (n > 0)
            return 0;
    }
}

static int shard_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    ((struct shard *)iter)->at = 0;
    ((struct shard *)iter)->is_sought = false;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void shard_destroy(struct stg_iter *iter)
{
    free(((struct shard *)iter)->picks);
    free(iter);
}

/* Returns how many records lie before the next one of this shard. */
static uint64_t count_others(const struct shard *shard)
{
    int64_t n = shard->index - shard->at;
    return (uint64_t)(n < 0 ? n + shard->num_shards : n);
}

/* Returns how many of the next n records are of this shard. */
static uint64_t count_own(const struct shard *shard, uint64_t n)
{
    uint64_t others = count_others(shard);
    return n > others ? (n - others - 1) / (uint64_t)shard->num_shards + 1 : 0;
}

static int shard_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct shard *shard = (struct shard *)iter;
    *ret = 0;
    if (n == 0)
        return 0;
    if (!stg_iter_is_clean(iter))
        return stg_iter_replay(iter, n, ret, err);
    uint64_t num_shards = (uint64_t)shard->num_shards, got;
    uint64_t want = stg_count_add(stg_count_mul(n - 1, num_shards), count_others(shard));
    int rc = stg_iter_skip(iter->input, stg_count_add(want, 1), &got, err);
    if (rc < 0)
        return rc;
    *ret = count_own(shard, got);
    shard->at = (int64_t)(((uint64_t)shard->at + got % num_shards) % num_shards);
    return 0;
}

static bool shard_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct shard *shard = (struct shard *)iter;
    uint64_t all = stg_count_add(stg_count_mul(most, (uint64_t)shard->num_shards),
                                 count_others(shard));
    if (!stg_iter_left(iter->input, all, ret))
        return false;
    *ret = *ret < all ? count_own(shard, *ret) : most;
    return true;
}

/* All records are read for those of one shard. */
static int shard_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    const struct shard *shard = (struct shard *)iter;
    uint64_t index = (uint64_t)shard->index;
    int rc = stg_iter_count(iter->input, ret, err);
    if (rc == 0)
        ret->n =
            ret->n > index ? (ret->n - index - 1) / (uint64_t)shard->num_shards + 1 : 0;
    return rc;
}

static int shard_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct shard *shard = (struct shard *)iter;
    shard->at = shard->index;
    shard->is_sought = true;
    return stg_iter_seek(iter->input,
                         (uint64_t)shard->index + n * (uint64_t)shard->num_shards, err);
}

static const struct stg_iter_impl shard_impl = {
    .next = shard_next,
    .rewind = shard_rewind,
    .destroy = shard_destroy,
    .skip = shard_skip,
    .left = shard_left,
    .count = shard_count,
    .seek = shard_seek,
};

static int shard_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct shard *shard =
        stg_iter_create(sizeof(*shard), &shard_impl, dataset, step, schema, input, err);
    if (shard == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    shard->num_shards = stg_step_int(step, "num_shards", 1);
    shard->index = stg_step_int(step, "index", 0);
    shard->picks = malloc(STG_BLOCK_MAX_RECORDS * sizeof(int64_t));
    if (shard->picks == NULL) {
        free(shard);
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    }
    *ret = &shard->iter;
    return 0;
}

const struct stg_transformation stg_shard = {
    .name = "shard", .infer = shard_infer, .create = shard_create, .is_indexable = true};
