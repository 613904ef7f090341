/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/dataset.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/build.h"

/* ---- life ---- */

/* The last batching step, unless a step after it makes more or fewer items of its
 * batches. */
static bool tell_positions(struct stg_dataset *dataset)
{
    struct stg_iter *iter = dataset->last;
    while (iter->impl->is_one_to_one)
        iter = iter->input;
    return iter->impl->tell_positions != NULL && iter->impl->tell_positions(iter);
}

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
    stg_position_queue_init(&dataset->positions);
    stg_bump_init(&dataset->bump, 0);
    pthread_mutex_init(&dataset->versions.lock, NULL);
    dataset->pass = env->pass;
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
    dataset->tells = tell_positions(dataset);
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
    stg_position_queue_finish(&dataset->positions);
    pthread_mutex_destroy(&dataset->versions.lock);
    free(dataset);
}

/* ---- next ---- */

/* After the item that is handed out. */
static void set_position(struct stg_dataset *dataset, struct stg_block *block)
{
    uint64_t items = ++dataset->n_items;
    block->position = (struct stg_position){
        .items = items,
        .elements = items,
        .errors = atomic_load_explicit(&dataset->errors_from, memory_order_relaxed)};
    if (dataset->tells)
        stg_position_pop(&dataset->positions, 1, &block->position);
}

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
    set_position(dataset, block);
    if (dataset->ahead != NULL && block->ahead == NULL) {
        block->ahead = stg_ahead_ref(dataset->ahead);
        block->n_reads = stg_ahead_turn(dataset->ahead);
    }
    *ret = block;
    return 0;
}

/* ---- seek ---- */

static int too_short(const char *what, uint64_t position, uint64_t n, struct stg_err *err)
{
    return stg_err(err, -STAGER_OUT_OF_RANGE,
                   "the position is after %" PRIu64 " %s of the pass, which has %" PRIu64
                   ": the data or the steps are not those that the position was taken of",
                   position, what, n);
}

/* Goes to the record at which the hosts began to divide the pass. No error was before it.
 */
static int skip_divided(struct stg_dataset *dataset, struct stg_err *err)
{
    uint64_t n, first = dataset->env.deal_first;
    if (first == 0 || dataset->divider == NULL)
        return 0;
    int rc = stg_iter_skip(dataset->divider->input, first, &n, err);
    return rc == 0 && n < first ? too_short("records", first, n, err) : rc;
}

static int seek(struct stg_dataset *dataset, const struct stg_position *position,
                struct stg_err *err)
{
    uint64_t n_items = 0;
    dataset->clean_below = UINT32_MAX;
    int rc = skip_divided(dataset, err);
    dataset->goal = dataset->tells ? position : NULL;
    dataset->clean_below = position->errors == 0 ? UINT32_MAX : position->errors;
    if (rc == 0 && position->items > 0)
        rc = stg_iter_skip(dataset->last, position->items, &n_items, err);
    dataset->goal = NULL;
    dataset->clean_below = 0;
    if (rc < 0)
        return rc;
    if (dataset->tells && dataset->n_reached < position->elements)
        return too_short("elements", position->elements, dataset->n_reached, err);
    if (!dataset->tells && n_items < position->items)
        return too_short("items", position->items, n_items, err);
    return 0;
}

int stg_dataset_seek(struct stg_dataset *dataset, const struct stg_position *position,
                     struct stg_err *err)
{
    if (dataset->failed == 0 && dataset->n_items > 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the pass has begun: only a new one can be moved to a position");
    if (dataset->failed == 0)
        dataset->failed = seek(dataset, position, &dataset->failure);
    if (dataset->failed < 0) {
        if (err != NULL)
            *err = dataset->failure;
        return dataset->failed;
    }
    dataset->n_items = position->items;
    stg_dataset_met_error(dataset, position->errors);
    return 0;
}

static int restart(struct stg_dataset *dataset, struct stg_err *err)
{
    int rc = dataset->last->impl->rewind(dataset->last, true, err);
    if (rc < 0)
        return rc;
    atomic_store_explicit(&dataset->errors_from, 0, memory_order_relaxed);
    dataset->n_items = 0;
    dataset->clean_below = UINT32_MAX;
    rc = skip_divided(dataset, err);
    dataset->clean_below = 0;
    return rc;
}

int stg_dataset_restart(struct stg_dataset *dataset, const struct stg_deal *deal,
                        uint64_t first, struct stg_err *err)
{
    dataset->env.deal = *deal;
    dataset->env.deal_first = first;
    if (dataset->failed == 0)
        dataset->failed = restart(dataset, &dataset->failure);
    if (dataset->failed < 0 && err != NULL)
        *err = dataset->failure;
    return dataset->failed;
}

/* ---- reading ahead ---- */

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

uint64_t stg_dataset_n_remainder(const struct stg_dataset *dataset)
{
    return atomic_load_explicit(&dataset->n_remainder, memory_order_relaxed);
}
