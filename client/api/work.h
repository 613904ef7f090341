/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: a process that runs the function of a pipeline's step py_function for the
 * daemon, one batch at a time. For bindings: the program that links
 * this provides the function. One thread at a time; not after fork.
 */
#ifndef STG_CLIENT_API_WORK_H
#define STG_CLIENT_API_WORK_H

#include "client/transport/connect.h"
#include "client/transport/map.h"
#include "core/batch.h"

struct stg_work_client {
    struct stager *client; /* its end is the daemon's word that this worker is to go */
    int channel;
    struct stg_bump bump;     /* of what follows */
    const char *function;     /* "module:name" */
    uint64_t seed;            /* of the step */
    bool pure;                /* likewise */
    struct stg_schema output; /* what it has to give, in this order */

    struct stg_map input, scratch;
    struct stg_map *old; /* inputs of which views may live: unmapped at the end */
    size_t n_old;
    uint64_t job;         /* in hand; 0: none */
    uint64_t input_bytes; /* of its batch */
};

/* Connects and asks to be one, if the pipeline has fewer than most (0: anyway). Errors as
 * of stager_connect and stager_open; ALREADY_EXISTS: it has so many; FAILED_PRECONDITION:
 * it has no step py_function. */
int stg_work_open(const char *runtime_dir, const char *name, uint32_t most,
                  struct stg_work_client **ret, struct stg_err *err);
void stg_work_close(struct stg_work_client *work); /* NULL is allowed */

/* The function is there: from now on there is work. */
void stg_work_ready(struct stg_work_client *work);

/* Waits for the next job; its batch lies, checked, at work->input.base until the next
 * call. UNAVAILABLE: the daemon has let go of this worker. DEADLINE_EXCEEDED. */
int stg_work_next(struct stg_work_client *work, int64_t deadline_ns, struct stg_err *err);

/* Answers the job in hand with one tensor an output, in order; strings have begin and
 * end. RESOURCE_EXHAUSTED: they do not fit; the job is still in hand. */
int stg_work_give(struct stg_work_client *work, const struct stg_tensor *tensors,
                  struct stg_err *err);

/* Answers it with an error of the function; code is positive. */
int stg_work_fail(struct stg_work_client *work, int code, const char *text,
                  struct stg_err *err);

/* Reports how a worker ended, by its exit status, or minus the signal that killed it. For
 * the process that started it and has its channel. Does nothing if no peer listens. */
void stg_work_tell_end(int channel, int status);

#endif
