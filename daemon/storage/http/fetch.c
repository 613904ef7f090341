/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/fetch_priv.h"

#include <assert.h>
#include <stdlib.h>

/* A waiter checks `stopped` this often. */
#define LOOK_NS 20000000

int stg_fetch_create(const struct stg_fetch_plan *plan, struct stg_fetch **ret,
                     struct stg_err *err)
{
    struct stg_fetch *fetch = calloc(1, sizeof(*fetch));
    if (fetch == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory",
                       plan->object->shown);
    assert(plan->end - plan->begin <= plan->chunk->capacity);
    atomic_store_explicit(&fetch->refs, 1, memory_order_relaxed);
    fetch->plan = *plan;
    fetch->version = plan->version;
    stg_progress_init(&fetch->progress, plan->kind, plan->object->range_in_query,
                      plan->cached.known, plan->begin, plan->end, &plan->version);
    stg_object_ref(plan->object);
    stg_chunk_ref(plan->chunk);
    pthread_mutex_init(&fetch->lock, NULL);
    stg_clock_cond_init(&fetch->moved);
    *ret = fetch;
    return 0;
}

struct stg_fetch *stg_fetch_ref(struct stg_fetch *fetch)
{
    atomic_fetch_add_explicit(&fetch->refs, 1, memory_order_relaxed);
    return fetch;
}

void stg_fetch_unref(struct stg_fetch *fetch)
{
    if (fetch == NULL ||
        atomic_fetch_sub_explicit(&fetch->refs, 1, memory_order_acq_rel) != 1)
        return;
    stg_object_unref(fetch->plan.object);
    stg_chunk_unref(fetch->plan.chunk);
    pthread_cond_destroy(&fetch->moved);
    pthread_mutex_destroy(&fetch->lock);
    free(fetch);
}

/* ---- waiters ---- */

static bool is_stopped(const _Atomic int *stopped)
{
    return stopped != NULL && atomic_load_explicit(stopped, memory_order_relaxed) != 0;
}

/* The lock is held. */
static bool has(const struct stg_fetch *fetch, uint64_t bytes)
{
    return fetch->done || (bytes == 0 ? fetch->answered : fetch->n >= bytes);
}

static void wait_a_while(struct stg_fetch *fetch)
{
    stg_clock_cond_wait(&fetch->moved, &fetch->lock, stg_now_ns() + LOOK_NS);
}

int64_t stg_fetch_wait(struct stg_fetch *fetch, uint64_t bytes,
                       const _Atomic int *stopped, struct stg_err *err)
{
    int64_t rc;
    pthread_mutex_lock(&fetch->lock);
    while (!has(fetch, bytes) && !is_stopped(stopped))
        wait_a_while(fetch);
    if (!has(fetch, bytes))
        rc = stg_err(err, -STAGER_CANCELLED, "the pipeline was stopped");
    else if (fetch->code < 0 && (bytes == 0 || fetch->n < bytes))
        rc = fetch->code;
    else
        rc = (int64_t)fetch->n;
    if (rc < 0 && rc == fetch->code && err != NULL)
        *err = fetch->err;
    pthread_mutex_unlock(&fetch->lock);
    return rc;
}

const struct stg_version *stg_fetch_version(const struct stg_fetch *fetch)
{
    return &fetch->version;
}

bool stg_fetch_is_cached(struct stg_fetch *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    bool is_cached = fetch->is_cached;
    pthread_mutex_unlock(&fetch->lock);
    return is_cached;
}

uint64_t stg_fetch_there(struct stg_fetch *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    uint64_t n = fetch->n;
    pthread_mutex_unlock(&fetch->lock);
    return n;
}

uint64_t stg_fetch_elapsed_ns(struct stg_fetch *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    uint64_t elapsed = fetch->done && fetch->code == 0 ? fetch->elapsed_ns : 0;
    pthread_mutex_unlock(&fetch->lock);
    return elapsed;
}

struct stg_chunk *stg_fetch_chunk(struct stg_fetch *fetch)
{
    return fetch->plan.chunk;
}

/* ---- for the fetcher ---- */

void stg_fetch_came(struct stg_fetch *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    fetch->n = stg_progress_sure(&fetch->progress);
    pthread_cond_broadcast(&fetch->moved);
    pthread_mutex_unlock(&fetch->lock);
}

void stg_fetch_answered(struct stg_fetch *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    fetch->is_cached = fetch->progress.is_cached;
    if (!fetch->answered)
        fetch->version = fetch->is_cached ? fetch->plan.cached : fetch->progress.version;
    fetch->answered = true;
    pthread_cond_broadcast(&fetch->moved);
    pthread_mutex_unlock(&fetch->lock);
}

void stg_fetch_done(struct stg_fetch *fetch, int code, const struct stg_err *err)
{
    pthread_mutex_lock(&fetch->lock);
    fetch->done = true;
    fetch->code = code;
    if (code < 0)
        fetch->err = *err;
    fetch->elapsed_ns = stg_now_ns() - fetch->began_ns;
    pthread_cond_broadcast(&fetch->moved);
    pthread_mutex_unlock(&fetch->lock);
}
