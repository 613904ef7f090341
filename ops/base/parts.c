/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/parts.h"

#include <assert.h>

/* A thread that is woken comes 40 to 100 us later. Two parts of this size gain all the
 * same, for the op that does most with a byte and for the one that does least: decode_csv
 * 1.7, cast 1.2 on two threads; of half the size 1.5 and 0.8 (bench_intra, small). */
#define PART_BYTES (512u << 10)

/* On the stack of the work's owner. Guarded by the lock of the parts, the first three
 * immutable. */
struct stg_work_in_parts {
    void (*part)(void *arg, uint32_t i);
    void *arg;
    uint32_t n;
    uint32_t n_taken, n_running; /* running: by helpers */
    pthread_cond_t done;
    struct stg_work_in_parts *next;
};

static void run_works(void *owner, uint32_t n, void (*part)(void *arg, uint32_t i),
                      void *arg);

void stg_parts_init(struct stg_parts *parts, uint32_t n_threads)
{
    *parts = (struct stg_parts){.parallel = {.owner = parts,
                                             .n_threads = n_threads,
                                             .part_bytes = PART_BYTES,
                                             .run = run_works}};
    pthread_mutex_init(&parts->lock, NULL);
    pthread_cond_init(&parts->wake, NULL);
}

void stg_parts_finish(struct stg_parts *parts)
{
    assert(parts->first == NULL);
    pthread_cond_destroy(&parts->wake);
    pthread_mutex_destroy(&parts->lock);
}

static void append(struct stg_parts *parts, struct stg_work_in_parts *work)
{
    if (parts->first == NULL)
        parts->first = work;
    else
        parts->last->next = work;
    parts->last = work;
}

static void drop(struct stg_parts *parts, struct stg_work_in_parts *work)
{
    struct stg_work_in_parts *before = NULL;
    for (struct stg_work_in_parts *w = parts->first; w != work; w = w->next)
        before = w;
    if (before == NULL)
        parts->first = work->next;
    else
        before->next = work->next;
    if (parts->last == work)
        parts->last = before;
}

/* With the lock held; a work whose last part is taken is no longer looked at. */
static uint32_t take_part(struct stg_parts *parts, struct stg_work_in_parts *work)
{
    uint32_t i = work->n_taken++;
    if (work->n_taken == work->n)
        drop(parts, work);
    return i;
}

static void run_works(void *owner, uint32_t n, void (*part)(void *arg, uint32_t i),
                      void *arg)
{
    struct stg_parts *parts = owner;
    struct stg_work_in_parts work = {.part = part, .arg = arg, .n = n};
    pthread_cond_init(&work.done, NULL);
    pthread_mutex_lock(&parts->lock);
    append(parts, &work);
    for (uint32_t i = 1; i < n && i < parts->parallel.n_threads; i++)
        pthread_cond_signal(&parts->wake);
    while (work.n_taken < n) {
        uint32_t i = take_part(parts, &work);
        pthread_mutex_unlock(&parts->lock);
        part(arg, i);
        pthread_mutex_lock(&parts->lock);
    }
    while (work.n_running > 0)
        pthread_cond_wait(&work.done, &parts->lock);
    pthread_mutex_unlock(&parts->lock);
    pthread_cond_destroy(&work.done);
}

void stg_parts_help(struct stg_parts *parts)
{
    pthread_mutex_lock(&parts->lock);
    for (;;) {
        while (parts->first == NULL && !parts->stopping)
            pthread_cond_wait(&parts->wake, &parts->lock);
        struct stg_work_in_parts *work = parts->first;
        if (work == NULL)
            break;
        uint32_t i = take_part(parts, work);
        work->n_running++;
        pthread_mutex_unlock(&parts->lock);
        work->part(work->arg, i);
        pthread_mutex_lock(&parts->lock);
        if (--work->n_running == 0)
            pthread_cond_signal(&work->done);
    }
    pthread_mutex_unlock(&parts->lock);
}

void stg_parts_stop(struct stg_parts *parts)
{
    pthread_mutex_lock(&parts->lock);
    parts->stopping = true;
    pthread_cond_broadcast(&parts->wake);
    pthread_mutex_unlock(&parts->lock);
}
