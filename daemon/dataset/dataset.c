/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/dataset.h"

#include <stdlib.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/build.h"

/* ---- life ---- */

int stg_dataset_create(const struct stg_pipeline_spec *spec,
                       const struct stg_dataset_env *env, struct stg_dataset **ret,
                       struct stg_err *err)
{
    struct stg_dataset *dataset = calloc(1, sizeof(*dataset));
    if (dataset == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "dataset: out of memory");
    dataset->env = *env;
    dataset->identity = (struct stg_file_user){.uid = env->uid,
                                               .gid = env->gid,
                                               .groups = env->groups,
                                               .n_groups = env->n_groups,
                                               .stopped = env->stopped};
    dataset->n_sharing = 1;
    stg_bump_init(&dataset->bump, 0);
    dataset->fingerprint = spec->fingerprint;
    int rc = stg_quota_create(env->buffer_bytes, &dataset->quota);
    if (rc < 0) {
        stg_err(err, rc, "dataset: out of memory");
        goto fail;
    }
    if (env->fund != NULL)
        stg_quota_set_fund(dataset->quota, env->fund);
    if (env->adviser != NULL)
        stg_quota_set_adviser(dataset->quota, env->adviser);
    rc = stg_build_iter(spec, dataset, &dataset->last, err);
    if (rc < 0)
        goto fail;
    *ret = dataset;
    return 0;

fail:
    stg_dataset_destroy(dataset);
    return rc;
}

void stg_dataset_destroy(struct stg_dataset *dataset)
{
    if (dataset == NULL)
        return;
    stg_iter_destroy(dataset->last);
    stg_ahead_unref(dataset->ahead);
    if (dataset->quota != NULL)
        stg_quota_give(dataset->quota, dataset->held_bytes);
    free(dataset->files);
    stg_bump_finish(&dataset->bump);
    stg_quota_unref(dataset->quota);
    free(dataset);
}

/* ---- next ---- */

int stg_dataset_next(struct stg_dataset *dataset, struct stg_block **ret,
                     struct stg_err *err)
{
    struct stg_block *block;
    int rc = dataset->failed;
    if (rc == 0) {
        rc = stg_iter_next(dataset->last, 1, &block, &dataset->failure);
        if (rc < 0)
            dataset->failed = rc;
    }
    if (rc < 0 && err != NULL)
        *err = dataset->failure;
    if (rc != 0)
        return rc;
    if (block->error.code == 0)
        stg_block_unpack(block);
    if (dataset->ahead != NULL && block->ahead == NULL) {
        block->ahead = stg_ahead_ref(dataset->ahead);
        block->n_reads = stg_ahead_turn(dataset->ahead);
    }
    *ret = block;
    return 0;
}

/* Also for a block that took none. */
#define MIN_AT_ONCE 4

/* More reads than the block took, so that a thread that lags behind catches up: else each
 * thread would do the reads that the next one waits for. */
void stg_block_read_ahead(const struct stg_block *block)
{
    unsigned n = block->ahead != NULL ? MIN_AT_ONCE + 2 * block->n_reads : 0;
    while (n > 0 && stg_ahead_work(block->ahead))
        n--;
}

uint64_t stg_dataset_n_ignored(const struct stg_dataset *dataset)
{
    return atomic_load_explicit(&dataset->n_ignored, memory_order_relaxed);
}
