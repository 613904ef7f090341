/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/shard_auto.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/steps/division.h"

struct shard_auto {
    struct stg_iter iter;
    struct stg_deal_share share;
    bool pads;
    struct stg_block *block; /* of the input; NULL: none */
    int64_t at;              /* its first record that is in no round yet */
    /* Of a round that does not lie in one block, or is yielded in parts: how many of its
     * records are there, and of these the first one (with pads) and the host's own. */
    uint32_t n_there;
    struct stg_block *first;
    struct stg_block **own; /* room for the largest weight */
    size_t n_own;
    /* The round is complete: where its own records that were not yielded begin, and how
     * often the first one of the round follows them. */
    bool is_complete;
    size_t own_from;
    int64_t own_at;
    uint32_t n_copies;
    int64_t *picks; /* room for STG_BLOCK_MAX_RECORDS */
};

static int check_weights(const struct stg_step *step, struct stg_err *err)
{
    const struct stg_attr *weights = stg_division_weights(step);
    if (weights == NULL)
        return 0;
    if (weights->n_values == 0 || weights->n_values > STG_DEAL_MAX_WEIGHTED)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "weights has %zu values; it must have one for each of 1 to "
                            "%u hosts",
                            weights->n_values, STG_DEAL_MAX_WEIGHTED);
    for (size_t i = 0; i < weights->n_values; i++) {
        int64_t weight = weights->values[i].i;
        if (weight < 1 || weight > STG_DEAL_MAX_WEIGHT)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "weights[%zu] is %lld; it must be from 1 to %u", i,
                                (long long)weight, STG_DEAL_MAX_WEIGHT);
    }
    return 0;
}

int stg_shard_auto_infer(const struct stg_step *step, struct stg_err *err)
{
    const char *remainder =
        stg_attr_string(step->attrs, step->n_attrs, "remainder", "drop");
    if (stg_attr_find(step->attrs, step->n_attrs, "index") != NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "index cannot be combined with num_shards: auto, where the "
                            "clients name it: remove index");
    if (strcmp(remainder, "drop") != 0 && strcmp(remainder, "pad") != 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "remainder is \"%s\"; the values are drop and pad",
                            remainder);
    return check_weights(step, err);
}

/* ---- rounds ---- */

static void drop_round(struct shard_auto *shard)
{
    stg_block_unref(shard->first);
    shard->first = NULL;
    for (size_t i = shard->own_from; i < shard->n_own; i++)
        stg_block_unref(shard->own[i]);
    shard->n_own = shard->own_from = 0;
    shard->own_at = 0;
    shard->n_there = shard->n_copies = 0;
    shard->is_complete = false;
}

static int64_t n_rest(const struct shard_auto *shard)
{
    return shard->block->n_records - shard->at;
}

static void advance(struct shard_auto *shard, int64_t n)
{
    shard->at += n;
    if (shard->at < shard->block->n_records)
        return;
    stg_block_unref(shard->block);
    shard->block = NULL;
}

/* A block of n of the records of the current one: picks are their numbers there. */
static int pick(struct shard_auto *shard, int64_t n, struct stg_block **ret,
                struct stg_err *err)
{
    if (n == shard->block->n_records) {
        *ret = stg_block_ref(shard->block);
        return 0;
    }
    int rc = stg_block_pick(shard->iter.dataset->quota, shard->block, shard->picks, n,
                            ret, err);
    return rc < 0 ? stg_step_prefix(shard->iter.step, rc, err) : 0;
}

/* Whole rounds that begin and end in the block, up to n of them. */
static int take_rounds(struct shard_auto *shard, int64_t n, struct stg_block **ret,
                       struct stg_err *err)
{
    int64_t n_slots = shard->share.n_slots, n_there = n_rest(shard) / n_slots;
    n = n < n_there ? n : n_there;
    int64_t n_picks = n * shard->share.n_own;
    for (int64_t i = 0; i < n_picks; i++)
        shard->picks[i] =
            shard->at + (int64_t)stg_deal_record(&shard->share, 0, (uint64_t)i);
    int rc = pick(shard, n_picks, ret, err);
    if (rc == 0)
        advance(shard, n * n_slots);
    return rc;
}

/* Keeps the first record of a round. The host's own may be the same one, in another
 * block. */
static int keep_first(struct shard_auto *shard, struct stg_err *err)
{
    int rc = stg_block_slice(shard->iter.dataset->quota, shard->block, shard->at, 1,
                             &shard->first, err);
    return rc < 0 ? stg_step_prefix(shard->iter.step, rc, err) : 0;
}

/* Keeps the host's own among the next n records, which are of one round. */
static int keep_own(struct shard_auto *shard, int64_t n, struct stg_err *err)
{
    int64_t first = (int64_t)shard->share.first - shard->n_there;
    int64_t end = first + shard->share.n_own, n_picks = 0;
    for (int64_t i = first > 0 ? first : 0; i < end && i < n; i++)
        shard->picks[n_picks++] = shard->at + i;
    if (n_picks == 0)
        return 0;
    int rc = pick(shard, n_picks, &shard->own[shard->n_own], err);
    shard->n_own += rc == 0;
    return rc;
}

