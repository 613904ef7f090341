/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers of one generation of a pipeline with a step py_function: processes of the
 * user that run a function on whole batches. The daemon starts none of them and imports
 * nothing; it hands a batch to one that is free, waits with a clock, and checks what
 * comes back. A worker that dies, is too slow or breaks the rules costs its batch (an
 * error item) and is disconnected; its starter starts another one.
 *
 *   loop:    admit, ready, leave, stop
 *   runner:  call (take a free one -> write its input -> wait -> check its answer),
 *            release
 *
 * One lock guards the list of free workers; a worker that is at work belongs to its
 * runner, which waits on the worker's channel without any lock. When a worker leaves
 * meanwhile, the runner waits a little longer for its starter to report there how it
 * ended.
 */
#ifndef STG_DAEMON_PYWORKER_WORK_H
#define STG_DAEMON_PYWORKER_WORK_H

#include <stdatomic.h>
#include <sys/types.h>

#include "core/batch.h"
#include "daemon/dataset/dataset.h"
#include "daemon/host/memory.h"

struct stg_workers;
struct stg_worker;

struct stg_workers_config {
    const struct stg_pipeline_spec *spec; /* lives until release(keeper) */
    void *keeper;
    void (*release)(void *keeper); /* NULL: spec outlives the workers. Not called when
                                      stg_workers_create fails */
    const char *name;              /* of the pipeline, for messages; copied */
    struct stg_budget *budget;
    void (*wake)(void *owner); /* any thread: look for workers that are to go */
    void *owner;
};

/* ---- the loop's side ---- */

/* The caller owns one reference. */
int stg_workers_create(const struct stg_workers_config *config, struct stg_workers **ret,
                       struct stg_err *err);
struct stg_workers *stg_workers_ref(struct stg_workers *workers); /* NULL is allowed */
/* The last one goes after all workers and calls are. NULL is allowed. */
void stg_workers_unref(struct stg_workers *workers);

/* Registers a worker unless there are `most` already (0: no limit), those that are not
 * ready yet included: *ret_channel is its end of the channel, for the caller to send and
 * close. It gets work once it is ready. ALREADY_EXISTS: there are so many; RESOURCE_
 * EXHAUSTED; ABORTED (stopped). */
int stg_workers_admit(struct stg_workers *workers, pid_t pid, uint32_t most,
                      struct stg_worker **ret, int *ret_channel, struct stg_err *err);
void stg_worker_ready(struct stg_worker *worker);

/* Removes a worker whose connection is gone, or which is to end. */
void stg_worker_leave(struct stg_worker *worker);

/* Is its connection to be closed? */
bool stg_worker_is_disconnected(struct stg_worker *worker);

/* Disconnects all of them, ends calls with ABORTED and text, and admits none any more. */
void stg_workers_stop(struct stg_workers *workers, const char *text);

/* "module:name", and what it has to give. */
const char *stg_workers_function(const struct stg_workers *workers);
uint64_t stg_workers_seed(const struct stg_workers *workers);
bool stg_workers_is_pure(const struct stg_workers *workers);
const struct stg_schema *stg_workers_output(const struct stg_workers *workers);

struct stg_workers_counts {
    uint32_t n_ready; /* free or at work */
    uint64_t n_calls, n_lost;
};
void stg_workers_count(struct stg_workers *workers, struct stg_workers_counts *ret);

struct stg_workers_busy {
    pid_t pid; /* of the worker that has been at work longest; 0: none is */
    uint64_t since_ns;
    uint32_t n_busy, n_ready;
};
void stg_workers_look(struct stg_workers *workers, struct stg_workers_busy *ret);

/* ---- a runner's side ---- */

struct stg_work_call {
    const struct stg_block *block; /* the item */
    uint64_t pass, epoch, index;   /* of it */
    uint64_t max_output_bytes;     /* unless the step says another number */
    bool is_computed; /* ops will read what comes back: it is copied out of the worker's
                         reach. Else it is to be copied once, and lies where the worker
                         may still write: only lengths and offsets can be believed. */
    uint64_t start_timeout_millis; /* how long to wait for a first worker */
    const _Atomic int *stopped;    /* not 0: CANCELLED soon */
};

/* Runs the function. tensors: as many as the step gives; they hold until the release of
 * *ret, which is the caller's even on failure (NULL: there is none). Errors: the
 * function's own; ABORTED: the worker died, was too slow, or broke the rules; FAILED_
 * PRECONDITION: there is no worker; INVALID_ARGUMENT, RESOURCE_EXHAUSTED: of the result
 * or its memory; CANCELLED. */
int stg_work_call(struct stg_workers *workers, const struct stg_work_call *call,
                  struct stg_tensor *tensors, struct stg_worker **ret,
                  struct stg_err *err);           /* err may not be NULL */
void stg_work_release(struct stg_worker *worker); /* NULL is allowed */

#endif
