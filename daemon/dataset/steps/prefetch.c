/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"
#include "daemon/dataset/tuning.h"
#include "daemon/host/fair.h"

#define PULL_RECORDS 1024 /* asked of the input at once, at most */
/* buffer_size: auto. As tf.data's: from one element on, twice as many each time, later so
 * many more. */
#define AUTO_LINEAR 2048
#define AUTO_MOST INT32_MAX

/* A block that waits. */
struct waiting {
    struct waiting *next;
    struct stg_block *block;
};

enum wish { PULL, REST, QUIT };

/* The thread alone touches the input, but while it rests. */
struct prefetch {
    struct stg_iter iter;
    bool is_auto;
    pthread_t thread;
    bool has_thread; /* this and what follows up to lock: the caller's */
    struct stg_block *block;
    int64_t at;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int64_t buffer_size, max_want;
    enum wish wish;
    bool rests;
    bool was_full; /* since it was found empty last */
    struct waiting *first, **last;
    int64_t n;        /* elements and errors that wait */
    int64_t want;     /* asked of the input next */
    int64_t got;      /* of it last; batches come one by one */
    uint64_t largest; /* block so far, bytes */
    uint64_t each;    /* bytes of an element in a block, at most so far */
    int ended;        /* 1: the input has no more; negative: it failed */
    struct stg_err failure;
};

static int prefetch_infer(const struct stg_step *step, const struct stg_schema *in,
                          struct stg_bump *bump, struct stg_schema *ret,
                          struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    int64_t size = stg_step_int(step, "buffer_size", -1);
    if (size < 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "buffer_size is %lld; it must be 1 or more, or auto",
                            (long long)size);
    *ret = *in;
    return 0;
}

/* ---- the thread ---- */

/* What works ahead must not take the memory that the steps need to go on: a quarter of it
 * stays free. When nothing waits, a step that needs memory reports the lack. */
static bool has_memory(const struct prefetch *prefetch)
{
    const struct stg_quota *quota = prefetch->iter.dataset->quota;
    uint64_t limit = stg_quota_limit(quota), used = stg_quota_used(quota);
    uint64_t most = limit - limit / 4;
    return used < most && 2 * prefetch->largest <= most - used;
}

static bool may_pull(struct prefetch *prefetch)
{
    if (prefetch->wish != PULL || prefetch->ended != 0)
        return false;
    int64_t more = prefetch->got < prefetch->want ? prefetch->got : prefetch->want;
    bool full = prefetch->n > 0 && prefetch->n + more > prefetch->buffer_size;
    prefetch->was_full = prefetch->was_full || full;
    return prefetch->n == 0 || (!full && has_memory(prefetch));
}

/* More at once while it is little memory: what one element takes is not known before. */
static void learn(struct prefetch *prefetch, const struct stg_block *block)
{
    uint64_t limit = stg_quota_limit(prefetch->iter.dataset->quota);
    uint64_t each = block->bytes / (uint64_t)prefetch->got;
    if (block->bytes > prefetch->largest)
        prefetch->largest = block->bytes;
    if (each > prefetch->each)
        prefetch->each = each;
    uint64_t most = limit / 16 / prefetch->each;
    prefetch->want *= 2;
    if ((uint64_t)prefetch->want > most)
        prefetch->want = most > 0 ? (int64_t)most : 1;
    if (prefetch->want > prefetch->max_want)
        prefetch->want = prefetch->max_want;
}

/* The lock is held, and given back meanwhile. */
static void pull(struct prefetch *prefetch)
{
    struct stg_iter *input = prefetch->iter.input;
    struct stg_block *block = NULL;
    struct stg_err err = {0};
    int64_t want = prefetch->want;
    pthread_mutex_unlock(&prefetch->lock);
    struct waiting *entry = malloc(sizeof(*entry));
    int rc = entry != NULL ? stg_iter_next(input, want, &block, &err)
                           : stg_step_err(prefetch->iter.step, -STAGER_RESOURCE_EXHAUSTED,
                                          &err, "out of memory");
    pthread_mutex_lock(&prefetch->lock);
    if (rc != 0) {
        free(entry);
        prefetch->ended = rc;
        prefetch->failure = err;
        return;
    }
    *entry = (struct waiting){.block = block};
    *prefetch->last = entry;
    prefetch->last = &entry->next;
    prefetch->got = block->n_records > 0 ? block->n_records : 1;
    prefetch->n += prefetch->got;
    learn(prefetch, block);
}