/* Adds what the block has of a round. */
static int add_to_round(struct shard_auto *shard, struct stg_err *err)
{
    const struct stg_deal_share *share = &shard->share;
    int64_t n = share->n_slots - shard->n_there;
    int rc = 0;
    n = n < n_rest(shard) ? n : n_rest(shard);
    if (shard->pads && shard->n_there == 0 && share->first + share->n_own > 1)
        rc = keep_first(shard, err);
    if (rc == 0)
        rc = keep_own(shard, n, err);
    if (rc < 0)
        return rc;
    shard->n_there += (uint32_t)n;
    shard->is_complete = shard->n_there == share->n_slots;
    advance(shard, n);
    return 0;
}

/* Yields up to `want` records of a complete round. */
static int yield_round(struct shard_auto *shard, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct stg_quota *quota = shard->iter.dataset->quota;
    int rc;
    if (shard->own_from < shard->n_own) {
        struct stg_block **own = &shard->own[shard->own_from];
        rc = stg_block_divide(quota, own, &shard->own_at, want, ret, err);
        shard->own_from += rc == 0 && *own == NULL;
    } else {
        rc = stg_block_slice(quota, shard->first, 0, 1, ret, err);
        shard->n_copies -= rc == 0;
    }
    if (rc < 0)
        return stg_step_prefix(shard->iter.step, rc, err);
    if (shard->own_from == shard->n_own && shard->n_copies == 0)
        drop_round(shard);
    return 0;
}

static void count_remainder(struct shard_auto *shard, uint64_t n)
{
    if (!shard->pads)
        atomic_fetch_add_explicit(&shard->iter.dataset->n_remainder, n,
                                  memory_order_relaxed);
}

/* The input is over. Completes the last round, or leaves it out. */
static void end_rounds(struct shard_auto *shard)
{
    uint32_t n = shard->n_there;
    count_remainder(shard, n);
    if (n == 0 || !shard->pads) {
        drop_round(shard);
        return;
    }
    shard->n_copies = stg_deal_missing(&shard->share, n);
    shard->is_complete = true;
}

/* ---- the iterator ---- */

/* Returns how many records to request for the rounds of `want` of the host's. */
static int64_t ask_for(const struct shard_auto *shard, int64_t want)
{
    int64_t n, rounds = (want - 1) / shard->share.n_own + 1;
    if (__builtin_mul_overflow(rounds, (int64_t)shard->share.n_slots, &n) ||
        n - shard->n_there > STG_BLOCK_MAX_RECORDS)
        return STG_BLOCK_MAX_RECORDS;
    return n - shard->n_there;
}

/* Pulls a block if there is none. Returns 1 at the end. */
static int pull(struct shard_auto *shard, int64_t want, struct stg_err *err)
{
    if (shard->block != NULL)
        return 0;
    shard->at = 0;
    return stg_iter_next(shard->iter.input, ask_for(shard, want), &shard->block, err);
}

static int shard_auto_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                           struct stg_err *err)
{
    struct shard_auto *shard = (struct shard_auto *)iter;
    while (!shard->is_complete) {
        int rc = pull(shard, want, err);
        if (rc < 0)
            return rc;
        if (rc == 1) {
            end_rounds(shard);
            if (!shard->is_complete)
                return 1;
            break;
        }
        if (shard->block->error.code != 0) {
            *ret = shard->block;
            shard->block = NULL;
            return 0;
        }
        int64_t n_rounds = want / shard->share.n_own;
        if (shard->n_there == 0 && n_rounds > 0 && n_rest(shard) >= shard->share.n_slots)
            return take_rounds(shard, n_rounds, ret, err);
        rc = add_to_round(shard, err);
        if (rc < 0)
            return rc;
    }
    return yield_round(shard, want, ret, err);
}

static void start_over(struct shard_auto *shard)
{
    drop_round(shard);
    stg_block_unref(shard->block);
    shard->block = NULL;
    shard->at = 0;
}

/* A rewound dataset may be that of another host. */
static void take_deal(struct shard_auto *shard)
{
    struct stg_deal deal = shard->iter.dataset->env.deal;
    if (deal.n_hosts == 0) /* a run of no job: all records */
        deal = (struct stg_deal){.n_hosts = 1};
    shard->share = stg_division_share(shard->iter.step, &deal);
}

static int shard_auto_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    start_over((struct shard_auto *)iter);
    take_deal((struct shard_auto *)iter);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void shard_auto_destroy(struct stg_iter *iter)
{
    struct shard_auto *shard = (struct shard_auto *)iter;
    start_over(shard);
    free(shard->own);
    free(shard->picks);
    free(shard);
}

/* ---- moving forward ---- */

