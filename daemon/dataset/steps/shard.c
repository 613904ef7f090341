/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/step.h"
#include "daemon/dataset/steps/shard_auto.h"

struct shard {
    struct stg_iter iter;
    int64_t num_shards, index;
    int64_t *picks; /* room for STG_BLOCK_MAX_RECORDS */
    struct stg_marks marks;
    bool is_sought; /* an error has the number of a record, and a shard */
};

/* Returns the number of the next record, modulo num_shards. */
static int64_t number_of(const struct shard *shard)
{
    uint64_t n = shard->is_sought ? shard->marks.n_in : shard->marks.n_records;
    return (int64_t)(n % (uint64_t)shard->num_shards);
}

static int shard_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    int64_t n = stg_step_int(step, "num_shards", 0);
    if (n == 0) {
        rc = stg_shard_auto_infer(step, err);
        if (rc == 0)
            *ret = *in;
        return rc;
    }
    if (stg_attr_find(step->attrs, step->n_attrs, "weights") != NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "weights are those of hosts: write num_shards: auto, or "
                            "remove weights");
    int64_t index = stg_step_int(step, "index", -1);
    if (stg_attr_find(step->attrs, step->n_attrs, "index") == NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "index is missing: add it, or num_shards: auto");
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

/* Returns how many records lie before the next one of this shard. */
static uint64_t count_others(const struct shard *shard)
{
    int64_t n = shard->index - number_of(shard);
    return (uint64_t)(n < 0 ? n + shard->num_shards : n);
}

/* Fills picks with the records of this shard among n, from number `first` on. Returns
 * their number. */
static int64_t find_picks(struct shard *shard, int64_t first, int64_t n)
{
    int64_t n_picks = 0;
    for (int64_t i = first; i < n; i += shard->num_shards)
        shard->picks[n_picks++] = i;
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

static int shard_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct shard *shard = (struct shard *)iter;
    for (;;) {
        struct stg_block *block;
        uint64_t others = count_others(shard);
        int rc = stg_marks_pass(iter, &shard->marks, ask_for(shard, want), &block, err);
        if (rc != 0)
            return rc;
        bool is_error = block->error.code != 0;
        int64_t n = is_error ? !shard->is_sought || others == 0
                             : find_picks(shard, (int64_t)others, block->n_records);
        if (n == 0) {
            stg_block_unref(block);
            continue;
        }
        struct stg_block *own = block;
        if (!is_error && n < block->n_records) {
            rc = stg_block_pick(iter->dataset->quota, block, shard->picks, n, &own, err);
            stg_block_unref(block);
        }
        if (rc < 0)
            return stg_step_prefix(iter->step, rc, err);
        *ret = own;
        stg_marks_yield(&shard->marks, *ret);
        return 0;
    }
}

static int shard_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    stg_marks_rewind(&((struct shard *)iter)->marks, afresh);
    ((struct shard *)iter)->is_sought = false;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void shard_destroy(struct stg_iter *iter)
{
    struct shard *shard = (struct shard *)iter;
    stg_marks_finish(&shard->marks);
    free(shard->picks);
    free(shard);
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
        return stg_marks_skip_passed(iter, &shard->marks, n, NULL, ret, err);
    uint64_t num_shards = (uint64_t)shard->num_shards, got;
    uint64_t want = stg_count_add(stg_count_mul(n - 1, num_shards), count_others(shard));
    int rc = stg_iter_skip(iter->input, stg_count_add(want, 1), &got, err);
    if (rc < 0)
        return rc;
    *ret = count_own(shard, got);
    stg_marks_count(&shard->marks, got, *ret);
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
    if (rc == 0) {
        ret->n =
            ret->n > index ? (ret->n - index - 1) / (uint64_t)shard->num_shards + 1 : 0;
        ret->ends = NULL;
    }
    return rc;
}

static int shard_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct shard *shard = (struct shard *)iter;
    uint64_t number = (uint64_t)shard->index + n * (uint64_t)shard->num_shards;
    stg_marks_stop(&shard->marks);
    shard->marks.n_in = number;
    shard->is_sought = true;
    return stg_iter_seek(iter->input, number, err);
}

static const struct stg_iter_impl shard_impl = {
    .next = shard_next,
    .rewind = shard_rewind,
    .destroy = shard_destroy,
    .skip = shard_skip,
    .left = shard_left,
    .count = shard_count,
    .seek = shard_seek,
    .allow_uneven = stg_iter_pass_uneven,
};

static int shard_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    if (stg_step_int(step, "num_shards", 1) == 0)
        return stg_shard_auto_create(dataset, step, schema, input, ret, err);
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

/* The records of a round have one number for all hosts. */
static bool shard_is_unindexed(const struct stg_step *step)
{
    return stg_step_int(step, "num_shards", 1) == 0;
}

const struct stg_transformation stg_shard = {.name = "shard",
                                             .infer = shard_infer,
                                             .create = shard_create,
                                             .passes_codes = true,
                                             .is_indexable = true,
                                             .is_unindexed = shard_is_unindexed};
