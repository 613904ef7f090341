/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of a dataset at this moment, for the error of a client that waits for it: the
 * current step and the file opened last. It is a hint: if several threads work, it
 * describes one of them. It belongs to the stage and outlives the datasets of its passes.
 * Any thread.
 */
#ifndef STG_DAEMON_ACTIVITY_H
#define STG_DAEMON_ACTIVITY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/spec.h"

#define STG_ACTIVITY_TASKS 4

/* Work of one iterator that may take seconds. */
struct stg_activity_task {
    const void *owner; /* NULL: the entry is free */
    const struct stg_step *step;
    const char *unit;
    uint64_t began_ns, done, total; /* total 0: unknown */
};

struct stg_activity {
    _Atomic(const struct stg_step *) step; /* NULL: between steps */
    pthread_mutex_t lock;                  /* of what follows */
    char file[256];
    uint64_t opened_ns;
    struct stg_activity_task tasks[STG_ACTIVITY_TASKS];
};

void stg_activity_init(struct stg_activity *activity);
void stg_activity_finish(struct stg_activity *activity);

/* Notes that a file is opened now. activity may be NULL. */
void stg_activity_file(struct stg_activity *activity, const char *path);

/* Notes how far an owner is: so many units, a constant string, of `total`. Further owners
 * than there are entries are left out. activity may be NULL. */
void stg_activity_progress(struct stg_activity *activity, const void *owner,
                           const struct stg_step *step, const char *unit, uint64_t done,
                           uint64_t total);

/* The owner has finished, or ends. Both may be NULL. */
void stg_activity_end(struct stg_activity *activity, const void *owner);

/* Copies the entries in use to ret, and returns how many there are. */
size_t stg_activity_tasks(struct stg_activity *activity,
                          struct stg_activity_task ret[STG_ACTIVITY_TASKS]);

/* Writes "in step shuffle (line 7); the file opened last, 3.2 s ago, is /data/x", without
 * the parts that are unknown. */
void stg_activity_show(struct stg_activity *activity, char *buf, size_t bytes);

#endif