static bool holds_any(const struct shard_auto *shard)
{
    return shard->block != NULL || shard->n_there > 0 || shard->is_complete;
}

/* Whole rounds of the input; n: of the host's records. The epoch of a round is that of
 * the host's first record. */
static int skip_rounds(struct shard_auto *shard, uint64_t n, uint64_t *ret,
                       struct stg_err *err)
{
    struct stg_dataset *dataset = shard->iter.dataset;
    uint64_t n_slots = shard->share.n_slots, first = shard->share.first;
    uint64_t before = 0, got = 0, epoch = 0;
    uint64_t all = stg_count_mul(n / shard->share.n_own, n_slots);
    int rc = 0;
    *ret = 0;
    if (all == 0)
        return 0;
    if (first > 0) {
        rc = stg_iter_skip(shard->iter.input, first, &before, err);
        epoch = dataset->jumped_epoch;
    }
    if (rc == 0 && before == first)
        rc = stg_iter_skip(shard->iter.input, all - first, &got, err);
    if (rc < 0)
        return rc;
    if (got == 0)
        dataset->jumped_epoch = epoch;
    got += before;
    *ret = stg_deal_count(&shard->share, got, shard->pads);
    if (got < all)
        count_remainder(shard, got % n_slots);
    return 0;
}

/* Makes and drops n records; held_alone: those of rounds of which it has records. */
static int drop(struct shard_auto *shard, uint64_t n, bool held_alone, uint64_t *ret,
                struct stg_err *err)
{
    struct stg_iter *iter = &shard->iter;
    struct stg_block *block;
    int rc = 0;
    *ret = 0;
    while (*ret < n && (!held_alone || holds_any(shard))) {
        uint64_t left = n - *ret;
        rc = shard_auto_next(iter, left < STG_BLOCK_MAX_RECORDS ? (int64_t)left : 1,
                             &block, err);
        if (rc != 0)
            break;
        if (block->error.code != 0)
            rc = stg_iter_unexpected(block, err);
        if (*ret == 0)
            iter->dataset->jumped_epoch = block->epoch;
        *ret += (uint64_t)block->n_records;
        stg_block_unref(block);
        if (rc < 0)
            break;
    }
    return rc < 0 ? rc : 0;
}

/* What it holds, whole rounds of the input, and the first records of the round behind
 * them. */
static int shard_auto_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                           struct stg_err *err)
{
    struct shard_auto *shard = (struct shard_auto *)iter;
    uint64_t epoch = 0;
    *ret = 0;
    if (!stg_iter_is_clean(iter))
        return stg_iter_replay(iter, n, ret, err);
    for (int part = 0; part < 3 && *ret < n; part++) {
        uint64_t more = 0;
        int rc = part == 1 ? skip_rounds(shard, n - *ret, &more, err)
                           : drop(shard, n - *ret, part == 0, &more, err);
        if (rc < 0)
            return rc;
        if (*ret == 0)
            epoch = iter->dataset->jumped_epoch;
        *ret += more;
    }
    if (n > 0)
        iter->dataset->jumped_epoch = epoch;
    return 0;
}

static bool shard_auto_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct shard_auto *shard = (struct shard_auto *)iter;
    uint64_t rounds = most / shard->share.n_own + (most % shard->share.n_own != 0);
    uint64_t all = stg_count_mul(rounds, shard->share.n_slots);
    if (holds_any(shard) || !stg_iter_left(iter->input, all, ret))
        return false;
    *ret = *ret < all ? stg_deal_count(&shard->share, *ret, shard->pads) : most;
    return true;
}

static const struct stg_iter_impl shard_auto_impl = {
    .next = shard_auto_next,
    .rewind = shard_auto_rewind,
    .destroy = shard_auto_destroy,
    .skip = shard_auto_skip,
    .left = shard_auto_left,
};

static size_t largest_weight(const struct stg_step *step)
{
    const struct stg_attr *weights = stg_division_weights(step);
    int64_t ret = 1;
    for (size_t i = 0; weights != NULL && i < weights->n_values; i++)
        ret = weights->values[i].i > ret ? weights->values[i].i : ret;
    return (size_t)ret;
}

int stg_shard_auto_create(struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          struct stg_iter **ret, struct stg_err *err)
{
    struct shard_auto *shard = stg_iter_create(sizeof(*shard), &shard_auto_impl, dataset,
                                               step, schema, input, err);
    if (shard == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    take_deal(shard);
    shard->pads = strcmp(stg_attr_string(step->attrs, step->n_attrs, "remainder", "drop"),
                         "pad") == 0;
    shard->picks = malloc(STG_BLOCK_MAX_RECORDS * sizeof(int64_t));
    shard->own = malloc(largest_weight(step) * sizeof(struct stg_block *));
    if (shard->picks == NULL || shard->own == NULL) {
        free(shard->picks);
        free(shard->own);
        free(shard);
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    }
    dataset->divider = &shard->iter;
    *ret = &shard->iter;
    return 0;
}
