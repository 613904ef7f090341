/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a mirror: mirror.c (its life, copies), process.c (a stager-gpu).
 */
#ifndef STG_DAEMON_GPU_PRIV_H
#define STG_DAEMON_GPU_PRIV_H

#include <pthread.h>
#include <sys/types.h>

#include "daemon/gpu/frame.h"
#include "daemon/gpu/mirror.h"

/* One life of stager-gpu. */
struct stg_mirror_process {
    pid_t pid;
    int pidfd, control;
    uint32_t refs; /* guarded by the mirror's lock */
    struct stg_mirror_channel {
        pthread_mutex_t lock; /* guards the rest: one copy at a time */
        int fd;
        uint64_t job;
    } channels[STG_GPU_CHANNELS];
};

/* What it is started with, and what it said. */
struct stg_mirror_start {
    const struct stg_mirror_config *config;
    int stop;                        /* readable: no more of that */
    struct stg_mirror_memory memory; /* fd -1: make one. Else, or then, what there is */
    char name[64];                   /* of the device */
};

/* Starts one, waits until it is ready. If it cannot use the device, returns its
 * error. If it breaks the rules or takes too long, ends it. CANCELLED: stop. */
int stg_mirror_process_start(struct stg_mirror_start *start,
                             struct stg_mirror_process **ret, struct stg_err *err);

/* One copy; negative: it can not be relied on any more. */
int stg_mirror_process_copy(struct stg_mirror_process *process, uint32_t runner,
                            uint64_t offset, uint64_t bytes, struct stg_err *err);

/* Ends it, at once. */
void stg_mirror_process_kill(const struct stg_mirror_process *process);

/* Ended: waits for that (2 s), and says how it was; err may be NULL. */
void stg_mirror_process_reap(const struct stg_mirror_process *process,
                             struct stg_err *err);

/* Closes what it has. NULL is allowed. */
void stg_mirror_process_free(struct stg_mirror_process *process);

#endif
