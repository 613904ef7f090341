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

static int skip_rewind(struct stg_iter *iter, struct stg_err *err)
{
    ((struct skip *)iter)->skipped = 0;
    return iter->input->impl->rewind(iter->input, err);
}

static const struct stg_iter_impl skip_impl = {skip_next, skip_rewind, stg_iter_free};

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

const struct stg_transformation stg_skip = {"skip", stg_step_infer_count, skip_create};
