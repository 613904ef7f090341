/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/task_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/host/fair.h"

struct worker {
    struct stg_task_pool *pool;
    pthread_t thread;
    unsigned index;
};

struct stg_task_pool {
    pthread_mutex_t lock; /* guards all below but the workers */
    pthread_cond_t given, done;
    pthread_cond_t more; /* n_active has grown, or stopping */
    unsigned n_active;
    struct stg_task *first, **last;
    uint64_t n_done;
    unsigned n_running;
    bool stopping;
    unsigned n_workers; /* those that were started */
    struct worker workers[];
};

/* One that is inactive passes its wake-up on. The lock is held. */
static bool wait_for_task(struct stg_task_pool *pool, unsigned index)
{
    while (!pool->stopping && (pool->first == NULL || index >= pool->n_active)) {
        bool rests = index >= pool->n_active;
        if (rests && pool->first != NULL)
            pthread_cond_signal(&pool->given);
        pthread_cond_wait(rests ? &pool->more : &pool->given, &pool->lock);
    }
    return pool->first != NULL;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct stg_task_pool *pool = worker->pool;
    pthread_mutex_lock(&pool->lock);
    while (wait_for_task(pool, worker->index)) {
        struct stg_task *task = pool->first;
        pool->first = task->next;
        if (pool->first == NULL)
            pool->last = &pool->first;
        pool->n_running++;
        pthread_mutex_unlock(&pool->lock);

        task->run(task, worker->index);

        pthread_mutex_lock(&pool->lock);
        atomic_store_explicit(&task->is_done, true, memory_order_release);
        pool->n_running--;
        pool->n_done++;
        pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static int start(struct stg_task_pool *pool, const char *name, struct stg_err *err)
{
    struct worker *worker = &pool->workers[pool->n_workers];
    worker->pool = pool;
    worker->index = pool->n_workers;
    int rc = stg_fair_start(&worker->thread, NULL, worker_main, worker);
    if (rc != 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot start thread %u: %s",
                       worker->index + 1, strerror(rc));
    pool->n_workers++;
    char text[16];
    snprintf(text, sizeof(text), "%.10s/%u", name, worker->index % 10000);
    pthread_setname_np(worker->thread, text);
    return 0;
}

int stg_task_pool_create(unsigned n, const char *name, struct stg_task_pool **ret,
                         struct stg_err *err)
{
    struct stg_task_pool *pool = calloc(1, sizeof(*pool) + n * sizeof(pool->workers[0]));
    if (pool == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->given, NULL);
    pthread_cond_init(&pool->done, NULL);
    pthread_cond_init(&pool->more, NULL);
    pool->n_active = n;
    pool->last = &pool->first;
    int rc = 0;
    while (rc == 0 && pool->n_workers < n)
        rc = start(pool, name, err);
    if (rc < 0) {
        stg_task_pool_destroy(pool);
        return rc;
    }
    *ret = pool;
    return 0;
}

void stg_task_pool_set_active(struct stg_task_pool *pool, unsigned n)
{
    pthread_mutex_lock(&pool->lock);
    pool->n_active = n;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
}

void stg_task_pool_submit(struct stg_task_pool *pool, struct stg_task *task)
{
    task->next = NULL;
    atomic_store_explicit(&task->is_done, false, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    *pool->last = task;
    pool->last = &task->next;
    pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->lock);
}

uint64_t stg_task_pool_n_done(struct stg_task_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    uint64_t ret = pool->n_done;
    pthread_mutex_unlock(&pool->lock);
    return ret;
}

void stg_task_pool_wait(struct stg_task_pool *pool, uint64_t seen)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->n_done == seen)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void stg_task_pool_clear(struct stg_task_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->first = NULL;
    pool->last = &pool->first;
    while (pool->n_running > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void stg_task_pool_destroy(struct stg_task_pool *pool)
{
    if (pool == NULL)
        return;
    stg_task_pool_clear(pool);
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->given);
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->n_workers; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->given);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
