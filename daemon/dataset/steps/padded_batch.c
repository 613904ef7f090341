/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/collect.h"
#include "daemon/dataset/steps/padding.h"

struct padded_batch {
    struct stg_collector collector;
    const struct stg_padding *padding;
};

static int padded_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    const struct stg_padding *padding;
    int rc = stg_collector_infer(step, in, err);
    if (rc == 0)
        rc = stg_padding_create(step, in, bump, &padding, err);
    if (rc == 0)
        rc = stg_padding_schema(padding, stg_collector_dimension(step), bump, ret, err);
    return rc;
}

static int padded_make(struct stg_collector *collector, struct stg_block **ret,
                       struct stg_err *err)
{
    const struct padded_batch *padded = (struct padded_batch *)collector;
    struct stg_pieces *pieces = &collector->pieces;
    struct stg_quota *quota = collector->iter.dataset->quota;
    uint64_t n_refused = stg_quota_n_refused(quota);
    int rc = stg_padding_batch(padded->padding, quota, pieces->blocks, pieces->n, -1, ret,
                               err);
    if (rc < 0)
        return stg_collector_too_large(&collector->iter, pieces, n_refused, rc, ret, err);
    stg_pieces_clear(pieces);
    return 0;
}

static int padded_check(const struct stg_collector *collector,
                        const struct stg_block *block, struct stg_err *err)
{
    const struct padded_batch *padded = (const struct padded_batch *)collector;
    return stg_padding_check(padded->padding, block, -1, err);
}

static const struct stg_collector_impl padded_collector = {padded_make, padded_check};

static int padded_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    const struct stg_padding *padding;
    int rc = stg_padding_create(step, input->schema, &dataset->bump, &padding, err);
    if (rc < 0)
        return rc;
    struct padded_batch *padded = stg_iter_create(sizeof(*padded), &stg_collector_iter,
                                                  dataset, step, schema, input, err);
    if (padded == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    padded->padding = padding;
    stg_collector_init(&padded->collector, &padded_collector);
    if (stg_padding_takes_uneven(padding))
        stg_iter_allow_uneven(input);
    *ret = &padded->collector.iter;
    return 0;
}

const struct stg_transformation stg_padded_batch = {.name = "padded_batch",
                                                    .infer = padded_infer,
                                                    .create = padded_create,
                                                    .is_indexable = true};
