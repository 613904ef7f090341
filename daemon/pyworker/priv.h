/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of workers: work.c (the workers of a pipeline), call.c (one call), answer.c (its
 * result).
 */
#ifndef STG_DAEMON_PYWORKER_PRIV_H
#define STG_DAEMON_PYWORKER_PRIV_H

#include <pthread.h>

#include "core/clock.h"
#include "daemon/pyworker/work.h"

enum stg_worker_state {
    STG_WORKER_STARTING, /* it is not ready yet */
    STG_WORKER_FREE,
    STG_WORKER_BUSY,
    STG_WORKER_DISCONNECTED, /* its connection is to be closed */
    STG_WORKER_GONE,         /* it is; its runner, if it has one, has not noticed yet */
};

/* Fields are guarded by the workers' lock, but for those of the runner that has it BUSY.
 */
struct stg_worker {
    struct stg_worker *next;
    struct stg_workers *workers;
    unsigned refs; /* its connection, its runner */
    enum stg_worker_state state;
    pid_t pid;
    uint64_t busy_ns; /* since when it has been BUSY */

    /* While it is BUSY its runner's alone; else unused. */
    int channel;
    struct stg_segment input, scratch;
    struct stg_segment copy; /* private memory: no descriptor. What came back */
    uint32_t
        unsent; /* memory that it has not heard of: STG_WORK_INPUT, STG_WORK_SCRATCH */
    uint64_t job;
    uint64_t budget_bytes;
};

struct stg_workers {
    struct stg_workers_config config;
    char name[65];
    unsigned refs; /* the loop's */
    struct stg_bump bump;
    const struct stg_step *step;
    const char *function;
    struct stg_schema input, output;
    uint64_t timeout_ns;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a worker is FREE, or all are stopped */
    struct stg_worker *all;
    bool is_stopped;
    char why_stopped[128];
    char last_loss[160]; /* "" or "; the last one, pid 17, …" */
    struct stg_workers_counts counts;
};

/* A worker that is free is BUSY, and the caller's. Errors as stg_work_call. */
int stg_work_take(struct stg_workers *workers, const struct stg_work_call *call,
                  struct stg_worker **ret, struct stg_err *err);

/* A BUSY one is to go, or is gone: ABORTED, with its pid and `why`. */
int stg_work_disconnect(struct stg_worker *worker, struct stg_err *err, const char *fmt,
                        ...) __attribute__((format(printf, 3, 4)));

/* Is it not BUSY any more, though its runner has not released it? */
bool stg_work_is_lost(struct stg_worker *worker);

/* answer.c: checks the answer of `bytes` in worker->scratch. ABORTED: it is invalid, and
 * the worker is to be disconnected. Other errors as stg_work_call. */
int stg_work_answer(struct stg_worker *worker, uint64_t bytes, bool is_computed,
                    struct stg_tensor *tensors, struct stg_err *err);

/* How much of worker->copy an answer may need. */
uint64_t stg_work_copy_bytes(const struct stg_schema *output, uint64_t scratch_bytes,
                             bool is_computed);

#endif
