/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/crew.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    struct stg_crew *crew;
    pthread_t thread;
    unsigned index;
};

struct stg_crew {
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

/* One that is to rest hands on what it was woken for. The lock is held. */
static bool wait_for_task(struct stg_crew *crew, unsigned index)
{
    while (!crew->stopping && (crew->first == NULL || index >= crew->n_active)) {
        bool rests = index >= crew->n_active;
        if (rests && crew->first != NULL)
            pthread_cond_signal(&crew->given);
        pthread_cond_wait(rests ? &crew->more : &crew->given, &crew->lock);
    }
    return crew->first != NULL;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct stg_crew *crew = worker->crew;
    pthread_mutex_lock(&crew->lock);
    while (wait_for_task(crew, worker->index)) {
        struct stg_task *task = crew->first;
        crew->first = task->next;
        if (crew->first == NULL)
            crew->last = &crew->first;
        crew->n_running++;
        pthread_mutex_unlock(&crew->lock);

        task->run(task, worker->index);

        pthread_mutex_lock(&crew->lock);
        atomic_store_explicit(&task->is_done, true, memory_order_release);
        crew->n_running--;
        crew->n_done++;
        pthread_cond_signal(&crew->done);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static int start(struct stg_crew *crew, const char *name, struct stg_err *err)
{
    struct worker *worker = &crew->workers[crew->n_workers];
    worker->crew = crew;
    worker->index = crew->n_workers;
    int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (rc != 0)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "cannot start thread %u: %s",
                       worker->index + 1, strerror(rc));
    crew->n_workers++;
    char text[16];
    snprintf(text, sizeof(text), "%.10s/%u", name, worker->index % 10000);
    pthread_setname_np(worker->thread, text);
    return 0;
}

int stg_crew_create(unsigned n, const char *name, struct stg_crew **ret,
                    struct stg_err *err)
{
    struct stg_crew *crew = calloc(1, sizeof(*crew) + n * sizeof(crew->workers[0]));
    if (crew == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->given, NULL);
    pthread_cond_init(&crew->done, NULL);
    pthread_cond_init(&crew->more, NULL);
    crew->n_active = n;
    crew->last = &crew->first;
    int rc = 0;
    while (rc == 0 && crew->n_workers < n)
        rc = start(crew, name, err);
    if (rc < 0) {
        stg_crew_destroy(crew);
        return rc;
    }
    *ret = crew;
    return 0;
}

void stg_crew_set_active(struct stg_crew *crew, unsigned n)
{
    pthread_mutex_lock(&crew->lock);
    crew->n_active = n;
    pthread_cond_broadcast(&crew->more);
    pthread_mutex_unlock(&crew->lock);
}

void stg_crew_give(struct stg_crew *crew, struct stg_task *task)
{
    task->next = NULL;
    atomic_store_explicit(&task->is_done, false, memory_order_relaxed);
    pthread_mutex_lock(&crew->lock);
    *crew->last = task;
    crew->last = &task->next;
    pthread_cond_signal(&crew->given);
    pthread_mutex_unlock(&crew->lock);
}

uint64_t stg_crew_n_done(struct stg_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    uint64_t ret = crew->n_done;
    pthread_mutex_unlock(&crew->lock);
    return ret;
}

void stg_crew_wait(struct stg_crew *crew, uint64_t seen)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->n_done == seen)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void stg_crew_clear(struct stg_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->first = NULL;
    crew->last = &crew->first;
    while (crew->n_running > 0)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void stg_crew_destroy(struct stg_crew *crew)
{
    if (crew == NULL)
        return;
    stg_crew_clear(crew);
    pthread_mutex_lock(&crew->lock);
    crew->stopping = true;
    pthread_cond_broadcast(&crew->given);
    pthread_cond_broadcast(&crew->more);
    pthread_mutex_unlock(&crew->lock);
    for (unsigned i = 0; i < crew->n_workers; i++)
        pthread_join(crew->workers[i].thread, NULL);
    pthread_cond_destroy(&crew->given);
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->more);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}
