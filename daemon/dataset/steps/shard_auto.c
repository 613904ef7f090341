/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/shard_auto.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"

struct shard_auto {
    struct stg_iter iter;
    struct stg_deal deal;
    bool pads;
    struct stg_block *block; /* of the input; NULL: none */
    int64_t at;              /* its first record that is in no round yet */
    /* Of a round that is not complete: how many of its records are there, and of these
     * the first one (with pads) and the host's own. */
    uint32_t n_there;
    struct stg_block *first, *own;
    int64_t *picks; /* room for STG_BLOCK_MAX_RECORDS */
};

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
    return 0;
}

/* ---- rounds ---- */

static void drop_round(struct shard_auto *shard)
{
    stg_block_unref(shard->first);
    stg_block_unref(shard->own);
    shard->first = shard->own = NULL;
    shard->n_there = 0;
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

/* Whole rounds that begin and end in the block, up to `want` of them. */
static int take_rounds(struct shard_auto *shard, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    int64_t n_hosts = shard->deal.n_hosts, n = n_rest(shard) / n_hosts;
    n = n < want ? n : want;
    for (int64_t i = 0; i < n; i++)
        shard->picks[i] =
            shard->at + (int64_t)stg_deal_record(&shard->deal, 0, (uint64_t)i);
    int rc = pick(shard, n, ret, err);
    if (rc == 0)
        advance(shard, n * n_hosts);
    return rc;
}

static int keep(struct shard_auto *shard, int64_t record, struct stg_block **ret,
                struct stg_err *err)
{
    shard->picks[0] = record;
    return pick(shard, 1, ret, err);
}

/* Adds what the block has of a round that is not complete. Returns 0 and the host's own
 * record if the round is complete then, else 1. */
static int add_to_round(struct shard_auto *shard, struct stg_block **ret,
                        struct stg_err *err)
{
    int64_t n = shard->deal.n_hosts - shard->n_there;
    int64_t own = (int64_t)shard->deal.host - shard->n_there;
    int rc = 0;
    n = n < n_rest(shard) ? n : n_rest(shard);
    if (shard->pads && shard->n_there == 0 && own != 0)
        rc = keep(shard, shard->at, &shard->first, err);
    if (rc == 0 && own >= 0 && own < n)
        rc = keep(shard, shard->at + own, &shard->own, err);
    if (rc < 0)
        return rc;
    shard->n_there += (uint32_t)n;
    advance(shard, n);
    if (shard->n_there < shard->deal.n_hosts)
        return 1;
    *ret = shard->own;
    shard->own = NULL;
    drop_round(shard);
    return 0;
}

static void count_remainder(struct shard_auto *shard, uint64_t n)
{
    if (!shard->pads)
        atomic_fetch_add_explicit(&shard->iter.dataset->n_remainder, n,
                                  memory_order_relaxed);
}

/* The input is over. Returns 0 and a record of the last round, or 1. */
static int end_rounds(struct shard_auto *shard, struct stg_block **ret)
{
    uint32_t n = shard->n_there;
    if (n == 0)
        return 1;
    count_remainder(shard, n);
    struct stg_block **from =
        stg_deal_pad(&shard->deal, n) == shard->deal.host ? &shard->own : &shard->first;
    *ret = shard->pads ? *from : NULL;
    if (shard->pads)
        *from = NULL;
    drop_round(shard);
    return shard->pads ? 0 : 1;
}

/* ---- the iterator ---- */

/* Returns how many records to request for `want` rounds. */
static int64_t ask_for(const struct shard_auto *shard, int64_t want)
{
    int64_t n;
    if (__builtin_mul_overflow(want, (int64_t)shard->deal.n_hosts, &n) ||
        n - shard->n_there > STG_BLOCK_MAX_RECORDS)
        return STG_BLOCK_MAX_RECORDS;
    return n - shard->n_there;
}

static int shard_auto_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                           struct stg_err *err)
{
    struct shard_auto *shard = (struct shard_auto *)iter;
    for (;;) {
        int rc = 0;
        if (shard->block == NULL)
            rc = stg_iter_next(iter->input, ask_for(shard, want), &shard->block, err);
        if (rc == 1)
            return end_rounds(shard, ret);
        if (rc < 0)
            return rc;
        if (shard->block->error.code != 0) {
            *ret = shard->block;
            shard->block = NULL;
            return 0;
        }
        bool has_rounds =
            shard->n_there == 0 && n_rest(shard) >= (int64_t)shard->deal.n_hosts;
        rc = has_rounds ? take_rounds(shard, want, ret, err)
                        : add_to_round(shard, ret, err);
        if (shard->block == NULL)
            shard->at = 0;
        if (rc <= 0)
            return rc;
    }
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
    shard->deal = shard->iter.dataset->env.deal;
    if (shard->deal.n_hosts == 0) /* a run of no job: all records */
        shard->deal = (struct stg_deal){.n_hosts = 1};
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
    free(shard->picks);
    free(shard);
}

