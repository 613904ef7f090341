/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/bounded.h"

#include "core/clock.h"

#define LOOK_NS 50000000u /* between two looks at the caller's `stopped` */

void stg_bounded_init(struct stg_bounded *bounded, const struct stg_bounded_kind *kind)
{
    bounded->kind = kind;
    bounded->refs = 1;
    bounded->stopped = 0;
    bounded->is_done = false;
    pthread_mutex_init(&bounded->lock, NULL);
    stg_clock_cond_init(&bounded->done);
}

void stg_bounded_unref(struct stg_bounded *bounded)
{
    if (bounded == NULL || atomic_fetch_sub(&bounded->refs, 1) > 1)
        return;
    pthread_cond_destroy(&bounded->done);
    pthread_mutex_destroy(&bounded->lock);
    bounded->kind->destroy(bounded);
}

static void *bounded_main(void *arg)
{
    struct stg_bounded *bounded = arg;
    atomic_int *n_threads = bounded->kind->n_threads;
    bounded->kind->run(bounded);
    pthread_mutex_lock(&bounded->lock);
    bounded->is_done = true;
    pthread_cond_signal(&bounded->done);
    pthread_mutex_unlock(&bounded->lock);
    stg_bounded_unref(bounded);
    atomic_fetch_sub(n_threads, 1);
    return NULL;
}

bool stg_bounded_start(struct stg_bounded *bounded)
{
    const struct stg_bounded_kind *kind = bounded->kind;
    pthread_t thread;
    pthread_attr_t attr;
    if (atomic_fetch_add(kind->n_threads, 1) >= kind->max_threads ||
        pthread_attr_init(&attr) != 0) {
        atomic_fetch_sub(kind->n_threads, 1);
        return false;
    }
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    atomic_fetch_add(&bounded->refs, 1);
    bool started = pthread_create(&thread, &attr, bounded_main, bounded) == 0;
    pthread_attr_destroy(&attr);
    if (!started) {
        atomic_fetch_sub(&bounded->refs, 1);
        atomic_fetch_sub(kind->n_threads, 1);
    }
    return started;
}

bool stg_bounded_wait(struct stg_bounded *bounded, uint64_t wait_ns,
                      const _Atomic int *stopped)
{
    uint64_t until = stg_now_ns() + wait_ns, now;
    pthread_mutex_lock(&bounded->lock);
    while (!bounded->is_done && (now = stg_now_ns()) < until &&
           (stopped == NULL || atomic_load(stopped) == 0)) {
        uint64_t look = stopped != NULL && until - now > LOOK_NS ? now + LOOK_NS : until;
        stg_clock_cond_wait(&bounded->done, &bounded->lock, look);
    }
    atomic_store(&bounded->stopped, 1);
    bool is_done = bounded->is_done;
    pthread_mutex_unlock(&bounded->lock);
    return is_done;
}
