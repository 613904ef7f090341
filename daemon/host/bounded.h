/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that may hang, such as a first look at files: a thread of its own does it, and the
 * caller waits for a limited time. Work that is not done by then goes on, asked to stop,
 * and its memory is freed when it has. Any thread.
 */
#ifndef STG_DAEMON_HOST_BOUNDED_H
#define STG_DAEMON_HOST_BOUNDED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct stg_bounded;

struct stg_bounded_kind {
    void (*run)(struct stg_bounded *bounded); /* in the thread */
    /* Frees the struct and all that it has, without the last reference. */
    void (*destroy)(struct stg_bounded *bounded);
    atomic_int *n_threads; /* of this kind, which run */
    int max_threads;
};

/* The struct of a kind begins with it. The caller and the thread have one reference each.
 */
struct stg_bounded {
    const struct stg_bounded_kind *kind;
    atomic_int refs;
    _Atomic int stopped; /* not 0: the caller has stopped waiting */
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done; /* guarded by lock */
};

/* The caller has the one reference. */
void stg_bounded_init(struct stg_bounded *bounded, const struct stg_bounded_kind *kind);
void stg_bounded_unref(struct stg_bounded *bounded); /* NULL is allowed */

/* Starts the thread. Returns false if as many run as may, or there is no memory. */
bool stg_bounded_start(struct stg_bounded *bounded);

/* Waits for the thread until it is done, for wait_ns at most, or until *stopped is not 0
 * (NULL: never). Stops it. Returns whether it was done; then its results are the
 * caller's, with all that the thread wrote. */
bool stg_bounded_wait(struct stg_bounded *bounded, uint64_t wait_ns,
                      const _Atomic int *stopped);

#endif
