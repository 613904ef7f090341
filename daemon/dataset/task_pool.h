/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of one dataset step, which do what the step hands them while it pulls more.
 * Tasks begin in the order in which they were given. All calls but the tasks themselves
 * come from one thread at a time. The threads run where, and as urgently as, the one that
 * made them.
 */
#ifndef STG_DAEMON_TASK_POOL_H
#define STG_DAEMON_TASK_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct stg_task_pool;

/* Belongs to the caller until it is done or the pool was cleared. */
struct stg_task {
    void (*run)(struct stg_task *task, unsigned worker); /* worker: 0 to n - 1 */
    struct stg_task *next;
    atomic_bool is_done; /* a thread that reads true sees what it has written */
};

/* n threads called NAME/i. RESOURCE_EXHAUSTED. */
int stg_task_pool_create(unsigned n, const char *name, struct stg_task_pool **ret,
                         struct stg_err *err);

/* Only the first n of its threads begin tasks from now on; at least 1. All do at first.
 */
void stg_task_pool_set_active(struct stg_task_pool *pool, unsigned n);

void stg_task_pool_submit(struct stg_task_pool *pool, struct stg_task *task);

/* Tasks done so far. */
uint64_t stg_task_pool_n_done(struct stg_task_pool *pool);

/* Returns when more are done than `seen`. One must have been given that is not. */
void stg_task_pool_wait(struct stg_task_pool *pool, uint64_t seen);

/* Drops what has not begun, and waits for what has. */
void stg_task_pool_clear(struct stg_task_pool *pool);

/* Clears, and ends the threads. NULL is allowed. */
void stg_task_pool_destroy(struct stg_task_pool *pool);

#endif
