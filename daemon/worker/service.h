/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches by their position: threads, and datasets that they move to what is asked. A
 * batch is a function of its position, and of the host that asks where the pipeline
 * divides its records (`shard: auto`), so that any thread makes it with any dataset.
 * Requests, and the memory of what was made, are bounded: one too many is refused.
 */
#ifndef STG_DAEMON_WORKER_SERVICE_H
#define STG_DAEMON_WORKER_SERVICE_H

#include "daemon/pipeline/definition.h"
#include "daemon/worker/frame.h"

#define STG_WORKER_MAX_PIPELINES 64

struct stg_worker_service;

struct stg_worker_config {
    struct stg_definition *const *pipelines; /* borrowed */
    size_t n_pipelines;
    unsigned n_threads;
    uint64_t memory_bytes; /* of batches that are made, or on their way */
    const char *zone;      /* NULL: none */
    int fd;                /* to stager-worker */
};

/* Checks that any batch of a pipeline can be made from its position alone, in a time that
 * does not depend on it. INVALID_ARGUMENT names the step or key. */
int stg_worker_check(const struct stg_definition *definition, struct stg_err *err);

/* Computes the digests of all pipelines and starts the threads. config is copied. Errors:
 * those of opening the data of a pipeline, RESOURCE_EXHAUSTED. */
int stg_worker_create(const struct stg_worker_config *config,
                      struct stg_worker_service **ret, struct stg_err *err);

/* Takes a message of stager-worker; answers by a thread, or at once. */
void stg_worker_take(struct stg_worker_service *service,
                     const struct stg_worker_ask *ask);

/* Another stager-worker is at the other end of the socket: it gets what the first one got
 * at the start, and answers to that one's requests are over. */
void stg_worker_restart(struct stg_worker_service *service);

/* Sends a message; with fd >= 0 a descriptor. Any thread. */
void stg_worker_send(int socket, struct stg_worker_answer *answer, const char *text,
                     int fd);

/* Joins the threads. NULL is allowed. */
void stg_worker_destroy(struct stg_worker_service *service);

#endif