/* ---- moving forward ---- */

static bool holds_any(const struct shard_auto *shard)
{
    return shard->block != NULL || shard->n_there > 0;
}

/* Whole rounds of the input. The epoch of a round is that of the host's own record. */
static int skip_rounds(struct shard_auto *shard, uint64_t n, uint64_t *ret,
                       struct stg_err *err)
{
    struct stg_dataset *dataset = shard->iter.dataset;
    uint64_t before = 0, got = 0, n_hosts = shard->deal.n_hosts, host = shard->deal.host;
    uint64_t all = stg_count_mul(n, n_hosts), epoch = 0;
    int rc = 0;
    if (host > 0) {
        rc = stg_iter_skip(shard->iter.input, host, &before, err);
        epoch = dataset->jumped_epoch;
    }
    if (rc == 0 && before == host)
        rc = stg_iter_skip(shard->iter.input, all - host, &got, err);
    if (rc < 0)
        return rc;
    if (got == 0)
        dataset->jumped_epoch = epoch;
    got += before;
    *ret = stg_deal_rounds(&shard->deal, got, shard->pads);
    if (got < all)
        count_remainder(shard, got % n_hosts);
    return 0;
}

/* Makes and drops the rounds of which it has records. */
static int drop_held(struct shard_auto *shard, uint64_t n, uint64_t *ret,
                     struct stg_err *err)
{
    struct stg_iter *iter = &shard->iter;
    struct stg_block *block;
    int rc = 0;
    *ret = 0;
    while (*ret < n && holds_any(shard)) {
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

static int shard_auto_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                           struct stg_err *err)
{
    struct shard_auto *shard = (struct shard_auto *)iter;
    uint64_t more = 0;
    *ret = 0;
    if (n == 0)
        return 0;
    if (!stg_iter_is_clean(iter))
        return stg_iter_replay(iter, n, ret, err);
    int rc = drop_held(shard, n, ret, err);
    if (rc < 0 || *ret == n)
        return rc;
    uint64_t epoch = iter->dataset->jumped_epoch;
    rc = skip_rounds(shard, n - *ret, &more, err);
    if (*ret > 0)
        iter->dataset->jumped_epoch = epoch;
    *ret += more;
    return rc;
}

static bool shard_auto_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct shard_auto *shard = (struct shard_auto *)iter;
    uint64_t all = stg_count_mul(most, shard->deal.n_hosts);
    if (shard->block != NULL || shard->n_there > 0 ||
        !stg_iter_left(iter->input, all, ret))
        return false;
    *ret = *ret < all ? stg_deal_rounds(&shard->deal, *ret, shard->pads) : most;
    return true;
}

static const struct stg_iter_impl shard_auto_impl = {
    .next = shard_auto_next,
    .rewind = shard_auto_rewind,
    .destroy = shard_auto_destroy,
    .skip = shard_auto_skip,
    .left = shard_auto_left,
};

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
    if (shard->picks == NULL) {
        free(shard);
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    }
    dataset->divider = &shard->iter;
    *ret = &shard->iter;
    return 0;
}