static void *thread_main(void *owner)
{
    struct prefetch *prefetch = owner;
    pthread_mutex_lock(&prefetch->lock);
    while (prefetch->wish != QUIT) {
        if (may_pull(prefetch)) {
            pull(prefetch);
        } else {
            prefetch->rests = true;
            pthread_cond_broadcast(&prefetch->changed);
            pthread_cond_wait(&prefetch->changed, &prefetch->lock);
            prefetch->rests = false;
        }
        pthread_cond_broadcast(&prefetch->changed);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return NULL;
}

static int start_thread(struct prefetch *prefetch, struct stg_err *err)
{
    int error = stg_fair_start(&prefetch->thread, NULL, thread_main, prefetch);
    if (error != 0)
        return stg_step_err(prefetch->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "cannot start a thread: %s", strerror(error));
    prefetch->has_thread = true;
    return 0;
}

/* ---- buffer_size ---- */

/* Half of it at once: the other half is handed out meanwhile. */
static void set_size(struct prefetch *prefetch, int64_t size)
{
    int64_t half = (size + 1) / 2;
    prefetch->buffer_size = size;
    prefetch->max_want = half < PULL_RECORDS ? half : PULL_RECORDS;
}

/* Empty now, and full before: more would have bridged what made it so. As long as memory
 * allows that many. */
static void grow(struct prefetch *prefetch)
{
    const struct stg_iter *iter = &prefetch->iter;
    int64_t size = prefetch->buffer_size;
    int64_t larger = size < AUTO_LINEAR ? 2 * size : size + AUTO_LINEAR;
    uint64_t limit = stg_quota_limit(iter->dataset->quota);
    prefetch->was_full = false;
    if (larger > AUTO_MOST || (uint64_t)larger > (limit - limit / 4) / prefetch->each)
        return;
    set_size(prefetch, larger);
    struct stg_tuner_change change = {(uint32_t)size, (uint32_t)larger,
                                      "it was empty when the next one was wanted, and "
                                      "had been full before"};
    stg_tuning_note_step(iter->dataset->env.tuning, iter->step, "buffer_size", &change);
}

/* ---- the caller ---- */

/* The next block that waits, waiting for it. 1 at the end, or what the input said. */
static int take_first(struct prefetch *prefetch, struct stg_err *err)
{
    pthread_mutex_lock(&prefetch->lock);
    if (prefetch->is_auto && prefetch->was_full && prefetch->first == NULL &&
        prefetch->ended == 0)
        grow(prefetch);
    while (prefetch->first == NULL && prefetch->ended == 0)
        pthread_cond_wait(&prefetch->changed, &prefetch->lock);
    struct waiting *entry = prefetch->first;
    int rc = entry != NULL ? 0 : prefetch->ended;
    if (entry != NULL) {
        prefetch->block = entry->block;
        prefetch->n -= entry->block->n_records > 0 ? entry->block->n_records : 1;
        prefetch->first = entry->next;
        if (entry->next == NULL)
            prefetch->last = &prefetch->first;
        pthread_cond_broadcast(&prefetch->changed);
    } else if (rc < 0 && err != NULL) {
        *err = prefetch->failure;
    }
    pthread_mutex_unlock(&prefetch->lock);
    free(entry);
    return rc;
}

static int prefetch_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                         struct stg_err *err)
{
    struct prefetch *prefetch = (struct prefetch *)iter;
    int rc = prefetch->has_thread ? 0 : start_thread(prefetch, err);
    if (rc == 0 && prefetch->block == NULL)
        rc = take_first(prefetch, err);
    if (rc != 0)
        return rc;
    rc = stg_block_divide(iter->dataset->quota, &prefetch->block, &prefetch->at, want,
                          ret, err);
    return rc < 0 ? stg_step_prefix(iter->step, rc, err) : 0;
}

/* Nothing waits any more. The thread rests, or there is none. */
static void forget(struct prefetch *prefetch)
{
    while (prefetch->first != NULL) {
        struct waiting *entry = prefetch->first;
        prefetch->first = entry->next;
        stg_block_unref(entry->block);
        free(entry);
    }
    prefetch->last = &prefetch->first;
    prefetch->n = 0;
    prefetch->want = prefetch->got = 1;
    prefetch->ended = 0;
    prefetch->was_full = false;
    stg_block_unref(prefetch->block);
    prefetch->block = NULL;
    prefetch->at = 0;
}

static int prefetch_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct prefetch *prefetch = (struct prefetch *)iter;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->wish = REST;
    while (prefetch->has_thread && !prefetch->rests)
        pthread_cond_wait(&prefetch->changed, &prefetch->lock);
    forget(prefetch);
    int rc = iter->input->impl->rewind(iter->input, afresh, err);
    if (rc == 0)
        prefetch->wish = PULL;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
    return rc;
}

static void prefetch_destroy(struct stg_iter *iter)
{
    struct prefetch *prefetch = (struct prefetch *)iter;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->wish = QUIT;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
    if (prefetch->has_thread)
        pthread_join(prefetch->thread, NULL);
    forget(prefetch);
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->lock);
    free(prefetch);
}

/* ---- moving forward ---- */

/* While nothing was pulled: with its thread, the input belongs to that. */
static int prefetch_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                         struct stg_err *err)
{
    return ((struct prefetch *)iter)->has_thread
               ? stg_iter_replay(iter, n, ret, err)
               : stg_iter_skip(iter->input, n, ret, err);
}

static bool prefetch_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    return !((struct prefetch *)iter)->has_thread &&
           stg_iter_left(iter->input, most, ret);
}

static const struct stg_iter_impl prefetch_impl = {
    .next = prefetch_next,
    .rewind = prefetch_rewind,
    .destroy = prefetch_destroy,
    .skip = prefetch_skip,
    .left = prefetch_left,
    .left_has_errors = true,
    .is_one_to_one = true,
    .allow_uneven = stg_iter_pass_uneven,
};

static int prefetch_create(struct stg_dataset *dataset, const struct stg_step *step,
                           const struct stg_schema *schema, struct stg_iter *input,
                           struct stg_iter **ret, struct stg_err *err)
{
    struct prefetch *prefetch = stg_iter_create(sizeof(*prefetch), &prefetch_impl,
                                                dataset, step, schema, input, err);
    if (prefetch == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    prefetch->iter.depth = input->depth; /* a state may be of a pipeline without it */
    int64_t size = stg_step_int(step, "buffer_size", 0);
    uint32_t found = size == 0 ? stg_tuning_recall(dataset->env.tuning, step) : 0;
    prefetch->is_auto = size == 0;
    set_size(prefetch, size > 0 ? size : found > 0 ? found : 1);
    prefetch->want = prefetch->got = 1;
    prefetch->last = &prefetch->first;
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->changed, NULL);
    *ret = &prefetch->iter;
    return 0;
}

const struct stg_transformation stg_prefetch = {.name = "prefetch",
                                                .infer = prefetch_infer,
                                                .create = prefetch_create,
                                                .passes_codes = true};
